//! Sending: packets are combined into trains, and trains into as few system calls as possible.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::Socket;

use super::addr::SockAddr;
use super::cmsg::{CmsgBuffer, Encoder};
use super::errq::{self, ErrorQueue};
use super::sock;
use crate::base::{Datagram, TrafficClass};
use crate::burst::address;
use crate::{Burst, Counters, MAX_PIECES};

/// Largest number of messages in one `sendmmsg` system call.
const MESSAGES: usize = 32;
/// Largest number of memory pieces in a message (`UIO_MAXIOV`).
const PIECES: usize = 1024;
/// Largest number of memory pieces in all messages of a call; it bounds the preallocated memory.
const ALL_PIECES: usize = 4096;
/// Largest number of packets that the kernel accepts in a train: `UDP_MAX_SEGMENTS`, which is 64
/// before Linux 6.9.
const SEGMENTS: usize = 64;

/// Size in bytes of the buffer for trains of one call that are copied into one piece: the longest trains that a call
/// usually has.
const STAGING: usize = 4 << 16;
/// Length in bytes from which a piece of user memory is not worth copying. For each piece of a message the kernel takes
/// about 40 ns, longer than it takes to copy 1400 bytes that stay in the cache. Packets of MTU 9000 gain nothing.
const LONG_PIECE: u64 = 4096;

/// Properties of a UDP port that limit what its messages contain.
#[derive(Clone, Copy)]
pub(super) struct TxLimits {
    /// Largest number of packets in a train; 1 without GSO.
    pub(super) segments: usize,
    /// Largest number of UDP payload bytes in a train of packets.
    pub(super) train_bytes: usize,
    /// The port's sockets use IPv6.
    pub(super) v6: bool,
    /// TOS byte of data packets, which is the default of the sockets, and of control packets.
    pub(super) tos_data: i32,
    pub(super) tos_control: i32,
}

impl TxLimits {
    /// Returns whether packets of a class need another TOS byte than the default of the socket.
    #[inline]
    const fn needs_tos(&self, class: TrafficClass) -> bool {
        matches!(class, TrafficClass::Control) && self.tos_control != self.tos_data
    }

    /// Writes the ancillary data that gives a packet the TOS byte of control packets.
    fn encode_control_tos<'a>(&self, control: &'a mut CmsgBuffer) -> Encoder<'a> {
        let (level, kind) = if self.v6 {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        } else {
            (libc::IPPROTO_IP, libc::IP_TOS)
        };
        let mut control = Encoder::new(control);
        control.push(level, kind, self.tos_control.to_ne_bytes());
        control
    }
}

/// Returns whether the kernel dropped the packet that it was given.
///
/// A socket with `IP_RECVERR` gets `ENOBUFS` for a packet that a queue discipline, an egress policy or the device has
/// dropped (`net_xmit_errno` in the kernel). Other sockets see a success instead. A full socket is `EAGAIN`. A dropped
/// packet is as lost as one that a switch drops. A retry here would hold up all other peers, and would never end where
/// the device drops every packet of this length, as a veth does whose peer has a smaller MTU. A shortage of memory is
/// treated alike, because the transport retransmits with a backoff.
const fn is_dropped(errno: i32) -> bool {
    matches!(errno, libc::ENOBUFS | libc::ENOMEM)
}

/// The socket to send from, and whether it is connected to the peer of all packets, so that they
/// need no address.
type SendSocket<'a> = (BorrowedFd<'a>, bool);

/// The result of sending a burst of packets.
pub(super) enum SendOutcome {
    /// All packets were handed over, or are lost for good.
    Done,
    /// The send buffer of the socket is full, and packets are left.
    Full,
}

/// Preallocated arrays for `sendmmsg`. Every call fills them again. Between calls their pointers
/// are stale and never followed.
pub(super) struct UdpSender {
    limits: TxLimits,
    messages: Vec<libc::mmsghdr>,
    names: Vec<SockAddr>,
    controls: Vec<CmsgBuffer>,
    pieces: Vec<libc::iovec>,
    /// Copies of trains whose pieces are short. Its capacity never changes during a call, so that the copies do not move.
    staging: Vec<u8>,
    /// Number of packets in each message of the current call.
    packets: Vec<usize>,
    /// UDP payload bytes in each message of the current call.
    bytes: Vec<usize>,
    gso_refused: bool,
    /// Value of `limits.segments` to restore when packets may no longer be fragmented.
    trains: usize,
}

// SAFETY: the fields that are not Send by themselves are `messages` and `pieces`, for the raw pointers
// inside. Those point into other arrays of the same value, on the heap, which move along with it, into a
// batch and to user memory; `fill_and_send` clears both arrays and fills them anew before the kernel
// follows the pointers, and has `&mut self` and the burst from the one to the other.
unsafe impl Send for UdpSender {}

impl UdpSender {
    pub(super) fn new(mut limits: TxLimits) -> Self {
        limits.segments = limits.segments.clamp(1, SEGMENTS);
        Self {
            limits,
            messages: Vec::with_capacity(MESSAGES),
            names: vec![SockAddr::unspecified(); MESSAGES],
            controls: vec![CmsgBuffer::new(); MESSAGES],
            pieces: Vec::with_capacity(ALL_PIECES),
            staging: Vec::new(),
            packets: Vec::with_capacity(MESSAGES),
            bytes: Vec::with_capacity(MESSAGES),
            gso_refused: false,
            trains: limits.segments,
        }
    }

    /// Returns whether the kernel has refused a train whose packets it accepted one by one.
    pub(super) const fn gso_refused(&self) -> bool {
        self.gso_refused
    }

    /// Sends packets that all leave from `socket`. Adds the counts to `counters` and the number of
    /// packets handed over to `sent`.
    pub(super) fn send(
        &mut self,
        socket: SendSocket<'_>,
        packets: Burst<'_>,
        counters: &mut Counters,
        errors: &mut ErrorQueue,
        sent: &mut usize,
    ) -> SendOutcome {
        if let [only] = packets.packets()
            && self.send_single(socket, packets, only, counters, errors)
        {
            *sent += 1;
            return SendOutcome::Done;
        }
        // The limit is read again after each call, because a refused train lowers it.
        let mut next = 0;
        let mut segments = self.limits.segments;
        while next < packets.packets().len() {
            let (mut done, outcome) = self.fill_and_send(
                socket,
                packets.part(next..packets.packets().len()),
                segments,
                counters,
                errors,
            );
            segments = self.limits.segments;
            match outcome {
                CallOutcome::Sent => {}
                CallOutcome::Full => {
                    counters.tx_blocked += 1;
                    *sent += done;
                    return SendOutcome::Full;
                }
                CallOutcome::TrainRefused(train, errno) => {
                    let singles = packets.part(next + done..next + done + train);
                    let (n, ok) = self.send_one_by_one(socket, singles, counters, errors);
                    done += n;
                    if n < train {
                        *sent += done;
                        return SendOutcome::Full;
                    }
                    if ok {
                        // The kernel accepted the packets one by one, so it refused the train as
                        // such.
                        self.limits.segments = 1;
                        segments = 1;
                        self.gso_refused = true;
                        log::warn!(
                            "the kernel refused a GSO train: {}; packets are sent one by one from now on",
                            io::Error::from_raw_os_error(errno)
                        );
                    }
                }
            }
            *sent += done;
            next += done;
        }
        SendOutcome::Done
    }

    /// Sends a single packet with few pieces without the arrays. A single packet is one that a peer
    /// waits for, and this path is the shortest.
    ///
    /// Returns false if the packet has too many pieces or the kernel refused it. Nothing was sent
    /// then, and the general path finds the reason. A packet that the kernel dropped counts as
    /// sent, because it is lost.
    #[inline]
    fn send_single(
        &mut self,
        (socket, connected): SendSocket<'_>,
        burst: Burst<'_>,
        packet: &Datagram,
        counters: &mut Counters,
        errors: &mut ErrorQueue,
    ) -> bool {
        let (header, payload) = (burst.header(packet), burst.payload(packet));
        if !packet.trailer.is_empty() {
            return false;
        }
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut pieces = [
            libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() },
            none,
        ];
        let count = match payload {
            [] => 1,
            [piece] => {
                let len = usize::try_from(piece.len).unwrap_or(0);
                pieces[1] =
                    libc::iovec { iov_base: address(piece).cast_mut().cast(), iov_len: len };
                2
            }
            _ => return false,
        };
        // SAFETY: a `msghdr` is integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = count as _;
        if !connected {
            let (name, len) = SockAddr::encode(&packet.dst);
            self.names[0] = name;
            message.msg_name = (&raw mut self.names[0]).cast();
            message.msg_namelen = len;
        }
        if self.limits.needs_tos(packet.class) {
            let len = self.limits.encode_control_tos(&mut self.controls[0]).len();
            message.msg_control = self.controls[0].as_mut_ptr();
            message.msg_controllen = len as _;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: name and control messages are elements of our own arrays, the pieces a local array, with their
        // lengths; the pieces' bytes are in the burst's batch, or user memory that is readable as long as the burst
        // lives (`Burst::new`), which we hold. The kernel only reads.
        if unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) } < 0 {
            let errno = io::Error::last_os_error().raw_os_error();
            if errno.is_some_and(errq::may_be_stale) {
                errors.drain(socket);
            }
            counters.tx_calls += 1;
            let dropped = errno.is_some_and(is_dropped);
            counters.tx_dropped += u64::from(dropped);
            return dropped;
        }
        counters.tx_calls += 1;
        counters.tx_packets += 1;
        counters.tx_bytes += u64::from(packet.len);
        counters.tx_trains += 1;
        true
    }

    /// Allows fragmentation of the packets of the next [`UdpSender::send`] on `socket` (`yes`), because
    /// they are longer than the path MTU, or forbids it again. Such packets are rare. So instead of
    /// a socket of their own, the DF setting of this socket changes for the duration of the call.
    #[cold]
    pub(super) fn allow_fragments(&mut self, socket: &Socket, yes: bool) {
        // The kernel segments a train before it fragments the packets, and refuses a train whose
        // packets exceed the MTU.
        self.limits.segments = if yes {
            self.trains = self.limits.segments;
            1
        } else {
            self.trains
        };
        if let Err(e) = sock::set_fragmentation(socket, self.limits.v6, yes) {
            let df = if yes { "cleared for long packets" } else { "set again" };
            log::warn!("the Don't Fragment setting of a socket cannot be {df}: {e}");
        }
    }

    /// Sends the packets of a refused train one by one. Returns how many were handed over, and
    /// whether the kernel refused none of them.
    fn send_one_by_one(
        &mut self,
        socket: SendSocket<'_>,
        packets: Burst<'_>,
        counters: &mut Counters,
        errors: &mut ErrorQueue,
    ) -> (usize, bool) {
        let failed = counters.tx_failed;
        let mut next = 0;
        while next < packets.packets().len() {
            let (done, outcome) = self.fill_and_send(
                socket,
                packets.part(next..packets.packets().len()),
                1,
                counters,
                errors,
            );
            next += done;
            if matches!(outcome, CallOutcome::Full) {
                counters.tx_blocked += 1;
                break;
            }
        }
        (next, counters.tx_failed == failed)
    }

    /// Builds as many messages as fit and sends them. Returns the number of packets handed over,
    /// and why it stopped.
    fn fill_and_send(
        &mut self,
        socket: SendSocket<'_>,
        packets: Burst<'_>,
        segments: usize,
        counters: &mut Counters,
        errors: &mut ErrorQueue,
    ) -> (usize, CallOutcome) {
        let (socket, connected) = socket;
        let named = !connected;
        self.messages.clear();
        self.pieces.clear();
        self.staging.clear();
        self.packets.clear();
        self.bytes.clear();
        let mut built = 0;
        while built < packets.packets().len() && self.messages.len() < MESSAGES {
            let n =
                self.append_message(packets.part(built..packets.packets().len()), segments, named);
            if n == 0 {
                break;
            }
            built += n;
        }
        if self.messages.is_empty() {
            // The first packet alone has too many pieces.
            counters.tx_failed += 1;
            // EINVAL is what the kernel would return for a message with too many pieces.
            errors.push(errq::from_errno(packets.packets()[0].dst, libc::EINVAL));
            return (1, CallOutcome::Sent);
        }
        let mut done = 0;
        let mut at = 0;
        let mut stale = 0;
        while at < self.messages.len() {
            counters.tx_calls += 1;
            match self.send_messages(socket, at) {
                Ok(n) => {
                    for i in at..at + n {
                        done += self.packets[i];
                        counters.tx_packets += self.packets[i] as u64;
                        counters.tx_bytes += self.bytes[i] as u64;
                        counters.tx_trains += 1;
                    }
                    at += n;
                    stale = 0;
                }
                Err(errno) => match errno {
                    // `at` stays, so an interrupted call is repeated.
                    libc::EINTR => {}
                    libc::EAGAIN => return (done, CallOutcome::Full),
                    errno if is_dropped(errno) => {
                        counters.tx_dropped += self.packets[at] as u64;
                        done += self.packets[at];
                        at += 1;
                    }
                    // The error may belong to an earlier packet. The queue is read and the message
                    // offered again, at most three times, so that an error of this message cannot
                    // loop.
                    _ if errq::may_be_stale(errno) && stale < 3 => {
                        errors.drain(socket);
                        stale += 1;
                    }
                    // These are the errors of devices and kernels without GSO, and of trains that
                    // exceed the MTU. The packets may still go one by one.
                    libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP
                        if self.packets[at] > 1 =>
                    {
                        return (done, CallOutcome::TrainRefused(self.packets[at], errno));
                    }
                    _ => {
                        let peer = packets.packets()[done].dst;
                        if errno == libc::EMSGSIZE {
                            // The kernel reports the MTU in the error queue.
                            errors.drain(socket);
                            errors.push_too_big(peer);
                        } else {
                            errors.push(errq::from_errno(peer, errno));
                        }
                        counters.tx_failed += self.packets[at] as u64;
                        done += self.packets[at];
                        at += 1;
                        stale = 0;
                    }
                },
            }
        }
        (done, CallOutcome::Sent)
    }

    /// Appends a message with the first packets of `packets` and returns their number, which is 0
    /// if there is no room for even one. The message has an address if it is `named`; a connected
    /// socket needs none.
    fn append_message(&mut self, packets: Burst<'_>, segments: usize, named: bool) -> usize {
        let first = &packets.packets()[0];
        let segment = first.len as usize;
        let start = self.pieces.len();
        // Limit for this message and for the whole call.
        let most = (start + PIECES).min(ALL_PIECES);
        let (count, bytes) = self.append_pieces(packets, segments, most);
        if count == 0 {
            return 0;
        }
        let slot = self.messages.len();
        let limits = &self.limits;
        let controls = &mut self.controls[slot];
        let mut control = if limits.needs_tos(first.class) {
            limits.encode_control_tos(controls)
        } else {
            Encoder::new(controls)
        };
        if count > 1 {
            // A packet has at most 65535 bytes; a longer one fits no message and fails alone.
            let size = u16::try_from(segment).unwrap_or(u16::MAX);
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, size.to_ne_bytes());
        }
        let control_len = control.len();
        // SAFETY: a `mmsghdr` is integers and pointers, for which zero is a value.
        let mut msg: libc::mmsghdr = unsafe { mem::zeroed() };
        if named {
            let (name, name_len) = SockAddr::encode(&first.dst);
            self.names[slot] = name;
            msg.msg_hdr.msg_name = (&raw mut self.names[slot]).cast();
            msg.msg_hdr.msg_namelen = name_len;
        }
        // The vector never exceeds its capacity, so the pieces do not move.
        msg.msg_hdr.msg_iov = self.pieces[start..].as_mut_ptr();
        msg.msg_hdr.msg_iovlen = (self.pieces.len() - start) as _;
        if control_len > 0 {
            msg.msg_hdr.msg_control = self.controls[slot].as_mut_ptr();
            msg.msg_hdr.msg_controllen = control_len as _;
        }
        self.messages.push(msg);
        self.packets.push(count);
        self.bytes.push(bytes);
        count
    }

    /// Appends the pieces of the first packets of `packets`: at most `segments` packets, which fit
    /// one message, and at most `most` pieces in all. Returns the number of packets and their
    /// bytes.
    fn append_pieces(
        &mut self,
        packets: Burst<'_>,
        segments: usize,
        most: usize,
    ) -> (usize, usize) {
        let first = &packets.packets()[0];
        let segment = first.len as usize;
        let (mut count, mut bytes) = self.append_run(packets, segments, most);
        if bytes < count * segment {
            return (count, bytes);
        }
        for packet in packets.packets().iter().take(segments).skip(count) {
            let len = packet.len as usize;
            let payload = packets.payload(packet);
            if self.pieces.len() + payload.len() + 2 > most || payload.len() > MAX_PIECES {
                break;
            }
            // A GSO train has one destination, one class and one length, and only its last packet
            // may be shorter.
            if count > 0
                && (len > segment
                    || len == 0
                    || bytes + len > self.limits.train_bytes
                    || packet.class != first.class
                    || packet.dst != first.dst)
            {
                break;
            }
            let header = packets.header(packet);
            self.push_piece(header.as_ptr(), header.len());
            for piece in payload {
                self.push_piece(address(piece), usize::try_from(piece.len).unwrap_or(0));
            }
            if !packet.trailer.is_empty() {
                let trailer = packets.trailer(packet);
                self.push_piece(trailer.as_ptr(), trailer.len());
            }
            count += 1;
            bytes += len;
            if len < segment {
                // A shorter packet ends a train.
                break;
            }
        }
        (count, bytes)
    }

    /// Appends the pieces of a run (see [`Batch::mark_runs`](crate::base::Batch::mark_runs)) without looking
    /// at each packet. Returns (0, 0) if there is no run.
    #[inline]
    fn append_run(&mut self, packets: Burst<'_>, segments: usize, most: usize) -> (usize, usize) {
        let all = packets.packets();
        let first = &all[0];
        let run_len = all.len().min(usize::from(first.followers) + 1);
        let segment = first.len as usize;
        // An empty packet cannot be part of a train: the kernel splits by length.
        if run_len < 2 || segment == 0 {
            return (0, 0);
        }
        let mut count = run_len.min(segments).min(self.limits.train_bytes / segment);
        let mut bytes = count * segment;
        if count + 1 == run_len && count < segments {
            // The last packet of the run is shorter and may still fit.
            let last = all[count].len as usize;
            if bytes + last <= self.limits.train_bytes {
                count += 1;
                bytes += last;
            }
        } else if count == run_len {
            bytes = bytes - segment + all[count - 1].len as usize;
        }
        if count < 2 || self.pieces.len() + 2 * count > most {
            return (0, 0);
        }
        // All headers have one length, so they can be cut without looking at the packets.
        let (headers, pieces) = packets.part(0..count).run_parts();
        let Some(piece) = pieces.first() else {
            self.push_piece(headers.as_ptr(), headers.len());
            return (count, bytes);
        };
        if piece.len < LONG_PIECE && self.has_staging_room(bytes) {
            let start = self.staging.len();
            packets.part(0..count).copy_run(bytes, &mut self.staging);
            self.push_piece(self.staging[start..].as_ptr(), bytes);
            return (count, bytes);
        }
        for (header, piece) in headers.chunks_exact(first.header.len()).zip(pieces) {
            self.push_piece(header.as_ptr(), header.len());
            self.push_piece(address(piece), usize::try_from(piece.len).unwrap_or(0));
        }
        (count, bytes)
    }

    /// Returns whether `bytes` fit into the room for copies. The first call takes the memory, which endpoints without
    /// long messages do without.
    #[inline]
    fn has_staging_room(&mut self, bytes: usize) -> bool {
        if self.staging.capacity() == 0 {
            self.staging.reserve_exact(STAGING);
        }
        self.staging.len() + bytes <= self.staging.capacity()
    }

    #[inline]
    fn push_piece(&mut self, base: *const u8, len: usize) {
        if len > 0 {
            self.pieces.push(libc::iovec { iov_base: base.cast_mut().cast(), iov_len: len });
        }
    }

    /// Sends the messages from `at` on with one system call. Returns how many the kernel accepted,
    /// or the error number of the first.
    fn send_messages(&mut self, socket: BorrowedFd<'_>, at: usize) -> Result<usize, i32> {
        let fd = socket.as_raw_fd();
        let messages = &mut self.messages[at..];
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let rc = if let [only] = messages {
            // SAFETY: `append_message` filled the header in for this very call of `fill_and_send`: its name, control
            // messages and pieces are elements of our own arrays, which did not grow since (`messages`,
            // `pieces` and `staging` stay within their capacity, the others are of fixed length), with their
            // lengths. The pieces' bytes are in `staging`, the burst's batch, or user memory that is readable as
            // long as the burst lives (`Burst::new`), which `fill_and_send` holds. The kernel only reads.
            match unsafe { libc::sendmsg(fd, &raw const only.msg_hdr, flags) } {
                n if n >= 0 => 1,
                _ => -1,
            }
        } else {
            let n = messages.len() as libc::c_uint;
            // SAFETY: `n` is the length of `messages`, each of which `append_message` filled in for this very
            // call of `fill_and_send`: names, control messages and pieces are elements of our own arrays,
            // which did not grow since, with their lengths; the pieces' bytes are in `staging`, the burst's
            // batch, or user memory that is readable as long as the burst lives (`Burst::new`), which
            // `fill_and_send` holds. The kernel reads them, and writes `msg_len` of each message.
            unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), n, flags as _) }
        };
        usize::try_from(rc)
            .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

/// The reason why `fill_and_send` stopped sending.
enum CallOutcome {
    /// All messages that were built were handed to the kernel.
    Sent,
    /// The send buffer of the socket is full.
    Full,
    /// The kernel refused the next message, a train of that many packets, with this error number.
    TrainRefused(usize, i32),
}
