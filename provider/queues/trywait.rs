//! `fi_trywait`, for every kind of object on which threads can wait.

use core::ffi::c_int;

use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags::class;
use crate::objects;
use crate::queues::cntr::Cntr;
use crate::queues::cq::Cq;
use crate::queues::eq::Eq;
use crate::waiting::set::WaitSet;
use crate::waiting::{Sleeper, Waitable};

/// Prepares an object so that the application may sleep on its descriptor.
///
/// # Errors
/// As [`Waitable::try_wait`].
fn prepare_external_wait(object: &impl Waitable) -> Result<()> {
    object.try_wait(Sleeper::Application)?;
    object.waits().arm_notifier();
    Ok(())
}

boundary::exports! {
    /// Answers whether the application may block on the descriptors of these objects: `fi_trywait`.
    pub(crate) status trywait(
        _fabric: *mut ffi::fid_fabric,
        fids: *mut *mut ffi::fid,
        count: c_int,
    ) -> c_int => {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        for &fid in boundary::slice(fids.cast_const(), count)? {
            match fid.as_ref().ok_or(Errno::INVAL)?.fclass {
                class::CQ => prepare_external_wait(objects::get::<Cq, _>(fid)?)?,
                class::CNTR => prepare_external_wait(objects::get::<Cntr, _>(fid)?)?,
                class::EQ => prepare_external_wait(objects::get::<Eq, _>(fid)?)?,
                class::WAIT => prepare_external_wait(objects::get::<WaitSet, _>(fid)?)?,
                _ => return Err(Errno::NOSYS),
            }
        }
        Ok(())
    };
}
