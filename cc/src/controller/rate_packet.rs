//! The rate packet: a control packet that travels the path of a flow's data once a round trip, in
//! which every link reads and writes its state of the flow (s-PERC; Snyder's thesis, section 5.1.1,
//! algorithm 3).

/// Largest number of links that a rate packet has room for; further links do not count the flow.
pub const MOST_LINKS: usize = 8;

/// How a link counts a flow when it computes rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkState {
    /// The link does not count the flow in its sums.
    #[default]
    New,
    /// The link counts the flow as limited by another link (`E` of the algorithm).
    Elsewhere,
    /// The link counts the flow as limited by this link (`B` of the algorithm).
    Here,
}

/// Entry that a link wrote into a rate packet. Rates are b/s of a flow of weight one.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkEntry {
    /// Number that identifies the link.
    pub link: u32,
    /// Rate that the link offers to each flow that it limits: `b`.
    pub bottleneck: f32,
    /// Rate that the link allocated to this flow when it last wrote the entry: `x`.
    pub allocated: f32,
    /// Number of connections by which the flow's share was divided when the link counted it.
    pub weight: u16,
    /// Number of the sweep in which the link counted the flow, see `SpercLinkParameters::forget` of
    /// the switch model; wraps.
    pub sweep: u16,
    /// How the link counted the flow when it last wrote the entry: `s`.
    pub state: LinkState,
    /// `b` is unfairly low at the moment, and other links must ignore it: `i`.
    pub ignore: bool,
    /// The link wrote the entry on this trip of the packet.
    pub fresh: bool,
}

/// Epoch in which a flow started, for the speculative packets of 1RC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StartEpoch {
    /// Number of the epoch, which lasts a base round-trip time.
    pub epoch: u32,
    /// Number of connections that the flow's host had when the epoch began, at least one.
    pub weight: u16,
}

/// Entries of the links on a flow's path, in path order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkEntries {
    entries: [LinkEntry; MOST_LINKS],
    len: u8,
}

impl Default for LinkEntries {
    fn default() -> Self {
        Self { entries: [LinkEntry::default(); MOST_LINKS], len: 0 }
    }
}

impl LinkEntries {
    /// Returns the entries of the links, in path order.
    #[must_use]
    pub fn as_slice(&self) -> &[LinkEntry] {
        self.entries.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Adds a link's entry and returns its index; `None` when the packet is full.
    pub fn push(&mut self, entry: LinkEntry) -> Option<usize> {
        let at = usize::from(self.len);
        *self.entries.get_mut(at)? = entry;
        self.len += 1;
        Some(at)
    }

    /// Returns the index of the entry of `link`, adding an empty one if there is none; `None` when the packet is full.
    pub fn place(&mut self, link: u32) -> Option<usize> {
        let known = self.as_slice().iter().position(|entry| entry.link == link);
        known.or_else(|| self.push(LinkEntry { link, ..LinkEntry::default() }))
    }

    /// Returns the entry at an index that [`Self::place`] returned.
    #[must_use]
    pub const fn get(&self, at: usize) -> LinkEntry {
        self.entries[at]
    }

    /// Replaces the entry at an index that [`Self::place`] returned.
    pub const fn set(&mut self, at: usize, entry: LinkEntry) {
        self.entries[at] = entry;
    }

    /// Marks all entries as written on an earlier trip. Call when the packet leaves its sender.
    pub fn depart(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.fresh = false);
    }

    /// Removes the entries of links that did not write on this trip: they are no longer on the path. Call when the packet is
    /// back at its sender.
    pub fn arrive(&mut self) {
        let all = core::mem::take(self);
        for entry in all.as_slice().iter().filter(|entry| entry.fresh) {
            self.push(*entry);
        }
    }
}

/// The content of a rate packet: what the sender asks for, and an entry per link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RatePacket {
    /// The sender's own number for the flow; no other host reads it.
    pub flow: u32,
    /// Path that the rate packet takes, and that of the flow's data.
    pub path: u16,
    /// Number of the rate packet within its flow; wraps.
    pub serial: u16,
    /// The packet is on its way back: links do not process it.
    pub back: bool,
    /// The flow has ended: links stop counting it, and the receiver does not answer.
    pub leaving: bool,
    /// Number of connections by which the flow's share is divided, at least one.
    pub weight: u16,
    /// Rate that the sender can use, b/s of a flow of weight one; it counts as one more link.
    pub demand: f32,
    /// Epoch in which the flow started, or, later, in which the packet left.
    pub started: StartEpoch,
    /// Smallest number of speculative packets of the epoch that any switch on the path lets
    /// through.
    pub let_through: u16,
    /// Entries that the links on the path wrote.
    pub links: LinkEntries,
}

impl Default for RatePacket {
    fn default() -> Self {
        Self {
            flow: 0,
            path: 0,
            serial: 0,
            back: false,
            leaving: false,
            weight: 1,
            demand: f32::INFINITY,
            started: StartEpoch { epoch: 0, weight: 1 },
            let_through: u16::MAX,
            links: LinkEntries::default(),
        }
    }
}

impl RatePacket {
    /// Returns the rate that the links other than the one at index `at` allow (`p` of the
    /// algorithm): the least bottleneck rate among those not to be ignored, or the demand.
    #[must_use]
    pub fn elsewhere(&self, at: usize) -> f32 {
        let others = self.links.as_slice().iter().enumerate().filter(|(place, _)| *place != at);
        let fair = others.filter(|(_, entry)| entry.state != LinkState::New && !entry.ignore);
        fair.fold(self.demand, |least, (_, entry)| least.min(entry.bottleneck))
    }

    /// Returns the least rate in b/s that any link allocated, per unit of the flow's weight; `None` if no link wrote an entry.
    #[must_use]
    pub fn rate(&self) -> Option<f32> {
        let least = self.links.as_slice().iter().map(|entry| entry.allocated).reduce(f32::min)?;
        Some(least / f32::from(self.weight.max(1)))
    }
}

/// Header fields of a data packet that was sent before its flow had a rate (1RC; Snyder's thesis,
/// section 5.2). Switches drop the packet if its number exceeds the allowance of its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speculation {
    /// Number of the epoch in which the flow started, modulo [`Self::EPOCHS`].
    pub epoch: u8,
    /// Number of the packet among the speculative packets of all flows of its host that started in
    /// this epoch; saturates at [`Self::MOST_NUMBER`].
    pub number: u16,
    /// Number of connections that the host had when the epoch began; at least 1, saturates at
    /// [`Self::MOST_WEIGHT`].
    pub weight: u16,
}

impl Speculation {
    /// Number of epochs that a speculative packet's header distinguishes (7 bits).
    pub const EPOCHS: u8 = 128;
    /// Largest `number` that a speculative packet's header can carry (14 bits).
    pub const MOST_NUMBER: u16 = (1 << 14) - 1;
    /// Largest `weight` (a number of connections) that a speculative packet's header can carry (10
    /// bits).
    pub const MOST_WEIGHT: u16 = (1 << 10) - 1;
}
