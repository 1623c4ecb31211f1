//! Control calls of an endpoint: enabling, options, cancelling.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use std::sync::Arc;

use crate::abi::boundary::{self, Out};
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi;
use crate::abi::flags;
use crate::device_memory;
use crate::endpoint::buffer::context_of;
use crate::endpoint::endpoint_core::Core;
use crate::endpoint::open::with_tables;
use crate::endpoint::{Endpoint, Inner, alias, setup};
use crate::host::limits;
use crate::objects;
use crate::optional::triggered_work::operations;
use crate::reports::process_report;
use crate::waiting::background;
use crate::waiting::open_endpoints;

// Endpoint options by number: the later ones are not in 1.17's headers.
const MIN_MULTI_RECV: c_int = 0;
const TX_SIZE: c_int = 6;
const RX_SIZE: c_int = 7;
const FI_HMEM_P2P: c_int = 8;
/// Value FI_HMEM_P2P_DISABLED of the option FI_OPT_FI_HMEM_P2P.
const P2P_DISABLED: c_int = 3;
const CUDA_API_PERMITTED: c_int = 10;
const SHARED_MEMORY_PERMITTED: c_int = 11;
const MAX_MSG_SIZE: c_int = 12;
const MAX_TAGGED_SIZE: c_int = 13;
const MAX_RMA_SIZE: c_int = 14;
const INJECT_MSG_SIZE: c_int = 16;
const INJECT_TAGGED_SIZE: c_int = 17;
const INJECT_RMA_SIZE: c_int = 18;

boundary::exports! {
    /// Handles `fi_control` of an endpoint: FI_ENABLE, and the default operation flags, in a uint64 whose bits
    /// FI_TRANSMIT or FI_RECV name the side.
    pub(crate) status control(fid: *mut ffi::fid, command: c_int, arg: *mut c_void) -> c_int => {
        let ep = objects::share::<Endpoint, _>(fid)?;
        match u32::try_from(command) {
            Ok(ffi::FI_ENABLE) => ep.enable(),
            Ok(ffi::FI_GETOPSFLAG) => {
                let which = arg.cast::<u64>().as_mut().ok_or(Errno::INVAL)?;
                *which = ep.op_flags(*which)?;
                Ok(())
            }
            Ok(ffi::FI_SETOPSFLAG) => {
                ep.set_op_flags(*arg.cast::<u64>().as_ref().ok_or(Errno::INVAL)?)
            }
            Ok(ffi::FI_ALIAS) => {
                let alias = arg.cast::<ffi::fi_alias>().as_ref().ok_or(Errno::INVAL)?;
                alias::open(&ep, with_tables, Out::new(alias.fid)?, alias.flags)
            }
            _ => Err(Errno::NOSYS),
        }
    };

    /// Cancels a receive: `fi_cancel`. It completes with FI_ECANCELED, unless it is completing already.
    pub(crate) transfer cancel(fid: ffi::fid_t, context: *mut c_void) -> isize =>
        alias::endpoint(fid)?.cancel(context_of(context));

    pub(crate) status getopt(
        fid: ffi::fid_t,
        level: c_int,
        option: c_int,
        value: *mut c_void,
        len: *mut usize,
    ) -> c_int => {
        let (ep, len) = (alias::endpoint(fid)?, len.as_mut().ok_or(Errno::INVAL)?);
        let found = ep.option(level, option)?;
        let needed = match found {
            OptionValue::Size(_) => size_of::<usize>(),
            OptionValue::Int(_) => size_of::<c_int>(),
            OptionValue::Bool(_) => size_of::<bool>(),
        };
        let room = core::mem::replace(len, needed);
        if room < needed || value.is_null() {
            return Err(Errno::TOOSMALL);
        }
        match found {
            OptionValue::Size(found) => value.cast::<usize>().write_unaligned(found),
            OptionValue::Int(found) => value.cast::<c_int>().write_unaligned(found),
            OptionValue::Bool(found) => value.cast::<bool>().write(found),
        }
        Ok(())
    };

    pub(crate) status setopt(
        fid: ffi::fid_t,
        level: c_int,
        option: c_int,
        value: *const c_void,
        len: usize,
    ) -> c_int => {
        let ep = alias::endpoint(fid)?;
        let given = match len {
            _ if value.is_null() => None,
            size if size == size_of::<usize>() => Some(value.cast::<usize>().read_unaligned()),
            4 => Some(value.cast::<u32>().read_unaligned() as usize),
            1 => Some(usize::from(value.cast::<u8>().read())),
            _ => None,
        };
        ep.set_option(level, option, len, given)
    };

    pub(crate) sized size_left(ep: *mut ffi::fid_ep) -> isize =>
        alias::endpoint(ep)?.size_left();
}

impl Endpoint {
    /// Enables the endpoint: `fi_enable`. A second call does nothing.
    fn enable(self: &Arc<Self>) -> Result<()> {
        let mut inner = self.lock()?;
        let Inner { bindings, core } = &mut *inner;
        if core.is_some() {
            return Ok(());
        }
        if bindings.av.is_none() {
            log::warn!("fi_enable refused: no address vector is bound; bind one by fi_ep_bind");
            return Err(Errno::NOAV);
        }
        if !bindings.has_observer() {
            log::warn!(
                "fi_enable refused: neither a completion queue nor a counter is bound; bind one by fi_ep_bind"
            );
            return Err(Errno::NOCQ);
        }
        let opened = setup::open(&self.domain, &self.settings, self.number)?;
        let (regions, interface) = (Arc::clone(self.domain.regions()), &self.domain.nic().name);
        let new = Core::new(opened, regions, &self.settings, interface);
        let sockets = new.sockets();
        if let Err(error) = bindings.attach(self, &sockets) {
            bindings.detach(self, &sockets);
            return Err(error);
        }
        // Before a packet can name a region: who closes one asks the endpoints of this list.
        self.domain.add_endpoint(self, new.name());
        *core = Some(Box::new(new));
        if bindings.counts_accesses()
            && let Some(core) = core
        {
            core.engine.report_accesses();
        }
        drop(inner);
        if let Err(error) = self.attach_to_domain(&sockets) {
            self.disable(&sockets);
            return Err(error);
        }
        open_endpoints::add(self.weak());
        process_report::count_endpoint(self.domain.nic());
        if self.domain.progress().is_none() {
            background::attach(self.weak());
        }
        Ok(())
    }

    /// Attaches the endpoint to the counters of its domain and to the progress thread.
    fn attach_to_domain(self: &Arc<Self>, sockets: &[i32]) -> Result<()> {
        self.domain.attach_to_counters(self)?;
        self.domain
            .progress()
            .map_or(Ok(()), |progress| progress.attach(Arc::clone(self) as _, sockets))
    }

    /// Undoes a fi_enable that failed half-way, so that the application may try again.
    #[cold]
    fn disable(&self, sockets: &[i32]) {
        if let Some(progress) = self.domain.progress() {
            progress.detach(self, sockets);
        }
        self.domain.remove_endpoint(self, sockets);
        let mut inner = self.lock_unchecked();
        let Inner { bindings, core } = &mut *inner;
        bindings.detach(self, sockets);
        *core = None;
    }
}

/// The value of an endpoint option, in the type that fi_endpoint(3) gives it.
#[derive(Clone, Copy)]
enum OptionValue {
    Size(usize),
    Int(c_int),
    Bool(bool),
}

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Returns the value of an option that reports a size limit and cannot be set.
fn limit(option: c_int) -> Option<usize> {
    match option {
        TX_SIZE | RX_SIZE => Some(limits::queue_size()),
        MAX_MSG_SIZE | MAX_TAGGED_SIZE | MAX_RMA_SIZE => Some(limits::MAX_MSG_SIZE),
        INJECT_MSG_SIZE | INJECT_TAGGED_SIZE | INJECT_RMA_SIZE => Some(limits::INJECT_SIZE),
        _ => None,
    }
}

/// Checks FI_OPT_FI_HMEM_P2P. No transfer is peer to peer, so an application that requires that is
/// refused.
fn peer_to_peer(devices: bool, value: Option<usize>) -> Result<()> {
    const REQUIRED: usize = 1;
    const LAST: usize = 3;
    match value.ok_or(Errno::INVAL)? {
        _ if !devices => Err(Errno::OPNOTSUPP),
        REQUIRED => {
            log::info!(
                "FI_HMEM_P2P_REQUIRED refused: squall copies device memory through host memory"
            );
            Err(Errno::OPNOTSUPP)
        }
        0..=LAST => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

/// Checks FI_OPT_CUDA_API_PERMITTED. CUDA memory is copied by calls of CUDA's driver, so an application that forbids
/// them is refused.
fn permit_cuda(devices: bool, value: Option<usize>) -> Result<()> {
    match value.ok_or(Errno::INVAL)? {
        // An endpoint without FI_HMEM makes no such calls, and does not look for the driver.
        _ if !devices => Err(Errno::OPNOTSUPP),
        _ if !device_memory::has_cuda() => Err(Errno::INVAL),
        0 => {
            log::info!(
                "FI_OPT_CUDA_API_PERMITTED false is refused: squall copies CUDA memory by calls of that API"
            );
            Err(Errno::OPNOTSUPP)
        }
        _ => Ok(()),
    }
}

impl Endpoint {
    /// Returns the default operation flags of a side, FI_TRANSMIT or FI_RECV.
    fn op_flags(&self, which: u64) -> Result<u64> {
        match which & (flags::TRANSMIT | flags::RECV) {
            flags::TRANSMIT => Ok(self.tx_flags()),
            flags::RECV => Ok(self.rx_flags()),
            _ => Err(Errno::INVAL),
        }
    }

    /// Sets the default operation flags of the transmitting or the receiving side, which FI_TRANSMIT or FI_RECV in
    /// `value` selects.
    fn set_op_flags(&self, value: u64) -> Result<()> {
        let (slot, known) = match value & (flags::TRANSMIT | flags::RECV) {
            flags::TRANSMIT => (&self.settings.tx_flags, limits::TX_OP_FLAGS),
            flags::RECV => (&self.settings.rx_flags, limits::RX_OP_FLAGS),
            _ => return Err(Errno::INVAL),
        };
        let given = value & !(flags::TRANSMIT | flags::RECV);
        if given & !known != 0 {
            return Err(Errno::BADFLAGS);
        }
        slot.store(given, Ordering::Relaxed);
        Ok(())
    }

    fn cancel(&self, context: u64) -> Result<()> {
        let mut inner = self.lock()?;
        let Inner { bindings, core } = &mut *inner;
        let core = core.as_mut().ok_or(Errno::OPBADSTATE)?;
        let now = crate::clock::now();
        let begun = core.optional.triggered.id_of(context);
        if core.engine.cancel(now, context) || begun.is_some_and(|id| core.engine.cancel(now, id)) {
            core.deliver_completions(bindings);
            drop(inner);
            self.begin_work();
            return Ok(());
        }
        drop(inner);
        if !operations::cancel(self, context) {
            return Err(Errno::NOENT);
        }
        self.begin_work();
        Ok(())
    }

    /// Returns the value of an endpoint option.
    ///
    /// # Errors
    /// `FI_ENOPROTOOPT` for an unknown option, and those that setting the option has for an endpoint without FI_HMEM or a
    /// host without CUDA.
    fn option(&self, level: c_int, option: c_int) -> Result<OptionValue> {
        if level != 0 {
            return Err(Errno::NOPROTOOPT);
        }
        match option {
            MIN_MULTI_RECV => {
                Ok(OptionValue::Size(size(self.settings.min_multi_recv.load(Ordering::Relaxed))))
            }
            FI_HMEM_P2P if self.settings.devices => Ok(OptionValue::Int(P2P_DISABLED)),
            FI_HMEM_P2P => Err(Errno::OPNOTSUPP),
            CUDA_API_PERMITTED => {
                permit_cuda(self.settings.devices, Some(1)).map(|()| OptionValue::Bool(true))
            }
            SHARED_MEMORY_PERMITTED => {
                Ok(OptionValue::Bool(self.settings.shared_memory.load(Ordering::Relaxed)))
            }
            _ => limit(option).map(OptionValue::Size).ok_or(Errno::NOPROTOOPT),
        }
    }

    /// Sets an endpoint option to `value`, which came in `len` bytes; `None` is a value that is no number.
    fn set_option(
        &self,
        level: c_int,
        option: c_int,
        len: usize,
        value: Option<usize>,
    ) -> Result<()> {
        if level != 0 {
            return Err(Errno::NOPROTOOPT);
        }
        // One option is an int, two are bools, all others are sizes.
        match option {
            FI_HMEM_P2P => {
                return peer_to_peer(
                    self.settings.devices,
                    value.filter(|_| len == size_of::<c_int>()),
                );
            }
            CUDA_API_PERMITTED => {
                return permit_cuda(self.settings.devices, value.filter(|_| len == 1));
            }
            SHARED_MEMORY_PERMITTED => {
                return self.permit_shared_memory(value.filter(|_| len == 1));
            }
            _ => {}
        }
        let value = value.filter(|_| len == size_of::<usize>());
        match option {
            MIN_MULTI_RECV => {
                let value = value.ok_or(Errno::INVAL)?;
                self.settings.min_multi_recv.store(value as u64, Ordering::Relaxed);
                Ok(())
            }
            _ => match limit(option) {
                Some(have) if value.ok_or(Errno::INVAL)? <= have => Ok(()),
                Some(_) => Err(Errno::INVAL),
                None => Err(Errno::NOPROTOOPT),
            },
        }
    }

    /// Sets FI_OPT_SHARED_MEMORY_PERMITTED. An endpoint without the permission talks to the peers on its host by
    /// packets. An endpoint with it uses shared memory where FI_SQUALL_SHM allows that.
    fn permit_shared_memory(&self, value: Option<usize>) -> Result<()> {
        let permitted = value.ok_or(Errno::INVAL)? != 0;
        if !permitted && self.lock()?.core.is_some() {
            log::info!(
                "FI_OPT_SHARED_MEMORY_PERMITTED false is refused: the endpoint is enabled, and may share memory with peers \
                 already; set the option before fi_enable"
            );
            return Err(Errno::OPBADSTATE);
        }
        self.settings.shared_memory.store(permitted, Ordering::Relaxed);
        Ok(())
    }

    fn size_left(&self) -> Result<usize> {
        if self.lock()?.core.is_none() {
            return Err(Errno::OPBADSTATE);
        }
        Ok(limits::queue_size())
    }
}

pub(crate) unsafe extern "C" fn tx_ctx(
    _: *mut ffi::fid_ep,
    _: c_int,
    _: *mut ffi::fi_tx_attr,
    _: *mut *mut ffi::fid_ep,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}

pub(crate) unsafe extern "C" fn rx_ctx(
    _: *mut ffi::fid_ep,
    _: c_int,
    _: *mut ffi::fi_rx_attr,
    _: *mut *mut ffi::fid_ep,
    _: *mut c_void,
) -> c_int {
    Errno::NOSYS.code()
}
