//! What tells an endpoint from others that had, or have, the same address.

use core::fmt;
use core::num::NonZeroU32;

/// The number of one endpoint instance, random for each. Not a secret: it travels with the address, so that
/// whoever answers there can be told from who was meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instance(NonZeroU32);

impl Instance {
    /// The instance with this number; `None` for 0, which is nobody's.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number, not 0.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// What requests carry of it: the low half.
    #[must_use]
    pub const fn tag(self) -> u16 {
        (self.0.get() & 0xffff) as u16
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn nobody_is_number_zero() {
        assert_eq!(Instance::new(0), None);
        let instance = Instance::new(0x12_3456).expect("not 0");
        assert_eq!((instance.get(), instance.tag()), (0x12_3456, 0x3456));
        assert_eq!(std::format!("{instance}"), "00123456");
    }
}
