//! The order of operations that an endpoint keeps: `msg_order`, and the sizes up to which it holds.

use squall_engine::{OperationClasses, Order};

use crate::abi::flags::order::{
    ATOMIC_RAR, ATOMIC_RAW, ATOMIC_WAR, ATOMIC_WAW, RAR, RAS, RAW, RMA_RAR, RMA_RAW, RMA_WAR,
    RMA_WAW, SAR, SAS, SAW, WAR, WAS, WAW,
};

/// Classes of the RMA and atomic operations that read the peer's memory.
const READS: OperationClasses = OperationClasses::READ.or(OperationClasses::FETCH);
/// Classes of the RMA and atomic operations that write the peer's memory.
const WRITES: OperationClasses = OperationClasses::WRITE.or(OperationClasses::UPDATE);

/// For each bit of `msg_order`, the classes of the later operation and of the earlier one that it must follow.
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

/// The order bits that cost nothing, because messages are matched in this order anyway.
pub(crate) const FREE: u64 = SAS;

/// All order bits that an endpoint can promise. Except for [`FREE`], the later operation begins only when the earlier
/// one has ended, a round trip later, because packets arrive in any order.
pub(crate) const ALL: u64 = {
    let (mut all, mut at) = (FREE, 0);
    while at < TABLE.len() {
        all |= TABLE[at].0;
        at += 1;
    }
    all
};

/// Returns the order guarantees that the engine must keep for the bits of `msg_order`.
pub(crate) fn of(msg_order: u64) -> Order {
    let asked = TABLE.iter().filter(|(bit, ..)| msg_order & bit != 0);
    asked.fold(Order::NONE, |order, (_, later, earlier)| order.with(*later, *earlier))
}

/// The order bits to which the limits `max_order_raw_size`, `max_order_war_size` and `max_order_waw_size` apply.
pub(crate) const SIZED: [u64; 3] =
    [RAW | RMA_RAW | ATOMIC_RAW, WAR | RMA_WAR | ATOMIC_WAR, WAW | RMA_WAW | ATOMIC_WAW];

/// The bit of each of these three groups that stands for all of the group.
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
