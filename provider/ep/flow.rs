//! From the engine's completions to what a completion queue shows.

use std::net::SocketAddr;

use squall_engine::{Class, Completion, OpError, OpKind, Trouble};

use crate::cq::{Entry, Failure};
use crate::fault::{self, Fault};
use crate::flags;

/// What kind of operation ended: fi_cq(3), completion flags.
#[inline]
fn flags_of(done: &Completion) -> u64 {
    let space = match done.class {
        Class::Msg => flags::MSG,
        Class::Tagged => flags::TAGGED,
    };
    let kind = match done.kind {
        OpKind::Send => flags::SEND | space,
        OpKind::Recv => flags::RECV | space,
        OpKind::Write => flags::RMA | flags::WRITE,
        OpKind::Read => flags::RMA | flags::READ,
        OpKind::RemoteWrite => flags::RMA | flags::REMOTE_WRITE,
    };
    let received = matches!(done.kind, OpKind::Recv | OpKind::RemoteWrite);
    let data = if received && done.data.is_some() { flags::REMOTE_CQ_DATA } else { 0 };
    let released = if done.released { flags::MULTI_RECV } else { 0 };
    kind | data | released
}

/// The entry of a completion from `source` (a `fi_addr_t`).
#[inline]
pub(super) fn entry_of(done: &Completion, source: u64) -> Entry {
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

/// The entry of a failure.
#[cold]
pub(super) fn failure_of(
    done: &Completion,
    error: OpError,
    source: u64,
    peer: Option<SocketAddr>,
    local: SocketAddr,
    trouble: Option<Trouble>,
) -> Failure {
    let row = Fault::of(error).row();
    // What applications provoke themselves needs no story.
    let expected =
        matches!(error, OpError::Cancelled | OpError::NoMessage | OpError::Truncated { .. });
    let text = (!expected).then(|| fault::describe(error, peer, local, trouble));
    if let Some(text) = &text {
        log::warn!("{text}");
    }
    let excess = if let OpError::Truncated { excess } = error { excess } else { 0 };
    Failure {
        entry: entry_of(done, source),
        excess,
        errno: row.errno,
        code: row.code,
        text,
        position: 0,
    }
}
