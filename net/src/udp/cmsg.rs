//! Ancillary data (cmsg(3)): encoded for sends, decoded from receives.

use std::mem;

/// Buffer for all control messages of one call, aligned as `cmsghdr` requires.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct CmsgBuffer([u8; Self::LEN]);

impl CmsgBuffer {
    /// Size in bytes. A receive needs TOS (24), GRO (24) and overflow (24). The longest message is
    /// an extended error with its offender (16 + 16 + 28, rounded up).
    pub(super) const LEN: usize = 128;

    /// Creates an empty buffer for control messages.
    pub(super) const fn new() -> Self {
        Self([0; Self::LEN])
    }

    pub(super) const fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        (&raw mut self.0).cast()
    }
}

/// Appends control messages (cmsg(3)) to a buffer.
pub(super) struct Encoder<'a> {
    control: &'a mut CmsgBuffer,
    len: usize,
}

impl<'a> Encoder<'a> {
    pub(super) const fn new(control: &'a mut CmsgBuffer) -> Self {
        Self { control, len: 0 }
    }

    /// Appends a message whose data are the bytes of an integer. A send has at most three short
    /// messages, which always fit.
    pub(super) fn push<const N: usize>(
        &mut self,
        level: libc::c_int,
        kind: libc::c_int,
        value: [u8; N],
    ) {
        let header = mem::size_of::<libc::cmsghdr>();
        let space = (header + N).next_multiple_of(mem::align_of::<libc::cmsghdr>());
        assert!(
            self.len + space <= CmsgBuffer::LEN,
            "control messages of a send are few and short"
        );
        // SAFETY: the assertion keeps header and value inside of the buffer, which is borrowed mutably; both
        // are written unaligned. A `cmsghdr` is plain integers, for which zero is a value, and has no
        // padding (where a C library pads it, by a field), so that all bytes of the buffer stay initialised.
        unsafe {
            let at = self.control.0.as_mut_ptr().add(self.len);
            let mut cmsg: libc::cmsghdr = mem::zeroed();
            cmsg.cmsg_len = (header + N) as _;
            cmsg.cmsg_level = level;
            cmsg.cmsg_type = kind;
            at.cast::<libc::cmsghdr>().write_unaligned(cmsg);
            at.add(header).cast::<[u8; N]>().write_unaligned(value);
        }
        self.len += space;
    }

    /// Returns the number of bytes written, the value of `msg_controllen`.
    pub(super) const fn len(&self) -> usize {
        self.len
    }
}

/// A control message (cmsg(3)) that came with a received datagram.
pub(super) struct Cmsg<'a> {
    pub(super) level: libc::c_int,
    pub(super) kind: libc::c_int,
    pub(super) data: &'a [u8],
}

impl Cmsg<'_> {
    /// Returns the value as an integer in native byte order: one byte (`IP_TOS`) or four (all
    /// others).
    pub(super) fn int(&self) -> Option<u32> {
        match *self.data {
            [byte] => Some(u32::from(byte)),
            [a, b, c, d, ..] => Some(u32::from_ne_bytes([a, b, c, d])),
            _ => None,
        }
    }
}

/// Iterator over received control messages. It stops at the first one that is truncated.
pub(super) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Creates the iterator; `len` is the value that the kernel left in `msg_controllen`.
    pub(super) fn new(control: &'a CmsgBuffer, len: usize) -> Self {
        Self(&control.0[..len.min(CmsgBuffer::LEN)])
    }
}

impl<'a> Iterator for Decoder<'a> {
    type Item = Cmsg<'a>;

    fn next(&mut self) -> Option<Cmsg<'a>> {
        let header = mem::size_of::<libc::cmsghdr>();
        if self.0.len() < header {
            return None;
        }
        // SAFETY: the slice was just seen to be no shorter than a `cmsghdr`, which is plain integers, so
        // that any bytes are a value of it; it is read unaligned.
        let cmsg = unsafe { self.0.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        // The type of the field differs between C libraries.
        #[allow(clippy::unnecessary_cast)]
        let len = cmsg.cmsg_len as usize;
        let data = self.0.get(header..len)?;
        let next = len.next_multiple_of(mem::align_of::<libc::cmsghdr>());
        self.0 = self.0.get(next..).unwrap_or_default();
        Some(Cmsg { level: cmsg.cmsg_level, kind: cmsg.cmsg_type, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read_back() {
        let mut control = CmsgBuffer::new();
        let mut encoder = Encoder::new(&mut control);
        encoder.push(libc::IPPROTO_IP, libc::IP_TOS, [0xb8]);
        encoder.push(libc::SOL_UDP, libc::UDP_GRO, 1472_i32.to_ne_bytes());
        let len = encoder.len();
        assert_eq!(len, 48);
        let got: Vec<_> =
            Decoder::new(&control, len).map(|c| (c.level, c.kind, c.int().unwrap())).collect();
        assert_eq!(
            got,
            [(libc::IPPROTO_IP, libc::IP_TOS, 0xb8), (libc::SOL_UDP, libc::UDP_GRO, 1472)]
        );
        // Cut in the second: only the first is there.
        assert_eq!(Decoder::new(&control, 40).count(), 1);
        // A length that cannot be (shorter than its own header) ends it.
        control.0[..8].copy_from_slice(&3_u64.to_ne_bytes());
        assert_eq!(Decoder::new(&control, len).count(), 0);
    }
}
