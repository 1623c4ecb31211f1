//! An attacker on the path between two endpoints that encrypt. It sees every packet and keeps all of
//! them, replays them one by one or as whole conversations, returns and forwards them, also from an
//! address of its own, damages and combines them, and forges handshakes and packets in the clear.

use std::net::SocketAddr;

use squall_base::Rng;
use squall_engine::PacketMarks;
use squall_wire::{Handshake, Packet, Reason, Stage, Tss, WIRE_VERSION, parse};

use super::off_path::OffPath;
use super::on_path::{OnPath, relayed};
use crate::world::{Seen, World};

/// Number of packets that the attacker keeps.
const KEPT: usize = 20_000;
/// Number of packets before the last one that count as recent.
const RECENT: u32 = 64;

pub(super) struct SealedPath {
    rng: Rng,
    /// Whether the attacker forges handshakes, which can end operations.
    forges: bool,
    /// Whether the attacker returns and forwards handshakes, also from an address of its own.
    relays: bool,
    /// Packets that were seen, in order.
    seen: Vec<Seen>,
    /// Positions of handshake packets in `seen`.
    handshakes: Vec<usize>,
    /// A conversation that is being replayed: position of the next packet, and end.
    replay: (usize, usize),
    /// Generators of packets in the clear.
    clear: (OnPath, OffPath),
}

impl SealedPath {
    pub(super) fn new(forges: bool, relays: bool, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clear = (OnPath::new(rng.next_u64()), OffPath::new(rng.next_u64()));
        Self { rng, forges, relays, seen: vec![], handshakes: vec![], replay: (0, 0), clear }
    }

    /// Reads the packets that were sent since the last call.
    ///
    /// # Panics
    /// Panics if one of them is in the clear and belongs to no handshake.
    pub(super) fn observe(&mut self, world: &mut World) {
        let Some(tap) = &mut world.tap else { return };
        for packet in tap.drain(..) {
            if self.seen.len() == KEPT {
                break;
            }
            if handshake(&packet.bytes).is_some() {
                self.handshakes.push(self.seen.len());
            } else {
                let sealed = matches!(parse(&packet.bytes), Ok(Packet::Tss { .. }));
                assert!(sealed, "a packet left in the clear: {:?}", packet.bytes);
            }
            self.seen.push(packet);
        }
    }

    /// Builds a packet, if any was seen.
    pub(super) fn strike(&mut self, world: &mut World) -> Option<(Seen, PacketMarks)> {
        self.observe(world);
        if self.seen.is_empty() {
            return None;
        }
        let marks = PacketMarks { ce: self.rng.chance(0.1), trimmed: self.rng.chance(0.03) };
        let (next, end) = self.replay;
        if next < end {
            self.replay.0 += 1;
            return Some((self.seen[next].clone(), PacketMarks { trimmed: false, ..marks }));
        }
        if self.rng.chance(0.02) {
            self.replay = self.conversation();
        }
        let packet = match self.rng.below(100) {
            0..=19 => self.any().clone(),
            20..=29 => {
                let packet = self.any_handshake()?.clone();
                let relays = self.relays && self.rng.chance(0.5);
                if relays { relayed(&mut self.rng, &packet, world)? } else { packet }
            }
            30..=39 => self.reflected(world)?,
            40..=64 => self.damaged(),
            65..=72 => self.readdressed(),
            73..=79 => self.combined(),
            80..=89 => return self.clear(world),
            _ if self.forges => self.forged_handshake(world)?,
            _ => self.any_handshake()?.clone(),
        };
        Some((packet, marks))
    }

    /// Draws a packet, half of the time a recent one.
    fn any(&mut self) -> &Seen {
        let all = self.seen.len() as u32;
        let back = if self.rng.chance(0.5) { all } else { all.min(RECENT) };
        &self.seen[(all - 1 - self.rng.below(back)) as usize]
    }

    fn any_handshake(&mut self) -> Option<&Seen> {
        let all = self.handshakes.len() as u32;
        let recent = if self.rng.chance(0.5) { all } else { all.min(8) };
        let back = self.rng.below(recent.max(1));
        let at = self.handshakes.get((all.checked_sub(1)? - back) as usize)?;
        self.seen.get(*at)
    }

    /// Draws a part of what was seen that begins with a handshake or anywhere.
    fn conversation(&mut self) -> (usize, usize) {
        let begin = if self.rng.chance(0.6) && !self.handshakes.is_empty() {
            self.handshakes[self.rng.below(self.handshakes.len() as u32) as usize]
        } else {
            self.rng.below(self.seen.len() as u32) as usize
        };
        let len = 5 + self.rng.below(200) as usize;
        (begin, self.seen.len().min(begin + len))
    }

    /// Returns a packet to its sender.
    fn reflected(&mut self, world: &World) -> Option<Seen> {
        let Seen { src, dst, bytes } = self.any().clone();
        let sender = world.hosts.iter().find(|host| host.addr.ip() == src.ip())?.addr;
        let port = if self.rng.chance(0.5) { src.port() } else { dst.port() };
        Some(Seen { src: SocketAddr::new(dst.ip(), port), dst: sender, bytes })
    }

    /// Changes bits of a packet, or its length.
    fn damaged(&mut self) -> Seen {
        let mut packet = self.any().clone();
        // Without this, damaged handshakes could end operations.
        if !self.forges && handshake(&packet.bytes).is_some() {
            return packet;
        }
        let len = packet.bytes.len() as u32;
        match self.rng.below(6) {
            0 => packet.bytes.truncate(self.rng.below(len + 1) as usize),
            1 => packet.bytes.truncate([24, 36, 64][self.rng.below(3) as usize]),
            2 => {
                let more = 1 + self.rng.below(40);
                packet.bytes.extend((0..more).map(|_| self.rng.next_u32() as u8));
            }
            3 => self.change_header(&mut packet.bytes),
            _ => {
                let end = if self.rng.chance(0.5) { len } else { len.min(40) };
                for _ in 0..1 + self.rng.below(3) {
                    let at = self.rng.below(end) as usize;
                    packet.bytes[at] ^= 1 << self.rng.below(8);
                }
            }
        }
        packet
    }

    /// Changes a field of the TSS header to a value that is plausible.
    fn change_header(&mut self, bytes: &mut [u8]) {
        let Ok(mut header) = Tss::read(bytes) else { return };
        let Some(len) = header.ssi.map(|_| Tss::LEN_SSI).filter(|len| *len <= bytes.len()) else {
            return;
        };
        match self.rng.below(5) {
            0 => header.tsc = header.tsc.wrapping_add(u64::from(1 + self.rng.below(100))),
            1 => header.tsc ^= 1 << self.rng.below(64),
            2 => header.sdi ^= 1 << self.rng.below(24),
            3 => header.ssi = header.ssi.map(|ssi| ssi ^ 1 << 31),
            _ => header.key ^= true,
        }
        header.emit(&mut bytes[..len]);
    }

    /// Moves a packet to another path, or lets it come from another host.
    fn readdressed(&mut self) -> Seen {
        let mut packet = self.any().clone();
        let port = 40_000 + self.rng.below(20) as u16;
        packet.src.set_port(port);
        if self.rng.chance(0.1) {
            packet.src = SocketAddr::from(([10, 0, 0, 9], port));
        }
        packet
    }

    /// Combines the beginning of a packet with the end of another.
    fn combined(&mut self) -> Seen {
        let (mut packet, other) = (self.any().clone(), self.any().clone());
        if handshake(&packet.bytes).is_some() {
            return packet;
        }
        let cuts = [Tss::LEN_SSI, packet.bytes.len().saturating_sub(Tss::ICV_LEN)];
        let cut = match self.rng.below(3) {
            n @ 0..2 => cuts[n as usize],
            _ => self.rng.below(packet.bytes.len() as u32) as usize,
        };
        let cut = cut.min(packet.bytes.len()).min(other.bytes.len());
        packet.bytes.truncate(cut);
        packet.bytes.extend_from_slice(&other.bytes[cut..]);
        packet
    }

    /// Builds a packet in the clear from the content of one that was encrypted, which a real
    /// attacker would have to guess, or without any knowledge.
    fn clear(&mut self, world: &mut World) -> Option<(Seen, PacketMarks)> {
        let (knowing, guessing) = &mut self.clear;
        let strike = if self.rng.chance(0.3) {
            guessing.strike(world)
        } else {
            knowing.vary(world.audit.plain.as_ref()?, world)?
        };
        // Handshakes are forged elsewhere, by attackers who may.
        Some(strike).filter(|(packet, _)| handshake(&packet.bytes).is_none())
    }

    /// Changes fields of a handshake packet, or takes them from another one.
    fn forged_handshake(&mut self, world: &World) -> Option<Seen> {
        let mut packet = self.any_handshake()?.clone();
        let mut forged = handshake(&packet.bytes)?;
        let other = handshake(&self.any_handshake()?.bytes)?;
        let rng = &mut self.rng;
        for _ in 0..1 + rng.below(2) {
            match rng.below(12) {
                0 => forged.stage = Stage::from_u8(1 + rng.below(5) as u8)?,
                1 => forged.reason = Reason::from_u8(rng.below(8) as u8)?,
                2 => forged.version = [WIRE_VERSION - 1, 2, 9][rng.below(3) as usize],
                3 => forged.capabilities ^= 1 << rng.below(3),
                4 => forged.instance = other.instance,
                5 => forged.instance ^= 1 << rng.below(32),
                6 => forged.nonce = other.nonce,
                7 => forged.cookie = other.cookie,
                8 => forged.proof = other.proof,
                9 => forged.expected = [0, other.instance, rng.next_u32()][rng.below(3) as usize],
                10 => forged.nonce = rng.next_u64(),
                _ => forged.port = [forged.port, other.port, 7][rng.below(3) as usize],
            }
        }
        let mut out = [0; Handshake::LEN];
        let len = forged.emit(&mut out);
        packet.bytes = out[..len].to_vec();
        if rng.chance(0.2) {
            let sender = world.hosts.iter().find(|host| host.addr.ip() == packet.src.ip())?.addr;
            (packet.src, packet.dst) = (SocketAddr::new(packet.dst.ip(), 40_001), sender);
        }
        Some(packet)
    }
}

/// Reads a packet of a handshake.
fn handshake(bytes: &[u8]) -> Option<Handshake> {
    match parse(bytes) {
        Ok(Packet::Negotiation { values, .. }) => Handshake::read(values).ok().flatten(),
        _ => None,
    }
}
