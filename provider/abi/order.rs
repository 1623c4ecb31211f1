//! The order of operations that an endpoint keeps: `msg_order`, and the sizes up to which it holds.

use squall_engine::{OperationClasses, Order};

use crate::abi::flags::order::{
    ATOMIC_RAR, ATOMIC_RAW, ATOMIC_WAR, ATOMIC_WAW, RAR, RAS, RAW, RMA_RAR, RMA_RAW, RMA_WAR,
    RMA_WAW, SAR, SAS, SAW, WAR, WAS, WAW,
};

/// RMA and atomics that read.
const READS: OperationClasses = OperationClasses::READ.or(OperationClasses::FETCH);
/// RMA and atomics that write.
const WRITES: OperationClasses = OperationClasses::WRITE.or(OperationClasses::UPDATE);

/// Each bit: what comes later, and what it comes after.
const TABLE: [(u64, OperationClasses, OperationClasses); 16] = [
    (RAR, READS, READS),
    (RAW, READS, WRITES),
    (RAS, READS, OperationClasses::SEND),
    (WAR, WRITES, READS),
    (WAW, WRITES, WRITES),
    (WAS, WRITES, OperationClasses::SEND),
    (SAR, OperationClasses::SEND, READS),
    (SAW, OperationClasses::SEND, WRITES),
    (RMA_RAR, OperationClasses::READ, OperationClasses::READ),
    (RMA_RAW, OperationClasses::READ, OperationClasses::WRITE),
    (RMA_WAR, OperationClasses::WRITE, OperationClasses::READ),
    (RMA_WAW, OperationClasses::WRITE, OperationClasses::WRITE),
    (ATOMIC_RAR, OperationClasses::FETCH, OperationClasses::FETCH),
    (ATOMIC_RAW, OperationClasses::FETCH, OperationClasses::UPDATE),
    (ATOMIC_WAR, OperationClasses::UPDATE, OperationClasses::FETCH),
    (ATOMIC_WAW, OperationClasses::UPDATE, OperationClasses::UPDATE),
];

/// Order that costs nothing: messages match in it.
pub(crate) const FREE: u64 = SAS;

/// All that can be had. But for [`FREE`], what comes later begins when what came before has ended, a round trip
/// later: packets arrive in any order.
pub(crate) const ALL: u64 = {
    let (mut all, mut at) = (FREE, 0);
    while at < TABLE.len() {
        all |= TABLE[at].0;
        at += 1;
    }
    all
};

/// Returns the order that the engine keeps.
pub(crate) fn of(msg_order: u64) -> Order {
    let asked = TABLE.iter().filter(|(bit, ..)| msg_order & bit != 0);
    asked.fold(Order::NONE, |order, (_, later, earlier)| order.with(*later, *earlier))
}

/// The bits that `max_order_raw_size`, `max_order_war_size` and `max_order_waw_size` speak of.
pub(crate) const SIZED: [u64; 3] =
    [RAW | RMA_RAW | ATOMIC_RAW, WAR | RMA_WAR | ATOMIC_WAR, WAW | RMA_WAW | ATOMIC_WAW];

/// The bits that stand for them all.
pub(crate) const SIZED_ALL: [u64; 3] = [RAW, WAR, WAW];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_has_a_row_and_strict_is_all_of_the_first() {
        assert_eq!(ALL, 0x1ff | 0xff << 32);
        assert_eq!(of(FREE), Order::NONE);
        assert_eq!(of(RMA_RAW), Order::NONE.with(OperationClasses::READ, OperationClasses::WRITE));
        assert_eq!(of(RAR), of(RAR | RMA_RAR | ATOMIC_RAR));
        assert_ne!(of(RMA_WAW | ATOMIC_WAW), of(WAW), "a write after an atomic");
    }
}
