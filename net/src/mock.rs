//! A port in memory for tests of the wrappers. It receives what it sends.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use crate::base::{Time, TrafficClass, Train};
use crate::{Burst, Counters, NetError, Port, RecvReport, RxMeta, SendReport};

pub(crate) struct Mock {
    pub(crate) addr: SocketAddr,
    pub(crate) queue: VecDeque<(RxMeta, Vec<u8>)>,
    /// Number of packets that the mock's `send` takes before it behaves like a full socket.
    pub(crate) room: usize,
}

impl Mock {
    pub(crate) fn new(addr: &str) -> Self {
        Self { addr: addr.parse().unwrap(), queue: VecDeque::new(), room: usize::MAX }
    }
}

/// Returns the packets that a port has received, at most ten.
pub(crate) fn received(port: &mut impl Port) -> Vec<Vec<u8>> {
    let mut got = vec![];
    port.recv_each(Time::ZERO, 10, &mut |_, bytes| got.push(bytes.to_vec()));
    got
}

impl Port for Mock {
    fn send(&mut self, _now: Time, burst: Burst<'_>) -> SendReport {
        let sent = burst.packets().len().min(self.room);
        self.room -= sent;
        let mut bytes = 0;
        for p in &burst.packets()[..sent] {
            let mut datagram = Vec::new();
            burst.copy(p, &mut datagram);
            assert_eq!(datagram.len(), p.len as usize, "a datagram says how long it is");
            bytes += datagram.len() as u64;
            let (dscp, ecn) = if p.class == TrafficClass::Data { (0, 2) } else { (46, 0) };
            let meta = RxMeta { src: self.addr, ecn, dscp, overflow: 0 };
            self.queue.push_back((meta, datagram));
        }
        SendReport { sent, failed: 0, trains: sent, bytes }
    }

    fn recv(
        &mut self,
        _now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        let mut report = RecvReport::default();
        for (meta, bytes) in self.queue.drain(..budget.min(self.queue.len())) {
            sink(&meta, Train::single(&bytes));
            report.packets += 1;
            report.bytes += bytes.len() as u64;
        }
        report.empty = report.packets < budget;
        report
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    fn source_port(&self, path: u16) -> u16 {
        self.addr.port() + path
    }

    fn fds(&self, _into: &mut Vec<RawFd>) {}

    fn take_errors(&mut self, _into: &mut Vec<NetError>) {}

    fn path_mtu(&mut self, _dst: SocketAddr) -> io::Result<u32> {
        Ok(1500)
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
