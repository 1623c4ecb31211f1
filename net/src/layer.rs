//! The mechanism by which fault injection, captures, checksums and encryption wrap a [`Port`].
//!
//! A layer sees the packets that pass in either direction. Everything else that a port can do (its
//! address, its descriptors, its ICMP errors, ..) is the wrapped port's, and [`LayeredPort`] forwards it.
//! The types of the layer and of the port are known at compile time, so a layer costs no indirect call.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use squall_seal::KeyRing;

use crate::base::{Time, Train};
use crate::{Burst, Counters, NetError, Port, RailReport, RecvReport, RxMeta, SendReport};

/// The behaviour that a wrapper adds to a port. Each default method adds nothing.
pub trait PortLayer {
    /// Sends packets through the wrapped port `inner`; see [`Port::send`].
    fn send<P: Port>(&mut self, inner: &mut P, now: Time, burst: Burst<'_>) -> SendReport {
        inner.send(now, burst)
    }

    /// Receives packets through the wrapped port `inner`; see [`Port::recv`].
    fn recv<P: Port>(
        &mut self,
        inner: &mut P,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        inner.recv(now, budget, sink)
    }

    /// Returns the time at which the layer itself will have a packet to hand out; by default there is none.
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Returns the keys with which the layer encrypts, if it does.
    fn keys(&mut self) -> Option<&mut KeyRing> {
        None
    }

    /// Returns the layer's own counts, which [`LayeredPort`] adds to those of the wrapped port.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// A packet port with a layer around it that changes or observes the packets.
pub struct LayeredPort<P, L> {
    pub(crate) inner: P,
    pub(crate) layer: L,
}

impl<P: Port, L: PortLayer> Port for LayeredPort<P, L> {
    fn send(&mut self, now: Time, burst: Burst<'_>) -> SendReport {
        self.layer.send(&mut self.inner, now, burst)
    }

    fn recv(
        &mut self,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        self.layer.recv(&mut self.inner, now, budget, sink)
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn source_port(&self, path: u16) -> u16 {
        self.inner.source_port(path)
    }

    fn open_source_port(&mut self, path: u16) -> u16 {
        self.inner.open_source_port(path)
    }

    fn keys(&mut self) -> Option<&mut KeyRing> {
        self.layer.keys().or_else(|| self.inner.keys())
    }

    fn fds(&self, into: &mut Vec<RawFd>) {
        self.inner.fds(into);
    }

    fn take_errors(&mut self, into: &mut Vec<NetError>) {
        self.inner.take_errors(into);
    }

    fn path_mtu(&mut self, dst: SocketAddr) -> io::Result<u32> {
        self.inner.path_mtu(dst)
    }

    fn next_deadline(&self) -> Option<Time> {
        [self.inner.next_deadline(), self.layer.next_deadline()].into_iter().flatten().min()
    }

    fn rails(&self) -> Vec<RailReport> {
        self.inner.rails()
    }

    fn counters(&self) -> Counters {
        let mut counters = self.inner.counters();
        counters.merge(&self.layer.counters());
        counters
    }
}
