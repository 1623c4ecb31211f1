//! Building `fi_info` lists in libc memory: libfabric's core frees every piece with `free`.

use core::ffi::{c_char, c_void};
use core::mem::size_of;
use core::ptr::null_mut;
use std::ffi::CString;
use std::net::SocketAddr;

use super::Endpoint;
use super::hints::{buffered, inject_size, limits, queue_size};
use crate::VERSION;
use crate::addr::{self, Raw};
use crate::compat::DomainAttr;
use crate::ffi;
use crate::flags;

/// Bytes allocated for a domain attribute: more than any release's, zeroed, because a host's
/// `fi_dupinfo` copies as much as *its* headers say.
const DOMAIN_ATTR_ALLOC: usize = 512;

/// One entry of the answer.
pub(crate) struct Answer<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) caps: u64,
    pub(super) tx_caps: u64,
    pub(super) rx_caps: u64,
    pub(super) tx_op_flags: u64,
    pub(super) rx_op_flags: u64,
    pub(super) tclass: u32,
    pub(super) threading: u32,
    pub(super) control_progress: u32,
    pub(super) data_progress: u32,
    pub(super) av_type: u32,
    pub(super) mr_mode: i32,
    pub(super) domain_object: usize,
    pub(super) fabric_object: usize,
}

/// Zeroed libc memory.
fn zeroed<T>(bytes: usize) -> *mut T {
    // SAFETY: calloc takes any size; NULL is checked by the callers.
    unsafe { libc::calloc(1, bytes) }.cast()
}

/// A libc copy of a string; NULL when memory is short.
fn string(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text) else { return null_mut() };
    // SAFETY: terminated.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// A libc copy of an address and its length.
fn address(addr: &SocketAddr) -> (*mut c_void, usize) {
    let raw = Raw::new(addr);
    let bytes = raw.as_bytes();
    let copy: *mut u8 = zeroed(bytes.len());
    if copy.is_null() {
        return (null_mut(), 0);
    }
    // SAFETY: freshly allocated with exactly this length.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len()) };
    (copy.cast(), bytes.len())
}

/// Allocates the entry before `next`; `None` when memory is short.
pub(super) fn info(answer: &Answer<'_>, next: *mut ffi::fi_info) -> Option<*mut ffi::fi_info> {
    let info: *mut ffi::fi_info = zeroed(size_of::<ffi::fi_info>());
    if info.is_null() {
        return None;
    }
    // SAFETY: freshly allocated and zeroed, and all-zero is valid for every structure here; the
    // domain attribute is accessed by field within its 512 bytes.
    let complete = unsafe {
        (*info).tx_attr = zeroed(size_of::<ffi::fi_tx_attr>());
        (*info).rx_attr = zeroed(size_of::<ffi::fi_rx_attr>());
        (*info).ep_attr = zeroed(size_of::<ffi::fi_ep_attr>());
        (*info).domain_attr = zeroed(DOMAIN_ATTR_ALLOC);
        (*info).fabric_attr = zeroed(size_of::<ffi::fi_fabric_attr>());
        ((*info).src_addr, (*info).src_addrlen) = address(&answer.endpoint.source);
        let mut complete = !(*info).src_addr.is_null();
        if let Some(destination) = &answer.endpoint.destination {
            ((*info).dest_addr, (*info).dest_addrlen) = address(destination);
            complete &= !(*info).dest_addr.is_null();
        }
        complete
            && fill_endpoint(answer, &mut *info)
            && fill_domain(answer, (*info).domain_attr.cast())
            && fill_fabric(answer, (*info).fabric_attr)
    };
    if !complete {
        free_list(info);
        return None;
    }
    // SAFETY: as above.
    unsafe { (*info).next = next };
    Some(info)
}

/// Fills the entry itself and its transmit, receive and endpoint attributes.
fn fill_endpoint(answer: &Answer<'_>, info: &mut ffi::fi_info) -> bool {
    info.caps = answer.caps;
    info.mode = 0;
    info.addr_format = addr::format_of(&answer.endpoint.source);
    // SAFETY: NULL or freshly allocated, zeroed and ours alone.
    let (tx, rx, ep) =
        unsafe { (info.tx_attr.as_mut(), info.rx_attr.as_mut(), info.ep_attr.as_mut()) };
    let (Some(tx), Some(rx), Some(ep)) = (tx, rx, ep) else { return false };
    tx.caps = answer.tx_caps;
    tx.op_flags = answer.tx_op_flags;
    tx.msg_order = limits::MSG_ORDER;
    tx.inject_size = usize::try_from(inject_size()).unwrap_or(0);
    tx.size = queue_size();
    tx.iov_limit = limits::IOV_LIMIT;
    tx.rma_iov_limit = limits::RMA_IOV_LIMIT;
    tx.tclass = answer.tclass;
    rx.caps = answer.rx_caps;
    rx.op_flags = answer.rx_op_flags;
    rx.msg_order = limits::MSG_ORDER;
    rx.total_buffered_recv = buffered();
    rx.size = queue_size();
    rx.iov_limit = limits::IOV_LIMIT;
    ep.type_ = flags::EP_RDM;
    ep.protocol = ffi::FI_PROTO_UNSPEC;
    ep.protocol_version = 1;
    ep.max_msg_size = limits::MAX_MSG_SIZE;
    // The top bit set means that all 64 bits match as one field.
    ep.mem_tag_format = u64::MAX;
    ep.tx_ctx_cnt = 1;
    ep.rx_ctx_cnt = 1;
    true
}

/// Fills the domain attribute.
///
/// # Safety
/// `d` is NULL or points to `DOMAIN_ATTR_ALLOC` zeroed bytes.
unsafe fn fill_domain(answer: &Answer<'_>, d: *mut DomainAttr) -> bool {
    // SAFETY: 512 bytes hold the whole structure.
    let Some(d) = (unsafe { d.as_mut() }) else { return false };
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
    d.caps = limits::REACH;
    d.max_err_data = limits::MAX_ERR_DATA;
    d.mr_cnt = limits::OBJECTS;
    d.tclass = answer.tclass;
    d.max_cntr_value = u64::MAX;
    d.max_err_cntr_value = u64::MAX;
    !d.name.is_null()
}

/// Fills the fabric attribute. `prov_name` stays NULL: the core sets it, and would take a name from
/// us for one of a layered provider.
///
/// # Safety
/// `f` is NULL or points to a zeroed `fi_fabric_attr`.
unsafe fn fill_fabric(answer: &Answer<'_>, f: *mut ffi::fi_fabric_attr) -> bool {
    // SAFETY: the caller's promise.
    let Some(f) = (unsafe { f.as_mut() }) else { return false };
    f.fabric = core::ptr::with_exposed_provenance_mut(answer.fabric_object);
    f.name = string(&answer.endpoint.nic.network);
    f.prov_version = VERSION;
    !f.name.is_null()
}

/// Frees a list that [`info`] built.
pub(super) fn free_list(mut info: *mut ffi::fi_info) {
    while !info.is_null() {
        // SAFETY: every pointer is NULL or was allocated above by libc, and is freed once.
        unsafe {
            let entry = &*info;
            if let Some(domain) = entry.domain_attr.as_ref() {
                libc::free(domain.name.cast());
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
