//! `fi_getinfo`: which of our interfaces serve what the application asks for.
//!
//! The contract is spread over fi_getinfo(3) and what applications rely on: hints may be NULL, as may
//! any attribute inside them, the version may be 0.0, flags may contain bits we do not know, and an
//! answer is never an empty success. Each hint that cannot be met is logged as one INFO line with
//! what was asked and what is there.

mod build;
mod candidate;
mod device;
mod hints;
mod memory;
mod names;
mod route;

use core::ffi::{c_char, c_int};
use std::net::SocketAddr;

use crate::abi::boundary::{self, Out};
use crate::abi::compat::{DomainAttr, EpAttr};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, addr_format};
use crate::av;
use crate::host::activation;
use crate::host::job::AuthKey;
use crate::host::param::params;
use crate::network::addr;
use crate::network::nic;
use crate::network::wire;
use crate::reports::process_report;
use candidate::Candidate;
pub(crate) use hints::Hints;

boundary::exports! {
    /// Answers a call of fi_getinfo: `fi_provider::getinfo`.
    pub(crate) status getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const ffi::fi_info,
        info: *mut *mut ffi::fi_info,
    ) -> c_int => {
        let place = Out::new(info)?;
        // First, so that a process that squall does not answer pays for nothing else.
        activation::check(hints::provider_name(hints).as_deref())
            .inspect_err(|_| process_report::note_silence())?;
        let (node, service) = (boundary::text(node), boundary::text(service));
        let hints = hints::read(version, hints)?;
        let answer = matching_infos(node.as_deref(), service.as_deref(), flags, &hints);
        process_report::note_answer(answer.is_ok());
        place.write(answer?)
    };
}

/// Returns the list that answers the hints of a call of `fi_getinfo`.
///
/// # Errors
/// `FI_ENODATA` when nothing fits, `FI_ENOMEM` when memory is short.
fn matching_infos(
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: &Hints,
) -> Result<*mut ffi::fi_info> {
    // Layered providers probe for other endpoint types: answered before looking at interfaces.
    if !hints.can_be_satisfied() {
        if flags & flags::CORE_PROV_ONLY == 0 {
            log_missing_capabilities(hints);
        }
        return Err(Errno::NODATA);
    }
    let endpoints = endpoints(node, service, flags, hints)?;
    let mut list: *mut ffi::fi_info = core::ptr::null_mut();
    let answers = endpoints.iter().flat_map(|endpoint| hints.answers(endpoint));
    // The list is built from its end.
    for answer in answers.collect::<Vec<_>>().iter().rev() {
        match build::info(answer, list) {
            Some(next) => list = next,
            None => {
                build::free_list(list);
                return Err(Errno::NOMEM);
            }
        }
    }
    if list.is_null() { Err(Errno::NODATA) } else { Ok(list) }
}

/// Logs the reason why capabilities that the hints ask for are not offered.
fn log_missing_capabilities(hints: &Hints) {
    if hints.needs_datagrams() {
        log::warn!(
            "FI_EP_DGRAM is not offered: its packets (UUD) come without a context, and squall accepts nothing from a peer \
             that has not proved its address; ask for FI_EP_RDM"
        );
    }
    if hints.needs_shared_av() {
        log::warn!("FI_SHARED_AV is not offered: {}", av::NOT_SHARED);
    }
}

/// Returns the addresses on which an endpoint can be opened for the hints, the best first.
fn endpoints(
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: &Hints,
) -> Result<Vec<Candidate>> {
    let named = node.is_some() || service.is_some();
    let resolved = if named {
        let want = Some(hints.addr_format).filter(|f| *f != addr_format::UNSPEC);
        let found = {
            let usual = wire::usual_address(params());
            addr::resolve(node, service, flags & flags::NUMERICHOST != 0, want, usual)
        };
        if found.is_err() {
            log::info!("no address for node {node:?} service {service:?}");
        }
        Some(found?)
    } else {
        None
    };
    let is_source = flags & flags::SOURCE != 0;
    let mut source = if is_source { resolved.map(|name| name.addr) } else { None };
    // A service without a node names our own port, whichever interface is taken.
    if is_source && node.is_none() {
        source = source.map(|s| SocketAddr::new(route::unspecified(&s), s.port()));
    }
    let source = source.or(hints.src_addr.map(|name| name.addr));
    let destination = if is_source { None } else { resolved }.or(hints.dest_addr);

    let mut nics = nic::list(source.is_some() || destination.is_some());
    if let Some(destination) = &destination {
        nics = route::towards(nics, &destination.addr);
    }
    if let Some(source) = &source {
        let all = nics.clone();
        nics.retain(|nic| {
            nic.ip.is_ipv4() == source.is_ipv4()
                && (source.ip().is_unspecified() || nic.ip == source.ip())
        });
        if nics.is_empty() && !source.ip().is_unspecified() {
            nics.extend(nic::of_local_address(all.iter(), source.ip()));
        }
        if nics.is_empty() {
            log::info!("getinfo: no interface has the source address {source}");
        }
    } else if destination.is_none() {
        // Loopback is in the list only for those who name it.
        nics = nic::list(false);
    }
    let port = source.map_or(0, |s| s.port());
    Ok(nics
        .into_iter()
        .map(|nic| Candidate { source: SocketAddr::new(nic.ip, port), nic, destination })
        .collect())
}

/// The attributes that `fi_domain` and `fi_endpoint` read back from an info, which the application may have edited.
pub(crate) struct ChosenAttributes {
    pub(crate) caps: u64,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) tx_op_flags: u64,
    pub(crate) rx_op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) threading: u32,
    pub(crate) data_progress: u32,
    pub(crate) mr_mode: i32,
    pub(crate) domain_name: Option<String>,
    pub(crate) domain_key: AuthKey,
    pub(crate) endpoint_key: AuthKey,
}

/// Reads the attributes of an info without validating those that are not needed, because applications edit them (SOS
/// adds FI_RECV to the transmit capabilities and zeroes `mr_key_size`).
///
/// # Safety
/// `info` is NULL or points to a `fi_info` that no other code writes to during the call, each of whose pointers to an
/// attribute, an address, a name or a key is NULL or points to one; an address is as long as its family says, a
/// key as its size.
pub(crate) unsafe fn read_attributes(info: *const ffi::fi_info) -> Result<ChosenAttributes> {
    // SAFETY: NULL, which is refused, or a `fi_info` by this function's contract, which has one size in every
    // release. So have its transmit and receive attributes. The endpoint's and the domain's have grown: only
    // fields of the 1.17 layout, which all have, are read, and no reference to more than that is made. The name is NULL or
    // terminated, the source address NULL or as long as its family says.
    let (info, tx, rx, endpoint_key, source, domain) = unsafe {
        let info = info.as_ref().ok_or(Errno::INVAL)?;
        let d = info.domain_attr.cast::<DomainAttr>();
        let domain = if d.is_null() {
            (0, 0, 0, None, AuthKey::default())
        } else {
            let key = AuthKey::read((*d).auth_key, (*d).auth_key_size);
            ((*d).threading, (*d).data_progress, (*d).mr_mode, boundary::text((*d).name), key)
        };
        let endpoint_key = info
            .ep_attr
            .cast::<EpAttr>()
            .as_ref()
            .map_or_else(AuthKey::default, |ep| AuthKey::read(ep.auth_key, ep.auth_key_size));
        let (tx, rx) = (info.tx_attr.as_ref(), info.rx_attr.as_ref());
        (info, tx, rx, endpoint_key, addr::read(info.src_addr), domain)
    };
    let (threading, data_progress, mr_mode, domain_name, domain_key) = domain;
    Ok(ChosenAttributes {
        caps: info.caps,
        source: source.map(|name| name.addr),
        tx_op_flags: tx.map_or(0, |t| t.op_flags),
        rx_op_flags: rx.map_or(0, |r| r.op_flags),
        msg_order: tx.map_or(0, |t| t.msg_order),
        threading,
        data_progress,
        mr_mode,
        domain_name,
        domain_key,
        endpoint_key,
    })
}
