//! Hosts with several links.

use super::*;
use crate::model::Planes;
use crate::sim::PortLoad;

/// Returns a network of four leaves of four hosts and two spines, in `planes` planes.
fn planes(planes: u32) -> SimConfig {
    let rate = Rate::gbps(100);
    let topology = Topology::leaf_spine(4, 2, 4, rate, rate, US, Picos::ZERO);
    let mut config = SimConfig::new(topology.in_planes(planes).expect("a power of two"));
    config.observe.ports = true;
    config
}

/// Returns bytes and dropped packets of the ports by which hosts send (`up`) or receive, by plane.
fn by_plane(config: &SimConfig, results: &Results, up: bool) -> Vec<(u64, u64)> {
    let mut sums = vec![(0, 0); config.topology.planes() as usize];
    let planes = config.topology.link_planes();
    for PortLoad { port, bytes, dropped, .. } in &results.ports {
        let link = config.topology.links[*port as usize / 2];
        let (Some(plane), true) = (planes[*port as usize / 2], port.is_multiple_of(2) == up) else {
            continue;
        };
        assert!(matches!(link.a, crate::topology::Node::Host(_)));
        sums[plane as usize].0 += bytes;
        sums[plane as usize].1 += dropped;
    }
    sums
}

/// Returns the time at which the last flow ended.
fn finish(results: &Results) -> Picos {
    assert_eq!(results.end, End::Done, "{:?}", results.totals);
    results.flows.iter().filter_map(|flow| flow.fct).max().expect("a flow")
}

#[test]
fn one_flow_uses_all_links_of_its_host() {
    let load = workload(16, vec![flow(1, 0, 12, 8_000_000)]);
    let mut alone = Vec::new();
    for count in [1, 2, 4] {
        let config = planes(count);
        let results = run(&config, &load);
        conserved(&results);
        alone.push(finish(&results).0 as f64);
        // Data leave in all planes alike, and so do answers.
        for up in [true, false] {
            let bytes: Vec<u64> = by_plane(&config, &results, up).iter().map(|of| of.0).collect();
            let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
            assert!(most - least < most / 5, "{count} {bytes:?}");
        }
    }
    // 8 MB take 650 us at 100 Gb/s, and the round trip about 9 us.
    assert!(alone[0] / alone[1] > 1.8 && alone[1] / alone[2] > 1.7, "{alone:?}");
}

#[test]
fn packets_stay_in_the_plane_of_their_entropy_both_ways() {
    for seed in 0..4 {
        let mut config = planes(4);
        config.seed = seed;
        squall(&mut config).lb = "ecmp".into();
        let results = run(&config, &workload(16, vec![flow(1, 0, 12, 400_000)]));
        finish(&results);
        // All data have one entropy. Acknowledgements have one, too, which may be another.
        let plane_of_data = |up| {
            let sums = by_plane(&config, &results, up);
            let used: Vec<usize> = (0..4).filter(|&plane| sums[plane].0 > 100_000).collect();
            used
        };
        let plane = plane_of_data(true);
        assert_eq!((plane.len(), &plane), (1, &plane_of_data(false)));
        let both: Vec<bool> = (by_plane(&config, &results, true).iter())
            .zip(by_plane(&config, &results, false))
            .map(|(sent, received)| sent.0 == received.0)
            .collect();
        assert_eq!(both, [true; 4], "each packet arrives in the plane in which it left");
    }
}

#[test]
fn a_plane_that_dies_and_one_port_that_dies_cost_no_flow() {
    let load = shifted(16, 5, 4_000_000);
    let whole = finish(&run(&planes(4), &load));
    let die = |failures: &[Failure]| {
        let mut config = planes(4);
        config.failures = failures.iter().map(|&what| FailureEvent { at: US * 30, what }).collect();
        let results = run(&config, &load);
        conserved(&results);
        (finish(&results), results, config)
    };
    let plane: Vec<Failure> =
        planes(4).topology.switches_of_plane(2).into_iter().map(Failure::SwitchDown).collect();
    let (end, results, config) = die(&plane);
    // Three quarters of the rate are left. The slowest flow lost the end of a window and waited for
    // a time-out.
    assert!(end > whole && end.0 < whole.0 * 5 / 2, "{end} and {whole} with all planes");
    let bytes = by_plane(&config, &results, true);
    assert!(bytes[2].0 < bytes[0].0 / 3, "{bytes:?}");
    // The second link of host 3 dies: packets to it and from it avoid plane 1, and no others do.
    let links = config.topology.link_planes();
    let link = (0u32..).zip(&links).filter(|(link, plane)| {
        **plane == Some(1)
            && config.topology.links[*link as usize].a == crate::topology::Node::Host(3)
    });
    let link = link.map(|(link, _)| link).next().expect("a link");
    let (end, results, config) = die(&[Failure::LinkDown(link)]);
    assert!(end > whole && end.0 < whole.0 * 2, "{end} and {whole} with all links");
    let bytes = by_plane(&config, &results, true);
    assert!(bytes[1].0 > bytes[0].0 * 3 / 4, "{bytes:?}");
}

#[test]
fn a_flow_of_one_path_leaves_a_dead_plane() {
    for seed in 0..8 {
        let mut config = planes(4);
        config.seed = seed;
        squall(&mut config).lb = "ecmp".into();
        let dead = config.topology.switches_of_plane(1);
        config.failures = dead
            .iter()
            .map(|&at| FailureEvent { at: US * 3, what: Failure::SwitchDown(at) })
            .collect();
        finish(&run(&config, &shifted(16, 5, 100_000)));
    }
}

#[test]
fn each_plane_may_have_a_window() {
    let mut config = planes(4);
    squall(&mut config).per_plane = true;
    let results = run(&config, &workload(16, vec![flow(1, 0, 12, 8_000_000), flow(2, 1, 13, 1)]));
    conserved(&results);
    let end = finish(&results);
    let shared = finish(&run(&planes(4), &workload(16, vec![flow(1, 0, 12, 8_000_000)])));
    assert!(end.0 < shared.0 * 11 / 10, "{end} and {shared} with one window");
    // No context sends a packet after another has sent the last byte: 1985 of 4032 bytes at most.
    assert_eq!((results.flows[0].packets, results.flows[1].packets), (1985, 1));
    let bytes = by_plane(&config, &results, true);
    assert!(bytes.iter().all(|of| of.0 > 1_800_000), "{bytes:?}");
}

#[test]
fn a_plane_that_recovers_is_used_again() {
    let mut config = planes(4);
    let switches = config.topology.switches_of_plane(2);
    let fail = |at, what: fn(u32) -> Failure| {
        switches.iter().map(move |&switch| FailureEvent { at, what: what(switch) })
    };
    config.failures =
        fail(US * 30, Failure::SwitchDown).chain(fail(US * 200, Failure::SwitchUp)).collect();
    let later = Flow { start: Start::At((US * 400).0), ..flow(2, 1, 13, 8_000_000) };
    let results = run(&config, &workload(16, vec![flow(1, 0, 12, 4_000_000), later]));
    finish(&results);
    // The first flow avoids the plane for milliseconds, and the second one never met the failure.
    let bytes = by_plane(&config, &results, true);
    assert!(bytes[2].0 > 1_800_000, "{bytes:?}");
    assert!(results.flows[1].fct < Some(US * 200), "{:?}", results.flows[1]);
}

/// A context per plane cannot leave its plane, which one context over all planes can: what a dead
/// plane's context has sent is never sent again by another.
#[test]
fn windows_per_plane_end_with_their_plane() {
    let mut config = planes(2);
    config.until = Picos::micros(20_000);
    let dead = config.topology.switches_of_plane(1).into_iter().map(Failure::SwitchDown);
    config.failures = dead.map(|what| FailureEvent { at: US * 20, what }).collect();
    let load = workload(16, vec![flow(1, 0, 12, 2_000_000)]);
    finish(&run(&config, &load));
    squall(&mut config).per_plane = true;
    let results = run(&config, &load);
    assert_eq!(results.flows[0].unfinished, Some(UnfinishedReason::Running), "{:?}", results.end);
}

#[test]
fn rails_share_their_spines() {
    let rate = Rate::gbps(100);
    let topology = Topology::rails((4, 4, 4), 2, (rate, rate), US, Picos::ZERO);
    let mut config = SimConfig::new(topology.expect("two groups of two leaves"));
    config.observe.ports = true;
    let results = run(&config, &shifted(8, 4, 4_000_000));
    conserved(&results);
    // 4 MB of each host take 320 us at one link's rate.
    assert!(finish(&results) < US * 250, "{}", finish(&results));
    let bytes = by_plane(&config, &results, false);
    assert!(bytes[0].0.abs_diff(bytes[1].0) < bytes[0].0 / 5, "{bytes:?}");
}

#[test]
fn parts_of_planes_find_what_the_whole_finds() {
    for per_plane in [false, true] {
        let mut config = planes(2);
        squall(&mut config).per_plane = per_plane;
        let dead = config.topology.switches_of_plane(1);
        config.failures = dead
            .iter()
            .map(|&at| FailureEvent { at: US * 900, what: Failure::SwitchDown(at) })
            .collect();
        let load = shifted(16, 5, 1_000_000);
        let whole = essence(run(&config, &load));
        config.threads = 4;
        let simulation = Simulation::new(&config, &load).expect("sound");
        assert_eq!(simulation.parts(), 4);
        assert_eq!(essence(simulation.run(&mut ())), whole);
    }
}

#[test]
fn what_hosts_of_several_links_cannot_do_is_named() {
    let mut config = planes(2);
    config.network.lossless = true;
    let error = Simulation::new(&config, &shifted(16, 5, 1)).expect_err("lossless").to_string();
    assert!(error.starts_with("hosts of 2 links in a lossless network"), "{error}");
    assert_eq!(Planes::of(&config.topology).count(), 2);
}
