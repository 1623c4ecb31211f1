//! Payload that records refer to: who lends it, and who fetches it from the other process (`process_vm_readv(2)`).
//!
//! Nobody ever writes into another process. Who fetches reads from the process that the kernel said is at the other end of
//! the connection, and looks afterwards whether that process still lives (else the number could be another's) and
//! whether the reference still holds: each has a slot, whose generation its owner raises to take the memory back.
//! So the owner need not wait for anybody.
//!
//! Whether a process may read another (the same user, the same or an inner PID namespace, Yama, seccomp) is tried when
//! they connect: each shows the other the address of a random number. That permission may end later: a
//! process that changes its privileges is not dumpable any more, and some mappings cannot be read at all. The first
//! read that fails although the reference is valid ends references on its connection. The owner copies the payload of
//! records that are in flight by then (`copy.rs`).

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};

use super::copy::{self, LentPayload, MOST_COPIED};
use super::ring::Place;
use super::segment::Segment;
use super::socket;
use crate::base::UserSlice;
use crate::burst::address;

/// References that may be open at a time, each direction.
const SLOTS: usize = 64;
/// Pieces of a payload.
pub(super) const MOST_PIECES: usize = 4;
/// Bytes of the longest description.
pub(super) const MOST_BYTES: usize = 12 + 16 * MOST_PIECES;

/// In the line of the reader of a ring: it can read the writer's memory.
const CAN_READ: usize = 16;
/// In that of the writer: where it has a number, and which.
const PROBE_AT: usize = 136;
const PROBE: usize = 144;
/// The writer's slots.
const GENERATIONS: usize = 256;

/// The memory that a reference names: the address of each piece, and its length.
#[derive(Clone, Copy, Debug, Default)]
struct Pieces {
    all: [(u64, u64); MOST_PIECES],
    count: usize,
}

impl Pieces {
    fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.all.iter().take(self.count).copied()
    }
}

/// A reference in flight.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// The number of the reference's record.
    number: u64,
    slot: u32,
    /// The generation that the slot had when the record left. The reference is valid while the slot still has it.
    generation: u32,
    /// The tag by which the owner revokes the memory.
    tag: u64,
}

/// What we lend over a connection.
#[derive(Debug)]
pub(super) struct Lender {
    place: Place,
    /// The position in the segment to which payload is copied that the peer cannot read.
    bounce: usize,
    /// The number of the last request for a copy that was answered.
    answered: u64,
    free: Vec<u32>,
    generations: [u32; SLOTS],
    /// The pieces that are lent, by slot.
    lent: Box<[Pieces; SLOTS]>,
    /// The references in flight, in the order of their records.
    open: VecDeque<Open>,
    /// The number that the peer may read, to see whether it can.
    probe: Box<u64>,
}

impl Lender {
    pub(super) fn new(place: Place, bounce: usize) -> Self {
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self {
            place,
            bounce,
            answered: 0,
            free: (0..SLOTS as u32).collect(),
            generations: [0; SLOTS],
            lent: Box::new([Pieces::default(); SLOTS]),
            open: VecDeque::new(),
            probe: Box::new(random),
        }
    }

    /// Shows the peer what to try.
    pub(super) fn show_probe(&self, segment: &Segment) {
        let at = std::ptr::from_ref::<u64>(&self.probe).expose_provenance() as u64;
        segment.word(self.place.control + PROBE_AT).store(at, Ordering::Relaxed);
        segment.word(self.place.control + PROBE).store(*self.probe, Ordering::Release);
    }

    /// Whether the peer says that it can read our memory.
    pub(super) fn is_wanted(&self, segment: &Segment) -> bool {
        segment.word(self.place.control + CAN_READ).load(Ordering::Acquire) == 1
    }

    /// Describes what record `next` refers to, of which the peer has `taken` so many. `None` when all slots are in use.
    pub(super) fn describe(
        &mut self,
        segment: &Segment,
        (next, taken): (u64, u64),
        pieces: &[UserSlice],
        tag: u64,
    ) -> Option<([u8; MOST_BYTES], usize)> {
        while let Some(&Open { number, slot, .. }) = self.open.front()
            && number < taken
        {
            self.open.pop_front();
            self.raise(segment, slot);
            self.free.push(slot);
        }
        let slot = self.free.pop()?;
        let generation = self.generations[slot as usize];
        self.open.push_back(Open { number: next, slot, generation, tag });
        let mut out = [0; MOST_BYTES];
        // At most MOST_PIECES.
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

    /// Copies a part of a lent payload into the segment, if the peer asks for it because it cannot read the payload
    /// where it is. The peer has `taken` so many records.
    ///
    /// # Safety
    /// The memory that was described for a record is readable if the record is not among those taken and was not revoked:
    /// its addresses were exposed, and its bytes stay mapped.
    pub(super) unsafe fn copy_out(&mut self, segment: &Segment, taken: u64) {
        if self.open.is_empty() {
            return;
        }
        let Some(wanted) = copy::request(segment, self.place, self.answered) else { return };
        self.answered = wanted.number;
        let (slot, generation) = (wanted.slot, wanted.generation);
        let is_wanted = |open: &&Open| {
            open.number >= taken && (open.slot, open.generation) == (slot, generation)
        };
        // The peer's word alone does not count, because it may know the slot's next generation.
        let found = self.open.iter().find(is_wanted).map(|open| open.slot as usize);
        let held = found.filter(|slot| self.generations[*slot] == generation);
        let copied = held.and_then(|slot| {
            let pieces = self.lent[slot].iter();
            // SAFETY: the reference holds, so this function's contract is that its pieces are readable.
            unsafe { copy::copy(segment, self.bounce, pieces, wanted.from) }
        });
        copy::answer(segment, self.place, wanted.number, copied);
    }

    /// The record that was described last did not leave.
    pub(super) fn withdraw(&mut self) {
        if let Some(open) = self.open.pop_back() {
            self.free.push(open.slot);
        }
    }

    /// What is lent of an operation, or all, is not to be read any more.
    pub(super) fn revoke(&mut self, segment: &Segment, tag: Option<u64>) {
        for at in 0..self.open.len() {
            let open = self.open[at];
            if tag.is_none_or(|tag| tag == open.tag) {
                self.raise(segment, open.slot);
            }
        }
    }

    fn raise(&mut self, segment: &Segment, slot: u32) {
        let generation = &mut self.generations[slot as usize];
        *generation = generation.wrapping_add(1);
        let at = self.place.control + GENERATIONS + slot as usize * 4;
        segment.flag(at).store(*generation, Ordering::SeqCst);
    }
}

/// The process at the other end.
#[derive(Debug)]
pub(super) struct Process {
    /// The process's number, or 0 when it has no number in this PID namespace.
    pid: libc::pid_t,
    /// Readable when it is gone.
    fd: OwnedFd,
}

impl Process {
    /// Opens the process behind a connection, to which the kernel gives the number `pid`. Returns `None` where the
    /// process has no number in this PID namespace, or the kernel has no such descriptors.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn of_peer(socket: RawFd, pid: libc::pid_t) -> io::Result<Option<Self>> {
        match socket::peer_process(socket) {
            Ok(fd) => Ok(Some(Self { pid: pid.max(0), fd })),
            // Linux has SO_PEERPIDFD since 6.5. Before, the number could be given to another process between these two
            // calls.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(Self::open(pid)),
            Err(error) => Err(error),
        }
    }

    /// `None` where it has no number here, or the kernel no such descriptors.
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

    pub(super) fn lives(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: poll(2) reads and writes the one pollfd that it is told of, a local variable.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
    }

    /// Copies all of `len` bytes at `from` of the process to `to`.
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

    /// Tries to read what the writer of a ring shows; says so to it if that is what it should be.
    pub(super) fn probe(&self, segment: &Segment, place: Place) -> bool {
        let expected = segment.word(place.control + PROBE).load(Ordering::Acquire);
        let at = segment.word(place.control + PROBE_AT).load(Ordering::Relaxed);
        let mut found = 0u64;
        // SAFETY: `read` writes at most eight bytes, all of `found`, a local variable.
        let read = unsafe { self.read(at, (&raw mut found).cast(), 8) };
        let can = read && found == expected && expected != 0 && self.lives();
        segment.word(place.control + CAN_READ).store(can.into(), Ordering::Release);
        can
    }
}

/// Shows the writer of a ring that this process cannot read the writer's memory any more.
#[cold]
pub(super) fn refuse_references(segment: &Segment, place: Place) {
    segment.word(place.control + CAN_READ).store(0, Ordering::Release);
}

/// Withdraws [`refuse_references`], for tests.
#[cfg(test)]
pub(super) fn want_references(segment: &Segment, place: Place) {
    segment.word(place.control + CAN_READ).store(1, Ordering::Release);
}

/// Returns whether the slot of a reference still has this generation, so that the reference is valid.
pub(super) fn holds(segment: &Segment, place: Place, (slot, generation): (u32, u32)) -> bool {
    let at = place.control + GENERATIONS + slot as usize * 4;
    (slot as usize) < SLOTS && segment.flag(at).load(Ordering::SeqCst) == generation
}

/// What is to be fetched of a record that is being handled, or for it.
#[derive(Debug)]
pub struct PayloadSource<'a>(Kind<'a>);

#[derive(Debug)]
enum Kind<'a> {
    /// What the record refers to.
    Lent(Lent<'a>),
    /// The payload, as its owner copied it.
    Copied(&'a [u8]),
    /// The payload cannot be had.
    Gone,
    /// What of the record itself was not handed out: `len` bytes of the ring, from `at` on.
    Rest { segment: &'a Segment, at: usize, len: u64 },
}

impl<'a> PayloadSource<'a> {
    /// What the record refers to.
    pub(super) const fn lent(lent: Lent<'a>) -> Self {
        Self(Kind::Lent(lent))
    }

    /// Returns a source whose payload was copied by its owner.
    pub(super) const fn copied(bytes: &'a [u8]) -> Self {
        Self(Kind::Copied(bytes))
    }

    /// Returns a source whose payload cannot be had.
    pub(super) const fn gone() -> Self {
        Self(Kind::Gone)
    }

    /// Returns whether a fetch failed that will succeed when the record is offered again: the owner still lends the
    /// bytes, but this process cannot read them where they are. A record that is answered by
    /// [`RecordVerdict::Deferred`](crate::RecordVerdict) is offered again when its owner has copied them.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        matches!(&self.0, Kind::Lent(lent) if lent.unreadable.get())
    }

    /// Returns the lent memory, unless the owner has copied the payload.
    pub(super) fn as_lent(&self) -> Option<&Lent<'a>> {
        match &self.0 {
            Kind::Lent(lent) => Some(lent),
            _ => None,
        }
    }

    /// What of the record was not handed out.
    #[inline]
    pub(super) const fn rest(segment: &'a Segment, at: usize, len: u64) -> Self {
        Self(Kind::Rest { segment, at, len })
    }

    /// Copies into all of `to` what is to be fetched, from byte `at` on. Whether that was possible, and its owner had not
    /// taken it back at the end.
    ///
    /// # Safety
    /// `to` may be written: its address was exposed, and its bytes stay mapped and lent to us until this returns.
    #[must_use]
    #[inline]
    pub unsafe fn fetch(&self, to: UserSlice, at: u64) -> bool {
        match &self.0 {
            // SAFETY: `to` may be written, by this function's contract.
            Kind::Lent(lent) => unsafe { lent.fetch(to, at) },
            Kind::Copied(bytes) => {
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
            Kind::Gone => false,
            Kind::Rest { segment, at: start, len } => {
                let fits = at.checked_add(to.len).is_some_and(|end| end <= *len);
                if fits {
                    // Both less than a record is long.
                    let (from, len) = (start + at as usize, to.len as usize);
                    // SAFETY: `to` may be written for `len` bytes, by this function's contract.
                    unsafe { segment.read_to(from, address(&to).cast_mut(), len) };
                }
                fits
            }
        }
    }

    /// Copies as [`PayloadSource::fetch`] does, into memory of our own.
    #[must_use]
    pub fn copy(&self, out: &mut [u8], at: u64) -> bool {
        let base = out.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the bytes of `out`, whose address was just exposed, are ours to write until this returns.
        unsafe { self.fetch(UserSlice::lent(base, out.len() as u64), at) }
    }
}

/// A payload that a record refers to.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    process: &'a Process,
    segment: &'a Segment,
    place: Place,
    /// The slot, and the generation that the slot has while the reference is valid.
    reference: (u32, u32),
    pieces: [(u64, u64); MOST_PIECES],
    /// A read failed although the reference is valid.
    unreadable: Cell<bool>,
}

impl<'a> Lent<'a> {
    /// Reads a description at the front of a record; also how long it is.
    pub(super) fn read(
        process: &'a Process,
        segment: &'a Segment,
        place: Place,
        record: &[u8],
    ) -> Option<(Self, usize)> {
        let word = |at: usize| {
            let bytes = record.get(at * 4..at * 4 + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (slot, generation, count) = (word(0)?, word(1)?, word(2)? as usize);
        if slot as usize >= SLOTS || count > MOST_PIECES {
            return None;
        }
        let len = 12 + 16 * count;
        let mut pieces = [(0, 0); MOST_PIECES];
        for (to, piece) in pieces.iter_mut().zip(record.get(12..len)?.chunks_exact(16)) {
            let (base, len) = piece.split_first_chunk::<8>()?;
            *to = (u64::from_le_bytes(*base), u64::from_le_bytes(len.try_into().ok()?));
        }
        let reference = (slot, generation);
        let unreadable = Cell::new(false);
        Some((Self { process, segment, place, reference, pieces, unreadable }, len))
    }

    /// Returns the request to the owner to copy the payload, unless the payload is longer than an honest peer's.
    pub(super) fn wanted(&self) -> Option<LentPayload> {
        let len = self.pieces.iter().fold(0u64, |sum, (_, len)| sum.saturating_add(*len));
        let (slot, generation) = self.reference;
        let len = usize::try_from(len).ok().filter(|len| *len <= MOST_COPIED)?;
        Some(LentPayload { slot, generation, len })
    }

    /// Copies into all of `to` what the record refers to, from byte `at` on. Whether that was possible, and its owner had
    /// not taken it back at the end.
    ///
    /// # Safety
    /// `to` may be written: its address was exposed, and its bytes stay mapped and lent to us until this returns.
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
                // The owner may have unmapped memory that it has taken back.
                fence(Ordering::SeqCst);
                let lent = self.holds() && self.process.lives() && self.wanted().is_some();
                self.unreadable.set(lent);
                return false;
            }
            (skip, done) = (0, done + take);
        }
        fence(Ordering::SeqCst);
        done == want && self.holds() && self.process.lives()
    }

    /// Returns whether the owner has not taken the payload back.
    fn holds(&self) -> bool {
        holds(self.segment, self.place, self.reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { control: 0, base: 4096, size: 65536 };

    fn slot_of(description: Option<([u8; MOST_BYTES], usize)>) -> Option<(u32, u32)> {
        let (text, len) = description?;
        assert_eq!(len, 12 + 16);
        let word =
            |at: usize| u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]);
        Some((word(0), word(4)))
    }

    #[test]
    fn slots_are_given_back_when_their_records_are_taken_and_not_as_they_were() {
        let segment = Segment::plain(4096 + PLACE.size);
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
        lender.withdraw();
        assert_eq!(slot_of(lender.describe(&segment, (all, 1), &piece, 7)), Some((slot, 1)));
        lender.revoke(&segment, Some(7));
        assert_eq!(now(slot), 2, "what is taken back does not hold any more");
        let holding = (0..SLOTS as u32).filter(|slot| now(*slot) == 0).count();
        assert_eq!(holding, SLOTS - 1, "nothing else is touched");
        lender.revoke(&segment, None);
        assert!((0..SLOTS as u32).all(|slot| now(slot) > 0));
    }
}
