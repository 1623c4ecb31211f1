//! The collective calls, `fi_collective(3)`. Counts are numbers of values in one member's share: what it sends to each
//! member (all-to-all, scatter), contributes (all-gather) or keeps (reduce-scatter). A root is an index of the address
//! vector.

use core::ffi::{c_int, c_void};

use squall_base::Space;
use squall_engine::{AmoOp, AmoType, atomic_size};

use super::atomic::{data_type, reduction};
use crate::abi::boundary;
use crate::abi::errno::{Errno, Result};
use crate::abi::ffi::{self, fi_datatype, fi_op, fid_ep};
use crate::abi::flags;
use crate::device_memory;
use crate::domain::Domain;
use crate::endpoint::{Endpoint, Inner, alias};
use crate::host::limits;
use crate::objects::{self, Table};
use crate::optional::collectives::{CollectiveCall, CollectiveKind};

/// The buffers of a collective call, for its values and its result, with descriptors, and the type of the values.
struct Values {
    input: (*const c_void, *mut c_void),
    output: (*mut c_void, *mut c_void),
    count: usize,
    /// The type of the values. Calls without values have none.
    datatype: Option<fi_datatype>,
    /// The operation that combines the members' values, in calls that combine values.
    op: Option<fi_op>,
}

impl Values {
    /// The values of a barrier, which has none.
    const NONE: Self = Self {
        input: (core::ptr::null(), core::ptr::null_mut()),
        output: (core::ptr::null_mut(), core::ptr::null_mut()),
        count: 0,
        datatype: None,
        op: None,
    };

    /// Returns the size of a value in bytes, and how a collective call combines values.
    ///
    /// # Errors
    /// `FI_EOPNOTSUPP` for a type or an operation that is not supported.
    fn size(&self, ep: &Endpoint) -> Result<(usize, Option<(AmoOp, AmoType)>)> {
        match (self.datatype, self.op) {
            (None, _) => Ok((0, None)),
            (Some(datatype), None) => {
                Ok((atomic_size(data_type(ep.api_version(), datatype)?), None))
            }
            (Some(datatype), Some(op)) => {
                let combine = reduction(ep.api_version(), datatype, op)?;
                Ok((atomic_size(combine.1), Some(combine)))
            }
        }
    }
}

/// The arguments that all collective calls have: `coll_addr`, flags and context.
type Common = (u64, u64, *mut c_void);

/// Begins a collective call on an endpoint.
///
/// # Safety
/// `ep` is an open endpoint or alias; the values stay mapped, and the endpoint's to read and write, until the completion.
unsafe fn begin(
    ep: *mut fid_ep,
    kind: CollectiveKind,
    (group, flags, context): Common,
    values: &Values,
) -> Result<()> {
    // SAFETY: an open endpoint, or an alias of one, by this function's contract.
    let ep: &Endpoint = unsafe { alias::endpoint(ep)? };
    let (size, combine) = values.size(ep)?;
    if flags & !(flags::COMPLETION | flags::MORE | LEVELS) != 0 {
        return Err(Errno::BADFLAGS);
    }
    let spaces: [Space; 2] =
        [device_memory::space_of(values.input.1), device_memory::space_of(values.output.1)];
    let mut inner = ep.lock()?;
    let Inner { bindings, core } = &mut *inner;
    let core = core.as_mut().ok_or(Errno::OPBADSTATE)?;
    if core.optional.staging.is_none() && spaces.iter().any(|space| !space.is_host()) {
        return Err(Errno::INVAL);
    }
    let call = CollectiveCall {
        kind,
        group,
        block: values.count.checked_mul(size).ok_or(Errno::MSGSIZE)?,
        combine,
        input: values.input.0.expose_provenance() as u64,
        output: values.output.0.expose_provenance() as u64,
        spaces,
        context: context.expose_provenance() as u64,
    };
    // SAFETY: the values and results are where `call` says, for as long as this function's contract says.
    unsafe { core.start_collective(bindings, &call) }
}

/// The flags for completion levels, all of which a collective operation has reached at its end.
const LEVELS: u64 = flags::INJECT_COMPLETE
    | flags::TRANSMIT_COMPLETE
    | flags::DELIVERY_COMPLETE
    | flags::MATCH_COMPLETE;

/// Defines collective calls with separate buffers for values and result. A row is a call, with the arguments that only
/// some calls have: the address of a root, and the operation that combines values.
macro_rules! calls_with_result {
    ($($name:ident($($root:ident)?; $($op:ident)?) => $kind:expr;)*) => {
        boundary::exports! {
            $(transfer $name(
                ep: *mut fid_ep,
                buf: *const c_void,
                count: usize,
                desc: *mut c_void,
                result: *mut c_void,
                result_desc: *mut c_void,
                group: u64,
                $($root: u64,)?
                datatype: fi_datatype,
                $($op: fi_op,)?
                flags: u64,
                context: *mut c_void,
            ) -> isize => {
                let values = Values {
                    input: (buf, desc),
                    output: (result, result_desc),
                    count,
                    datatype: Some(datatype),
                    op: None$(.or(Some($op)))?,
                };
                begin(ep, $kind, (group, flags, context), &values)
            };)*
        }
    };
}

calls_with_result! {
    alltoall(;) => CollectiveKind::AllToAll;
    allreduce(; op) => CollectiveKind::AllReduce;
    allgather(;) => CollectiveKind::AllGather;
    reduce_scatter(; op) => CollectiveKind::ReduceScatter;
    reduce(root; op) => CollectiveKind::Reduce(root);
    scatter(root;) => CollectiveKind::Scatter(root);
    gather(root;) => CollectiveKind::Gather(root);
}

boundary::exports! {
    transfer barrier(ep: *mut fid_ep, group: u64, context: *mut c_void) -> isize => {
        begin(ep, CollectiveKind::Barrier, (group, 0, context), &Values::NONE)
    };

    transfer barrier2(ep: *mut fid_ep, group: u64, flags: u64, context: *mut c_void) -> isize => {
        begin(ep, CollectiveKind::Barrier, (group, flags, context), &Values::NONE)
    };

    transfer broadcast(
        ep: *mut fid_ep,
        buf: *mut c_void,
        count: usize,
        desc: *mut c_void,
        group: u64,
        root: u64,
        datatype: fi_datatype,
        flags: u64,
        context: *mut c_void,
    ) -> isize => {
        let (datatype, op) = (Some(datatype), None);
        let values = Values { input: (buf.cast_const(), desc), output: (buf, desc), count, datatype, op };
        begin(ep, CollectiveKind::Broadcast(root), (group, flags, context), &values)
    };

    /// Refuses a collective call with its arguments in a structure, which none of libfabric's inline functions makes.
    transfer msg(
        ep: *mut fid_ep,
        _msg: *const ffi::fi_msg_collective,
        _resultv: *mut ffi::fi_ioc,
        _desc: *mut *mut c_void,
        _count: usize,
        _flags: u64,
    ) -> isize => alias::endpoint(ep).and(Err(Errno::NOSYS));

    /// Answers which collective operations the domain supports: `fi_query_collective`.
    pub(crate) status query(
        domain: *mut ffi::fid_domain,
        which: ffi::fi_collective_op,
        attr: *mut ffi::fi_collective_attr,
        flags: u64,
    ) -> c_int => {
        let api = objects::get::<Domain, _>(domain)?.api_version();
        let attr = attr.as_mut().ok_or(Errno::INVAL)?;
        if flags != 0 {
            return Err(Errno::BADFLAGS);
        }
        let size = match which {
            ffi::FI_BARRIER => 0,
            ffi::FI_BROADCAST
            | ffi::FI_ALLTOALL
            | ffi::FI_ALLGATHER
            | ffi::FI_SCATTER
            | ffi::FI_GATHER => atomic_size(data_type(api, attr.datatype)?),
            ffi::FI_ALLREDUCE | ffi::FI_REDUCE_SCATTER | ffi::FI_REDUCE => {
                atomic_size(reduction(api, attr.datatype, attr.op)?.1)
            }
            _ => return Err(Errno::OPNOTSUPP),
        };
        attr.datatype_attr.size = size;
        attr.datatype_attr.count = limits::MAX_MSG_SIZE.checked_div(size).unwrap_or(0);
        attr.max_members = limits::OBJECTS;
        attr.mode = 0;
        Ok(())
    };
}

pub(in crate::endpoint) static OPS: Table<ffi::fi_ops_collective> = Table(ffi::fi_ops_collective {
    size: size_of::<ffi::fi_ops_collective>(),
    barrier: Some(barrier),
    broadcast: Some(broadcast),
    alltoall: Some(alltoall),
    allreduce: Some(allreduce),
    allgather: Some(allgather),
    reduce_scatter: Some(reduce_scatter),
    reduce: Some(reduce),
    scatter: Some(scatter),
    gather: Some(gather),
    msg: Some(msg),
    barrier2: Some(barrier2),
});
