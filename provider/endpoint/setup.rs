//! Opening an endpoint: the parameters become the configuration of the packet port, the contexts and the engine.

use core::sync::atomic::Ordering;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use squall_base::{Instance, JobKey, SecretRng, Seed, Span};
use squall_cc::{NetworkProfile, PathsConfig};
use squall_engine::{Config, Engine, LossDetection, NOMINAL_OVERHEAD, TransportConfig, UET_PORT};
use squall_monitor::JobPlace;
use squall_net::emulator::RECEIVE_BUFFER;
use squall_net::emulator::frame::{JobRank, VirtualTimeRules, Welcome};
use squall_net::{
    AttachedPort, CRC_LEN, CrcPort, EmulatorSpec, FaultPort, FaultSpec, HostChoice, PcapPort,
    PcapSpec, Port, PortConfig, RailConfig, RailPort, SealPort, UdpPort, XdpPort, emulator,
};

use crate::abi::errno::{Errno, Result};
use crate::abi::order;
use crate::domain::Domain;
use crate::endpoint::Settings;
use crate::endpoint::algorithms::{Algorithms, choose};
use crate::endpoint::endpoint_core::{AckDelays, EndpointParts};
use crate::endpoint::poller::Poller;
use crate::endpoint::poller::shared_memory::{self, ShmChannels};
use crate::host::activation;
use crate::host::job::Job;
use crate::host::limits::{self, UnexpectedMemory};
use crate::host::logger::USER;
use crate::host::memory_limit;
use crate::host::param::{EncryptionPolicy, Params, PeerPolicy, PortKind, WireKind, params};
use crate::host::secret;
use crate::network::addr::Name;
use crate::network::nic::Nic;
use crate::network::wire;
use crate::reports::key_log::KeyLog;
use crate::reports::monitor::job_place;
use crate::virtual_time;

/// Largest UDP payload of a packet by default, in bytes. Four such packets fill a GSO train of 64 KiB, over IPv4 and
/// over IPv6.
const LARGEST_AUTO: usize = 16_312;
/// Smallest UDP payload of a packet, in bytes, that leaves room for headers and an injected message.
const SMALLEST: usize = 576;

/// Number of packets in a train that leaves as frames (AF_XDP), where each packet costs the same: enough that the
/// transport saves its cost per train.
const FRAMED_TRAIN: u32 = 4;
/// Lower bound in bytes of the limit for congestion windows on networks of hardware. The bandwidth-delay product counts
/// the network's delay alone; a host adds its scheduler and its system calls, for which 1 MiB has room (84 us at 100
/// Gb/s).
const MIN_WINDOW: u64 = 1 << 20;
/// Number of packets that a congestion window may always have on an emulated network.
const FABRIC_PACKETS: u64 = 8;
/// Bytes that a target receives before it sends an acknowledgement: the most that UE 1.0 allows (table 3-28), because
/// each acknowledgement costs a system call at either end.
const ACK_TRIGGER: u32 = 32 << 10;

/// The delay of acknowledgements that the sender does not wait for. It is long enough for the application's answer to
/// be sent first, because a system call takes 3 us at either end, and for a second train of 64 KiB to arrive.
const ACK_LINGER: Span = Span::micros(25);
/// The longest delay of any acknowledgement while other threads want the processor of the thread that polls.
const CONTENDED_ACK_DELAY: Span = Span::millis(1);

/// Opens the packet port and the engine of an endpoint that is being enabled.
pub(crate) fn open(domain: &Domain, settings: &Settings, number: u32) -> Result<EndpointParts> {
    let params = params();
    let Job { id: job_id, key } = settings.job.clone();
    let mut source = settings.source;
    if source.ip().is_unspecified() {
        source.set_ip(domain.ip());
    }
    let nic = domain.nic();
    let params = &wire::adapt(params, key.is_some())?;
    let rails = if source.ip() == nic.ip { &nic.rails[..] } else { &[] };
    let params = &with_rails(params, rails.len());
    let BoundPort { port, local, config, held, network } =
        bind(params, with_scope(source, nic), (rails, key.as_ref()))?;
    let params = &with_network_facts(params, &network);
    let v6 = local.is_ipv6();
    let packet = packet_size(params, nic, v6);
    let wire = wire::of(params, packet)?;
    let packet = wire.map_or(packet, |wire| wire::packet_size(params, &wire));
    let encrypts = encrypts(params, key.is_some())?;
    let key_log = if encrypts { KeyLog::open(&params.key_log, number, local)? } else { None };
    let trailer = match (encrypts, wire::crc_form(params)) {
        (true, _) => squall_seal::OVERHEAD,
        (false, Some(_)) => CRC_LEN,
        (false, None) => 0,
    };
    let max_packet = u32::try_from(packet - trailer).unwrap_or(u32::MAX);
    let mut fixed = network.virtual_time().filter(|_| !encrypts).map(fixed_generator);
    let (instance, seed) = match &mut fixed {
        Some(rng) => (rng.instance(), rng.next_u64()),
        None => (secret::instance()?, secret::seed()?),
    };
    let pdc = transport_config(params, nic, max_packet, seed, &network)?;
    if encrypts && (pdc.acks.telemetry || pdc.uses_rates()) {
        log::warn!(
            target: USER,
            "FI_SQUALL_CC={} does not go together with encryption: switches cannot write into encrypted packets; \
             choose another one, or set FI_SQUALL_TSS=off",
            params.cc
        );
        return Err(Errno::INVAL);
    }
    wire::check_transport(params, &pdc)?;
    let secret = match &mut fixed {
        Some(rng) => rng.seed(),
        None => secret::generator("an endpoint's secrets")?.seed(),
    };
    let mut messages = engine_config(params, max_packet, instance, secret);
    if network.virtual_time().is_some() {
        // The port takes packets no sooner than the wire is free, and their round trips count from there.
        messages.batch_packets = 1;
    }
    let keyed = key.is_some();
    let shm = settings.shared_memory.load(Ordering::Relaxed)
        && wire.is_none()
        && shared_memory::is_enabled(params);
    let job_id = wire::job_id(params, job_id);
    let order = order::of(settings.msg_order);
    let host = Some(local.ip());
    let config_of =
        Config { port: local.port(), host, job_id, key, encrypts, shm, order, wire, ..messages };
    let scope = pdc.scope;
    let engine = Engine::new(config_of, pdc);
    log::info!(
        "endpoint {number} at {local} (instance {instance}, job {job_id}{}) on {}: packets of {packet} bytes, {} paths, cc {}, lb {}, loss {}, \
         scope {}",
        match (keyed, encrypts) {
            (_, true) => ", encrypted",
            (true, false) => ", with a key",
            (false, false) => "",
        },
        nic.name,
        params.paths,
        params.cc,
        params.lb,
        params.loss,
        scope
    );
    let faults = fault_spec(params)?;
    let trims = params.trimming || faults.as_ref().is_some_and(|spec| spec.trim > 0.0);
    let dscp_trimmed = trims.then_some(config.dscp_trimmed);
    let port = wrap_port(params, port, &config, number, (faults, dscp_trimmed, encrypts))?;
    let name = match wire {
        Some(wire) => Name { fields: local.is_ipv4().then_some(wire.peer), ..local.into() },
        None => Name { instance: Some(instance), ..local.into() },
    };
    let trailer = trailer as u32; // 32 at most
    let named_only = params.peers == PeerPolicy::Named;
    let shm = if shm { ShmChannels::open(params, name) } else { ShmChannels::none() };
    // One rank prints it for the whole job; a process without a rank prints it for itself.
    if job_place().rank.is_none_or(|rank| rank == 0) {
        activation::report_unnamed();
    }
    let usual = engine.transport().ack_delay;
    // Emulated networks are to show what was simulated.
    let contended = if params.emulator.is_empty() { CONTENDED_ACK_DELAY } else { usual };
    Ok(EndpointParts {
        engine,
        ack_delays: AckDelays { usual, contended },
        poller: Poller::new(port, held, shm, dscp_trimmed, trailer, key_log),
        name,
        number,
        named_only,
    })
}

/// Adds the interface's index to a link-local IPv6 address, which needs it.
fn with_scope(source: SocketAddr, nic: &Nic) -> SocketAddr {
    match source.ip() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(ip, source.port(), 0, nic.index))
        }
        _ => source,
    }
}

/// A packet port that is open and bound to its address.
struct BoundPort {
    port: Box<dyn Port + Send>,
    local: SocketAddr,
    config: PortConfig,
    /// The size of the port's receive buffer in bytes.
    held: u64,
    network: PacketNetwork,
}

/// The kind of network that carries a port's packets.
enum PacketNetwork {
    /// The packets go through the kernel's UDP sockets.
    Sockets,
    /// The packets go through AF_XDP sockets, as whole frames.
    Frames,
    /// The packets go through an emulator, which sent this description of its network.
    Fabric(Box<Welcome>),
}

impl PacketNetwork {
    /// Returns the rules of virtual time, if the network's clock is virtual.
    fn virtual_time(&self) -> Option<&VirtualTimeRules> {
        match self {
            Self::Fabric(welcome) => welcome.virtual_time.as_ref(),
            Self::Sockets | Self::Frames => None,
        }
    }
}

/// Returns a generator that draws the same numbers in each run, for an endpoint in virtual time that does
/// not encrypt. It depends on the run's seed and on the endpoint's port, which no other endpoint has. Only
/// endpoints of the same job reach this one, so that nothing has to be secret.
fn fixed_generator(rules: &VirtualTimeRules) -> SecretRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&rules.seed.to_le_bytes());
    bytes[8..10].copy_from_slice(&rules.port.to_le_bytes());
    SecretRng::from_seed(bytes)
}

/// Opens the packet port on the UDP port that was asked for, or else on Ultra Ethernet's if it is free, or else on any.
/// With `rails`, the port is one of several cards, which prove themselves by the job's key if there is one.
fn bind(
    params: &Params,
    source: SocketAddr,
    (rails, key): (&[RailConfig], Option<&JobKey>),
) -> Result<BoundPort> {
    let byte = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
    let bytes = |n: Option<u64>| usize::try_from(n.unwrap_or(0)).unwrap_or(0);
    let mut config = PortConfig {
        bind: source,
        paths: u16::try_from(params.paths).unwrap_or(u16::MAX),
        source_ports: params.source_ports.clone(),
        rcvbuf: bytes(params.rcvbuf),
        sndbuf: bytes(params.sndbuf),
        gso: params.gso,
        dscp_data: byte(params.dscp_data),
        dscp_control: byte(params.dscp_control),
        dscp_trimmed: byte(params.dscp_trimmed),
        train: params.train.map_or(64, |n| n as usize),
        ..PortConfig::default()
    };
    let tries: Vec<u16> = match (source.port(), &params.port) {
        (0, None) => vec![UET_PORT, 0],
        (0, Some(ports)) => ports.clone().collect(),
        (port, _) => vec![port],
    };
    let emulator = match params.emulator.as_str() {
        "" => None,
        text => Some(text.parse::<EmulatorSpec>().map_err(|error| {
            log::warn!(target: USER, "FI_SQUALL_EMULATOR: {error}");
            Errno::INVAL
        })?),
    };
    let mut last = None;
    for port in &tries {
        config.bind.set_port(*port);
        let opened = if rails.is_empty() {
            open_port(&config, emulator.as_ref(), params.port_kind)
        } else {
            open_rails(&config, rails, key)
        };
        match opened {
            Ok((port, held, network)) => {
                let local = port.local_addr();
                return Ok(BoundPort { port, local, config, held, network });
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
    let bind = config.bind;
    match (&params.port, tries.len()) {
        (Some(ports), 2..) if error.kind() == io::ErrorKind::AddrInUse => log::warn!(
            target: USER,
            "FI_SQUALL_PORT={}-{}: every port of the range is taken at {}; each endpoint of a host needs one",
            ports.start(), ports.end(), bind.ip()
        ),
        _ if params.wire == WireKind::Uet && error.kind() == io::ErrorKind::AddrInUse => {
            log::warn!(
                target: USER,
                "FI_SQUALL_WIRE=uet: port {} is taken at {}, and every endpoint of the wire needs that port; end the \
                 process that has it (ss -lunp shows it), or give this endpoint another IP address",
                bind.port(), bind.ip()
            );
        }
        _ => log::warn!(target: USER, "cannot open an endpoint at {bind}: {error}"),
    }
    Err(error.into())
}

/// Opens a packet port on the kernel's network or on the emulator. Returns it with the size of its receive buffer in
/// bytes and the kind of network that carries its packets.
fn open_port(
    config: &PortConfig,
    emulator: Option<&EmulatorSpec>,
    kind: PortKind,
) -> io::Result<(Box<dyn Port + Send>, u64, PacketNetwork)> {
    if let Some(spec) = emulator {
        let JobPlace { rank, ranks, .. } = job_place();
        let attached = emulator::attach(spec, JobRank { rank, ranks }, config)?;
        let (welcome, port): (_, Box<dyn Port + Send>) = match attached {
            AttachedPort::Real(port) => (port.welcome().clone(), port),
            AttachedPort::Virtual(port) => {
                virtual_time::begin_process();
                (port.welcome().clone(), port)
            }
        };
        if spec.host == HostChoice::Rank && rank.is_none() {
            log::info!(
                "no launcher gave this process a rank: its endpoint is host {} of the emulated network, the next free one",
                welcome.host
            );
        }
        log::info!("{} on emulator {}: {welcome:?}", port.local_addr(), spec.path.display());
        return Ok((port, RECEIVE_BUFFER as u64, PacketNetwork::Fabric(Box::new(welcome))));
    }
    let (port, report) = UdpPort::open(config)?;
    log::info!("{report}");
    for warning in &report.warnings {
        log::warn!("{warning}");
    }
    let held = report.rcvbuf as u64;
    if kind == PortKind::Udp {
        return Ok((Box::new(port), held, PacketNetwork::Sockets));
    }
    Ok(match XdpPort::open(port, config) {
        Ok((port, report)) => {
            log::info!("{}: {report}", port.local_addr());
            (Box::new(port), report.receive_buffer, PacketNetwork::Frames)
        }
        Err(refused) => {
            let (port, why) = *refused;
            let local = port.local_addr();
            log::warn!(target: USER, "FI_SQUALL_PORT_KIND=xdp: {local} keeps its sockets: {why}");
            (Box::new(port), held, PacketNetwork::Sockets)
        }
    })
}

/// Opens a packet port on several cards.
fn open_rails(
    config: &PortConfig,
    rails: &[RailConfig],
    key: Option<&JobKey>,
) -> io::Result<(Box<dyn Port + Send>, u64, PacketNetwork)> {
    let random = secret::generator("an endpoint's cards").map_err(|_| {
        io::Error::other(
            "the system gives no random bits, so that peers could not prove their addresses",
        )
    })?;
    let (port, report) = RailPort::open(config, rails, key.cloned(), random)?;
    let names: Vec<&str> = rails.iter().map(|card| card.name.as_str()).collect();
    log::info!("{report}; cards {}", names.join(", "));
    for warning in &report.warnings {
        log::warn!(target: USER, "{warning}");
    }
    Ok((Box::new(port), report.rcvbuf as u64, PacketNetwork::Sockets))
}

/// Returns the parameters of an endpoint with `cards` network cards.
fn with_rails(params: &Params, cards: usize) -> Params {
    let mut params = params.clone();
    if cards > 1 {
        params.paths = params.paths.saturating_mul(cards as u32).min(MOST_PATHS);
        if params.lb == PathsConfig::DEFAULT && params.paths.is_power_of_two() {
            // Where switches do not mark, a selector that uses good paths again stays on the card that answered last.
            RAIL_SELECTOR.clone_into(&mut params.lb);
        }
    }
    params
}

/// Returns the parameters, with facts about the network in place of what the user left open.
fn with_network_facts(params: &Params, network: &PacketNetwork) -> Params {
    let mut params = params.clone();
    match network {
        PacketNetwork::Sockets => {}
        PacketNetwork::Frames => params.train = params.train.or(Some(FRAMED_TRAIN)),
        PacketNetwork::Fabric(network) => {
            let mtu = u64::from(network.mtu);
            params.mtu = Some(params.mtu.map_or(mtu, |asked| asked.min(mtu)));
            params.link_rate = params.link_rate.or(Some(network.rate));
            params.min_rtt = params.min_rtt.or(Some(network.base_rtt));
            params.trimming |= network.trimming;
            // There is no segmentation offload to gain anything from, and a switch feels every burst.
            params.train = Some(1);
        }
    }
    params
}

/// Returns the faults that the endpoint injects into its own traffic, if any.
fn fault_spec(params: &Params) -> Result<Option<FaultSpec>> {
    if params.fault.is_empty() {
        return Ok(None);
    }
    let spec = params.fault.parse().map_err(|error| {
        log::warn!(target: USER, "FI_SQUALL_FAULT: {error}");
        Errno::INVAL
    })?;
    Ok(Some(spec))
}

/// Returns whether an endpoint encrypts its packets.
///
/// # Errors
/// `FI_EACCES` if it must and has no job key, with a warning.
fn encrypts(params: &Params, keyed: bool) -> Result<bool> {
    match (params.tss, keyed) {
        (EncryptionPolicy::Off, _) | (EncryptionPolicy::Keyed, false) => Ok(false),
        (_, true) => Ok(true),
        (EncryptionPolicy::Required, false) => {
            log::warn!(
                target: USER,
                "FI_SQUALL_TSS=required: the endpoint has no job key to encrypt with; set FI_SQUALL_KEY_FILE, or the \
                 application's auth_key"
            );
            Err(Errno::ACCES)
        }
    }
}

/// Wraps the packet port in fault injection, capture, and encryption or a checksum, as far as the parameters ask for
/// them. The capture shows what the network sees, with faults, and with encrypted packets.
fn wrap_port(
    params: &Params,
    mut port: Box<dyn Port + Send>,
    config: &PortConfig,
    number: u32,
    (faults, dscp_trimmed, encrypts): (Option<FaultSpec>, Option<u8>, bool),
) -> Result<Box<dyn Port + Send>> {
    if let Some(spec) = faults {
        log::warn!("FI_SQUALL_FAULT={}: this endpoint damages its own traffic", params.fault);
        port = Box::new(FaultPort::new(port, spec, config));
    }
    if !params.pcap.is_empty() {
        let spec: PcapSpec = params.pcap.parse().map_err(|error| {
            log::warn!(target: USER, "FI_SQUALL_PCAP: {error}");
            Errno::INVAL
        })?;
        let capture = PcapPort::create(port, &spec, number as usize, config).map_err(|error| {
            log::warn!(target: USER, "FI_SQUALL_PCAP={}: {error}", params.pcap);
            Errno::from(error)
        })?;
        log::info!("capturing into {}", capture.path().display());
        port = Box::new(capture);
    }
    if encrypts {
        if params.crc {
            log::info!("FI_SQUALL_CRC=yes: encrypted packets have an authentication tag instead");
        }
        port = Box::new(SealPort::new(port, dscp_trimmed));
    } else if let Some(form) = wire::crc_form(params) {
        port = Box::new(CrcPort::new(port, dscp_trimmed, form));
    }
    Ok(port)
}

/// Returns the UDP payload of the largest packet that the endpoint sends, in bytes.
fn packet_size(params: &Params, nic: &Nic, v6: bool) -> usize {
    // Packets to an emulator are records of a Unix socket, which no interface limits.
    let mtu = if params.emulator.is_empty() { nic.mtu } else { u32::from(u16::MAX) };
    let limit = UdpPort::payload_limit(mtu, v6);
    let asked = params.mtu.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    if let Some(asked) = asked
        && !(SMALLEST..=limit).contains(&asked)
    {
        log::warn!(target: USER, "FI_SQUALL_MTU={asked} is out of range {SMALLEST}..={limit} of {}; using the nearest", nic.name);
    }
    asked.unwrap_or(LARGEST_AUTO).clamp(SMALLEST, limit.max(SMALLEST))
}

/// Returns the configuration of the packet delivery contexts.
fn transport_config(
    params: &Params,
    nic: &Nic,
    max_packet: u32,
    seed: u64,
    carrier: &PacketNetwork,
) -> Result<TransportConfig> {
    let in_virtual_time = carrier.virtual_time().is_some();
    let nominal = max_packet + NOMINAL_OVERHEAD;
    let rtt = params.base_rtt();
    let network = NetworkProfile::new(params.rate(nic.speed_mbps), rtt, nominal, params.trimming);
    let network = match carrier {
        // Hosts in virtual time are as regular as those of the simulator, and need no floors.
        PacketNetwork::Fabric(_) if in_virtual_time => network,
        // The round-trip time that an emulator reports includes the delays of its hosts.
        PacketNetwork::Fabric(welcome) => {
            let min_window = Some(FABRIC_PACKETS * u64::from(welcome.mtu));
            NetworkProfile { min_base_rtt: Some(rtt), min_window, ..network }
        }
        PacketNetwork::Sockets | PacketNetwork::Frames => {
            NetworkProfile { min_base_rtt: Some(rtt), min_window: Some(MIN_WINDOW), ..network }
        }
    };
    let Algorithms { sender, paths, loss, scope } = choose(params, &network)?;
    let defaults = TransportConfig::new(max_packet, sender, paths, seed);
    let rto_min = params.rto_min.unwrap_or(if in_virtual_time {
        // As in the simulator: 15 us, and six full queues of a bandwidth-delay product each.
        Span::micros(15) + Span(rtt.0 * 6)
    } else {
        Span::millis(5)
    });
    let (ack_delay, probe_min) = if in_virtual_time {
        (defaults.ack_delay.min(rtt), rtt)
    } else {
        (defaults.ack_delay, defaults.probe_min)
    };
    let rto_init = if in_virtual_time { rto_min } else { defaults.rto_init.max(rto_min) };
    // Networks made of software are to show what was simulated.
    let (ack_trigger, ack_linger) = if params.emulator.is_empty() {
        (ACK_TRIGGER, ACK_LINGER)
    } else {
        (defaults.ack_trigger, Span::ZERO)
    };
    // The queues of several cards differ by what one of them may hold.
    let several = !nic.rails.is_empty();
    let loss = LossDetection { out_of_order: loss.out_of_order && !several, ..loss };
    let config = TransportConfig {
        path_skew: if several { RAIL_SKEW } else { Span::ZERO },
        ack_linger,
        ack_delay,
        probe_min,
        rto_min,
        rto_init,
        contact_deadline: params.deadline.unwrap_or(defaults.contact_deadline),
        progress_deadline: params.deadline.unwrap_or(defaults.progress_deadline),
        idle_close: params.idle_close.unwrap_or(defaults.idle_close),
        loss,
        scope,
        ack_trigger,
        trim_enabled: params.trimming,
        train_packets: params
            .train
            .map_or(defaults.train_packets, |n| u16::try_from(n).unwrap_or(1)),
        ..defaults
    }
    .reciprocal(&network);
    config.check().map_err(|conflict| {
        log::warn!(target: USER, "parameters of squall conflict: {conflict}");
        Errno::INVAL
    })?;
    Ok(config)
}

/// The most paths of an endpoint.
const MOST_PATHS: u32 = 256;
/// Path selection of endpoints with several cards, unless the user chose one.
const RAIL_SELECTOR: &str = "bitmap";
/// The longest time by which the queue of one network card is longer than that of another: a window of 1 MiB at 1 Gb/s
/// takes 8 ms.
const RAIL_SKEW: Span = Span::millis(10);

/// The time that stands for "no limit" where a parameter is 0.
const FOR_EVER: Span = Span::secs(100 * 365 * 86400);

/// Returns the configuration of the engine (the message layer).
fn engine_config(params: &Params, max_packet: u32, instance: Instance, secret: Seed) -> Config {
    let unexpected = UnexpectedMemory::new(params, memory_limit::read());
    Config {
        max_packet,
        inject_size: limits::INJECT_SIZE as u32,
        rendezvous_threshold: params.eager_size.unwrap_or(256 << 10),
        unexpected_bytes: unexpected.bytes,
        max_outstanding: params.outstanding,
        max_unexpected: unexpected.messages as usize,
        stopped_deadline: match params.stopped_deadline {
            Some(Span::ZERO) => FOR_EVER,
            Some(deadline) => deadline,
            None => Span::secs(900),
        },
        named_only: params.peers == PeerPolicy::Named,
        ..Config::new(instance, secret)
    }
}

#[cfg(test)]
mod tests {
    use squall_base::{Batch, Span, Time, TrafficClass};
    use squall_cc::{Sender, SenderCc as _};
    use squall_net::emulator::host_overhead::HostOverhead;
    use squall_net::{Burst, RxMeta};

    use super::*;
    use crate::clock;
    use crate::host::param::tests::read;

    /// Reads parameters that are valid.
    fn valid(values: &[(&str, &str)]) -> Params {
        let (params, problems) = read(values);
        assert!(problems.is_empty(), "{problems:?}");
        params
    }

    /// Sends a data packet on each of four paths, and a control packet, from a port to itself. Returns what is known of
    /// the packets that arrived, sorted by their DSCPs and source ports.
    fn send_to_itself(port: &mut dyn Port) -> Vec<RxMeta> {
        let to = port.local_addr();
        let mut batch = Batch::default();
        for path in 0..4 {
            batch.push((to, path, TrafficClass::Data), &[1; 200], [], &[]);
        }
        batch.push((to, 0, TrafficClass::Control), &[2; 200], [], &[]);
        assert_eq!(port.send(Time::ZERO, Burst::from_copies(&batch)).sent, 5);
        let (mut arrived, begun) = (Vec::new(), clock::now());
        while arrived.len() < 5 && clock::now().since(begun) < Span::secs(10) {
            port.recv_each(Time::ZERO, 64, &mut |meta, _| arrived.push(*meta));
        }
        arrived.sort_by_key(|meta| (meta.dscp, meta.src.port()));
        arrived
    }

    fn dscps(packets: &[RxMeta]) -> Vec<u8> {
        packets.iter().map(|meta| meta.dscp).collect()
    }

    #[test]
    fn packets_have_the_source_ports_and_the_dscps_that_were_set() {
        let params = valid(&[
            ("PATHS", "4"),
            ("SOURCE_PORTS", "47700-47763"),
            ("DSCP_DATA", "10"),
            ("DSCP_CONTROL", "40"),
            ("DSCP_TRIMMED", "12"),
        ]);
        let bound =
            bind(&params, SocketAddr::from(([127, 0, 0, 1], 0)), (&[], None)).expect("a free port");
        let BoundPort { mut port, local, config, .. } = bound;
        let arrived = send_to_itself(&mut *port);
        assert_eq!(dscps(&arrived), [10, 10, 10, 10, 40]);
        // The first path has the port of the endpoint, the others have the ports that a firewall lets through.
        let mut others: Vec<u16> = arrived[..4].iter().map(|meta| meta.src.port()).collect();
        others.retain(|port| *port != local.port());
        others.dedup();
        assert_eq!(others.len(), 3, "{arrived:?}");
        assert!(others.iter().all(|port| (47700..=47763).contains(port)), "{others:?}");
        let trim = "trim=100%".parse().expect("a fault");
        let mut port = wrap_port(&params, port, &config, 0, (Some(trim), None, false))
            .expect("fault injection needs nothing");
        assert_eq!(dscps(&send_to_itself(&mut *port)), [12, 12, 12, 12, 40]);
    }

    #[test]
    fn windows_follow_the_link_rate_and_the_round_trip_time_that_were_set() {
        let window = |speed_mbps, values: &[(&str, &str)]| {
            let nic = Nic {
                prefix: 24,
                name: "eth0".to_owned(),
                ip: IpAddr::from([10, 0, 0, 1]),
                network: "10.0.0.0/24".to_owned(),
                speed_mbps,
                mtu: 9000,
                index: 2,
                running: true,
                rails: Vec::new(),
            };
            let config = transport_config(&valid(values), &nic, 8192, 1, &PacketNetwork::Sockets)
                .expect("parameters that go together");
            Sender::new(&config.cc, Time::ZERO).budget(Time::ZERO).window
        };
        // One and a half bandwidth-delay products: 100 Gb/s are 12.5 MB in a millisecond.
        assert_eq!(window(Some(100_000), &[("MIN_RTT", "1ms")]), Some(18_750_000));
        assert_eq!(window(None, &[("MIN_RTT", "1ms")]), Some(18_750_000));
        assert_eq!(window(Some(25_000), &[("MIN_RTT", "1ms")]), Some(4_687_500));
        let set = [("MIN_RTT", "2ms"), ("LINK_RATE", "25G")];
        assert_eq!(window(Some(100_000), &set), Some(9_375_000));
        // The floor is for the delays of the hosts.
        assert_eq!(window(Some(1_000), &[]), Some(MIN_WINDOW));
    }

    #[test]
    fn fixed_numbers_depend_on_the_seed_and_the_port() {
        let draw = |seed, port| {
            let rules = VirtualTimeRules {
                origin: Time::ZERO,
                start: Time::ZERO,
                shown_origin: Time::ZERO,
                calendar: 0,
                seed,
                cpu_scale: 0,
                overhead: HostOverhead::free(),
                longest_idle: Span::ZERO,
                port,
                inner_rate: squall_base::Rate(0),
            };
            let mut rng = fixed_generator(&rules);
            (rng.instance(), rng.next_u64())
        };
        assert_eq!(draw(1, 4793), draw(1, 4793));
        // Two ranks of one host differ.
        assert_ne!(draw(1, 4793).0, draw(1, 4794).0);
        assert_ne!(draw(1, 4793).1, draw(1, 4794).1);
        assert_ne!(draw(1, 4793).1, draw(2, 4793).1);
    }
}
