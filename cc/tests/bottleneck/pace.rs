//! More flows than packets fit into the bandwidth-delay product: 37.

use squall_cc::SenderConfig;
use squall_cc::base::Span;

use super::{equal_flows, network};

/// A window of one packet a flow is 128 packets, 3.5 BDP: switches that trim at one go on trimming.
/// Below one packet (SMaRTT v2 section III-J: "a pacer-based solution similar to the one introduced by
/// Swift") the queue has room.
#[test]
fn pacing_below_one_packet_ends_the_trimming() {
    for name in ["nscc", "smartt", "dctcp", "mprdma"] {
        let outcome = |text: &str| {
            let cc = SenderConfig::by_name(text, &network(true)).expect("has a window");
            equal_flows(&cc, 128, Span::ZERO, true)
        };
        let (whole, paced) = (outcome(name), outcome(&format!("{name}:pace=1")));
        let (trimmed, fewer) = (whole.lost.1, paced.lost.1);
        assert!(fewer * 2 < trimmed, "{name}: {fewer} trimmed, {trimmed} without pacing");
        assert!(paced.mean_queue < whole.mean_queue, "{name}: the queue is no shorter");
        assert!(paced.utilisation > 0.95, "{name}: used {:.3}", paced.utilisation);
        // Each flow sends about a hundred packets in the measured time, so single packets decide by
        // chance.
        assert!(paced.jain() > 0.6, "{name}: {:.3}", paced.jain());
    }
}
