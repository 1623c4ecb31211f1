//! The one place that decides how an outbound operation is carried out: whether its bytes are copied or
//! lent, which protocol moves them, and when it is complete towards the user.
//!
//! | Matter | Rule |
//! |---|---|
//! | Copied | An injected operation, at the call. A message that is not long, at whose completion level nothing but the buffer matters: at the call when the peer has answered before, else when it answers first. An atomic's operands, which are few, always at the call. All else is lent, and such a message, too, where there is no room for a copy; an injected operation, or an atomic, is refused for now. |
//! | Complete at the call | Copied messages that leave an entry, asked for no level above [`Level::Inject`], and whose peer has answered before (or [`Level::Inject`] was asked for: it speaks of the buffer alone). |
//! | Complete at first contact | The same to a peer that has not answered yet, so that whoever sends to nobody learns it. |
//! | Complete at the end | Everything else: when the peer's message layer has all of it. For a message of [`Level::Match`] that is when a receive has taken it; for writes, also injected ones, when they are in place; for reads, and atomics that bring values back, when the data is here; for other atomics when they are done. |
//! | No entry | Operations that only count are complete at the end, whatever their level: counters are what remote completion is judged by. |
//!
//! The transmit level is served by the delivery level: our acknowledgement means that the peer's message
//! layer has the bytes, in the posted buffer or held for one, which is what FI_DELIVERY_COMPLETE promises
//! (fi_endpoint(3)).

use crate::api::{Level, Refused, Visibility};

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpClass {
    Message,
    Write,
    Read,
    /// An atomic that brings nothing back.
    Update,
    /// An atomic that brings values back.
    Fetch,
}

impl OpClass {
    const fn is_atomic(self) -> bool {
        matches!(self, Self::Update | Self::Fetch)
    }
}

/// The size class of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpSize {
    /// At most what may be injected.
    Short,
    /// At most the rendezvous threshold.
    Eager,
    /// Beyond that.
    Long,
}

/// The facts about an operation from which the policy decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PolicyInput {
    pub(crate) kind: OpClass,
    pub(crate) size: OpSize,
    pub(crate) inject: bool,
    pub(crate) level: Level,
    pub(crate) visibility: Visibility,
    /// The peer has answered before.
    pub(crate) known: bool,
    /// It is not too long for a copy, and there is room for one.
    pub(crate) room: bool,
}

/// How the bytes of a message travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// All follow at once.
    Eager,
    /// The same, and the receiver says when a receive has taken it.
    Confirmed,
    /// A header; the receiver reads the bytes.
    Rendezvous,
}

/// When the bytes are copied, after which the buffer is not looked at any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copy {
    /// During the call.
    Call,
    /// When the peer has answered anything.
    Contact,
    Never,
}

/// The moment at which the user is notified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CompletionTime {
    /// When the call returns.
    Call,
    /// When the peer has answered anything, or at the end.
    Contact,
    /// At the operation's end.
    End,
}

/// How an operation is carried out. `protocol` matters for messages alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) protocol: Protocol,
    pub(crate) copy: Copy,
    pub(crate) complete: CompletionTime,
}

/// Decides.
///
/// # Errors
/// [`Refused::InjectTooLong`], [`Refused::InjectedRead`], and [`Refused::Again`] where there is no room for what is
/// injected.
#[inline]
pub(crate) const fn plan(request: PolicyInput) -> Result<Plan, Refused> {
    let PolicyInput { kind, size, inject, level, visibility, known, room } = request;
    if inject {
        // What brings values back may be injected where it takes any along: that is about those (fi_atomic(3)).
        if matches!(kind, OpClass::Read) {
            return Err(Refused::InjectedRead);
        }
        if !matches!(size, OpSize::Short) {
            return Err(Refused::InjectTooLong);
        }
    }
    if !room && (inject || kind.is_atomic()) {
        return Err(Refused::Again);
    }
    let protocol = match (size, level) {
        (OpSize::Long, _) => Protocol::Rendezvous,
        (_, Level::Match) => Protocol::Confirmed,
        _ => Protocol::Eager,
    };
    let message = matches!(kind, OpClass::Message);
    // Nothing but the buffer matters to whoever waits for the completion.
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
    Ok(Plan { protocol, copy, complete })
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
                        (0..8).map(move |bits| PolicyInput {
                            kind,
                            size,
                            inject: bits & 1 != 0,
                            level,
                            visibility,
                            known: bits & 2 != 0,
                            room: bits & 4 != 0,
                        })
                    })
                })
            })
        })
    }

    #[test]
    fn what_every_plan_must_keep() {
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
            // The call gives the buffer back.
            if request.inject {
                assert_eq!(plan.copy, Copy::Call, "{request:?}");
            }
            // A completion gives it back as well.
            match plan.complete {
                CompletionTime::Call => assert_eq!(plan.copy, Copy::Call, "{request:?}"),
                CompletionTime::Contact => assert_ne!(plan.copy, Copy::Never, "{request:?}"),
                CompletionTime::End => assert_ne!(plan.copy, Copy::Contact, "{request:?}"),
            }
            // A level that speaks of the peer is not reached here, nor is one of which nobody hears.
            let peer = matches!(request.level, Level::Transmit | Level::Delivery | Level::Match);
            if peer || request.visibility != Visibility::Entry || request.kind != OpClass::Message {
                assert_eq!(plan.complete, CompletionTime::End, "{request:?}");
            }
            // Success is not claimed about somebody of whom nothing is known, but about the buffer.
            if !request.known && plan.complete == CompletionTime::Call {
                assert_eq!(request.level, Level::Inject, "{request:?}");
            }
            if request.level == Level::Match && request.kind == OpClass::Message {
                assert_ne!(plan.protocol, Protocol::Eager, "{request:?}");
            }
            if plan.copy != Copy::Never {
                assert!(request.room, "{request:?}");
                assert!(request.size != OpSize::Long || request.kind.is_atomic(), "{request:?}");
            }
            if request.kind.is_atomic() {
                assert_eq!(plan.copy, Copy::Call, "{request:?}");
            }
        }
        // Half of 5 x 3 x 5 x 4 requests to known and unknown peers, with room and without, are injected; all
        // but the short ones of them with room, reads apart, are refused. So are atomics of both kinds without room that
        // are not injected.
        assert_eq!(refused, 4 * 300 - 4 * 2 * 20 + 2 * 2 * 60);
    }

    #[test]
    fn the_rows_users_rely_on() {
        let base = PolicyInput {
            kind: OpClass::Message,
            size: OpSize::Short,
            inject: false,
            level: Level::Default,
            visibility: Visibility::Entry,
            known: true,
            room: true,
        };
        let of = |request| plan(request).map(|plan| (plan.copy, plan.complete));
        assert_eq!(of(base), Ok((Copy::Call, CompletionTime::Call)));
        let stranger = PolicyInput { known: false, ..base };
        assert_eq!(of(stranger), Ok((Copy::Contact, CompletionTime::Contact)));
        let injected = PolicyInput { inject: true, ..stranger };
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
        assert_eq!(of(crowded), Err(Refused::Again));
        let long = PolicyInput { size: OpSize::Long, ..base };
        assert_eq!(of(long), Ok((Copy::Never, CompletionTime::End)));
    }
}
