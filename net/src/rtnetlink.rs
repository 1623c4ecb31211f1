//! Requests to the kernel about interfaces, routes and neighbours: rtnetlink(7).

use std::io;

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols};

/// Size of the receive buffer in bytes. The kernel builds datagrams of at most 32 KiB.
const DATAGRAM: usize = 64 << 10;

/// A netlink socket for requests about the kernel's interface, route and neighbour tables.
pub(crate) struct RouteSocket {
    socket: Socket,
    buffer: Vec<u8>,
}

impl RouteSocket {
    /// Opens a netlink socket.
    ///
    /// # Errors
    /// The error of the system: too few descriptors, or the process may not use netlink.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(protocols::NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        Ok(Self { socket, buffer: Vec::with_capacity(16 << 10) })
    }

    /// Sends a request for one object and returns the kernel's answer. The kernel queues the answer
    /// before the request's system call returns, so the call never blocks.
    ///
    /// # Errors
    /// The error with which the kernel refuses, or `InvalidData` for an answer that cannot be
    /// parsed.
    pub(crate) fn request(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> io::Result<RouteNetlinkMessage> {
        self.send(question, NLM_F_REQUEST)?;
        self.buffer.clear();
        self.socket.recv(&mut self.buffer, libc::MSG_DONTWAIT)?;
        let answer =
            NetlinkMessage::<RouteNetlinkMessage>::deserialize(&self.buffer).map_err(invalid)?;
        match answer.payload {
            NetlinkPayload::InnerMessage(answer) => Ok(answer),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Sends a request for a whole table and calls `take` for each message of the answer, with the
    /// type of the message and its bytes behind the netlink header.
    ///
    /// # Errors
    /// The error with which the kernel refuses, or `InvalidData` for a datagram that is not a list
    /// of messages.
    pub(crate) fn dump(
        &mut self,
        question: RouteNetlinkMessage,
        take: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        self.send(question, NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut answer: Vec<u8> = Vec::with_capacity(DATAGRAM);
        loop {
            answer.clear();
            // The kernel prepares the next datagram of a table while the previous one is read. So
            // there is nothing to wait for, and an empty socket before the end of the table is an
            // error.
            self.socket.recv(&mut answer, libc::MSG_DONTWAIT)?;
            let mut rest: &[u8] = &answer;
            while !rest.is_empty() {
                let message = NetlinkBuffer::new_checked(rest).map_err(invalid)?;
                match message.message_type() {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return Err(refusal(message.payload())),
                    kind => take(kind, message.payload()),
                }
                // Messages begin at multiples of four bytes, and none is shorter than its header.
                let length = (message.length() as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
            }
        }
    }

    fn send(&mut self, question: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        self.buffer.clear();
        self.buffer.resize(message.buffer_len(), 0);
        message.serialize(&mut self.buffer);
        self.socket.send(&self.buffer, 0)?;
        Ok(())
    }
}

/// Returns the error in a message of type `NLMSG_ERROR`. The payload begins with the negative error
/// number (netlink(7)).
fn refusal(payload: &[u8]) -> io::Error {
    match payload.first_chunk() {
        Some(number) => io::Error::from_raw_os_error(i32::from_ne_bytes(*number).wrapping_neg()),
        None => io::ErrorKind::InvalidData.into(),
    }
}

#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn invalid(error: DecodeError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
