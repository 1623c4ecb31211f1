//! The policy for outbound operations. Only this module decides whether the payload is copied or
//! lent, which protocol carries it, and when the operation completes towards the user.
//!
//! | Matter | Rule |
//! |---|---|
//! | Copied | An injected operation, at the call. A message that is not long and whose completion level concerns only the buffer: at the call if the peer has answered before, else at its first answer. The operands of an atomic, which are short: always at the call. Everything else is lent, and so is such a message if there is no room for a copy. Without room, an injected operation or an atomic is refused with [`SubmitError::Again`]. |
//! | Complete at the call | Copied messages with a completion entry and a level of at most [`Level::Inject`] whose peer has answered before. With [`Level::Inject`], which concerns the buffer alone, the peer need not have answered. |
//! | Complete at first contact | Such messages to a peer that has not answered yet, so that a send to an absent peer fails. |
//! | Complete at the end | Everything else: when the peer's message layer has all of the data. A message of [`Level::Match`] completes when a receive has matched; a write, also an injected one, when the data is in place; a read or a fetching atomic when the data has arrived; another atomic when the target has executed it. |
//! | At once | An eager message that one record of the shared-memory channel has room for leaves in the call, if its completion does not wait for the first contact, nothing must go before it, and the ring has room. |
//! | No entry | Operations that only count are complete at the end, whatever their level: users judge remote completion by counters. |
//!
//! The engine serves the transmit level by the delivery level: an acknowledgement means that the
//! peer's message layer has the data, in the posted buffer or in its own memory.
//! FI_DELIVERY_COMPLETE promises that (fi_endpoint(3)).

use crate::operation::{Level, SubmitError, Visibility};

/// The kind of an outbound operation, as far as the policy distinguishes kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpClass {
    Message,
    Write,
    Read,
    /// An atomic operation that returns no values.
    Update,
    /// An atomic operation that returns values.
    Fetch,
}

impl OpClass {
    const fn is_atomic(self) -> bool {
        matches!(self, Self::Update | Self::Fetch)
    }
}

/// The size class of an outbound operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpSize {
    /// The operation is not longer than the inject size.
    Short,
    /// The operation is longer than the inject size and not longer than the rendezvous threshold.
    Eager,
    /// The operation is longer than the rendezvous threshold.
    Long,
}

/// The facts about an outbound operation from which the policy decides how to send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PolicyInput {
    pub(crate) kind: OpClass,
    pub(crate) size: OpSize,
    pub(crate) inject: bool,
    pub(crate) level: Level,
    pub(crate) visibility: Visibility,
    /// The peer has answered this endpoint before.
    pub(crate) known: bool,
    /// The message is short enough for a copy, and the engine has room for one.
    pub(crate) room: bool,
    /// The operation is a message for a shared-memory channel, and one record has room for it.
    pub(crate) record: bool,
    /// The peer supports this project's rendezvous and its confirmation of a match. The response of a
    /// foreign peer shows by itself that a receive has matched.
    pub(crate) native: bool,
}

/// The protocol that carries the payload of an outbound message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// All packets of the message are sent at once.
    Eager,
    /// All packets of the message are sent at once, and the receiver confirms that a receive
    /// matched.
    Confirmed,
    /// The sender sends only a header, and the receiver reads the payload.
    Rendezvous,
}

/// The moment at which the payload is copied. From then on the engine does not read the user's
/// buffer any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copy {
    /// The payload is copied during the call that submits the operation.
    Call,
    /// The payload is copied when the peer first answers this endpoint.
    Contact,
    Never,
}

/// The moment at which the user gets the completion of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompletionTime {
    /// The user is notified when the call that submits the operation returns.
    Call,
    /// The user is notified when the peer first answers, or at the operation's end.
    Contact,
    /// The user is notified when the operation has ended.
    End,
}

/// The decision of the policy for an outbound operation. `protocol` matters only for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) protocol: Protocol,
    pub(crate) copy: Copy,
    pub(crate) complete: CompletionTime,
    /// The message leaves as one shared-memory record during the call, unless something must go
    /// before it.
    pub(crate) at_once: bool,
}

/// Decides how an operation is executed.
///
/// # Errors
/// [`SubmitError::InjectTooLong`], [`SubmitError::InjectedRead`], and [`SubmitError::Again`] if there is no
/// room for a copy that is required.
#[inline]
pub(crate) const fn plan(request: PolicyInput) -> Result<Plan, SubmitError> {
    let PolicyInput { kind, size, inject, level, visibility, known, room, record, native } =
        request;
    if inject {
        // A fetching atomic with operands may be injected: the flag concerns only the operands
        // (fi_atomic(3)).
        if matches!(kind, OpClass::Read) {
            return Err(SubmitError::InjectedRead);
        }
        if !matches!(size, OpSize::Short) {
            return Err(SubmitError::InjectTooLong);
        }
    }
    if !room && (inject || kind.is_atomic()) {
        return Err(SubmitError::Again);
    }
    let protocol = match (size, level) {
        _ if !native => Protocol::Eager,
        (OpSize::Long, _) => Protocol::Rendezvous,
        (_, Level::Match) => Protocol::Confirmed,
        _ => Protocol::Eager,
    };
    let message = matches!(kind, OpClass::Message);
    // The completion concerns only the buffer.
    let buffer_only = matches!(level, Level::Default | Level::Inject)
        && matches!(visibility, Visibility::Entry)
        && !matches!(size, OpSize::Long)
        && room
        && message;
    let complete = match (buffer_only, level) {
        (true, Level::Inject) => CompletionTime::Call,
        (true, _) if known => CompletionTime::Call,
        (true, _) => CompletionTime::Contact,
        (false, _) => CompletionTime::End,
    };
    let copy = match complete {
        CompletionTime::Call => Copy::Call,
        _ if inject || kind.is_atomic() => Copy::Call,
        CompletionTime::Contact => Copy::Contact,
        CompletionTime::End => Copy::Never,
    };
    let at_once = record
        && matches!(protocol, Protocol::Eager)
        && !matches!(complete, CompletionTime::Contact)
        && !matches!(visibility, Visibility::Kept);
    Ok(Plan { protocol, copy, complete, at_once })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [OpClass; 5] =
        [OpClass::Message, OpClass::Write, OpClass::Read, OpClass::Update, OpClass::Fetch];
    const SIZES: [OpSize; 3] = [OpSize::Short, OpSize::Eager, OpSize::Long];
    const LEVELS: [Level; 5] =
        [Level::Default, Level::Inject, Level::Transmit, Level::Delivery, Level::Match];
    const VISIBILITIES: [Visibility; 4] =
        [Visibility::Entry, Visibility::ErrorEntry, Visibility::CountOnly, Visibility::Kept];

    fn all() -> impl Iterator<Item = PolicyInput> {
        KINDS.into_iter().flat_map(|kind| {
            SIZES.into_iter().flat_map(move |size| {
                LEVELS.into_iter().flat_map(move |level| {
                    VISIBILITIES.into_iter().flat_map(move |visibility| {
                        (0..32).map(move |bits| PolicyInput {
                            kind,
                            size,
                            inject: bits & 1 != 0,
                            level,
                            visibility,
                            known: bits & 2 != 0,
                            room: bits & 4 != 0,
                            native: bits & 8 == 0,
                            record: bits & 16 != 0,
                        })
                    })
                })
            })
        })
    }

    #[test]
    fn every_plan_satisfies_the_invariants() {
        let mut refused = 0;
        for request in all() {
            let Ok(plan) = plan(request) else {
                assert!(request.inject || request.kind.is_atomic(), "{request:?}");
                let read = request.kind == OpClass::Read;
                let never = request.inject && (read || request.size != OpSize::Short);
                assert!(never || !request.room, "{request:?}");
                refused += 1;
                continue;
            };
            // An injected operation returns its buffer at the call.
            if request.inject {
                assert_eq!(plan.copy, Copy::Call, "{request:?}");
            }
            // A completion returns the buffer as well.
            match plan.complete {
                CompletionTime::Call => assert_eq!(plan.copy, Copy::Call, "{request:?}"),
                CompletionTime::Contact => assert_ne!(plan.copy, Copy::Never, "{request:?}"),
                CompletionTime::End => assert_ne!(plan.copy, Copy::Contact, "{request:?}"),
            }
            // Levels that concern the peer are not reached at the call, and operations without an
            // entry complete at the end.
            let peer = matches!(request.level, Level::Transmit | Level::Delivery | Level::Match);
            if peer || request.visibility != Visibility::Entry || request.kind != OpClass::Message {
                assert_eq!(plan.complete, CompletionTime::End, "{request:?}");
            }
            // Without an answer of the peer, only the buffer may be reported.
            if !request.known && plan.complete == CompletionTime::Call {
                assert_eq!(request.level, Level::Inject, "{request:?}");
            }
            if request.level == Level::Match && request.kind == OpClass::Message {
                assert_eq!(plan.protocol == Protocol::Eager, !request.native, "{request:?}");
            }
            if plan.copy != Copy::Never {
                assert!(request.room, "{request:?}");
                assert!(request.size != OpSize::Long || request.kind.is_atomic(), "{request:?}");
            }
            if request.kind.is_atomic() {
                assert_eq!(plan.copy, Copy::Call, "{request:?}");
            }
            // Whether a record has room changes nothing else, and a record cannot wait.
            assert!(!plan.at_once || request.record && plan.protocol == Protocol::Eager);
            let queued = super::plan(PolicyInput { record: false, ..request });
            assert_eq!(queued, Ok(Plan { at_once: false, ..plan }), "{request:?}");
        }
        // Half of 5 x 3 x 5 x 4 requests to known and unknown peers, with room and without, are
        // injected. All of those are refused except short ones with room that are not reads. So are
        // atomics of both kinds without room that are not injected. Neither the wire nor a channel changes
        // anything about it.
        assert_eq!(refused, 4 * (4 * 300 - 4 * 2 * 20 + 2 * 2 * 60));
    }

    #[test]
    fn common_operations_get_the_documented_plan() {
        let base = PolicyInput {
            kind: OpClass::Message,
            size: OpSize::Short,
            inject: false,
            level: Level::Default,
            visibility: Visibility::Entry,
            known: true,
            room: true,
            record: false,
            native: true,
        };
        let of = |request| plan(request).map(|plan| (plan.copy, plan.complete));
        assert_eq!(of(base), Ok((Copy::Call, CompletionTime::Call)));
        let unknown = PolicyInput { known: false, ..base };
        assert_eq!(of(unknown), Ok((Copy::Contact, CompletionTime::Contact)));
        let injected = PolicyInput { inject: true, ..unknown };
        assert_eq!(of(injected), Ok((Copy::Call, CompletionTime::Contact)));
        let delivered = PolicyInput { inject: true, level: Level::Delivery, ..base };
        assert_eq!(of(delivered), Ok((Copy::Call, CompletionTime::End)));
        let counted = PolicyInput { inject: true, visibility: Visibility::CountOnly, ..base };
        assert_eq!(of(counted), Ok((Copy::Call, CompletionTime::End)));
        let write = PolicyInput { kind: OpClass::Write, inject: true, ..base };
        assert_eq!(of(write), Ok((Copy::Call, CompletionTime::End)));
        let middling = PolicyInput { size: OpSize::Eager, ..base };
        assert_eq!(of(middling), Ok((Copy::Call, CompletionTime::Call)));
        let crowded = PolicyInput { room: false, ..middling };
        assert_eq!(of(crowded), Ok((Copy::Never, CompletionTime::End)));
        let crowded = PolicyInput { inject: true, room: false, ..base };
        assert_eq!(of(crowded), Err(SubmitError::Again));
        let record =
            |request| plan(PolicyInput { record: true, ..request }).map(|plan| plan.at_once);
        let delivered = PolicyInput { level: Level::Delivery, ..base };
        let kept = PolicyInput { visibility: Visibility::Kept, ..base };
        let matched = PolicyInput { level: Level::Match, ..base };
        assert_eq!([base, delivered].map(record), [Ok(true); 2]);
        assert_eq!([unknown, kept, matched].map(record), [Ok(false); 3]);
        let long = PolicyInput { size: OpSize::Long, ..base };
        assert_eq!(of(long), Ok((Copy::Never, CompletionTime::End)));
    }
}
