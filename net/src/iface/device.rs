//! The hardware device behind a network interface, according to sysfs.

use std::fs;
use std::path::{Path, PathBuf};

/// The address of a network card on the PCI bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciAddress {
    /// PCI domain of the device.
    pub domain: u16,
    /// PCI bus number of the device.
    pub bus: u8,
    /// PCI device number on the bus.
    pub device: u8,
    /// PCI function number in the device.
    pub function: u8,
}

/// The properties of an interface's device. An interface without a device has at most a link-layer address.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Device {
    /// Link-layer address of the interface, such as `02:fc:00:00:00:01`.
    pub address: Option<String>,
    /// Name of the driver that operates the device.
    pub driver: Option<String>,
    /// PCI vendor ID of the device, such as `0x15b3`.
    pub vendor: Option<String>,
    /// PCI device ID, which the vendor assigned.
    pub id: Option<String>,
    /// PCI revision of the device.
    pub revision: Option<String>,
    /// PCI address of the device, or of the card that it is part of.
    pub pci: Option<PciAddress>,
}

impl Device {
    /// Reads the properties of an interface's device, by name and kernel index. The result is empty
    /// if sysfs belongs to another network namespace.
    #[must_use]
    pub fn of_interface(name: &str, index: u32) -> Self {
        Self::at(Path::new("/sys/class/net"), name, index)
    }

    /// Reads the properties of a device below `root`, which tests put in place of `/sys/class/net`.
    pub(super) fn at(root: &Path, name: &str, index: u32) -> Self {
        let Some(interface) = directory(root, name, index) else { return Self::default() };
        let device = interface.join("device");
        let driver = fs::read_link(device.join("driver")).ok();
        let driver = driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let place = fs::canonicalize(&device).ok();
        Self {
            address: text(&interface.join("address")),
            driver,
            vendor: text(&device.join("vendor")),
            id: text(&device.join("device")),
            revision: text(&device.join("revision")),
            pci: place.as_deref().and_then(pci),
        }
    }
}

/// Returns whether there is a device behind an interface. The result is false if sysfs belongs to
/// another network namespace.
pub(super) fn is_behind(name: &str, index: u32) -> bool {
    let interface = directory(Path::new("/sys/class/net"), name, index);
    interface.is_some_and(|interface| interface.join("device").exists())
}

/// Returns the sysfs directory of an interface, if the interface there has this kernel index. An
/// interface of another network namespace may have the same name.
fn directory(root: &Path, name: &str, index: u32) -> Option<PathBuf> {
    let interface = root.join(name.split(':').next()?);
    let found: u32 = text(&interface.join("ifindex"))?.parse().ok()?;
    (found == index).then_some(interface)
}

/// Reads a line of sysfs. Returns `None` if there is none or it is empty.
fn text(path: &Path) -> Option<String> {
    let line = fs::read_to_string(path).ok()?;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Returns the last PCI function in a device's path. A device that is not on the PCI bus itself,
/// such as a virtio port, is part of a PCI device.
fn pci(device: &Path) -> Option<PciAddress> {
    device.components().rev().find_map(|part| function(part.as_os_str().to_str()?))
}

/// Parses the PCI address in a name of a sysfs directory, such as `0000:3b:00.1`.
fn function(name: &str) -> Option<PciAddress> {
    let (domain, rest) = name.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    Some(PciAddress {
        domain: u16::from_str_radix(domain, 16).ok()?,
        bus: u8::from_str_radix(bus, 16).ok()?,
        device: u8::from_str_radix(device, 16).ok()?,
        function: u8::from_str_radix(function, 16).ok()?,
    })
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_device_has_the_properties_in_sysfs() {
        let root = std::env::temp_dir().join(format!("squall-sysfs-{}", std::process::id()));
        let (net, card) = (root.join("net"), root.join("devices/0000:00:1c.0/0000:3b:00.1"));
        // Eth1 is part of the card; a bridge has no device.
        for directory in [
            net.join("eth0"),
            net.join("br0"),
            card.join("virtio2"),
            root.join("drivers/mlx5_core"),
        ] {
            fs::create_dir_all(directory).unwrap();
        }
        symlink(card.join("virtio2"), net.join("eth0/device")).unwrap();
        symlink(root.join("drivers/mlx5_core"), card.join("virtio2/driver")).unwrap();
        for (file, line) in [
            (net.join("eth0/ifindex"), "7\n"),
            (net.join("eth0/address"), "02:fc:00:00:00:01\n"),
            (net.join("br0/ifindex"), "9\n"),
            (net.join("br0/address"), "\n"),
            (card.join("virtio2/vendor"), "0x15b3\n"),
            (card.join("virtio2/device"), "0x1019\n"),
        ] {
            fs::write(file, line).unwrap();
        }
        let known = Device {
            address: Some("02:fc:00:00:00:01".into()),
            driver: Some("mlx5_core".into()),
            vendor: Some("0x15b3".into()),
            id: Some("0x1019".into()),
            revision: None,
            pci: Some(PciAddress { domain: 0, bus: 0x3b, device: 0, function: 1 }),
        };
        assert_eq!(Device::at(&net, "eth0", 7), known);
        assert_eq!(Device::at(&net, "eth0:2", 7), known, "a name of one more address");
        assert_eq!(Device::at(&net, "br0", 9), Device::default());
        assert_eq!(Device::at(&net, "eth0", 8), Device::default(), "of another namespace");
        assert_eq!(Device::at(&net, "eth5", 5), Device::default());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn only_pci_functions_are_parsed() {
        assert_eq!(
            function("10af:ff:1f.7"),
            Some(PciAddress { domain: 0x10af, bus: 0xff, device: 0x1f, function: 7 })
        );
        for name in ["", "pci0000:00", "0000:00:03", "0000:00:zz.0", "virtio2", "1-1.4:1.0"] {
            assert_eq!(function(name), None, "{name}");
        }
    }
}
