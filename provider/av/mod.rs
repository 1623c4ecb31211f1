//! Address vectors: `fi_addr_t` is an index, for maps and tables alike.
//!
//! Each endpoint caches what its data path needs of the addresses, and discards the cache when the vector's generation
//! changes.

mod addresses;
mod set;

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::abi::boundary::{self, Out};
use crate::abi::compat::OpsAv;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::{self, ADDR_UNSPEC, av_type, class};
use crate::domain::Domain;
use crate::host::param::params;
use crate::network::addr::{self, Name, Raw};
use crate::network::wire;
use crate::objects::{self, Cell, Object, ObjectRef, Table, Users};
use crate::queues::eq::{Eq, Failure};
use addresses::Addresses;
pub(crate) use set::AvSet;

/// The reason why an address vector cannot be opened by other processes, for error messages.
pub(crate) const NOT_SHARED: &str = "what it holds beside addresses (secrets, paths) is each process's own, and memory that \
                                     another process writes would be read by every send; open one in each process";

/// An address vector: `struct fid_av` and the provider's state behind it.
#[repr(C)]
pub(crate) struct Av {
    fid: Cell<ffi::fid_av>,
    users: Users,
    domain: ObjectRef<Domain>,
    addresses: RwLock<Addresses>,
    /// Number that changes when what endpoints cached of the vector before is void.
    generation: AtomicU64,
    /// Number that changes with every name that is inserted or removed.
    revision: AtomicU64,
    /// The results of insertions are reported on an event queue (FI_EVENT).
    events: bool,
    /// The application gives every address its own id with fi_av_set_user_id (FI_AV_USER_ID at fi_av_open).
    needs_ids: bool,
    eq: RwLock<Option<ObjectRef<Eq>>>,
}

// SAFETY: `Av` is repr(C) and begins with the cell of a `fid_av`, which begins with a `fid`; `create`
// alone puts `FI_OPS` into one.
unsafe impl Object for Av {
    type Fid = ffi::fid_av;
    fn ops() -> &'static ffi::fi_ops {
        &FI_OPS.0
    }
    fn users(&self) -> &Users {
        &self.users
    }
}

static FI_OPS: Table<ffi::fi_ops> = Table(objects::fi_ops!(close: close, bind: bind));

static OPS: Table<OpsAv> = Table(OpsAv {
    size: size_of::<OpsAv>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr,
    av_set: set::open,
    insert_auth_key,
    lookup_auth_key,
    set_user_id,
});

boundary::exports! {
    /// Opens an address vector: `fi_av_open`.
    pub(crate) status open(
        domain: *mut ffi::fid_domain,
        attr: *mut ffi::fi_av_attr,
        av: *mut *mut ffi::fid_av,
        context: *mut c_void,
    ) -> c_int => {
        let place = Out::new(av)?;
        place.write(Av::create(objects::share(domain)?, attr.as_mut(), context)?)
    };

    status close(fid: *mut ffi::fid) -> c_int => objects::retire::<Av, _>(fid).map(drop);

    /// Binds an object to an address vector: `fi_av_bind`. Only an event queue can be bound.
    status bind(fid: *mut ffi::fid, other: *mut ffi::fid, _flags: u64) -> c_int => {
        let (av, eq) = (objects::get::<Av, _>(fid)?, objects::share::<Eq, _>(other)?);
        *av.eq.write() = Some(ObjectRef::new(eq));
        Ok(())
    };

    count insert(
        av: *mut ffi::fid_av,
        addr: *const c_void,
        count: usize,
        fi_addr: *mut u64,
        flags: u64,
        context: *mut c_void,
    ) -> c_int => {
        let av = objects::get::<Av, _>(av)?;
        if flags & !(flags::MORE | flags::SYNC_ERR | flags::AV_USER_ID) != 0 {
            return Err(Errno::BADFLAGS);
        }
        // Addresses of one vector have one length: the domain's.
        let len = if av.domain.ip().is_ipv4() { addr::V4_LEN } else { addr::V6_LEN };
        let total = count.checked_mul(len).ok_or(Errno::INVAL)?;
        let bytes = boundary::slice(addr.cast::<u8>(), total)?;
        let each = bytes.chunks_exact(len).map(addr::decode);
        av.add(each, &Insertion { fi_addr, flags, context })
    };

    count insertsvc(
        av: *mut ffi::fid_av,
        node: *const c_char,
        service: *const c_char,
        fi_addr: *mut u64,
        flags: u64,
        context: *mut c_void,
    ) -> c_int => {
        let av = objects::get::<Av, _>(av)?;
        let (node, service) = (boundary::text(node), boundary::text(service));
        if node.is_none() && service.is_none() {
            return Err(Errno::INVAL);
        }
        let addr = av.resolve(node.as_deref(), service.as_deref());
        av.add(core::iter::once(addr), &Insertion { fi_addr, flags, context })
    };

    count insertsym(
        av: *mut ffi::fid_av,
        node: *const c_char,
        nodecnt: usize,
        service: *const c_char,
        svccnt: usize,
        fi_addr: *mut u64,
        flags: u64,
        context: *mut c_void,
    ) -> c_int => {
        let av = objects::get::<Av, _>(av)?;
        let (node, service) = (boundary::text(node), boundary::text(service));
        let (Some(node), Some(service)) = (node, service) else { return Err(Errno::INVAL) };
        if nodecnt == 0 || svccnt == 0 {
            return Err(Errno::INVAL);
        }
        let each = (0..nodecnt).flat_map(|n| (0..svccnt).map(move |s| (n, s))).map(|(n, s)| {
            let (node, service) = (next_name(&node, n)?, next_name(&service, s)?);
            av.resolve(Some(&node), Some(&service))
        });
        // The lookup comes before the insertion, which locks the vector: a name server may take seconds for each name.
        let resolved: Vec<Option<Name>> = each.collect();
        av.add(resolved.into_iter(), &Insertion { fi_addr, flags, context })
    };

    status remove(av: *mut ffi::fid_av, fi_addr: *mut u64, count: usize, flags: u64) -> c_int => {
        let av = objects::get::<Av, _>(av)?;
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        av.remove(boundary::slice(fi_addr.cast_const(), count)?)
    };

    /// Copies as much of an address as fits into the `*addrlen` bytes at `addr`, and stores its full length in
    /// `*addrlen`: `fi_av_lookup`.
    status lookup(
        av: *mut ffi::fid_av,
        fi_addr: u64,
        addr: *mut c_void,
        addrlen: *mut usize,
    ) -> c_int => {
        let found = objects::get::<Av, _>(av)?.addresses().get(fi_addr).ok_or(Errno::INVAL)?;
        write_address(&found, addr, addrlen).map(drop)
    };

    /// Sets the id that completions carry for an address: `fi_av_set_user_id` (libfabric 1.20).
    status set_user_id(
        av: *mut ffi::fid_av,
        fi_addr: u64,
        user_id: u64,
        flags: u64,
    ) -> c_int => {
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        objects::get::<Av, _>(av)?.set_user_id(fi_addr, user_id)
    };
}

impl Av {
    /// Opens an address vector. Its type, if the application leaves it open, is written into `attr`.
    fn create(
        domain: Arc<Domain>,
        attr: Option<&mut ffi::fi_av_attr>,
        context: *mut c_void,
    ) -> Result<*mut ffi::fid_av> {
        let mut count = 64;
        let (mut events, mut needs_ids) = (false, false);
        if let Some(attr) = attr {
            if !attr.name.is_null() {
                log::warn!("fi_av_attr.name, a shared address vector, is refused: {NOT_SHARED}");
                return Err(Errno::NOSYS);
            }
            if attr.flags & !(flags::EVENT | flags::SYMMETRIC | flags::AV_USER_ID) != 0 {
                log::info!(
                    "address vector refused: of the flags {:#x} only FI_EVENT, FI_SYMMETRIC and FI_AV_USER_ID are known",
                    attr.flags
                );
                return Err(Errno::BADFLAGS);
            }
            if attr.rx_ctx_bits != 0 {
                log::info!(
                    "rx_ctx_bits {} is refused: squall offers no scalable endpoints; set it to 0",
                    attr.rx_ctx_bits
                );
                return Err(Errno::NOSYS);
            }
            if attr.type_ == av_type::UNSPEC {
                attr.type_ = av_type::TABLE;
            }
            if attr.type_ > av_type::TABLE {
                return Err(Errno::INVAL);
            }
            count = attr.count.clamp(count, 1 << 20);
            events = attr.flags & flags::EVENT != 0;
            needs_ids = attr.flags & flags::AV_USER_ID != 0;
        }
        let opened = Arc::new(Self {
            fid: Cell::new(ffi::fid_av {
                fid: objects::fid(class::AV, context, &FI_OPS.0),
                ops: objects::table(&OPS),
            }),
            users: Users::default(),
            domain: ObjectRef::new(domain),
            addresses: RwLock::new(Addresses::with_capacity(count)),
            generation: AtomicU64::new(0),
            revision: AtomicU64::new(0),
            events,
            needs_ids,
            eq: RwLock::new(None),
        });
        Ok(objects::publish(opened))
    }

    /// Returns a number that changes when what endpoints cached of the vector is void: with every removal, and when an
    /// address gets another instance.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns a number that changes with every name that is inserted or removed.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Locks the addresses of the vector for reading.
    pub(crate) fn addresses(&self) -> parking_lot::RwLockReadGuard<'_, Addresses> {
        self.addresses.read()
    }

    /// Checks whether endpoints on this vector's domain can reach the endpoint with this name at all.
    ///
    /// # Errors
    /// `FI_EINVAL` for an address of another kind than this interface's, `FI_EADDRNOTAVAIL` for
    /// another endpoint's name at an address where an endpoint of this process is.
    pub(crate) fn check_reachable(&self, name: &Name) -> Result<()> {
        let addr = name.addr;
        let sane = addr.port() != 0
            && !addr.ip().is_unspecified()
            && addr.is_ipv4() == self.domain.ip().is_ipv4();
        if !sane {
            log::warn!(
                "cannot insert address {addr}: it needs a port, a definite IP address, and the IP version of this interface"
            );
            return Err(Errno::INVAL);
        }
        self.domain.check_reachable(name)
    }

    /// Makes completions name the peer behind an address by an id that the application chose.
    ///
    /// # Errors
    /// `FI_EINVAL` when the vector was opened without FI_AV_USER_ID, or the address was not inserted.
    fn set_user_id(&self, fi_addr: u64, user_id: u64) -> Result<()> {
        if !self.needs_ids {
            log::info!(
                "fi_av_set_user_id is refused: the vector was opened without FI_AV_USER_ID; open it with that flag"
            );
            return Err(Errno::INVAL);
        }
        let mut addresses = self.addresses.write();
        addresses.get(fi_addr).ok_or(Errno::INVAL)?;
        addresses.set_user_id(fi_addr, user_id);
        drop(addresses);
        // Endpoints have cached the peer's earlier id.
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Inserts a sequence of addresses, and reports the results in the way that all insertion calls share.
    ///
    /// # Safety
    /// `call.fi_addr` is NULL or has a place for each of the addresses; with FI_SYNC_ERR `call.context` is
    /// NULL or points to an int for each. Both are aligned, and no other code uses them meanwhile.
    unsafe fn add(
        &self,
        names: impl Iterator<Item = Option<Name>>,
        call: &Insertion,
    ) -> Result<usize> {
        let eq = self.eq.read();
        if self.events && eq.is_none() {
            return Err(Errno::OPBADSTATE);
        }
        let sync = !self.events && call.flags & flags::SYNC_ERR != 0;
        if sync && call.context.is_null() {
            return Err(Errno::INVAL);
        }
        let identified = call.flags & flags::AV_USER_ID != 0;
        if identified && (call.fi_addr.is_null() || self.events) {
            log::info!(
                "FI_AV_USER_ID is refused at an insertion: fi_addr must hold the ids, and the vector must be opened without FI_EVENT"
            );
            return Err(Errno::INVAL);
        }
        if identified && self.needs_ids {
            log::info!(
                "FI_AV_USER_ID is refused at an insertion: the vector was opened with it; call fi_av_set_user_id"
            );
            return Err(Errno::INVAL);
        }
        let fid: *mut ffi::fid = self.fid.get().cast();
        let mut done = 0;
        let mut addresses = self.addresses.write();
        for (i, name) in names.enumerate() {
            let found = name.ok_or_else(|| {
                log::warn!(
                    "address {i} of an insertion is no IP address, or no such host is known"
                );
                Errno::INVAL
            });
            let checked = found.and_then(|name| self.check_reachable(&name).map(|()| name));
            let (index, failed) = match checked {
                Ok(name) => {
                    done += 1;
                    let inserted = addresses.insert(name);
                    if identified {
                        // SAFETY: not NULL, so by this function's contract there is an `i`-th place, in which the
                        // application has put a number (fi_av(3), FI_AV_USER_ID).
                        addresses.set_user_id(inserted.index, unsafe { *call.fi_addr.add(i) });
                    } else if self.needs_ids {
                        addresses.require_user_id(inserted.index);
                    }
                    if inserted.ambiguous || identified {
                        self.generation.fetch_add(1, Ordering::AcqRel);
                    }
                    (inserted.index, 0)
                }
                Err(errno) => {
                    if let (true, Some(eq)) = (self.events, eq.as_deref()) {
                        let (context, data) = (call.context, i as u64);
                        eq.push_error(Failure { fid, context, data, errno });
                    }
                    (ADDR_UNSPEC, errno.0)
                }
            };
            // SAFETY: `i` counts the addresses, so by this function's contract there is an `i`-th place at
            // `fi_addr` when it is not NULL, and an `i`-th int at `context` when `sync` says that the call
            // has FI_SYNC_ERR (NULL was refused above).
            unsafe {
                if !call.fi_addr.is_null() {
                    *call.fi_addr.add(i) = index;
                }
                if sync {
                    *call.context.cast::<c_int>().add(i) = failed;
                }
            }
        }
        drop(addresses);
        self.revision.fetch_add(1, Ordering::AcqRel);
        if let (true, Some(eq)) = (self.events, eq.as_deref()) {
            eq.push_entry(ffi::FI_AV_COMPLETE, fid, call.context, done as u64);
            return Ok(0);
        }
        Ok(done)
    }
}

/// The arguments that all calls have which insert addresses.
struct Insertion {
    fi_addr: *mut u64,
    flags: u64,
    context: *mut c_void,
}

impl Av {
    fn resolve(&self, node: Option<&str>, service: Option<&str>) -> Option<Name> {
        let format = match self.domain.ip() {
            std::net::IpAddr::V4(_) => flags::addr_format::SOCKADDR_IN,
            std::net::IpAddr::V6(_) => flags::addr_format::SOCKADDR_IN6,
        };
        addr::resolve(node, service, false, Some(format), wire::usual_address(params())).ok()
    }

    /// Undoes one insertion of each index. An index that cannot be removed does not prevent the removal of the others.
    ///
    /// # Errors
    /// `FI_EINVAL` when one of them is none.
    fn remove(&self, indices: &[u64]) -> Result<()> {
        let mut addresses = self.addresses.write();
        let mut result = Ok(());
        for index in indices {
            result = result.and(addresses.remove(*index));
        }
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.revision.fetch_add(1, Ordering::AcqRel);
        result
    }
}

/// Returns the name that is `steps` after another: a numeric tail counts up (`node7` -> `node8`), and an IPv4 address
/// counts by its value.
fn next_name(name: &str, steps: usize) -> Option<String> {
    if let Ok(ip) = name.parse::<std::net::Ipv4Addr>() {
        let next = u32::from(ip).checked_add(u32::try_from(steps).ok()?)?;
        return Some(std::net::Ipv4Addr::from(next).to_string());
    }
    let tail = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (stem, number) = name.split_at(tail);
    if number.is_empty() {
        return (steps == 0).then(|| name.to_owned());
    }
    let next = number.parse::<u64>().ok()?.checked_add(steps as u64)?;
    Some(format!("{stem}{next:0width$}", width = number.len()))
}

/// Writes the C form of a name as far as it fits, and its full length. Returns whether all of it fitted.
///
/// # Safety
/// `addrlen` is NULL or an initialised size_t, and `addr` is NULL or has room for `*addrlen` bytes. No other code
/// uses them meanwhile.
///
/// # Errors
/// `FI_EINVAL` without a length.
pub(crate) unsafe fn write_address(
    found: &Name,
    addr: *mut c_void,
    addrlen: *mut usize,
) -> Result<bool> {
    let raw = Raw::new(found);
    let bytes = raw.as_bytes();
    // SAFETY: by this function's contract `addrlen` is NULL, which is refused, or may be read and written,
    // and `addr`, unless it is NULL (nothing is copied then), has room for `*room` bytes, of which `take` is
    // no more; `bytes` is a local variable of ours.
    unsafe {
        let room = addrlen.as_mut().ok_or(Errno::INVAL)?;
        let take = if addr.is_null() { 0 } else { bytes.len().min(*room) };
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), addr.cast(), take);
        *room = bytes.len();
        Ok(take == bytes.len())
    }
}

unsafe extern "C" fn straddr(
    _av: *mut ffi::fid_av,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    boundary::value(core::ptr::null(), || {
        // SAFETY: fi_av_straddr(3) passes `addr`, NULL or an address as long as its family says, `len`,
        // NULL or an initialised size_t, and `buf`, NULL or with room for `*len` bytes, which no other code
        // uses before the call returns.
        unsafe {
            let (Some(name), Some(len)) = (addr::read(addr), len.as_mut()) else {
                return core::ptr::null();
            };
            let text = match &name.fields {
                Some(fields) => addr::foreign_text(&name.addr, fields),
                None => addr::uri(&name.addr),
            };
            boundary::copy_text(&text, buf, *len);
            *len = text.len() + 1;
        }
        buf.cast_const()
    })
}

unsafe extern "C" fn insert_auth_key(
    _: *mut ffi::fid_av,
    _: *const c_void,
    _: usize,
    _: *mut u64,
    _: u64,
) -> c_int {
    Errno::NOSYS.code()
}

unsafe extern "C" fn lookup_auth_key(
    _: *mut ffi::fid_av,
    _: u64,
    _: *mut c_void,
    _: *mut usize,
) -> c_int {
    Errno::NOSYS.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_up() {
        assert_eq!(next_name("node09", 1).as_deref(), Some("node10"));
        assert_eq!(next_name("10.0.0.255", 1).as_deref(), Some("10.0.1.0"));
        assert_eq!(next_name("9228", 3).as_deref(), Some("9231"));
        assert_eq!(next_name("host", 0).as_deref(), Some("host"));
        assert_eq!(next_name("host", 1), None);
    }
}
