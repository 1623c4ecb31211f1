//! `fid_nic`: the device behind an interface, as fi_nic(3) describes it.
//!
//! All of it is libc's memory. Libfabric and this provider both copy devices, and either may free
//! the copy.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;
use core::ptr::null_mut;

use squall_net::iface::{Device, PciAddress};

use super::memory::{string, zeroed};
use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::class;
use crate::host::param::params;
use crate::network::nic::Nic;
use crate::objects::{self, Table};

/// The description of a device in its parts (`fid_nic`); parts that are not known are NULL.
type Pieces = (*mut ffi::fi_device_attr, *mut ffi::fi_bus_attr, *mut ffi::fi_link_attr);

/// Returns the description of an interface's device (`fid_nic`); NULL when memory is short.
pub(super) fn nic(nic: &Nic) -> *mut ffi::fid_nic {
    let device = Device::of_interface(&nic.name, nic.index);
    let Some(fid) = empty() else { return null_mut() };
    // SAFETY: `empty` made the device and its parts, none NULL, each all zero, which is a value of these numbers and
    // pointers; no other code knows of them yet.
    unsafe {
        let (named, bus, link) = pieces(&*fid);
        let (named, bus, link) = (&mut *named, &mut *bus, &mut *link);
        named.name = string(&nic.name);
        named.device_id = optional(device.id.as_deref());
        named.device_version = optional(device.revision.as_deref());
        named.vendor_id = optional(device.vendor.as_deref());
        named.driver = optional(device.driver.as_deref());
        bus.bus_type = ffi::FI_BUS_UNSPEC;
        // MPICH 5 asserts that its hwloc knows the device of a place on the bus, and that of PyPI knows none.
        let place = device.pci.filter(|_| params().pci);
        if let Some(PciAddress { domain, bus: number, device, function }) = place {
            bus.bus_type = ffi::FI_BUS_PCI;
            bus.attr.pci = ffi::fi_pci_attr {
                domain_id: domain,
                bus_id: number,
                device_id: device,
                function_id: function,
            };
        }
        link.address = optional(device.address.as_deref());
        link.mtu = nic.mtu as usize;
        // Bits a second; 0 is not known.
        link.speed =
            nic.speed_mbps.and_then(|speed| usize::try_from(speed).ok()).unwrap_or(0) * 1_000_000;
        // One without a carrier is offered where there is no other, for it may get one: that it is down would be the
        // end of it, for MPICH leaves out what is.
        link.state = if nic.running { ffi::FI_LINK_UP } else { ffi::FI_LINK_UNKNOWN };
        link.network_type = string("Ethernet");
        if named.name.is_null() || link.network_type.is_null() {
            free(fid);
            return null_mut();
        }
    }
    fid
}

/// Returns a copy of a text in memory of libc, or NULL if the text is not known.
fn optional(text: Option<&str>) -> *mut c_char {
    text.map_or(null_mut(), string)
}

/// Returns the description of a device whose parts are empty; `None` when memory is short.
fn empty() -> Option<*mut ffi::fid_nic> {
    let nic: *mut ffi::fid_nic = zeroed(size_of::<ffi::fid_nic>());
    // SAFETY: NULL, or as many zeroed bytes as a `fid_nic` has, which is a value of it (a number and pointers).
    let fid = unsafe { nic.as_mut() }?;
    fid.fid = objects::fid(class::NIC, null_mut(), &OPS.0);
    fid.device_attr = zeroed(size_of::<ffi::fi_device_attr>());
    fid.bus_attr = zeroed(size_of::<ffi::fi_bus_attr>());
    fid.link_attr = zeroed(size_of::<ffi::fi_link_attr>());
    if fid.device_attr.is_null() || fid.bus_attr.is_null() || fid.link_attr.is_null() {
        // SAFETY: a device that was just allocated, with parts that were too, or are NULL.
        unsafe { free(nic) };
        return None;
    }
    Some(nic)
}

const fn pieces(nic: &ffi::fid_nic) -> Pieces {
    (nic.device_attr, nic.bus_attr, nic.link_attr)
}

/// Frees the description of a device (`fid_nic`) with all its parts.
///
/// # Safety
/// `nic` is NULL, or a device that no code uses any more, all of whose parts and strings are NULL or libc's memory, its
/// alone.
pub(super) unsafe fn free(nic: *mut ffi::fid_nic) {
    // SAFETY: NULL, at which `as_ref` looks, or a device by this function's contract, whose parts are NULL or live. The
    // strings are freed before the parts that name them, and those before the device; each once.
    unsafe {
        let Some(of) = nic.as_ref() else { return };
        let (device, bus, link) = pieces(of);
        if let Some(device) = device.as_ref() {
            texts(device).into_iter().for_each(|text| libc::free(text.cast()));
        }
        if let Some(link) = link.as_ref() {
            libc::free(link.address.cast());
            libc::free(link.network_type.cast());
        }
        libc::free(device.cast());
        libc::free(bus.cast());
        libc::free(link.cast());
        libc::free(nic.cast());
    }
}

/// Returns the strings of a device, in the order of its structure.
const fn texts(device: &ffi::fi_device_attr) -> [*mut c_char; 6] {
    [
        device.name,
        device.device_id,
        device.device_version,
        device.vendor_id,
        device.driver,
        device.firmware,
    ]
}

/// Returns a copy of the description of a device; `None` when memory is short.
///
/// # Safety
/// The strings and parts of `nic` are NULL or live.
unsafe fn copy(nic: &ffi::fid_nic) -> Option<*mut ffi::fid_nic> {
    let new = empty()?;
    let mut complete = true;
    let mut duplicate = |text: *mut c_char| {
        if text.is_null() {
            return text;
        }
        // SAFETY: not NULL, so a string of a live device, terminated, by the contract of this function.
        let copy = unsafe { libc::strdup(text) };
        complete &= !copy.is_null();
        copy
    };
    // SAFETY: the parts of `nic` are NULL, at which `as_ref` looks, or live; those of the new one are there, zeroed,
    // and known to no other code. A device that lacks a string is given up.
    unsafe {
        let ((device, bus, link), (to_device, to_bus, to_link)) = (pieces(nic), pieces(&*new));
        if let Some(device) = device.as_ref() {
            let [name, device_id, device_version, vendor_id, driver, firmware] =
                texts(device).map(&mut duplicate);
            to_device.write(ffi::fi_device_attr {
                name,
                device_id,
                device_version,
                vendor_id,
                driver,
                firmware,
            });
        }
        if let Some(bus) = bus.as_ref() {
            to_bus.write(*bus);
        }
        if let Some(link) = link.as_ref() {
            let (address, network_type) = (duplicate(link.address), duplicate(link.network_type));
            to_link.write(ffi::fi_link_attr { address, network_type, ..*link });
        }
        if !complete {
            free(new);
            return None;
        }
    }
    Some(new)
}

/// Returns the description of a device as text, as libfabric's fi_tostr(3) writes it.
///
/// # Safety
/// As [`copy`].
unsafe fn describe(nic: &ffi::fid_nic) -> String {
    let word = |text: *mut c_char| {
        if text.is_null() {
            return "(null)".to_owned();
        }
        // SAFETY: not NULL, so a terminated string of a live device, by the contract of this function.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    let mut text = "    nic:\n".to_owned();
    // SAFETY: NULL, at which `as_ref` looks, or a live part, by this function's contract; what is in the union is PCI
    // where the type beside it says so.
    unsafe {
        let (device, bus, link) = pieces(nic);
        if let Some(device) = device.as_ref() {
            text += "        fi_device_attr:\n";
            let names = ["name", "device_id", "device_version", "vendor_id", "driver", "firmware"];
            for (name, value) in names.into_iter().zip(texts(device)) {
                text += &format!("            {name}: {}\n", word(value));
            }
        }
        if let Some(bus) = bus.as_ref() {
            let pci = bus.bus_type == ffi::FI_BUS_PCI;
            let kind = if pci { "FI_BUS_PCI" } else { "FI_BUS_UNSPEC" };
            text += &format!("        fi_bus_attr:\n            bus_type: {kind}\n");
            if pci {
                let ffi::fi_pci_attr { domain_id, bus_id, device_id, function_id } = bus.attr.pci;
                text += &format!(
                    "            fi_pci_attr:\n                domain_id: {domain_id}\n                bus_id: {bus_id}\n\
                     \u{20}               device_id: {device_id}\n                function_id: {function_id}\n"
                );
            }
        }
        if let Some(link) = link.as_ref() {
            let state = match link.state {
                ffi::FI_LINK_UP => "FI_LINK_UP",
                ffi::FI_LINK_DOWN => "FI_LINK_DOWN",
                _ => "FI_LINK_UNKNOWN",
            };
            text += &format!(
                "        fi_link_attr:\n            address: {}\n            mtu: {}\n            speed: {}\n\
                 \u{20}           state: {state}\n            network_type: {}\n",
                word(link.address),
                link.mtu,
                link.speed,
                word(link.network_type)
            );
        }
    }
    text
}

/// Returns the description of a device (`fid_nic`) behind a `fid`.
///
/// # Safety
/// `fid` is NULL or the beginning of a live `fid_nic`.
///
/// # Errors
/// `FI_EINVAL` for NULL.
unsafe fn of<'a>(fid: *const ffi::fid) -> Result<&'a ffi::fid_nic> {
    // SAFETY: NULL, which is refused, or a live device by this function's contract: it begins with the `fid`.
    unsafe { fid.cast::<ffi::fid_nic>().as_ref() }.ok_or(Errno::INVAL)
}

boundary::exports! {
    /// Frees the description of a device: `fi_close`, which fi_freeinfo calls.
    status close(fid: *mut ffi::fid) -> c_int => {
        of(fid)?;
        free(fid.cast());
        Ok(())
    };

    /// Copies the description of a device: `fi_control` with FI_DUP, which fi_dupinfo calls.
    status control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int => {
        if u32::try_from(command) != Ok(ffi::FI_DUP) {
            return Err(Errno::NOSYS);
        }
        let place = boundary::Out::new(arg.cast::<*mut ffi::fid_nic>())?;
        place.write(copy(of(fid)?).ok_or(Errno::NOMEM)?)
    };

    /// Appends the description of a device to a text with room for `len` more bytes: `fi_tostr`.
    status tostr(fid: *const ffi::fid, buf: *mut c_char, len: usize) -> c_int => {
        let text = describe(of(fid)?);
        if buf.is_null() || len == 0 {
            return Err(Errno::INVAL);
        }
        let end = libc::strlen(buf);
        boundary::copy_text(&text, buf.add(end), len);
        Ok(())
    };
}

static OPS: Table<ffi::fi_ops> = Table(ffi::fi_ops {
    size: size_of::<ffi::fi_ops>(),
    close: Some(close),
    bind: None,
    control: Some(control),
    ops_open: None,
    tostr: Some(tostr),
    ops_set: None,
});
