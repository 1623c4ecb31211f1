//! Building `fi_info` lists in libc memory: libfabric's core frees every piece with `free`.

use core::ffi::c_void;
use core::ptr::null_mut;

use super::candidate::Candidate;
use super::device;
use super::memory::{copy, string, zeroed};
use crate::VERSION;
use crate::abi::compat::{ATTR_ALLOC, DomainAttr, EpAttr};
use crate::abi::ffi;
use crate::abi::flags;
use crate::abi::order;
use crate::host::job::AuthKey;
use crate::host::limits::{self, protocol};
use crate::network::addr::{self, Name, Raw};

/// The values of one entry of the list that `fi_getinfo` returns.
pub(crate) struct Answer<'a> {
    pub(super) endpoint: &'a Candidate,
    pub(super) caps: u64,
    pub(super) tx_caps: u64,
    pub(super) rx_caps: u64,
    pub(super) tx_op_flags: u64,
    pub(super) rx_op_flags: u64,
    pub(super) msg_order: u64,
    pub(super) inject_size: usize,
    pub(super) tx_size: usize,
    pub(super) rx_size: usize,
    pub(super) tx_iov_limit: usize,
    pub(super) rx_iov_limit: usize,
    pub(super) rma_iov_limit: usize,
    pub(super) tclass: u32,
    pub(super) threading: u32,
    pub(super) control_progress: u32,
    pub(super) data_progress: u32,
    pub(super) av_type: u32,
    pub(super) mr_mode: i32,
    pub(super) domain_object: usize,
    pub(super) domain_key: &'a AuthKey,
    pub(super) endpoint_key: &'a AuthKey,
    pub(super) fabric_object: usize,
}

/// Returns a copy of an address in memory of libc, and its length in bytes.
fn address(name: &Name) -> (*mut c_void, usize) {
    let (copy, len) = copy(Raw::new(name).as_bytes());
    (copy.cast(), len)
}

/// Returns a copy of an authorisation key in memory of libc, and its length; NULL and 0 if there is no key; `None` when
/// memory is short.
fn auth_key(key: &AuthKey) -> Option<(*mut u8, usize)> {
    if key.bytes().is_empty() {
        return Some((null_mut(), 0));
    }
    Some(copy(key.bytes())).filter(|(copy, _)| !copy.is_null())
}

/// Allocates the entry of the list that precedes `next`; `None` when memory is short.
pub(super) fn info(answer: &Answer<'_>, next: *mut ffi::fi_info) -> Option<*mut ffi::fi_info> {
    let entry: *mut ffi::fi_info = zeroed(ATTR_ALLOC);
    // SAFETY: NULL, or more zeroed bytes than a `fi_info` has, which are a value of it (numbers and
    // pointers). No other code knows of them before this function returns.
    let info = unsafe { entry.as_mut() }?;
    info.tx_attr = zeroed(ATTR_ALLOC);
    info.rx_attr = zeroed(ATTR_ALLOC);
    info.ep_attr = zeroed(ATTR_ALLOC);
    info.domain_attr = zeroed(ATTR_ALLOC);
    info.fabric_attr = zeroed(ATTR_ALLOC);
    (info.src_addr, info.src_addrlen) = address(&answer.endpoint.source.into());
    let mut complete = !info.src_addr.is_null();
    if let Some(destination) = &answer.endpoint.destination {
        (info.dest_addr, info.dest_addrlen) = address(destination);
        complete &= !info.dest_addr.is_null();
    }
    info.nic = device::nic(&answer.endpoint.nic);
    let complete = complete && !info.nic.is_null() && fill(answer, info);
    if !complete {
        free_list(entry);
        return None;
    }
    info.next = next;
    Some(entry)
}

/// Fills an entry of the list and its attributes, which [`info`] allocated. Returns whether there was memory for
/// everything.
fn fill(answer: &Answer<'_>, info: &mut ffi::fi_info) -> bool {
    info.caps = answer.caps;
    info.mode = 0;
    info.addr_format = addr::format_of(&answer.endpoint.source);
    // SAFETY: each is NULL, or memory of its own that `info`, the one caller, just got from `zeroed`: as
    // large as the structure or larger, aligned for it, and all zero, which is a value of
    // these numbers and pointers. No other code knows of it yet.
    let (tx, rx, ep, domain, fabric) = unsafe {
        (
            info.tx_attr.as_mut(),
            info.rx_attr.as_mut(),
            info.ep_attr.cast::<EpAttr>().as_mut(),
            info.domain_attr.cast::<DomainAttr>().as_mut(),
            info.fabric_attr.as_mut(),
        )
    };
    let (Some(tx), Some(rx), Some(ep), Some(domain), Some(fabric)) = (tx, rx, ep, domain, fabric)
    else {
        return false;
    };
    fill_endpoint(answer, tx, rx, ep) && fill_domain(answer, domain) && fill_fabric(answer, fabric)
}

/// Fills the transmit, receive and endpoint attributes of an entry. Returns whether there was memory for the key.
fn fill_endpoint(
    answer: &Answer<'_>,
    tx: &mut ffi::fi_tx_attr,
    rx: &mut ffi::fi_rx_attr,
    ep: &mut EpAttr,
) -> bool {
    tx.caps = answer.tx_caps;
    tx.op_flags = answer.tx_op_flags;
    tx.msg_order = answer.msg_order;
    tx.inject_size = answer.inject_size;
    tx.size = answer.tx_size;
    tx.iov_limit = answer.tx_iov_limit;
    tx.rma_iov_limit = answer.rma_iov_limit;
    tx.tclass = answer.tclass;
    rx.caps = answer.rx_caps;
    rx.op_flags = answer.rx_op_flags;
    rx.msg_order = answer.msg_order;
    // With FI_PEER, the owner is notified of messages at once, so nothing is promised (lnx refuses
    // a provider that does).
    rx.total_buffered_recv = if answer.caps & flags::PEER == 0 { limits::buffered() } else { 0 };
    rx.size = answer.rx_size;
    rx.iov_limit = answer.rx_iov_limit;
    ep.type_ = flags::EP_RDM;
    ep.protocol = protocol();
    ep.protocol_version = limits::PROTOCOL_VERSION;
    ep.max_msg_size = limits::MAX_MSG_SIZE;
    // Order holds whatever the size.
    let kept = |bits| if answer.msg_order & bits == 0 { 0 } else { limits::MAX_MSG_SIZE };
    [ep.max_order_raw_size, ep.max_order_war_size, ep.max_order_waw_size] = order::SIZED.map(kept);
    ep.mem_tag_format = limits::TAG_FORMAT;
    ep.tx_ctx_cnt = 1;
    ep.rx_ctx_cnt = 1;
    let Some(key) = auth_key(answer.endpoint_key) else { return false };
    (ep.auth_key, ep.auth_key_size) = key;
    true
}

/// Fills the domain attribute of an entry. Returns whether there was memory for its name and key.
fn fill_domain(answer: &Answer<'_>, d: &mut DomainAttr) -> bool {
    d.domain = core::ptr::with_exposed_provenance_mut(answer.domain_object);
    d.name = string(&answer.endpoint.nic.name);
    d.threading = answer.threading;
    d.control_progress = answer.control_progress;
    d.data_progress = answer.data_progress;
    d.resource_mgmt = flags::RM_ENABLED;
    d.av_type = answer.av_type;
    d.mr_mode = answer.mr_mode;
    d.mr_key_size = limits::MR_KEY_SIZE;
    d.cq_data_size = limits::CQ_DATA_SIZE;
    d.cq_cnt = limits::OBJECTS;
    d.ep_cnt = limits::OBJECTS;
    d.tx_ctx_cnt = limits::OBJECTS;
    d.rx_ctx_cnt = limits::OBJECTS;
    d.max_ep_tx_ctx = 1;
    d.max_ep_rx_ctx = 1;
    d.cntr_cnt = limits::OBJECTS;
    d.mr_iov_limit = limits::MR_IOV_LIMIT;
    d.caps = limits::REACH | answer.caps & flags::AV_USER_ID;
    d.max_err_data = limits::MAX_ERR_DATA;
    d.mr_cnt = limits::OBJECTS;
    d.tclass = answer.tclass;
    d.max_cntr_value = u64::MAX;
    d.max_err_cntr_value = u64::MAX;
    let Some(key) = auth_key(answer.domain_key) else { return false };
    (d.auth_key, d.auth_key_size) = key;
    !d.name.is_null()
}

/// Fills the fabric attribute of an entry. `prov_name` stays NULL: libfabric's core sets it, and would take a name from
/// the provider for one of a layered provider. Returns whether there was memory for the name.
fn fill_fabric(answer: &Answer<'_>, f: &mut ffi::fi_fabric_attr) -> bool {
    f.fabric = core::ptr::with_exposed_provenance_mut(answer.fabric_object);
    f.name = string(&answer.endpoint.nic.network);
    f.prov_version = VERSION;
    !f.name.is_null()
}

/// Frees a list of entries that [`info`] built and that the application did not get.
pub(super) fn free_list(mut info: *mut ffi::fi_info) {
    while !info.is_null() {
        // SAFETY: `info` is an entry that the function `info` made, not yet given away: its pointers are NULL or were
        // allocated for it alone, by `zeroed`, `string`, `address`, `copy` and `device::nic`, all from libc. Each piece
        // is freed once, after the names and the link inside of it were read.
        unsafe {
            let entry = &*info;
            device::free(entry.nic);
            if let Some(domain) = entry.domain_attr.as_ref() {
                libc::free(domain.name.cast());
                libc::free(domain.auth_key.cast());
            }
            if let Some(endpoint) = entry.ep_attr.as_ref() {
                libc::free(endpoint.auth_key.cast());
            }
            if let Some(fabric) = entry.fabric_attr.as_ref() {
                libc::free(fabric.name.cast());
            }
            for piece in [
                entry.src_addr,
                entry.dest_addr,
                entry.tx_attr.cast(),
                entry.rx_attr.cast(),
                entry.ep_attr.cast(),
                entry.domain_attr.cast(),
                entry.fabric_attr.cast(),
            ] {
                libc::free(piece);
            }
            let next = entry.next;
            libc::free(info.cast());
            info = next;
        }
    }
}
