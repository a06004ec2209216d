//! What calls cost, many times over: the first quarter of the calls against the last, and memory before and after.

use std::time::Instant;

use cuda_sys::{
    AccessDesc, AccessFlags, AllocationProp, AllocationType, DevicePtr, LocationType, MemHandle, MemLocation,
    Stream,
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
/// round in the first and in the last quarter, and KiB resident after the first and after the last.
fn churn(session: &Session, words: &mut Words<'_>) -> Answer {
    let (count, range, size) = (words.size()?, session.objects.ranges.get(words.word()?)?, words.size()?);
    let prop = AllocationProp { kind: AllocationType::PINNED, location: DEVICE, ..AllocationProp::default() };
    let grant = AccessDesc { location: DEVICE, flags: AccessFlags::READ_WRITE };
    let quarter = |rounds: usize| -> Result<(u128, u64), Trouble> {
        let begin = Instant::now();
        for _ in 0..rounds {
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
            unsafe { driver::cuMemRelease(handle) }?;
        }
        let per_round = begin.elapsed().as_nanos() / u128::try_from(rounds.max(1)).unwrap_or(1);
        Ok((per_round, resident_kib()?))
    };
    let (first, after_first) = quarter(count / 4)?;
    quarter(count / 2)?;
    let (last, after_last) = quarter(count / 4)?;
    Ok(format!("{first} {last} {after_first} {after_last}"))
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
    let count = words.size()?;
    let begin = Instant::now();
    for _ in 0..count {
        super::work::start(session, Stream::NULL, "spin", &mut [0])?;
    }
    let spent = begin.elapsed().as_nanos() / u128::try_from(count.max(1)).unwrap_or(1);
    // SAFETY: no demands.
    unsafe { driver::cuCtxSynchronize() }?;
    Ok(spent.to_string())
}

/// `time-exchange COUNT`: nanoseconds per call of the cheapest hooked function, one that only swaps a number.
fn time_exchange(words: &mut Words<'_>) -> Answer {
    let count = words.size()?;
    let mut mode = 0;
    let begin = Instant::now();
    for _ in 0..count {
        // SAFETY: a place that holds a mode.
        unsafe { driver::cuThreadExchangeStreamCaptureMode(&raw mut mode) }?;
    }
    Ok((begin.elapsed().as_nanos() / u128::try_from(count.max(1)).unwrap_or(1)).to_string())
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
