//! In-band network telemetry: each switch on the route writes the length of the queue that a packet
//! leaves into the packet.

use super::program::{Packet, Place, SwitchProgram};
use squall_cc::IntHop;

/// A switch program that writes a record into each packet that leaves (HPCC, section 3.1), of
/// whatever class.
#[derive(Clone, Copy, Debug)]
pub struct Telemetry;

impl SwitchProgram for Telemetry {
    fn dequeue(&mut self, place: &Place<'_>, port: u32, packet: &mut Packet<'_>) {
        packet.options.push_hop(IntHop {
            hop: port,
            at: place.now.time(),
            tx_bytes: place.sent(port),
            queue: u32::try_from(place.waiting(port)).unwrap_or(u32::MAX),
            line: place.rate(port),
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::Picos;
    use crate::model::{Class, Network, NetworkConfig, PacketHeader, Share, Step};
    use crate::topology::Topology;
    use squall_base::{Rate, Time};
    use squall_cc::Hops;

    /// Sends three packets at once to one host: of those that meet at the first leaf, the second
    /// leaves one packet behind.
    #[test]
    fn each_switch_says_what_was_left_behind() {
        let rate = Rate::gbps(100);
        let topology = Topology::leaf_spine(2, 1, 4, rate, rate, Picos::micros(1), Picos::ZERO);
        let mut config = NetworkConfig::new(100_000, true, 1);
        config.options.telemetry = true;
        let mut network =
            Network::new(topology, config, Picos(1 << 10), Share::WHOLE).expect("small");
        let header =
            PacketHeader { dst: 4, bytes: 4096, class: Class::Data, ..PacketHeader::default() };
        for host in 0..3 {
            network.enter(Picos::ZERO, host, header, None);
        }
        let (mut packets, mut waited) = (0, Vec::new());
        while let Some(step) = network.step(Picos::micros(100), &mut ()) {
            let Step::Arrived { host: 4, packet } = step else { panic!("{step:?}") };
            packets += 1;
            let hops =
                network.options(packet).expect("telemetry is on").read::<Hops>().expect("records");
            // The hops are leaf 0 to the spine, the spine to leaf 1, and leaf 1 to host 4.
            let names: Vec<u32> = hops.iter().map(|hop| hop.hop).collect();
            assert_eq!(names, [16, 19, 9]);
            for hop in hops.iter() {
                assert_eq!(
                    (hop.tx_bytes, hop.line, hop.at > Time(0)),
                    (packets * 4096, rate, true)
                );
                waited.push(hop.queue);
            }
            network.take(packet);
        }
        assert_eq!(waited, [0, 0, 0, 4096, 0, 0, 0, 0, 0]);
        let telemetry = network.totals().telemetry;
        assert_eq!(
            (telemetry.packets, telemetry.records, telemetry.queued, telemetry.longest),
            (3, 9, 4096, 4096)
        );
    }
}
