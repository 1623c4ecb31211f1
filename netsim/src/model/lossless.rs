//! Pausing in lossless switches (IEEE 802.1Qbb): a switch stops an input when its packets occupy
//! more bytes in the switch than allowed, and resumes it when they occupy less again.
//!
//! The limit is a fixed number of bytes for each input, or the free part of a buffer that the ports
//! of the switch share. The latter is the dynamic threshold of Choudhury and Hahne (1998) with a
//! factor of one, by which a single input may fill half of the buffer, and `n` of them each an (n +
//! 1)th.

use super::config::{NetworkOptions, OptionError, fault};
use super::lane;
use crate::topology::{Node, Topology};

/// Thresholds at which a switch pauses an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lossless {
    /// Bytes from one input above which the switch pauses it (PFC), if each input has its own
    /// limit.
    pub xoff: u64,
    /// Bytes from one input below which the switch resumes it.
    pub xon: u64,
    /// Bytes of the shared buffer, if there is one. An input then resumes as far below the
    /// threshold as `xon` is below `xoff`.
    pub buffer: Option<u64>,
}

impl Lossless {
    /// Computes the thresholds from the options, for data queues of `queue` bytes and full packets
    /// of `packet` bytes.
    pub(super) fn new(
        options: &NetworkOptions,
        queue: u64,
        packet: u64,
    ) -> Result<Self, OptionError> {
        let xoff = options.xoff.map_or(queue.max(packet * 4) / 2, |bytes| bytes.0);
        let xon = options.xon.map_or(xoff.saturating_sub(packet * 2), |bytes| bytes.0);
        if xon >= xoff {
            return fault("xon", format!("xon is {xon} bytes, expected less than xoff, {xoff}"));
        }
        let buffer = options.buffer.map(|bytes| bytes.0);
        if let Some(bytes) = buffer.filter(|bytes| *bytes < 8 * packet) {
            return fault(
                "buffer",
                format!("{bytes} bytes, expected {} at least, eight packets", 8 * packet),
            );
        }
        Ok(Self { xoff, xon, buffer })
    }

    /// Checks that the options of pausing (PFC) go together with each other and with `lossless`.
    pub(super) fn check(options: &NetworkOptions) -> Result<(), OptionError> {
        for (key, given) in
            [("xoff", options.xoff), ("xon", options.xon), ("buffer", options.buffer)]
        {
            if given.is_some() && !options.lossless {
                return fault(key, "no effect without `lossless`; add that, or leave it out");
            }
        }
        if options.buffer.is_some() && (options.xoff.is_some() || options.xon.is_some()) {
            return fault("buffer", "expected `buffer`, or `xoff` and `xon`, not both");
        }
        Ok(())
    }
}

/// Bytes that the inputs of all switches occupy. An input is a lane of a link, named by the port
/// that sends to it: see [`lane`].
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    limits: Lossless,
    /// Number of virtual lanes of each link.
    lanes: u32,
    /// State by port and lane: the bytes it occupies, whether its sender was stopped, and the
    /// switch it leads to.
    inputs: Vec<(u64, bool, u32)>,
    /// Bytes that wait in each switch, from all its inputs.
    used: Vec<u64>,
}

impl Inputs {
    pub(super) fn new(topology: &Topology, limits: Lossless, lanes: u8) -> Self {
        let place = |node: Node| match node {
            Node::Switch(at) => at,
            // Hosts never pause their link.
            Node::Host(_) => u32::MAX,
        };
        let ends = topology.links.iter().flat_map(|link| [place(link.b), place(link.a)]);
        let each = |at| core::iter::repeat_n((0, false, at), lanes.into());
        let inputs: Vec<_> = ends.flat_map(each).collect();
        let last = inputs.iter().map(|input| input.2).filter(|at| *at != u32::MAX).max();
        let used = vec![0; last.map_or(0, |last| last as usize + 1)];
        Self { limits, lanes: lanes.into(), inputs, used }
    }

    /// Returns the place in `inputs` of the input by which a packet came in.
    const fn place(&self, ingress: u32) -> usize {
        (lane::port(ingress) * self.lanes + lane::came(ingress) as u32) as usize
    }

    /// Returns the bytes above which an input of the switch stops, and those below which it
    /// resumes.
    fn limits(&self, at: u32) -> (u64, u64) {
        let Lossless { xoff, xon, buffer } = self.limits;
        match buffer {
            None => (xoff, xon),
            Some(buffer) => {
                let free = buffer.saturating_sub(self.used[at as usize]);
                (free, free.saturating_sub(xoff - xon))
            }
        }
    }

    /// Counts a data packet of `bytes` bytes that came in, and returns whether the sender at the
    /// other end of the input must stop.
    pub(super) fn take(&mut self, ingress: u32, bytes: u32) -> bool {
        let place = self.place(ingress);
        let (owned, stopped, at) = self.inputs[place];
        let owned = owned + u64::from(bytes);
        self.used[at as usize] += u64::from(bytes);
        let stops = !stopped && owned > self.limits(at).0;
        self.inputs[place] = (owned, stopped | stops, at);
        stops
    }

    /// Counts a data packet of `bytes` bytes that left the switch, and returns whether the sender
    /// at the other end of its input may resume.
    pub(super) fn release(&mut self, ingress: u32, bytes: u32) -> bool {
        let place = self.place(ingress);
        let (owned, stopped, at) = self.inputs[place];
        let owned = owned - u64::from(bytes);
        self.used[at as usize] -= u64::from(bytes);
        // An input without bytes resumes in any case, because no later event could resume it.
        let goes = stopped && (owned < self.limits(at).1 || owned == 0);
        self.inputs[place] = (owned, stopped && !goes, at);
        goes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Picos;
    use squall_base::Rate;

    fn inputs(buffer: Option<u64>) -> Inputs {
        let topology = Topology::star(4, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
        Inputs::new(&topology, Lossless { xoff: 300, xon: 200, buffer }, 1)
    }

    /// The port by which a host of the star sends.
    fn port(inputs: &Inputs, nth: usize) -> u32 {
        let to_switch = |at: &usize| inputs.inputs[*at].2 != u32::MAX;
        (0..inputs.inputs.len()).filter(to_switch).nth(nth).expect("there") as u32
    }

    #[test]
    fn an_input_has_a_number_of_its_own() {
        let mut inputs = inputs(None);
        let (a, b) = (port(&inputs, 0), port(&inputs, 1));
        assert_eq!(
            [100, 100, 100, 1].map(|bytes| inputs.take(a, bytes)),
            [false, false, false, true]
        );
        assert!(!inputs.take(b, 300) && !inputs.take(a, 100), "a pause is reported once");
        assert_eq!([100, 100, 2].map(|bytes| inputs.release(a, bytes)), [false, false, true]);
    }

    #[test]
    fn lanes_of_a_link_are_stopped_apart() {
        let topology = Topology::star(4, Rate::gbps(100), Picos::micros(1), Picos::ZERO);
        let mut inputs = Inputs::new(&topology, Lossless { xoff: 300, xon: 200, buffer: None }, 3);
        let lane = |lane: u8| super::lane::ingress(2, lane, 0);
        assert_eq!([300, 1].map(|bytes| inputs.take(lane(0), bytes)), [false, true]);
        assert_eq!([300, 1].map(|bytes| inputs.take(lane(2), bytes)), [false, true]);
        assert!(!inputs.take(lane(1), 300));
        assert!(inputs.release(lane(2), 102) && !inputs.release(lane(0), 1));
    }

    #[test]
    fn a_shared_buffer_leaves_each_as_much_as_is_free() {
        let mut inputs = inputs(Some(1200));
        let (a, b) = (port(&inputs, 0), port(&inputs, 1));
        // A single input may occupy half of the buffer.
        assert_eq!([500, 100, 1].map(|bytes| inputs.take(a, bytes)), [false, false, true]);
        // 599 bytes are free; when the other input has 300, 299 are.
        assert_eq!([200, 99, 1].map(|bytes| inputs.take(b, bytes)), [false, false, true]);
        // 699 of 1200 bytes are occupied and 501 free, so the input resumes below 401.
        assert_eq!([202, 1].map(|bytes| inputs.release(a, bytes)), [true, false]);
        assert!(inputs.release(b, 300), "nothing is left of it");
    }
}
