//! Conversion of the engine's completions to entries of completion queues.

use squall_engine::{Completion, MatchSpace, OpError, OpKind};

use crate::abi::flags;
use crate::queues::cq::{Entry, ErrorEntry};
use crate::reports::fault::Fault;

/// Returns the completion flags of an operation that has ended (fi_cq(3)).
#[inline]
fn flags_of(done: &Completion) -> u64 {
    let space = match done.space {
        MatchSpace::Untagged => flags::MSG,
        MatchSpace::Tagged => flags::TAGGED,
        MatchSpace::Collective => flags::COLLECTIVE,
    };
    let kind = match done.kind {
        OpKind::Send => flags::SEND | space,
        OpKind::Recv | OpKind::Peek => flags::RECV | space,
        OpKind::Write => flags::RMA | flags::WRITE,
        OpKind::Read => flags::RMA | flags::READ,
        OpKind::Update => flags::ATOMIC | flags::WRITE,
        OpKind::Fetch => flags::ATOMIC | flags::READ,
        OpKind::RemoteUpdate => flags::ATOMIC | flags::REMOTE_WRITE,
        OpKind::RemoteFetch => flags::ATOMIC | flags::REMOTE_READ,
        OpKind::RemoteRead => flags::RMA | flags::REMOTE_READ,
        OpKind::RemoteWrite => flags::RMA | flags::REMOTE_WRITE,
    };
    let received = matches!(done.kind, OpKind::Recv | OpKind::Peek | OpKind::RemoteWrite);
    let data = if received && done.data.is_some() { flags::REMOTE_CQ_DATA } else { 0 };
    let released = if done.released { flags::MULTI_RECV } else { 0 };
    kind | data | released
}

/// Returns the queue entry for a completion. Its message came from `source` (a `fi_addr_t`).
#[inline]
pub(crate) fn entry_of(done: &Completion, source: u64) -> Entry {
    Entry {
        context: done.context,
        flags: flags_of(done),
        len: done.len,
        buf: done.buf,
        data: done.data.unwrap_or(0),
        tag: done.tag,
        source,
    }
}

/// Returns the queue entry for a failure, with a full text if there is more to say than the table of errors does.
#[cold]
pub(crate) fn error_entry_of(
    done: &Completion,
    error: OpError,
    source: u64,
    detail: Option<String>,
) -> ErrorEntry {
    let row = Fault::of(error).row();
    if let Some(text) = &detail {
        log::warn!("{text}");
    }
    let excess = if let OpError::Truncated { excess } = error { excess } else { 0 };
    ErrorEntry {
        entry: entry_of(done, source),
        excess,
        errno: row.errno,
        code: row.code,
        text: detail,
        position: 0,
    }
}
