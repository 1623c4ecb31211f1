//! The application's hints to `fi_getinfo`, which are read once and compared with what the provider offers.

use core::ffi::c_void;

use super::build::Answer;
use super::candidate::Candidate;
use super::names;
use crate::abi::boundary::text;
use crate::abi::compat::{DomainAttr, EpAttr, version};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, addr_format, av_type, class, mr_mode, progress, threading};
use crate::abi::order;
use crate::device_memory;
use crate::domain::Domain as OpenDomain;
use crate::fabric::Fabric;
use crate::host::job::AuthKey;
use crate::host::libfabric::host;
use crate::host::limits::{self, INJECT_SIZE, buffered, protocol, queue_size, receives};
use crate::network::addr::{self, Name};
use crate::objects;

/// The hints about the transmit side of an endpoint.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tx {
    caps: u64,
    op_flags: u64,
    msg_order: u64,
    comp_order: u64,
    inject_size: usize,
    size: usize,
    iov_limit: usize,
    rma_iov_limit: usize,
    tclass: u32,
}

/// The hints about the receive side of an endpoint.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rx {
    caps: u64,
    op_flags: u64,
    msg_order: u64,
    comp_order: u64,
    total_buffered_recv: usize,
    size: usize,
    iov_limit: usize,
}

/// The hints about an endpoint.
#[derive(Clone, Default)]
pub(crate) struct Ep {
    kind: u32,
    protocol: u32,
    protocol_version: u32,
    max_msg_size: usize,
    max_order: [usize; 3],
    tx_ctx_cnt: usize,
    rx_ctx_cnt: usize,
    auth_key: AuthKey,
}

/// The hints about a domain.
#[derive(Clone, Default)]
pub(crate) struct Domain {
    object: usize,
    name: Option<String>,
    threading: u32,
    control_progress: u32,
    data_progress: u32,
    resource_mgmt: u32,
    av_type: u32,
    mr_mode: i32,
    mr_key_size: usize,
    cq_data_size: usize,
    counts: [usize; 5],
    max_ep: [usize; 4],
    mr_iov_limit: usize,
    caps: u64,
    auth_key: AuthKey,
    tclass: u32,
}

/// The hints of a call of `fi_getinfo`; attributes that the application left out are zero.
#[derive(Clone, Default)]
pub(crate) struct Hints {
    api: u32,
    /// True if the application passed any hints, even if all of them are zero.
    some: bool,
    caps: u64,
    mode: u64,
    pub(super) addr_format: u32,
    pub(super) src_addr: Option<Name>,
    pub(super) dest_addr: Option<Name>,
    tx: Tx,
    rx: Rx,
    ep: Ep,
    domain: Domain,
    fabric_object: usize,
    fabric_name: Option<String>,
}

/// Copies an address out of the hints.
///
/// # Safety
/// `ptr` is NULL or points to `len` bytes, or, when `len` is 0, to a socket address as long as its family says.
/// No other code writes to them meanwhile.
unsafe fn address(ptr: *mut c_void, len: usize, what: &str) -> Result<Option<Name>> {
    if ptr.is_null() {
        return Ok(None);
    }
    // SAFETY: `ptr` is not NULL, so by this function's contract it is a socket address of its family's length
    // when `len` is 0 (some applications leave it so), else the beginning of `len` bytes.
    let found = unsafe {
        if len == 0 {
            addr::read(ptr)
        } else {
            addr::decode(core::slice::from_raw_parts(ptr.cast::<u8>(), len))
        }
    };
    if found.is_none() {
        log::info!("hint rejected: {what} is not an IPv4 or IPv6 socket address");
    }
    found.map(Some).ok_or(Errno::NODATA)
}

/// Copies the hints out of the application's memory.
///
/// # Safety
/// `hints` is NULL or points to a `fi_info` that no other code writes to during the call, each of whose pointers to an
/// attribute, an address or a name is NULL or points to one; an address has the length beside it, or as
/// its family says when that is 0, in the formats that are socket addresses; the domain attribute has at
/// least the layout of 1.17. The objects that it names are open.
///
/// # Errors
/// `FI_ENODATA` when an address is of a kind that we do not have.
pub(super) unsafe fn read(api: u32, hints: *const ffi::fi_info) -> Result<Hints> {
    // SAFETY: NULL or a `fi_info` by this function's contract, of one size in every release, as are its
    // transmit, receive, endpoint and fabric attributes, which `as_ref` looks at when they are not NULL;
    // `address`, `text` and `domain` ask of the addresses, the name and the domain attribute what the
    // contract says of them. All is copied: no reference outlives the call.
    unsafe {
        let Some(info) = hints.as_ref() else {
            return Ok(Hints { api, ..Hints::default() });
        };
        // Opaque addresses of another provider's format are not ours to read.
        let ip = |f| {
            matches!(
                f,
                addr_format::UNSPEC
                    | addr_format::SOCKADDR
                    | addr_format::SOCKADDR_IN
                    | addr_format::SOCKADDR_IN6
                    | addr_format::SOCKADDR_IP
            )
        };
        let (src_addr, dest_addr) = if ip(info.addr_format) {
            (
                address(info.src_addr, info.src_addrlen, "src_addr")?,
                address(info.dest_addr, info.dest_addrlen, "dest_addr")?,
            )
        } else {
            (None, None)
        };
        let tx = info.tx_attr.as_ref().map_or_else(Tx::default, |t| Tx {
            caps: t.caps,
            op_flags: t.op_flags,
            msg_order: t.msg_order,
            comp_order: t.comp_order,
            inject_size: t.inject_size,
            size: t.size,
            iov_limit: t.iov_limit,
            rma_iov_limit: t.rma_iov_limit,
            tclass: t.tclass,
        });
        let rx = info.rx_attr.as_ref().map_or_else(Rx::default, |r| Rx {
            caps: r.caps,
            op_flags: r.op_flags,
            msg_order: r.msg_order,
            comp_order: r.comp_order,
            total_buffered_recv: r.total_buffered_recv,
            size: r.size,
            iov_limit: r.iov_limit,
        });
        let ep = info.ep_attr.cast::<EpAttr>().as_ref().map_or_else(Ep::default, |e| Ep {
            kind: e.type_,
            protocol: e.protocol,
            protocol_version: e.protocol_version,
            max_msg_size: e.max_msg_size,
            max_order: [e.max_order_raw_size, e.max_order_war_size, e.max_order_waw_size],
            tx_ctx_cnt: e.tx_ctx_cnt,
            rx_ctx_cnt: e.rx_ctx_cnt,
            auth_key: AuthKey::read(e.auth_key, e.auth_key_size),
        });
        let (fabric_object, fabric_name) = info
            .fabric_attr
            .as_ref()
            .map_or((0, None), |f| (f.fabric.expose_provenance(), text(f.name)));
        Ok(Hints {
            api,
            some: true,
            caps: info.caps,
            mode: info.mode,
            addr_format: info.addr_format,
            src_addr,
            dest_addr,
            tx,
            rx,
            ep,
            domain: domain(info.domain_attr.cast()),
            fabric_object,
            fabric_name,
        })
    }
}

/// Copies the name of the provider that the hints ask for, if they ask for one.
///
/// # Safety
/// `info` is NULL or points to a `fi_info` whose fabric attribute is NULL or has a name of a provider that is NULL or
/// terminated, which no other code writes to during the call.
pub(super) unsafe fn provider_name(info: *const ffi::fi_info) -> Option<String> {
    // SAFETY: NULL, or a `fi_info` with such an attribute and name by this function's contract; both structures have one
    // size in every release.
    unsafe { text(info.as_ref()?.fabric_attr.as_ref()?.prov_name) }
}

/// Copies the domain hints; nothing beyond the 1.17 layout is read.
///
/// # Safety
/// `d` is NULL or points to a domain attribute of at least the layout of 1.17, with a name that is NULL or
/// terminated, which no other code writes to during the call.
unsafe fn domain(d: *const DomainAttr) -> Domain {
    if d.is_null() {
        return Domain::default();
    }
    // SAFETY: `d` is not NULL, so by this function's contract every field up to `tclass`, the last of
    // 1.17, is there. They are read one by one: a reference to the whole would reach beyond the shorter
    // layout.
    unsafe {
        Domain {
            object: (*d).domain.expose_provenance(),
            name: text((*d).name),
            threading: (*d).threading,
            control_progress: (*d).control_progress,
            data_progress: (*d).data_progress,
            resource_mgmt: (*d).resource_mgmt,
            av_type: (*d).av_type,
            mr_mode: (*d).mr_mode,
            mr_key_size: (*d).mr_key_size,
            cq_data_size: (*d).cq_data_size,
            counts: [(*d).cq_cnt, (*d).ep_cnt, (*d).tx_ctx_cnt, (*d).rx_ctx_cnt, (*d).cntr_cnt],
            max_ep: [
                (*d).max_ep_tx_ctx,
                (*d).max_ep_rx_ctx,
                (*d).max_ep_stx_ctx,
                (*d).max_ep_srx_ctx,
            ],
            mr_iov_limit: (*d).mr_iov_limit,
            caps: (*d).caps,
            auth_key: AuthKey::read((*d).auth_key, (*d).auth_key_size),
            tclass: (*d).tclass,
        }
    }
}

/// Returns whether `asked` has only bits of `have`, and logs what is missing otherwise.
fn has_only_bits(what: &str, asked: u64, have: u64) -> bool {
    let missing = asked & !have;
    if missing != 0 {
        let [missing, have] = [missing, have].map(|bits| names::bits(what, bits));
        log::info!("hint rejected: {what}: asked for {missing}, have {have}");
    }
    missing == 0
}

/// Returns whether `asked` is at most `have`, and logs both values otherwise.
fn is_at_most(what: &str, asked: usize, have: usize) -> bool {
    if asked > have {
        log::info!("hint rejected: {what}: asked {asked}, have {have}");
    }
    asked <= have
}

/// Returns whether an authorisation key can be used or is absent, and logs the reason otherwise.
fn is_usable_key(what: &str, asked: &AuthKey) -> bool {
    if !asked.fits() {
        log::info!(
            "hint rejected: {what}: asked {}, have 16 to 256, with as many bytes at auth_key",
            asked.size()
        );
    }
    asked.fits()
}

/// Returns FI_HMEM if it is among `asked` and a device is available. Drivers are loaded only for
/// applications that ask for it.
fn devices(asked: u64) -> u64 {
    if asked & flags::HMEM != 0 && device_memory::is_available() { flags::HMEM } else { 0 }
}

/// Returns whether `asked` is one of the values `have`, and logs it otherwise.
fn is_one_of(what: &str, asked: u32, have: &[u32]) -> bool {
    let found = have.contains(&asked);
    if !found {
        let have: Vec<String> = have.iter().map(|value| names::number(what, *value)).collect();
        let (asked, have) = (names::number(what, asked), have.join(", "));
        log::info!("hint rejected: {what}: asked for {asked}, have {have}");
    }
    found
}

impl Hints {
    /// Returns whether any endpoint of the provider could satisfy the hints.
    pub(super) fn can_be_satisfied(&self) -> bool {
        self.general() & self.endpoint() && self.transmit() & self.receive() & self.domain_fits()
    }

    /// Returns whether the hints ask for endpoints of unreliable datagrams.
    pub(super) const fn needs_datagrams(&self) -> bool {
        self.ep.kind == flags::EP_DGRAM
    }

    /// Returns whether the hints ask for address vectors that processes share by name.
    pub(super) const fn needs_shared_av(&self) -> bool {
        self.caps & flags::SHARED_AV != 0
    }

    /// Returns the answers for the candidate `endpoint`, best first, or none if it does not fit the hints. An
    /// application that leaves the registration mode open before API 1.5 gets one answer for each of the two modes of
    /// that time.
    pub(super) fn answers<'a>(&'a self, endpoint: &'a Candidate) -> Vec<Answer<'a>> {
        if !self.place(endpoint) {
            return Vec::new();
        }
        let caps = self.granted_caps();
        let (d, t, r) = (&self.domain, &self.tx, &self.rx);
        // SAFETY: the address is 0 or that of a domain that the hints name, which is open until fi_getinfo(3) returns;
        // `read` exposed it, during this very call.
        let opened = unsafe { modes_of(d.object) };
        let or = |asked: u32, default: u32| if asked == 0 { default } else { asked };
        // The answer repeats a size that the application asked for, as libfabric's own providers do: the application
        // may have sized its tables by the hint.
        let size = |asked: usize, most: usize| if asked == 0 { most } else { asked };
        let answer = |mr_mode| Answer {
            endpoint,
            caps,
            tx_caps: self.side(t.caps, caps, limits::TX_CAPS),
            rx_caps: self.side(r.caps, caps, limits::RX_CAPS),
            tx_op_flags: t.op_flags,
            rx_op_flags: r.op_flags,
            msg_order: self.order(),
            inject_size: size(t.inject_size, INJECT_SIZE),
            tx_size: size(t.size, queue_size()),
            rx_size: size(r.size, receives(caps)),
            tx_iov_limit: size(t.iov_limit, limits::IOV_LIMIT),
            rx_iov_limit: size(r.iov_limit, limits::IOV_LIMIT),
            rma_iov_limit: size(t.rma_iov_limit, limits::RMA_IOV_LIMIT),
            tclass: if t.tclass == 0 { d.tclass } else { t.tclass },
            threading: or(d.threading, threading::SAFE),
            control_progress: or(d.control_progress, progress::MANUAL),
            data_progress: or(d.data_progress, progress::MANUAL),
            av_type: d.av_type,
            mr_mode,
            domain_object: d.object,
            domain_key: &self.domain.auth_key,
            endpoint_key: &self.ep.auth_key,
            fabric_object: self.fabric_object,
        };
        self.registrations(opened).into_iter().map(answer).collect()
    }

    /// Returns the capabilities to grant: all if the application asks for none, and otherwise those that it asks for
    /// and those that cost nothing.
    fn granted_caps(&self) -> u64 {
        let mut caps = if self.caps == 0 { limits::CAPS } else { self.caps };
        if caps & (flags::MSG | flags::TAGGED) != 0 {
            if caps & limits::TWO_SIDED == 0 {
                caps |= limits::TWO_SIDED;
            }
            if caps & flags::RECV != 0 {
                caps |= limits::UNASKED_RECV;
            }
        }
        if caps & (flags::RMA | flags::ATOMIC) != 0 {
            if caps & limits::ONE_SIDED == 0 {
                caps |= limits::ONE_SIDED;
            }
            if caps & (flags::REMOTE_READ | flags::REMOTE_WRITE) != 0 {
                caps |= limits::UNASKED_TARGET;
            }
        }
        caps | limits::REACH | self.domain.caps & flags::AV_USER_ID
    }

    /// Returns the order guarantees to give: those that the application asks for, also by a size limit, because order
    /// costs round trips. An application that gives no hints learns what is possible.
    fn order(&self) -> u64 {
        if !self.some {
            return order::ALL;
        }
        let sized = self.ep.max_order.iter().zip(order::SIZED.iter().zip(order::SIZED_ALL));
        let asked = self.tx.msg_order | self.rx.msg_order;
        sized.fold(asked | order::FREE, |asked, (size, (bits, all))| {
            if *size > 0 && asked & bits == 0 { asked | all } else { asked }
        })
    }

    /// Returns the part of `caps` that belongs to one side, or the part of `asked` if the application asked for
    /// something. Older applications name capabilities of the other side, too; those are ignored, as libfabric's own
    /// providers do.
    fn side(&self, asked: u64, caps: u64, side: u64) -> u64 {
        if asked == 0 {
            caps & (side | flags::HMEM)
        } else {
            asked & caps & (side | limits::REACH | flags::HMEM)
        }
    }

    fn general(&self) -> bool {
        let formats = [
            addr_format::UNSPEC,
            addr_format::SOCKADDR,
            addr_format::SOCKADDR_IN,
            addr_format::SOCKADDR_IN6,
            addr_format::SOCKADDR_IP,
        ];
        // Nothing is required of the application, so any mode will do (and `mode` has no bit that
        // asks something of a provider, but for the old FI_LOCAL_MR, which is a permission too).
        let _ = self.mode;
        let peer = if host().has_peer_providers() { flags::PEER } else { 0 };
        // FI_AV_USER_ID is answered only if the application asks for it: it is about address vectors (lnx asks for it
        // with FI_PEER).
        has_only_bits(
            "caps",
            self.caps,
            limits::CAPS | flags::AV_USER_ID | peer | devices(self.caps),
        ) & self.has_described_devices()
            & is_one_of("addr_format", self.addr_format, &formats)
    }

    /// Returns whether buffers in device memory, if the hints ask for them, will come with descriptors: the provider
    /// does not look up the memory in each call. It cannot follow the entries of another provider (FI_PEER) to their
    /// descriptors.
    fn has_described_devices(&self) -> bool {
        let named = !self.is_old() && self.domain.mr_mode & mr_mode::HMEM != 0;
        if self.caps & flags::HMEM != 0 && self.caps & flags::PEER != 0 {
            log::info!(
                "hint rejected: caps: asked FI_HMEM and FI_PEER: what another provider receives is memory of the host here"
            );
            return false;
        }
        if self.caps & flags::HMEM != 0 && !named {
            log::info!(
                "hint rejected: caps: asked FI_HMEM, but not domain_attr->mr_mode FI_MR_HMEM: memory of devices is known \
                 by the descriptors of its regions"
            );
            return false;
        }
        true
    }

    fn transmit(&self) -> bool {
        let t = &self.tx;
        has_only_bits("tx_attr->caps", t.caps, limits::CAPS | self.caps & flags::HMEM)
            & has_only_bits("tx_attr->op_flags", t.op_flags, limits::TX_OP_FLAGS)
            & has_only_bits("tx_attr->msg_order", t.msg_order, order::ALL)
            & has_only_bits("tx_attr->comp_order", t.comp_order, 0)
            & is_at_most("tx_attr->inject_size", t.inject_size, INJECT_SIZE)
            & is_at_most("tx_attr->size", t.size, queue_size())
            & is_at_most("tx_attr->iov_limit", t.iov_limit, limits::IOV_LIMIT)
            & is_at_most("tx_attr->rma_iov_limit", t.rma_iov_limit, limits::RMA_IOV_LIMIT)
    }

    fn receive(&self) -> bool {
        let r = &self.rx;
        has_only_bits("rx_attr->caps", r.caps, limits::CAPS | self.caps & flags::HMEM)
            & has_only_bits("rx_attr->op_flags", r.op_flags, limits::RX_OP_FLAGS)
            & has_only_bits("rx_attr->msg_order", r.msg_order, order::ALL)
            & has_only_bits("rx_attr->comp_order", r.comp_order, 0)
            & is_at_most("rx_attr->total_buffered_recv", r.total_buffered_recv, buffered())
            & is_at_most("rx_attr->size", r.size, receives(self.caps))
            & is_at_most("rx_attr->iov_limit", r.iov_limit, limits::IOV_LIMIT)
    }

    fn endpoint(&self) -> bool {
        let e = &self.ep;
        is_one_of("ep_attr->type", e.kind, &[0, flags::EP_RDM])
            && is_one_of("ep_attr->protocol", e.protocol, &[ffi::FI_PROTO_UNSPEC, protocol()])
                & is_at_most(
                    "ep_attr->protocol_version",
                    e.protocol_version as usize,
                    limits::PROTOCOL_VERSION as usize,
                )
                & is_at_most("ep_attr->max_msg_size", e.max_msg_size, limits::MAX_MSG_SIZE)
                & is_at_most("ep_attr->max_order_raw_size", e.max_order[0], limits::MAX_MSG_SIZE)
                & is_at_most("ep_attr->max_order_war_size", e.max_order[1], limits::MAX_MSG_SIZE)
                & is_at_most("ep_attr->max_order_waw_size", e.max_order[2], limits::MAX_MSG_SIZE)
                & is_at_most("ep_attr->tx_ctx_cnt", e.tx_ctx_cnt, 1)
                & is_at_most("ep_attr->rx_ctx_cnt", e.rx_ctx_cnt, 1)
                & is_usable_key("ep_attr->auth_key_size", &e.auth_key)
    }

    fn domain_fits(&self) -> bool {
        let d = &self.domain;
        let threads = [
            threading::UNSPEC,
            threading::SAFE,
            threading::FID,
            threading::DOMAIN,
            threading::COMPLETION,
            threading::ENDPOINT,
        ];
        let models = [progress::UNSPEC, progress::AUTO, progress::MANUAL];
        let control = [models[0], models[1], models[2], progress::CONTROL_UNIFIED];
        let avs = [av_type::UNSPEC, av_type::MAP, av_type::TABLE];
        let mut fits = is_one_of("domain_attr->threading", d.threading, &threads)
            & is_one_of("domain_attr->control_progress", d.control_progress, &control)
            & is_one_of("domain_attr->data_progress", d.data_progress, &models)
            & is_one_of("domain_attr->resource_mgmt", d.resource_mgmt, &[0, 1, flags::RM_ENABLED])
            & is_one_of("domain_attr->av_type", d.av_type, &avs)
            & is_at_most("domain_attr->mr_key_size", d.mr_key_size, limits::MR_KEY_SIZE)
            & is_at_most("domain_attr->cq_data_size", d.cq_data_size, limits::CQ_DATA_SIZE)
            & is_at_most("domain_attr->mr_iov_limit", d.mr_iov_limit, limits::MR_IOV_LIMIT)
            & has_only_bits("domain_attr->caps", d.caps, limits::REACH | flags::AV_USER_ID)
            & is_usable_key("domain_attr->auth_key_size", &d.auth_key);
        for (count, what) in d.counts.iter().zip(["cq", "ep", "tx_ctx", "rx_ctx", "cntr"]) {
            fits &= is_at_most(&format!("domain_attr->{what}_cnt"), *count, limits::OBJECTS);
        }
        for (i, what) in ["tx", "rx", "stx", "srx"].into_iter().enumerate() {
            fits &= is_at_most(
                &format!("domain_attr->max_ep_{what}_ctx"),
                d.max_ep[i],
                usize::from(i < 2),
            );
        }
        fits
    }

    /// Returns whether the hints name this network interface, or none.
    fn place(&self, endpoint: &Candidate) -> bool {
        let named = |what: &str, asked: Option<&str>, have: &str| {
            let fits = asked.is_none_or(|asked| asked == have);
            if !fits {
                log::info!("hint rejected: {what}: asked {asked:?}, have {have:?}");
            }
            fits
        };
        // SAFETY: the addresses are 0 or those of the objects that the hints name, which are open until
        // fi_getinfo(3) returns; `read` exposed them, during this very call.
        let opened = unsafe {
            name_of(self.domain.object, class::DOMAIN)
                .zip(name_of(self.fabric_object, class::FABRIC))
        };
        let Some((domain, fabric)) = opened else {
            log::info!("hint rejected: domain_attr->domain or fabric_attr->fabric is not squall's");
            return false;
        };
        let source = endpoint.source;
        let format = match self.addr_format {
            addr_format::SOCKADDR_IN => source.is_ipv4(),
            addr_format::SOCKADDR_IN6 => source.is_ipv6(),
            _ => true,
        };
        if !format {
            log::info!("hint rejected: addr_format {} does not fit {source}", self.addr_format);
        }
        let nic = &endpoint.nic;
        format
            & named("domain_attr->name", self.domain.name.as_deref(), &nic.name)
            & named("fabric_attr->name", self.fabric_name.as_deref(), &nic.network)
            & named("domain_attr->domain", domain.as_deref(), &nic.name)
            & named("fabric_attr->fabric", fabric.as_deref(), &nic.network)
    }

    /// Returns whether the application was written before API 1.5, which had two registration modes and no mode bits.
    /// Version 0.0 does not count as old: Intel MPI passes it, with present-day hints.
    fn is_old(&self) -> bool {
        self.api != 0 && self.api < version(1, 5)
    }

    /// Returns the registration modes to answer with, best first. The list is empty when a domain that is already open
    /// has other modes (Open MPI's two components share one).
    ///
    /// No mode is required of an application. But an application that accepts keys of the provider's gets them, because
    /// such keys cannot be guessed (MPIs count theirs up from 0). It also gets virtual addresses if it accepts those:
    /// Intel MPI looks for peers' keys where it keeps them only with peers' addresses.
    ///
    /// Before API 1.5 the modes were FI_MR_BASIC and FI_MR_SCALABLE. An application that leaves the choice open gets
    /// both answers, basic first: libfabric's own providers answer with basic alone, so applications were tested only
    /// with that (Charm++).
    fn registrations(&self, opened: Option<i32>) -> Vec<i32> {
        let asked = self.domain.mr_mode;
        let devices = if self.caps & flags::HMEM != 0 { mr_mode::HMEM } else { 0 };
        // Applications that do not use device memory need not know that others do.
        let opened = opened.map(|modes| modes & !(mr_mode::HMEM & !devices));
        let whole = asked == mr_mode::BASIC || asked == mr_mode::SCALABLE;
        let modes = if whole {
            vec![asked]
        } else if self.is_old() && asked == 0 {
            vec![mr_mode::BASIC, mr_mode::SCALABLE]
        } else if self.is_old() || asked & (mr_mode::BASIC | mr_mode::SCALABLE) != 0 {
            log::info!(
                "hint rejected: mr_mode: asked {asked:#x}: FI_MR_BASIC and FI_MR_SCALABLE stand alone, and API versions \
                 before 1.5 have no other; leave them out, or ask for API 1.5 or later"
            );
            return Vec::new();
        } else if let Some(modes) = opened {
            // FI_HMEM needs the mode of a domain that serves it.
            if modes & !asked == 0 && devices & !modes == 0 { vec![modes] } else { Vec::new() }
        } else {
            let keys = asked & mr_mode::PROV_KEY;
            vec![devices | if keys == 0 { 0 } else { keys | asked & mr_mode::VIRT_ADDR }]
        };
        let fits: Vec<i32> = modes
            .into_iter()
            .filter(|mode| opened.is_none_or(|opened| in_bits(*mode) == opened))
            .collect();
        if let (true, Some(opened)) = (fits.is_empty(), opened) {
            log::info!(
                "hint rejected: mr_mode: asked {asked:#x}, the opened domain has {opened:#x}"
            );
        }
        fits
    }
}

/// Returns a registration mode in bits. fi_mr(3) says which bits FI_MR_BASIC stands for, of which squall needs no
/// FI_MR_ALLOCATED; FI_MR_SCALABLE stands for none.
const fn in_bits(mode: i32) -> i32 {
    match mode {
        mr_mode::BASIC => mr_mode::VIRT_ADDR | mr_mode::PROV_KEY,
        mr_mode::SCALABLE => 0,
        bits => bits,
    }
}

/// Returns the registration modes of the opened domain that hints refer to; `None` when they name none, or none of
/// ours.
///
/// # Safety
/// As for [`name_of`].
unsafe fn modes_of(address: usize) -> Option<i32> {
    let ptr: *const ffi::fid = core::ptr::with_exposed_provenance(address);
    // SAFETY: NULL, which `objects::get` refuses, or an open object by this function's contract; its address was
    // exposed when the hint was read.
    unsafe { objects::get::<OpenDomain, _>(ptr) }.ok().map(OpenDomain::registration_modes)
}

/// Returns the name of the opened fabric or domain that hints refer to: `Some(None)` when they name none,
/// `None` when it is not one of ours.
///
/// # Safety
/// `address` is 0 or that of an open libfabric object.
unsafe fn name_of(address: usize, wanted: usize) -> Option<Option<String>> {
    if address == 0 {
        return Some(None);
    }
    let ptr: *const ffi::fid = core::ptr::with_exposed_provenance(address);
    // SAFETY: not 0, so an open object by this function's contract; its address was exposed when the hint
    // was read.
    unsafe {
        match wanted {
            class::FABRIC => objects::get::<Fabric, _>(ptr).ok().map(|f| Some(f.name().to_owned())),
            class::DOMAIN => {
                objects::get::<OpenDomain, _>(ptr).ok().map(|d| Some(d.name().to_owned()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(caps: u64) -> Hints {
        Hints { caps, ..Hints::default() }
    }

    #[test]
    fn capabilities_are_completed_but_not_invented() {
        assert_eq!(asking(0).granted_caps(), limits::CAPS);
        let tagged = asking(flags::TAGGED).granted_caps();
        assert_eq!(tagged & limits::PRIMARY, flags::TAGGED);
        assert_eq!(tagged & limits::TWO_SIDED, limits::TWO_SIDED);
        assert_eq!(tagged & limits::REACH, limits::REACH);
        assert_eq!(tagged & flags::DIRECTED_RECV, 0);
        assert_eq!(tagged & limits::UNASKED_RECV, limits::UNASKED_RECV);
        assert_eq!(tagged & flags::RMA_EVENT, 0);
        let send_only = asking(flags::MSG | flags::SEND).granted_caps();
        assert_eq!(send_only & (flags::RECV | flags::SOURCE | flags::MULTI_RECV), 0);
        let rma = asking(flags::RMA | flags::WRITE).granted_caps();
        assert_eq!(rma & limits::ONE_SIDED, flags::WRITE);
        assert_eq!(rma & flags::RMA_EVENT, 0, "no target");
        assert_eq!(asking(flags::RMA).granted_caps() & flags::RMA_EVENT, flags::RMA_EVENT);
    }

    #[test]
    fn sides_are_subsets_of_the_whole() {
        let hints = asking(0);
        let caps = hints.granted_caps();
        assert_eq!(hints.side(0, caps, limits::TX_CAPS) & (flags::RECV | flags::REMOTE_READ), 0);
        assert_eq!(hints.side(0, caps, limits::RX_CAPS) & (flags::SEND | flags::READ), 0);
        assert_eq!(hints.side(flags::SEND, flags::MSG, limits::TX_CAPS), 0);
        // Capabilities of the other side are ignored.
        let both = flags::SEND | flags::RECV;
        assert_eq!(hints.side(both, caps, limits::TX_CAPS), flags::SEND);
        assert_eq!(hints.side(both, caps, limits::RX_CAPS), flags::RECV);
    }

    /// Returns the hints of an application of this API version that asks for these registration modes.
    fn registering(api: u32, mr_mode: i32) -> Hints {
        Hints { api, domain: Domain { mr_mode, ..Domain::default() }, ..Hints::default() }
    }

    #[test]
    fn old_applications_get_the_modes_they_know() {
        let modes = |api, asked| registering(api, asked).registrations(None);
        assert_eq!(modes(version(1, 4), mr_mode::BASIC), [mr_mode::BASIC]);
        assert_eq!(modes(version(1, 4), mr_mode::SCALABLE), [mr_mode::SCALABLE]);
        for open in [version(1, 0), version(1, 4)] {
            assert_eq!(modes(open, 0), [mr_mode::BASIC, mr_mode::SCALABLE]);
        }
        assert!(modes(version(1, 4), mr_mode::PROV_KEY).is_empty(), "there were no bits");
        assert_eq!(modes(version(2, 5), mr_mode::BASIC), [mr_mode::BASIC]);
        assert!(modes(version(2, 5), mr_mode::BASIC | mr_mode::PROV_KEY).is_empty());
        assert_eq!(modes(0, 0), [0]);
        // A domain that is open keeps its modes.
        let basic = in_bits(mr_mode::BASIC);
        let old = registering(version(1, 0), 0);
        assert_eq!(old.registrations(Some(basic)), [mr_mode::BASIC]);
        assert_eq!(old.registrations(Some(0)), [mr_mode::SCALABLE]);
        assert!(old.registrations(Some(mr_mode::PROV_KEY)).is_empty());
        let scalable = registering(version(1, 18), mr_mode::SCALABLE);
        assert!(scalable.registrations(Some(basic)).is_empty());
    }

    #[test]
    fn registration_modes_follow_the_hints() {
        let modes = |api, asked| registering(api, asked).registrations(None);
        let modern = mr_mode::VIRT_ADDR | mr_mode::PROV_KEY;
        assert_eq!(modes(version(1, 17), modern), [modern]);
        assert_eq!(modes(version(1, 17), mr_mode::PROV_KEY), [mr_mode::PROV_KEY]);
        assert_eq!(modes(version(1, 17), mr_mode::VIRT_ADDR), [0]);
        // A domain that is open has its modes.
        let hints = registering(version(1, 18), modern);
        assert_eq!(hints.registrations(Some(0)), [0]);
        assert_eq!(hints.registrations(Some(modern)), [modern]);
        // Memory of devices concerns those who ask for it.
        let hmem = |caps, mode| Hints { caps, ..registering(version(1, 18), mode | mr_mode::HMEM) };
        assert_eq!(hmem(flags::HMEM, 0).registrations(None), [mr_mode::HMEM]);
        assert_eq!(hmem(0, 0).registrations(None), [0]);
        assert!(hmem(flags::HMEM, 0).registrations(Some(0)).is_empty());
        assert_eq!(hmem(flags::HMEM, 0).registrations(Some(mr_mode::HMEM)), [mr_mode::HMEM]);
        assert_eq!(hmem(0, 0).registrations(Some(mr_mode::HMEM)), [0]);
        assert!(hmem(flags::HMEM, 0).has_described_devices());
        assert!(!asking(flags::HMEM).has_described_devices());
        assert!(Hints::default().registrations(Some(mr_mode::PROV_KEY)).is_empty());
    }

    #[test]
    fn impossible_hints_are_refused() {
        assert!(asking(0).can_be_satisfied());
        assert!(!asking(flags::ATOMIC | 1 << 5).can_be_satisfied());
        let ep = |kind| Hints { ep: Ep { kind, ..Ep::default() }, ..Hints::default() };
        assert!(ep(flags::EP_RDM).can_be_satisfied() && !ep(1).can_be_satisfied());
    }
}
