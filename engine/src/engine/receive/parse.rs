//! The first step: the headers of a data packet, and the packets of its train that continue it.
//!
//! Most packets of a long message form a packet run ([`PacketRun`]). Those behind the first of them
//! are compared with their expected headers and are neither parsed nor looked up. Packets that are
//! not that simple (a message that ends, an acknowledgement that is requested in the middle) are
//! handled one by one.

use crate::base::Train;
use crate::reliability::{EndArrival, RunArrival};
use crate::wire::{Opcode, PacketRun, Request, Ses};

/// A data packet whose headers were parsed and obey the rules of the wire format.
pub(super) struct DataPacket<'a> {
    pub(super) pds: &'a Request,
    pub(super) ses: &'a Ses,
    pub(super) headers: &'a [u8],
    pub(super) payload: &'a [u8],
}

impl<'a> DataPacket<'a> {
    /// Returns the packet with these headers, which are those of `bytes`, and this payload.
    #[inline]
    pub(super) fn new(pds: &'a Request, ses: &'a Ses, bytes: &'a [u8], payload: &'a [u8]) -> Self {
        Self { pds, ses, headers: &bytes[..bytes.len() - payload.len()], payload }
    }
}

/// The packets of a train that continue the packet before them: a packet run, its end, or both.
pub(super) struct Followers<'a> {
    /// The train from the first of the following packets on, including what comes behind them.
    packets: Train<'a>,
    /// The packets of the train that come behind the following packets.
    pub(super) rest: Train<'a>,
    /// Length in bytes of the headers of each following packet.
    headers: usize,
    /// Offset of the first following payload in its message, and the length of all of them, in
    /// bytes.
    pub(super) range: (u64, u64),
    /// The following packets in the form in which the transport layer accepts them.
    pub(super) run: RunArrival,
    /// The first packet of the train and the following packets are all packets of a message.
    pub(super) complete_message: bool,
}

impl<'a> Followers<'a> {
    /// Returns the packets of `train` that continue `data`, if there are any.
    #[inline]
    pub(super) fn find(data: &DataPacket<'_>, train: &Train<'a>) -> Option<Self> {
        train.peek()?;
        let begins = match data.ses {
            Ses::Std(request) if request.eom => return None,
            Ses::Std(request) => request.som,
            _ => false,
        };
        Self::find_run(data, begins, train)
    }

    fn find_run(data: &DataPacket<'_>, begins: bool, train: &Train<'a>) -> Option<Self> {
        let (headers, payload) = (data.headers.len(), data.payload.len());
        let mut run = PacketRun::after(data.headers, data.pds, payload)?;
        let (psn, offset) = (run.psn(), u64::from(run.offset()));
        let most = u16::try_from(run.max_packets()).unwrap_or(u16::MAX);
        let (mut rest, mut alike) = (*train, 0);
        while alike < most && rest.peek().is_some_and(|packet| run.is_next(packet)) {
            rest.next();
            run.advance();
            alike += 1;
        }
        // The end of a write does more than place bytes, so it is handled as a single packet.
        let message = matches!(data.ses, Ses::Std(request) if request.opcode != Opcode::Write);
        let end = rest.peek().filter(|_| message).and_then(|last| {
            let (ask, bytes) = (run.ends_with(last)?, u32::try_from(last.len()).ok()?);
            Some(EndArrival { bytes, ask })
        });
        let mut len = u64::from(alike) * payload as u64;
        if let Some(end) = end {
            rest.next();
            len += u64::from(end.bytes) - headers as u64;
        } else if alike == 0 {
            return None;
        }
        Some(Self {
            packets: *train,
            rest,
            headers,
            range: (offset, len),
            run: RunArrival { first: psn, count: alike, end },
            complete_message: begins && end.is_some(),
        })
    }

    /// Returns the payloads of the following packets in order.
    pub(super) fn payloads(&self) -> impl Iterator<Item = &'a [u8]> {
        let headers = self.headers;
        self.packets.take(self.run.packets().into()).map(move |packet| &packet[headers..])
    }
}
