//! A nonblocking connection to the relay, with buffers in both directions.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use squall_net::emulator::RECEIVE_BUFFER;
use squall_net::emulator::frame::{Frame, FrameError, FrameKind, MAX_FRAME, encode};
use squall_net::emulator::shared::SharedStream;

/// Largest number of bytes that one read takes from a socket.
const READ: usize = 256 << 10;

/// Purpose of a connection to the emulator.
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// The peer has sent neither a greeting nor a command yet.
    Unknown,
    /// An attached endpoint.
    Endpoint(Endpoint),
    /// A process of a job in virtual time, with all its endpoints.
    Process {
        /// Number of the process among those of the job.
        number: u32,
        /// The endpoints of the process by their numbers; `None` for one that has closed.
        endpoints: Vec<Option<Endpoint>>,
    },
    /// The relay has queued its answer and closes the connection once the answer is sent.
    Leaving,
}

/// An attached endpoint and its packet counters.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) addr: SocketAddr,
    pub(super) host: u32,
    pub(super) process: u32,
    pub(super) rank: Option<u32>,
    /// The process whose wait for a processor is measured, by its ID here: the endpoint's in real time, if it is on this machine.
    pub(super) measured: Option<u32>,
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) received: u64,
    pub(super) received_bytes: u64,
    pub(super) overflow: u64,
}

impl Role {
    /// Returns the endpoints that are attached by this connection.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        let (one, all) = match self {
            Self::Endpoint(endpoint) => (Some(endpoint), &[][..]),
            Self::Process { endpoints, .. } => (None, endpoints.as_slice()),
            Self::Unknown | Self::Leaving => (None, &[][..]),
        };
        one.into_iter().chain(all.iter().flatten())
    }
}

/// A connection to the relay.
pub(super) struct Client {
    pub(super) stream: UnixStream,
    pub(super) role: Role,
    /// In virtual time, the memory by which a process and the relay exchange frames once it has attached. Then the
    /// socket tells of the end of the process, and wakes the relay.
    pub(super) shared: Option<SharedStream>,
    /// Bytes from the socket. Those in `inbox[start..end]` were read and are not handled yet.
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
    outbox: Vec<u8>,
    /// Bytes of the outbox that were already written to the socket.
    sent: usize,
}

impl Client {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            role: Role::Unknown,
            shared: None,
            inbox: vec![0; READ + MAX_FRAME].into_boxed_slice(),
            start: 0,
            end: 0,
            outbox: Vec::new(),
            sent: 0,
        })
    }

    /// Reads once from the socket, or from the memory that is shared with the process; reading nothing because it would
    /// block is no error.
    ///
    /// # Errors
    /// `UnexpectedEof` when the peer has closed the connection.
    pub(super) fn read(&mut self) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.inbox.len() - self.end < READ {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if let Some(shared) = &mut self.shared {
            self.end += shared.read(&mut self.inbox[self.end..])?;
            return Ok(());
        }
        match self.stream.read(&mut self.inbox[self.end..]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.end += n;
                Ok(())
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Reads the bytes by which a process wakes the relay.
    ///
    /// # Errors
    /// `UnexpectedEof` when the process has ended.
    pub(super) fn read_wakeups(&mut self) -> io::Result<()> {
        match self.stream.read(&mut [0; 64]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Err(e) if !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Err(e),
            _ => Ok(()),
        }
    }

    /// Returns the next complete frame. The caller passes the frame's length to [`Self::handled`]
    /// afterwards.
    pub(super) fn next(&self) -> Result<Option<Frame<'_>>, FrameError> {
        Frame::first(&self.inbox[self.start..self.end])
    }

    /// Discards a frame of `len` bytes that the caller has handled, from the front of the inbox.
    pub(super) fn handled(&mut self, len: usize) {
        self.start += len;
    }

    /// Returns whether the outbox has room for `len` bytes, frame header included.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.outbox.len() - self.sent + len <= RECEIVE_BUFFER
    }

    /// Appends bytes to the outbox, which waits to be written to the socket.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// Answers, in as many frames as the text needs, and closes the connection once they are sent.
    pub(super) fn answer(&mut self, kind: FrameKind, text: &str) {
        let chunks = text.as_bytes().chunks(32 << 10);
        if chunks.len() == 0 {
            self.push(&encode(kind, b""));
        }
        for chunk in chunks {
            self.push(&encode(kind, chunk));
        }
        self.role = Role::Leaving;
    }

    /// Returns whether bytes wait to be written to the socket.
    pub(super) fn is_pending(&self) -> bool {
        self.sent < self.outbox.len()
    }

    /// Writes as much of the outbox as the socket or the shared memory accepts.
    ///
    /// # Errors
    /// The peer has closed the connection.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(shared) = &mut self.shared {
            self.sent += shared.write(&self.outbox[self.sent..]);
            if !self.is_pending() {
                self.outbox.clear();
                self.sent = 0;
            }
            return Ok(());
        }
        while self.is_pending() {
            match self.stream.write(&self.outbox[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    // Do not let the sent part grow without bound.
                    if self.sent > RECEIVE_BUFFER / 2 {
                        self.outbox.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Ok(())
    }

    /// Returns whether the answer is sent and the connection should be closed.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.role, Role::Leaving) && !self.is_pending()
    }
}
