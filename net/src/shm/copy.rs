//! Copies of payload that its owner lends and the other process cannot read.
//!
//! A process may lose the permission to read another one while references are in flight, and some
//! mappings can never be read (`fetch.rs`). The receiver of such a record requests the bytes from
//! the sender. The request names the slot of the reference and a position. The sender copies a part
//! of the payload into the segment, [`BOUNCE_SIZE`] bytes at a time, when it polls its channels.
//! The record stays at the front of its ring until all bytes have arrived, so a record whose
//! payload is missing never counts as taken.
//!
//! Each request and each answer has a number beside its other words. A request is answered when
//! both numbers are equal. A sender that does not answer delays only its own records.

use std::sync::atomic::Ordering;

use super::fetch::is_valid_reference;
use super::ring::RingLayout;
use super::segment::Segment;

/// Size of the shared buffer for copied payload, in each direction, in bytes.
pub(super) const BOUNCE_SIZE: usize = 64 << 10;
/// Length in bytes of the longest payload that is copied. An honest peer's record refers to at most
/// as many.
pub(super) const MAX_COPIED: usize = 1 << 20;

// Control words of the reader: the number of its request, the slot with its generation, and the
// position in the payload.
pub(super) const REQUEST: usize = 64;
pub(super) const REFERENCE: usize = 72;
pub(super) const FROM: usize = 80;
// Control words of the writer: the number of the answered request, and the number of bytes that
// were copied.
pub(super) const ANSWER: usize = 192;
pub(super) const COPIED: usize = 200;
/// Value of the word [`COPIED`] if the reference that the reader asked for is not valid.
const INVALID_REFERENCE: u64 = u64::MAX;

/// A request to the sender of a record to copy a part of its payload into shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CopyRequest {
    pub(super) number: u64,
    pub(super) slot: u32,
    pub(super) generation: u32,
    /// Position in the payload, in bytes, at which the requested part begins.
    pub(super) from: u64,
}

/// Returns the reader's current request, unless its number is that of the request `answered` last.
pub(super) fn next_request(
    segment: &Segment,
    place: RingLayout,
    answered: u64,
) -> Option<CopyRequest> {
    let number = segment.word(place.control + REQUEST).load(Ordering::Acquire);
    if number == answered {
        return None;
    }
    let reference = segment.word(place.control + REFERENCE).load(Ordering::Relaxed);
    let from = segment.word(place.control + FROM).load(Ordering::Relaxed);
    let (slot, generation) = ((reference >> 32) as u32, reference as u32);
    Some(CopyRequest { number, slot, generation, from })
}

/// Copies payload from position `from` on into the segment at `bounce`, as much as the buffer
/// holds. Returns the number of bytes, or `None` if there is no such part or no memory.
///
/// # Safety
/// The pieces, each an address and a length, are readable: the addresses were exposed, and their
/// bytes stay mapped until this returns, even if the application writes to them meanwhile.
pub(super) unsafe fn copy_part(
    segment: &Segment,
    bounce: usize,
    pieces: impl Iterator<Item = (u64, u64)>,
    from: u64,
) -> Option<u64> {
    if !segment.populate(bounce, BOUNCE_SIZE) {
        return None;
    }
    let (mut skip, mut done) = (from, 0);
    for (base, len) in pieces {
        if skip >= len {
            skip -= len;
            continue;
        }
        let take = usize::try_from(len - skip).unwrap_or(usize::MAX).min(BOUNCE_SIZE - done);
        let at = usize::try_from(base.wrapping_add(skip)).ok()?;
        // SAFETY: `take` bytes from there on are in a piece, which is readable by this function's contract; `write`
        // checks that they fit into the segment.
        unsafe {
            segment.write(bounce + done, std::ptr::with_exposed_provenance(at), take);
        }
        (skip, done) = (0, done + take);
        if done == BOUNCE_SIZE {
            break;
        }
    }
    (done > 0).then_some(done as u64)
}

/// Answers a request with the number of bytes that were copied, or with `None` if there are none.
pub(super) fn answer_request(
    segment: &Segment,
    place: RingLayout,
    number: u64,
    copied: Option<u64>,
) {
    segment
        .word(place.control + COPIED)
        .store(copied.unwrap_or(INVALID_REFERENCE), Ordering::Relaxed);
    segment.word(place.control + ANSWER).store(number, Ordering::Release);
}

/// A payload that the receiver asks its owner to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PayloadToCopy {
    pub(super) slot: u32,
    pub(super) generation: u32,
    /// Length of the whole payload in bytes.
    pub(super) len: usize,
}

/// The progress of copying a payload piece by piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopyProgress {
    /// More bytes of the payload are to come.
    Pending,
    /// All bytes of the payload have arrived.
    Complete,
    /// The owner has revoked the payload or violates the protocol.
    Aborted,
}

/// The receiver's side of a copy, for the record at the front of a ring.
#[derive(Debug)]
pub(super) struct CopyReceiver {
    /// Position in the segment of the ring whose record refers to the payload.
    place: RingLayout,
    /// Offset in the segment of the buffer that the peer copies to.
    bounce: usize,
    /// Number of requests for copies that this end has made.
    requests: u64,
    open: Option<(PayloadToCopy, Vec<u8>)>,
}

impl CopyReceiver {
    pub(super) const fn new(place: RingLayout, bounce: usize) -> Self {
        Self { place, bounce, requests: 0, open: None }
    }

    /// Returns whether the record at the front waits for its payload, or has it.
    #[inline]
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Requests the first part of a payload from its owner.
    pub(super) fn begin(&mut self, segment: &Segment, wanted: PayloadToCopy) {
        self.open = Some((wanted, Vec::new()));
        self.request_part(segment, wanted, 0);
    }

    fn request_part(&mut self, segment: &Segment, wanted: PayloadToCopy, from: usize) {
        let RingLayout { control, .. } = self.place;
        let reference = u64::from(wanted.slot) << 32 | u64::from(wanted.generation);
        self.requests += 1;
        segment.word(control + REFERENCE).store(reference, Ordering::Relaxed);
        segment.word(control + FROM).store(from as u64, Ordering::Relaxed);
        segment.word(control + REQUEST).store(self.requests, Ordering::Release);
    }

    /// Takes the bytes that the peer has copied, and requests the next part.
    pub(super) fn poll(&mut self, segment: &Segment) -> CopyProgress {
        let Self { place, bounce, requests, open } = self;
        let Some((wanted, bytes)) = open else { return CopyProgress::Aborted };
        let wanted = *wanted;
        let left = wanted.len - bytes.len();
        if left == 0 {
            return CopyProgress::Complete;
        }
        if !is_valid_reference(segment, *place, (wanted.slot, wanted.generation)) {
            return CopyProgress::Aborted;
        }
        if segment.word(place.control + ANSWER).load(Ordering::Acquire) != *requests {
            return CopyProgress::Pending;
        }
        let part = left.min(BOUNCE_SIZE);
        let copied = segment.word(place.control + COPIED).load(Ordering::Relaxed);
        // An honest owner copies exactly the part that was asked for.
        if copied != part as u64 || !segment.populate(*bounce, part) {
            return CopyProgress::Aborted;
        }
        let at = bytes.len();
        // The buffer grows part by part, so a peer that claims a long payload takes no memory
        // before it delivers.
        bytes.resize(at + part, 0);
        segment.read(*bounce, &mut bytes[at..]);
        if part == left {
            return CopyProgress::Complete;
        }
        self.request_part(segment, wanted, at + part);
        CopyProgress::Pending
    }

    /// Returns the bytes of the payload that have arrived.
    pub(super) fn bytes(&self) -> &[u8] {
        self.open.as_ref().map_or(&[], |(_, bytes)| bytes)
    }

    /// Ends the copying of a payload, because its record has been handled.
    pub(super) fn end(&mut self) {
        self.open = None;
    }
}
