//! One direction of a connection: a ring of entries in a segment, written by one process and read by the other.
//!
//! An entry begins at a cache line: a word with the record's length, and the record. The word tells that the entry is
//! there, so that a reader who polls looks at one line, and finds the beginning of the record on it. The writer clears
//! the word behind its entry before it shows the entry. An entry does not wrap: a word [`SKIP`] sends the reader to
//! the front.
//!
//! Beside the ring stand, on lines of their own, what the reader has consumed (bytes) and taken (records), how often it
//! had no room for the next one and what room it has for messages, and whether the *writer* of this ring sleeps.
//!
//! A ring has only the memory that its traffic needs. The writer returns to the front instead of using a new part of
//! the ring, if there is room at the front and no entry lacked room lately. Otherwise it doubles the part that has
//! pages. Both ends allocate the pages of a part before they touch it, so that a shortage of memory is a full ring and
//! not a signal.
//!
//! Neither believes the other. Where the writer writes, and where the reader reads, are numbers of its own; a length is
//! read once and checked; what the reader says to have consumed is checked before it is subtracted. The worst that
//! a peer can do is to say nonsense, or nothing.

use std::sync::atomic::{Ordering, fence};

use super::segment::Segment;
use crate::message::{MAX_RECORD, MessageRoom, OutgoingRecord};

/// Records begin at multiples of this.
const LINE: usize = 64;
/// Bytes before the record.
const WORD: usize = 8;
/// The record begins with the description of a payload elsewhere (`fetch.rs`).
const REFERS: u64 = 1 << 32;
/// Of the record its head alone is handed out; how long that is stands from bit [`HEAD`] on, in a byte.
const PARTED: u64 = 1 << 33;
const HEAD: u32 = 40;
/// The rest of the ring is not used.
const SKIP: u64 = u64::MAX;
/// Bytes of what stands beside a ring.
pub(super) const CONTROL: usize = 512;
/// Bytes of a ring that have pages from the beginning, and that it holds at least while its reader is away: 500 short
/// messages, or one of the longest entries.
pub(super) const FIRST: usize = 32 << 10;
/// The value that says that all of a ring has pages.
const ALL: usize = usize::MAX;
/// Smallest ring: several of the longest entries.
pub(super) const LEAST: usize = 64 << 10;
/// Largest.
pub(super) const MOST: usize = 16 << 20;

const CONSUMED: usize = 0;
const TAKEN: usize = 8;
const HELD_BACK: usize = 24;
const ROOM: usize = 32;
const ASLEEP: usize = 128;

/// Where in a segment a ring is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// What stands beside it.
    pub(super) control: usize,
    /// The ring.
    pub(super) base: usize,
    /// Its bytes, a power of two.
    pub(super) size: usize,
}

impl Place {
    /// The offset of a position.
    #[inline]
    const fn at(self, position: u64) -> usize {
        // Less than `size`.
        self.base + (position as usize & (self.size - 1))
    }

    /// Bytes from a position to the end of the ring.
    #[inline]
    const fn to_end(self, position: u64) -> usize {
        self.size - (position as usize & (self.size - 1))
    }
}

/// Bytes of an entry.
#[inline]
const fn entry_size(record: usize) -> usize {
    (WORD + record).next_multiple_of(LINE)
}

/// The writer's end.
#[derive(Debug)]
pub(super) struct Writer {
    place: Place,
    /// Bytes written, entries that were skipped included.
    written: u64,
    /// Bytes that the reader has consumed, as far as looked.
    consumed: u64,
    /// Records written.
    records: u64,
    /// Whether the reader had no room for messages when the writer last read that state. The writer reads it together
    /// with `consumed`, so it writes at most a ring's length of messages after the reader has shown that there is no
    /// room.
    refuses_messages: bool,
    /// Bytes of the ring that have pages: a power of two less than the ring's size, or [`ALL`].
    reached: usize,
    /// An entry found no room since pages were last added, so the ring is to grow.
    cramped: bool,
    /// Something was written since the reader was last rung for.
    rung: bool,
}

impl Writer {
    pub(super) const fn new(place: Place) -> Self {
        Self {
            place,
            written: 0,
            consumed: 0,
            records: 0,
            reached: FIRST,
            cramped: false,
            refuses_messages: false,
            rung: true,
        }
    }

    /// Puts a record into the ring. False when there is no room.
    #[inline]
    pub(super) fn send(&mut self, segment: &Segment, record: OutgoingRecord<'_>) -> bool {
        self.put(segment, record, 0)
    }

    /// The same for a record that begins with the description of a payload.
    pub(super) fn refer(&mut self, segment: &Segment, record: OutgoingRecord<'_>) -> bool {
        self.put(segment, record, REFERS)
    }

    /// The same for a record of which the head alone is handed out, and the rest is fetched from where it is.
    #[inline]
    pub(super) fn send_parted(&mut self, segment: &Segment, record: OutgoingRecord<'_>) -> bool {
        let head = u8::try_from(record.head_len()).expect("a head is short");
        self.put(segment, record, PARTED | u64::from(head) << HEAD)
    }

    /// Returns the room for messages that the reader shows.
    #[inline]
    pub(super) fn room(&self, segment: &Segment) -> MessageRoom {
        match segment.word(self.place.control + ROOM).load(Ordering::Relaxed) {
            0 => MessageRoom::Ample,
            1 => MessageRoom::Little,
            // A dishonest peer may show any number.
            _ => MessageRoom::None,
        }
    }

    /// Returns whether messages may be written. If the last known state forbids it, the reader's state is read again.
    #[inline]
    pub(super) fn takes_messages(&mut self, segment: &Segment) -> bool {
        if self.refuses_messages {
            self.refuses_messages = self.room(segment) == MessageRoom::None;
        }
        !self.refuses_messages
    }

    /// Returns whether the reader has room for messages again, after it had none.
    pub(super) fn may_resume(&self, segment: &Segment) -> bool {
        self.refuses_messages && self.room(segment) != MessageRoom::None
    }

    /// Records written.
    pub(super) const fn records(&self) -> u64 {
        self.records
    }

    #[inline]
    fn put(&mut self, segment: &Segment, record: OutgoingRecord<'_>, mark: u64) -> bool {
        let len = record.len();
        assert!((1..=MAX_RECORD).contains(&len), "a record has up to {MAX_RECORD} bytes");
        let (need, to_end) = (entry_size(len), self.place.to_end(self.written));
        let mut skip = if need > to_end { to_end } else { 0 };
        if self.place.size - to_end + need >= self.reached {
            let Some(bytes) = self.skip_or_grow(segment, need) else { return false };
            skip = bytes;
        }
        // And the word behind it.
        if !self.has_room(segment, skip + need + LINE) {
            self.cramped = true;
            return false;
        }
        let start = self.written + skip as u64;
        let next = start + need as u64;
        segment.word(self.place.at(next)).store(0, Ordering::Relaxed);
        let mut at = self.place.at(start) + WORD;
        record.for_each(|from, len| {
            // SAFETY: `OutgoingRecord` says that its pieces are readable. An entry does not reach beyond the ring's end,
            // and `write` checks that it is inside the segment.
            unsafe { segment.write(at, from, len) };
            at += len;
        });
        segment.word(self.place.at(start)).store(len as u64 | mark, Ordering::Release);
        if skip > 0 {
            segment.word(self.place.at(self.written)).store(SKIP, Ordering::Release);
        }
        self.written = next;
        self.records += 1;
        self.rung = false;
        true
    }

    /// Finds a place for an entry of `need` bytes that would reach a part of the ring without pages. Returns the number
    /// of bytes to skip before the entry, or `None` when there is neither room at the front nor memory for more pages.
    #[cold]
    fn skip_or_grow(&mut self, segment: &Segment, need: usize) -> Option<usize> {
        let (size, to_end) = (self.place.size, self.place.to_end(self.written));
        let offset = size - to_end;
        let fits_before = offset > 0 && need + LINE <= self.reached && !self.cramped;
        if fits_before && self.has_room(segment, to_end + need + LINE) {
            return Some(to_end);
        }
        let target = (offset + need + LINE).next_power_of_two().min(size);
        if !segment.populate(self.place.base, target) {
            return None;
        }
        self.reached = if target == size { ALL } else { target };
        self.cramped = false;
        Some(if need > to_end { to_end } else { 0 })
    }

    #[inline]
    fn has_room(&mut self, segment: &Segment, need: usize) -> bool {
        let fits = |used: u64| need as u64 + used <= self.place.size as u64;
        if fits(self.written - self.consumed) {
            return true;
        }
        let consumed = segment.word(self.place.control + CONSUMED).load(Ordering::Acquire);
        // Not less than before, nor more than was written: a peer may say anything.
        self.consumed = consumed.clamp(self.consumed, self.written);
        self.refuses_messages = self.room(segment) == MessageRoom::None;
        fits(self.written - self.consumed)
    }

    /// How many records the reader says to have taken.
    #[inline]
    pub(super) fn taken(&self, segment: &Segment) -> u64 {
        segment.word(self.place.control + TAKEN).load(Ordering::Acquire)
    }

    /// How often the reader says to have had no room for the next record.
    pub(super) fn held_back(&self, segment: &Segment) -> u64 {
        segment.word(self.place.control + HELD_BACK).load(Ordering::Relaxed)
    }

    /// Whether something was written that its reader, which sleeps when `asleep` says so, is to be woken for.
    #[inline]
    pub(super) fn must_ring(&mut self) -> bool {
        !core::mem::replace(&mut self.rung, true)
    }

    /// Says that the writer of this ring is about to sleep. It holds until it was woken.
    #[inline]
    pub(super) fn fall_asleep(&self, segment: &Segment) {
        segment.flag(self.place.control + ASLEEP).store(1, Ordering::SeqCst);
    }
}

/// What a reader found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// A record, copied out as far as it is to be looked at.
    Record(Waiting),
    Nothing,
    /// Something that no honest writer writes.
    Nonsense,
}

/// The next record of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiting {
    /// Bytes in all.
    pub(super) len: usize,
    /// Bytes that were copied out, from the first on.
    pub(super) shown: usize,
    /// It begins with the description of a payload.
    pub(super) refers: bool,
}

/// The reader's end.
#[derive(Debug)]
pub(super) struct Reader {
    place: Place,
    /// Bytes consumed.
    consumed: u64,
    /// Of those, what the writer was told.
    told: u64,
    /// Records that the writer was told to be taken.
    taken: u64,
    /// How often there was no room for a record.
    held_back: u64,
    /// The room for messages that was last shown to the writer.
    room: MessageRoom,
    /// Bytes of the ring that have pages on this side. The reader keeps its own number, because the writer's may be
    /// wrong.
    reached: usize,
    /// The last position at which a record may begin, once the writer has gone.
    last: u64,
    rung: bool,
}

impl Reader {
    pub(super) const fn new(place: Place) -> Self {
        Self {
            place,
            consumed: 0,
            told: 0,
            taken: 0,
            held_back: 0,
            room: MessageRoom::Ample,
            reached: FIRST,
            last: u64::MAX,
            rung: true,
        }
    }

    /// Records that the writer has gone. From then on at most a ring's length of records is read: otherwise records of a
    /// writer that filled the ring without an end would be read for ever.
    pub(super) const fn end(&mut self) {
        self.last = self.consumed + self.place.size as u64;
    }

    /// Returns whether the ring can hold nothing more that an honest writer left.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.consumed >= self.last
    }

    /// Where the ring is.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// Whether an entry waits.
    #[inline]
    pub(super) fn is_empty(&self, segment: &Segment) -> bool {
        segment.word(self.place.at(self.consumed)).load(Ordering::Acquire) == 0
    }

    /// Copies the next record out, and leaves it where it is.
    #[inline]
    pub(super) fn peek(&mut self, segment: &Segment, out: &mut [u8; MAX_RECORD]) -> Found {
        let mut word = segment.word(self.place.at(self.consumed)).load(Ordering::Acquire);
        if word == SKIP {
            self.consumed += self.place.to_end(self.consumed) as u64;
            word = segment.word(self.place.at(self.consumed)).load(Ordering::Acquire);
        }
        if word == 0 {
            return Found::Nothing;
        }
        let (refers, parted) = (word & REFERS != 0, word & PARTED != 0);
        let head = usize::from((word >> HEAD) as u8);
        let len = (word & 0xffff_ffff) as usize;
        let shown = if parted { head } else { len };
        let known = word & !(0xffff_ffff | REFERS | PARTED | 0xff << HEAD) == 0;
        let to_end = self.place.to_end(self.consumed);
        let fits = (1..=MAX_RECORD).contains(&len) && entry_size(len) <= to_end;
        if !known || !fits || shown > len || parted == (head == 0) || parted && refers {
            return Found::Nonsense;
        }
        let end = self.place.size - to_end + entry_size(len);
        if end >= self.reached && !self.reach(segment, end) {
            return Found::Nonsense;
        }
        segment.read(self.place.at(self.consumed) + WORD, &mut out[..shown]);
        Found::Record(Waiting { len, shown, refers })
    }

    /// Gives the ring pages up to `end`, and for the word behind it.
    #[cold]
    fn reach(&mut self, segment: &Segment, end: usize) -> bool {
        let target = (end + LINE).next_power_of_two().min(self.place.size);
        let there = segment.populate(self.place.base, target);
        if there {
            self.reached = if target == self.place.size { ALL } else { target };
        }
        there
    }

    /// Where in the segment what was not copied out of the next record begins.
    #[inline]
    pub(super) fn rest(&self, record: Waiting) -> usize {
        self.place.at(self.consumed) + WORD + record.shown
    }

    /// Shows the writer the room for messages.
    #[inline]
    pub(super) fn show_room(&mut self, segment: &Segment, room: MessageRoom) {
        let before = core::mem::replace(&mut self.room, room);
        if before != room {
            // The number is the position of the variant.
            segment.word(self.place.control + ROOM).store(room as u64, Ordering::Relaxed);
            if before == MessageRoom::None {
                // The writer may sleep until there is room.
                self.rung = false;
            }
        }
    }

    /// The record that was looked at is done with.
    #[inline]
    pub(super) fn consume(&mut self, segment: &Segment, len: usize) {
        self.consumed += entry_size(len) as u64;
        // Not each time, for the line is the writer's to read.
        if self.consumed - self.told >= self.place.size as u64 / 4 {
            self.tell(segment);
        }
    }

    /// There is no room for the record that was looked at.
    pub(super) fn hold_back(&mut self, segment: &Segment) {
        self.held_back = self.held_back.wrapping_add(1);
        segment.word(self.place.control + HELD_BACK).store(self.held_back, Ordering::Relaxed);
    }

    #[inline]
    fn tell(&mut self, segment: &Segment) {
        self.told = self.consumed;
        segment.word(self.place.control + CONSUMED).store(self.consumed, Ordering::Release);
    }

    /// Tells the writer how many records are taken, and what is free.
    #[inline]
    pub(super) fn show_taken(&mut self, segment: &Segment, count: u64) {
        if self.told != self.consumed {
            self.tell(segment);
            self.rung = false;
        }
        if self.taken != count {
            self.taken = count;
            segment.word(self.place.control + TAKEN).store(count, Ordering::Release);
            self.rung = false;
        }
    }

    /// Has the peer woken, if it sleeps, for a reason that the ring's fields do not show.
    pub(super) fn alert(&mut self) {
        self.rung = false;
    }

    /// Whether the writer was told something since it was last woken.
    #[inline]
    pub(super) fn must_ring(&mut self) -> bool {
        !core::mem::replace(&mut self.rung, true)
    }

    /// Whether the peer, which writes this ring, sleeps; it is to be woken then, and is not found asleep again. After
    /// a fence: what was written before is seen by whoever falls asleep without being found so.
    #[inline]
    pub(super) fn wakes(&self, segment: &Segment) -> bool {
        fence(Ordering::SeqCst);
        let flag = segment.flag(self.place.control + ASLEEP);
        flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = LEAST;
    const PLACE: Place = Place { control: 0, base: 4096, size: SIZE };

    /// An interpreter takes its time.
    const fn times(all: u64, interpreted: u64) -> u64 {
        if cfg!(miri) { interpreted } else { all }
    }

    fn ring() -> (Segment, Writer, Reader, Box<[u8; MAX_RECORD]>) {
        let segment = Segment::plain(4096 + SIZE);
        (segment, Writer::new(PLACE), Reader::new(PLACE), Box::new([0; MAX_RECORD]))
    }

    #[test]
    fn records_come_out_as_they_went_in_round_and_round() {
        let (segment, mut writer, mut reader, mut out) = ring();
        let mut rng = crate::base::Rng::new(1);
        let (mut sent, mut got) = (0u64, 0u64);
        let length =
            |n: u64| 1 + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % MAX_RECORD;
        while got < times(4000, 60) {
            for _ in 0..rng.below(6) {
                let bytes = vec![sent as u8; length(sent)];
                let (head, rest) = bytes.split_at(bytes.len() / 3);
                if !writer.send(&segment, OutgoingRecord::of_copies(head, rest)) {
                    break;
                }
                sent += 1;
            }
            for _ in 0..rng.below(6) {
                let Found::Record(Waiting { len, .. }) = reader.peek(&segment, &mut out) else {
                    break;
                };
                assert_eq!((len, out[..len].iter().all(|b| *b == got as u8)), (length(got), true));
                reader.consume(&segment, len);
                got += 1;
            }
        }
        reader.show_taken(&segment, got);
        assert_eq!(writer.taken(&segment), got);
    }

    #[test]
    fn a_full_ring_takes_nothing_until_there_is_room() {
        let (segment, mut writer, mut reader, mut out) = ring();
        let record = OutgoingRecord::of_copies(&[7; 100], &[]);
        let fits = (0..10_000).take_while(|_| writer.send(&segment, record)).count();
        assert_eq!(fits, SIZE / 128 - 1);
        assert!(!writer.send(&segment, record) && !writer.send(&segment, record));
        let Found::Record(Waiting { len, .. }) = reader.peek(&segment, &mut out) else {
            panic!("it is full")
        };
        reader.consume(&segment, len);
        reader.show_taken(&segment, 1);
        assert!(writer.send(&segment, record) && !writer.send(&segment, record));
    }

    /// Traffic with few bytes in flight stays in the front of a ring. With more bytes in flight, more of the ring is
    /// used, up to all of it.
    #[test]
    #[cfg_attr(miri, ignore)] // memory of the kernel
    fn a_ring_uses_the_memory_that_its_traffic_needs() {
        let place = Place { size: 4 * LEAST, ..PLACE };
        let (segment, _fd) = Segment::create(4096 + place.size).expect("memory");
        assert!(segment.populate(0, 4096 + FIRST));
        let (mut writer, mut reader) = (Writer::new(place), Reader::new(place));
        let mut out = Box::new([0; MAX_RECORD]);
        let mut pass = |sent: u8, in_flight: usize| {
            let bytes = [sent; 1000];
            let record = OutgoingRecord::of_copies(&bytes, &[]);
            let fits = (0..in_flight).take_while(|_| writer.send(&segment, record)).count();
            for _ in 0..fits {
                let Found::Record(Waiting { len, .. }) = reader.peek(&segment, &mut out) else {
                    panic!("it was sent")
                };
                assert_eq!((len, out[..len].iter().all(|byte| *byte == sent)), (1000, true));
                reader.consume(&segment, len);
            }
            reader.show_taken(&segment, 0);
            (fits, writer.reached)
        };
        // These entries go round the ring many times.
        for n in 0..400u32 {
            assert_eq!(pass(n as u8, 5), (5, FIRST), "round {n}");
        }
        assert_eq!(pass(1, 40), (30, FIRST), "full");
        for n in 0..400u32 {
            assert_eq!(pass(n as u8, 40), (40, 2 * FIRST), "round {n}");
        }
        for reached in [2 * FIRST, 4 * FIRST] {
            let (fits, now) = pass(2, 250);
            assert!(fits * 1024 < reached && now == reached, "{fits} fitted, {now} used");
        }
        for n in 0..400u32 {
            assert_eq!(pass(n as u8, 250), (250, ALL), "round {n}");
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
                let _ = writer.send(&segment, OutgoingRecord::of_copies(&[1; 300], &[]));
                writer.taken(&segment);
                if let Found::Record(Waiting { len, .. }) = reader.peek(&segment, &mut out) {
                    reader.consume(&segment, len);
                }
                reader.show_taken(&segment, rng.next_u64());
                reader.wakes(&segment);
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
    fn whoever_sees_a_record_sees_its_record_and_room_is_free_when_it_is_told() {
        let all = times(20_000, 300);
        let shared = Shared(Segment::plain(4096 + SIZE));
        let bytes = |n: u64| vec![n as u8; 40 + (n * 997 % 9000) as usize];
        let write = |shared: &Shared| {
            let mut writer = Writer::new(PLACE);
            for n in 0..all {
                while !writer
                    .send(shared.segment(), OutgoingRecord::of_copies(&n.to_le_bytes(), &bytes(n)))
                {
                    std::thread::yield_now();
                }
            }
            while writer.taken(shared.segment()) < all {
                std::thread::yield_now();
            }
        };
        let read = |shared: &Shared| {
            let (mut reader, mut out) = (Reader::new(PLACE), Box::new([0; MAX_RECORD]));
            for n in 0..all {
                let len = loop {
                    match reader.peek(shared.segment(), &mut out) {
                        Found::Record(Waiting { len, refers: false, .. }) => break len,
                        Found::Nothing => std::thread::yield_now(),
                        other => panic!("{other:?}"),
                    }
                };
                assert_eq!((&out[..8], &out[8..len]), (&n.to_le_bytes()[..], &bytes(n)[..]));
                reader.consume(shared.segment(), len);
                if n % 7 == 0 || n + 1 == all {
                    reader.show_taken(shared.segment(), n + 1);
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
    fn nobody_sleeps_while_something_came() {
        for n in 0..times(2000, 60) {
            let shared = Shared(Segment::plain(4096 + SIZE));
            let (sleeps, wakes) = std::thread::scope(|scope| {
                let writes =
                    scope.spawn(|| {
                        let mut writer = Writer::new(PLACE);
                        assert!(writer.send(
                            shared.segment(),
                            OutgoingRecord::of_copies(&n.to_le_bytes(), &[])
                        ));
                        // It reads nothing: its reader is there for the flag of the other's writer.
                        writer.must_ring() && Reader::new(PLACE).wakes(shared.segment())
                    });
                Writer::new(PLACE).fall_asleep(shared.segment());
                fence(Ordering::SeqCst);
                let sleeps = Reader::new(PLACE).is_empty(shared.segment());
                (sleeps, writes.join().expect("no panic"))
            });
            assert!(!sleeps || wakes, "it would sleep for ever");
        }
    }
}
