//! Structures that grew after libfabric 1.17, written out, so that one build serves hosts on either
//! side whatever headers it was built with. Attributes that only the application fills have the 1.17
//! form here, and all others the largest one, that of the sources that become 2.7.
//!
//! | struct | 1.17 | 1.20 | 1.22 | 2.0 | 2.5 | 2.7 |
//! |---|---|---|---|---|---|---|
//! | `fi_domain_attr` | 192 | 200 | 200 | 208 | 224 | 232 |
//! | `fi_ep_attr` | 96 | 96 | 96 | 96 | 96 | 104 |
//! | `fi_cq_attr` | 40 | 40 | 40 | 40 | 40 | 48 |
//! | `fi_cntr_attr` | 24 | 24 | 24 | 24 | 24 | 32 |
//! | `fi_ops_av` | 64 | 88 | 88 | 88 | 88 | 88 |
//! | `fi_ops_domain` | 96 | 96 | 96 | 96 | 96 | 104 |
//! | `fi_ops_ep`, `fi_ops_cq`, `fi_ops_cntr` | 64 | 64 | 64 | 64 | 64 | 72 |
//! | `fi_mr_attr` | 80 | 88 | 96 | 112 | 112 | 112 |
//! | `fi_cq_err_entry` | 80 | 88 | 88 | 88 | 88 | 88 |
//!
//! What comes *from* an application is read no further than the 1.17 size unless the API version
//! with which it opened its fabric has a longer structure, and so is what goes *to* it. A table of
//! operations carries its size, but libfabric 2.7 calls `export_xpu` without checking it.
//! Attributes that the application frees have room behind them ([`ATTR_ALLOC`]).

use core::ffi::{c_char, c_int, c_void};

use crate::abi::errno::Errno;
use crate::abi::ffi;

/// The API version `major.minor`, packed into one number as libfabric does it.
pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

/// Bytes allocated for each structure of an answer to fi_getinfo(3), zeroed. No release's structure is longer, and the
/// application's `fi_dupinfo` copies as many bytes as its libfabric's headers say.
pub(crate) const ATTR_ALLOC: usize = 512;

/// `struct fi_domain_attr` in the layout of libfabric 2.7.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DomainAttr {
    pub(crate) domain: *mut ffi::fid_domain,
    pub(crate) name: *mut c_char,
    pub(crate) threading: u32,
    pub(crate) control_progress: u32,
    pub(crate) data_progress: u32,
    pub(crate) resource_mgmt: u32,
    pub(crate) av_type: u32,
    pub(crate) mr_mode: c_int,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) cq_cnt: usize,
    pub(crate) ep_cnt: usize,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) max_ep_tx_ctx: usize,
    pub(crate) max_ep_rx_ctx: usize,
    pub(crate) max_ep_stx_ctx: usize,
    pub(crate) max_ep_srx_ctx: usize,
    pub(crate) cntr_cnt: usize,
    pub(crate) mr_iov_limit: usize,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) auth_key: *mut u8,
    pub(crate) auth_key_size: usize,
    pub(crate) max_err_data: usize,
    pub(crate) mr_cnt: usize,
    pub(crate) tclass: u32,
    // 1.20
    pub(crate) max_ep_auth_key: usize,
    // 2.0
    pub(crate) max_group_id: u32,
    // 2.5
    pub(crate) max_cntr_value: u64,
    pub(crate) max_err_cntr_value: u64,
    // 2.7
    pub(crate) max_xpu_ctx_cnt: usize,
}

/// `struct fi_ep_attr`, 1.17 layout. The field that 2.7 added stays zero: no endpoint has a context of another processor.
#[repr(C)]
pub(crate) struct EpAttr {
    pub(crate) type_: u32,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: usize,
    pub(crate) msg_prefix_size: usize,
    pub(crate) max_order_raw_size: usize,
    pub(crate) max_order_war_size: usize,
    pub(crate) max_order_waw_size: usize,
    pub(crate) mem_tag_format: u64,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
}

/// `struct fi_cq_attr` in the layout of libfabric 1.17.
#[repr(C)]
pub(crate) struct CqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: u32,
    pub(crate) wait_obj: u32,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: u32,
    pub(crate) wait_set: *mut ffi::fid_wait,
}

/// `struct fi_cntr_attr` in the layout of libfabric 1.17.
#[repr(C)]
pub(crate) struct CntrAttr {
    pub(crate) events: u32,
    pub(crate) wait_obj: u32,
    pub(crate) wait_set: *mut ffi::fid_wait,
    pub(crate) flags: u64,
}

/// Declares the table of operations of an object, with its size in the first field.
macro_rules! operations {
    ($(#[$doc:meta])* $name:ident { $($field:ident($($argument:ty),*) -> $result:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        pub(crate) struct $name {
            pub(crate) size: usize,
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }
    };
}

operations! {
    /// `struct fi_ops_domain` in the layout of libfabric 2.7: the operations of a domain.
    OpsDomain {
        av_open(*mut ffi::fid_domain, *mut ffi::fi_av_attr, *mut *mut ffi::fid_av, *mut c_void) -> c_int,
        cq_open(*mut ffi::fid_domain, *mut CqAttr, *mut *mut ffi::fid_cq, *mut c_void) -> c_int,
        endpoint(*mut ffi::fid_domain, *mut ffi::fi_info, *mut *mut ffi::fid_ep, *mut c_void) -> c_int,
        scalable_ep(*mut ffi::fid_domain, *mut ffi::fi_info, *mut *mut ffi::fid_ep, *mut c_void) -> c_int,
        cntr_open(*mut ffi::fid_domain, *mut CntrAttr, *mut *mut ffi::fid_cntr, *mut c_void) -> c_int,
        poll_open(*mut ffi::fid_domain, *mut ffi::fi_poll_attr, *mut *mut ffi::fid_poll) -> c_int,
        stx_ctx(*mut ffi::fid_domain, *mut ffi::fi_tx_attr, *mut *mut ffi::fid_stx, *mut c_void) -> c_int,
        srx_ctx(*mut ffi::fid_domain, *mut ffi::fi_rx_attr, *mut *mut ffi::fid_ep, *mut c_void) -> c_int,
        query_atomic(*mut ffi::fid_domain, ffi::fi_datatype, ffi::fi_op, *mut ffi::fi_atomic_attr, u64) -> c_int,
        query_collective(*mut ffi::fid_domain, ffi::fi_collective_op, *mut ffi::fi_collective_attr, u64) -> c_int,
        endpoint2(*mut ffi::fid_domain, *mut ffi::fi_info, *mut *mut ffi::fid_ep, u64, *mut c_void) -> c_int,
        xpu_ctx(*mut ffi::fid_domain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    }
}

operations! {
    /// `struct fi_ops_ep` in the layout of libfabric 2.7: the operations of an endpoint.
    OpsEp {
        cancel(*mut ffi::fid, *mut c_void) -> isize,
        getopt(*mut ffi::fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
        setopt(*mut ffi::fid, c_int, c_int, *const c_void, usize) -> c_int,
        tx_ctx(*mut ffi::fid_ep, c_int, *mut ffi::fi_tx_attr, *mut *mut ffi::fid_ep, *mut c_void) -> c_int,
        rx_ctx(*mut ffi::fid_ep, c_int, *mut ffi::fi_rx_attr, *mut *mut ffi::fid_ep, *mut c_void) -> c_int,
        rx_size_left(*mut ffi::fid_ep) -> isize,
        tx_size_left(*mut ffi::fid_ep) -> isize,
        export_xpu(*mut c_void, u64, *mut c_void) -> c_int,
    }
}

operations! {
    /// `struct fi_ops_cq` in the layout of libfabric 2.7: the operations of a completion queue.
    OpsCq {
        read(*mut ffi::fid_cq, *mut c_void, usize) -> isize,
        readfrom(*mut ffi::fid_cq, *mut c_void, usize, *mut u64) -> isize,
        readerr(*mut ffi::fid_cq, *mut ffi::fi_cq_err_entry, u64) -> isize,
        sread(*mut ffi::fid_cq, *mut c_void, usize, *const c_void, c_int) -> isize,
        sreadfrom(*mut ffi::fid_cq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> isize,
        signal(*mut ffi::fid_cq) -> c_int,
        strerror(*mut ffi::fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
        export_xpu(*mut c_void, u64, *mut c_void) -> c_int,
    }
}

operations! {
    /// `struct fi_ops_cntr` in the layout of libfabric 2.7: the operations of a counter.
    OpsCntr {
        read(*mut ffi::fid_cntr) -> u64,
        readerr(*mut ffi::fid_cntr) -> u64,
        add(*mut ffi::fid_cntr, u64) -> c_int,
        set(*mut ffi::fid_cntr, u64) -> c_int,
        wait(*mut ffi::fid_cntr, u64, c_int) -> c_int,
        adderr(*mut ffi::fid_cntr, u64) -> c_int,
        seterr(*mut ffi::fid_cntr, u64) -> c_int,
        export_xpu(*mut c_void, u64, *mut c_void) -> c_int,
    }
}

/// Refuses `fi_cq_export_xpu` and its like, because code of another processor (GPU) cannot use the objects.
pub(crate) unsafe extern "C" fn no_export_xpu(_: *mut c_void, _: u64, _: *mut c_void) -> c_int {
    Errno::NOSYS.code()
}

/// Refuses the domain operation `fi_xpu_ctx`, because code of another processor (GPU) is not supported.
pub(crate) unsafe extern "C" fn no_xpu_ctx(
    _: *mut ffi::fid_domain,
    _: *mut c_void,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}

/// `struct fi_ops_av` in the layout of libfabric 1.20. libfabric 1.17 reads only the first 64 bytes.
#[repr(C)]
pub(crate) struct OpsAv {
    pub(crate) size: usize,
    pub(crate) insert: unsafe extern "C" fn(
        *mut ffi::fid_av,
        *const c_void,
        usize,
        *mut u64,
        u64,
        *mut c_void,
    ) -> c_int,
    pub(crate) insertsvc: unsafe extern "C" fn(
        *mut ffi::fid_av,
        *const c_char,
        *const c_char,
        *mut u64,
        u64,
        *mut c_void,
    ) -> c_int,
    pub(crate) insertsym: unsafe extern "C" fn(
        *mut ffi::fid_av,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *mut u64,
        u64,
        *mut c_void,
    ) -> c_int,
    pub(crate) remove: unsafe extern "C" fn(*mut ffi::fid_av, *mut u64, usize, u64) -> c_int,
    pub(crate) lookup:
        unsafe extern "C" fn(*mut ffi::fid_av, u64, *mut c_void, *mut usize) -> c_int,
    pub(crate) straddr: unsafe extern "C" fn(
        *mut ffi::fid_av,
        *const c_void,
        *mut c_char,
        *mut usize,
    ) -> *const c_char,
    pub(crate) av_set: unsafe extern "C" fn(
        *mut ffi::fid_av,
        *mut ffi::fi_av_set_attr,
        *mut *mut c_void,
        *mut c_void,
    ) -> c_int,
    // 1.20
    pub(crate) insert_auth_key:
        unsafe extern "C" fn(*mut ffi::fid_av, *const c_void, usize, *mut u64, u64) -> c_int,
    pub(crate) lookup_auth_key:
        unsafe extern "C" fn(*mut ffi::fid_av, u64, *mut c_void, *mut usize) -> c_int,
    pub(crate) set_user_id: unsafe extern "C" fn(*mut ffi::fid_av, u64, u64, u64) -> c_int,
}

/// `struct fi_mr_attr`, 2.0 layout; only the 1.17 part (up to `device`) is read. With FI_MR_DMABUF the first field
/// points to a `fi_mr_dmabuf`.
#[repr(C)]
pub(crate) struct MrAttr {
    pub(crate) mr_iov: *const ffi::iovec,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
    pub(crate) iface: u32,
    pub(crate) device: u64,
}

/// `struct fi_mr_modify`, the argument of `fi_mr_refresh`.
#[repr(C)]
pub(crate) struct MrModify {
    pub(crate) flags: u64,
    pub(crate) attr: MrAttr,
}

/// `struct fi_cq_err_entry`, 1.20 layout. `src_addr` is written only for applications that opened
/// their fabric with 1.20 or later.
#[repr(C)]
pub(crate) struct CqErrEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
    // 1.20
    pub(crate) src_addr: u64,
}

#[cfg(test)]
mod tests {
    use core::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn the_provider_record_is_what_every_host_reads() {
        assert_eq!(size_of::<ffi::fi_provider>(), 72);
        assert_eq!(offset_of!(ffi::fi_provider, version), 0);
        assert_eq!(offset_of!(ffi::fi_provider, fi_version), 4);
        assert_eq!(offset_of!(ffi::fi_provider, context), 8);
        assert_eq!(size_of::<ffi::fi_context>(), 32);
        assert_eq!(offset_of!(ffi::fi_provider, name), 40);
        assert_eq!(offset_of!(ffi::fi_provider, getinfo), 48);
        assert_eq!(offset_of!(ffi::fi_provider, fabric), 56);
        assert_eq!(offset_of!(ffi::fi_provider, cleanup), 64);
    }

    #[test]
    fn structures_that_grew_have_their_largest_size() {
        assert_eq!(size_of::<DomainAttr>(), 232);
        assert_eq!(offset_of!(DomainAttr, max_ep_auth_key), 192);
        assert_eq!(offset_of!(DomainAttr, max_group_id), 200);
        assert_eq!(offset_of!(DomainAttr, max_cntr_value), 208);
        assert_eq!(offset_of!(DomainAttr, max_err_cntr_value), 216);
        assert_eq!(offset_of!(DomainAttr, max_xpu_ctx_cnt), 224);
        assert_eq!(offset_of!(OpsDomain, xpu_ctx), 96);
        assert_eq!(offset_of!(OpsEp, export_xpu), 64);
        assert_eq!(offset_of!(OpsCq, export_xpu), 64);
        assert_eq!(offset_of!(OpsCntr, export_xpu), 64);
        let tables = [size_of::<OpsDomain>(), size_of::<OpsEp>(), size_of::<OpsCq>()];
        assert_eq!((tables, size_of::<OpsCntr>()), ([104, 72, 72], 72));
        assert_eq!(offset_of!(DomainAttr, tclass) + 8, 192, "the part that every host has");
        assert_eq!(size_of::<OpsAv>(), 88);
        assert_eq!(offset_of!(OpsAv, insert_auth_key), 64);
        assert_eq!(offset_of!(OpsAv, lookup_auth_key), 72);
        assert_eq!(offset_of!(OpsAv, set_user_id), 80);
        assert_eq!(size_of::<MrAttr>(), 80);
        assert_eq!(size_of::<CqErrEntry>(), 88);
        assert_eq!(offset_of!(CqErrEntry, src_addr), 80);
    }

    #[test]
    fn the_headers_agree_up_to_what_they_know() {
        assert!([192, 200, 208, 224, 232].contains(&size_of::<ffi::fi_domain_attr>()));
        assert_eq!(size_of::<EpAttr>(), 96);
        assert!([96, 104].contains(&size_of::<ffi::fi_ep_attr>()));
        assert_eq!(offset_of!(EpAttr, mem_tag_format), offset_of!(ffi::fi_ep_attr, mem_tag_format));
        assert_eq!(offset_of!(EpAttr, auth_key), offset_of!(ffi::fi_ep_attr, auth_key));
        assert_eq!(size_of::<CqAttr>(), 40);
        assert!([40, 48].contains(&size_of::<ffi::fi_cq_attr>()));
        assert_eq!(offset_of!(CqAttr, wait_set), offset_of!(ffi::fi_cq_attr, wait_set));
        assert_eq!(size_of::<CntrAttr>(), 24);
        assert!([24, 32].contains(&size_of::<ffi::fi_cntr_attr>()));
        assert_eq!(offset_of!(CntrAttr, flags), offset_of!(ffi::fi_cntr_attr, flags));
        assert!([96, 104].contains(&size_of::<ffi::fi_ops_domain>()));
        assert_eq!(offset_of!(OpsDomain, endpoint2), offset_of!(ffi::fi_ops_domain, endpoint2));
        assert!([64, 72].contains(&size_of::<ffi::fi_ops_ep>()));
        assert_eq!(offset_of!(OpsEp, tx_size_left), offset_of!(ffi::fi_ops_ep, tx_size_left));
        assert!([64, 72].contains(&size_of::<ffi::fi_ops_cq>()));
        assert_eq!(offset_of!(OpsCq, strerror), offset_of!(ffi::fi_ops_cq, strerror));
        assert!([64, 72].contains(&size_of::<ffi::fi_ops_cntr>()));
        assert_eq!(offset_of!(OpsCntr, seterr), offset_of!(ffi::fi_ops_cntr, seterr));
        assert_eq!(offset_of!(DomainAttr, mr_mode), offset_of!(ffi::fi_domain_attr, mr_mode));
        assert_eq!(offset_of!(DomainAttr, caps), offset_of!(ffi::fi_domain_attr, caps));
        assert_eq!(offset_of!(DomainAttr, tclass), offset_of!(ffi::fi_domain_attr, tclass));
        assert_eq!(offset_of!(MrAttr, iface), offset_of!(ffi::fi_mr_attr, iface));
        assert_eq!(offset_of!(MrAttr, device), offset_of!(ffi::fi_mr_attr, device));
        assert_eq!(offset_of!(MrModify, attr), offset_of!(ffi::fi_mr_modify, attr));
        assert_eq!(offset_of!(CqErrEntry, err), offset_of!(ffi::fi_cq_err_entry, err));
        assert_eq!(
            offset_of!(CqErrEntry, err_data_size),
            offset_of!(ffi::fi_cq_err_entry, err_data_size)
        );
        assert!([80, 88].contains(&size_of::<ffi::fi_cq_err_entry>()));
        assert!([64, 88].contains(&size_of::<ffi::fi_ops_av>()));
        assert_eq!(offset_of!(OpsAv, straddr), offset_of!(ffi::fi_ops_av, straddr));
    }

    #[test]
    fn the_rest_has_one_size_in_every_release() {
        assert_eq!(size_of::<ffi::fi_info>(), 120);
        assert_eq!(size_of::<ffi::fi_tx_attr>(), 80);
        assert_eq!(size_of::<ffi::fi_rx_attr>(), 64);
        assert_eq!(size_of::<ffi::fi_fabric_attr>(), 32);
        assert_eq!(size_of::<ffi::fid_ep>(), 80);
        assert_eq!(size_of::<ffi::fid>(), 24);
        assert_eq!(size_of::<ffi::fi_cq_tagged_entry>(), 48);
        assert_eq!(size_of::<ffi::fi_cq_data_entry>(), 40);
        assert_eq!(size_of::<ffi::fi_cq_msg_entry>(), 24);
        assert_eq!(size_of::<ffi::fi_ops_msg>(), 80);
        assert_eq!(size_of::<ffi::fi_ops_tagged>(), 80);
        assert_eq!(size_of::<ffi::fi_ops_rma>(), 80);
        assert_eq!(size_of::<ffi::fi_ops_eq>(), 48);
        assert_eq!(size_of::<ffi::fi_ops_mr>(), 32);
    }
}
