//! One direction of a channel: a ring of entries in a segment, written by one process and read by
//! the other.
//!
//! An entry begins at a cache line. It consists of a header word with the length of the record, and
//! the record. A header word other than zero publishes the entry, so a polling reader reads one
//! cache line and finds the beginning of the record on it. The writer clears the word behind its
//! entry before it publishes the entry. An entry does not wrap: the header word [`SKIP`] sends the
//! reader to the front.
//!
//! The control words of the ring stand on cache lines of their own. The reader publishes how many
//! bytes it has consumed, how many records it has taken, how often it had no room for the next one,
//! and what room it has for messages. The *writer* publishes whether it sleeps.
//!
//! A ring has only the memory that its traffic needs. The writer returns to the front instead of
//! using a new part of the ring, if there is room at the front and no entry lacked room lately.
//! Otherwise it doubles the part that has pages. Both ends allocate the pages of a part before they
//! touch it, so that a shortage of memory looks like a full ring and raises no signal.
//!
//! Neither end trusts the other. Each keeps its own position. A length is read once and then
//! checked, and the published number of consumed bytes is checked before it is used. The worst that
//! a peer can do is to publish invalid values, or nothing.

use std::sync::atomic::{Ordering, fence};

use super::segment::Segment;
use crate::message::{MAX_RECORD, MessageRoom, OutgoingRecord};

/// Alignment of a record's entry in a ring, in bytes: a cache line.
const LINE: usize = 64;
/// Size in bytes of the header word before each record of a ring.
const HEADER: usize = 8;
/// Flag in the header word: the record begins with the description of a payload elsewhere
/// (`fetch.rs`).
const IS_REFERENCE: u64 = 1 << 32;
/// Flag in the header word: only the head of the record is handed out. The byte from bit
/// [`HEAD_SHIFT`] on is the length of the head.
const IS_SPLIT: u64 = 1 << 33;
const HEAD_SHIFT: u32 = 40;
/// Header word that sends the reader to the front of the ring.
const SKIP: u64 = u64::MAX;
/// Size of the control words of a ring, in bytes.
pub(super) const CONTROL_SIZE: usize = 512;
/// Bytes of a ring that have memory pages from the beginning. They hold 500 short messages or one entry of the greatest
/// length while the reader is away.
pub(super) const INITIAL_SIZE: usize = 32 << 10;
/// Value of `populated` when all of the ring has memory pages.
const FULLY_POPULATED: usize = usize::MAX;
/// Smallest size of a ring in bytes: several entries of the greatest length.
pub(super) const MIN_SIZE: usize = 64 << 10;
/// Largest size of a ring in bytes.
pub(super) const MAX_SIZE: usize = 16 << 20;

const CONSUMED: usize = 0;
const TAKEN: usize = 8;
const DEFERRALS: usize = 24;
const ROOM: usize = 32;
const ASLEEP: usize = 128;

/// The position of a ring and its control words in a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    /// Offset in the segment of the ring's control words, in bytes.
    pub(super) control: usize,
    /// Offset in the segment of the ring itself, in bytes.
    pub(super) base: usize,
    /// Size of the ring in bytes, a power of two.
    pub(super) size: usize,
}

impl RingLayout {
    /// Returns the offset in the segment of a position in the ring's stream of bytes.
    #[inline]
    const fn at(self, position: u64) -> usize {
        // The mask keeps the value below `size`.
        self.base + (position as usize & (self.size - 1))
    }

    /// Returns the number of bytes from a position to the end of the ring.
    #[inline]
    const fn to_end(self, position: u64) -> usize {
        self.size - (position as usize & (self.size - 1))
    }
}

/// Returns the size in bytes of a ring's entry for a record of this length.
#[inline]
const fn entry_size(record: usize) -> usize {
    (HEADER + record).next_multiple_of(LINE)
}

/// The end of a ring that writes records.
#[derive(Debug)]
pub(super) struct RingWriter {
    place: RingLayout,
    /// Number of bytes that were written to the ring so far, including skipped ones.
    written: u64,
    /// Number of bytes that the reader had consumed when the writer last looked.
    consumed: u64,
    /// Number of records that were written to the ring so far.
    records: u64,
    /// The reader had no room for messages when the writer last read its state. The writer reads
    /// that together with `consumed`, so it writes at most one ring of messages after the reader
    /// has published that it has no room.
    refuses_messages: bool,
    /// Bytes of the ring that have memory pages: a power of two less than the size, or [`FULLY_POPULATED`].
    populated: usize,
    /// An entry found no room since the ring last grew, so the next part of the ring is to be used.
    needs_growth: bool,
    /// True if the reader was woken and nothing was written since.
    notified: bool,
}

impl RingWriter {
    pub(super) const fn new(place: RingLayout) -> Self {
        Self {
            place,
            written: 0,
            consumed: 0,
            records: 0,
            populated: INITIAL_SIZE,
            needs_growth: false,
            refuses_messages: false,
            notified: true,
        }
    }

    /// Writes a record into the ring. Returns false if there is no room.
    #[inline]
    pub(super) fn send(&mut self, segment: &Segment, record: OutgoingRecord<'_>) -> bool {
        self.write_entry(segment, record, 0)
    }

    /// Writes a record that begins with the description of a payload. Returns false if there is no
    /// room.
    pub(super) fn send_reference(&mut self, segment: &Segment, record: OutgoingRecord<'_>) -> bool {
        self.write_entry(segment, record, IS_REFERENCE)
    }

    /// Writes a record of which only the head is handed out; the receiver fetches the rest from the
    /// ring. Returns false if there is no room.
    #[inline]
    pub(super) fn send_split(&mut self, segment: &Segment, record: OutgoingRecord<'_>) -> bool {
        let head = u8::try_from(record.head_len()).expect("a head is short");
        self.write_entry(segment, record, IS_SPLIT | u64::from(head) << HEAD_SHIFT)
    }

    /// Returns the room for messages that the reader of the ring publishes.
    #[inline]
    pub(super) fn room(&self, segment: &Segment) -> MessageRoom {
        match segment.word(self.place.control + ROOM).load(Ordering::Relaxed) {
            0 => MessageRoom::Ample,
            1 => MessageRoom::Little,
            // A dishonest peer may publish any number.
            _ => MessageRoom::None,
        }
    }

    /// Returns whether messages may be written. If the last known state forbids it, the reader's
    /// state is read again.
    #[inline]
    pub(super) fn has_message_room(&mut self, segment: &Segment) -> bool {
        if self.refuses_messages {
            self.refuses_messages = self.room(segment) == MessageRoom::None;
        }
        !self.refuses_messages
    }

    /// Returns whether the reader has room for messages again, after it had none. It is news once:
    /// a writer with nothing left to send may sleep afterwards.
    pub(super) fn take_new_room(&mut self, segment: &Segment) -> bool {
        self.refuses_messages && self.has_message_room(segment)
    }

    /// Returns the number of records that were written to the ring so far.
    pub(super) const fn records_written(&self) -> u64 {
        self.records
    }

    #[inline]
    fn write_entry(&mut self, segment: &Segment, record: OutgoingRecord<'_>, mark: u64) -> bool {
        let len = record.len();
        assert!((1..=MAX_RECORD).contains(&len), "a record has up to {MAX_RECORD} bytes");
        let (need, to_end) = (entry_size(len), self.place.to_end(self.written));
        // An entry does not wrap, so the rest of the ring is skipped if it is too short.
        let mut skip = if need > to_end { to_end } else { 0 };
        if self.place.size - to_end + need >= self.populated {
            let Some(bytes) = self.skip_or_grow(segment, need) else { return false };
            skip = bytes;
        }
        // The header word behind the entry must be free as well, because it is cleared.
        if !self.has_room(segment, skip + need + LINE) {
            self.needs_growth = true;
            return false;
        }
        let start = self.written + skip as u64;
        let next = start + need as u64;
        // The word behind the entry is cleared first. Otherwise the reader could take a word of an
        // earlier round for the next entry.
        segment.word(self.place.at(next)).store(0, Ordering::Relaxed);
        let mut at = self.place.at(start) + HEADER;
        record.for_each(|from, len| {
            // SAFETY: `OutgoingRecord` says that its pieces are readable. An entry does not reach beyond the ring's end,
            // and `write` checks that it is inside the segment.
            unsafe { segment.write(at, from, len) };
            at += len;
        });
        // The release makes the bytes of the record visible before its header word.
        segment.word(self.place.at(start)).store(len as u64 | mark, Ordering::Release);
        // The skip word comes last. A reader that follows it finds the entry at the front complete.
        if skip > 0 {
            segment.word(self.place.at(self.written)).store(SKIP, Ordering::Release);
        }
        self.written = next;
        self.records += 1;
        self.notified = false;
        true
    }

    /// Finds a place for an entry of `need` bytes that would reach a part of the ring without
    /// pages. Returns the number of bytes to skip before the entry, or `None` if there is neither
    /// room at the front nor memory for more pages.
    #[cold]
    fn skip_or_grow(&mut self, segment: &Segment, need: usize) -> Option<usize> {
        let (size, to_end) = (self.place.size, self.place.to_end(self.written));
        let offset = size - to_end;
        let fits_before = offset > 0 && need + LINE <= self.populated && !self.needs_growth;
        if fits_before && self.has_room(segment, to_end + need + LINE) {
            return Some(to_end);
        }
        let target = (offset + need + LINE).next_power_of_two().min(size);
        if !segment.populate(self.place.base, target) {
            return None;
        }
        self.populated = if target == size { FULLY_POPULATED } else { target };
        self.needs_growth = false;
        Some(if need > to_end { to_end } else { 0 })
    }

    #[inline]
    fn has_room(&mut self, segment: &Segment, need: usize) -> bool {
        let fits = |used: u64| need as u64 + used <= self.place.size as u64;
        if fits(self.written - self.consumed) {
            return true;
        }
        let consumed = segment.word(self.place.control + CONSUMED).load(Ordering::Acquire);
        // The value comes from the peer. An honest one is not less than before and not more than
        // was written.
        self.consumed = consumed.clamp(self.consumed, self.written);
        // The reader's room is on the same cache line, so reading it here is free.
        self.refuses_messages = self.room(segment) == MessageRoom::None;
        fits(self.written - self.consumed)
    }

    /// Returns how many records the reader has taken, according to the reader.
    #[inline]
    pub(super) fn taken(&self, segment: &Segment) -> u64 {
        segment.word(self.place.control + TAKEN).load(Ordering::Acquire)
    }

    /// Returns how often the reader had no room for the next record, according to the reader.
    pub(super) fn deferrals(&self, segment: &Segment) -> u64 {
        segment.word(self.place.control + DEFERRALS).load(Ordering::Relaxed)
    }

    /// Returns whether something was written since the last call, so that a sleeping reader must be
    /// woken.
    #[inline]
    pub(super) fn take_pending_wakeup(&mut self) -> bool {
        !core::mem::replace(&mut self.notified, true)
    }

    /// Publishes that the process of this writer is about to sleep. The flag stays set until the
    /// peer wakes the process.
    #[inline]
    pub(super) fn set_sleep_flag(&self, segment: &Segment) {
        segment.flag(self.place.control + ASLEEP).store(1, Ordering::SeqCst);
    }
}

/// The result of looking for the next record of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeekOutcome {
    /// The record, copied as far as it is handed out.
    Record(NextRecord),
    Empty,
    /// The ring contains an entry that no honest writer writes.
    Invalid,
}

/// The next record of a ring, which has not been consumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NextRecord {
    /// Length of the next record in bytes.
    pub(super) len: usize,
    /// Number of bytes of the record, from its beginning, that were copied out of the ring.
    pub(super) shown: usize,
    /// The record begins with the description of a payload in memory of its sender.
    pub(super) refers: bool,
}

/// The end of a ring that reads records.
#[derive(Debug)]
pub(super) struct RingReader {
    place: RingLayout,
    /// Number of bytes of the ring that were consumed so far.
    consumed: u64,
    /// Number of consumed bytes that the reader last published to the writer.
    published: u64,
    /// Number of taken records that the reader last published to the writer.
    taken: u64,
    /// Number of times that the owner of this end had no room for a record.
    deferrals: u64,
    /// Room for messages that the reader last published to the writer.
    room: MessageRoom,
    /// Bytes of the ring that have memory pages in this process. The reader keeps its own number, because the writer's
    /// may be wrong.
    populated: usize,
    /// Last position in the ring's stream at which a record may begin, once the writer has ended.
    end_position: u64,
    notified: bool,
}

impl RingReader {
    pub(super) const fn new(place: RingLayout) -> Self {
        Self {
            place,
            consumed: 0,
            published: 0,
            taken: 0,
            deferrals: 0,
            room: MessageRoom::Ample,
            populated: INITIAL_SIZE,
            end_position: u64::MAX,
            notified: true,
        }
    }

    /// Limits the reader to one more ring of records, because the writer has ended. A dishonest
    /// writer could have filled the ring such that it has no end.
    pub(super) const fn handle_writer_exit(&mut self) {
        self.end_position = self.consumed + self.place.size as u64;
    }

    /// Returns whether the ring can contain no more records of an honest writer.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.consumed >= self.end_position
    }

    /// Returns the position of the ring in its segment.
    pub(super) const fn place(&self) -> RingLayout {
        self.place
    }

    /// Returns whether no record waits in the ring.
    #[inline]
    pub(super) fn is_empty(&self, segment: &Segment) -> bool {
        segment.word(self.place.at(self.consumed)).load(Ordering::Acquire) == 0
    }

    /// Copies the next record to `out` and leaves it in the ring.
    #[inline]
    pub(super) fn peek(&mut self, segment: &Segment, out: &mut [u8; MAX_RECORD]) -> PeekOutcome {
        // Pairs with the release of the writer.
        let mut word = segment.word(self.place.at(self.consumed)).load(Ordering::Acquire);
        if word == SKIP {
            self.consumed += self.place.to_end(self.consumed) as u64;
            word = segment.word(self.place.at(self.consumed)).load(Ordering::Acquire);
        }
        if word == 0 {
            return PeekOutcome::Empty;
        }
        let (refers, parted) = (word & IS_REFERENCE != 0, word & IS_SPLIT != 0);
        let head = usize::from((word >> HEAD_SHIFT) as u8);
        let len = (word & 0xffff_ffff) as usize;
        let shown = if parted { head } else { len };
        // Unknown bits mean another version of the protocol, or a peer that scribbles.
        let known = word & !(0xffff_ffff | IS_REFERENCE | IS_SPLIT | 0xff << HEAD_SHIFT) == 0;
        let to_end = self.place.to_end(self.consumed);
        let fits = (1..=MAX_RECORD).contains(&len) && entry_size(len) <= to_end;
        if !known || !fits || shown > len || parted == (head == 0) || parted && refers {
            return PeekOutcome::Invalid;
        }
        let end = self.place.size - to_end + entry_size(len);
        if end >= self.populated && !self.populate_to(segment, end) {
            return PeekOutcome::Invalid;
        }
        segment.read(self.place.at(self.consumed) + HEADER, &mut out[..shown]);
        PeekOutcome::Record(NextRecord { len, shown, refers })
    }

    /// Allocates the pages of the ring up to `end`, and of the header word behind it.
    #[cold]
    fn populate_to(&mut self, segment: &Segment, end: usize) -> bool {
        let target = (end + LINE).next_power_of_two().min(self.place.size);
        let there = segment.populate(self.place.base, target);
        if there {
            self.populated = if target == self.place.size { FULLY_POPULATED } else { target };
        }
        there
    }

    /// Returns the offset in the segment of the part of the next record that was not copied.
    #[inline]
    pub(super) fn rest(&self, record: NextRecord) -> usize {
        self.place.at(self.consumed) + HEADER + record.shown
    }

    /// Publishes the room for messages to the writer of the ring.
    #[inline]
    pub(super) fn publish_room(&mut self, segment: &Segment, room: MessageRoom) {
        let before = core::mem::replace(&mut self.room, room);
        if before != room {
            // The number is the position of the variant.
            segment.word(self.place.control + ROOM).store(room as u64, Ordering::Relaxed);
            if before == MessageRoom::None {
                // The writer may sleep until there is room.
                self.notified = false;
            }
        }
    }

    /// Removes the next record, of `len` bytes, from the ring.
    #[inline]
    pub(super) fn consume(&mut self, segment: &Segment, len: usize) {
        self.consumed += entry_size(len) as u64;
        // The count is not published every time, because that would take the cache line from the
        // writer.
        if self.consumed - self.published >= self.place.size as u64 / 4 {
            self.publish_consumed(segment);
        }
    }

    /// Counts that there was no room for the next record.
    pub(super) fn count_deferral(&mut self, segment: &Segment) {
        self.deferrals = self.deferrals.wrapping_add(1);
        segment.word(self.place.control + DEFERRALS).store(self.deferrals, Ordering::Relaxed);
    }

    #[inline]
    fn publish_consumed(&mut self, segment: &Segment) {
        self.published = self.consumed;
        // The release orders the store behind the reader's copies: the writer may overwrite the
        // bytes as soon as it sees the count.
        segment.word(self.place.control + CONSUMED).store(self.consumed, Ordering::Release);
    }

    /// Publishes the number of taken records and the number of consumed bytes.
    #[inline]
    pub(super) fn publish_taken(&mut self, segment: &Segment, count: u64) {
        if self.published != self.consumed {
            self.publish_consumed(segment);
            self.notified = false;
        }
        if self.taken != count {
            self.taken = count;
            segment.word(self.place.control + TAKEN).store(count, Ordering::Release);
            self.notified = false;
        }
    }

    /// Requests that the peer is woken, if it sleeps, for a reason that the ring's fields do not
    /// show.
    pub(super) fn request_wakeup(&mut self) {
        self.notified = false;
    }

    /// Returns whether something was published since the last call, so that a sleeping peer must be
    /// woken.
    #[inline]
    pub(super) fn take_pending_wakeup(&mut self) -> bool {
        !core::mem::replace(&mut self.notified, true)
    }

    /// Returns whether the peer, which writes this ring, sleeps, and clears its flag. The fence
    /// orders the flag behind everything that was written: a peer that sets the flag too late to be
    /// woken finds the record when it checks the ring before sleeping.
    #[inline]
    pub(super) fn take_sleep_flag(&self, segment: &Segment) -> bool {
        fence(Ordering::SeqCst);
        let flag = segment.flag(self.place.control + ASLEEP);
        flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = MIN_SIZE;
    const PLACE: RingLayout = RingLayout { control: 0, base: 4096, size: SIZE };

    /// An interpreter takes its time.
    const fn times(all: u64, interpreted: u64) -> u64 {
        if cfg!(miri) { interpreted } else { all }
    }

    fn ring() -> (Segment, RingWriter, RingReader, Box<[u8; MAX_RECORD]>) {
        let segment = Segment::anonymous(4096 + SIZE);
        (segment, RingWriter::new(PLACE), RingReader::new(PLACE), Box::new([0; MAX_RECORD]))
    }

    #[test]
    fn records_are_unchanged_over_many_rounds_of_the_ring() {
        let (segment, mut writer, mut reader, mut out) = ring();
        let mut rng = crate::base::Rng::new(1);
        let (mut sent, mut got) = (0u64, 0u64);
        let length =
            |n: u64| 1 + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % MAX_RECORD;
        while got < times(4000, 60) {
            for _ in 0..rng.below(6) {
                let bytes = vec![sent as u8; length(sent)];
                let (head, rest) = bytes.split_at(bytes.len() / 3);
                if !writer.send(&segment, OutgoingRecord::from_copies(head, rest)) {
                    break;
                }
                sent += 1;
            }
            for _ in 0..rng.below(6) {
                let PeekOutcome::Record(NextRecord { len, .. }) = reader.peek(&segment, &mut out)
                else {
                    break;
                };
                assert_eq!((len, out[..len].iter().all(|b| *b == got as u8)), (length(got), true));
                reader.consume(&segment, len);
                got += 1;
            }
        }
        reader.publish_taken(&segment, got);
        assert_eq!(writer.taken(&segment), got);
    }

    #[test]
    fn a_full_ring_takes_nothing_until_there_is_room() {
        let (segment, mut writer, mut reader, mut out) = ring();
        let record = OutgoingRecord::from_copies(&[7; 100], &[]);
        let fits = (0..10_000).take_while(|_| writer.send(&segment, record)).count();
        assert_eq!(fits, SIZE / 128 - 1);
        assert!(!writer.send(&segment, record) && !writer.send(&segment, record));
        let PeekOutcome::Record(NextRecord { len, .. }) = reader.peek(&segment, &mut out) else {
            panic!("it is full")
        };
        reader.consume(&segment, len);
        reader.publish_taken(&segment, 1);
        assert!(writer.send(&segment, record) && !writer.send(&segment, record));
    }

    /// Traffic with few bytes in flight stays in the front of a ring. With more bytes in flight, more of the ring is
    /// used, up to all of it.
    #[test]
    #[cfg_attr(miri, ignore)] // memory of the kernel
    fn a_ring_uses_the_memory_that_its_traffic_needs() {
        let place = RingLayout { size: 4 * MIN_SIZE, ..PLACE };
        let (segment, _fd) = Segment::create(4096 + place.size).expect("memory");
        assert!(segment.populate(0, 4096 + INITIAL_SIZE));
        let (mut writer, mut reader) = (RingWriter::new(place), RingReader::new(place));
        let mut out = Box::new([0; MAX_RECORD]);
        let mut pass = |sent: u8, in_flight: usize| {
            let bytes = [sent; 1000];
            let record = OutgoingRecord::from_copies(&bytes, &[]);
            let fits = (0..in_flight).take_while(|_| writer.send(&segment, record)).count();
            for _ in 0..fits {
                let PeekOutcome::Record(NextRecord { len, .. }) = reader.peek(&segment, &mut out)
                else {
                    panic!("it was sent")
                };
                assert_eq!((len, out[..len].iter().all(|byte| *byte == sent)), (1000, true));
                reader.consume(&segment, len);
            }
            reader.publish_taken(&segment, 0);
            (fits, writer.populated)
        };
        // These entries go round the ring many times.
        for n in 0..400u32 {
            assert_eq!(pass(n as u8, 5), (5, INITIAL_SIZE), "round {n}");
        }
        assert_eq!(pass(1, 40), (30, INITIAL_SIZE), "full");
        for n in 0..400u32 {
            assert_eq!(pass(n as u8, 40), (40, 2 * INITIAL_SIZE), "round {n}");
        }
        for populated in [2 * INITIAL_SIZE, 4 * INITIAL_SIZE] {
            let (fits, now) = pass(2, 250);
            assert!(fits * 1024 < populated && now == populated, "{fits} fitted, {now} used");
        }
        for n in 0..400u32 {
            assert_eq!(pass(n as u8, 250), (250, FULLY_POPULATED), "round {n}");
        }
    }

    /// A peer writes whatever it likes, wherever it likes, while we read and write: nothing panics, and nothing
    /// outside is touched, which `Segment` asserts.
    #[test]
    fn a_scribbling_peer_does_no_harm() {
        for seed in 0..times(200, 3) {
            let (segment, mut writer, mut reader, mut out) = ring();
            let mut rng = crate::base::Rng::new(seed);
            for _ in 0..times(300, 100) {
                let word = [rng.next_u64(), 0, u64::MAX, u64::from(rng.below(20_000))];
                let at =
                    if rng.chance(0.5) { rng.below(600) } else { rng.below(segment.len() as u32) };
                let (at, word) =
                    ((at as usize & !7).min(segment.len() - 8), word[rng.below(4) as usize]);
                if at == ASLEEP {
                    segment.flag(at).store(word as u32, Ordering::Relaxed);
                } else {
                    segment.word(at).store(word, Ordering::Relaxed);
                }
                let _ = writer.send(&segment, OutgoingRecord::from_copies(&[1; 300], &[]));
                writer.taken(&segment);
                if let PeekOutcome::Record(NextRecord { len, .. }) = reader.peek(&segment, &mut out)
                {
                    reader.consume(&segment, len);
                }
                reader.publish_taken(&segment, rng.next_u64());
                reader.take_sleep_flag(&segment);
            }
        }
    }

    /// What the ring is between two processes.
    struct Shared(Segment);

    // SAFETY: the threads of the test share it as two processes do: words as atomics, bytes of an entry by whoever the
    // words say, which is what Miri looks at.
    unsafe impl Sync for Shared {}

    impl Shared {
        const fn segment(&self) -> &Segment {
            &self.0
        }
    }

    #[test]
    fn a_visible_header_word_means_a_complete_record() {
        let all = times(20_000, 300);
        let shared = Shared(Segment::anonymous(4096 + SIZE));
        let bytes = |n: u64| vec![n as u8; 40 + (n * 997 % 9000) as usize];
        let write = |shared: &Shared| {
            let mut writer = RingWriter::new(PLACE);
            for n in 0..all {
                while !writer.send(
                    shared.segment(),
                    OutgoingRecord::from_copies(&n.to_le_bytes(), &bytes(n)),
                ) {
                    std::thread::yield_now();
                }
            }
            while writer.taken(shared.segment()) < all {
                std::thread::yield_now();
            }
        };
        let read = |shared: &Shared| {
            let (mut reader, mut out) = (RingReader::new(PLACE), Box::new([0; MAX_RECORD]));
            for n in 0..all {
                let len = loop {
                    match reader.peek(shared.segment(), &mut out) {
                        PeekOutcome::Record(NextRecord { len, refers: false, .. }) => break len,
                        PeekOutcome::Empty => std::thread::yield_now(),
                        other => panic!("{other:?}"),
                    }
                };
                assert_eq!((&out[..8], &out[8..len]), (&n.to_le_bytes()[..], &bytes(n)[..]));
                reader.consume(shared.segment(), len);
                if n % 7 == 0 || n + 1 == all {
                    reader.publish_taken(shared.segment(), n + 1);
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| write(&shared));
            read(&shared);
        });
    }

    /// Each says that it sleeps and then looks; each writes and then looks whether the other sleeps: one of them sees the
    /// other's.
    #[test]
    fn no_process_sleeps_while_a_record_waits() {
        for n in 0..times(2000, 60) {
            let shared = Shared(Segment::anonymous(4096 + SIZE));
            let (sleeps, wakes) = std::thread::scope(|scope| {
                let writes = scope.spawn(|| {
                    let mut writer = RingWriter::new(PLACE);
                    assert!(writer.send(
                        shared.segment(),
                        OutgoingRecord::from_copies(&n.to_le_bytes(), &[])
                    ));
                    // It reads nothing: its reader is there for the flag of the other's writer.
                    writer.take_pending_wakeup()
                        && RingReader::new(PLACE).take_sleep_flag(shared.segment())
                });
                RingWriter::new(PLACE).set_sleep_flag(shared.segment());
                fence(Ordering::SeqCst);
                let sleeps = RingReader::new(PLACE).is_empty(shared.segment());
                (sleeps, writes.join().expect("no panic"))
            });
            assert!(!sleeps || wakes, "it would sleep for ever");
        }
    }
}
