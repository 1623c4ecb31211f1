//! Instance numbers, which tell apart the endpoints that have the same address.

use core::fmt;
use core::num::NonZeroU32;

/// A random number that identifies one endpoint among all that have, or had, the same address. An
/// endpoint that starts again on the same port gets another instance, and so does an endpoint on
/// another host with the same private address. The number is never zero, so that zero can mean "not
/// known" in an encoded address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(NonZeroU32);

impl Instance {
    /// Creates an instance from its number, or `None` from zero.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Returns the instance number, which is never zero.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the low 16 bits of the number, which may be zero, for packets without room for all
    /// of it.
    #[must_use]
    pub const fn tag(self) -> u16 {
        let [.., high, low] = self.0.get().to_be_bytes();
        u16::from_be_bytes([high, low])
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instance {self}")
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;

    use super::*;

    #[test]
    fn an_instance_has_eight_digits_and_is_never_zero() {
        assert_eq!(Instance::new(0), None);
        let one = Instance::new(0x0012_beef).expect("not zero");
        assert_eq!((one.get(), one.tag()), (0x0012_beef, 0xbeef));
        assert_eq!(format!("{one} {one:?}"), "0012beef instance 0012beef");
        assert_ne!(Some(one), Instance::new(0x0013_beef));
        assert_eq!(size_of::<Option<Instance>>(), 4);
    }
}
