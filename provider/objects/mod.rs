//! libfabric objects as Rust values.
//!
//! An object is an `Arc` of a `repr(C)` struct whose first field is libfabric's `fid_*`; the
//! pointer that the application holds is that `Arc`'s. Objects that depend on others keep an
//! [`ObjectRef`] to them, and an object with such references cannot be closed (-FI_EBUSY), as
//! fi_close(3) demands.

mod process;
mod table;

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
pub(crate) use process::{PerProcess, Process};
pub(crate) use table::{
    Table, fi_ops, no_bind, no_control, no_ops_open, no_ops_set, no_tostr, or, table,
};

/// The common interface of all object types.
///
/// # Safety
/// `Self` is `repr(C)` and its first field is a [`Cell`] of `Self::Fid`, which begins with a `struct fid`;
/// only [`publish`] hands pointers to it to the application, and no other type's `fid` has the table of
/// [`Object::ops`].
pub(crate) unsafe trait Object: Sized {
    /// libfabric's structure that the object begins with.
    type Fid;
    /// Returns the table in `fid::ops`, a static that only objects of this type use.
    fn ops() -> &'static ffi::fi_ops;
    /// Returns the count of objects that refer to this one.
    fn users(&self) -> &Users;
}

/// Returns the `struct fid` with which a new object begins.
pub(crate) fn fid(class: usize, context: *mut c_void, ops: &'static ffi::fi_ops) -> ffi::fid {
    ffi::fid { fclass: class, context, ops: core::ptr::from_ref(ops).cast_mut() }
}

/// Hands a new object to the application, which owns it until it closes it.
pub(crate) fn publish<T: Object>(object: Arc<T>) -> *mut T::Fid {
    Arc::into_raw(object).cast_mut().cast()
}

/// Returns the object behind a pointer that the application passed.
///
/// # Safety
/// `ptr` is NULL or an open libfabric object that stays open for `'a`. It may be one of another class, or of
/// another provider: every object begins with a `struct fid`.
///
/// # Errors
/// `FI_EINVAL` for NULL, an object of another class, or one of another provider.
#[inline]
pub(crate) unsafe fn get<'a, T: Object, P>(ptr: *const P) -> Result<&'a T> {
    if ptr.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: not NULL, so an open object by this function's contract, which begins with a `struct
    // fid` whatever its class. When that has `T`'s own table of operations, `publish` made the
    // pointer of an `Arc<T>`, of which the application's reference is counted until `retire`: a `T`
    // is there for 'a. What C writes to meanwhile, the fid, is inside a `Cell`.
    unsafe {
        if !core::ptr::eq((*ptr.cast::<ffi::fid>()).ops, T::ops()) {
            return Err(Errno::INVAL);
        }
        Ok(&*ptr.cast::<T>())
    }
}

/// Returns another reference to the object behind a pointer.
///
/// # Safety
/// As [`get`].
///
/// # Errors
/// As [`get`].
pub(crate) unsafe fn share<T: Object, P>(ptr: *const P) -> Result<Arc<T>> {
    // SAFETY: `ptr` is what `get` asks for, by this function's contract. If it accepts the object,
    // the pointer is one that `publish` got from `Arc::<T>::into_raw`, and the application's
    // reference is counted until it closes the object. (The pointer itself, not the reference that
    // `get` made of it: the counts lie outside of the `T`.)
    unsafe {
        get::<T, P>(ptr)?;
        let published = ptr.cast::<T>();
        Arc::increment_strong_count(published);
        Ok(Arc::from_raw(published))
    }
}

/// The number of objects that refer to an object, and the process that opened it.
pub(crate) struct Users {
    count: AtomicUsize,
    process: Process,
}

impl Default for Users {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), process: Process::current() }
    }
}

/// Takes back the application's reference to an object: fi_close. Returns `None` if a forked child closes an object of
/// its parent, which then stays untouched: the child shares it with the parent, down to locks that a thread of the
/// parent may have held.
///
/// # Safety
/// As [`get`]; the application does not use the pointer afterwards.
///
/// # Errors
/// `FI_EBUSY` when other objects use this one.
pub(crate) unsafe fn retire<T: Object, P>(ptr: *const P) -> Result<Option<Arc<T>>> {
    // SAFETY: `ptr` is what `get` asks for, by this function's contract; the reference ends before
    // the object is given up below.
    let users = unsafe { get::<T, P>(ptr)? }.users();
    if !users.process.is_current() {
        return Ok(None);
    }
    if users.count.load(Ordering::Acquire) != 0 {
        return Err(Errno::BUSY);
    }
    // SAFETY: `get` accepted the object, so `publish` got the pointer from `Arc::<T>::into_raw`;
    // the reference that was counted for the application is taken back here, and only here, because
    // the application may not close an object twice.
    Ok(Some(unsafe { Arc::from_raw(ptr.cast::<T>()) }))
}

/// A counted reference to another object, which cannot be closed meanwhile.
pub(crate) struct ObjectRef<T: Object>(Arc<T>, AtomicBool);

impl<T: Object> ObjectRef<T> {
    pub(crate) fn new(object: Arc<T>) -> Self {
        object.users().count.fetch_add(1, Ordering::AcqRel);
        Self(object, AtomicBool::new(false))
    }

    /// Ends the reference now, although a thread of the provider may keep its holder in memory a little longer.
    pub(crate) fn release(&self) {
        if !self.1.swap(true, Ordering::AcqRel) {
            self.0.users().count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl<T: Object> Deref for ObjectRef<T> {
    type Target = Arc<T>;
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Object> Clone for ObjectRef<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.0))
    }
}

impl<T: Object> Drop for ObjectRef<T> {
    fn drop(&mut self) {
        self.release();
    }
}

/// A `fid_*` structure inside an object. The provider owns it until the object is published, and the C side afterwards:
/// libfabric's core writes to some fields (`api_version`) and reads the rest.
#[repr(transparent)]
pub(crate) struct Cell<T>(UnsafeCell<T>);

impl<T> Cell<T> {
    pub(crate) const fn new(fid: T) -> Self {
        Self(UnsafeCell::new(fid))
    }

    /// Returns the pointer to the structure, for C and for the provider before the object is published.
    pub(crate) const fn get(&self) -> *mut T {
        self.0.get()
    }
}

// SAFETY: a `fid_*`, for which alone this type is made, is plain numbers and pointers: to operation
// tables, which are statics, to the object itself (`mem_desc`), and the application's context,
// which we never follow. None belongs to a thread.
unsafe impl<T> Send for Cell<T> {}
// SAFETY: the one thing to be had of a shared cell is a raw pointer. The code that follows it says
// why no other code writes meanwhile: `mr/mod.rs` before the object is published, `fabric/mod.rs` after
// libfabric's core has written. What else is inside an object is Sync by itself, or the compiler
// would not share it.
unsafe impl<T> Sync for Cell<T> {}

#[cfg(test)]
mod tests {
    use core::ffi::c_int;

    use super::*;
    use crate::abi::flags::class;

    /// An object as small as they come.
    #[repr(C)]
    struct Thing {
        fid: Cell<ffi::fid_mr>,
        users: Users,
        drops: Arc<AtomicUsize>,
    }

    static THING_OPS: Table<ffi::fi_ops> = Table(fi_ops!(close: no_close));

    unsafe extern "C" fn no_close(_: *mut ffi::fid) -> c_int {
        0
    }

    // SAFETY: `Thing` is repr(C) and begins with the cell of a `fid_mr`, which begins with a `fid`;
    // `publish_one` alone puts `THING_OPS` into one.
    unsafe impl Object for Thing {
        type Fid = ffi::fid_mr;
        fn ops() -> &'static ffi::fi_ops {
            &THING_OPS.0
        }
        fn users(&self) -> &Users {
            &self.users
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            self.drops.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn publish_one(drops: &Arc<AtomicUsize>) -> *mut ffi::fid_mr {
        publish(Arc::new(Thing {
            fid: Cell::new(ffi::fid_mr {
                fid: fid(class::MR, core::ptr::null_mut(), &THING_OPS.0),
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
        // SAFETY: `publish` just made the pointer, of which no other code knows, so that the fid
        // may be written to and read through it; the object stays open until `retire` below.
        unsafe {
            (*raw).context = core::ptr::without_provenance_mut(5);
            assert_eq!((*ptr).key, 7);
            let thing: &Thing = get(ptr).expect("it is one");
            assert_eq!((*thing.fid.get()).fid.context.addr(), 5);
        }
        // SAFETY: the object that `raw` points to is open until `retire` below succeeds.
        let hold = unsafe { ObjectRef::new(share::<Thing, _>(raw).expect("it is one")) };
        // SAFETY: the object is open, and stays so, because this is refused.
        let busy = unsafe { retire::<Thing, _>(ptr) };
        assert_eq!(busy.err(), Some(Errno::BUSY), "something holds it");
        let second = hold.clone();
        drop(hold);
        second.release();
        second.release();
        // SAFETY: the object is open, and neither pointer is used afterwards.
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
        static OTHER_OPS: Table<ffi::fi_ops> = Table(fi_ops!(close: no_close));
        let drops = Arc::new(AtomicUsize::new(0));
        let ptr = publish_one(&drops);
        let null: *const ffi::fid_mr = core::ptr::null();
        // SAFETY: NULL, which is refused; and an open object, whose table is changed to another
        // type's and back by the only one who has its pointer.
        unsafe {
            assert_eq!(get::<Thing, _>(null).err(), Some(Errno::INVAL));
            let ours = core::mem::replace(&mut (*ptr).fid.ops, table(&OTHER_OPS));
            assert_eq!(get::<Thing, _>(ptr).err(), Some(Errno::INVAL));
            (*ptr).fid.ops = ours;
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
