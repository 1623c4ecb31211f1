//! Receives: the description of a receive call, and its execution.

use core::sync::atomic::Ordering;

use squall_engine::{Buf, Completion, MatchSpace, OpKind, RecvMode, RecvOp, Visibility};

use crate::abi::errno::{Errno, Result};
use crate::abi::flags::{self, ADDR_UNSPEC};
use crate::clock;
use crate::clock::hooks::{self, Peek};
use crate::endpoint::{Endpoint, Inner};
use crate::mr::UserMemory;
use crate::optional::triggered_work::operations::{self, Deferred};

/// The arguments of a call that posts a receive (`fi_recv`, `fi_trecv` and their variants).
#[derive(Clone)]
pub(crate) struct Receive {
    pub(crate) space: MatchSpace,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) buf: Buf,
    pub(crate) from: u64,
    /// The application's context of the receive, as a number.
    pub(crate) context: u64,
    /// Operation flags of the call; `None` means the endpoint's defaults.
    pub(crate) flags: Option<u64>,
}

impl Receive {
    /// Sets the operation flags of the call.
    #[inline]
    pub(crate) fn with_flags(self, flags: u64) -> Self {
        Self { flags: Some(flags), ..self }
    }

    /// Sets the operation flags of the call if it has none of its own. Flags that mean nothing with the call are left
    /// out, as with an endpoint's defaults.
    pub(crate) fn with_default_flags(self, flags: u64) -> Self {
        let known = known_flags(self.space) | flags::TRIGGER;
        Self { flags: self.flags.or(Some(flags & known)), ..self }
    }

    /// Removes FI_TRIGGER from the flags of the call; returns `None` if the call does not have it.
    pub(crate) fn without_trigger(self) -> Option<Self> {
        let given = self.flags.filter(|given| given & flags::TRIGGER != 0)?;
        Some(Self { flags: Some(given & !flags::TRIGGER), ..self })
    }

    /// Returns the application's context of the receive, as a number.
    pub(crate) fn context_value(&self) -> u64 {
        self.context
    }

    /// Returns the completion of a receive that never begins.
    pub(crate) const fn unstarted_completion(&self) -> Completion {
        operations::unstarted_completion(OpKind::Recv, self.space, self.tag, self.context)
    }
}

/// Flags that mean something with an untagged receive. FI_TRANSMIT_COMPLETE would allow completing before the data is
/// visible (fi_msg(3)); the provider does not use that.
const UNTAGGED: u64 =
    flags::COMPLETION | flags::MORE | flags::MULTI_RECV | flags::TRANSMIT_COMPLETE;
/// Flags that mean something with a tagged receive: FI_MULTI_RECV is for untagged ones only.
const TAGGED: u64 = flags::COMPLETION | flags::MORE | flags::PEEK | flags::CLAIM | flags::DISCARD;

const PEEK_CLAIM: u64 = flags::PEEK | flags::CLAIM;
const PEEK_DISCARD: u64 = flags::PEEK | flags::DISCARD;
const CLAIM_DISCARD: u64 = flags::CLAIM | flags::DISCARD;

/// Returns the flags that mean something with a receive of this matching space.
#[inline]
fn known_flags(space: MatchSpace) -> u64 {
    if space == MatchSpace::Tagged { TAGGED } else { UNTAGGED }
}

/// Returns the kind of receive (post, peek, claim and so on) that the flags ask for.
///
/// # Errors
/// `FI_EBADFLAGS` for flags, or combinations, that mean nothing here.
#[inline]
fn mode(space: MatchSpace, given: Option<u64>, defaults: u64, least: u64) -> Result<RecvMode> {
    let known = known_flags(space);
    let flags = match given {
        Some(flags) if flags & !known != 0 => return Err(Errno::BADFLAGS),
        Some(flags) => flags,
        None => defaults & known,
    };
    match flags & (PEEK_CLAIM | flags::DISCARD | flags::MULTI_RECV) {
        0 => Ok(RecvMode::Post),
        flags::MULTI_RECV => Ok(RecvMode::Multi { least }),
        flags::PEEK => Ok(RecvMode::Peek),
        PEEK_CLAIM => Ok(RecvMode::PeekClaim),
        PEEK_DISCARD => Ok(RecvMode::PeekDiscard),
        flags::CLAIM => Ok(RecvMode::Claim),
        CLAIM_DISCARD => Ok(RecvMode::ClaimDiscard),
        _ => Err(Errno::BADFLAGS),
    }
}

impl Endpoint {
    /// Returns the default operation flags of receive calls.
    #[inline]
    pub(crate) fn rx_flags(&self) -> u64 {
        self.settings.rx_flags.load(Ordering::Relaxed)
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The bytes that `call` names, whose addresses `buffer.rs` exposed, stay mapped and are the endpoint's
    /// to write until the completion, those of several messages until the completion that releases them.
    ///
    /// # Errors
    /// The errors in the call's manual page. The call has no effect then.
    #[inline]
    pub(crate) unsafe fn receive(&self, call: Receive) -> Result<()> {
        // SAFETY: `submit_receive` asks of the bytes that the call names what this function does.
        unsafe { self.submit_receive(call, None) }
    }

    /// Posts a receive as [`Self::receive`] does, for the application or for the deferred work `deferred`.
    ///
    /// # Safety
    /// As [`Self::receive`].
    ///
    /// # Errors
    /// As [`Self::receive`].
    #[inline]
    pub(crate) unsafe fn submit_receive(
        &self,
        call: Receive,
        deferred: Option<&Deferred>,
    ) -> Result<()> {
        let defaults = self.rx_flags();
        let least = self.settings.min_multi_recv.load(Ordering::Relaxed);
        let mode = match mode(call.space, call.flags, defaults, least) {
            Ok(mode) => mode,
            // SAFETY: the bytes that the call names are left to the endpoint until the receive ends, by this function's
            // contract; and the context of a call with FI_TRIGGER is a triggered one (fi_trigger(3)).
            Err(error) => return unsafe { operations::trigger_receive(self, call, error) },
        };
        let peeks = matches!(mode, RecvMode::Peek | RecvMode::PeekClaim | RecvMode::PeekDiscard);
        if peeks {
            let endpoint = core::ptr::from_ref(self).addr();
            let Receive { from, tag, ignore, .. } = call;
            hooks::begin_peek(Peek { endpoint, from, tag, ignore });
        }
        let mut inner = self.lock()?;
        let Inner { bindings, core } = &mut *inner;
        let core = core.as_mut().ok_or(Errno::OPBADSTATE)?;
        if bindings.srx.is_some() {
            log::info!(
                "receive refused: the endpoint is bound to a receive context of another provider; post receives there"
            );
            return Err(Errno::NOSYS);
        }
        let source = if self.settings.directed && call.from != ADDR_UNSPEC {
            let av = bindings.av.as_ref().ok_or(Errno::NOAV)?;
            Some(core.peers.peer(av, &mut core.engine, call.from)?)
        } else {
            None
        };
        let given = call.flags.unwrap_or(defaults);
        // The entry is the answer to a peek, whether or not the call asks for one (fi_tagged(3)).
        let asked = if peeks { given | flags::COMPLETION } else { given };
        let (context, visibility) = match deferred {
            None => (call.context, bindings.rx.visibility(asked)),
            Some(deferred) => {
                let shown = asked & flags::COMPLETION != 0 && bindings.rx.cq.is_some();
                (core.optional.triggered.insert(deferred, shown), Visibility::Kept)
            }
        };
        let mut buf = call.buf;
        let stand_in = if buf.is_host() {
            None
        } else {
            let staging = core.optional.staging.as_mut().ok_or(Errno::INVAL)?;
            staging.post(&mut buf, mode)?
        };
        let op = RecvOp {
            mode,
            source,
            space: call.space,
            tag: call.tag,
            ignore: call.ignore,
            buf,
            context,
            visibility,
        };
        if peeks {
            // A peek may be the only call that an application makes while it waits.
            core.run_turn(bindings);
        }
        let now = clock::now();
        match core.engine.receive(now, &mut UserMemory(&core.regions), op) {
            Ok(true) => return Ok(()),
            // A message was waiting: it is there now, or its rendezvous wants a read sent.
            Ok(false) => {
                hooks::charge_unexpected(|| {
                    let ended = core.engine.last_completion();
                    ended
                        .filter(|done| done.kind == OpKind::Recv && done.context == context)
                        .map(|done| done.len)
                });
                core.flush(now);
                core.deliver_completions(bindings);
            }
            Err(refused) => {
                if deferred.is_some() {
                    core.optional.triggered.forget(context);
                }
                if let Some(staging) = &mut core.optional.staging {
                    staging.cancel_post(stand_in);
                }
                return Err(refused.into());
            }
        }
        drop(inner);
        self.begin_work();
        Ok(())
    }

    /// Checks whether a receive call can become deferred work.
    ///
    /// # Errors
    /// The errors of its flags. Deferred work can be neither a peek nor a multi-receive buffer.
    pub(crate) fn check_receive(&self, call: &Receive) -> Result<()> {
        match mode(call.space, call.flags, self.rx_flags(), 0)? {
            RecvMode::Post => Ok(()),
            _ => Err(Errno::BADFLAGS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_and_combination_is_obeyed_or_refused() {
        let bits = [flags::PEEK, flags::CLAIM, flags::DISCARD, flags::MULTI_RECV];
        for set in 0..16u32 {
            let given = bits.iter().enumerate().filter(|(n, _)| set >> n & 1 != 0);
            let given = given.fold(0, |sum, (_, bit)| sum | bit);
            let tagged = mode(MatchSpace::Tagged, Some(given), 0, 7);
            let fine = [0, 1, 2, 3, 5, 6].contains(&set);
            assert_eq!(tagged.is_ok(), fine, "{set:04b}");
            let untagged = mode(MatchSpace::Untagged, Some(given), 0, 7);
            assert_eq!(untagged.is_ok(), [0, 8].contains(&set), "{set:04b}");
        }
        let early = Some(flags::TRANSMIT_COMPLETE);
        assert_eq!(mode(MatchSpace::Untagged, early, 0, 7), Ok(RecvMode::Post));
        assert_eq!(mode(MatchSpace::Tagged, early, 0, 7), Err(Errno::BADFLAGS));
        let multi = Ok(RecvMode::Multi { least: 7 });
        assert_eq!(mode(MatchSpace::Untagged, None, flags::MULTI_RECV, 7), multi);
        assert_eq!(mode(MatchSpace::Tagged, None, flags::MULTI_RECV, 7), Ok(RecvMode::Post));
        assert_eq!(
            mode(MatchSpace::Tagged, Some(flags::FENCE), 0, 7),
            Err(Errno::BADFLAGS),
            "what nobody knows"
        );
    }
}
