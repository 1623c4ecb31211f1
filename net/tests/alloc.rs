//! A port allocates when it is opened, not in each call.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};

use squall_net::base::{Batch, Time, TrafficClass, UserSlice};
use squall_net::{Burst, FaultPort, Port, PortConfig, UdpPort};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: both methods pass their arguments on to the system's allocator, which keeps the trait's
// contract, and return what it returns; the other methods are made of these two. The count is a
// thread-local integer without a destructor, so that touching it allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: by the trait's contract `layout` has a size, which is all that the system's allocator asks.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: by the trait's contract `ptr` is a block that `alloc` returned for this `layout`, hence
        // one of the system's allocator, and is given up here.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Builds packets to `dst`, each with `body` as its payload.
fn batch(dst: SocketAddr, body: &[u8]) -> Batch {
    let lent = UserSlice::lent(body.as_ptr().expose_provenance() as u64, body.len() as u64);
    let mut batch = Batch::default();
    let mut push = |path, class| batch.push((dst, path, class), &[1; 64], [lent], b"");
    (0..30).for_each(|_| push(0, TrafficClass::Data));
    (0..9).for_each(|_| push(3, TrafficClass::Data));
    push(1, TrafficClass::Control);
    batch
}

fn turns(tx: &mut dyn Port, rx: &mut dyn Port, turns: u64, batch: &Batch) -> u64 {
    let count = batch.packets.len();
    let mut got = 0;
    for now in 0..turns {
        // SAFETY: the batch names the test's `body`, whose address `batch` exposed and which lives to the
        // test's end.
        let burst = unsafe { Burst::new(batch, 0..count) };
        assert_eq!(tx.send(Time(now), burst).sent, count);
        let mut here = 0;
        while here < count {
            rx.recv_each(Time(now), 64, &mut |_, bytes| {
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
    let (mut tx, mut rx) = (open(), FaultPort::new(open(), faults, &config));
    let body = [2u8; 3000];
    let batch = batch(rx.local_addr(), &body);
    // These turns open the paths and grow the buffers.
    turns(&mut tx, &mut rx, 50, &batch);
    let before = ALLOCATIONS.get();
    let got = turns(&mut tx, &mut rx, 200, &batch);
    assert_eq!(ALLOCATIONS.get(), before, "allocations in {got} packets");
    // Checks that the measurement itself works.
    drop(std::hint::black_box(Box::new(got)));
    assert_eq!(ALLOCATIONS.get(), before + 1);
}
