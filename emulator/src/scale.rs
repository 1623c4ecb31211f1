//! Scales a topology to rates that this machine can carry.

use squall_base::Rate;
use squall_netsim::Picos;
use squall_netsim::topology::Topology;

/// Returns the topology with all rates multiplied by `rates` and all latencies by `latencies`. With
/// `latencies` = 1 / `rates` it is the same network in slow motion: bandwidth-delay products are
/// unchanged.
#[must_use]
pub fn scale(topology: &Topology, rates: f64, latencies: f64) -> Topology {
    let mut scaled = topology.clone();
    // A link keeps at least 1 b/s. The relay has refused negative factors already.
    let rate = |rate: Rate| Rate(((rate.0 as f64 * rates) as u64).max(1));
    let latency = |latency: Picos| Picos((latency.0 as f64 * latencies) as u64);
    for link in &mut scaled.links {
        (link.rate, link.latency) = (rate(link.rate), latency(link.latency));
    }
    for switch in &mut scaled.switches {
        switch.latency = latency(switch.latency);
    }
    scaled
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_netsim::model::Switching;

    #[test]
    fn a_leaf_spine_in_slow_motion() {
        let rate = Rate::gbps(100);
        let (latency, switch) = (Picos::micros(1), Picos::nanos(500));
        let topology = Topology::leaf_spine(2, 2, 2, rate, rate, latency, switch);
        // 4 links of 1 us and 3 switches of 0.5 us: 5.5 us each way. 4160 B take 332.8 ns a link,
        // 64 B 5.12 ns: 4 * 337.92 ns.
        let rtt = topology.longest_route().round_trip(rate, 4160, 64, Switching::StoreAndForward);
        assert_eq!(rtt, Picos(11_000_000 + 4 * 337_920));
        let slow = scale(&topology, 0.01, 100.0);
        assert_eq!(
            slow.longest_route().round_trip(slow.host_rate(), 4160, 64, Switching::StoreAndForward),
            rtt * 100
        );
        assert_eq!(slow.host_rate(), Rate::gbps(1));
    }
}
