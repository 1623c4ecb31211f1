//! The value of `--overhead`: virtual times of a host's work, by kind of work and size of the message.

use squall_net::emulator::host_overhead::{
    CostPiece, HostOverhead, HostWork, MOST_PIECES, WorkCost,
};
use squall_netsim::settings::Settings;

/// Largest time in a value, in ns or in ps a byte.
const MOST: u32 = 1_000_000;

/// Parses a list such as `send=100,read=0:150/4096:900:35,byte=60`. Times that the list leaves out keep their defaults.
///
/// # Errors
/// A part of the list is not valid.
pub(super) fn parse(list: &str) -> Result<HostOverhead, String> {
    let mut overhead = HostOverhead::default();
    let mut costs: [Option<WorkCost>; HostWork::ALL.len()] = Default::default();
    for part in list.split(',') {
        let bad = |what: &str| {
            let works = HostWork::ALL.map(HostWork::name).join(", ");
            format!(
                "--overhead {list}: '{part}' is invalid: {what}; give NAME=NS, or byte=PS, with numbers up to {MOST}, \
                 separated by commas, where NAME is poll, clock, {works}; all but poll and clock also take up to \
                 {MOST_PIECES} pieces BYTES:NS:PS/.., of which the first begins at 0 bytes"
            )
        };
        let (name, value) = part.split_once('=').ok_or_else(|| bad("it has no '='"))?;
        let place = match name {
            "poll" => Some(&mut overhead.poll),
            "clock" => Some(&mut overhead.clock),
            "byte" => Some(&mut overhead.byte),
            _ => None,
        };
        if let Some(place) = place {
            *place = parse_number(value, MOST).ok_or_else(|| bad("its value is no such number"))?;
            continue;
        }
        let work = HostWork::ALL.into_iter().find(|work| work.name() == name);
        let work = work.ok_or_else(|| bad("its name is unknown"))?;
        let cost =
            parse_cost(value).ok_or_else(|| bad("its value is no number or list of pieces"))?;
        costs[work as usize] = Some(cost);
    }
    // Works follow their stand-ins in this order, so that a cost of their own prevails.
    for work in HostWork::ALL {
        if let Some(cost) = &costs[work as usize] {
            overhead.set(work, cost);
        }
    }
    Ok(overhead)
}

fn parse_number(text: &str, most: u32) -> Option<u32> {
    text.parse().ok().filter(|number| *number <= most)
}

/// Parses a number of nanoseconds, or pieces `BYTES:NS[:PS]`.
fn parse_cost(text: &str) -> Option<WorkCost> {
    if !text.contains(':') {
        return parse_number(text, MOST).map(WorkCost::constant);
    }
    let piece = |text: &str| {
        let mut words = text.split(':');
        let from = parse_number(words.next()?, u32::MAX)?;
        let ns = parse_number(words.next()?, MOST)?;
        let byte_ps = words.next().map_or(Some(0), |word| parse_number(word, MOST))?;
        words.next().is_none().then_some(CostPiece { from, ns, byte_ps })
    };
    let pieces: Option<Vec<CostPiece>> = text.split('/').map(piece).collect();
    WorkCost::of_pieces(&pieces?)
}

/// Returns a cost as [`parse_cost`] reads it.
fn format_cost(cost: &WorkCost) -> String {
    match &cost.pieces()[..] {
        [CostPiece { ns, byte_ps: 0, .. }] => ns.to_string(),
        pieces => {
            let piece =
                |CostPiece { from, ns, byte_ps }: &CostPiece| format!("{from}:{ns}:{byte_ps}");
            pieces.iter().map(piece).collect::<Vec<_>>().join("/")
        }
    }
}

/// Adds the times to the settings of a record. Work that has the cost of its stand-in is left out.
pub(super) fn add_settings(overhead: &HostOverhead, settings: &mut Settings) {
    for work in HostWork::ALL {
        let cost = overhead.cost(work);
        let usual = work.stand_in().map(|work| overhead.cost(work).clone());
        let is_base = matches!(work, HostWork::Send | HostWork::Receive);
        if is_base || *cost != usual.unwrap_or_default() {
            settings.set(format!("virtual.{}_ns", work.name()), format_cost(cost));
        }
    }
    settings.set("virtual.poll_ns", overhead.poll);
    settings.set("virtual.clock_ns", overhead.clock);
    settings.set("virtual.byte_ps", overhead.byte);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of all kinds of work for a message of this size.
    fn times(overhead: &HostOverhead, bytes: u64) -> [u64; 8] {
        HostWork::ALL.map(|work| overhead.cost(work).time(bytes).0)
    }

    #[test]
    fn one_number_for_each_name_means_what_it_always_meant() {
        let overhead = parse("send=7,byte=60").expect("valid");
        assert_eq!((overhead.poll, overhead.byte, overhead.clock), (50, 60, 20));
        assert_eq!(times(&overhead, 1 << 20), [7, 7, 7, 7, 7, 100, 100, 0]);
        let all = parse("send=2500,receive=70,poll=1,clock=7").expect("valid");
        assert_eq!(times(&all, 0), [2500, 2500, 2500, 2500, 2500, 70, 70, 0]);
    }

    #[test]
    fn works_have_pieces_of_their_own_in_any_order() {
        let list = "read=30,send=0:120/4096:900:35,sent=0:5:1000,unexpected=0:40:100";
        let overhead = parse(list).expect("valid");
        assert_eq!(times(&overhead, 4095), [120, 120, 120, 30, 120, 100, 4100, 449]);
        // 8192 bytes at 35 ps are 286.72 ns.
        assert_eq!(times(&overhead, 8192), [1186, 1186, 1186, 30, 1186, 100, 8197, 859]);
        let mut settings = Settings::default();
        add_settings(&overhead, &mut settings);
        let text = format!("{settings:?}");
        assert!(text.contains("virtual.send_ns") && text.contains("0:120:0/4096:900:35"), "{text}");
        assert!(!text.contains("virtual.write_ns") && text.contains("virtual.read_ns"), "{text}");
    }

    #[test]
    fn bad_values_are_named() {
        for bad in [
            "",
            "send",
            "send=x",
            "send=-1",
            "recv=3",
            "send=1000001",
            "poll=0:1:1",
            "byte=1000001",
            "send=4096:900:35",
            "send=0:1/0:2",
            "send=0:1/",
            "send=0:1:2:3",
            "send=0:1:1000001",
            "send=0:1/4294967296:1",
            "send=0:1/1:1/2:1/3:1/4:1/5:1/6:1/7:1/8:1",
        ] {
            let refused = parse(bad).expect_err(bad);
            let last = bad.split(',').next_back().unwrap_or_default();
            assert!(
                refused.starts_with(&format!("--overhead {bad}: '{last}' is invalid: ")),
                "{refused}"
            );
        }
    }
}
