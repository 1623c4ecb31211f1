//! Whom a lossless switch pauses (IEEE 802.1Qbb), and when: an input is stopped when it has more in the switch than it
//! may have, and goes on when it has less again.
//!
//! What it may have is a number of its own, or what is free of a buffer that the ports of the switch share: the dynamic
//! threshold of Choudhury and Hahne (1998) with a factor of one, by which a single input may fill half of the buffer, and
//! `n` of them each an (n + 1)th.

use super::config::{NetworkOptions, OptionError, fault};
use super::lane;
use crate::topology::{Node, Topology};

/// When a switch pauses an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lossless {
    /// Bytes from one input that pause it, if they are a number of its own.
    pub xoff: u64,
    /// Bytes at which it may go on.
    pub xon: u64,
    /// Bytes of the buffer that is shared, instead; an input goes on as far below the threshold as `xon` is below `xoff`.
    pub buffer: Option<u64>,
}

impl Lossless {
    /// What comes of the options, where a data queue has `queue` bytes and a full packet `packet`.
    pub(super) fn new(
        options: &NetworkOptions,
        queue: u64,
        packet: u64,
    ) -> Result<Self, OptionError> {
        let xoff = options.xoff.map_or(queue.max(packet * 4) / 2, |bytes| bytes.0);
        let xon = options.xon.map_or(xoff.saturating_sub(packet * 2), |bytes| bytes.0);
        if xon >= xoff {
            return fault("xon", format!("{xon}, expected less than xoff, {xoff}"));
        }
        let buffer = options.buffer.map(|bytes| bytes.0);
        if let Some(bytes) = buffer.filter(|bytes| *bytes < 8 * packet) {
            return fault(
                "buffer",
                format!("{bytes}, expected {} at least, eight packets", 8 * packet),
            );
        }
        Ok(Self { xoff, xon, buffer })
    }

    /// Whether what is said of pauses goes together.
    pub(super) fn check(options: &NetworkOptions) -> Result<(), OptionError> {
        for (key, given) in
            [("xoff", options.xoff), ("xon", options.xon), ("buffer", options.buffer)]
        {
            if given.is_some() && !options.lossless {
                return fault(key, "expected with `lossless` only");
            }
        }
        if options.buffer.is_some() && (options.xoff.is_some() || options.xon.is_some()) {
            return fault("buffer", "expected `buffer`, or `xoff` and `xon`, not both");
        }
        Ok(())
    }
}

/// What the inputs of all switches have in them. An input is a lane of a link, named by the port that sends to it: see
/// [`lane`].
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    limits: Lossless,
    /// Lanes of a link.
    lanes: u32,
    /// By port and lane: bytes that came in by it, whether its sender was told to stop, and the switch it leads to.
    inputs: Vec<(u64, bool, u32)>,
    /// By switch: bytes in it.
    used: Vec<u64>,
}

impl Inputs {
    pub(super) fn new(topology: &Topology, limits: Lossless, lanes: u8) -> Self {
        let place = |node: Node| match node {
            Node::Switch(at) => at,
            // Hosts take what comes.
            Node::Host(_) => u32::MAX,
        };
        let ends = topology.links.iter().flat_map(|link| [place(link.b), place(link.a)]);
        let each = |at| core::iter::repeat_n((0, false, at), lanes.into());
        let inputs: Vec<_> = ends.flat_map(each).collect();
        let last = inputs.iter().map(|input| input.2).filter(|at| *at != u32::MAX).max();
        let used = vec![0; last.map_or(0, |last| last as usize + 1)];
        Self { limits, lanes: lanes.into(), inputs, used }
    }

    /// The input's place.
    const fn place(&self, ingress: u32) -> usize {
        (lane::port(ingress) * self.lanes + lane::came(ingress) as u32) as usize
    }

    /// What an input of the switch may have, and what it goes on at.
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

    /// So many bytes came in. Whether their sender is to be stopped.
    pub(super) fn take(&mut self, ingress: u32, bytes: u32) -> bool {
        let place = self.place(ingress);
        let (owned, stopped, at) = self.inputs[place];
        let owned = owned + u64::from(bytes);
        self.used[at as usize] += u64::from(bytes);
        let stops = !stopped && owned > self.limits(at).0;
        self.inputs[place] = (owned, stopped | stops, at);
        stops
    }

    /// So many of them left. Whether their sender may go on.
    pub(super) fn release(&mut self, ingress: u32, bytes: u32) -> bool {
        let place = self.place(ingress);
        let (owned, stopped, at) = self.inputs[place];
        let owned = owned - u64::from(bytes);
        self.used[at as usize] -= u64::from(bytes);
        // With nothing left there would be no other moment to say so.
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
        assert!(!inputs.take(b, 300) && !inputs.take(a, 100), "told once, and another is another");
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
        // Alone it may have half.
        assert_eq!([500, 100, 1].map(|bytes| inputs.take(a, bytes)), [false, false, true]);
        // 599 are free; with 300 of another 299 are.
        assert_eq!([200, 99, 1].map(|bytes| inputs.take(b, bytes)), [false, false, true]);
        // 699 of 1200 are taken: 501 free, and it goes on below 401.
        assert_eq!([202, 1].map(|bytes| inputs.release(a, bytes)), [true, false]);
        assert!(inputs.release(b, 300), "nothing is left of it");
    }
}
