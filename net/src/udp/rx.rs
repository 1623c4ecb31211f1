//! Receiving. Messages are read into preallocated buffers. GRO trains and runs of single packets
//! are handed out as [`Train`]s.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::addr::SockAddr;
use super::cmsg::{CmsgBuffer, Decoder};
use super::errq::{self, ErrorQueue};
use crate::base::Train;
use crate::{Counters, RecvReport, RxMeta};

/// Size of a receive buffer in bytes: the longest UDP datagram or GRO train.
const BUFFER: usize = 1 << 16;

/// Distance between two buffers in bytes. If it were a power of two, the packets of a stream would
/// compete for few sets of the CPU caches.
const STRIDE: usize = BUFFER + 4096 + 256;

/// Largest length in bytes of a small message. Small messages are received several at a time. Long
/// trains are received one at a time into the same buffer, which then stays in the cache.
const SMALL: usize = 8 << 10;

/// Preallocated arrays for `recvmmsg`. The messages point into the other arrays from the beginning,
/// so none of them may move or grow.
pub(super) struct UdpReceiver {
    messages: Box<[libc::mmsghdr]>,
    pieces: Box<[libc::iovec]>,
    names: Box<[SockAddr]>,
    controls: Box<[CmsgBuffer]>,
    buffers: Box<[u8]>,
    /// Last value that was read of the socket's counter of dropped datagrams.
    overflow: u32,
    /// The last call ended before the socket was empty, so more packets are probably waiting.
    streaming: bool,
}

// SAFETY: the fields that are not Send by themselves are `messages` and `pieces`, for the raw pointers
// inside. Those point into the other arrays of the same value, which are on the heap and stay where they are
// when it moves; the kernel alone follows them, in `fetch`, which has `&mut self`.
unsafe impl Send for UdpReceiver {}

impl UdpReceiver {
    pub(super) fn new(batch: usize) -> Self {
        let batch = batch.clamp(1, 64);
        let mut rx = Self {
            // SAFETY: a `mmsghdr` is integers and pointers, for which zero is a value.
            messages: vec![unsafe { mem::zeroed() }; batch].into(),
            pieces: vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; batch].into(),
            names: vec![SockAddr::unspecified(); batch].into(),
            controls: vec![CmsgBuffer::new(); batch].into(),
            // The kernel provides zeroed pages when a buffer is first touched.
            buffers: vec![0; batch * STRIDE].into(),
            overflow: 0,
            streaming: false,
        };
        // All pointers into an array derive from one pointer, because creating another reference to
        // the array would invalidate them.
        let buffers: *mut u8 = rx.buffers.as_mut_ptr();
        let (pieces, names, controls) =
            (rx.pieces.as_mut_ptr(), rx.names.as_mut_ptr(), rx.controls.as_mut_ptr());
        for (n, message) in rx.messages.iter_mut().enumerate() {
            let header = &mut message.msg_hdr;
            // SAFETY: each array has `batch` elements, the last one `STRIDE` bytes for each, and `n` is below
            // `batch`. The piece is written through a pointer to its array, to which no reference lives.
            unsafe {
                let base = buffers.add(n * STRIDE).cast();
                pieces.add(n).write(libc::iovec { iov_base: base, iov_len: BUFFER });
                header.msg_name = names.add(n).cast();
                header.msg_iov = pieces.add(n);
                header.msg_control = controls.add(n).cast();
            }
            header.msg_iovlen = 1;
        }
        rx
    }

    /// Receives packets; see [`Port::recv`](crate::Port::recv).
    pub(super) fn recv(
        &mut self,
        socket: BorrowedFd<'_>,
        budget: usize,
        counters: &mut Counters,
        errors: &mut ErrorQueue,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        let mut report = RecvReport::default();
        // A caller that waits for latency usually has a single message and wants it now, not after
        // another system call that finds nothing. So one message is read at first. More are read if
        // the previous call left some behind.
        let more = self.streaming;
        let mut small = false;
        while report.packets < budget {
            let wanted = if small { self.messages.len().min(budget - report.packets) } else { 1 };
            let n = self.fetch(socket, wanted, counters, errors);
            if n == 0 {
                counters.rx_empty += 1;
                report.empty = true;
                break;
            }
            counters.rx_calls += 1;
            let longest = if n == 1 {
                if let Some(message) = self.parse_message(0, counters) {
                    self.deliver_group(&message, counters, &mut report, sink);
                }
                self.message_len(0)
            } else {
                self.deliver(n, counters, &mut report, sink)
            };
            // Fewer messages than asked for means that the socket was empty, so no further call is
            // needed to find out.
            if n < wanted {
                report.empty = true;
                break;
            }
            if !more {
                break;
            }
            // Long messages are usually GRO trains, which are better received one at a time.
            small = longest <= SMALL;
        }
        self.streaming = !report.empty;
        report
    }

    /// Receives up to `wanted` messages from the socket. Returns 0 if none waits.
    fn fetch(
        &mut self,
        socket: BorrowedFd<'_>,
        wanted: usize,
        counters: &mut Counters,
        errors: &mut ErrorQueue,
    ) -> usize {
        let fd = socket.as_raw_fd();
        for message in &mut self.messages[..wanted] {
            // These are the fields that the kernel overwrites.
            let header = &mut message.msg_hdr;
            header.msg_namelen = SockAddr::LEN;
            header.msg_controllen = CmsgBuffer::LEN as _;
            header.msg_flags = 0;
        }
        // The kernel reports an ICMP error once, with the next call. The error is read, and the
        // receive is repeated.
        for _ in 0..8 {
            let rc = if wanted == 1 {
                let message = &mut self.messages[0];
                // SAFETY: `new` filled the header in, and the loop above what calls change: its name, control buffer
                // and one piece, of `BUFFER` bytes, are elements of our own arrays, with their lengths, and `self`
                // is borrowed mutably until after the call, in which the kernel writes to them and to the header.
                let len =
                    unsafe { libc::recvmsg(fd, &raw mut message.msg_hdr, libc::MSG_DONTWAIT) };
                message.msg_len = u32::try_from(len).unwrap_or(0);
                if len >= 0 { 1 } else { -1 }
            } else {
                // SAFETY: `wanted` is at most the number of `messages` (the slice above would have panicked),
                // which `new` filled in, and the loop above what calls change: their names, control buffers and
                // pieces are elements of our own arrays, with their lengths, and `self` is borrowed mutably until
                // after the call, in which the kernel writes to them and to the headers. NULL stands for no
                // timeout.
                unsafe {
                    libc::recvmmsg(
                        fd,
                        self.messages.as_mut_ptr(),
                        wanted as libc::c_uint,
                        libc::MSG_DONTWAIT as _,
                        std::ptr::null_mut(),
                    )
                }
            };
            if let Ok(n) = usize::try_from(rc) {
                return n;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => return 0,
                Some(libc::EINTR) => {}
                Some(errno) if errq::may_be_stale(errno) => {
                    errors.drain(socket);
                }
                _ => {
                    counters.errors += 1;
                    return 0;
                }
            }
        }
        0
    }

    /// Hands the first `n` messages to the sink. Messages that look like the packets of one GRO
    /// train are handed out as one. Returns the length of the longest message.
    #[inline(never)]
    fn deliver(
        &mut self,
        n: usize,
        counters: &mut Counters,
        report: &mut RecvReport,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> usize {
        let (mut longest, mut waiting) = (0, None);
        for i in 0..n {
            longest = longest.max(self.message_len(i));
            let Some(message) = self.parse_message(i, counters) else { continue };
            let group = match waiting.take() {
                Some(group) => match message.append_to(group) {
                    Ok(group) => group,
                    Err(group) => {
                        self.deliver_group(&group, counters, report, sink);
                        message
                    }
                },
                None => message,
            };
            waiting = Some(group);
        }
        if let Some(group) = waiting {
            self.deliver_group(&group, counters, report, sink);
        }
        longest
    }

    /// Returns the length in bytes of received message number `i`.
    fn message_len(&self, i: usize) -> usize {
        (self.messages[i].msg_len as usize).min(BUFFER)
    }

    /// Parses received message number `i`. Returns `None` if the kernel truncated it.
    #[inline]
    fn parse_message(&mut self, i: usize, counters: &mut Counters) -> Option<MessageGroup> {
        let header = &self.messages[i].msg_hdr;
        let mut tos = 0;
        let mut segment = 0;
        #[allow(clippy::unnecessary_cast)]
        let control_len = header.msg_controllen as usize;
        for cmsg in Decoder::new(&self.controls[i], control_len) {
            let Some(value) = cmsg.int() else { continue };
            match (cmsg.level, cmsg.kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    tos = value as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO) => segment = value as usize,
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    // The kernel's counter has 32 bits and wraps.
                    let new = value.wrapping_sub(self.overflow);
                    counters.rx_overflow += u64::from(new);
                    self.overflow = value;
                }
                _ => {}
            }
        }
        let src = self.names[i].decode();
        let (Some(src), 0) = (src, header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC)) else {
            // In a truncated message the boundaries of packets are unknown.
            counters.rx_truncated += 1;
            return None;
        };
        let meta = RxMeta { src, ecn: tos & 3, dscp: tos >> 2, overflow: self.overflow };
        let len = self.message_len(i);
        // Without a GRO message the datagram is a single packet.
        let segment = if segment == 0 { len } else { segment };
        Some(MessageGroup { meta, first: i, messages: 1, segment, last: len })
    }

    /// Hands the packets of a group of messages to the sink and counts them.
    #[inline(always)]
    fn deliver_group(
        &self,
        arrived: &MessageGroup,
        counters: &mut Counters,
        report: &mut RecvReport,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) {
        let &MessageGroup { meta, first, messages, segment, last } = arrived;
        let start = first * STRIDE;
        let train = if messages == 1 {
            Train::new(&self.buffers[start..][..last], segment)
        } else {
            let end = start + (messages - 1) * STRIDE + last;
            Train::spaced(&self.buffers[start..end], segment, STRIDE)
        };
        let packets = train.count();
        sink(&meta, train);
        let bytes = ((messages - 1) * segment + last) as u64;
        counters.rx_packets += packets as u64;
        counters.rx_bytes += bytes;
        counters.rx_trains += messages as u64;
        if meta.ce() {
            counters.rx_ce += packets as u64;
        }
        report.packets += packets;
        report.trains += messages;
        report.bytes += bytes;
    }
}

/// One message, or a run of messages with one packet each. The messages of a run stand in
/// neighbouring buffers and have the same source, DSCP, mark and length; only the last may be
/// shorter.
struct MessageGroup {
    meta: RxMeta,
    /// Index of the first message of the group.
    first: usize,
    messages: usize,
    /// Length in bytes of every packet of the group but the last.
    segment: usize,
    /// Length in bytes of the last message of the group.
    last: usize,
}

impl MessageGroup {
    /// Appends this message to `group`, or returns `group` unchanged if the message does not
    /// continue it.
    fn append_to(&self, group: Self) -> Result<Self, Self> {
        let like = group.last == group.segment
            && self.meta == group.meta
            && self.last == self.segment
            // An empty packet cannot be in a train with gaps, because its position would be
            // ambiguous.
            && (1..=group.segment).contains(&self.last)
            && self.first == group.first + group.messages;
        if like {
            Ok(Self { messages: group.messages + 1, last: self.last, ..group })
        } else {
            Err(group)
        }
    }
}
