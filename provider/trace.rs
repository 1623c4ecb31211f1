//! What an application does with an endpoint, message by message, in a file: what `squall sim --trace` replays over another
//! network.
//!
//! A line an event, in the order in which the endpoint's process saw them. That order is what a replay keeps: what had
//! ended before an operation began may have been waited for. The words of a line are in [`squall_monitor::trace`], which
//! the reader has, too.
//!
//! Text gathers in memory and is written now and then, so that of a process that is killed little is missing.

use core::fmt::Display;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use squall_base::{Span, Time};
use squall_engine::{
    Action, Completion, MatchSpace, OpError, OpKind, Operation, PeerId, Visibility,
};
use squall_monitor::trace::{Class, EXTENSION, Event, Head, Line, Moment};

use crate::clock;
use crate::logger::USER;
use crate::monitor::place;
use crate::param::params;
use crate::stats::hostname;

/// Text that is written at once, bytes.
const GATHERED: usize = 64 << 10;
/// Text does not wait for longer than this while there is any to come.
const WAITS: Span = Span::millis(100);

/// A file that an endpoint's operations go to.
pub(crate) struct Trace {
    file: File,
    path: PathBuf,
    text: Vec<u8>,
    opened: Time,
    written: Time,
    /// Peers whose addresses are in the file.
    named: HashSet<u32>,
    /// The operation that is being posted.
    posting: Option<Begun>,
}

/// An operation that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Begun {
    peer: PeerId,
    class: Class,
    bytes: u64,
    tag: u64,
    context: u64,
}

impl Begun {
    /// With whom.
    pub(crate) const fn peer(&self) -> PeerId {
        self.peer
    }

    #[cold]
    pub(crate) fn of(op: &Operation) -> Self {
        let (class, tag) = match &op.action {
            Action::Message { space, tag } => (message(*space), *tag),
            Action::Write(_) => (Class::Write, 0),
            Action::Read(_) => (Class::Read, 0),
            Action::Atomic(atomic) if atomic.result.is_some() => (Class::Fetch, 0),
            Action::Atomic(_) => (Class::Update, 0),
        };
        Self { peer: op.peer, class, bytes: op.buf.len(), tag, context: op.context }
    }

    /// What of an operation of ours ended.
    fn ended(done: &Completion) -> Option<Self> {
        let class = match done.kind {
            OpKind::Send => message(done.space),
            OpKind::Write => Class::Write,
            OpKind::Read => Class::Read,
            OpKind::Update => Class::Update,
            OpKind::Fetch => Class::Fetch,
            _ => return None,
        };
        let (bytes, context) = (done.len, done.context);
        let tag = if done.kind == OpKind::Send { done.tag } else { 0 };
        Some(Self { peer: done.peer?, class, bytes, tag, context })
    }
}

const fn message(space: MatchSpace) -> Class {
    match space {
        MatchSpace::Untagged => Class::Message,
        MatchSpace::Tagged => Class::Tagged,
        MatchSpace::Collective => Class::Collective,
    }
}

impl Trace {
    /// The file of an endpoint that is enabled now; `None` where none is wanted, or can be had: that is said, and harms
    /// nobody.
    pub(crate) fn open(number: u32, local: SocketAddr) -> Option<Box<Self>> {
        let folder = params().trace.as_str();
        if folder.is_empty() {
            return None;
        }
        let host = hostname();
        let name = format!("{host}-{}-{number}.{EXTENSION}", std::process::id());
        let path = Path::new(folder).join(name);
        match Self::create(&path, number, &host, local) {
            Ok(trace) => Some(Box::new(trace)),
            Err(error) => {
                log::warn!(target: USER, "FI_SQUALL_TRACE: cannot write {}: {error}", path.display());
                None
            }
        }
    }

    fn create(path: &Path, endpoint: u32, host: &str, local: SocketAddr) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::create(path)?;
        let (place, opened) = (place(), clock::now());
        let head = Head {
            job: place.job,
            rank: place.rank,
            ranks: place.ranks,
            host: host.to_owned(),
            pid: std::process::id(),
            endpoint,
            address: local,
            began: clock::since_1970(),
            opened: opened.0,
        };
        let mut trace = Self {
            file,
            path: path.to_owned(),
            text: Vec::new(),
            opened,
            written: opened,
            named: HashSet::new(),
            posting: None,
        };
        trace.line(&head);
        trace.file.write_all(&trace.text)?;
        trace.text.clear();
        Ok(trace)
    }

    /// An operation begins. Until [`Self::posted`] its end, if it comes, is one of its copying.
    #[cold]
    pub(crate) fn begin(&mut self, now: Time, op: Begun, address: SocketAddr) {
        self.posting = Some(op);
        self.event(now, Moment::Begin, &op, address);
    }

    /// What began last has been posted.
    #[cold]
    pub(crate) fn posted(&mut self) {
        self.posting = None;
    }

    /// Something ended: an operation that was begun, or the receive of a peer's.
    #[cold]
    pub(crate) fn end(&mut self, done: &Completion, address: SocketAddr) {
        let came = matches!(done.status, Ok(()) | Err(OpError::Truncated { .. }));
        if !came || done.visibility == Visibility::Kept {
            return;
        }
        let now = clock::now();
        if let (OpKind::Recv, Some(peer)) = (done.kind, done.peer) {
            let class = message(done.space);
            let op = Begun { peer, class, bytes: done.len, tag: done.tag, context: 0 };
            return self.event(now, Moment::Receive, &op, address);
        }
        let Some(op) = Begun::ended(done) else { return };
        // It was copied: what the application waits for has not happened.
        if self.posting.take_if(|posting| *posting == op).is_none() {
            self.event(now, Moment::End, &op, address);
        }
    }

    fn event(&mut self, now: Time, moment: Moment, op: &Begun, address: SocketAddr) {
        let peer = op.peer.0;
        if self.named.insert(peer) {
            self.line(&Line::Peer { number: peer, address });
        }
        let at = now.since(self.opened).0;
        let Begun { class, bytes, tag, .. } = *op;
        self.line(&Line::Event(Event { at, moment, class, peer, bytes, tag }));
        if self.text.len() >= GATHERED || now.since(self.written) >= WAITS {
            self.written = now;
            self.write();
        }
    }

    fn line(&mut self, line: &dyn Display) {
        // Memory is not short of a line.
        let _ = writeln!(self.text, "{line}");
    }

    /// Writes what has gathered.
    #[cold]
    pub(crate) fn write(&mut self) {
        if let Err(error) = self.file.write_all(&self.text) {
            log::warn!(target: USER, "FI_SQUALL_TRACE: cannot write {}: {error}", self.path.display());
        }
        self.text.clear();
    }

    /// The endpoint ends in an orderly way.
    pub(crate) fn close(mut self) {
        let at = clock::now().since(self.opened).0;
        self.line(&Line::Closed { at });
        self.write();
    }
}
