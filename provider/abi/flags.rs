//! libfabric's constants with the types the provider works in.
//!
//! bindgen types a constant by its value, not by the field it belongs to, and 2.x headers dropped or
//! renamed some that older applications still pass; those are written here by number, as the ABI.

use crate::abi::ffi;

macro_rules! flags {
    ($($name:ident = $ffi:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($ffi), "`.")]
            pub(crate) const $name: u64 = ffi::$ffi as u64;
        )*

        /// All flags with their names in libfabric's headers.
        pub(crate) const NAMES: &[(u64, &str)] = &[$(($name, stringify!($ffi))),*];
    };
}

flags! {
    MSG = FI_MSG;
    RMA = FI_RMA;
    ATOMIC = FI_ATOMIC;
    TAGGED = FI_TAGGED;
    READ = FI_READ;
    WRITE = FI_WRITE;
    RECV = FI_RECV;
    SEND = FI_SEND;
    TRANSMIT = FI_TRANSMIT;
    REMOTE_READ = FI_REMOTE_READ;
    REMOTE_WRITE = FI_REMOTE_WRITE;
    MULTI_RECV = FI_MULTI_RECV;
    REMOTE_CQ_DATA = FI_REMOTE_CQ_DATA;
    PEEK = FI_PEEK;
    CLAIM = FI_CLAIM;
    DISCARD = FI_DISCARD;
    COMPLETION = FI_COMPLETION;
    EVENT = FI_EVENT;
    INJECT = FI_INJECT;
    INJECT_COMPLETE = FI_INJECT_COMPLETE;
    TRANSMIT_COMPLETE = FI_TRANSMIT_COMPLETE;
    DELIVERY_COMPLETE = FI_DELIVERY_COMPLETE;
    COMMIT_COMPLETE = FI_COMMIT_COMPLETE;
    MATCH_COMPLETE = FI_MATCH_COMPLETE;
    MORE = FI_MORE;
    FENCE = FI_FENCE;
    RMA_EVENT = FI_RMA_EVENT;
    SELECTIVE_COMPLETION = FI_SELECTIVE_COMPLETION;
    LOCAL_COMM = FI_LOCAL_COMM;
    REMOTE_COMM = FI_REMOTE_COMM;
    SOURCE = FI_SOURCE;
    DIRECTED_RECV = FI_DIRECTED_RECV;
    NUMERICHOST = FI_NUMERICHOST;
    SYNC_ERR = FI_SYNC_ERR;
    SYMMETRIC = FI_SYMMETRIC;
    AV_USER_ID = FI_AV_USER_ID;
    AFFINITY = FI_AFFINITY;
    TRIGGER = FI_TRIGGER;
    PEER = FI_PEER;
    HMEM = FI_HMEM;
    COLLECTIVE = FI_COLLECTIVE;
    SHARED_AV = FI_SHARED_AV;
    UNIVERSE = FI_UNIVERSE;
    HMEM_DEVICE_ONLY = FI_HMEM_DEVICE_ONLY;
    HMEM_HOST_ALLOC = FI_HMEM_HOST_ALLOC;
}

/// Flag `FI_MR_DMABUF` (libfabric 1.20): the memory region is described by a DMA-buf.
pub(crate) const MR_DMABUF: u64 = 1 << 40;
/// Address `FI_ADDR_UNSPEC`, and `FI_ADDR_NOTAVAIL` with the same value, `(uint64_t) -1`.
pub(crate) const ADDR_UNSPEC: u64 = u64::MAX;
/// Key `FI_KEY_NOTAVAIL`, which stands for "no key" in libfabric.
pub(crate) const KEY_NOTAVAIL: u64 = u64::MAX;

/// Bits of `msg_order`. The letters name the later operation first: R for reads, W for writes, S for sends; some bits
/// are for RMA alone or for atomics alone.
pub(crate) mod order {
    pub(crate) const RAR: u64 = 1 << 0;
    pub(crate) const RAW: u64 = 1 << 1;
    pub(crate) const RAS: u64 = 1 << 2;
    pub(crate) const WAR: u64 = 1 << 3;
    pub(crate) const WAW: u64 = 1 << 4;
    pub(crate) const WAS: u64 = 1 << 5;
    pub(crate) const SAR: u64 = 1 << 6;
    pub(crate) const SAW: u64 = 1 << 7;
    pub(crate) const SAS: u64 = 1 << 8;
    pub(crate) const RMA_RAR: u64 = 1 << 32;
    pub(crate) const RMA_RAW: u64 = 1 << 33;
    pub(crate) const RMA_WAR: u64 = 1 << 34;
    pub(crate) const RMA_WAW: u64 = 1 << 35;
    pub(crate) const ATOMIC_RAR: u64 = 1 << 36;
    pub(crate) const ATOMIC_RAW: u64 = 1 << 37;
    pub(crate) const ATOMIC_WAR: u64 = 1 << 38;
    pub(crate) const ATOMIC_WAW: u64 = 1 << 39;
}

/// `enum fi_threading`. 2.x dropped FID and ENDPOINT from the headers, not from the ABI.
pub(crate) mod threading {
    pub(crate) const UNSPEC: u32 = 0;
    pub(crate) const SAFE: u32 = 1;
    pub(crate) const FID: u32 = 2;
    pub(crate) const DOMAIN: u32 = 3;
    pub(crate) const COMPLETION: u32 = 4;
    pub(crate) const ENDPOINT: u32 = 5;
}

/// Values of `enum fi_progress`; 2.x added CONTROL_UNIFIED for `control_progress`.
pub(crate) mod progress {
    pub(crate) const UNSPEC: u32 = 0;
    pub(crate) const AUTO: u32 = 1;
    pub(crate) const MANUAL: u32 = 2;
    pub(crate) const CONTROL_UNIFIED: u32 = 3;
}

/// `mr_mode` bits, and the two values (basic, scalable) that API versions before 1.5 used.
pub(crate) mod mr_mode {
    pub(crate) const BASIC: i32 = 1;
    pub(crate) const SCALABLE: i32 = 2;
    pub(crate) const VIRT_ADDR: i32 = 1 << 4;
    pub(crate) const PROV_KEY: i32 = 1 << 6;
    pub(crate) const HMEM: i32 = 1 << 10;
}

/// The flag of fi_getinfo(3) with which libfabric's own layers (rxm, rxd) ask for the providers on which they could
/// build. It is libfabric's internal `OFI_CORE_PROV_ONLY`, which no public header has.
pub(crate) const CORE_PROV_ONLY: u64 = 1 << 59;

/// Endpoint type `FI_EP_DGRAM`: unreliable datagrams.
pub(crate) const EP_DGRAM: u32 = 2;
/// Endpoint type `FI_EP_RDM`: reliable datagrams.
pub(crate) const EP_RDM: u32 = 3;
/// Value `FI_RM_ENABLED` of resource management: the provider prevents overruns.
pub(crate) const RM_ENABLED: u32 = 2;

/// Values of `enum fi_av_type`, the type of an address vector.
pub(crate) mod av_type {
    pub(crate) const UNSPEC: u32 = 0;
    pub(crate) const MAP: u32 = 1;
    pub(crate) const TABLE: u32 = 2;
}

/// Values of `fi_info::addr_format`, the format of addresses.
pub(crate) mod addr_format {
    pub(crate) const UNSPEC: u32 = 0;
    pub(crate) const SOCKADDR: u32 = 1;
    pub(crate) const SOCKADDR_IN: u32 = 2;
    pub(crate) const SOCKADDR_IN6: u32 = 3;
    /// Format `FI_SOCKADDR_IP`: IPv4 or IPv6 addresses (libfabric 2.2).
    pub(crate) const SOCKADDR_IP: u32 = 17;
}

/// Values of `fi_fid::fclass`, the class of an object, for the objects that this provider has.
pub(crate) mod class {
    pub(crate) const FABRIC: usize = 1;
    pub(crate) const DOMAIN: usize = 2;
    pub(crate) const EP: usize = 3;
    pub(crate) const SRX_CTX: usize = 6;
    pub(crate) const AV: usize = 11;
    pub(crate) const MR: usize = 12;
    pub(crate) const EQ: usize = 13;
    pub(crate) const CQ: usize = 14;
    pub(crate) const CNTR: usize = 15;
    pub(crate) const NIC: usize = 20;
    pub(crate) const WAIT: usize = 16;
    pub(crate) const POLL: usize = 17;
    pub(crate) const MC: usize = 19;
    pub(crate) const AV_SET: usize = 21;
}
