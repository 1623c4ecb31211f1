//! Runs: packets sent together leave as they would one by one.

mod link;

use link::{Faults, PEER, World, named};
use squall_reliability::base::{Rng, Span, Time};
use squall_reliability::{Blocked, NewPacket, PdcId, Pdcs, cc};

const BYTES: u32 = 1400;

/// What is seen of a packet that left: number, path, whether it asks, what it clears, its credit.
type Left = (u32, u16, bool, i16, Option<u32>);

fn new_packet(desc: u32) -> NewPacket<u32> {
    NewPacket { desc, bytes: BYTES, last: false, prompt: true, backlog: 1 << 20 }
}

fn single(pdcs: &mut Pdcs<u32>, now: Time, id: PdcId, desc: u32) -> Result<Left, Blocked> {
    let grant = pdcs.next_packet(now, id, &new_packet(desc))?;
    let pds = grant.pds;
    let credit = pds.ccc.map(|ccc| ccc.credit_target);
    Ok((grant.psn.0, grant.path, pds.ack_request, pds.clear_psn_offset, credit))
}

#[test]
fn packets_of_a_run_leave_as_they_would_one_by_one() {
    let mut in_runs = 0;
    for (sender, _) in cc::SenderConfig::NAMES {
        for (selector, _) in cc::PathsConfig::NAMES {
            for seed in 1..6 {
                let config = || {
                    let mut config = named(sender, selector, seed);
                    config.mtu = if seed % 2 == 0 { BYTES } else { 4096 };
                    config.train_packets = [64, 5, 1][seed as usize % 3];
                    config.max_window_packets = if seed == 4 { 20 } else { 2048 };
                    config
                };
                let (mut one, mut other) = (Pdcs::new(config()), Pdcs::new(config()));
                let mut rng = Rng::new(seed);
                let now = Time(1_000_000);
                let ids = (one.open(now, PEER).unwrap(), other.open(now, PEER).unwrap());
                let (mut wanted, mut got) = (Vec::new(), Vec::<Left>::new());
                while wanted.len() < 400
                    && let Ok(left) = single(&mut one, now, ids.0, wanted.len() as u32)
                {
                    wanted.push(left);
                }
                while got.len() < 400
                    && let Ok(left) = single(&mut other, now, ids.1, got.len() as u32)
                {
                    got.push(left);
                    let most = (400 - got.len()).min(1 + rng.below(60) as usize) as u16;
                    let first = got.len() as u32;
                    let desc = |n| first + u32::from(n);
                    let Some(grant) = other.runs(ids.1).send(now, (BYTES, most), desc) else {
                        continue;
                    };
                    assert!(grant.count > 0 && grant.count <= most);
                    in_runs += u32::from(grant.count);
                    for n in 1..grant.count {
                        let (psn, _, _, clear, credit) = left;
                        let psn = psn.wrapping_add(u32::from(n));
                        got.push((psn, grant.path, false, clear - n.cast_signed(), credit));
                    }
                    let (last, pds) = (&grant.last, grant.last.pds);
                    let credit = pds.ccc.map(|ccc| ccc.credit_target);
                    got.push((
                        last.psn.0,
                        last.path,
                        pds.ack_request,
                        pds.clear_psn_offset,
                        credit,
                    ));
                }
                let what = format!("{sender} {selector} {seed}");
                assert_eq!(got, wanted, "{what}");
                let seen = |pdcs: &Pdcs<u32>, id| {
                    (format!("{:?} {:?}", pdcs.info(id), pdcs.counters()), pdcs.poll_timeout())
                };
                assert_eq!(seen(&other, ids.1), seen(&one, ids.0), "{what}");
                assert_eq!(format!("{:?}", other.flows()), format!("{:?}", one.flows()), "{what}");
            }
        }
    }
    assert!(in_runs > 1_000, "runs are hardly used: {in_runs}");
}

/// Whatever is lost, marked, trimmed, doubled and overtaken: every packet, of data and of acknowledgements, is the
/// same.
#[test]
fn a_transfer_in_runs_is_the_same_to_the_last_acknowledgement() {
    let mut in_runs = 0;
    let rough = || Faults {
        loss: 0.01,
        trim: 0.01,
        mark: 0.05,
        duplicate: 0.01,
        jitter: Span::micros(10),
        ..Faults::default()
    };
    for (sender, _) in cc::SenderConfig::NAMES {
        for (seed, bad) in [(1, false), (2, true), (3, true)] {
            let mut play = |runs| {
                let config = |seed| named(sender, "reps-avoid", seed);
                let faults = if bad { rough() } else { Faults::default() };
                let mut world = World::new(config(seed), config(seed + 10), faults, seed);
                world.trace = Some(Vec::new());
                world.hosts[0].runs = runs;
                world.send(0, 0..1500, 4096);
                assert!(world.settle(Span::secs(60)), "{sender} {seed}");
                let counted =
                    format!("{:?}", world.hosts.each_ref().map(|host| host.pdcs.counters()));
                let fates = format!("{:?}", world.hosts[0].fates);
                in_runs += world.hosts[0].in_runs;
                (world.trace.unwrap(), counted, fates)
            };
            let (one, other) = (play(false), play(true));
            let differs = one.0.iter().zip(&other.0).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{sender} {seed}");
            assert!(one == other, "{sender} {seed}");
        }
    }
    assert!(in_runs > 1000, "runs are hardly used: {in_runs}");
}
