//! The network interfaces on which endpoints can be opened: what `net` found, reduced to what `getinfo` reports.

use std::net::{IpAddr, UdpSocket};

use squall_net::RailConfig;
use squall_net::iface::{self, Iface};

use crate::abi::errno::{Errno, Result};
use crate::host::logger::USER;
use crate::host::param::{PortKind, WireKind, params};

/// A network interface with one of its IP addresses.
#[derive(Clone, Debug)]
pub(crate) struct Nic {
    /// Name of the network interface, which is the name of the domain.
    pub(crate) name: String,
    /// The IP address to which endpoints bind.
    pub(crate) ip: IpAddr,
    /// The interface's network, such as `10.0.0.0/24`, which is the name of the fabric.
    pub(crate) network: String,
    /// Length of the network's address prefix in bits.
    pub(crate) prefix: u8,
    /// Speed of the link in Mb/s, if the interface reports one.
    pub(crate) speed_mbps: Option<u64>,
    /// MTU of the interface in bytes.
    pub(crate) mtu: u32,
    /// Kernel's index of the interface, which is the scope of link-local addresses.
    pub(crate) index: u32,
    /// True if the link of the interface works (IFF_RUNNING).
    pub(crate) running: bool,
    /// The cards that an endpoint uses together, the interface's own first; empty if it uses one. Speed and MTU are
    /// then those of all: the sum, and the smallest.
    pub(crate) rails: Vec<RailConfig>,
}

impl From<Iface> for Nic {
    fn from(iface: Iface) -> Self {
        Self {
            network: format!("{}/{}", iface.network(), iface.prefix),
            prefix: iface.prefix,
            name: iface.name,
            ip: iface.addr,
            speed_mbps: iface.speed_mbps.map(u64::from),
            mtu: if iface.mtu == 0 { 1500 } else { iface.mtu },
            index: iface.index,
            running: iface.running,
            rails: Vec::new(),
        }
    }
}

impl Nic {
    /// Returns whether an address belongs to the network of the interface.
    fn has_neighbour(&self, ip: IpAddr) -> bool {
        self.ip.is_ipv4() == ip.is_ipv4()
            && iface::masked(self.ip, self.prefix) == iface::masked(ip, self.prefix)
    }
}

/// Returns the interface for an address of this host that no interface has, such as 127.0.1.1: the interface in whose
/// network the address is, or else loopback, over which the kernel routes local addresses. Endpoints bind to the
/// address. `None` if the kernel does not let a socket bind to it.
pub(crate) fn of_local_address<'a>(
    nics: impl Iterator<Item = &'a Nic> + Clone,
    ip: IpAddr,
) -> Option<Nic> {
    UdpSocket::bind((ip, 0)).ok()?;
    let neighbour = nics.clone().find(|nic| nic.has_neighbour(ip));
    let is_loopback = |nic: &&Nic| nic.ip.is_loopback() && nic.ip.is_ipv4() == ip.is_ipv4();
    let nic = neighbour.or_else(|| nics.into_iter().find(is_loopback))?;
    Some(Nic { ip, ..nic.clone() })
}

/// Makes one of the first interfaces of `nics`, as many as FI_SQUALL_RAILS permits, of the first one's address family.
/// The others of them are no interfaces of their own any more.
fn combine(mut nics: Vec<Nic>) -> Vec<Nic> {
    let params = params();
    let most = params.rails.map_or(squall_net::rails::MAX_RAILS, |most| most as usize);
    if most < 2 || nics.len() < 2 {
        return nics;
    }
    let refusal = if !params.emulator.is_empty() {
        "an emulated network has one card for each host"
    } else if params.port_kind != PortKind::Udp {
        "AF_XDP sockets (FI_SQUALL_PORT_KIND=xdp) belong to one card"
    } else if params.wire != WireKind::Squall {
        "the wires of other implementations (FI_SQUALL_WIRE) know one address of an endpoint"
    } else {
        ""
    };
    if !refusal.is_empty() {
        log::warn!(target: USER, "FI_SQUALL_RAILS: {refusal}; using {} alone", nics[0].name);
        return nics;
    }
    let rail = |nic: &Nic| RailConfig {
        name: nic.name.clone(),
        ip: nic.ip,
        index: nic.index,
        mbps: nic.speed_mbps.and_then(|mbps| u32::try_from(mbps).ok()).unwrap_or(0),
    };
    let mut first = nics.remove(0);
    first.rails.push(rail(&first));
    nics.retain(|nic| {
        let full = first.rails.len() == most;
        if full
            || nic.ip.is_ipv4() != first.ip.is_ipv4()
            || nic.ip.is_loopback() != first.ip.is_loopback()
        {
            return true;
        }
        first.rails.push(rail(nic));
        first.mtu = first.mtu.min(nic.mtu);
        first.speed_mbps = first.speed_mbps.zip(nic.speed_mbps).map(|(sum, more)| sum + more);
        false
    });
    if first.rails.len() == 1 {
        log::warn!(
            target: USER,
            "FI_SQUALL_RAILS: no second card of {}'s address family; FI_SQUALL_IFACE names the cards, and squall doctor lists them",
            first.name
        );
        first.rails.clear();
    }
    nics.insert(0, first);
    nics
}

/// # Errors
/// The system's error, with a warning: descriptors are short, perhaps.
fn list_all() -> Result<Vec<Iface>> {
    iface::list().map_err(|error| {
        log::warn!(target: USER, "cannot list the network interfaces of this host: {error}");
        error.into()
    })
}

/// Returns the interfaces to offer, best first ([`iface::select`] ranks them). With `everything` the list also has
/// those that the defaults leave out, such as loopback, because the application named an address; but FI_SQUALL_IFACE
/// decides if it is set.
pub(crate) fn list(everything: bool) -> Vec<Nic> {
    let expression = params().iface.as_str();
    let Ok(all) = list_all() else { return Vec::new() };
    let known: Vec<String> = all.iter().map(ToString::to_string).collect();
    let candidates = match iface::select(all, expression) {
        Ok(candidates) => candidates,
        Err(error) => {
            log::warn!(target: USER, "FI_SQUALL_IFACE={expression}: {error}");
            return Vec::new();
        }
    };
    let everything = everything && expression.is_empty();
    let (mut nics, mut others): (Vec<Nic>, Vec<Nic>) = (Vec::new(), Vec::new());
    for candidate in candidates {
        log::info!("interface {candidate}");
        if candidate.kept {
            nics.push(candidate.iface.into());
        } else if everything && candidate.iface.up {
            others.push(candidate.iface.into());
        }
    }
    let mut nics = combine(nics);
    nics.append(&mut others);
    if nics.is_empty() {
        log::warn!(
            target: USER,
            "no network interface to use{}; there are: {}",
            if expression.is_empty() { "" } else { " (FI_SQUALL_IFACE selects none)" },
            known.join(", ")
        );
    }
    nics
}

/// Returns the interface of a domain by its name, and by its address if the interface has several. Without either,
/// returns the best interface.
///
/// # Errors
/// `FI_ENODATA` when there is none, the system's when it does not say.
pub(crate) fn find(name: Option<&str>, ip: Option<IpAddr>) -> Result<Nic> {
    if name.is_none() && ip.is_none() {
        return list(false).into_iter().next().ok_or(Errno::NODATA);
    }
    let nics: Vec<Nic> = list_all()?.into_iter().filter(|i| i.up).map(Nic::from).collect();
    let named = nics.iter().filter(|nic| name.is_none_or(|name| nic.name == name));
    let own = named.clone().find(|nic| ip.is_none_or(|ip| nic.ip == ip)).cloned();
    let found = own
        .or_else(|| of_local_address(named.clone(), ip?))
        .or_else(|| named.clone().next().cloned());
    let found = found.map(|nic| {
        // The first interface may be several cards.
        let first = (params().rails != Some(1)).then(|| list(false).into_iter().next()).flatten();
        first.filter(|first| (&first.name, first.ip) == (&nic.name, nic.ip)).unwrap_or(nic)
    });
    found.ok_or_else(|| {
        log::warn!(target: USER, "the domain cannot be opened: no interface {name:?} with address {ip:?} is up on this host");
        Errno::NODATA
    })
}
