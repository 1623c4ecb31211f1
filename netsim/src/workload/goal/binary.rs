//! Reader of the binary form of schedules, as LogGOPSim's and ATLAHS's `txt2bin` write it on x86
//! (`Parser.hpp`, `serialize_mmap`): numbers are little-endian and not aligned, and offsets count
//! from behind the first eight bytes.
//!
//! ```text
//! u64 4223                              a mark
//! u32 ranks, u8 cpus, u8 cards          the last two are the largest numbers in use
//! (u64 begin, u64 end) of each rank
//! at `begin`: u32 operations, u32 roots, u32 of each root,
//!   39 bytes of each operation, then the appendix: u32 operations that wait
//! operation: u32 number for which it waits, u8 kind (1 send, 2 receive, 3 calculation), u32 peer,
//!   u64 bytes or nanoseconds, u32 tag, u8 cpu, u8 card,
//!   (u32 count, u32 first) in the appendix of those that wait for its end, and (..) for its begin
//! ```

use crate::formats::FormatError;
use crate::workload::schedule::{Kind, MOST_OPERATIONS, Names, Operation, Schedule, Wait};

/// Mark at the beginning of a schedule.
const MAGIC: u64 = 4223;
/// Mark of a schedule that a simulation of LogGOPSim with `--save-mem` has used up.
const USED_UP: u64 = 2342;
/// Bytes of the record of an operation.
const RECORD: usize = 39;
/// Peer or tag that stands for any.
const ANY: u32 = u32::MAX;

/// Returns whether a file has the binary form.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    Bytes(bytes).u64(0).is_some_and(|mark| mark == MAGIC || mark == USED_UP)
}

/// Bytes with numbers at places that may be beyond their end.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn range(self, from: u64, to: u64) -> Option<Self> {
        let (from, to) = (usize::try_from(from).ok()?, usize::try_from(to).ok()?);
        self.0.get(from..to).map(Bytes)
    }
}

/// Reads a schedule of the binary form; error messages name it `file`.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Schedule, FormatError> {
    let fault = |what: String| FormatError { file: file.to_owned(), line: 0, what };
    if Bytes(bytes).u64(0) == Some(USED_UP) {
        let what = "a simulation of LogGOPSim with --save-mem has used this schedule up; make it again with txt2bin";
        return Err(fault(what.to_owned()));
    }
    let cut = |what: &str| {
        fault(format!(
            "{what} is beyond the end of the file, which was cut off; make it again with txt2bin"
        ))
    };
    let body = Bytes(bytes.get(8..).unwrap_or_default());
    let ranks = body.u32(0).ok_or_else(|| cut("the number of ranks"))?;
    let mut schedule = Schedule {
        ranks,
        operations: Vec::new(),
        waits: Vec::new(),
        names: Names::Numbers(file.to_owned()),
    };
    // Bytes of the body that no rank has claimed. Without this limit, a short file whose ranks share
    // one range would need unbounded memory.
    let mut left = body.0.len();
    for rank in 0..ranks {
        let entry = 6 + 16 * rank as usize;
        let (begin, end) = body
            .u64(entry)
            .zip(body.u64(entry + 8))
            .ok_or_else(|| cut(&format!("the table of ranks (rank {rank} of {ranks})")))?;
        let part = body.range(begin, end).ok_or_else(|| cut(&format!("rank {rank}")))?;
        left = left.checked_sub(part.0.len()).ok_or_else(|| {
            fault(format!(
                "the operations of ranks 0 to {rank} add up to more bytes than the file has, so they overlap; convert the \
                 text schedule again with txt2bin"
            ))
        })?;
        let end = (rank, ranks);
        rank_of(&mut schedule, end, part).map_err(|what| fault(format!("rank {rank}: {what}")))?;
    }
    Ok(schedule)
}

/// Adds the operations of a rank.
fn rank_of(
    schedule: &mut Schedule,
    (rank, ranks): (u32, u32),
    part: Bytes<'_>,
) -> Result<(), String> {
    let cut = || "its operations are beyond its end; make the file again with txt2bin".to_owned();
    let (count, roots) = part.u32(0).zip(part.u32(4)).ok_or_else(cut)?;
    let records = 8 + 4 * roots as usize;
    let appendix = records + RECORD * count as usize;
    if appendix > part.0.len() {
        return Err(cut());
    }
    let first = schedule.operations.len();
    if first + count as usize > MOST_OPERATIONS {
        return Err(format!("more than {MOST_OPERATIONS} operations, the most possible"));
    }
    let first = first as u32;
    // Each entry of the appendix belongs to one list.
    let mut entries = (part.0.len() - appendix) / 4;
    for place in 0..count {
        let at = records + RECORD * place as usize;
        let operation = part.u8(at + 4).zip(part.u32(at + 5)).zip(part.u64(at + 9));
        let ((kind, peer), size) = operation.ok_or_else(cut)?;
        let (tag, cpu) = part.u32(at + 17).zip(part.u8(at + 21)).ok_or_else(cut)?;
        if kind != 3 && peer >= ranks && (kind != 2 || peer != ANY) {
            return Err(format!(
                "operation {place} names rank {peer}, expected 0 to {}",
                ranks.saturating_sub(1)
            ));
        }
        let kind = match kind {
            1 => Kind::Send { to: peer, bytes: size, tag: tag.into() },
            2 => Kind::Receive {
                from: (peer != ANY).then_some(peer),
                tag: (tag != ANY).then_some(tag.into()),
            },
            3 => Kind::Calc { ns: size, cpu: cpu.into() },
            other => {
                return Err(format!(
                    "operation {place} is of kind {other}, expected 1 (send), 2 (receive) or 3 (calculation)"
                ));
            }
        };
        schedule.operations.push(Operation { rank, place, kind });
        for (offset, started) in [(23, false), (31, true)] {
            let list = part.u32(at + offset).zip(part.u32(at + offset + 4));
            let (waiting, start) = list.ok_or_else(cut)?;
            entries = entries.checked_sub(waiting as usize).ok_or_else(cut)?;
            for index in 0..waiting as usize {
                let of = part.u32(appendix + 4 * (start as usize + index)).ok_or_else(cut)?;
                if of >= count {
                    return Err(format!(
                        "operation {of} waits for operation {place}, expected 0 to {}",
                        count - 1
                    ));
                }
                schedule.waits.push(Wait { of: first + of, before: first + place, started });
            }
        }
    }
    Ok(())
}
