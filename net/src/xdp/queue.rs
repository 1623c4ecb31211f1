//! One queue of the interface: an AF_XDP socket with its frames and rings.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::Duration;

use xdp::nic::NicIndex;
use xdp::slab::{HeapSlab, Slab as _};
use xdp::socket::{XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{CompletionRing, FillRing, Packet, RingConfigBuilder, RxRing, TxRing, Umem};

/// Number of frames for receiving and for sending. Powers of two, as the rings require.
pub(super) const RX_FRAMES: u32 = 2048;
const TX_FRAMES: u32 = 1024;
/// Largest number of frames in one call of `receive` or `flush`.
const BATCH: usize = 64;
/// Number of frames that the kernel sends in one system call from the ring of a socket that copies
/// (`TX_BATCH_SIZE`).
const KERNEL_BATCH: usize = 32;
/// Bytes before each frame that belong to the kernel (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Number of attempts to open a queue whose previous socket may just have been closed, and the time between two
/// attempts. The kernel releases the queue from a work queue, after an RCU grace period.
const REOPEN: (u32, Duration) = (20, Duration::from_millis(5));
/// The socket option of level `SOL_XDP` with the flags of a socket, and the flag that frames are not copied (zero
/// copy).
const XDP_OPTIONS: libc::c_int = 8;
const XDP_OPTIONS_ZEROCOPY: u32 = 1;

/// Returns the frame size in bytes for packets of `mtu` bytes, IP header included, or `None` if no frame is large
/// enough.
pub(super) fn frame_bytes(mtu: u32) -> Option<u32> {
    let needed = mtu.checked_add(super::frame::ETHERNET as u32)?;
    [2048, 4096].into_iter().find(|bytes| needed <= bytes - HEADROOM)
}

/// One queue of the interface: an AF_XDP socket with its frames and rings.
pub(super) struct XdpQueue {
    // The kernel uses the frames until the socket is closed, so this field comes before `umem` and
    // is dropped first.
    socket: XdpSocket,
    fill: FillRing,
    rx: RxRing,
    completion: CompletionRing,
    tx: TxRing,
    umem: Umem,
    frame: usize,
    /// Number of frames that were received and wait for room in the fill ring.
    owed: usize,
    arriving: HeapSlab,
    arrived: Vec<Packet>,
    leaving: HeapSlab,
}

// SAFETY: what is not Send by itself are the frames' raw pointers in `umem`, `arriving`, `arrived` and `leaving`, and the rings'
// references to memory that they map. All of it belongs to this value, which moves as a whole; nothing of it is bound to a
// thread, and one thread at a time has `&mut self`.
unsafe impl Send for XdpQueue {}

/// The result of handing written frames to the kernel.
pub(super) enum FlushOutcome {
    /// The kernel accepted all frames for sending.
    All,
    /// The kernel has no room for the frames and must be asked again.
    Full,
}

impl XdpQueue {
    /// Opens a socket on queue `number` of interface `index`.
    ///
    /// # Errors
    /// The error of the system: `PermissionDenied`; `ResourceBusy` if the queue has another socket;
    /// too little memory may be locked (`ulimit -l`).
    pub(super) fn open(index: u32, number: u32, frame: u32, sndbuf: usize) -> io::Result<Self> {
        let mut attempts = 0;
        loop {
            match Self::try_open(index, number, frame, sndbuf) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && attempts < REOPEN.0 => {
                    attempts += 1;
                    thread::sleep(REOPEN.1);
                }
                opened => return opened,
            }
        }
    }

    fn try_open(index: u32, number: u32, frame: u32, sndbuf: usize) -> io::Result<Self> {
        let frame_size = if frame == 2048 { FrameSize::TwoK } else { FrameSize::FourK };
        let frames = UmemCfgBuilder {
            frame_size,
            frame_count: RX_FRAMES + TX_FRAMES,
            ..UmemCfgBuilder::default()
        };
        let mut umem = Umem::map(frames.build().map_err(io::Error::other)?)?;
        let rings = RingConfigBuilder {
            rx_count: RX_FRAMES,
            fill_count: RX_FRAMES,
            tx_count: TX_FRAMES,
            completion_count: TX_FRAMES,
        };
        let mut builder = XdpSocketBuilder::new().map_err(system_error)?;
        let rings = rings.build().map_err(io::Error::other)?;
        let (rings, flags) = builder.build_rings(&umem, rings).map_err(system_error)?;
        let mut fill = rings.fill_ring;
        // SAFETY: the socket is to be closed before `umem` is unmapped: here it is made later, and so dropped earlier, and
        // as a field it stands before.
        let filled = unsafe { fill.enqueue(&mut umem, RX_FRAMES as usize) };
        debug_assert_eq!(filled, RX_FRAMES as usize);
        let socket = builder.bind(NicIndex(index), number, flags).map_err(system_error)?;
        let (Some(rx), Some(tx)) = (rings.rx_ring, rings.tx_ring) else {
            return Err(io::Error::other("the AF_XDP socket has no rings"));
        };
        // The call may fail without harm: with the default buffer, a little more than a hundred
        // frames may be in flight.
        let _ = crate::udp::set_option(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            i32::try_from(sndbuf).unwrap_or(i32::MAX),
        );
        Ok(Self {
            socket,
            fill,
            rx,
            completion: rings.completion_ring,
            tx,
            umem,
            frame: frame as usize,
            owed: 0,
            arriving: HeapSlab::with_capacity(BATCH),
            arrived: Vec::with_capacity(BATCH),
            leaving: HeapSlab::with_capacity(BATCH),
        })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Returns the distance in bytes between the beginnings of two frames.
    pub(super) const fn frame(&self) -> usize {
        self.frame
    }

    /// Returns whether the driver sends and receives the frames without copying them.
    pub(super) fn is_zero_copy(&self) -> bool {
        let mut flags = 0_u32;
        let mut len = size_of::<u32>() as libc::socklen_t;
        // SAFETY: getsockopt(2) writes at most `len` bytes, the size of `flags`, and then how many into `len`; both are
        // local variables.
        let rc = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::SOL_XDP,
                XDP_OPTIONS,
                (&raw mut flags).cast(),
                &raw mut len,
            )
        };
        rc == 0 && flags & XDP_OPTIONS_ZEROCOPY != 0
    }

    /// Returns the number of frames dropped for lack of room since the socket was opened.
    pub(super) fn overflow(&self) -> u64 {
        // `rx_dropped` includes the packets that found the fill ring empty, so that count is not
        // added.
        self.socket.statistics().map_or(0, |s| s.rx_dropped.saturating_add(s.rx_ring_full))
    }

    /// Hands a batch of received frames to `sink`, which may read all of them while it runs.
    /// Returns their number.
    pub(super) fn receive(&mut self, sink: impl FnOnce(&[Packet])) -> usize {
        // SAFETY: the packets go to `arrived`, which this call empties before it returns.
        let count = unsafe { self.rx.recv(&self.umem, &mut self.arriving) };
        if count == 0 {
            return 0;
        }
        while let Some(packet) = self.arriving.pop_back() {
            self.arrived.push(packet);
        }
        sink(&self.arrived);
        // The frames go back in reverse order. The allocator returns the last one first, so the
        // fill ring gets them in their original order. Frames that are received together then lie
        // next to each other and can form a train.
        for packet in self.arrived.drain(..).rev() {
            self.umem.free_packet(packet);
        }
        // The kernel shows received frames before it frees their places in the fill ring, so
        // `enqueue` may accept fewer.
        self.owed += count;
        // SAFETY: the socket is closed before `umem` is unmapped, for the fields are dropped in their order.
        self.owed -= unsafe { self.fill.enqueue(&mut self.umem, self.owed) };
        count
    }

    /// Writes a frame of `len` bytes by calling `write`. The frame leaves with the next
    /// [`XdpQueue::flush`]. Returns `None` if all frames are in flight.
    #[inline]
    pub(super) fn write(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Option<()> {
        // Frames that are owed to the fill ring are not used for sending. Otherwise sending could
        // starve receiving.
        if self.umem.allocatable() <= self.owed {
            self.completion.dequeue(&mut self.umem, TX_FRAMES as usize);
            if self.umem.allocatable() <= self.owed {
                return None;
            }
        }
        // SAFETY: the packet goes into `leaving` and from there into the ring; neither outlives `umem`.
        let mut packet = unsafe { self.umem.alloc() }?;
        // The frame has the length of the packet; its contents are written by `write`.
        if packet.adjust_tail(i32::try_from(len).ok()?).is_err() {
            self.umem.free_packet(packet);
            return None;
        }
        write(&mut packet);
        self.leaving.push_front(packet);
        Some(())
    }

    /// Returns whether written frames wait for [`XdpQueue::flush`].
    pub(super) fn has_written(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Returns whether [`XdpQueue::flush`] must be called before the next frame.
    pub(super) fn is_batch(&self) -> bool {
        self.leaving.available() == 0
    }

    /// Passes the written frames to the kernel, and asks it again for those for which it had no room.
    ///
    /// # Errors
    /// The interface is gone or down.
    pub(super) fn flush(&mut self) -> io::Result<FlushOutcome> {
        let count = self.leaving.len();
        if count > 0 {
            // SAFETY: the frames are of `umem`, which outlives the socket.
            let queued = unsafe { self.tx.send(&mut self.leaving) };
            // The ring has as many places as there are frames for sending.
            debug_assert_eq!(queued, count);
        }
        self.wake_kernel(count.div_ceil(KERNEL_BATCH) + 1)
    }

    /// Makes the kernel process the send ring, up to `most` times if it does not reach the end.
    fn wake_kernel(&self, most: usize) -> io::Result<FlushOutcome> {
        for _ in 0..most {
            // SAFETY: sendto(2) is given no bytes and no name: it makes the kernel look at the ring.
            let rc = unsafe {
                libc::sendto(
                    self.fd(),
                    std::ptr::null(),
                    0,
                    libc::MSG_DONTWAIT,
                    std::ptr::null(),
                    0,
                )
            };
            if rc >= 0 {
                return Ok(FlushOutcome::All);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // The kernel stopped at its limit for one call, or had no room.
                Some(libc::EAGAIN) => {}
                Some(libc::EINTR) => {}
                Some(libc::EBUSY | libc::ENOBUFS | libc::ENOMEM) => break,
                _ => return Err(error),
            }
        }
        Ok(FlushOutcome::Full)
    }
}

/// Extracts the system's error from an error of the XDP library.
fn system_error(error: xdp::error::SocketError) -> io::Error {
    use xdp::error::SocketError::{Bind, GetSockOpt, RingMap, SetSockOpt, SocketCreation};
    match error {
        SocketCreation(error) | Bind(error) => error,
        SetSockOpt { inner, .. } | GetSockOpt { inner, .. } | RingMap { inner, .. } => inner,
    }
}
