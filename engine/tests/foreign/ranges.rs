//! Writes of several ranges to other implementations, which know no groups: the range with remote CQ data
//! leaves when all others have arrived.

use std::net::SocketAddr;

use squall_base::Span;
use squall_engine::{
    Action, Buf, ForeignWire, NoChannels, OpKind, Operation, Options, RemoteIov, RemoteSeg,
};

use super::endpoint::Endpoint;

const KEY: u64 = 7;
const DATA: u64 = 5;

/// Passes packets between two endpoints, the last ones first, until neither sends any more. Calls `look` at the
/// second one after each packet.
fn exchange(ends: &mut [Endpoint; 2], mut look: impl FnMut(&Endpoint)) {
    let addrs = [1, 2].map(|host| SocketAddr::from(([10, 0, 0, host], 4793)));
    for _ in 0..200 {
        for from in 0..2 {
            for (_, packet) in ends[from].take_sent().into_iter().rev() {
                ends[1 - from].feed(addrs[from], &packet);
                ends[1].poll();
                look(&ends[1]);
            }
            ends[from].pass(Span::millis(1));
        }
    }
}

#[test]
fn remote_cq_data_follow_the_other_ranges() {
    for refused in [false, true] {
        let mut ends = [1, 2].map(|seed| Endpoint::new(seed, ForeignWire::standard(1024)));
        let target = ends[1].memory.alloc(6000);
        ends[1].memory.register(KEY, target, 6000, true, true);
        let peer = ends[0].engine.foreign_peer(SocketAddr::from(([10, 0, 0, 2], 4793)), None);
        let source = ends[0].memory.put(&[9; 5008]);
        let key = if refused { KEY + 1 } else { KEY };
        let segs = [(0, 3000, key), (3000, 2000, KEY), (5000, 8, KEY)];
        let segs = segs.map(|(address, len, key)| RemoteSeg { address, len, key });
        for data in [None, Some(DATA)] {
            let op = Operation {
                peer,
                action: Action::Write(RemoteIov::Many(segs.into())),
                buf: Buf::new(source, 5008),
                data,
                context: source + 1,
                options: Options::default(),
            };
            let end = &mut ends[0];
            let taken = end.engine.submit(end.now, &end.memory, op, None::<&mut NoChannels>);
            taken.expect("there is room");
            exchange(&mut ends, |end| {
                let reported = end.done.iter().any(|done| done.data == Some(DATA));
                let all = end.memory.get(target, 5008).iter().all(|byte| *byte == 9);
                assert!(all || !reported, "the data arrived before the ranges");
            });
            // The first round opens the context; the second one begins from other bytes.
            let [here, there] = &mut ends;
            assert_eq!(here.done.len(), 1, "{:?}", here.done);
            assert_eq!(here.done.pop().map(|done| done.status.is_err()), Some(refused));
            let reports = there.done.iter().filter(|done| done.kind == OpKind::RemoteWrite);
            assert_eq!(reports.count(), usize::from(data.is_some() && !refused));
            there.memory.bytes[target as usize..][..5008].fill(0);
            assert_eq!(here.engine.holdings().fenced, 0);
        }
    }
}
