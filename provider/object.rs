//! libfabric objects as Rust values.
//!
//! An object is an `Arc` of a `repr(C)` struct whose first field is libfabric's `fid_*`; the pointer
//! that the application holds is that `Arc`'s. Objects that depend on others keep a [`Hold`] on them,
//! and an object that is held cannot be closed (-FI_EBUSY), as fi_close(3) demands.

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int, c_void};
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
#[cfg(not(miri))]
use std::sync::Once;

use crate::domain::Domain;
use crate::errno::{Errno, Result};
use crate::fabric::Fabric;
use crate::ffi;
use crate::flags::class;

/// What every object type says of itself.
///
/// # Safety
/// `Self` is `repr(C)` and its first field is an `UnsafeCell<Self::Fid>`, and `Self::Fid` begins with
/// a `struct fid`.
pub(crate) unsafe trait Object: Sized {
    /// libfabric's structure.
    type Fid;
    /// `fid::fclass`.
    const CLASS: usize;
    /// How many objects hold this one.
    fn users(&self) -> &Users;
}

/// The `struct fid` of a new object.
pub(crate) fn fid(class: usize, context: *mut c_void, ops: &'static ffi::fi_ops) -> ffi::fid {
    ffi::fid { fclass: class, context, ops: core::ptr::from_ref(ops).cast_mut() }
}

/// The pointer libfabric wants for a static operation table. It never writes through it.
pub(crate) fn table<T, U>(ops: &'static T) -> *mut U {
    core::ptr::from_ref(ops).cast_mut().cast()
}

/// Hands a new object to the application.
pub(crate) fn publish<T: Object>(object: Arc<T>) -> *mut T::Fid {
    Arc::into_raw(object).cast_mut().cast()
}

/// The object behind a pointer that the application passed.
///
/// # Safety
/// `ptr` is NULL or an open libfabric object (of any provider's class layout: it begins with a
/// `struct fid`) that stays open for `'a`.
///
/// # Errors
/// `FI_EINVAL` for NULL or an object of another class.
#[inline]
pub(crate) unsafe fn get<'a, T: Object, P>(ptr: *const P) -> Result<&'a T> {
    if ptr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: every object begins with a struct fid, whose class says what it is.
    unsafe {
        if (*ptr.cast::<ffi::fid>()).fclass != T::CLASS {
            return Err(Errno::INVAL);
        }
        Ok(&*ptr.cast::<T>())
    }
}

/// Another reference to the object behind a pointer.
///
/// # Safety
/// As [`get`].
///
/// # Errors
/// As [`get`].
pub(crate) unsafe fn share<T: Object, P>(ptr: *const P) -> Result<Arc<T>> {
    // SAFETY: the caller's promise.
    let object: &T = unsafe { get(ptr)? };
    let raw: *const T = object;
    // SAFETY: `publish` made the pointer with Arc::into_raw, and the application's reference is
    // still counted.
    unsafe {
        Arc::increment_strong_count(raw);
        Ok(Arc::from_raw(raw))
    }
}

/// How many objects hold one, and which process opened it.
pub(crate) struct Users {
    count: AtomicUsize,
    process: Process,
}

impl Default for Users {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), process: Process::current() }
    }
}

/// Takes the application's reference back: fi_close. `None` when a forked child closes what its parent
/// opened: it shares that with the parent, down to locks that a thread of the parent may have held, so
/// nothing of it is touched.
///
/// # Safety
/// As [`get`]; the application does not use the pointer afterwards.
///
/// # Errors
/// `FI_EBUSY` when other objects use this one.
pub(crate) unsafe fn retire<T: Object, P>(ptr: *const P) -> Result<Option<Arc<T>>> {
    // SAFETY: the caller's promise.
    let object: &T = unsafe { get(ptr)? };
    let users = object.users();
    if !users.process.is_current() {
        return Ok(None);
    }
    if users.count.load(Ordering::Acquire) != 0 {
        return Err(Errno::BUSY);
    }
    // SAFETY: made by `publish`; the reference is given up here once.
    Ok(Some(unsafe { Arc::from_raw(core::ptr::from_ref(object)) }))
}

/// A counted use of another object.
pub(crate) struct Hold<T: Object>(Arc<T>, AtomicBool);

impl<T: Object> Hold<T> {
    pub(crate) fn new(object: Arc<T>) -> Self {
        object.users().count.fetch_add(1, Ordering::AcqRel);
        Self(object, AtomicBool::new(false))
    }

    /// Ends the use now, although a thread of ours may keep the holder in memory a little longer.
    pub(crate) fn release(&self) {
        if !self.1.swap(true, Ordering::AcqRel) {
            self.0.users().count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl<T: Object> Deref for Hold<T> {
    type Target = Arc<T>;
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Object> Clone for Hold<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.0))
    }
}

impl<T: Object> Drop for Hold<T> {
    fn drop(&mut self) {
        self.release();
    }
}

/// The name of the opened fabric or domain that hints refer to: `Some(None)` when they name none,
/// `None` when it is not one of ours.
///
/// # Safety
/// `address` is 0 or that of an open libfabric object.
pub(crate) unsafe fn name_of(address: usize, wanted: usize) -> Option<Option<String>> {
    if address == 0 {
        return Some(None);
    }
    let ptr: *const ffi::fid = core::ptr::with_exposed_provenance(address);
    // SAFETY: an open object begins with a struct fid. Its table of operations tells ours from
    // another provider's object of the same class.
    unsafe {
        if wanted == class::FABRIC && (*ptr).ops == Fabric::ops() {
            get::<Fabric, _>(ptr).ok().map(|f| Some(f.name().to_owned()))
        } else if wanted == class::DOMAIN && (*ptr).ops == Domain::ops() {
            get::<Domain, _>(ptr).ok().map(|d| Some(d.name().to_owned()))
        } else {
            None
        }
    }
}

/// How often this process is the child of a fork that happened after we were loaded.
static FORKS: AtomicU32 = AtomicU32::new(0);
#[cfg(not(miri))]
static AT_FORK: Once = Once::new();

#[cfg(not(miri))]
extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Which process an object belongs to: after a fork the child's copies of the parent's objects are
/// dead (they share sockets with the parent), and say -FI_ENODEV.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one.
    pub(crate) fn current() -> Self {
        // Miri does not know pthread_atfork, nor fork.
        #[cfg(not(miri))]
        AT_FORK.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which is allowed in a forked child; the
            // object stays mapped (`-z nodelete`).
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether we still are that process.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    /// # Errors
    /// `FI_ENODEV` in a forked child.
    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(Errno::NODEV) }
    }
}

/// A value of the current process: a forked child starts with a fresh one, because the parent's may
/// be locked by a thread that the child does not have. Values are never freed.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<(Process, T)>);

impl<T: Default + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// This process's value.
    pub(crate) fn get(&self) -> &'static T {
        let process = Process::current();
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: NULL or leaked below, hence valid for ever.
        if let Some((owner, value)) = unsafe { found.as_ref() }
            && *owner == process
        {
            return value;
        }
        let fresh = Box::into_raw(Box::new((process, T::default())));
        match self.0.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just leaked.
            Ok(_) => unsafe { &(*fresh).1 },
            Err(_) => {
                // SAFETY: another thread was faster, so nobody else has seen this one.
                drop(unsafe { Box::from_raw(fresh) });
                self.get()
            }
        }
    }
}

/// A `fid_*` inside an object. libfabric's core writes to some fields (`api_version`).
pub(crate) type Cell<T> = UnsafeCell<T>;

// What an object does not offer: every table is complete, so that no caller meets a null pointer.

pub(crate) unsafe extern "C" fn no_bind(_: *mut ffi::fid, _: *mut ffi::fid, _: u64) -> c_int {
    Errno::NOSYS.code()
}

pub(crate) unsafe extern "C" fn no_control(_: *mut ffi::fid, _: c_int, _: *mut c_void) -> c_int {
    Errno::NOSYS.code()
}

pub(crate) unsafe extern "C" fn no_ops_open(
    _: *mut ffi::fid,
    _: *const c_char,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}

pub(crate) unsafe extern "C" fn no_tostr(
    _: *const ffi::fid,
    buf: *mut c_char,
    len: usize,
) -> c_int {
    // SAFETY: the caller gives a buffer of `len` bytes, or NULL.
    unsafe { crate::boundary::copy_text("squall", buf, len) };
    0
}

pub(crate) unsafe extern "C" fn no_ops_set(
    _: *mut ffi::fid,
    _: *const c_char,
    _: u64,
    _: *mut c_void,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}

/// A `struct fi_ops`: the functions given, -FI_ENOSYS for the rest.
macro_rules! fi_ops {
    (close: $close:expr $(, bind: $bind:expr)? $(, control: $control:expr)? $(,)?) => {
        $crate::ffi::fi_ops {
            size: core::mem::size_of::<$crate::ffi::fi_ops>(),
            close: Some($close),
            bind: $crate::object::or!($($bind)?, $crate::object::no_bind),
            control: $crate::object::or!($($control)?, $crate::object::no_control),
            ops_open: Some($crate::object::no_ops_open),
            tostr: Some($crate::object::no_tostr),
            ops_set: Some($crate::object::no_ops_set),
        }
    };
}

/// The first argument if there is one, else the second.
macro_rules! or {
    (, $default:expr) => {
        Some($default)
    };
    ($given:expr, $default:expr) => {
        Some($given)
    };
}

pub(crate) use {fi_ops, or};

/// Operation tables hold only function pointers and sizes.
#[repr(transparent)]
pub(crate) struct Table<T>(pub(crate) T);

// SAFETY: a table is immutable and made of plain function pointers.
unsafe impl<T> Sync for Table<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object as small as they come.
    #[repr(C)]
    struct Thing {
        fid: Cell<ffi::fid_mr>,
        users: Users,
        drops: Arc<AtomicUsize>,
    }

    // SAFETY: repr(C), and fid_mr, which begins with a struct fid, is first.
    unsafe impl Object for Thing {
        type Fid = ffi::fid_mr;
        const CLASS: usize = class::MR;
        fn users(&self) -> &Users {
            &self.users
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            self.drops.fetch_add(1, Ordering::Relaxed);
        }
    }

    // One thread; the provider's own types say for themselves why they may be shared.
    #[allow(clippy::arc_with_non_send_sync)]
    fn publish_one(drops: &Arc<AtomicUsize>) -> *mut ffi::fid_mr {
        static FI_OPS: Table<ffi::fi_ops> = Table(fi_ops!(close: no_close));
        unsafe extern "C" fn no_close(_: *mut ffi::fid) -> c_int {
            0
        }
        publish(Arc::new(Thing {
            fid: Cell::new(ffi::fid_mr {
                fid: fid(class::MR, core::ptr::null_mut(), &FI_OPS.0),
                mem_desc: core::ptr::null_mut(),
                key: 7,
            }),
            users: Users::default(),
            drops: Arc::clone(drops),
        }))
    }

    #[test]
    fn an_object_lives_while_it_is_open_or_held() {
        let drops = Arc::new(AtomicUsize::new(0));
        let ptr = publish_one(&drops);
        // As libfabric sees it, and writes to it.
        let raw: *mut ffi::fid = ptr.cast();
        // SAFETY: `publish` just made the pointer; nobody else has it.
        unsafe {
            (*raw).context = core::ptr::without_provenance_mut(5);
            assert_eq!((*ptr).key, 7);
            let thing: &Thing = get(ptr).expect("it is one");
            assert_eq!((*thing.fid.get()).fid.context.addr(), 5);
        }
        // SAFETY: as above; the object is open until `retire` below succeeds.
        let hold = unsafe { Hold::new(share::<Thing, _>(raw).expect("it is one")) };
        // SAFETY: as above.
        let busy = unsafe { retire::<Thing, _>(ptr) };
        assert_eq!(busy.err(), Some(Errno::BUSY), "something holds it");
        let second = hold.clone();
        drop(hold);
        second.release();
        second.release();
        // SAFETY: as above.
        let last = unsafe { retire::<Thing, _>(raw) }.expect("nothing holds it");
        assert_eq!(
            drops.load(Ordering::Relaxed),
            0,
            "a thread of ours may keep it a little longer"
        );
        drop((second, last));
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_none_is_refused() {
        let drops = Arc::new(AtomicUsize::new(0));
        let ptr = publish_one(&drops);
        let null: *const ffi::fid_mr = core::ptr::null();
        // SAFETY: NULL, which is refused; and an open object, whose class is changed and changed back by
        // the only one who has its pointer.
        unsafe {
            assert_eq!(get::<Thing, _>(null).err(), Some(Errno::INVAL));
            (*ptr).fid.fclass = class::CQ;
            assert_eq!(get::<Thing, _>(ptr).err(), Some(Errno::INVAL));
            (*ptr).fid.fclass = class::MR;
            drop(retire::<Thing, _>(ptr).expect("nothing holds it"));
        }
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_value_of_the_process_is_made_once() {
        static VALUE: PerProcess<AtomicUsize> = PerProcess::new();
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| VALUE.get().fetch_add(1, Ordering::Relaxed)))
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(VALUE.get().load(Ordering::Relaxed), 4);
    }
}
