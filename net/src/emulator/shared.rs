//! Memory that a process in virtual time shares with the emulator, in place of the stream of their socket.
//!
//! Each process has a [`SharedStream`]: a stream of bytes in each direction, which carries the frames of the protocol.
//! Neither end makes a system call for it, unless the other one sleeps. A process sleeps on a word of the memory (a
//! futex) until the emulator [wakes](SharedStream::wake) it. The emulator sleeps on its sockets. All processes share its
//! [`Doorbell`], in which each has a bit; one that finds the emulator asleep wakes it by a byte on its own socket. The
//! socket also tells either side of the end of the other.
//!
//! Neither end trusts the other: each keeps its own positions, and checks those that the other publishes.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use super::invalid;
use crate::shm::segment::Segment;
use crate::shm::socket;

/// Number of bytes of a stream that wait for its reader at most, a power of two.
const CAPACITY: usize = 128 << 10;
/// Place of the word on which the process sleeps: 1 while it does, or is about to.
const ASLEEP: usize = 0;
/// Place of the first byte of the two streams.
const STREAMS: usize = 4096;
/// Size in bytes of the memory of one process.
const SIZE: usize = STREAMS + 2 * CAPACITY;

/// Place of the word in a doorbell that says that the emulator sleeps.
const EMULATOR_ASLEEP: usize = 0;
/// Place of the first word with bits of processes in a doorbell.
const BITS: usize = 64;
/// Number of words with bits of processes.
const WORDS: usize = 128;
/// Size in bytes of a doorbell.
const DOORBELL: usize = BITS + 8 * WORDS;

/// Where one direction of a stream lies in the memory.
#[derive(Clone, Copy, Debug)]
struct Direction {
    /// Place of the number of bytes that were written.
    written: usize,
    /// Place of the number of bytes that were read.
    read: usize,
    /// Place of the bytes.
    base: usize,
}

const TO_EMULATOR: Direction = Direction { written: 64, read: 128, base: STREAMS };
const TO_PROCESS: Direction = Direction { written: 192, read: 256, base: STREAMS + CAPACITY };

/// One end of the memory that a process and the emulator share.
#[derive(Debug)]
pub struct SharedStream {
    segment: Segment,
    output: Direction,
    input: Direction,
    /// Number of bytes that this end has written and read.
    written: u64,
    read: u64,
    doorbell: Arc<Doorbell>,
    /// Number of the bit in the doorbell that belongs to the process.
    bit: u16,
}

impl SharedStream {
    /// Creates the memory of a process, and passes it on over its socket, with the doorbell. Returns the emulator's end.
    ///
    /// # Errors
    /// There is no memory, or the socket does not take the descriptors.
    pub fn offer(
        socket: &UnixStream,
        process: u32,
        (doorbell, bell): (&Arc<Doorbell>, &OwnedFd),
    ) -> io::Result<Self> {
        let (segment, fd) = create(SIZE)?;
        let bit = (process as usize % Doorbell::MOST) as u16;
        socket::send(socket.as_raw_fd(), &bit.to_le_bytes(), &[fd.as_fd(), bell.as_fd()])?;
        Ok(Self::new(segment, (TO_PROCESS, TO_EMULATOR), Arc::clone(doorbell), bit))
    }

    /// Takes the memory that the emulator offers over the socket. Returns the end of the process.
    ///
    /// # Errors
    /// The emulator offers none, or another one than this version expects.
    pub(super) fn accept(socket: &UnixStream) -> io::Result<Self> {
        let (text, fds) = socket::receive(socket.as_raw_fd()).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => io::Error::new(
                ErrorKind::TimedOut,
                "the emulator offers no shared memory: it is stopped or has no processor; look at its process",
            ),
            _ => error,
        })?;
        let (Ok(bit), Ok([memory, bell])) =
            (<[u8; 2]>::try_from(&text[..]), <[OwnedFd; 2]>::try_from(fds))
        else {
            return Err(invalid(
                "the emulator offers no shared memory; start the emulator of this version"
                    .to_owned(),
            ));
        };
        let bit = u16::from_le_bytes(bit);
        if usize::from(bit) >= Doorbell::MOST {
            return Err(invalid(format!("the emulator counts {bit} as a process")));
        }
        let segment = Segment::open(memory.as_fd(), SIZE, SIZE)?;
        let doorbell = Doorbell { segment: Segment::open(bell.as_fd(), DOORBELL, DOORBELL)? };
        Ok(Self::new(segment, (TO_EMULATOR, TO_PROCESS), Arc::new(doorbell), bit))
    }

    const fn new(
        segment: Segment,
        (output, input): (Direction, Direction),
        doorbell: Arc<Doorbell>,
        bit: u16,
    ) -> Self {
        Self { segment, output, input, written: 0, read: 0, doorbell, bit }
    }

    /// Writes as many of the bytes as there is room for, and returns their number. The reader learns of them when it
    /// looks: see [`Self::wake`] for a process, and `notify` for the emulator.
    #[must_use]
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let read = self.segment.word(self.output.read).load(Ordering::Acquire);
        // A number from the other process, which may be wrong.
        let waiting = self.written.saturating_sub(read).min(CAPACITY as u64) as usize;
        let bytes = &bytes[..bytes.len().min(CAPACITY - waiting)];
        let at = self.written as usize % CAPACITY;
        let (first, rest) = bytes.split_at(bytes.len().min(CAPACITY - at));
        for (from, place) in [(first, at), (rest, 0)] {
            // SAFETY: `from` is a slice, which is readable. Its place is inside of the stream's bytes, since it is shorter
            // than the rest of them.
            unsafe { self.segment.write(self.output.base + place, from.as_ptr(), from.len()) };
        }
        self.written += bytes.len() as u64;
        self.segment.word(self.output.written).store(self.written, Ordering::Release);
        bytes.len()
    }

    /// Copies bytes that the other end has written to `into`, as many as there are and as it has room for. Returns their
    /// number.
    ///
    /// # Errors
    /// The other end has published a number of bytes that cannot be.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let written = self.segment.word(self.input.written).load(Ordering::Acquire);
        let waiting = written.wrapping_sub(self.read);
        if waiting > CAPACITY as u64 {
            return Err(invalid(format!("{waiting} bytes wait in a shared stream of {CAPACITY}")));
        }
        let len = into.len().min(waiting as usize);
        let at = self.read as usize % CAPACITY;
        let (first, rest) = into[..len].split_at_mut(len.min(CAPACITY - at));
        self.segment.read(self.input.base + at, first);
        self.segment.read(self.input.base, rest);
        self.read += len as u64;
        self.segment.word(self.input.read).store(self.read, Ordering::Release);
        Ok(len)
    }

    /// Tells the emulator that the process has written something, which it handles before virtual time passes. With
    /// `urgent` it wakes the emulator if that sleeps.
    ///
    /// # Errors
    /// The emulator has exited.
    pub(super) fn notify(&self, socket: &UnixStream, urgent: bool) -> io::Result<()> {
        if self.doorbell.ring(self.bit, urgent) {
            socket::send(socket.as_raw_fd(), &[0], &[])?;
        }
        Ok(())
    }

    /// Prepares the process for [`Self::sleep`]. What the emulator writes from now on ends the sleep, so the process
    /// must look for it between the two calls.
    pub(super) fn prepare_sleep(&self) {
        self.segment.flag(ASLEEP).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Waits until the emulator wakes the process, for this time at most. Returns whether it did.
    pub(super) fn sleep(&self, most: Duration) -> bool {
        wait_while(self.segment.flag(ASLEEP), 1, most)
    }

    /// Waits for this time.
    pub(super) fn pause(&self, time: Duration) {
        let word = self.segment.flag(ASLEEP);
        let _ = wait_while(word, word.load(Ordering::Relaxed), time);
    }

    /// Wakes the process, so that it reads what was written to it.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        let word = self.segment.flag(ASLEEP);
        if word.swap(0, Ordering::SeqCst) != 0 {
            // SAFETY: futex(2) with FUTEX_WAKE touches no memory; the address of the word only names its sleepers.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
        }
    }
}

/// Sleeps while a word that processes share has this value, for `most` at most. Returns false after that time.
fn wait_while(word: &AtomicU32, value: u32, most: Duration) -> bool {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(most.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: most.subsec_nanos().into(),
    };
    // SAFETY: futex(2) with FUTEX_WAIT reads the word, which lives as long as the reference, and the time on this
    // function's stack.
    let rc = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time)
    };
    rc == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Creates memory for two processes whose pages are all there: later a shortage of memory would raise a signal.
fn create(size: usize) -> io::Result<(Segment, OwnedFd)> {
    let (segment, fd) = Segment::create(size)?;
    if !segment.populate(0, size) {
        return Err(ErrorKind::OutOfMemory.into());
    }
    Ok((segment, fd))
}

/// Memory in which all processes of a job tell the emulator that they have written something.
#[derive(Debug)]
pub struct Doorbell {
    segment: Segment,
}

impl Doorbell {
    /// Number of processes with a bit of their own. Further ones share the bits of the first.
    pub const MOST: usize = 64 * WORDS;

    /// Creates a doorbell and its descriptor.
    ///
    /// # Errors
    /// There is no memory.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let (segment, fd) = create(DOORBELL)?;
        Ok((Self { segment }, fd))
    }

    /// Sets the bit of a process. Returns whether the caller has to wake the emulator.
    fn ring(&self, bit: u16, urgent: bool) -> bool {
        let word = self.segment.word(BITS + usize::from(bit) / 64 * 8);
        word.fetch_or(1 << (bit % 64), Ordering::SeqCst);
        let asleep = self.segment.flag(EMULATOR_ASLEEP);
        urgent && asleep.load(Ordering::SeqCst) != 0 && asleep.swap(0, Ordering::SeqCst) != 0
    }

    /// Clears all bits, and puts their numbers into `rung`.
    pub fn take(&self, rung: &mut Vec<usize>) {
        rung.clear();
        for number in 0..WORDS {
            let word = self.segment.word(BITS + 8 * number);
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                rung.push(64 * number + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Asks processes to wake the emulator, which is about to sleep. Returns false if one has rung already.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        self.segment.flag(EMULATOR_ASLEEP).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        (0..WORDS).all(|number| self.segment.word(BITS + 8 * number).load(Ordering::SeqCst) == 0)
    }

    /// Notes that the emulator sleeps no more.
    pub fn end_sleep(&self) {
        self.segment.flag(EMULATOR_ASLEEP).store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns both ends of a stream.
    fn ends() -> (SharedStream, SharedStream, Arc<Doorbell>, [UnixStream; 2]) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let (doorbell, fd) = Doorbell::create().expect("memory");
        let doorbell = Arc::new(doorbell);
        let emulator = SharedStream::offer(&ours, 8195, (&doorbell, &fd)).expect("memory");
        let process = SharedStream::accept(&theirs).expect("an offer");
        (emulator, process, doorbell, [ours, theirs])
    }

    #[test]
    fn bytes_cross_in_their_order_and_more_than_there_is_room_for_wait() {
        let (mut emulator, mut process, ..) = ends();
        let bytes: Vec<u8> = (0..CAPACITY + 1000).map(|n| (n % 251) as u8).collect();
        let mut got = vec![0; bytes.len()];
        for start in [0, 7, CAPACITY - 3] {
            assert_eq!(process.write(&bytes[..start]), start);
            assert_eq!(emulator.read(&mut got).expect("bytes"), start);
            assert_eq!(process.write(&bytes), CAPACITY);
            assert_eq!(process.write(&bytes), 0);
            assert_eq!(emulator.read(&mut got[..1000]).expect("bytes"), 1000);
            assert_eq!(process.write(&bytes[CAPACITY..]), 1000);
            assert_eq!(emulator.read(&mut got[1000..]).expect("bytes"), CAPACITY);
            assert!(got == bytes);
            assert_eq!(emulator.read(&mut got).expect("bytes"), 0);
        }
        assert_eq!(emulator.write(b"answer"), 6);
        assert_eq!(process.read(&mut got).expect("bytes"), 6);
        assert_eq!(&got[..6], b"answer");
    }

    #[test]
    fn positions_that_cannot_be_are_refused() {
        let (mut emulator, process, ..) = ends();
        for written in [CAPACITY as u64 + 1, u64::MAX] {
            process.segment.word(TO_EMULATOR.written).store(written, Ordering::Release);
            assert_eq!(
                emulator.read(&mut [0; 9]).expect_err("invalid").kind(),
                ErrorKind::InvalidData
            );
        }
        // A reader that pretends to be ahead of the writer, or far behind, gets no more than the stream holds.
        for read in [u64::MAX, 0] {
            process.segment.word(TO_PROCESS.read).store(read, Ordering::Release);
            assert!(emulator.write(&vec![1; 2 * CAPACITY]) <= CAPACITY);
        }
        let (_, theirs) = UnixStream::pair().expect("sockets");
        assert!(SharedStream::accept(&theirs).is_err(), "the other end has closed");
    }

    #[test]
    fn a_ring_wakes_an_emulator_that_sleeps_once() {
        let (_emulator, process, doorbell, [ours, theirs]) = ends();
        ours.set_nonblocking(true).expect("a socket");
        let wakes = || socket::receive(ours.as_raw_fd()).is_ok_and(|(text, _)| !text.is_empty());
        let mut rung = Vec::new();
        process.notify(&theirs, true).expect("a socket");
        assert!(!wakes(), "the emulator is awake");
        assert!(!doorbell.prepare_sleep(), "a process has rung");
        doorbell.end_sleep();
        doorbell.take(&mut rung);
        assert_eq!(rung, [8195 % Doorbell::MOST]);
        assert!(doorbell.prepare_sleep());
        process.notify(&theirs, false).expect("a socket");
        assert!(!wakes(), "it is not urgent");
        process.notify(&theirs, true).expect("a socket");
        process.notify(&theirs, true).expect("a socket");
        assert!(wakes());
        doorbell.take(&mut rung);
        assert_eq!(rung.len(), 1);
    }

    #[test]
    fn a_process_sleeps_until_it_is_woken() {
        let (mut emulator, mut process, ..) = ends();
        process.prepare_sleep();
        assert!(!process.sleep(Duration::from_millis(1)));
        let sleeper = std::thread::spawn(move || {
            let mut got = [0; 4];
            loop {
                process.prepare_sleep();
                if process.read(&mut got).expect("bytes") == 4 {
                    return got;
                }
                assert!(process.sleep(Duration::from_secs(30)), "nobody wakes it");
            }
        });
        while emulator.segment.flag(ASLEEP).load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(emulator.write(b"wake"), 4);
        emulator.wake();
        assert_eq!(&sleeper.join().expect("no panic"), b"wake");
    }
}
