//! The wire of an endpoint (FI_SQUALL_WIRE): derives the transport's parameters from it, and refuses settings that the
//! wires of other implementations cannot have.

use squall_engine::{ForeignWire, PeerAddress, TransportConfig, UET_PORT};
use squall_net::{CRC_LEN, CrcForm};

use crate::abi::errno::{Errno, Result};
use crate::host::logger::USER;
use crate::host::param::{EncryptionPolicy, Params, WireKind};

/// The payload sizes in bytes that packets of the UE standard's wire may have.
const STANDARD_PAYLOADS: [u16; 4] = [8192, 4096, 2048, 1024];
/// The payload of SUET's packets over Ethernet: its provider's datagrams have at most 1472 bytes.
const SUET_PAYLOAD: u16 = 1416;

/// Returns the usual fields of a peer's address, if peers are of another implementation.
pub(crate) fn usual_address(params: &Params) -> Option<PeerAddress> {
    match params.wire {
        WireKind::Squall => None,
        WireKind::Uet => Some(ForeignWire::standard(STANDARD_PAYLOADS[0]).peer),
        WireKind::Suet => Some(ForeignWire::suet(SUET_PAYLOAD).peer),
    }
}

/// Returns the parameters with which an endpoint opens, changed as its wire format needs them.
///
/// # Errors
/// `FI_EACCES` or `FI_EINVAL`, with a warning, if a parameter does not go together with the wire.
pub(crate) fn adapt(params: &Params, keyed: bool) -> Result<Params> {
    let mut params = params.clone();
    let name = match params.wire {
        WireKind::Squall => return Ok(params),
        WireKind::Uet => "uet",
        WireKind::Suet => "suet",
    };
    if keyed || params.tss == EncryptionPolicy::Required {
        log::warn!(
            target: USER,
            "FI_SQUALL_WIRE={name}: peers of another implementation cannot prove that they know a job key; unset \
             FI_SQUALL_KEY_FILE, FI_SQUALL_TSS and the application's auth_key, or set FI_SQUALL_WIRE=squall"
        );
        return Err(Errno::ACCES);
    }
    if params.wire == WireKind::Suet {
        if params.crc {
            log::warn!(
                target: USER,
                "FI_SQUALL_WIRE=suet: SUET would take a checksum for payload; set FI_SQUALL_CRC=no"
            );
            return Err(Errno::INVAL);
        }
        // SUET takes the source port of a packet for the address of its sender.
        params.paths = 1;
    } else {
        let port = params.port.get_or_insert(UET_PORT..=UET_PORT);
        if !port.contains(&UET_PORT) {
            log::warn!(
                target: USER,
                "FI_SQUALL_PORT={}-{}: other implementations send to port {UET_PORT} only; unset FI_SQUALL_PORT",
                port.start(), port.end()
            );
            return Err(Errno::INVAL);
        }
        *port = UET_PORT..=UET_PORT;
    }
    Ok(params)
}

/// Returns the wire format of the peers, if they are of another implementation. Packets have at most `packet` bytes of
/// UDP payload.
///
/// # Errors
/// `FI_EINVAL`, with a warning, if no payload size of the wire fits.
pub(crate) fn of(params: &Params, packet: usize) -> Result<Option<ForeignWire>> {
    let headers = usize::from(ForeignWire::HEADERS);
    let room = packet.saturating_sub(headers);
    let (wanted, wire) = match params.wire {
        WireKind::Squall => return Ok(None),
        WireKind::Uet => {
            let room = room.saturating_sub(CRC_LEN);
            let fits = STANDARD_PAYLOADS.into_iter().find(|size| usize::from(*size) <= room);
            (1024 + headers + CRC_LEN, fits.map(ForeignWire::standard))
        }
        WireKind::Suet if params.mtu.is_some() => {
            (headers + 1, u16::try_from(room).ok().filter(|room| *room > 0).map(ForeignWire::suet))
        }
        WireKind::Suet => {
            let fits = usize::from(SUET_PAYLOAD) <= room;
            (usize::from(SUET_PAYLOAD) + headers, fits.then(|| ForeignWire::suet(SUET_PAYLOAD)))
        }
    };
    if wire.is_none() {
        log::warn!(
            target: USER,
            "FI_SQUALL_WIRE: packets of {packet} bytes are too short, the wire needs {wanted}; choose an interface with a \
             larger MTU by FI_SQUALL_IFACE, or a larger FI_SQUALL_MTU"
        );
        return Err(Errno::INVAL);
    }
    Ok(wire)
}

/// Returns the UDP payload of the longest packet of a wire format, with its checksum, in bytes.
pub(crate) fn packet_size(params: &Params, wire: &ForeignWire) -> usize {
    let crc = if crc_form(params).is_some() { CRC_LEN } else { 0 };
    usize::from(wire.payload + ForeignWire::HEADERS) + crc
}

/// Returns the form of the checksum that unencrypted packets have, if they have one.
pub(crate) fn crc_form(params: &Params) -> Option<CrcForm> {
    match params.wire {
        WireKind::Uet => Some(CrcForm::Headers),
        WireKind::Squall | WireKind::Suet => params.crc.then_some(CrcForm::Payload),
    }
}

/// Returns the JobID that an endpoint sends: 0 on the wire of SUET, which ignores JobIDs.
pub(crate) const fn job_id(params: &Params, job_id: u32) -> u32 {
    if matches!(params.wire, WireKind::Suet) { 0 } else { job_id }
}

/// Checks that the congestion control works with peers of another implementation: it must not need peers that run it as
/// well.
///
/// # Errors
/// `FI_EINVAL`, with a warning.
pub(crate) fn check_transport(params: &Params, config: &TransportConfig) -> Result<()> {
    let needs_peer = config.uses_credits() || config.uses_rates() || config.acks.telemetry;
    if params.wire == WireKind::Squall || !needs_peer {
        return Ok(());
    }
    log::warn!(
        target: USER,
        "FI_SQUALL_CC={} needs peers that run it as well, and FI_SQUALL_WIRE names another implementation; choose one such \
         as nscc or swift",
        params.cc
    );
    Err(Errno::INVAL)
}
