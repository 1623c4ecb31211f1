//! Copies of payload that its owner lends and the other process cannot read.
//!
//! A process may lose the right to read another one while references are in flight, and some mappings can never be read
//! (`fetch.rs`). The reader of such a record asks the record's writer for the bytes: the request names the slot of the
//! reference and a position. The writer copies a part of the payload into the segment, [`BOUNCE`] bytes at a time, when
//! it checks its connections. The record stays at the front of its ring until all bytes have arrived. So the sender
//! never sees a record as taken whose bytes the receiver does not have.
//!
//! Each request and each answer carries a number, beside the words that belong to it. A request is answered when both
//! numbers are equal. A writer that does not answer holds up only its own records.

use std::sync::atomic::Ordering;

use super::fetch::holds;
use super::ring::Place;
use super::segment::Segment;

/// Bytes that are copied at a time, in each direction.
pub(super) const BOUNCE: usize = 64 << 10;
/// Bytes of the longest payload that is copied: an honest peer's record refers to at most as many.
pub(super) const MOST_COPIED: usize = 1 << 20;

// Offsets on a cache line of the reader of a ring: the number of its request, the slot and its generation, and a
// position in the payload.
pub(super) const REQUEST: usize = 64;
pub(super) const REFERENCE: usize = 72;
pub(super) const FROM: usize = 80;
// Offsets on a cache line of the writer: the number of the request that is answered, and the number of bytes that were
// copied.
pub(super) const ANSWER: usize = 192;
pub(super) const COPIED: usize = 200;
/// This value in place of a number of bytes says that the reference is not valid.
const NOTHING: u64 = u64::MAX;

/// A request to the writer of a ring to copy a part of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) slot: u32,
    pub(super) generation: u32,
    /// The position in the payload at which the bytes begin.
    pub(super) from: u64,
}

/// Returns the next request of the reader of a ring, if its number differs from the request that was `answered` last.
pub(super) fn request(segment: &Segment, place: Place, answered: u64) -> Option<Request> {
    let number = segment.word(place.control + REQUEST).load(Ordering::Acquire);
    if number == answered {
        return None;
    }
    let reference = segment.word(place.control + REFERENCE).load(Ordering::Relaxed);
    let from = segment.word(place.control + FROM).load(Ordering::Relaxed);
    let (slot, generation) = ((reference >> 32) as u32, reference as u32);
    Some(Request { number, slot, generation, from })
}

/// Copies the part of a payload from `from` on that fits into the segment at `bounce`. Returns the number of bytes, or
/// `None` when there is no such part, or no memory.
///
/// # Safety
/// The pieces, each an address and a length, are readable: the addresses were exposed, and their bytes stay mapped
/// until this returns, even if the application writes to them meanwhile.
pub(super) unsafe fn copy(
    segment: &Segment,
    bounce: usize,
    pieces: impl Iterator<Item = (u64, u64)>,
    from: u64,
) -> Option<u64> {
    if !segment.populate(bounce, BOUNCE) {
        return None;
    }
    let (mut skip, mut done) = (from, 0);
    for (base, len) in pieces {
        if skip >= len {
            skip -= len;
            continue;
        }
        let take = usize::try_from(len - skip).unwrap_or(usize::MAX).min(BOUNCE - done);
        let at = usize::try_from(base.wrapping_add(skip)).ok()?;
        // SAFETY: `take` bytes from there on are in a piece, which is readable by this function's contract; `write`
        // checks that they fit into the segment.
        unsafe {
            segment.write(bounce + done, std::ptr::with_exposed_provenance(at), take);
        }
        (skip, done) = (0, done + take);
        if done == BOUNCE {
            break;
        }
    }
    (done > 0).then_some(done as u64)
}

/// Answers a request with the number of bytes that were copied, or with `None` if none can be.
pub(super) fn answer(segment: &Segment, place: Place, number: u64, copied: Option<u64>) {
    segment.word(place.control + COPIED).store(copied.unwrap_or(NOTHING), Ordering::Relaxed);
    segment.word(place.control + ANSWER).store(number, Ordering::Release);
}

/// A payload that the reader asks its owner to copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LentPayload {
    pub(super) slot: u32,
    pub(super) generation: u32,
    /// Bytes of the payload.
    pub(super) len: usize,
}

/// The state of a payload that its owner copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// More bytes are to come.
    Waiting,
    /// All bytes have arrived.
    Whole,
    /// The owner has taken the payload back, or does not follow the protocol.
    Gone,
}

/// The payload of the record at the front of a ring, which the record's writer copies for this process.
#[derive(Debug)]
pub(super) struct Copier {
    /// The position of the peer's ring in the segment.
    place: Place,
    /// The position in the segment to which the peer copies.
    bounce: usize,
    /// The number of requests so far.
    requests: u64,
    open: Option<(LentPayload, Vec<u8>)>,
}

impl Copier {
    pub(super) const fn new(place: Place, bounce: usize) -> Self {
        Self { place, bounce, requests: 0, open: None }
    }

    /// Returns whether the record at the front waits for its payload, or has it.
    #[inline]
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Asks the owner for the first part of a payload.
    pub(super) fn begin(&mut self, segment: &Segment, wanted: LentPayload) {
        self.open = Some((wanted, Vec::new()));
        self.ask(segment, wanted, 0);
    }

    fn ask(&mut self, segment: &Segment, wanted: LentPayload, from: usize) {
        let Place { control, .. } = self.place;
        let reference = u64::from(wanted.slot) << 32 | u64::from(wanted.generation);
        self.requests += 1;
        segment.word(control + REFERENCE).store(reference, Ordering::Relaxed);
        segment.word(control + FROM).store(from as u64, Ordering::Relaxed);
        segment.word(control + REQUEST).store(self.requests, Ordering::Release);
    }

    /// Takes the bytes that the peer has copied, and asks for the next part.
    pub(super) fn poll(&mut self, segment: &Segment) -> Progress {
        let Self { place, bounce, requests, open } = self;
        let Some((wanted, bytes)) = open else { return Progress::Gone };
        let wanted = *wanted;
        let left = wanted.len - bytes.len();
        if left == 0 {
            return Progress::Whole;
        }
        if !holds(segment, *place, (wanted.slot, wanted.generation)) {
            return Progress::Gone;
        }
        if segment.word(place.control + ANSWER).load(Ordering::Acquire) != *requests {
            return Progress::Waiting;
        }
        let part = left.min(BOUNCE);
        let copied = segment.word(place.control + COPIED).load(Ordering::Relaxed);
        if copied != part as u64 || !segment.populate(*bounce, part) {
            return Progress::Gone;
        }
        let at = bytes.len();
        bytes.resize(at + part, 0);
        segment.read(*bounce, &mut bytes[at..]);
        if part == left {
            return Progress::Whole;
        }
        self.ask(segment, wanted, at + part);
        Progress::Waiting
    }

    /// Returns the bytes that have been copied.
    pub(super) fn bytes(&self) -> &[u8] {
        self.open.as_ref().map_or(&[], |(_, bytes)| bytes)
    }

    /// Ends the copy, because the record has been handled.
    pub(super) fn end(&mut self) {
        self.open = None;
    }
}
