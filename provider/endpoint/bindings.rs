//! Bindings of an endpoint: its address vector, queues and counters.

use core::ffi::c_int;
use std::sync::{Arc, Weak};

use squall_engine::{OpKind, Visibility};

use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, class};
use crate::av::Av;
use crate::endpoint::{Endpoint, Inner};
use crate::host::limits;
use crate::objects::{self, ObjectRef};
use crate::optional::peer_provider::Srx;
use crate::queues::cntr::Cntr;
use crate::queues::cq::Cq;
use crate::queues::eq::{Eq, Failure};

/// The completion queue of an endpoint for one direction, transmit or receive.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) cq: Option<ObjectRef<Cq>>,
    /// Only operations that ask for a completion entry get one (FI_SELECTIVE_COMPLETION).
    pub(crate) selective: bool,
}

/// The objects that an endpoint is bound to: address vector, queues and counters.
#[derive(Default)]
pub(crate) struct Bindings {
    pub(crate) av: Option<ObjectRef<Av>>,
    pub(crate) tx: Queue,
    pub(crate) rx: Queue,
    /// A shared receive context whose receives the endpoint uses instead of its own (peer provider).
    pub(crate) srx: Option<ObjectRef<Srx>>,
    eq: Option<ObjectRef<Eq>>,
    send: Option<ObjectRef<Cntr>>,
    recv: Option<ObjectRef<Cntr>>,
    read: Option<ObjectRef<Cntr>>,
    write: Option<ObjectRef<Cntr>>,
    remote_read: Option<ObjectRef<Cntr>>,
    remote_write: Option<ObjectRef<Cntr>>,
    /// Counters of the domain whose readers drive this endpoint ([`Endpoint::attach_counter`]).
    followers: Vec<Weak<Cntr>>,
}

impl Queue {
    /// Returns which completion entry the end of an operation with these flags produces.
    #[inline]
    pub(crate) fn visibility(&self, op_flags: u64) -> Visibility {
        if self.cq.is_some() && (!self.selective || op_flags & flags::COMPLETION != 0) {
            Visibility::Entry
        } else {
            Visibility::ErrorEntry
        }
    }
}

impl Bindings {
    /// Returns whether a queue or counter is bound that could show the end of operations.
    pub(crate) fn has_observer(&self) -> bool {
        self.tx.cq.is_some() || self.rx.cq.is_some() || self.counters().next().is_some()
    }

    /// Returns whether a counter is bound that counts accesses of peers.
    pub(crate) const fn counts_accesses(&self) -> bool {
        self.remote_read.is_some() || self.remote_write.is_some()
    }

    /// Returns whether a counter is bound that counts operations of this kind.
    pub(crate) fn counts(&self, kind: OpKind) -> bool {
        self.counter(kind).is_some()
    }

    /// Counts an operation that ended in the counter that is bound for its kind.
    #[inline]
    pub(crate) fn count(&self, kind: OpKind, success: bool) {
        if let Some(counter) = self.counter(kind) {
            counter.count(success);
        }
    }

    /// Returns whether an event queue is bound.
    pub(crate) fn has_events(&self) -> bool {
        self.eq.is_some()
    }

    /// Makes readers of the event queue drive the endpoint while it joins a group.
    pub(crate) fn await_join(&self, ep: Weak<Endpoint>) {
        if let Some(eq) = &self.eq {
            eq.await_join(ep);
        }
    }

    /// Reports to the event queue that the join with this context has ended, by an error if there is one.
    pub(crate) fn report_join(&self, fid: usize, context: usize, error: Option<Errno>) {
        let Some(eq) = &self.eq else { return };
        let fid = core::ptr::with_exposed_provenance_mut(fid);
        let context = core::ptr::with_exposed_provenance_mut(context);
        match error {
            None => eq.push_entry(ffi::FI_JOIN_COMPLETE, fid, context, 0),
            Some(errno) => eq.push_error(Failure { fid, context, data: 0, errno }),
        }
    }

    /// Returns the counter that is bound for operations of this kind.
    #[inline]
    fn counter(&self, kind: OpKind) -> Option<&Cntr> {
        let cntr = match kind {
            OpKind::Send => &self.send,
            OpKind::Recv => &self.recv,
            OpKind::Read | OpKind::Fetch => &self.read,
            OpKind::Write | OpKind::Update => &self.write,
            OpKind::RemoteRead | OpKind::RemoteFetch => &self.remote_read,
            OpKind::RemoteWrite | OpKind::RemoteUpdate => &self.remote_write,
            OpKind::Peek => &None,
        };
        cntr.as_ref().map(|c| &***c)
    }

    /// Returns the completion queue that is bound for operations of this kind.
    #[inline]
    pub(crate) fn queue(&self, kind: OpKind) -> Option<&Cq> {
        let queue = match kind {
            OpKind::Send | OpKind::Read | OpKind::Write | OpKind::Update | OpKind::Fetch => {
                &self.tx
            }
            OpKind::Recv
            | OpKind::Peek
            | OpKind::RemoteRead
            | OpKind::RemoteWrite
            | OpKind::RemoteUpdate
            | OpKind::RemoteFetch => &self.rx,
        };
        queue.cq.as_ref().map(|c| &***c)
    }

    /// Adds a counter of the domain to those that this endpoint wakes.
    pub(crate) fn add_follower(&mut self, cntr: &Arc<Cntr>) {
        self.followers.retain(|known| known.strong_count() > 0);
        let is = |known: &Weak<Cntr>| core::ptr::eq(known.as_ptr(), Arc::as_ptr(cntr));
        if !self.followers.iter().any(is) {
            self.followers.push(Arc::downgrade(cntr));
        }
    }

    /// Wakes the threads that sleep on a queue or counter: another thread has read the sockets, or an operation has
    /// ended whose completion they see only by their own progress.
    pub(crate) fn wake(&self) {
        for cq in [&self.tx.cq, &self.rx.cq].into_iter().flatten() {
            cq.wake();
        }
        for cntr in self.counters() {
            cntr.wake();
        }
        for cntr in self.followers.iter().filter_map(Weak::upgrade) {
            cntr.wake();
        }
    }

    fn counters(&self) -> impl Iterator<Item = &ObjectRef<Cntr>> {
        let own = [&self.send, &self.recv, &self.read, &self.write];
        own.into_iter().chain([&self.remote_read, &self.remote_write]).flatten()
    }

    /// Attaches the endpoint to the queues and counters, whose readers drive it from now on.
    pub(crate) fn attach(&self, ep: &Arc<Endpoint>, sockets: &[i32]) -> Result<()> {
        for cq in [&self.tx.cq, &self.rx.cq].into_iter().flatten() {
            cq.attach(ep, sockets)?;
        }
        self.counters().try_for_each(|cntr| cntr.attach(ep, sockets))
    }

    /// Detaches the endpoint from the queues and counters, whose readers no longer drive it.
    pub(crate) fn detach(&self, ep: &Endpoint, sockets: &[i32]) {
        for cq in [&self.tx.cq, &self.rx.cq].into_iter().flatten() {
            cq.detach(ep, sockets);
        }
        for cntr in self.counters() {
            cntr.detach(ep, sockets);
        }
    }
}

boundary::exports! {
    /// Binds an object to an endpoint: `fi_ep_bind`.
    pub(crate) status bind(fid: *mut ffi::fid, other: *mut ffi::fid, flags: u64) -> c_int => {
        let ep = objects::share::<Endpoint, _>(fid)?;
        let object = match other.as_ref().ok_or(Errno::INVAL)?.fclass {
            class::CQ => Bindable::Cq(objects::share(other)?),
            class::CNTR => Bindable::Cntr(objects::share(other)?),
            class::AV => Bindable::Av(objects::share(other)?),
            class::EQ => Bindable::Eq(objects::share(other)?),
            class::SRX_CTX => Bindable::Srx(objects::share(other)?),
            _ => return Err(Errno::NOSYS),
        };
        ep.bind(object, flags)
    };
}

/// An object that can be bound to an endpoint: address vector, queue, counter or receive context.
enum Bindable {
    Cq(Arc<Cq>),
    Cntr(Arc<Cntr>),
    Av(Arc<Av>),
    Eq(Arc<Eq>),
    Srx(Arc<Srx>),
}

impl Endpoint {
    fn bind(self: &Arc<Self>, object: Bindable, flags: u64) -> Result<()> {
        let mut inner = self.lock()?;
        let Inner { bindings, core } = &mut *inner;
        match object {
            Bindable::Cq(cq) => queue(bindings, &cq, flags)?,
            Bindable::Cntr(cntr) => counter(bindings, &cntr, flags)?,
            Bindable::Av(av) => {
                let same = bindings.av.as_ref().is_some_and(|bound| core::ptr::eq(&***bound, &*av));
                if same {
                    return Ok(());
                }
                if core.is_some() {
                    // What the indices of the first one mean is cached.
                    log::warn!(
                        "address vector refused: the endpoint is enabled; bind it before fi_enable"
                    );
                    return Err(Errno::OPBADSTATE);
                }
                bindings.av = Some(ObjectRef::new(av));
            }
            Bindable::Eq(eq) => bindings.eq = Some(ObjectRef::new(eq)),
            Bindable::Srx(srx) => {
                if !srx.belongs_to(&self.domain) || bindings.srx.is_some() {
                    return Err(Errno::INVAL);
                }
                if core.is_some() {
                    log::warn!(
                        "shared receive context refused: the endpoint is enabled; bind it before fi_enable"
                    );
                    return Err(Errno::OPBADSTATE);
                }
                bindings.srx = Some(ObjectRef::new(srx));
            }
        }
        // Binding queues and counters after fi_enable takes effect at once (Sandia OpenSHMEM relies on it).
        if let Some(core) = core {
            bindings.attach(self, &core.sockets())?;
            if bindings.counts_accesses() {
                core.engine.report_accesses();
            }
        }
        Ok(())
    }
}

fn queue(bindings: &mut Bindings, cq: &Arc<Cq>, flags: u64) -> Result<()> {
    let known = flags::TRANSMIT | flags::RECV | flags::SELECTIVE_COMPLETION;
    if flags & !known != 0 || flags & (flags::TRANSMIT | flags::RECV) == 0 {
        return Err(Errno::BADFLAGS);
    }
    let selective = flags & flags::SELECTIVE_COMPLETION != 0;
    let both = [(flags::TRANSMIT, &mut bindings.tx), (flags::RECV, &mut bindings.rx)];
    for (bit, queue) in both {
        if flags & bit != 0 {
            if queue.cq.is_some() {
                return Err(Errno::INVAL);
            }
            *queue = Queue { cq: Some(ObjectRef::new(Arc::clone(cq))), selective };
        }
    }
    Ok(())
}

fn counter(bindings: &mut Bindings, cntr: &Arc<Cntr>, flags: u64) -> Result<()> {
    let known = flags::SEND | flags::RECV | limits::ONE_SIDED;
    if flags & !known != 0 || flags & known == 0 {
        return Err(Errno::BADFLAGS);
    }
    let each = [
        (flags::SEND, &mut bindings.send),
        (flags::RECV, &mut bindings.recv),
        (flags::READ, &mut bindings.read),
        (flags::WRITE, &mut bindings.write),
        (flags::REMOTE_READ, &mut bindings.remote_read),
        (flags::REMOTE_WRITE, &mut bindings.remote_write),
    ];
    for (bit, slot) in each {
        if flags & bit != 0 {
            *slot = Some(ObjectRef::new(Arc::clone(cntr)));
        }
    }
    Ok(())
}
