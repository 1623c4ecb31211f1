//! A port allocates when it is opened, not per call.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};

use squall_net::base::Time;
use squall_net::{Class, Fault, Port, PortConfig, TxPacket, UdpPort};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator unchanged; the count is a thread-local
// integer without a destructor, so touching it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn turns(tx: &mut dyn Port, rx: &mut dyn Port, turns: u64) -> u64 {
    let header = [1; 64];
    let body = [2; 3000];
    let payload = [IoSlice::new(&body)];
    let packet = |path, class| TxPacket {
        dst: rx.local_addr(),
        path,
        class,
        header: &header,
        payload: &payload,
        trailer: b"",
    };
    let mut batch = [packet(0, Class::Data); 40];
    batch[30..].fill(packet(3, Class::Data));
    batch[39] = packet(1, Class::Control);
    let mut got = 0;
    for now in 0..turns {
        assert_eq!(tx.send(Time(now), &batch).sent, batch.len());
        let mut here = 0;
        while here < batch.len() {
            rx.recv(Time(now), 64, &mut |_, bytes| {
                assert_eq!(bytes.len(), 3064);
                here += 1;
            });
        }
        got += here as u64;
    }
    got
}

#[test]
fn no_allocation_in_steady_state() {
    let config =
        PortConfig { bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..PortConfig::default() };
    let open = || UdpPort::open(&config).unwrap().0;
    let faults = "dup=5%,corrupt=5%".parse().unwrap();
    let (mut tx, mut rx) = (open(), Fault::new(open(), faults, &config));
    // Opens the paths, sizes the buffers.
    turns(&mut tx, &mut rx, 50);
    let before = ALLOCATIONS.get();
    let got = turns(&mut tx, &mut rx, 200);
    assert_eq!(ALLOCATIONS.get(), before, "allocations in {got} packets");
    // The measure itself works.
    drop(std::hint::black_box(Box::new(got)));
    assert_eq!(ALLOCATIONS.get(), before + 1);
}
