use core::ops::ControlFlow;

use super::channel::{REQUEST, RESPONSE};
use super::*;
use squall_base::Rate;
use squall_netsim::sim::Observer;

/// An observer that never stops the run.
struct Alone;

impl Observer for Alone {
    fn progress(&mut self, _: Picos, _: usize, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn mc(hosts: u32) -> Topology {
    // Cycles of 0.64 ns: 96 ns are 150 cycles a switch.
    Topology::mc(hosts, Rate::gbps(200), Picos::ZERO, Picos::nanos(96)).expect("one of the two")
}

fn config(control: &str, senders: u16, transactions: u32) -> CreditNetworkConfig {
    CreditNetworkConfig {
        topology: mc(64),
        injection: InjectionConfig::by_name(control).expect("there is one"),
        senders,
        transactions,
        skew: 0,
        memory: 180,
        answers: None,
        buffer: None,
        seed: 1,
    }
}

fn run(config: &CreditNetworkConfig) -> CreditNetworkResults {
    CreditNetwork::new(config).expect("possible").run(&mut Alone)
}

/// Three switches of 150 cycles there, 180 in the memory, three back. A write has all of its 9
/// flits in the memory when it is 8 cycles old there, and an answer of one flit; a read the other
/// way round: 900 + 180 + 9 + 1 either way.
#[test]
fn an_operation_alone_takes_what_is_on_its_way() {
    let results = run(&config("none", 1, 1));
    assert_eq!((results.operations, results.latency_max, results.latency_sum), (2, 1090, 2180));
    assert_eq!((results.effective_flits, results.cycles), (20, 2180));
    assert_eq!((results.senders[0].end, results.stopped), (Some(2180), None));
    // To 8 lower switches over one up, to 64 members, and as many answers, for each of two
    // operations.
    assert_eq!(results.packets, 2 * 2 * (1 + 1 + 8 + 64));
}

/// Every member gets every request, the sender gets one answer, and no packet is left in the
/// network.
#[test]
fn all_is_answered_once_and_nothing_remains() {
    let controls =
        [("none", None), ("none", Some(9)), ("window:ops=3", None), ("aimd", None), ("3cpo", None)];
    for (control, answers) in controls {
        let config = CreditNetworkConfig { skew: 500, answers, ..config(control, 64, 4) };
        let mut network = CreditNetwork::new(&config).expect("possible");
        while network.open() > 0 {
            network.step();
        }
        // Every operation is answered, so no channel holds a packet any more.
        let idle = |network: &CreditNetwork| {
            network.channels().iter().all(|channel| {
                channel
                    .virtuals
                    .iter()
                    .all(|virtual_channel| virtual_channel.idle(network.buffer()))
            })
        };
        assert!(idle(&network), "{control}");
        let operations = 64 * 4 * 2;
        for member in 0..64 {
            let to = &network.channels()[network.tree().to(member)];
            assert_eq!(
                to.packets,
                operations + 8,
                "{control}: requests of all, answers to its own"
            );
            let out = &network.channels()[network.tree().out_of(member)];
            assert_eq!(out.packets, operations + 8, "{control}");
        }
    }
}

/// A member's link carries 10 flits for each transaction of any sender, and 10 more for its own:
/// 650 flits for one transaction of all 64 senders. The effective bandwidth is below two flits a
/// cycle.
#[test]
fn effective_bandwidth_comes_close_to_two_and_never_beyond() {
    let results = run(&config("window", 64, 32));
    assert_eq!(results.operations, 64 * 32 * 2);
    let bandwidth = results.effective_flits as f64 / results.cycles as f64;
    let most = 1280.0 / 650.0;
    assert!(bandwidth < most && bandwidth > 0.8 * most, "{bandwidth}");
}

#[test]
fn a_run_follows_from_its_seed() {
    let with = |seed| run(&CreditNetworkConfig { skew: 2000, seed, ..config("3cpo", 8, 16) });
    assert_eq!(with(7), with(7));
    assert_ne!(with(7).senders, with(8).senders);
}

/// A channel sends the packets for which it has credits; the virtual channel that waited longest
/// comes first.
#[test]
fn links_take_turns_and_keep_to_their_credits() {
    let mut channel = channel::Channel::new(10, false, 18);
    for op in [0, 2, 4] {
        channel.virtuals[REQUEST].push(Packet::request(op + 1));
        channel.virtuals[RESPONSE].push(Packet::response(op));
    }
    assert!(
        !channel.virtuals[REQUEST].has_room(),
        "27 of 18 flits: it takes one while there is any room"
    );
    let mut now = 0;
    let mut left = Vec::new();
    while now < 60 {
        if channel.is_free(now) {
            channel.serve(now);
        }
        for vc in [REQUEST, RESPONSE] {
            if let Some(packet) = channel.virtuals[vc].arrived(now) {
                left.push((now, vc));
                channel.virtuals[vc].take();
                // The credits of requests are not returned.
                if vc == RESPONSE {
                    channel.virtuals[vc].give_back(packet.flits());
                }
            }
        }
        now += 1;
    }
    // Packets take 9 cycles each and 10 in flight. The third request finds no credits, the third
    // answer does.
    let expected = [(10, REQUEST), (19, RESPONSE), (28, REQUEST), (37, RESPONSE), (46, RESPONSE)];
    assert_eq!(left, expected);
}

/// Without control, memories fill up, and then the queues before them. The longest operation waits
/// for most of the others.
#[test]
fn without_control_operations_wait_for_all_others() {
    let none = run(&config("none", 64, 16));
    let window = run(&config("window", 64, 16));
    assert!(
        none.latency_max > 3 * window.latency_max,
        "{} and {}",
        none.latency_max,
        window.latency_max
    );
}

#[test]
fn other_networks_are_refused() {
    let error =
        |config: &CreditNetworkConfig| CreditNetwork::new(config).expect_err("refused").to_string();
    let star = Topology::star(8, Rate::gbps(200), Picos::ZERO, Picos::ZERO);
    let base = config("none", 1, 1);
    let message = error(&CreditNetworkConfig { topology: star, ..base.clone() });
    assert!(
        message
            .contains("topology: lower switches that lead to different upper switches, or to none"),
        "{message}"
    );
    let mut broken = mc(64);
    broken.links.pop();
    let message = error(&CreditNetworkConfig { topology: broken, ..base.clone() });
    assert!(message.contains("every lower switch connected to every upper one"), "{message}");
    for (senders, transactions, buffer, expected) in [
        (0, 1, None, "senders: 0, expected 1 to 64"),
        (65, 1, None, "senders: 65, expected 1 to 64"),
        (64, 0, None, "transactions: 0, expected 1 to "),
        (64, u32::MAX, None, "transactions: 4294967295"),
        (64, 1, Some(8), "buffer: 8, expected 9"),
    ] {
        let message = error(&CreditNetworkConfig { senders, transactions, buffer, ..base.clone() });
        assert!(message.contains(expected), "{message}");
    }
    let message = error(&CreditNetworkConfig { answers: Some(0), ..base.clone() });
    assert!(message.contains("answers: 0, expected at least 1 flit"), "{message}");
    assert_eq!(
        run(&CreditNetworkConfig { topology: mc(128), ..config("3cpo", 2, 2) }).operations,
        8
    );
}
