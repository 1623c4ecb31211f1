//! Several network cards as one port.
//!
//! A [`RailPort`] has a UDP port on each of its cards (rails) and one address, that of the first
//! card. The transport above sees one port: it sends to a peer's first card, and receives from it.
//! The port chooses the pair of cards that carries a packet by the packet's path, so that a path is
//! a card of this endpoint, a card of the peer, and a source port. Path selection and congestion
//! control therefore treat a slow or dead card as they treat a slow or dead path.
//!
//! Endpoints find out themselves which cards reach each other (`table.rs`). A pair of cards that
//! has not been proved carries no data. A pair whose packets are not answered is left while others
//! work, and is used again when it answers.

mod table;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use squall_wire::{Handshake, Packet, PdsType, RailList, RailPacket};

use crate::base::{Batch, Datagram, JobKey, SecretRng, Time, TrafficClass, Train};
use crate::port::RailReport;
use crate::{
    Burst, Counters, NetError, OpenReport, Port, PortConfig, RecvReport, RxMeta, SendReport,
    UdpPort,
};
use table::{RailTable, Route};

pub use squall_wire::MAX_RAILS;

/// Number of attempts to find a UDP port that is free on all cards.
const ATTEMPTS: usize = 16;
/// Number of calls that receive from one card before the others are polled, too.
const CARD_TURNS: u32 = 4;

/// A network card of an endpoint with several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailConfig {
    /// Name of the interface, for messages.
    pub name: String,
    /// The interface's address, of the same family as that of the first card.
    pub ip: IpAddr,
    /// The kernel's index of the interface.
    pub index: u32,
    /// Speed of the card in Mb/s; 0 if unknown.
    pub mbps: u32,
}

/// The UDP sockets of one endpoint on several network cards.
pub struct RailPort {
    rails: Vec<UdpPort>,
    configs: Vec<RailConfig>,
    table: RailTable,
    /// Number of datagrams that each card's socket had dropped at its last packet.
    overflow: Vec<u32>,
    /// Card and path pairs that have no socket with the source port of the first card's path.
    unavailable: HashSet<(usize, u16)>,
    /// Copies of datagrams with the address of another card as destination.
    redirected: Vec<Datagram>,
    /// Packets about cards that are sent.
    own: Batch,
    /// Card that is polled first: the one that received last.
    preferred: usize,
    turns: u32,
    /// Path of the next packet about cards.
    next_path: u16,
    paths: u16,
    now: Time,
    errors: Vec<NetError>,
}

impl RailPort {
    /// Opens a UDP port of one number on all cards. `config.bind` has the address of the first card.
    /// A card whose address cannot be used is left out, with a warning in the report.
    ///
    /// # Errors
    /// `InvalidInput` for fewer than two cards, more than [`MAX_RAILS`], one card twice, or cards of
    /// IPv4 and of IPv6; otherwise as [`UdpPort::open`].
    pub fn open(
        config: &PortConfig,
        cards: &[RailConfig],
        key: Option<JobKey>,
        random: SecretRng,
    ) -> io::Result<(Self, OpenReport)> {
        check(config, cards)?;
        let mut attempt = 0;
        let (rails, configs, report) = loop {
            attempt += 1;
            match open_cards(config, cards) {
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && config.bind.port() == 0
                        && attempt < ATTEMPTS => {}
                opened => break opened?,
            }
        };
        let mut list = RailList::default();
        for card in &configs {
            list.push(card.ip, card.mbps);
        }
        let port = Self {
            table: RailTable::new(list, rails[0].local_addr().port(), key, random),
            overflow: vec![0; rails.len()],
            unavailable: HashSet::new(),
            redirected: Vec::new(),
            own: Batch::default(),
            preferred: 0,
            turns: 0,
            next_path: 0,
            paths: config.paths,
            now: Time::ZERO,
            errors: Vec::new(),
            rails,
            configs,
        };
        Ok((port, report))
    }

    /// Opens a socket for `path` on a further card, with the source port that the path has on the
    /// first card: the authentication tag of encrypted packets covers the port. Returns false if
    /// there is no such socket.
    #[inline]
    fn prepare_path(&mut self, local: usize, path: u16) -> bool {
        let port = self.rails[0].open_source_port(path);
        if self.rails[local].source_port(path) == port {
            return true;
        }
        self.open_path(local, path, port)
    }

    #[cold]
    fn open_path(&mut self, local: usize, path: u16, port: u16) -> bool {
        if self.unavailable.contains(&(local, path)) {
            return false;
        }
        if let Err(error) = self.rails[local].open_path_at(path, port) {
            log::debug!(
                "path {path} of card {} has no source port {port}: {error}; it uses card {}",
                self.configs[local].name,
                self.configs[0].name
            );
            self.unavailable.insert((local, path));
            return false;
        }
        true
    }

    /// Returns the route of a packet.
    #[inline]
    fn route(&mut self, now: Time, burst: Burst<'_>, packet: &Datagram) -> Route {
        let handshake = packet.class == TrafficClass::Control && is_handshake(burst.header(packet));
        let route = if handshake {
            self.table.handshake_route(now, packet.dst, packet.path)
        } else {
            self.table.route(now, packet.dst, packet.path)
        };
        if route.local > 0 && !self.prepare_path(route.local, packet.path) {
            return Route { local: 0, to: packet.dst };
        }
        route
    }

    /// Does what is due, sends the packets about cards that wait, and reports changes.
    fn serve(&mut self, now: Time) {
        if now >= self.table.next_tick() {
            self.table.tick(now);
        }
        while let Some((route, packet)) = self.table.pop_packet() {
            self.send_own(now, route, &packet);
        }
        while let Some(event) = self.table.pop_event() {
            log::info!(
                "peer {}: the way from card {} to {} {}",
                event.peer,
                self.configs[event.local].name,
                event.remote,
                event.text
            );
        }
    }

    fn send_own(&mut self, now: Time, route: Route, packet: &RailPacket) {
        let mut bytes = [0; RailPacket::LEN];
        packet.emit(&mut bytes);
        // Each question goes another way through the network.
        let path = self.next_path;
        self.next_path = (self.next_path + 1) % self.paths.max(1);
        let path = if self.prepare_path(route.local, path) { path } else { 0 };
        self.own.clear();
        self.own.push((route.to, path, TrafficClass::Control), &bytes, [], &[]);
        // A full socket loses the packet, as a network does; it is repeated.
        self.rails[route.local].send(now, Burst::from_copies(&self.own));
    }
}

impl Port for RailPort {
    fn send(&mut self, now: Time, burst: Burst<'_>) -> SendReport {
        self.now = now;
        let packets = burst.packets();
        let mut report = SendReport::default();
        while report.sent < packets.len() {
            let rest = burst.part(report.sent..packets.len());
            let first = &packets[report.sent];
            let mut route = self.route(now, burst, first);
            let (local, mut dst, mut count, mut same) = (route.local, first.dst, 0, true);
            self.redirected.clear();
            for (packet, run) in rest.groups() {
                if packet.path != first.path {
                    break;
                }
                if packet.dst != dst {
                    route = self.route(now, burst, packet);
                    dst = packet.dst;
                }
                if route.local != local {
                    break;
                }
                let part = &rest.packets()[count..count + run];
                same &= route.to == dst;
                self.redirected
                    .extend(part.iter().map(|packet| Datagram { dst: route.to, ..packet.clone() }));
                count += run;
            }
            let part = rest.part(0..count);
            let part = if same { part } else { part.with_packets(&self.redirected) };
            let sent = self.rails[local].send(now, part);
            report += sent;
            if sent.sent < count {
                break;
            }
        }
        if now >= self.table.next_tick() {
            self.serve(now);
        }
        report
    }

    fn recv(
        &mut self,
        now: Time,
        budget: usize,
        sink: &mut dyn FnMut(&RxMeta, Train<'_>),
    ) -> RecvReport {
        self.now = now;
        let mut report = RecvReport { empty: true, ..RecvReport::default() };
        let first = self.preferred;
        self.turns = self.turns.wrapping_add(1);
        let Self { rails, table, overflow, preferred, .. } = self;
        let count = rails.len();
        for step in 0..count {
            let local = (first + step) % count;
            let mut arrival = |meta: &RxMeta, train: Train<'_>| {
                overflow[local] = meta.overflow;
                let is_control = |bytes: &[u8]| {
                    bytes.first().is_some_and(|b| b >> 3 == PdsType::Control.to_u8())
                };
                if train.peek().is_some_and(|b| is_control(b) && RailPacket::is_rail_packet(b)) {
                    for bytes in train {
                        match RailPacket::read(bytes) {
                            Ok(packet) => table.handle_packet(now, local, meta.src, &packet),
                            Err(_) => table.refused += 1,
                        }
                    }
                    return;
                }
                let src = table.record_arrival(now, local, meta.src);
                let overflow = overflow.iter().fold(0, |sum: u32, n| sum.wrapping_add(*n));
                sink(&RxMeta { src, overflow, ..*meta }, train);
            };
            let part = rails[local].recv(now, budget.saturating_sub(report.packets), &mut arrival);
            report.packets += part.packets;
            report.trains += part.trains;
            report.bytes += part.bytes;
            report.empty &= part.empty;
            if part.packets > 0 {
                *preferred = local;
                if report.packets >= budget || step == 0 && !self.turns.is_multiple_of(CARD_TURNS) {
                    // The other cards are polled in a later call.
                    report.empty = false;
                    break;
                }
            }
        }
        if report.packets > 0 || now >= self.table.next_tick() {
            self.serve(now);
        }
        report
    }

    fn local_addr(&self) -> SocketAddr {
        self.rails[0].local_addr()
    }

    fn source_port(&self, path: u16) -> u16 {
        self.rails[0].source_port(path)
    }

    fn open_source_port(&mut self, path: u16) -> u16 {
        self.rails[0].open_source_port(path)
    }

    fn fds(&self, into: &mut Vec<RawFd>) {
        for rail in &self.rails {
            rail.fds(into);
        }
    }

    fn take_errors(&mut self, into: &mut Vec<NetError>) {
        for local in 0..self.rails.len() {
            self.rails[local].take_errors(&mut self.errors);
            if self.errors.is_empty() {
                continue;
            }
            for error in self.errors.drain(..) {
                let to = error.peer();
                let peer = match error {
                    NetError::TooBig { .. } => Some(self.table.first_address(to)),
                    _ => self.table.handle_error(self.now, local, to),
                };
                match peer {
                    Some(peer) => into.push(error.with_peer(peer)),
                    None => log::debug!("card {}: {error}", self.configs[local].name),
                }
            }
        }
    }

    fn path_mtu(&mut self, dst: SocketAddr) -> io::Result<u32> {
        let mut mtu = self.rails[0].path_mtu(dst);
        for Route { local, to } in self.table.routes(dst) {
            // A card without a route carries no packets, so it limits none.
            if let Ok(other) = self.rails[local].path_mtu(to) {
                mtu = Ok(mtu.map_or(other, |mtu| mtu.min(other)));
            }
        }
        mtu
    }

    fn next_deadline(&self) -> Option<Time> {
        Some(self.table.next_tick()).filter(|at| *at < Time::NEVER)
    }

    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for rail in &self.rails {
            counters.merge(&rail.counters());
        }
        counters.rx_rails_refused = self.table.refused;
        counters.tx_rails_dropped = self.table.dropped;
        counters
    }

    fn rails(&self) -> Vec<RailReport> {
        let of = |(rail, config): (&UdpPort, &RailConfig)| {
            let Counters { tx_packets, tx_bytes, rx_packets, rx_bytes, .. } = rail.counters();
            RailReport {
                name: config.name.clone(),
                ip: config.ip,
                tx_packets,
                tx_bytes,
                rx_packets,
                rx_bytes,
            }
        };
        self.rails.iter().zip(&self.configs).map(of).collect()
    }
}

/// Returns whether a packet belongs to the handshake of two endpoints.
#[cold]
fn is_handshake(bytes: &[u8]) -> bool {
    match squall_wire::parse(bytes) {
        Ok(Packet::Negotiation { values, .. }) => matches!(Handshake::read(values), Ok(Some(_))),
        _ => false,
    }
}

fn check(config: &PortConfig, cards: &[RailConfig]) -> io::Result<()> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if !(2..=MAX_RAILS).contains(&cards.len()) {
        return invalid(format!(
            "an endpoint with {} cards: the number is out of range 2..={MAX_RAILS}",
            cards.len()
        ));
    }
    if cards[0].ip != config.bind.ip() {
        let (first, bind) = (cards[0].ip, config.bind.ip());
        return invalid(format!("the first card has address {first}, and the endpoint {bind}"));
    }
    for (at, card) in cards.iter().enumerate() {
        if card.ip.is_ipv4() != config.bind.is_ipv4() {
            let RailConfig { name, ip, .. } = card;
            return invalid(format!(
                "card {name} has address {ip} of another family than {}; name cards of IPv4 or of IPv6 alone",
                config.bind.ip()
            ));
        }
        if let Some(other) = cards[..at].iter().find(|other| other.ip == card.ip) {
            return invalid(format!("cards {} and {} are one: {}", other.name, card.name, card.ip));
        }
    }
    Ok(())
}

/// Opens the UDP ports of all cards, with one port number.
fn open_cards(
    config: &PortConfig,
    cards: &[RailConfig],
) -> io::Result<(Vec<UdpPort>, Vec<RailConfig>, OpenReport)> {
    let of = |card: &RailConfig, port: u16| PortConfig {
        bind: SocketAddr::new(card.ip, port),
        interface: Some(card.index),
        ..config.clone()
    };
    let first = PortConfig { bind: config.bind, ..of(&cards[0], 0) };
    let (first, mut report) = UdpPort::open(&first)?;
    let number = first.local_addr().port();
    let (mut rails, mut configs) = (vec![first], vec![cards[0].clone()]);
    for card in &cards[1..] {
        match UdpPort::open(&of(card, number)) {
            Ok((rail, _)) => {
                rails.push(rail);
                configs.push(card.clone());
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => report.warnings.push(format!(
                "card {} ({}) is not used: {error}; see ip address show dev {}",
                card.name, card.ip, card.name
            )),
        }
    }
    report.rcvbuf = report.rcvbuf.saturating_mul(rails.len());
    Ok((rails, configs, report))
}
