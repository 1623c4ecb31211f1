//! The XDP program that the kernel runs for every packet that arrives on the interface. It
//! redirects packets for the endpoint to the AF_XDP socket of the queue on which they arrived. All
//! others, including ARP and neighbour discovery, continue through the kernel.
//!
//! The program has about thirty instructions, so this module assembles them directly. A loader of
//! object files would need a BPF compiler at build time. The layouts are those of `linux/bpf.h`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::frame::{ETHERNET, IPV4, IPV6, TYPE_IPV4, TYPE_IPV6, UDP};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// Value of `attach_type` for a link that attaches an XDP program.
const BPF_XDP: u32 = 37;
const XDP_PASS: i32 = 2;
/// Number of the BPF helper function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// Value of `src_reg` in a BPF instruction that loads a map's address.
const PSEUDO_MAP_FD: u8 = 1;

/// A program that is attached to an interface. The kernel detaches it when this value is dropped or
/// the process ends in any way.
pub(super) struct XdpProgram {
    map: OwnedFd,
    /// The attachment of the program to the interface; closing the descriptor detaches the program.
    _link: OwnedFd,
}

impl XdpProgram {
    /// Attaches a program to interface `index` that redirects UDP packets to `local` on the first
    /// `queues` queues.
    ///
    /// # Errors
    /// The error of the system: no right to load programs (`PermissionDenied`), another program on
    /// the interface (`ResourceBusy`), or a driver without support.
    pub(super) fn attach(index: u32, local: SocketAddr, queues: u32) -> io::Result<Self> {
        let map = BpfAttribute::new()
            .u32(0, BPF_MAP_TYPE_XSKMAP)
            .u32(4, size_of::<u32>() as u32)
            .u32(8, size_of::<u32>() as u32)
            .u32(12, queues)
            .open(BPF_MAP_CREATE)?;
        let code = assemble(local, map.as_raw_fd());
        let license = c"Apache-2.0";
        let program = BpfAttribute::new()
            .u32(0, BPF_PROG_TYPE_XDP)
            .u32(4, code.len() as u32)
            .pointer(8, code.as_ptr())
            .pointer(16, license.as_ptr())
            .bytes(48, b"squall")
            .u32(68, BPF_XDP)
            .open(BPF_PROG_LOAD)?;
        let link = BpfAttribute::new()
            .u32(0, program.as_raw_fd() as u32)
            .u32(4, index)
            .u32(8, BPF_XDP)
            .open(BPF_LINK_CREATE)?;
        Ok(Self { map, _link: link })
    }

    /// Redirects a queue's packets to a socket that is bound to the queue. Packets of queues
    /// without a socket continue through the kernel.
    ///
    /// # Errors
    /// The error of the system, which is not expected.
    pub(super) fn redirect_queue(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        let socket = socket as u32;
        BpfAttribute::new()
            .u32(0, self.map.as_raw_fd() as u32)
            .pointer(8, &raw const queue)
            .pointer(16, &raw const socket)
            .call(BPF_MAP_UPDATE_ELEM)
            .map(|_| ())
    }
}

/// The attribute structure that the system call bpf(2) takes.
struct BpfAttribute([u8; 128]);

impl BpfAttribute {
    const fn new() -> Self {
        Self([0; 128])
    }

    fn bytes(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn u32(self, at: usize, value: u32) -> Self {
        self.bytes(at, &value.to_ne_bytes())
    }

    fn pointer<T>(self, at: usize, to: *const T) -> Self {
        self.bytes(at, &(to.expose_provenance() as u64).to_ne_bytes())
    }

    fn call(&self, command: libc::c_long) -> io::Result<RawFd> {
        // SAFETY: bpf(2) reads as many bytes of arguments as its last argument says, all of ours. What pointers among
        // them name, instructions with their number, a terminated string, or a key and a value of a map whose keys and values are
        // four bytes, are variables of the callers, which outlive the call; the kernel only reads them.
        let rc = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_ptr(), self.0.len()) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc as RawFd) }
    }

    fn open(&self, command: libc::c_long) -> io::Result<OwnedFd> {
        let fd = self.call(command)?;
        // SAFETY: the command, one that makes an object, succeeded, so this is a descriptor of its own that nobody else knows.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Operation codes of BPF instructions, from `linux/bpf.h` and `linux/bpf_common.h`.
mod op {
    /// Operations that move and add 64-bit registers.
    pub(super) const MOVE: u8 = 0xbf;
    pub(super) const MOVE_NUMBER: u8 = 0xb7;
    pub(super) const ADD_NUMBER: u8 = 0x07;
    /// Operation: bitwise and of the lower 32 bits of a register and a number.
    pub(super) const AND_NUMBER: u8 = 0x54;
    pub(super) const LOAD_32: u8 = 0x61;
    pub(super) const LOAD_16: u8 = 0x69;
    pub(super) const LOAD_8: u8 = 0x71;
    /// Operation: load of a 64-bit address; the instruction has two slots.
    pub(super) const LOAD_ADDRESS: u8 = 0x18;
    pub(super) const JUMP_GREATER: u8 = 0x2d;
    /// Operation: jump unless the lower 32 bits of a register equal a number.
    pub(super) const JUMP_UNLESS_NUMBER: u8 = 0x56;
    pub(super) const CALL: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x95;
}

/// Encodes one BPF instruction.
const fn instruction(op: u8, (dst, src): (u8, u8), offset: i16, number: i32) -> [u8; 8] {
    let (o, n) = (offset.to_le_bytes(), number.to_le_bytes());
    [op, src << 4 | dst, o[0], o[1], n[0], n[1], n[2], n[3]]
}

/// The BPF program so far, with the positions of the jumps to its end, which are taken if a packet is not for the
/// endpoint.
struct Assembler {
    code: Vec<[u8; 8]>,
    exits: Vec<usize>,
}

/// BPF registers: the context, the beginning of the packet, its end, and the value that was loaded last.
const CONTEXT: u8 = 6;
const PACKET: u8 = 2;
const END: u8 = 3;
const LOADED: u8 = 5;

impl Assembler {
    fn push(&mut self, op: u8, registers: (u8, u8), offset: i16, number: i32) {
        self.code.push(instruction(op, registers, offset, number));
    }

    /// Loads a value from the packet and jumps to the end of the program unless it equals `number`, in memory order.
    fn require_value(&mut self, load: u8, at: usize, number: i32) {
        self.push(load, (LOADED, PACKET), offset(at), 0);
        self.jump_unless_equal(number);
    }

    fn jump_unless_equal(&mut self, number: i32) {
        self.exits.push(self.code.len());
        self.push(op::JUMP_UNLESS_NUMBER, (LOADED, 0), 0, number);
    }

    /// Jumps to the end of the program if the packet is shorter than `bytes`. The verifier requires this check before
    /// any byte is read.
    fn require_length(&mut self, bytes: usize) {
        self.push(op::MOVE, (LOADED, PACKET), 0, 0);
        self.push(op::ADD_NUMBER, (LOADED, 0), 0, offset(bytes).into());
        self.exits.push(self.code.len());
        self.push(op::JUMP_GREATER, (LOADED, END), 0, 0);
    }
}

/// Converts a position in a packet or in the program to an instruction's offset. Both are short.
fn offset(at: usize) -> i16 {
    i16::try_from(at).unwrap_or(i16::MAX)
}

/// Returns a 16-bit number as a BPF load from a packet yields it.
const fn in_packet(number: u16) -> i32 {
    number.to_be() as i32
}

/// Assembles the XDP program that redirects the packets for the endpoint at `local`.
fn assemble(local: SocketAddr, map: RawFd) -> Vec<[u8; 8]> {
    let mut a = Assembler { code: Vec::new(), exits: Vec::new() };
    a.push(op::MOVE, (CONTEXT, 1), 0, 0);
    // The fields of `struct xdp_md` are data, data_end, data_meta, ingress_ifindex and
    // rx_queue_index.
    a.push(op::LOAD_32, (PACKET, CONTEXT), 0, 0);
    a.push(op::LOAD_32, (END, CONTEXT), 4, 0);
    let port = match local.ip() {
        IpAddr::V4(ip) => {
            a.require_length(ETHERNET + IPV4 + UDP);
            a.require_value(op::LOAD_16, 12, in_packet(TYPE_IPV4));
            // Packets with options and fragments are left to the kernel. A fragment has the flag
            // for more fragments, or an offset.
            a.require_value(op::LOAD_8, ETHERNET, 0x45);
            a.push(op::LOAD_16, (LOADED, PACKET), offset(ETHERNET + 6), 0);
            a.push(op::AND_NUMBER, (LOADED, 0), 0, in_packet(0x3fff));
            a.jump_unless_equal(0);
            a.require_value(op::LOAD_8, ETHERNET + 9, libc::IPPROTO_UDP);
            a.require_value(op::LOAD_32, ETHERNET + 16, i32::from_ne_bytes(ip.octets()));
            ETHERNET + IPV4 + 2
        }
        IpAddr::V6(ip) => {
            a.require_length(ETHERNET + IPV6 + UDP);
            a.require_value(op::LOAD_16, 12, in_packet(TYPE_IPV6));
            a.require_value(op::LOAD_8, ETHERNET + 6, libc::IPPROTO_UDP);
            for (n, part) in ip.octets().chunks_exact(4).enumerate() {
                let part = [part[0], part[1], part[2], part[3]];
                a.require_value(op::LOAD_32, ETHERNET + 24 + 4 * n, i32::from_ne_bytes(part));
            }
            ETHERNET + IPV6 + 2
        }
    };
    a.require_value(op::LOAD_16, port, in_packet(local.port()));
    // The packet is for the endpoint. If the queue has no socket, the packet continues through the
    // kernel.
    a.push(op::LOAD_32, (2, CONTEXT), 16, 0);
    a.push(op::LOAD_ADDRESS, (1, PSEUDO_MAP_FD), 0, map);
    a.push(0, (0, 0), 0, 0);
    a.push(op::MOVE_NUMBER, (3, 0), 0, XDP_PASS);
    a.push(op::CALL, (0, 0), 0, REDIRECT_MAP);
    a.push(op::EXIT, (0, 0), 0, 0);
    let end = a.code.len();
    a.push(op::MOVE_NUMBER, (0, 0), 0, XDP_PASS);
    a.push(op::EXIT, (0, 0), 0, 0);
    for at in a.exits {
        let offset = offset(end - at - 1).to_le_bytes();
        a.code[at][2..4].copy_from_slice(&offset);
    }
    a.code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_out_leads_to_the_kernel() {
        for local in ["192.0.2.1:4793", "[2001:db8::1]:4793"] {
            let code = assemble(local.parse().unwrap(), 7);
            let pass = code.len() - 2;
            assert_eq!(code[pass], instruction(op::MOVE_NUMBER, (0, 0), 0, XDP_PASS));
            let jumps = code.iter().enumerate().filter(|(_, code)| {
                code[0] == op::JUMP_UNLESS_NUMBER || code[0] == op::JUMP_GREATER
            });
            let mut count = 0;
            for (at, code) in jumps {
                let offset = i16::from_le_bytes([code[2], code[3]]);
                assert_eq!(at + 1 + offset as usize, pass, "{local}: instruction {at}");
                count += 1;
            }
            assert_eq!(count, if local.starts_with('[') { 8 } else { 7 }, "{local}");
        }
    }
}
