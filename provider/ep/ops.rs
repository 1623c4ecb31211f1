//! What the data calls have in common.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use squall_engine::base::Time;
use squall_engine::{Buf, Class, Level, Notify, Peek, PeerId, RecvOp, Refused, Seg, SendOp};

use super::machine::Core;
use super::{Endpoint, Inner};
use crate::clock;
use crate::errno::{Errno, Result};
use crate::flags::{self, ADDR_UNSPEC};
use crate::info::{self, limits};
use crate::mr::UserMemory;

/// A send of any kind.
pub(super) struct Send<'a> {
    pub(super) iov: &'a [libc::iovec],
    pub(super) to: u64,
    pub(super) class: Class,
    pub(super) tag: u64,
    pub(super) data: Option<u64>,
    pub(super) context: *mut c_void,
    /// Operation flags: given with the call, or the endpoint's.
    pub(super) flags: u64,
}

/// A receive of any kind.
pub(super) struct Recv<'a> {
    pub(super) iov: &'a [libc::iovec],
    pub(super) from: u64,
    pub(super) class: Class,
    pub(super) tag: u64,
    pub(super) ignore: u64,
    pub(super) context: *mut c_void,
    pub(super) flags: u64,
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Again => Self::AGAIN,
            Refused::TooLong => Self::MSGSIZE,
            Refused::InjectTooLong | Refused::LengthMismatch | Refused::NotClaimed => Self::INVAL,
        }
    }
}

/// A context as the engine carries it.
#[inline]
pub(super) fn context_of(context: *mut c_void) -> u64 {
    context.expose_provenance() as u64
}

/// An iovec piece as the engine names it.
#[inline]
pub(super) fn seg(iov: &libc::iovec) -> Seg {
    Seg { base: iov.iov_base.expose_provenance() as u64, len: iov.iov_len as u64 }
}

/// A buffer as the engine names it; one piece needs no allocation.
///
/// # Errors
/// `FI_EINVAL` for more pieces than the limit we report.
#[inline]
pub(super) fn buffer(iov: &[libc::iovec]) -> Result<Buf> {
    match iov {
        [] => Ok(Buf::Empty),
        [one] => Ok(Buf::One(seg(one))),
        many if many.len() <= limits::IOV_LIMIT => {
            let mut segs = [Seg::default(); limits::IOV_LIMIT];
            for (to, from) in segs.iter_mut().zip(many) {
                *to = seg(from);
            }
            Ok(Buf::from_segs(&segs[..many.len()]))
        }
        _ => Err(Errno::INVAL),
    }
}

/// A short buffer in one piece, for injection.
pub(super) struct Gathered {
    bytes: [u8; 1024],
    len: usize,
}

impl Gathered {
    /// Copies the pieces.
    ///
    /// # Safety
    /// Every piece is readable.
    ///
    /// # Errors
    /// `FI_EINVAL` when it is longer than may be injected.
    pub(super) unsafe fn new(iov: &[libc::iovec]) -> Result<Self> {
        let mut bytes = [0; 1024];
        let mut len = 0usize;
        for piece in iov {
            let end = len.checked_add(piece.iov_len).filter(|end| *end <= bytes.len());
            let end = end.ok_or(Errno::INVAL)?;
            if piece.iov_len > 0 {
                // SAFETY: the caller's promise, and the bounds just checked.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        piece.iov_base.cast::<u8>(),
                        bytes.as_mut_ptr().add(len),
                        piece.iov_len,
                    );
                }
            }
            len = end;
        }
        Ok(Self { bytes, len })
    }

    /// The bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The completion level that the flags ask for. Our transmit completion means that the peer's message
/// layer has the data in its hands, in the posted buffer or held for one, which is what
/// FI_DELIVERY_COMPLETE promises (fi_endpoint(3)); only FI_MATCH_COMPLETE waits for the match.
#[inline]
fn level(flags: u64) -> Level {
    if flags & flags::MATCH_COMPLETE != 0 { Level::Delivery } else { Level::Transmit }
}

/// Completion levels that a copy does not reach: fi_endpoint(3).
const WAITS_FOR_PEER: u64 =
    flags::TRANSMIT_COMPLETE | flags::DELIVERY_COMPLETE | flags::MATCH_COMPLETE;

/// What success leaves behind.
#[inline]
pub(super) fn notify(shows: bool) -> Notify {
    if shows { Notify::Entry } else { Notify::Count }
}

impl Inner {
    /// The peer behind a `fi_addr_t`.
    #[inline]
    pub(super) fn peer(&mut self, fi_addr: u64) -> Result<(&mut Core, PeerId)> {
        let core = self.core.as_mut().ok_or(Errno::OPBADSTATE)?;
        let av = self.bindings.av.as_ref().ok_or(Errno::NOAV)?;
        let peer = core.peers.peer(av, &mut core.engine, fi_addr)?;
        Ok((core, peer))
    }
}

impl Endpoint {
    /// The default flags of transmitting calls.
    #[inline]
    pub(super) fn tx_flags(&self) -> u64 {
        self.settings.tx_flags.load(Ordering::Relaxed)
    }

    /// The default flags of receiving calls.
    #[inline]
    pub(super) fn rx_flags(&self) -> u64 {
        self.settings.rx_flags.load(Ordering::Relaxed)
    }

    /// Sends a message.
    ///
    /// # Safety
    /// The buffer is readable until the completion, or now when injected.
    #[inline]
    pub(super) unsafe fn send(&self, send: &Send<'_>) -> Result<()> {
        if send.flags & flags::INJECT != 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.inject(send, true) };
        }
        let buf = buffer(send.iov)?;
        let len = buf.len();
        let mut inner = self.enter()?;
        let notify = notify(inner.bindings.tx.shows(send.flags));
        let (core, peer) = inner.peer(send.to)?;
        if len <= info::inject_size()
            && send.flags & WAITS_FOR_PEER == 0
            && core.engine.has_answered(peer)
        {
            // A short message to a peer that lives is copied and complete, as it is with a stream
            // socket; so nobody waits for an acknowledgement. One to a peer that has not answered yet
            // waits for that (`may_copy`), so that its sender learns when there is nobody.
            drop(inner);
            // SAFETY: the caller's promise.
            return unsafe { self.inject(send, true) };
        }
        let now = clock::now();
        let op = SendOp {
            peer,
            class: send.class,
            tag: send.tag,
            buf,
            data: send.data,
            context: context_of(send.context),
            notify,
            level: level(send.flags),
            may_copy: send.flags & WAITS_FOR_PEER == 0,
        };
        match core.engine.send(now, op) {
            Ok(()) => {
                self.posted(core, now, len, send.flags);
                Ok(())
            }
            Err(refused) => Err(self.refused(&mut inner, refused)),
        }
    }

    /// Sends a message whose bytes are copied now. With `visible`, as the flags and the queue say, it
    /// leaves an entry: at once, since the buffer is the application's again.
    ///
    /// # Safety
    /// The buffer is readable.
    pub(super) unsafe fn inject(&self, send: &Send<'_>, visible: bool) -> Result<()> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { Gathered::new(send.iov)? };
        let mut inner = self.enter()?;
        let shows = visible && inner.bindings.tx.shows(send.flags);
        let (core, peer) = inner.peer(send.to)?;
        let now = clock::now();
        let payload = bytes.as_slice();
        match core.engine.inject(now, peer, send.class, send.tag, payload, send.data) {
            Ok(()) => {
                self.posted(core, now, payload.len() as u64, send.flags);
                if shows {
                    let space = match send.class {
                        Class::Msg => flags::MSG,
                        Class::Tagged => flags::TAGGED,
                    };
                    inner.bindings.show(send.context, flags::SEND | space);
                }
                Ok(())
            }
            Err(refused) => Err(self.refused(&mut inner, refused)),
        }
    }

    /// Sends what was just posted, now or with what follows, and wakes a sleeping progress thread
    /// when it must look after it.
    #[inline]
    pub(super) fn posted(&self, core: &mut Core, now: Time, bytes: u64, op_flags: u64) {
        core.posted(now, bytes, op_flags & flags::MORE != 0);
        if let Some(progress) = self.domain.progress() {
            progress.timer(core.next_timeout());
        }
    }

    /// Makes progress before the application tries again.
    #[cold]
    pub(super) fn refused(&self, inner: &mut Inner, refused: Refused) -> Errno {
        if refused == Refused::Again {
            let Inner { bindings, core } = inner;
            if let Some(core) = core {
                core.turn(self, bindings);
            }
        }
        refused.into()
    }

    /// Posts a receive.
    #[inline]
    pub(super) fn recv(&self, recv: &Recv<'_>) -> Result<()> {
        let buf = buffer(recv.iov)?;
        let mut inner = self.enter()?;
        let notify = notify(inner.bindings.rx.shows(recv.flags));
        let source = if self.settings.directed && recv.from != ADDR_UNSPEC {
            Some(inner.peer(recv.from)?.1)
        } else {
            None
        };
        let multi = recv.flags & flags::MULTI_RECV != 0;
        let op = RecvOp {
            source,
            class: recv.class,
            tag: recv.tag,
            ignore: recv.ignore,
            buf,
            context: context_of(recv.context),
            notify,
            multi_recv: multi.then(|| self.settings.min_multi_recv.load(Ordering::Relaxed)),
        };
        let Inner { bindings, core } = &mut *inner;
        let core = core.as_mut().ok_or(Errno::OPBADSTATE)?;
        let now = clock::now();
        let special = flags::PEEK | flags::CLAIM | flags::DISCARD;
        if recv.flags & special != 0 {
            return self.look(core, bindings, now, op, recv.flags & special);
        }
        let regions = std::sync::Arc::clone(&core.regions);
        let before = core.engine.posted_receives();
        core.engine.recv(now, &mut UserMemory(&regions), op)?;
        if multi || core.engine.posted_receives() == before {
            // A message was waiting: it is there now, or its rendezvous wants a read sent.
            core.flush(now);
            core.complete(self, bindings);
        }
        Ok(())
    }

    /// FI_PEEK, FI_CLAIM, FI_DISCARD and their combinations.
    fn look(
        &self,
        core: &mut Core,
        bindings: &super::bind::Bindings,
        now: Time,
        op: RecvOp,
        what: u64,
    ) -> Result<()> {
        const PEEK_CLAIM: u64 = flags::PEEK | flags::CLAIM;
        const PEEK_DISCARD: u64 = flags::PEEK | flags::DISCARD;
        const CLAIM_DISCARD: u64 = flags::CLAIM | flags::DISCARD;
        let how = match what {
            flags::PEEK => Peek::Look,
            PEEK_CLAIM => Peek::Claim,
            PEEK_DISCARD => Peek::Discard,
            flags::CLAIM => {
                let regions = std::sync::Arc::clone(&core.regions);
                core.engine.recv_claimed(now, &mut UserMemory(&regions), op)?;
                core.flush(now);
                core.complete(self, bindings);
                return Ok(());
            }
            CLAIM_DISCARD => {
                core.engine.discard_claimed(now, &op)?;
                core.complete(self, bindings);
                return Ok(());
            }
            _ => return Err(Errno::BADFLAGS),
        };
        // A peek may be the only call that an application makes while it waits.
        core.turn(self, bindings);
        core.engine.peek(now, &op, how);
        core.complete_peek(self, bindings);
        Ok(())
    }
}
