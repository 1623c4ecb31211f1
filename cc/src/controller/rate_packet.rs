//! The rate packet: what travels the way of a flow's data once a round trip, in which every link reads and writes what it
//! needs to know of the flow (the control packet of s-PERC; Snyder's thesis, section 5.1.1, algorithm 3).

/// Most links that a rate packet has room for; the others do not count the flow.
pub const MOST_LINKS: usize = 8;

/// What a link thinks of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkState {
    /// It does not count it.
    #[default]
    New,
    /// The flow is limited elsewhere: `E`.
    Elsewhere,
    /// The flow is limited by this link: `B`.
    Here,
}

/// What a link wrote into a rate packet. Rates are b/s of a flow of weight one.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkEntry {
    /// Which link.
    pub link: u32,
    /// What the link has for a flow that it limits: `b`.
    pub bottleneck: f32,
    /// What it allocated this flow: `x`.
    pub allocated: f32,
    /// Connections by which the flow's part was divided when the link counted it.
    pub weight: u16,
    /// The sweep in which the link counted it, see `SpercLinkParameters::forget` of the model of a switch; wraps.
    pub sweep: u16,
    /// How the link counts it: `s`.
    pub state: LinkState,
    /// `b` is unfairly low for the moment, and other links are to ignore it: `i`.
    pub ignore: bool,
    /// Written on this trip of the packet.
    pub fresh: bool,
}

/// When a flow started, for 1RC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StartEpoch {
    /// In which epoch.
    pub epoch: u32,
    /// Connections that its host had when that epoch began, at least one.
    pub weight: u16,
}

/// What the links on a flow's way wrote, in the order in which they did.
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
    /// Returns the entries.
    #[must_use]
    pub fn as_slice(&self) -> &[LinkEntry] {
        self.entries.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Adds an entry and returns its index; `None` when the packet is full.
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

/// A rate packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RatePacket {
    /// The sender's own number for the flow; nobody else reads it.
    pub flow: u32,
    /// The path that it takes, and the flow's data.
    pub path: u16,
    /// Of the flow's, which; wraps.
    pub serial: u16,
    /// On its way back: links let it pass.
    pub back: bool,
    /// The flow is over: links do not count it any more, and nobody answers.
    pub leaving: bool,
    /// Connections by which the flow's part is divided, at least one.
    pub weight: u16,
    /// What the sender has to send, b/s of a flow of weight one: one more link, as it were.
    pub demand: f32,
    /// When the flow started, or, later, when the packet left.
    pub started: StartEpoch,
    /// Least number of speculative packets of the epoch that any switch lets through.
    pub let_through: u16,
    /// What links wrote.
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
    /// Returns the rate that the links other than the one at index `at` allow (`p` of the algorithm): the least bottleneck rate
    /// among those not to be ignored, or the demand.
    #[must_use]
    pub fn elsewhere(&self, at: usize) -> f32 {
        let others = self.links.as_slice().iter().enumerate().filter(|(place, _)| *place != at);
        let fair = others.filter(|(_, entry)| entry.state != LinkState::New && !entry.ignore);
        fair.fold(self.demand, |least, (_, entry)| least.min(entry.bottleneck))
    }

    /// Returns the rate in b/s that all links together allow the flow; `None` if none of them wrote an entry.
    #[must_use]
    pub fn rate(&self) -> Option<f32> {
        let least = self.links.as_slice().iter().map(|entry| entry.allocated).reduce(f32::min)?;
        Some(least / f32::from(self.weight.max(1)))
    }
}

/// What a data packet says that was sent before its flow had a rate (1RC; Snyder's thesis, section 5.2): switches drop it
/// where its number is beyond what flows of its epoch have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speculation {
    /// The epoch in which its flow started, modulo [`Self::EPOCHS`].
    pub epoch: u8,
    /// Its number among the speculative packets of all flows of its host that started then; saturates at [`Self::MOST_NUMBER`].
    pub number: u16,
    /// Connections that the host had when the epoch began; at least 1, saturates at [`Self::MOST_WEIGHT`].
    pub weight: u16,
}

impl Speculation {
    /// Epochs that are told apart on the wire.
    pub const EPOCHS: u8 = 128;
    /// The largest number on the wire.
    pub const MOST_NUMBER: u16 = (1 << 14) - 1;
    /// The largest weight on the wire.
    pub const MOST_WEIGHT: u16 = (1 << 10) - 1;
}
