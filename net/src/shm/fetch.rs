//! Payload that records refer to. The sender lends its memory, and the receiver fetches from it
//! (`process_vm_readv(2)`).
//!
//! No process ever writes into another one. The receiver reads from the process that the kernel
//! reported for the connection. Then it checks that this process still lives (otherwise its ID
//! could belong to another one by now), and that the reference is still valid. Each reference has a
//! slot, whose generation the owner increments to take the memory back. So the owner never waits
//! for the peer.
//!
//! A process may read another one if both have the same user, and PID namespaces, Yama and seccomp
//! allow it. The processes test this when they connect: each publishes the address of a random
//! number. The permission may end later. A process that changes its privileges is not dumpable any
//! more, and some mappings can never be read. The first read that fails although its reference is
//! valid ends the use of references on the channel. The owner then copies the payload of records in
//! flight (`copy.rs`).

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};

use super::copy::{self, MAX_COPIED, PayloadToCopy};
use super::ring::RingLayout;
use super::segment::Segment;
use super::socket;
use crate::base::UserSlice;
use crate::burst::address;

/// Largest number of references to lent memory in flight, for each direction.
const SLOTS: usize = 64;
/// Largest number of memory pieces of a payload that a reference can name.
pub(super) const MAX_REFERENCE_PIECES: usize = 4;
/// Length in bytes of the longest description of lent memory: slot, generation and number of pieces, then address and
/// length of each piece.
pub(super) const MAX_DESCRIPTION: usize = 12 + 16 * MAX_REFERENCE_PIECES;

/// Control word of the reader of a ring: the reader can read the writer's memory.
const CAN_READ: usize = 16;
/// Control words of the writer of a ring: the address of the random number that the reader tries to read, and the
/// number.
const PROBE_AT: usize = 136;
const PROBE: usize = 144;
/// Control words of the writer of a ring: the generations of the slots of its references.
const GENERATIONS: usize = 256;

/// The memory that a reference names: address and length of each piece.
#[derive(Clone, Copy, Debug, Default)]
struct PieceList {
    all: [(u64, u64); MAX_REFERENCE_PIECES],
    count: usize,
}

impl PieceList {
    fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.all.iter().take(self.count).copied()
    }
}

/// A reference to lent memory in a record that the peer has not taken.
#[derive(Clone, Copy, Debug)]
struct OpenReference {
    /// Number of the record that contains the reference.
    number: u64,
    slot: u32,
    /// Generation of the slot when the record was sent. The reference is valid while the slot still
    /// has it.
    generation: u32,
    /// Tag by which the owner can revoke the lent memory.
    tag: u64,
}

/// The memory that this process lends to the peer of a channel.
#[derive(Debug)]
pub(super) struct Lender {
    place: RingLayout,
    /// Offset in the segment of the buffer for payload that the peer cannot read.
    bounce: usize,
    /// Number of the last request for a copy that was answered.
    answered: u64,
    free: Vec<u32>,
    generations: [u32; SLOTS],
    /// The lent pieces of memory, by the slot of their reference.
    lent: Box<[PieceList; SLOTS]>,
    /// The references in flight, in the order of their records.
    open: VecDeque<OpenReference>,
    /// Random number that the peer reads to test whether it can. It is boxed, so that its address
    /// does not change.
    probe: Box<u64>,
}

impl Lender {
    pub(super) fn new(place: RingLayout, bounce: usize) -> Self {
        // RandomState is seeded by the operating system. The number only has to differ from what
        // other memory holds.
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self {
            place,
            bounce,
            answered: 0,
            free: (0..SLOTS as u32).collect(),
            generations: [0; SLOTS],
            lent: Box::new([PieceList::default(); SLOTS]),
            open: VecDeque::new(),
            probe: Box::new(random),
        }
    }

    /// Publishes the address and the value of the random number that the peer reads as a test.
    pub(super) fn publish_probe(&self, segment: &Segment) {
        let at = std::ptr::from_ref::<u64>(&self.probe).expose_provenance() as u64;
        segment.word(self.place.control + PROBE_AT).store(at, Ordering::Relaxed);
        segment.word(self.place.control + PROBE).store(*self.probe, Ordering::Release);
    }

    /// Returns whether the peer can read our memory, according to the peer.
    pub(super) fn peer_can_read(&self, segment: &Segment) -> bool {
        segment.word(self.place.control + CAN_READ).load(Ordering::Acquire) == 1
    }

    /// Assigns a slot to the record number `next` and describes its pieces. `taken` is the number
    /// of records that the peer has taken; their slots are free again. Returns `None` if all slots
    /// are in use.
    pub(super) fn describe(
        &mut self,
        segment: &Segment,
        (next, taken): (u64, u64),
        pieces: &[UserSlice],
        tag: u64,
    ) -> Option<([u8; MAX_DESCRIPTION], usize)> {
        while let Some(&OpenReference { number, slot, .. }) = self.open.front()
            && number < taken
        {
            self.open.pop_front();
            // The generation changes before the slot is reused, so a late read for the old record
            // is recognised as invalid.
            self.raise_generation(segment, slot);
            self.free.push(slot);
        }
        let slot = self.free.pop()?;
        let generation = self.generations[slot as usize];
        self.open.push_back(OpenReference { number: next, slot, generation, tag });
        let mut out = [0; MAX_DESCRIPTION];
        // There are at most [`MAX_REFERENCE_PIECES`] pieces.
        for (to, word) in out.chunks_mut(4).zip([slot, generation, pieces.len() as u32]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let lent = &mut self.lent[slot as usize];
        lent.count = pieces.len();
        for ((to, kept), piece) in out[12..].chunks_mut(16).zip(&mut lent.all).zip(pieces) {
            to[..8].copy_from_slice(&piece.base.to_le_bytes());
            to[8..].copy_from_slice(&piece.len.to_le_bytes());
            *kept = (piece.base, piece.len);
        }
        Some((out, 12 + 16 * pieces.len()))
    }

    /// Copies a part of a lent payload into the segment, if the peer asks for it because it cannot
    /// read the payload. `taken` is the number of records that the peer has taken.
    ///
    /// # Safety
    /// The memory that was described for a record is readable if the record is not among those
    /// taken and was not revoked: its addresses were exposed, and its bytes stay mapped.
    pub(super) unsafe fn copy_out(&mut self, segment: &Segment, taken: u64) {
        if self.open.is_empty() {
            return;
        }
        let Some(wanted) = copy::next_request(segment, self.place, self.answered) else { return };
        self.answered = wanted.number;
        let (slot, generation) = (wanted.slot, wanted.generation);
        let is_wanted = |open: &&OpenReference| {
            open.number >= taken && (open.slot, open.generation) == (slot, generation)
        };
        // The generation in the request is not enough, because the peer could guess a future one.
        // The reference must be in flight.
        let found = self.open.iter().find(is_wanted).map(|open| open.slot as usize);
        let held = found.filter(|slot| self.generations[*slot] == generation);
        let copied = held.and_then(|slot| {
            let pieces = self.lent[slot].iter();
            // SAFETY: the reference holds, so this function's contract is that its pieces are readable.
            unsafe { copy::copy_part(segment, self.bounce, pieces, wanted.from) }
        });
        copy::answer_request(segment, self.place, wanted.number, copied);
    }

    /// Withdraws the description of the last record, because the record was not sent.
    pub(super) fn withdraw_last(&mut self) {
        if let Some(open) = self.open.pop_back() {
            self.free.push(open.slot);
        }
    }

    /// Revokes the references to lent memory with this tag, or all of them.
    pub(super) fn revoke(&mut self, segment: &Segment, tag: Option<u64>) {
        for at in 0..self.open.len() {
            let open = self.open[at];
            if tag.is_none_or(|tag| tag == open.tag) {
                self.raise_generation(segment, open.slot);
            }
        }
    }

    fn raise_generation(&mut self, segment: &Segment, slot: u32) {
        let generation = &mut self.generations[slot as usize];
        *generation = generation.wrapping_add(1);
        let at = self.place.control + GENERATIONS + slot as usize * 4;
        segment.flag(at).store(*generation, Ordering::SeqCst);
    }
}

/// The process at the other end of a channel.
#[derive(Debug)]
pub(super) struct PeerProcess {
    /// Process ID, or 0 if the process has none in this PID namespace.
    pid: libc::pid_t,
    /// Descriptor of the process (pidfd), readable when the process has ended.
    fd: OwnedFd,
}

impl PeerProcess {
    /// Opens the process behind a connection, which has the ID `pid`. Returns `None` if the process
    /// has no ID in this PID namespace and the kernel is older than 6.5, or the kernel has no
    /// pidfds.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn of_peer(socket: RawFd, pid: libc::pid_t) -> io::Result<Option<Self>> {
        match socket::peer_process(socket) {
            Ok(fd) => Ok(Some(Self { pid: pid.max(0), fd })),
            // Linux has SO_PEERPIDFD since 6.5. On older kernels the ID could be reused between the
            // two calls.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(Self::open(pid)),
            Err(error) => Err(error),
        }
    }

    /// Opens a process by its ID. Returns `None` if the ID is not valid here or the kernel has no
    /// pidfds.
    pub(super) fn open(pid: libc::pid_t) -> Option<Self> {
        if pid <= 0 {
            return None;
        }
        // SAFETY: pidfd_open(2) takes numbers and returns a new descriptor, closed on exec, which goes nowhere but into
        // the `OwnedFd`.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            std::os::fd::FromRawFd::from_raw_fd(RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?)
        };
        Some(Self { pid, fd })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn is_alive(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: poll(2) reads and writes the one pollfd that it is given, a local variable.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
    }

    /// Copies all of `len` bytes at the address `from` of the process to `to`. Returns whether that
    /// succeeded.
    ///
    /// # Safety
    /// `to` may be written for `len` bytes.
    unsafe fn read(&self, from: u64, to: *mut u8, len: usize) -> bool {
        let Ok(at) = usize::try_from(from) else { return false };
        if self.pid == 0 {
            return false;
        }
        let mut done = 0;
        while done < len {
            let left = len - done;
            // SAFETY: within `len` bytes of `to`, by this function's contract.
            let here = libc::iovec { iov_base: unsafe { to.add(done) }.cast(), iov_len: left };
            let there = libc::iovec {
                iov_base: std::ptr::without_provenance_mut(at.wrapping_add(done)),
                iov_len: left,
            };
            // SAFETY: process_vm_readv(2) writes at most `left` bytes behind `here`, as was just said; `there` is an
            // address of the other process, which the kernel checks.
            let n = unsafe {
                libc::process_vm_readv(self.pid, &raw const here, 1, &raw const there, 1, 0)
            };
            match usize::try_from(n) {
                Ok(n) if n > 0 => done += n,
                _ => return false,
            }
        }
        true
    }

    /// Reads the random number at the published address and publishes whether that succeeded.
    pub(super) fn probe(&self, segment: &Segment, place: RingLayout) -> bool {
        let expected = segment.word(place.control + PROBE).load(Ordering::Acquire);
        let at = segment.word(place.control + PROBE_AT).load(Ordering::Relaxed);
        let mut found = 0u64;
        // SAFETY: `read` writes at most eight bytes, all of `found`, a local variable.
        let read = unsafe { self.read(at, (&raw mut found).cast(), 8) };
        // The process must still live after the read, or its ID may belong to another process by
        // now.
        let can = read && found == expected && expected != 0 && self.is_alive();
        segment.word(place.control + CAN_READ).store(can.into(), Ordering::Release);
        can
    }
}

/// Publishes that this process cannot read the writer's memory any more.
#[cold]
pub(super) fn refuse_references(segment: &Segment, place: RingLayout) {
    segment.word(place.control + CAN_READ).store(0, Ordering::Release);
}

/// Undoes [`refuse_references`], so that tests can continue.
#[cfg(test)]
pub(super) fn allow_references(segment: &Segment, place: RingLayout) {
    segment.word(place.control + CAN_READ).store(1, Ordering::Release);
}

/// Returns whether the slot of a reference still has this generation, so that the reference is
/// valid.
pub(super) fn is_valid_reference(
    segment: &Segment,
    place: RingLayout,
    (slot, generation): (u32, u32),
) -> bool {
    let at = place.control + GENERATIONS + slot as usize * 4;
    (slot as usize) < SLOTS && segment.flag(at).load(Ordering::SeqCst) == generation
}

/// The source of the payload of a record that is being handled.
#[derive(Debug)]
pub struct PayloadSource<'a>(SourceKind<'a>);

#[derive(Debug)]
enum SourceKind<'a> {
    /// The payload is in memory of the peer, to which the record refers.
    Referenced(ReferencedPayload<'a>),
    /// The payload was copied into shared memory by its owner.
    Copied(&'a [u8]),
    /// The payload cannot be had, because its owner has ended or revoked it.
    Unavailable,
    /// The part of the record that was not copied out of the ring: `len` bytes of the ring from `at` on.
    Rest { segment: &'a Segment, at: usize, len: u64 },
}

impl<'a> PayloadSource<'a> {
    /// Creates a source for a payload in memory of the peer.
    pub(super) const fn referenced(lent: ReferencedPayload<'a>) -> Self {
        Self(SourceKind::Referenced(lent))
    }

    /// Creates a source for a payload that its owner has copied.
    pub(super) const fn copied(bytes: &'a [u8]) -> Self {
        Self(SourceKind::Copied(bytes))
    }

    /// Creates a source for a payload whose owner has ended or revoked it.
    pub(super) const fn unavailable() -> Self {
        Self(SourceKind::Unavailable)
    }

    /// Returns whether a fetch failed that will succeed later: the owner still lends the memory,
    /// but this process cannot read it. A record for which the sink returns
    /// [`RecordVerdict::Deferred`](crate::RecordVerdict) is offered again when its owner has copied
    /// the payload.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        matches!(&self.0, SourceKind::Referenced(lent) if lent.unreadable.get())
    }

    /// Returns the referenced payload, unless its owner has copied it.
    pub(super) fn as_referenced(&self) -> Option<&ReferencedPayload<'a>> {
        match &self.0 {
            SourceKind::Referenced(lent) => Some(lent),
            _ => None,
        }
    }

    /// Creates a source for the part of a record that was not handed out.
    #[inline]
    pub(super) const fn from_ring(segment: &'a Segment, at: usize, len: u64) -> Self {
        Self(SourceKind::Rest { segment, at, len })
    }

    /// Copies payload from byte `at` on into all of `to`. Returns false if that was not possible,
    /// or if the owner had revoked the payload by the end of the copy.
    ///
    /// # Safety
    /// `to` may be written: its address was exposed, and its bytes stay mapped and lent to us until
    /// this returns.
    #[must_use]
    #[inline]
    pub unsafe fn fetch(&self, to: UserSlice, at: u64) -> bool {
        match &self.0 {
            // SAFETY: `to` may be written, by this function's contract.
            SourceKind::Referenced(lent) => unsafe { lent.fetch(to, at) },
            SourceKind::Copied(bytes) => {
                let range = at.checked_add(to.len).and_then(|end| {
                    bytes.get(usize::try_from(at).ok()?..usize::try_from(end).ok()?)
                });
                if let Some(part) = range {
                    // SAFETY: `to` may be written for `len` bytes, by this function's contract, and `part` has as many;
                    // it is memory of ours that no application knows of.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            part.as_ptr(),
                            address(&to).cast_mut(),
                            part.len(),
                        );
                    }
                }
                range.is_some()
            }
            SourceKind::Unavailable => false,
            SourceKind::Rest { segment, at: start, len } => {
                let fits = at.checked_add(to.len).is_some_and(|end| end <= *len);
                if fits {
                    // Both are less than the length of a record.
                    let (from, len) = (start + at as usize, to.len as usize);
                    // SAFETY: `to` may be written for `len` bytes, by this function's contract.
                    unsafe { segment.read_to(from, address(&to).cast_mut(), len) };
                }
                fits
            }
        }
    }

    /// Copies payload as [`PayloadSource::fetch`] does, into a buffer of this process.
    #[must_use]
    pub fn copy(&self, out: &mut [u8], at: u64) -> bool {
        let base = out.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the bytes of `out`, whose address was just exposed, are ours to write until this returns.
        unsafe { self.fetch(UserSlice::lent(base, out.len() as u64), at) }
    }
}

/// A payload in the peer's memory, which a reference names.
#[derive(Debug)]
pub(super) struct ReferencedPayload<'a> {
    process: &'a PeerProcess,
    segment: &'a Segment,
    place: RingLayout,
    /// Slot of the reference, and the generation that the slot has while the reference is valid.
    reference: (u32, u32),
    pieces: [(u64, u64); MAX_REFERENCE_PIECES],
    /// Reading the peer's memory failed although the reference is valid.
    unreadable: Cell<bool>,
}

impl<'a> ReferencedPayload<'a> {
    /// Parses the description at the front of a record. Returns the payload and the length of the
    /// description.
    pub(super) fn read(
        process: &'a PeerProcess,
        segment: &'a Segment,
        place: RingLayout,
        record: &[u8],
    ) -> Option<(Self, usize)> {
        let word = |at: usize| {
            let bytes = record.get(at * 4..at * 4 + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (slot, generation, count) = (word(0)?, word(1)?, word(2)? as usize);
        if slot as usize >= SLOTS || count > MAX_REFERENCE_PIECES {
            return None;
        }
        let len = 12 + 16 * count;
        let mut pieces = [(0, 0); MAX_REFERENCE_PIECES];
        for (to, piece) in pieces.iter_mut().zip(record.get(12..len)?.chunks_exact(16)) {
            let (base, len) = piece.split_first_chunk::<8>()?;
            *to = (u64::from_le_bytes(*base), u64::from_le_bytes(len.try_into().ok()?));
        }
        let reference = (slot, generation);
        let unreadable = Cell::new(false);
        Some((Self { process, segment, place, reference, pieces, unreadable }, len))
    }

    /// Returns the request for a copy by the owner, unless the payload is longer than any that an
    /// honest peer sends.
    pub(super) fn payload_to_copy(&self) -> Option<PayloadToCopy> {
        let len = self.pieces.iter().fold(0u64, |sum, (_, len)| sum.saturating_add(*len));
        let (slot, generation) = self.reference;
        let len = usize::try_from(len).ok().filter(|len| *len <= MAX_COPIED)?;
        Some(PayloadToCopy { slot, generation, len })
    }

    /// Copies the payload from byte `at` on into all of `to`. Returns false if that was not
    /// possible, or if the owner had revoked the payload by the end of the copy.
    ///
    /// # Safety
    /// `to` may be written: its address was exposed, and its bytes stay mapped and lent to us until
    /// this returns.
    unsafe fn fetch(&self, to: UserSlice, at: u64) -> bool {
        let Ok(want) = usize::try_from(to.len) else { return false };
        let base = address(&to).cast_mut();
        let (mut skip, mut done) = (at, 0);
        for (from, len) in self.pieces {
            if skip >= len {
                skip -= len;
                continue;
            }
            let take = usize::try_from(len - skip).unwrap_or(usize::MAX).min(want - done);
            // SAFETY: within the bytes of `to`, which may be written by this function's contract.
            let read = unsafe { self.process.read(from.wrapping_add(skip), base.add(done), take) };
            if !read {
                // The owner may have revoked the memory and then unmapped it, which is no reason
                // for a copy.
                fence(Ordering::SeqCst);
                let lent =
                    self.is_valid() && self.process.is_alive() && self.payload_to_copy().is_some();
                self.unreadable.set(lent);
                return false;
            }
            (skip, done) = (0, done + take);
        }
        // The copy must be complete before the generation is read: only then does an unchanged
        // generation mean that all bytes were lent.
        fence(Ordering::SeqCst);
        done == want && self.is_valid() && self.process.is_alive()
    }

    /// Returns whether the owner of the payload has not revoked it.
    fn is_valid(&self) -> bool {
        is_valid_reference(self.segment, self.place, self.reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: RingLayout = RingLayout { control: 0, base: 4096, size: 65536 };

    fn slot_of(description: Option<([u8; MAX_DESCRIPTION], usize)>) -> Option<(u32, u32)> {
        let (text, len) = description?;
        assert_eq!(len, 12 + 16);
        let word =
            |at: usize| u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]);
        Some((word(0), word(4)))
    }

    #[test]
    fn slots_are_reused_with_new_generations_when_their_records_are_taken() {
        let segment = Segment::anonymous(4096 + PLACE.size);
        let mut lender = Lender::new(PLACE, 0);
        let piece = [UserSlice::lent(64, 1000)];
        let now = |slot: u32| segment.flag(GENERATIONS + slot as usize * 4).load(Ordering::SeqCst);
        let all = SLOTS as u64;
        for n in 0..all {
            let (slot, generation) =
                slot_of(lender.describe(&segment, (n, 0), &piece, n % 3)).expect("there are slots");
            assert_eq!((generation, now(slot)), (0, 0));
        }
        assert_eq!(slot_of(lender.describe(&segment, (all, 0), &piece, 7)), None);
        // The peer has taken one record: what it read before does not count after that.
        let (slot, generation) =
            slot_of(lender.describe(&segment, (all, 1), &piece, 7)).expect("one is free");
        assert_eq!((generation, now(slot)), (1, 1));
        lender.withdraw_last();
        assert_eq!(slot_of(lender.describe(&segment, (all, 1), &piece, 7)), Some((slot, 1)));
        lender.revoke(&segment, Some(7));
        assert_eq!(now(slot), 2, "what is taken back does not hold any more");
        let holding = (0..SLOTS as u32).filter(|slot| now(*slot) == 0).count();
        assert_eq!(holding, SLOTS - 1, "nothing else is touched");
        lender.revoke(&segment, None);
        assert!((0..SLOTS as u32).all(|slot| now(slot) > 0));
    }
}
