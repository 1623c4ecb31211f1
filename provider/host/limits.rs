//! Limits and capabilities that every endpoint has.

use crate::abi::ffi;
use crate::abi::flags;
use crate::host::announced;
use crate::host::memory_limit;
use crate::host::param::{Params, params};

/// Largest message: the SES request_length field has 32 bits (UE 1.0 section 3.4.2.1).
pub(crate) const MAX_MSG_SIZE: usize = u32::MAX as usize;
/// Largest number of pieces of a local buffer in an operation.
pub(crate) const IOV_LIMIT: usize = 4;
/// Largest number of remote ranges in an RMA operation.
pub(crate) const RMA_IOV_LIMIT: usize = 4;
/// Size of remote CQ data in bytes.
pub(crate) const CQ_DATA_SIZE: usize = 8;
/// Size of a memory key in bytes.
pub(crate) const MR_KEY_SIZE: usize = 8;
/// Largest number of pieces of a memory region.
pub(crate) const MR_IOV_LIMIT: usize = 4;
/// Number of objects of each kind that a domain can have, as `fi_getinfo` reports it.
pub(crate) const OBJECTS: usize = 65_536;
/// Largest number of bytes of the error text behind `fi_cq_err_entry::err_data`.
pub(crate) const MAX_ERR_DATA: usize = 1024;
/// The capabilities that stand for kinds of operations: messages, tagged messages, RMA, atomics.
pub(crate) const PRIMARY: u64 = flags::MSG | flags::TAGGED | flags::RMA | flags::ATOMIC;
/// The capabilities that stand for the directions of messages: sending and receiving.
pub(crate) const TWO_SIDED: u64 = flags::SEND | flags::RECV;
/// The capabilities that stand for the roles in RMA and atomics: reading, writing, being read and being written.
pub(crate) const ONE_SIDED: u64 =
    flags::READ | flags::WRITE | flags::REMOTE_READ | flags::REMOTE_WRITE;
/// The capabilities that state where peers may be: on this host and on others.
pub(crate) const REACH: u64 = flags::LOCAL_COMM | flags::REMOTE_COMM;
/// Value of `ep_attr->protocol`. libfabric assigns no number to this protocol, so the value is one that providers may
/// choose (fi_endpoint(3): those with the highest bit), with the UDP port of Ultra Ethernet in it.
pub(crate) const PROTOCOL: u32 = 1 << 31 | 4793;
/// All capabilities that an endpoint can have.
pub(crate) const CAPS: u64 = PRIMARY
    | TWO_SIDED
    | ONE_SIDED
    | REACH
    | flags::MULTI_RECV
    | flags::DIRECTED_RECV
    | flags::SOURCE
    | flags::FENCE
    | flags::TRIGGER
    | flags::COLLECTIVE
    | flags::RMA_EVENT;
/// Secondary capabilities of the receiving side that cost nothing. They are granted, without being asked for, to
/// every application whose endpoint can use them, as libfabric's own providers do.
pub(crate) const UNASKED_RECV: u64 = flags::SOURCE | flags::MULTI_RECV;
/// The secondary capabilities that are granted in the same way to the target of one-sided operations.
pub(crate) const UNASKED_TARGET: u64 = flags::RMA_EVENT;
/// `ep_attr->mem_tag_format`: every bit is a field of its own, so an application may ignore any of them. This is
/// what libfabric's own providers answer (their `FI_TAG_GENERIC`).
pub(crate) const TAG_FORMAT: u64 = 0xAAAA_AAAA_AAAA_AAAA;
/// The value of `ep_attr->protocol_version` that `fi_getinfo` reports.
pub(crate) const PROTOCOL_VERSION: u32 = 1;
/// All capabilities that the transmit side of an endpoint can have.
pub(crate) const TX_CAPS: u64 = PRIMARY
    | flags::SEND
    | flags::READ
    | flags::WRITE
    | flags::FENCE
    | flags::TRIGGER
    | flags::COLLECTIVE;
/// All capabilities that the receive side of an endpoint can have.
pub(crate) const RX_CAPS: u64 = PRIMARY
    | flags::RECV
    | flags::REMOTE_READ
    | flags::REMOTE_WRITE
    | flags::MULTI_RECV
    | flags::DIRECTED_RECV
    | flags::SOURCE
    | flags::TRIGGER
    | flags::COLLECTIVE
    | flags::RMA_EVENT;
/// The default operation flags that an application may set for sends, writes and reads.
pub(crate) const TX_OP_FLAGS: u64 = flags::COMPLETION
    | flags::INJECT
    | flags::INJECT_COMPLETE
    | flags::TRANSMIT_COMPLETE
    | flags::DELIVERY_COMPLETE
    | flags::MATCH_COMPLETE;
/// The default operation flags that an application may set for receives.
pub(crate) const RX_OP_FLAGS: u64 = flags::COMPLETION | flags::MULTI_RECV;

/// Returns the endpoint protocol: the provider's own, or that of libfabric's `tcp` if the provider is registered under
/// that name, because applications that know `tcp` ask for its protocol as well.
pub(crate) fn protocol() -> u32 {
    if announced::is_tcp() { ffi::FI_PROTO_XNET } else { PROTOCOL }
}

/// Length in bytes of the longest message that may be injected. It covers the small sends of MPICH, which injects
/// messages up to this length, and waits a round trip for the delivery of longer ones.
pub(crate) const INJECT_SIZE: usize = 8 << 10;

/// Returns the largest number of operations that an endpoint has in progress in each direction.
pub(crate) fn queue_size() -> usize {
    params().outstanding as usize
}

/// Returns the number of receives that an endpoint with these capabilities can hold at once. With FI_PEER it is at most
/// 1024: lnx offers that many itself, and rejects a provider that reports more.
pub(crate) fn receives(caps: u64) -> usize {
    if caps & flags::PEER == 0 { queue_size() } else { queue_size().min(1024) }
}

/// Limits of the memory for messages that arrive before their receive is posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnexpectedMemory {
    pub(crate) bytes: u64,
    pub(crate) messages: u32,
}

impl UnexpectedMemory {
    /// The limits by default, in a process whose memory is not limited.
    const DEFAULT: Self = Self { bytes: 256 << 20, messages: 1_000_000 };
    /// The smallest limits that a memory limit of the process leads to.
    const LEAST: Self = Self { bytes: 1 << 20, messages: 4096 };
    /// Divisor of a memory limit of the process: payload and headers may each take this part. A process has other
    /// memory, too, and may have several endpoints, and other processes may share the limit.
    const SHARES: u64 = 8;
    /// Bytes of memory that a waiting message takes in addition to its payload.
    const HEADER: u64 = 256;

    /// Returns the limits that the parameters set, or the defaults for a process with this memory limit.
    pub(crate) fn new(params: &Params, limit: Option<u64>) -> Self {
        let share = limit.map_or(u64::MAX, |limit| limit / Self::SHARES);
        let (least, most) = (Self::LEAST, Self::DEFAULT);
        let messages = u32::try_from(share / Self::HEADER).unwrap_or(u32::MAX);
        Self {
            bytes: params.unexpected_bytes.unwrap_or(share.clamp(least.bytes, most.bytes)),
            messages: params
                .max_unexpected
                .unwrap_or(messages.clamp(least.messages, most.messages)),
        }
    }
}

/// Returns the number of bytes that may hold messages for which no receive is posted.
pub(crate) fn buffered() -> usize {
    let memory = UnexpectedMemory::new(params(), memory_limit::read());
    usize::try_from(memory.bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::param::tests::read;

    #[test]
    fn memory_for_unexpected_messages_follows_the_limit_of_the_process() {
        let memory = |values: &[(&str, &str)], limit| {
            let UnexpectedMemory { bytes, messages } =
                UnexpectedMemory::new(&read(values).0, limit);
            (bytes, messages)
        };
        assert_eq!(memory(&[], None), (256 << 20, 1_000_000));
        assert_eq!(memory(&[], Some(64 << 30)), (256 << 20, 1_000_000));
        assert_eq!(memory(&[], Some(256 << 20)), (32 << 20, 131_072));
        assert_eq!(memory(&[], Some(1 << 20)), (1 << 20, 4096));
        let given = [("UNEXPECTED_BYTES", "300M"), ("MAX_UNEXPECTED", "7")];
        assert_eq!(memory(&given, Some(256 << 20)), (300 << 20, 7));
    }
}
