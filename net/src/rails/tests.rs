use std::collections::BTreeSet;

use super::table::{FIRST_WAIT, MAX_OUT, RailTable, Route, sample_interval};
use super::*;
use crate::base::Span;
use crate::burst::tests::{Sample, send};

const PORT: u16 = 4793;

fn ip(host: u8, card: u8) -> IpAddr {
    IpAddr::from([10, 0, card, host])
}

fn first(host: u8) -> SocketAddr {
    SocketAddr::new(ip(host, 0), PORT)
}

fn table(host: u8, cards: u8, key: Option<&[u8; 16]>, seed: u8) -> RailTable {
    let mut list = RailList::default();
    for card in 0..cards {
        list.push(ip(host, card), 0);
    }
    let random = SecretRng::from_seed([seed; 32]);
    RailTable::new(list, PORT, key.map(|key| JobKey::new(key)), random)
}

/// A network that carries the tables' packets, and data that each host acknowledges.
struct World {
    now: Time,
    hosts: Vec<(u8, RailTable)>,
    /// Pairs of addresses between which every packet is lost.
    cut: BTreeSet<(IpAddr, IpAddr)>,
    /// An address that another host has taken, with its number there.
    taken: Option<(IpAddr, (usize, usize))>,
    /// A host opened another endpoint at its addresses, which knows no further card of its peer at first.
    restarted: bool,
    /// Packets about cards, by address of the receiver.
    carried: Vec<(IpAddr, IpAddr, RailPacket)>,
}

impl World {
    fn new(hosts: Vec<(u8, RailTable)>) -> Self {
        let (now, cut, carried) = (Time(1 << 40), BTreeSet::new(), Vec::new());
        Self { now, hosts, cut, taken: None, restarted: false, carried }
    }

    fn cut(&mut self, a: IpAddr, b: IpAddr) {
        self.cut.extend([(a, b), (b, a)]);
    }

    /// Returns the host and card that have an address.
    fn owner(&self, ip: IpAddr) -> Option<(usize, usize)> {
        if let Some((_, owner)) = self.taken.filter(|(taken, _)| *taken == ip) {
            return Some(owner);
        }
        let IpAddr::V4(v4) = ip else { return None };
        let [_, _, card, host] = v4.octets();
        let at = self.hosts.iter().position(|(number, _)| *number == host)?;
        Some((at, usize::from(card)))
    }

    /// Delivers the packets about cards until there are none.
    fn settle(&mut self) {
        loop {
            let mut any = false;
            for at in 0..self.hosts.len() {
                while let Some((route, packet)) = self.hosts[at].1.pop_packet() {
                    any = true;
                    let own = ip(self.hosts[at].0, route.local as u8);
                    let from = self.taken.filter(|(_, owner)| *owner == (at, route.local));
                    let from = from.map_or(own, |(taken, _)| taken);
                    self.carried.push((from, route.to.ip(), packet));
                    if self.cut.contains(&(from, route.to.ip())) {
                        continue;
                    }
                    let Some((to, card)) = self.owner(route.to.ip()) else { continue };
                    let src = SocketAddr::new(from, PORT);
                    self.now = Time(self.now.0 + 1000);
                    self.hosts[to].1.handle_packet(self.now, card, src, &packet);
                }
            }
            if !any {
                return;
            }
        }
    }

    /// Sends a packet on each of eight paths from host `a` to host `b`, which are acknowledged on the same paths,
    /// every half millisecond for `span`.
    fn talk(&mut self, a: usize, b: usize, span: Span) {
        let end = Time(self.now.0 + span.0);
        let (first_a, first_b) = (first(self.hosts[a].0), first(self.hosts[b].0));
        while self.now < end {
            for path in 0..8 {
                for (from, to, dst) in [(a, b, first_b), (b, a, first_a)] {
                    let route = self.hosts[from].1.route(self.now, dst, path);
                    let source = ip(self.hosts[from].0, route.local as u8);
                    if self.cut.contains(&(source, route.to.ip())) {
                        break;
                    }
                    let Some((_, card)) = self.owner(route.to.ip()) else { break };
                    let src = SocketAddr::new(source, 1);
                    let known = self.hosts[to].1.record_arrival(self.now, card, src);
                    let expected = if from == a { first_a } else { first_b };
                    if self.restarted && known == src && known.ip() != expected.ip() {
                        // From an unknown address, as far as the transport can tell.
                        break;
                    }
                    assert_eq!(known.ip(), expected.ip(), "from {source}");
                }
            }
            for (_, table) in &mut self.hosts {
                if self.now >= table.next_tick() {
                    table.tick(self.now);
                }
            }
            self.settle();
            self.now = Time(self.now.0 + 500_000);
        }
    }

    /// Returns the pairs of cards that carry the eight paths from a host to another.
    fn pairs(&mut self, a: usize, b: usize) -> Vec<(usize, u8)> {
        let dst = first(self.hosts[b].0);
        (0..8)
            .map(|path| {
                let Route { local, to } = self.hosts[a].1.route(self.now, dst, path);
                let IpAddr::V4(v4) = to.ip() else { panic!("{to}") };
                (local, v4.octets()[2])
            })
            .collect()
    }
}

fn two(cards: u8) -> World {
    World::new(vec![(1, table(1, cards, None, 1)), (2, table(2, cards, None, 2))])
}

fn distinct(pairs: &[(usize, u8)]) -> usize {
    pairs.iter().collect::<BTreeSet<_>>().len()
}

#[test]
fn all_pairs_of_cards_are_found_and_every_card_gets_its_share() {
    for cards in [2, 4] {
        let mut world = two(cards);
        assert_eq!(world.pairs(0, 1), [(0, 0); 8], "at first there is one");
        world.talk(0, 1, Span::millis(50));
        for (a, b) in [(0, 1), (1, 0)] {
            let pairs = world.pairs(a, b);
            for card in 0..usize::from(cards) {
                let share = 8 / usize::from(cards);
                assert_eq!(pairs.iter().filter(|pair| pair.0 == card).count(), share, "{pairs:?}");
                let remote = pairs.iter().filter(|pair| usize::from(pair.1) == card);
                assert_eq!(remote.count(), share, "{pairs:?}");
            }
        }
    }
}

#[test]
fn networks_that_do_not_reach_each_other_are_left_alone() {
    let mut world = two(2);
    world.cut(ip(1, 0), ip(2, 1));
    world.cut(ip(1, 1), ip(2, 0));
    world.talk(0, 1, Span::millis(500));
    for (a, b) in [(0, 1), (1, 0)] {
        let pairs = world.pairs(a, b);
        let both: BTreeSet<_> = pairs.iter().copied().collect();
        assert_eq!(both, BTreeSet::from([(0, 0), (1, 1)]));
    }
}

/// The kernel drops packets to a neighbour until it knows the hardware address.
#[test]
fn cards_whose_first_questions_are_lost_are_used_soon() {
    let mut world = two(2);
    for card in 0..2 {
        world.cut(ip(1, card), ip(2, 1));
    }
    world.talk(0, 1, Span::millis(700));
    world.cut.clear();
    world.talk(0, 1, Span::millis(700));
    assert_eq!(distinct(&world.pairs(0, 1)), 4);
}

#[test]
fn a_dead_card_is_left_within_30_ms_and_used_again_within_a_second() {
    let mut world = two(2);
    world.talk(0, 1, Span::millis(50));
    for other in [ip(2, 0), ip(2, 1)] {
        world.cut(ip(1, 1), other);
    }
    world.talk(0, 1, Span::millis(30));
    for (a, b) in [(0, 1), (1, 0)] {
        let pairs = world.pairs(a, b);
        assert!(
            !pairs.iter().any(|pair| if a == 0 { pair.0 == 1 } else { pair.1 == 1 }),
            "{pairs:?}"
        );
    }
    world.talk(0, 1, Span::secs(3));
    world.cut.clear();
    world.talk(0, 1, Span::millis(900));
    for (a, b) in [(0, 1), (1, 0)] {
        assert_eq!(distinct(&world.pairs(a, b)), 4);
    }
}

#[test]
fn a_dead_card_is_left_after_a_pause_in_which_nobody_looked() {
    let mut world = two(2);
    world.talk(0, 1, Span::millis(50));
    // Packets that are sent last before the pause, whose answers come in it.
    for (a, b) in [(0, 1), (1, 0)] {
        let _ = world.pairs(a, b);
    }
    world.now += Span::secs(3);
    for (_, table) in &mut world.hosts {
        table.tick(world.now);
    }
    for other in [ip(2, 0), ip(2, 1)] {
        world.cut(ip(1, 1), other);
    }
    world.talk(0, 1, Span::millis(30));
    assert!(world.pairs(0, 1).iter().all(|pair| pair.0 == 0), "{:?}", world.pairs(0, 1));
}

/// After losses a transport sends only a packet from time to time, on any path. Its acknowledgements are too rare to show
/// that the other card works, so the answers to questions have to.
#[test]
fn a_dead_card_is_left_although_little_is_sent() {
    let mut world = two(2);
    world.talk(0, 1, Span::millis(50));
    for other in [ip(2, 0), ip(2, 1)] {
        world.cut(ip(1, 1), other);
    }
    for path in 0..8 {
        let Route { local, to } = world.hosts[0].1.route(world.now, first(2), path);
        if local == 0 {
            let card = usize::from(to.ip() == ip(2, 1));
            world.hosts[1].1.record_arrival(world.now, card, SocketAddr::new(ip(1, 0), 1));
        }
        for _ in 0..50 {
            let now = world.now;
            for (_, table) in world.hosts.iter_mut().filter(|(_, table)| now >= table.next_tick()) {
                table.tick(now);
            }
            world.settle();
            world.now += Span::millis(2);
        }
    }
    assert!(world.pairs(0, 1).iter().all(|pair| pair.0 == 0), "{:?}", world.pairs(0, 1));
}

#[test]
fn the_first_card_may_die_too() {
    let mut world = two(2);
    world.talk(0, 1, Span::millis(50));
    for other in [ip(2, 0), ip(2, 1)] {
        world.cut(ip(1, 0), other);
    }
    world.talk(0, 1, Span::millis(30));
    assert!(world.pairs(0, 1).iter().all(|pair| pair.0 == 1));
    let hello = world.hosts[0].1.handshake_route(world.now, first(2), 0);
    assert_eq!(hello.local, 1, "handshakes leave the dead card, too");
    world.cut.clear();
    world.talk(0, 1, Span::millis(900));
    let hello = world.hosts[0].1.handshake_route(world.now, first(2), 1);
    assert_eq!(hello, Route { local: 0, to: first(2) });
}

#[test]
fn a_peer_that_stops_loses_no_card() {
    let mut world = two(2);
    world.talk(0, 1, Span::millis(50));
    for card in 0..2 {
        for other in 0..2 {
            world.cut(ip(1, card), ip(2, other));
        }
    }
    while world.hosts.iter_mut().any(|(_, table)| table.pop_event().is_some()) {}
    world.talk(0, 1, Span::secs(1));
    let events: Vec<_> =
        world.hosts.iter_mut().filter_map(|(_, table)| table.pop_event()).collect();
    assert_eq!(events, []);
    world.cut.clear();
    assert_eq!(distinct(&world.pairs(0, 1)), 4);
}

#[test]
fn a_job_key_must_be_the_same() {
    let (one, other) = (b"0123456789abcdef", b"0123456789abcdeg");
    for (mine, theirs, pairs) in [
        (Some(one), Some(one), 4),
        (Some(one), Some(other), 1),
        (Some(one), None, 1),
        (None, Some(one), 1),
    ] {
        let mut world = World::new(vec![(1, table(1, 2, mine, 1)), (2, table(2, 2, theirs, 2))]);
        world.talk(0, 1, Span::millis(50));
        assert_eq!((distinct(&world.pairs(0, 1)), distinct(&world.pairs(1, 0))), (pairs, pairs));
    }
}

/// An enemy sends the packets that it has seen, from elsewhere and to others.
#[test]
fn packets_of_others_open_no_way() {
    let key = Some(b"0123456789abcdef");
    for key in [None, key] {
        let mut world = World::new(vec![
            (1, table(1, 2, key, 1)),
            (2, table(2, 2, key, 2)),
            (3, table(3, 2, key, 3)),
        ]);
        world.talk(0, 1, Span::millis(50));
        let seen = std::mem::take(&mut world.carried);
        let (enemy, now) = (SocketAddr::from(([10, 0, 1, 66], PORT)), world.now);
        for (from, to, packet) in seen {
            for at in 0..3 {
                for card in 0..2 {
                    // From elsewhere, back to who sent it, and to another endpoint than it was for.
                    let from = SocketAddr::new(from, PORT);
                    let own = world.owner(to) == Some((at, card));
                    for src in [Some(enemy), (!own).then_some(from)].into_iter().flatten() {
                        let (_, table) = &mut world.hosts[at];
                        let before = table.refused;
                        table.handle_packet(now, card, src, &packet);
                        // Without a key, a question gets its answer from anybody.
                        assert!(key.is_none() || table.refused == before + 1, "{packet:?}");
                    }
                }
            }
        }
        for at in 0..3 {
            let (_, table) = &mut world.hosts[at];
            assert_eq!(table.record_arrival(now, 0, enemy), enemy, "the enemy is nobody");
            for route in
                (0..64).map(|path| table.route(now, first(if at == 0 { 2 } else { 1 }), path))
            {
                assert_ne!(route.to.ip(), enemy.ip());
            }
        }
    }
}

/// A peer that names the address of another host gets questions sent there, and nothing else.
#[test]
fn an_address_of_others_gets_no_data() {
    let mut list = RailList::default();
    list.push(ip(2, 0), 0);
    list.push(ip(9, 1), 0);
    let liar = RailTable::new(list, PORT, None, SecretRng::from_seed([9; 32]));
    let mut world = World::new(vec![(1, table(1, 2, None, 1)), (2, liar)]);
    world.talk(0, 1, Span::secs(20));
    assert_eq!(world.pairs(0, 1).iter().filter(|pair| pair.1 == 1).count(), 0);
    let there: Vec<_> = world.carried.iter().filter(|(_, to, _)| *to == ip(9, 1)).collect();
    assert!(there.iter().all(|(_, _, packet)| packet.stage == squall_wire::RailStage::Probe));
    // From each card after 5 ms, 10 ms and so on, and then every ten seconds.
    assert!((1..=2 * 13).contains(&there.len()), "{}", there.len());
}

#[test]
fn the_first_card_of_a_host_is_nobody_elses_further_card() {
    let mut list = RailList::default();
    list.push(ip(3, 0), 0);
    list.push(ip(2, 0), 0);
    let taker = RailTable::new(list, PORT, None, SecretRng::from_seed([3; 32]));
    let mut world =
        World::new(vec![(1, table(1, 2, None, 1)), (2, table(2, 2, None, 2)), (3, taker)]);
    world.talk(0, 1, Span::millis(50));
    // The third host receives what is sent to the second one's first card, and says that the card is its own.
    world.taken = Some((ip(2, 0), (2, 1)));
    let now = world.now;
    for path in 0..8 {
        let _ = world.hosts[0].1.route(now, first(3), path);
    }
    for _ in 0..100 {
        for (_, table) in &mut world.hosts {
            table.tick(world.now);
        }
        world.settle();
        world.now = Time(world.now.0 + 1_000_000);
    }
    let src = SocketAddr::new(ip(2, 0), 1);
    assert_eq!(world.hosts[0].1.record_arrival(world.now, 0, src), src);
    let (_, table) = &mut world.hosts[0];
    assert!((0..64).all(|path| table.route(now, first(3), path).to.ip() == ip(3, 0)));
}

/// A further card's address moves to another host, which proves that it receives there.
#[test]
fn an_address_may_move_to_another_host() {
    let mut list = RailList::default();
    list.push(ip(3, 0), 0);
    list.push(ip(2, 1), 0);
    let taker = RailTable::new(list, PORT, None, SecretRng::from_seed([3; 32]));
    let mut world =
        World::new(vec![(1, table(1, 2, None, 1)), (2, table(2, 2, None, 2)), (3, taker)]);
    world.talk(0, 1, Span::millis(50));
    world.taken = Some((ip(2, 1), (2, 1)));
    for _ in 0..100 {
        let _ = world.hosts[0].1.route(world.now, first(3), 0);
        for (_, table) in &mut world.hosts {
            table.tick(world.now);
        }
        world.settle();
        world.now = Time(world.now.0 + 1_000_000);
    }
    let src = SocketAddr::new(ip(2, 1), 1);
    assert_eq!(world.hosts[0].1.record_arrival(world.now, 0, src).ip(), ip(3, 0));
    let (now, (_, table)) = (world.now, &mut world.hosts[0]);
    assert!((0..64).all(|path| table.route(now, first(2), path).to.ip() == ip(2, 0)));
}

#[test]
fn a_new_endpoint_at_the_address_is_asked_anew() {
    let mut world = two(2);
    world.talk(0, 1, Span::millis(50));
    world.hosts[1].1 = table(2, 2, None, 77);
    // The new endpoint does not know the further cards, so their sender is unverified.
    let src = SocketAddr::new(ip(1, 1), 1);
    assert_eq!(world.hosts[1].1.record_arrival(world.now, 0, src), src);
    for _ in 0..200 {
        for path in 0..8 {
            let _ = world.hosts[0].1.route(world.now, first(2), path);
        }
        for (_, table) in &mut world.hosts {
            table.tick(world.now);
        }
        world.settle();
        world.now = Time(world.now.0 + 500_000);
    }
    assert_eq!(world.hosts[1].1.record_arrival(world.now, 0, src).ip(), ip(1, 0));
    world.talk(0, 1, Span::millis(50));
    assert_eq!(distinct(&world.pairs(0, 1)), 4);
}

#[test]
fn a_slower_card_gets_fewer_paths() {
    let list = |host: u8| {
        let mut list = RailList::default();
        list.push(ip(host, 0), 100_000);
        list.push(ip(host, 1), 25_000);
        list
    };
    let of = |host: u8| RailTable::new(list(host), PORT, None, SecretRng::from_seed([host; 32]));
    let mut world = World::new(vec![(1, of(1)), (2, of(2))]);
    world.talk(0, 1, Span::millis(50));
    let (_, table) = &mut world.hosts[0];
    let slow = (0..64).filter(|path| table.route(world.now, first(2), *path).local == 1).count();
    assert!((11..=15).contains(&slow), "{slow} of 64 paths; a fifth is 12.8");
}

#[test]
fn idle_peers_are_forgotten() {
    let mut world = two(2);
    world.talk(0, 1, Span::millis(50));
    world.now = Time(world.now.0 + Span::secs(400).0);
    for (_, table) in &mut world.hosts {
        table.tick(world.now);
    }
    let src = SocketAddr::new(ip(1, 1), 1);
    assert_eq!(world.hosts[1].1.record_arrival(world.now, 0, src), src);
    world.talk(0, 1, Span::millis(50));
    assert_eq!(distinct(&world.pairs(0, 1)), 4);
}

/// If the packets for many peers are not taken out of the queue, some are dropped and counted. They are sent again later.
#[test]
fn packets_that_find_no_room_are_counted() {
    let mut table = table(1, 2, None, 1);
    let (peers, now) = (MAX_OUT as u64 + 5, Time(1_000_000));
    for peer in 0..peers as u32 {
        table.route(
            now,
            SocketAddr::from((std::net::Ipv4Addr::from_bits(0x0b00_0000 + peer), PORT)),
            0,
        );
    }
    table.tick(now);
    assert_eq!(table.dropped, 5);
    assert_eq!(std::iter::from_fn(|| table.pop_packet()).count(), MAX_OUT);
    table.tick(Time(now.0 + FIRST_WAIT.0));
    assert_eq!((table.dropped, table.pop_packet().is_some()), (10, true));
}

#[test]
fn measurements_of_delays_are_bounded_whatever_the_number_of_cards_and_peers() {
    for pairs in 1..=64 {
        for peers in [1, 2, 16, 64, 1_000, 100_000] {
            let every = sample_interval(pairs, peers).0;
            let questions = pairs * peers * 1_000_000_000 / every;
            assert!(questions <= 6_400, "{pairs} pairs, {peers} peers: {questions} a second");
        }
    }
    assert_eq!(sample_interval(4, 1), Span::millis(10), "two cards of two hosts");
}

fn card(last: u8) -> RailConfig {
    RailConfig { name: "lo".into(), ip: IpAddr::from([127, 0, 0, last]), index: 1, mbps: 0 }
}

fn open(cards: &[u8], seed: u8) -> io::Result<RailPort> {
    let cards: Vec<_> = cards.iter().map(|last| card(*last)).collect();
    let bind = SocketAddr::new(cards[0].ip, 0);
    let config = PortConfig { bind, paths: 8, ..PortConfig::default() };
    RailPort::open(&config, &cards, None, SecretRng::from_seed([seed; 32])).map(|(port, _)| port)
}

#[test]
#[allow(clippy::disallowed_methods)] // the time of a limit
fn two_ports_exchange_data_over_all_cards() {
    let (mut a, mut b) = (open(&[11, 12], 1).unwrap(), open(&[13, 14], 2).unwrap());
    let (addr_a, addr_b) = (a.local_addr(), b.local_addr());
    let begin = std::time::Instant::now();
    let (mut got, mut round) = (0u64, 0u64);
    while a
        .rails()
        .iter()
        .chain(&b.rails())
        .any(|rail| rail.rx_packets < 100 || rail.tx_packets < 100)
    {
        assert!(begin.elapsed().as_secs() < 30, "{:?} {:?}", a.rails(), b.rails());
        let now = Time(1 + begin.elapsed().as_nanos() as u64);
        for (from, to) in [(&mut a, addr_b), (&mut b, addr_a)] {
            let payload = [&b"payload"[..]];
            let class = TrafficClass::Data;
            let sample = |path| Sample {
                dst: to,
                path,
                class,
                header: b"\x10header",
                payload: &payload,
                trailer: b"",
            };
            let samples: Vec<_> = (0..8).map(|path| sample(path as u16)).collect();
            assert_eq!(send(from, now, &samples).sent, 8);
        }
        for (port, peer) in [(&mut a, addr_b), (&mut b, addr_a)] {
            port.recv_each(now, 64, &mut |meta, bytes| {
                assert_eq!(bytes, b"\x10headerpayload");
                // Packets of a card that is proved at this end alone are of an unknown sender.
                got += u64::from(meta.src.ip() == peer.ip());
            });
        }
        round += 1;
    }
    assert!(got > 8 * round, "{got} packets in {round} rounds");
    let sources =
        |port: &mut RailPort| (1..8).map(|path| port.open_source_port(path)).collect::<Vec<_>>();
    let known = sources(&mut a);
    for (path, source) in (1..8).zip(known) {
        let other = a.rails[1].source_port(path);
        assert!(other == source || a.rails[1].source_port(path) == a.local_addr().port());
    }
}

#[test]
fn impossible_cards_are_refused_with_the_reason() {
    let mut v6 = card(12);
    v6.ip = "::1".parse().unwrap();
    let bind = SocketAddr::new(card(11).ip, 0);
    let config = PortConfig { bind, ..PortConfig::default() };
    let nine: Vec<_> = (11..20).map(card).collect();
    for (cards, text) in [
        (vec![card(11)], "an endpoint with 1 cards: the number is out of range 2..=8"),
        (nine, "an endpoint with 9 cards: the number is out of range 2..=8"),
        (vec![card(11), card(11)], "cards lo and lo are one: 127.0.0.11"),
        (
            vec![card(12), card(13)],
            "the first card has address 127.0.0.12, and the endpoint 127.0.0.11",
        ),
        (
            vec![card(11), v6],
            "card lo has address ::1 of another family than 127.0.0.11; name cards of IPv4 or of IPv6 alone",
        ),
    ] {
        let refused = RailPort::open(&config, &cards, None, SecretRng::from_seed([1; 32]));
        assert_eq!(refused.err().map(|error| error.to_string()), Some(text.into()));
    }
    let mut absent = card(12);
    absent.ip = IpAddr::from([192, 0, 2, 1]);
    let (port, report) =
        RailPort::open(&config, &[card(11), absent], None, SecretRng::from_seed([1; 32])).unwrap();
    assert_eq!((port.rails().len(), report.warnings.len()), (1, 1), "{:?}", report.warnings);
}

#[test]
fn dropped_datagrams_of_all_cards_are_counted() {
    let cards = [card(15), card(16)];
    let bind = SocketAddr::new(cards[0].ip, 0);
    let config = PortConfig { bind, rcvbuf: 4096, ..PortConfig::default() };
    let random = SecretRng::from_seed([1; 32]);
    let (mut port, _) = RailPort::open(&config, &cards, None, random).unwrap();
    let number = port.local_addr().port();
    let sender = std::net::UdpSocket::bind((card(17).ip, 0)).unwrap();
    let send = |count: u32| {
        for card in &cards {
            for _ in 0..count {
                sender.send_to(&[0x10; 1000], (card.ip, number)).unwrap();
            }
        }
    };
    let mut drain = || {
        let (mut received, mut overflow) = (0, 0);
        // Loopback delivers at once, so that two empty calls find all.
        let mut empty = 0;
        while empty < 2 {
            let report = port.recv_each(Time::ZERO, 64, &mut |meta, _| overflow = meta.overflow);
            received += u32::try_from(report.packets).unwrap();
            empty += u32::from(report.packets == 0);
        }
        (received, overflow)
    };
    send(300);
    let (received, _) = drain();
    // The kernel tells of drops with the next datagram.
    send(1);
    let (more, overflow) = drain();
    assert_eq!((more, overflow), (2, 600 - received));
    assert!(received < 500, "{received}: the buffers held nearly all");
}

/// An endpoint that is verified at its own address names another's, from which it can send, but not receive.
#[test]
fn an_address_counts_only_for_who_receives_there() {
    let (liar, other, now) = (ip(9, 0), ip(8, 1), Time(1 << 40));
    let mut table = table(1, 2, None, 1);
    let mut rails = RailList::default();
    rails.push(liar, 0);
    rails.push(other, 0);
    let mut packet = RailPacket {
        stage: squall_wire::RailStage::Ask,
        port: PORT,
        from: 0,
        to: 0,
        nonce: 5,
        session: 6,
        first_cookie: 0,
        card_cookie: 0,
        first: liar,
        rails,
        proof: [0; 16],
    };
    table.handle_packet(now, 0, SocketAddr::new(liar, PORT), &packet);
    let (_, offer) = table.pop_packet().expect("an offer");
    packet.stage = squall_wire::RailStage::Confirm;
    (packet.from, packet.first_cookie) = (1, offer.first_cookie);
    for cookie in [0, offer.first_cookie, 7] {
        packet.card_cookie = cookie;
        let before = table.refused;
        table.handle_packet(now, 0, SocketAddr::new(other, PORT), &packet);
        assert_eq!((table.refused, table.pop_packet()), (before + 1, None));
    }
    let src = SocketAddr::new(other, 1);
    assert_eq!(table.record_arrival(now, 0, src), src);
}

/// A step of a random history of two hosts with two cards each, and an enemy.
#[derive(Clone, Debug)]
enum Step {
    /// The hosts exchange packets for some milliseconds.
    Talk(u16),
    /// The way between two cards loses everything from now on, or works again.
    Cut(u8, u8),
    Heal(u8, u8),
    /// A host closes its endpoint and opens another one at its addresses.
    Restart(u8),
    /// The enemy repeats a packet that it has seen, with some of its fields changed, to a card of a host.
    Repeat {
        packet: usize,
        change: u8,
        bits: u64,
        host: u8,
        card: u8,
        from: u8,
    },
}

fn step() -> impl proptest::strategy::Strategy<Value = Step> {
    use proptest::prelude::*;
    prop_oneof![
        3 => (1u16..40).prop_map(Step::Talk),
        1 => (0u8..2, 0u8..2).prop_map(|(a, b)| Step::Cut(a, b)),
        1 => (0u8..2, 0u8..2).prop_map(|(a, b)| Step::Heal(a, b)),
        1 => (0u8..2).prop_map(Step::Restart),
        4 => (any::<usize>(), 0u8..7, any::<u64>(), 0u8..2, 0u8..2, 0u8..5).prop_map(
            |(packet, change, bits, host, card, from)| {
                Step::Repeat { packet, change, bits, host, card, from }
            }
        ),
    ]
}

/// Returns a packet with one field replaced.
fn changed(mut packet: RailPacket, change: u8, bits: u64) -> RailPacket {
    let enemy = ip(9, 1);
    match change {
        0 => packet.session = bits,
        1 => packet.nonce = bits,
        2 => (packet.from, packet.to) = (bits as u8 % 4, (bits >> 8) as u8 % 4),
        3 => packet.first = enemy,
        4 => {
            let mut rails = RailList::default();
            rails.push(ip(bits as u8 % 3, 0), 0);
            rails.push(enemy, bits as u32);
            packet.rails = rails;
        }
        5 => packet.card_cookie = bits,
        _ => {}
    }
    packet
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(32))]

    /// Whatever the enemy repeats, data goes to the cards of the peer alone. When all ways work again, all are used.
    ///
    /// The enemy reads all packets. With a job key it sends from any address, else from its own: without a key, who
    /// reads and forges packets at will can say anything.
    #[test]
    fn an_enemy_neither_gets_data_nor_keeps_cards_from_it(
        with_key: bool,
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let key = with_key.then_some(b"0123456789abcdef");
        let mut world = World::new(vec![(1, table(1, 2, key, 1)), (2, table(2, 2, key, 2))]);
        let mut restarts = 2;
        for step in steps {
            match step {
                Step::Talk(ms) => world.talk(0, 1, Span::millis(ms.into())),
                Step::Cut(a, b) => world.cut(ip(1, a), ip(2, b)),
                Step::Heal(a, b) => {
                    world.cut.remove(&(ip(1, a), ip(2, b)));
                    world.cut.remove(&(ip(2, b), ip(1, a)));
                }
                Step::Restart(host) => {
                    restarts += 1;
                    world.restarted = true;
                    world.hosts[usize::from(host)].1 = table(host + 1, 2, key, restarts);
                }
                Step::Repeat { packet, change, bits, host, card, from } => {
                    let Some(at) = packet.checked_rem(world.carried.len()) else { continue };
                    let (_, _, seen) = world.carried[at];
                    let from = match from {
                        0..=3 if with_key => ip(1 + from / 2, from % 2),
                        _ => ip(9, 1),
                    };
                    let packet = changed(seen, change, bits);
                    let (now, src) = (world.now, SocketAddr::new(from, PORT));
                    world.hosts[usize::from(host)].1.handle_packet(now, card.into(), src, &packet);
                    world.settle();
                }
            }
            for (from, to) in [(0, 1), (1, 0)] {
                let (now, peer) = (world.now, world.hosts[to].0);
                for path in 0..64 {
                    let route = world.hosts[from].1.route(now, first(peer), path);
                    assert!([ip(peer, 0), ip(peer, 1)].contains(&route.to.ip()), "{route:?}");
                }
            }
        }
        world.cut.clear();
        // A pair that did not answer for long is asked again after ten seconds.
        for _ in 0..2 {
            world.talk(0, 1, Span::secs(1));
            world.now += Span::secs(11);
        }
        world.talk(0, 1, Span::secs(1));
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(distinct(&world.pairs(from, to)), 4, "{from} to {to}");
        }
    }
}
