//! What calls cost, many times over, and what they leave in memory.

use std::time::{Duration, Instant};

use cuda_sys::{
    AccessDesc, AccessFlags, AllocationProp, AllocationType, CuResult, DevicePtr, LocationType, MemHandle,
    MemLocation, Stream,
};

use super::objects::Range;
use super::words::Words;
use super::{Answer, Session, Trouble};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "churn" => churn(session, words),
        "hoard" => hoard(session, words),
        "time-launches" => time_launches(session, words),
        "time-exchange" => time_exchange(words),
        "malloc-many" => malloc_many(session, words),
        "free-many" => free_many(session, words),
        _ => return None,
    })
}

const DEVICE: MemLocation = MemLocation { kind: LocationType::DEVICE, id: 0 };

/// `churn COUNT RANGE SIZE`: so often creates, maps, grants, unmaps and releases in a range. The answer is nanoseconds per
/// round, and KiB resident afterwards.
fn churn(session: &Session, words: &mut Words<'_>) -> Answer {
    let (count, range, size) = (words.size()?, session.objects.ranges.get(words.word()?)?, words.size()?);
    let spent = fastest(count, || Ok(turn_over(range, size)?), || Ok(()))?;
    Ok(format!("{spent} {}", resident_kib()?))
}

/// Nanoseconds of this thread for one `round` of `count`, in the fastest of many parts: a machine with other work to do is slow
/// now and then. `between` comes after every part and does not count.
fn fastest(
    count: usize,
    mut round: impl FnMut() -> Result<(), Trouble>,
    mut between: impl FnMut() -> Result<(), Trouble>,
) -> Result<u128, Trouble> {
    const PARTS: usize = 50;
    let rounds = (count / PARTS).max(1);
    let mut fastest = Duration::MAX;
    for _ in 0..PARTS {
        let begin = thread_time();
        (0..rounds).try_for_each(|_| round())?;
        fastest = fastest.min(thread_time().saturating_sub(begin));
        between()?;
    }
    Ok(fastest.as_nanos() / u128::try_from(rounds).unwrap_or(1))
}

/// How long this thread has run on a processor.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// One round of `churn`.
fn turn_over(range: Range, size: usize) -> CuResult {
    let prop = AllocationProp { kind: AllocationType::PINNED, location: DEVICE, ..AllocationProp::default() };
    let grant = AccessDesc { location: DEVICE, flags: AccessFlags::READ_WRITE };
    let mut handle = MemHandle::NONE;
    // SAFETY: a place for the handle, and properties that live through the call.
    unsafe { driver::cuMemCreate(&raw mut handle, size, &raw const prop, 0) }?;
    // SAFETY: a reserved range of this program.
    unsafe { driver::cuMemMap(range.address, size, 0, handle, 0) }?;
    // SAFETY: one descriptor that lives through the call.
    unsafe { driver::cuMemSetAccess(range.address, size, &raw const grant, 1) }?;
    // SAFETY: nothing uses the memory.
    unsafe { driver::cuMemUnmap(range.address, size) }?;
    // SAFETY: as above.
    unsafe { driver::cuMemRelease(handle) }
}

/// `hoard COUNT SIZE`: so many allocations, and a mapping of each, that stay.
fn hoard(session: &Session, words: &mut Words<'_>) -> Answer {
    let (count, size) = (words.size()?, words.size()?);
    for number in 0..count {
        let line = format!("hoard-{number} {size} device:0");
        if let Some(answer) = super::vmm::obey(session, "new", &mut Words::of(&line)) {
            answer?;
        }
    }
    Ok(String::new())
}

/// `time-launches COUNT`: nanoseconds per launch of a kernel that does nothing.
fn time_launches(session: &Session, words: &mut Words<'_>) -> Answer {
    let launch = || super::work::start(session, Stream::NULL, "spin", &mut [0]);
    // SAFETY: no demands.
    let drain = || Ok(unsafe { driver::cuCtxSynchronize() }?);
    Ok(fastest(words.size()?, launch, drain)?.to_string())
}

/// `time-exchange COUNT`: nanoseconds per call of the cheapest hooked function, one that only swaps a number.
fn time_exchange(words: &mut Words<'_>) -> Answer {
    let mut mode = 0;
    // SAFETY: a place that holds a mode.
    let exchange = || Ok(unsafe { driver::cuThreadExchangeStreamCaptureMode(&raw mut mode) }?);
    Ok(fastest(words.size()?, exchange, || Ok(()))?.to_string())
}

/// `malloc-many COUNT SIZE`: so many blocks of `cuMemAlloc`. The answer is nanoseconds per block.
fn malloc_many(session: &Session, words: &mut Words<'_>) -> Answer {
    let (count, size) = (words.size()?, words.size()?);
    let mut blocks = Vec::with_capacity(count);
    let begin = Instant::now();
    for _ in 0..count {
        let mut address = DevicePtr(0);
        // SAFETY: a place for the address.
        unsafe { driver::cuMemAlloc_v2(&raw mut address, size) }?;
        blocks.push(address);
    }
    let spent = begin.elapsed().as_nanos() / u128::try_from(count.max(1)).unwrap_or(1);
    for (number, address) in blocks.into_iter().enumerate() {
        session.objects.ranges.put(&format!("many-{number}"), Range { address, size });
    }
    Ok(spent.to_string())
}

/// `free-many COUNT`: gives the first so many of them back. The answer is nanoseconds per block.
fn free_many(session: &Session, words: &mut Words<'_>) -> Answer {
    let count = words.size()?;
    let blocks: Vec<Range> = (0..count)
        .map(|number| session.objects.ranges.get(&format!("many-{number}")))
        .collect::<Result<_, _>>()?;
    let begin = Instant::now();
    for block in blocks {
        // SAFETY: the program does not use it any more.
        unsafe { driver::cuMemFree_v2(block.address) }?;
    }
    Ok((begin.elapsed().as_nanos() / u128::try_from(count.max(1)).unwrap_or(1)).to_string())
}

fn resident_kib() -> Result<u64, Trouble> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok()).ok_or("no VmRSS".to_owned())?)
}
