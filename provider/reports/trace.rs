//! A trace of what an application does with an endpoint, message by message, which `squall sim --trace` replays over
//! another network.
//!
//! A line an event, in the order in which the endpoint's process saw them. That order is what a replay keeps: what had
//! ended before an operation began may have been waited for. The words of a line are in [`squall_monitor::trace`],
//! which the reader has, too.
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
    Action, Completion, Engine, MatchSpace, OpError, OpKind, Operation, PeerId, Visibility,
};
use squall_monitor::trace::{
    EXTENSION, EventKind, OperationKind, TraceEvent, TraceHeader, TraceLine,
};

use crate::clock;
use crate::host::logger::USER;
use crate::host::param::params;
use crate::reports::monitor::job_place;
use crate::reports::stats::hostname;

/// Number of bytes of trace text after which the text is written to the file.
const GATHERED: usize = 64 << 10;
/// Longest time for which trace text waits in memory while more text arrives.
const WAITS: Span = Span::millis(100);

/// The trace of an endpoint's operations, and its file.
struct Trace {
    file: File,
    path: PathBuf,
    text: Vec<u8>,
    opened: Time,
    written: Time,
    /// Peers whose addresses were written to the trace file.
    named: HashSet<u32>,
    /// The operation that the current call of the application is posting.
    posting: Option<TracedOperation>,
    /// True if writing failed, which was reported. The trace ends there, as if it were cut off.
    failed: bool,
}

/// An operation that a trace records, with its peer, kind and size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TracedOperation {
    peer: PeerId,
    class: OperationKind,
    bytes: u64,
    tag: u64,
    context: u64,
}

impl TracedOperation {
    /// Returns the trace record of an operation that enters the engine.
    #[cold]
    pub(crate) fn of(op: &Operation) -> Self {
        let (class, tag) = match &op.action {
            Action::Message { space, tag } => (message(*space), *tag),
            Action::Write(_) => (OperationKind::Write, 0),
            Action::Read(_) => (OperationKind::Read, 0),
            Action::Atomic(atomic) if atomic.result.is_some() => (OperationKind::Fetch, 0),
            Action::Atomic(_) => (OperationKind::Update, 0),
        };
        Self { peer: op.peer, class, bytes: op.buf.len(), tag, context: op.context }
    }

    /// Returns the trace record of an own operation that has ended.
    fn ended(done: &Completion) -> Option<Self> {
        let class = match done.kind {
            OpKind::Send => message(done.space),
            OpKind::Write => OperationKind::Write,
            OpKind::Read => OperationKind::Read,
            OpKind::Update => OperationKind::Update,
            OpKind::Fetch => OperationKind::Fetch,
            _ => return None,
        };
        let (bytes, context) = (done.len, done.context);
        let tag = if done.kind == OpKind::Send { done.tag } else { 0 };
        Some(Self { peer: done.peer?, class, bytes, tag, context })
    }
}

const fn message(space: MatchSpace) -> OperationKind {
    match space {
        MatchSpace::Untagged => OperationKind::Message,
        MatchSpace::Tagged => OperationKind::Tagged,
        MatchSpace::Collective => OperationKind::Collective,
    }
}

/// The writer of an endpoint's trace, if the user asks for one.
pub(crate) struct Tracer(Option<Box<Trace>>);

impl Tracer {
    /// Opens the trace of an endpoint that is being enabled. The tracer writes nothing if no trace is wanted, or if the
    /// file cannot be written, which is reported.
    pub(crate) fn open(number: u32, local: SocketAddr) -> Self {
        let folder = params().trace.as_str();
        if folder.is_empty() {
            return Self(None);
        }
        let host = hostname();
        let name = format!("{host}-{}-{number}.{EXTENSION}", std::process::id());
        let path = Path::new(folder).join(name);
        match Trace::create(&path, number, &host, local) {
            Ok(trace) => Self(Some(Box::new(trace))),
            Err(error) => {
                log::warn!(target: USER, "FI_SQUALL_TRACE: cannot write {}: {error}", path.display());
                Self(None)
            }
        }
    }

    /// Returns whether a trace of the endpoint is written.
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Writes the begin of an operation. A completion that comes before [`Self::end_posting`] is written as one that the
    /// operation's call delivered, because its bytes were copied.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_begin(&mut self, engine: &Engine, now: Time, op: TracedOperation) {
        if let Some(trace) = &mut self.0 {
            trace.begin(now, op, engine.peers().get(op.peer).addr());
        }
    }

    /// Notes that the operation whose begin was recorded last has been posted.
    #[inline]
    pub(crate) fn end_posting(&mut self) {
        if let Some(trace) = &mut self.0 {
            trace.posting = None;
        }
    }

    /// Writes the end of an operation that was begun, or of a receive. `counted` says that a counter of the application counts
    /// it.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_end(&mut self, engine: &Engine, done: &Completion, counted: bool) {
        if let (Some(trace), Some(peer)) = (&mut self.0, done.peer) {
            let shown = counted || done.visibility == Visibility::Entry;
            trace.end(done, shown, engine.peers().get(peer).addr());
        }
    }

    /// Writes the trace text that has gathered to the file.
    pub(crate) fn write(&mut self) {
        if let Some(trace) = &mut self.0 {
            trace.write();
        }
    }

    /// Writes the end of the trace, because the endpoint closes in good order.
    pub(crate) fn close(&mut self) {
        if let Some(trace) = self.0.take() {
            trace.close();
        }
    }
}

impl Trace {
    fn create(path: &Path, endpoint: u32, host: &str, local: SocketAddr) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::create(path)?;
        let (place, opened) = (job_place(), clock::now());
        let head = TraceHeader {
            job: place.job,
            rank: place.rank,
            ranks: place.ranks,
            host: host.to_owned(),
            pid: std::process::id(),
            endpoint,
            address: local,
            began: clock::since_1970(),
            opened: opened.0,
            parameters: params().texts.clone(),
        };
        let mut trace = Self {
            file,
            path: path.to_owned(),
            text: Vec::new(),
            opened,
            written: opened,
            named: HashSet::new(),
            posting: None,
            failed: false,
        };
        trace.line(&head);
        trace.file.write_all(&trace.text)?;
        trace.text.clear();
        Ok(trace)
    }

    fn begin(&mut self, now: Time, op: TracedOperation, address: SocketAddr) {
        self.posting = Some(op);
        self.event(now, EventKind::Begin, &op, address);
    }

    /// Writes the end of an operation, or the receive of a peer's message. With `shown` the application can see that
    /// end, and wait for it.
    fn end(&mut self, done: &Completion, shown: bool, address: SocketAddr) {
        let came = matches!(done.status, Ok(()) | Err(OpError::Truncated { .. }));
        if !came || matches!(done.visibility, Visibility::Kept | Visibility::RegionOnly) {
            return;
        }
        let now = clock::now();
        if let (OpKind::Recv, Some(peer)) = (done.kind, done.peer) {
            let class = message(done.space);
            let op = TracedOperation { peer, class, bytes: done.len, tag: done.tag, context: 0 };
            return self.event(now, EventKind::Receive, &op, address);
        }
        let Some(op) = TracedOperation::ended(done).filter(|_| shown) else { return };
        // It was copied: what the application waits for has not happened.
        if self.posting.take_if(|posting| *posting == op).is_none() {
            self.event(now, EventKind::End, &op, address);
        }
    }

    fn event(&mut self, now: Time, moment: EventKind, op: &TracedOperation, address: SocketAddr) {
        let peer = op.peer.0;
        if self.named.insert(peer) {
            self.line(&TraceLine::Peer { number: peer, address });
        }
        let at = now.since(self.opened).0;
        let TracedOperation { class, bytes, tag, .. } = *op;
        self.line(&TraceLine::Event(TraceEvent { at, moment, class, peer, bytes, tag }));
        if self.text.len() >= GATHERED || now.since(self.written) >= WAITS {
            self.written = now;
            self.write();
        }
    }

    fn line(&mut self, line: &dyn Display) {
        // Memory is not short of a line.
        let _ = writeln!(self.text, "{line}");
    }

    fn write(&mut self) {
        if !self.failed
            && let Err(error) = self.file.write_all(&self.text)
        {
            self.failed = true;
            log::warn!(target: USER, "FI_SQUALL_TRACE: cannot write {}: {error}", self.path.display());
        }
        self.text.clear();
    }

    fn close(mut self) {
        let at = clock::now().since(self.opened).0;
        self.line(&TraceLine::Closed { at });
        self.write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_base::RegionId;

    fn begun(context: u64, bytes: u64) -> TracedOperation {
        TracedOperation { peer: PeerId(3), class: OperationKind::Tagged, bytes, tag: 0x1f, context }
    }

    fn done(kind: OpKind, context: u64, len: u64) -> Completion {
        Completion {
            context,
            kind,
            space: MatchSpace::Tagged,
            len,
            buf: 0,
            data: None,
            tag: 0x1f,
            peer: Some(PeerId(3)),
            region: RegionId::LENT,
            visibility: Visibility::Entry,
            released: false,
            status: Ok(()),
        }
    }

    #[test]
    fn what_can_be_waited_for_is_written_in_its_order() {
        let path = std::env::temp_dir().join(format!("squall-trace-{}", std::process::id()));
        let (here, there) = ("10.0.0.1:1", "10.0.0.2:2");
        let address = there.parse().expect("literal");
        let mut trace =
            Trace::create(&path, 4, "here", here.parse().expect("literal")).expect("room");
        let now = clock::now();
        // Copied: the application has its buffer back, and that says nothing of the message.
        trace.begin(now, begun(5, 8), address);
        trace.end(&done(OpKind::Send, 5, 8), true, address);
        trace.posting = None;
        trace.begin(now, begun(6, 9000), address);
        // Another one ends while this is posted.
        trace.end(&done(OpKind::Send, 7, 9000), true, address);
        trace.posting = None;
        trace.end(&done(OpKind::Recv, 0, 64), true, address);
        trace.end(&done(OpKind::Send, 6, 9000), true, address);
        // The operation was injected, so the application gets no completion.
        trace.end(&done(OpKind::Send, 0, 8), false, address);
        let cancelled = Completion { status: Err(OpError::Cancelled), ..done(OpKind::Recv, 0, 64) };
        trace.end(&cancelled, true, address);
        let kept = Completion { visibility: Visibility::Kept, ..done(OpKind::Send, 9, 1) };
        trace.end(&kept, true, address);
        trace.end(&done(OpKind::RemoteWrite, 0, 4), true, address);
        trace.write();
        // The file is full: its content stays, and no further text is collected.
        let mut full =
            Trace { file: File::open(&path).expect("it is there"), text: Vec::new(), ..trace };
        full.begin(now, begun(10, 1), address);
        full.write();
        assert!(full.failed && full.text.is_empty());
        let trace = Trace {
            file: File::options().append(true).open(&path).expect("it is there"),
            failed: false,
            ..full
        };
        trace.close();
        let text = fs::read_to_string(&path).expect("it is there");
        fs::remove_file(&path).expect("ours");
        let mut lines = text.lines();
        let head: TraceHeader = lines.next().and_then(|line| line.parse().ok()).expect("a head");
        assert_eq!((head.endpoint, head.address.to_string()), (4, here.to_owned()));
        let events: Vec<String> = lines
            .map(|line| match line.parse::<TraceLine>().expect(line) {
                TraceLine::Event(TraceEvent { moment, bytes, peer, tag, .. }) => {
                    format!("{moment} {bytes} {peer} {tag:x}")
                }
                TraceLine::Peer { number, address } => format!("peer {number} {address}"),
                TraceLine::Closed { .. } => "closed".to_owned(),
            })
            .collect();
        assert_eq!(
            events,
            [
                "peer 3 10.0.0.2:2",
                "begin 8 3 1f",
                "begin 9000 3 1f",
                "end 9000 3 1f",
                "receive 64 3 1f",
                "end 9000 3 1f",
                "closed"
            ]
        );
    }
}
