//! Entries of completion queues, and the four layouts in which they are read.

use core::ffi::{CStr, c_char, c_void};

use crate::abi::compat::{CqErrEntry, version};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;

/// A completion queue entry: the fields of `fi_cq_tagged_entry`, and the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The application's context of the operation.
    pub(crate) context: u64,
    /// Completion flags, such as FI_SEND and FI_TAGGED.
    pub(crate) flags: u64,
    /// Bytes that were received; for other operations, bytes that were transferred.
    pub(crate) len: u64,
    /// The address at which the received message begins.
    pub(crate) buf: u64,
    /// Remote CQ data that came with the message or write.
    pub(crate) data: u64,
    /// The tag of the message that was received.
    pub(crate) tag: u64,
    /// The `fi_addr_t` of the message's sender.
    pub(crate) source: u64,
}

/// The completion queue entry of a failed operation.
#[derive(Clone, Debug)]
pub(crate) struct ErrorEntry {
    /// The fields of the operation's completion, as far as they are known.
    pub(crate) entry: Entry,
    /// Bytes of the message that did not fit into the buffer (FI_ETRUNC).
    pub(crate) excess: u64,
    /// The libfabric error number of the failure.
    pub(crate) errno: Errno,
    /// The provider's error code of the failure (`prov_errno`).
    pub(crate) code: i32,
    /// The full text about the error, if there is more to say than the table of errors does.
    pub(crate) text: Option<String>,
    /// Number of completions that come before this entry in the queue.
    pub(crate) position: u64,
}

/// The layout in which the application reads completion queue entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// Entries have the layout of `fi_cq_entry`: the context only.
    Context,
    /// Entries have the layout of `fi_cq_msg_entry`: context, flags and length.
    Msg,
    /// Entries have the layout of `fi_cq_data_entry`, with buffer and remote CQ data.
    Data,
    /// Entries have the layout of `fi_cq_tagged_entry`, with the tag as well.
    Tagged,
}

/// Returns an address that the engine keeps as a number as a pointer for the application.
fn pointer(address: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

impl Format {
    /// Converts a `fi_cq_format`. FI_CQ_FORMAT_UNSPEC stands for the largest layout.
    ///
    /// # Errors
    /// `FI_ENOSYS` for another.
    pub(super) fn from_attr(format: ffi::fi_cq_format) -> Result<Self> {
        match format {
            ffi::FI_CQ_FORMAT_UNSPEC | ffi::FI_CQ_FORMAT_TAGGED => Ok(Self::Tagged),
            ffi::FI_CQ_FORMAT_CONTEXT => Ok(Self::Context),
            ffi::FI_CQ_FORMAT_MSG => Ok(Self::Msg),
            ffi::FI_CQ_FORMAT_DATA => Ok(Self::Data),
            _ => Err(Errno::NOSYS),
        }
    }

    /// Writes `entry` into the application's array at `buf`, at index `i`.
    ///
    /// # Safety
    /// `buf` points to an array of this format's entries, aligned for them, and its `i`-th may be written to.
    #[inline]
    pub(super) unsafe fn write(self, buf: *mut c_void, i: usize, entry: &Entry) {
        let op_context = pointer(entry.context);
        let (flags, data, tag) = (entry.flags, entry.data, entry.tag);
        let len = usize::try_from(entry.len).unwrap_or(usize::MAX);
        // SAFETY: by this function's contract the array is one of the type that `buf` is cast to for each
        // format, and has an `i`-th entry; `write` does not look at what was there.
        unsafe {
            match self {
                Self::Context => {
                    buf.cast::<ffi::fi_cq_entry>().add(i).write(ffi::fi_cq_entry { op_context });
                }
                Self::Msg => buf
                    .cast::<ffi::fi_cq_msg_entry>()
                    .add(i)
                    .write(ffi::fi_cq_msg_entry { op_context, flags, len }),
                Self::Data => {
                    let buf_field = pointer(entry.buf);
                    buf.cast::<ffi::fi_cq_data_entry>().add(i).write(ffi::fi_cq_data_entry {
                        op_context,
                        flags,
                        len,
                        buf: buf_field,
                        data,
                    });
                }
                Self::Tagged => {
                    let buf_field = pointer(entry.buf);
                    buf.cast::<ffi::fi_cq_tagged_entry>().add(i).write(ffi::fi_cq_tagged_entry {
                        op_context,
                        flags,
                        len,
                        buf: buf_field,
                        data,
                        tag,
                    });
                }
            }
        }
    }
}

/// Largest size of an `err_data` buffer that is accepted, in bytes. Some applications (oneCCL, older MPICH) pass an
/// uninitialised entry, and the value in its size field is rarely 0 and often an address.
const LONGEST_BUFFER: usize = 1 << 24;

/// The layout of `fi_cq_err_entry` in the API version with which the application opened the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ErrorLayout {
    /// The error entry has the field `src_addr` (API 1.20).
    source: bool,
    /// The fields `err_data` and `err_data_size` name a buffer of the application on input (API 1.5).
    buffer: bool,
}

impl ErrorLayout {
    /// Returns the same layout for an entry whose `err_data` is no buffer of the application.
    pub(super) const fn without_buffer(self) -> Self {
        Self { buffer: false, ..self }
    }

    /// Returns the layout of the error entry in an API version.
    pub(super) const fn of(api: u32) -> Self {
        Self { source: api >= version(1, 20), buffer: api >= version(1, 5) }
    }
}

/// Writes the error text to the place that fi_cq(3) names: into the application's buffer, cut to its size and
/// terminated, or, without a buffer, as a pointer in `err_data` to the queue's own memory.
///
/// # Safety
/// `out` is as for [`ErrorEntry::write`], and with `buffer` its `err_data` may be written to for `err_data_size` bytes
/// if neither is 0.
unsafe fn write_text(out: *mut CqErrEntry, text: &CStr, buffer: bool) {
    // SAFETY: both fields are there by this function's contract, and are plain numbers, whatever they hold.
    let (room, place) = unsafe { ((*out).err_data_size, (*out).err_data.cast::<c_char>()) };
    if text.is_empty() {
        // `err_data` is left alone: it may be a buffer, or uninitialised.
        // SAFETY: a field of `out`, which may be written to by this function's contract.
        unsafe { (*out).err_data_size = 0 };
        return;
    }
    let copies = buffer && !place.is_null() && (1..=LONGEST_BUFFER).contains(&room);
    let bytes = text.count_bytes() + 1;
    // SAFETY: `out` may be written to by this function's contract. So may `room` bytes of the application's buffer: at
    // most `room - 1` bytes of the text, which has as many, are copied there, and a zero is written behind them.
    unsafe {
        if copies {
            let kept = bytes.min(room) - 1;
            core::ptr::copy_nonoverlapping(text.as_ptr(), place, kept);
            place.add(kept).write(0);
            (*out).err_data_size = kept + 1;
        } else {
            (*out).err_data = text.as_ptr().cast_mut().cast();
            (*out).err_data_size = bytes;
        }
    }
}

impl ErrorEntry {
    /// Writes the error entry into the application's `fi_cq_err_entry`.
    ///
    /// # Safety
    /// `out` points to an entry, aligned and open to writing, of the 1.17 layout, or, when the layout has the source,
    /// of the 1.20 layout. If the layout has a buffer, the memory that `err_data` and `err_data_size` name on input may
    /// be written to.
    pub(super) unsafe fn write(&self, out: *mut CqErrEntry, text: &CStr, layout: ErrorLayout) {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        // SAFETY: by this function's contract all fields of the 1.17 layout are there, up to `err_data_size`,
        // and `src_addr` when the layout has it. They are written one by one: a reference to the whole,
        // or a copy of it, would reach beyond the shorter layout.
        unsafe {
            (*out).op_context = pointer(self.entry.context);
            (*out).flags = self.entry.flags;
            (*out).len = size(self.entry.len);
            (*out).buf = pointer(self.entry.buf);
            (*out).data = self.entry.data;
            (*out).tag = self.entry.tag;
            (*out).olen = size(self.excess);
            (*out).err = self.errno.0;
            (*out).prov_errno = self.code;
            write_text(out, text, layout.buffer);
            if layout.source {
                (*out).src_addr = self.entry.source;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::mem::MaybeUninit;

    use super::*;

    const V1_4: ErrorLayout = ErrorLayout::of(version(1, 4));
    const V1_17: ErrorLayout = ErrorLayout::of(version(1, 17));
    const V1_20: ErrorLayout = ErrorLayout::of(version(1, 20));

    fn sample(n: u64) -> Entry {
        Entry {
            context: 0x1000 + n,
            flags: n,
            len: 10 * n,
            buf: 0x2000 + n,
            data: !n,
            tag: n << 60,
            source: n,
        }
    }

    /// An array of exactly three entries filled by `format`, the last first.
    fn written<T>(format: Format) -> Vec<T> {
        let mut array: Vec<T> = Vec::with_capacity(3);
        for i in [2, 0, 1] {
            // SAFETY: the array has room for three entries of the format's type, and `i` is below that.
            unsafe { format.write(array.as_mut_ptr().cast(), i, &sample(i as u64)) };
        }
        // SAFETY: the loop above wrote entries 2, 0 and 1 of the three that the capacity has room for.
        unsafe { array.set_len(3) };
        array
    }

    #[test]
    fn every_format_writes_its_own_structure_and_no_more() {
        for (i, e) in written::<ffi::fi_cq_entry>(Format::Context).iter().enumerate() {
            assert_eq!(e.op_context.addr(), 0x1000 + i);
        }
        for (i, e) in written::<ffi::fi_cq_msg_entry>(Format::Msg).iter().enumerate() {
            assert_eq!((e.op_context.addr(), e.flags, e.len), (0x1000 + i, i as u64, 10 * i));
        }
        for (i, e) in written::<ffi::fi_cq_data_entry>(Format::Data).iter().enumerate() {
            assert_eq!((e.op_context.addr(), e.flags, e.len), (0x1000 + i, i as u64, 10 * i));
            assert_eq!((e.buf.addr(), e.data), (0x2000 + i, !(i as u64)));
        }
        for (i, e) in written::<ffi::fi_cq_tagged_entry>(Format::Tagged).iter().enumerate() {
            assert_eq!((e.op_context.addr(), e.flags, e.len), (0x1000 + i, i as u64, 10 * i));
            assert_eq!((e.buf.addr(), e.data, e.tag), (0x2000 + i, !(i as u64), (i as u64) << 60));
        }
    }

    #[test]
    fn a_pointer_of_the_application_comes_back_usable() {
        let mut target = 5u32;
        let context = (&raw mut target).expose_provenance() as u64;
        let mut out = MaybeUninit::<ffi::fi_cq_entry>::uninit();
        // SAFETY: room for one entry, which is initialised by the write; its context is `target`.
        unsafe {
            Format::Context.write(out.as_mut_ptr().cast(), 0, &Entry { context, ..sample(0) });
            *out.assume_init().op_context.cast::<u32>() += 1;
        }
        assert_eq!(target, 6);
    }

    fn failure() -> ErrorEntry {
        let (errno, code) = (Errno::TIMEDOUT, 1234);
        ErrorEntry { entry: sample(7), excess: 9, errno, code, text: None, position: 0 }
    }

    #[test]
    fn an_application_of_1_17_gets_no_byte_beyond_its_error_entry() {
        // Memory that ends where the old layout ends.
        let mut old = Box::new([0u64; 10]);
        // SAFETY: an aligned entry of the 1.17 layout; the source, which lies behind it, is not asked for.
        unsafe { failure().write(old.as_mut_ptr().cast(), c"", V1_17) };
        assert_eq!(old[..7], [0x1007, 7, 70, 0x2007, !7, 7 << 60, 9]);
        let numbers = [Errno::TIMEDOUT.0.to_ne_bytes(), 1234i32.to_ne_bytes()].concat();
        assert_eq!(old[7].to_ne_bytes()[..], numbers[..]);
    }

    #[test]
    fn a_later_application_gets_the_source_and_the_text() {
        let mut out = MaybeUninit::<CqErrEntry>::zeroed();
        let text = c"the whole story";
        // SAFETY: an entry of the 1.20 layout, of which each field that is looked at was written.
        unsafe {
            failure().write(out.as_mut_ptr(), text, V1_20);
            let out = out.assume_init();
            assert_eq!((out.src_addr, out.err, out.prov_errno), (7, Errno::TIMEDOUT.0, 1234));
            assert_eq!(out.err_data_size, text.count_bytes() + 1);
            assert_eq!(core::ffi::CStr::from_ptr(out.err_data.cast()), text);
        }
    }

    /// Writes a failure with `text` into an entry with a buffer of `room` bytes at `place`, and returns the entry.
    fn with_buffer(
        layout: ErrorLayout,
        text: &CStr,
        place: *mut u8,
        room: usize,
    ) -> (*mut u8, usize) {
        let mut out = MaybeUninit::<CqErrEntry>::zeroed();
        // SAFETY: an entry of the latest layout, all of which is initialised; every caller here says how many bytes may
        // be written to at `place`, or a size that must not be relied on.
        unsafe {
            (*out.as_mut_ptr()).err_data = place.cast();
            (*out.as_mut_ptr()).err_data_size = room;
            failure().write(out.as_mut_ptr(), text, layout);
            let out = out.assume_init();
            (out.err_data.cast(), out.err_data_size)
        }
    }

    #[test]
    fn the_text_goes_into_the_buffer_of_the_application() {
        for room in 1..=8 {
            let mut buffer = [0xff; 8];
            let place = buffer.as_mut_ptr();
            let kept = room.min(5);
            assert_eq!(with_buffer(V1_17, c"word", place, room), (place, kept));
            assert_eq!(&buffer[..kept - 1], &b"word"[..kept - 1]);
            assert_eq!(buffer[kept - 1], 0, "a text that was cut is terminated as well");
            assert!(buffer[kept..].iter().all(|byte| *byte == 0xff), "{room}");
        }
    }

    #[test]
    fn without_a_buffer_the_text_stays_in_the_queue() {
        let mut buffer = [0xff; 8];
        let place = buffer.as_mut_ptr();
        let text = c"word";
        let own = (text.as_ptr().cast_mut().cast(), 5);
        assert_eq!(with_buffer(V1_4, text, place, 8), own, "not before API 1.5");
        assert_eq!(with_buffer(V1_17, text, place, 0), own);
        assert_eq!(with_buffer(V1_17, text, core::ptr::null_mut(), 8), own);
        assert_eq!(with_buffer(V1_17, text, place, LONGEST_BUFFER + 1), own, "no size at all");
        assert_eq!(with_buffer(V1_17, c"", place, 8), (place, 0), "nothing to tell");
        assert_eq!(buffer, [0xff; 8]);
    }
}
