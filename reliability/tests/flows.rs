//! The statistics of flows, also after their contexts closed.

use crate::link::{Faults, World, nscc};
use squall_reliability::FlowRecord;
use squall_reliability::base::Span;

fn closed_world(count: u32) -> World {
    let faults = Faults { loss: 0.02, ..Faults::default() };
    let mut world = World::new(nscc(1), nscc(2), faults, 3);
    world.send(0, 0..count, 4096);
    assert!(world.settle(Span::secs(20)));
    world
}

fn close(world: &mut World) {
    let id = world.hosts[0].id.take().unwrap();
    world.hosts[0].pdcs.close(world.now, id);
    world.pump(0);
    world.run(world.now + Span::secs(20));
    assert!(world.hosts.iter().all(|host| host.pdcs.count() == 0));
}

#[test]
fn a_flow_stays_visible_after_its_context_closed() {
    let mut world = closed_world(3000);
    let before = world.hosts[0].pdcs.flows();
    close(&mut world);
    let after = world.hosts[0].pdcs.flows();
    let counters = world.hosts[0].pdcs.counters();
    let [FlowRecord { contexts: 1, initiator: true, .. }] = after[..] else { panic!("{after:?}") };
    let flow = &after[0];
    assert_eq!((flow.packets, flow.bytes), (counters.tx_packets, counters.tx_bytes));
    assert_eq!(flow.retransmissions, counters.retransmissions());
    assert_eq!((flow.acked_packets, flow.acked_bytes), (3000, 3000 * 4096));
    let (low, high) = flow.cwnd_range.unwrap();
    let last = flow.cwnd.unwrap();
    assert!(low <= last && last <= high && low > 0 && low < high, "{flow:?}");
    assert!(flow.srtt.unwrap() >= flow.base_rtt.unwrap() && flow.paths() > 1, "{flow:?}");
    assert_eq!(before[0].acked_bytes, flow.acked_bytes);
    // The target sent no data, but knows the flow.
    let [theirs] = &world.hosts[1].pdcs.flows()[..] else { panic!("one flow") };
    assert!(!theirs.initiator && theirs.packets == 0 && theirs.contexts == 1);
    assert_eq!((theirs.cwnd, theirs.cwnd_range), (None, None));
}

#[test]
fn contexts_one_after_the_other_are_one_flow() {
    let mut world = closed_world(300);
    let first = world.hosts[0].pdcs.flows()[0].clone();
    for number in 300..400 {
        close(&mut world);
        world.send(0, number..number + 1, 1000);
        assert!(world.settle(Span::secs(20)));
    }
    let [flow] = &world.hosts[0].pdcs.flows()[..] else { panic!("one flow") };
    assert_eq!(flow.contexts, 101);
    assert_eq!(flow.acked_packets, 400);
    assert_eq!(flow.acked_bytes, first.acked_bytes + 100 * 1000);
}

#[test]
fn a_context_that_failed_leaves_its_record() {
    let mut world = closed_world(100);
    let id = world.hosts[0].id.unwrap();
    world.hosts[0].pdcs.abort(id);
    let [flow] = &world.hosts[0].pdcs.flows()[..] else { panic!("one flow") };
    assert!(flow.acked_packets == 100 && flow.cwnd.is_some());
}
