//! Copies that are not what was saved: in the cache, in the store, in both, in memory, and on the device.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod depot;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use integration::Machine;

use depot::{Depot, chunks, filled, largest};

/// What may happen to files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    Flipped,
    Truncated,
    /// Each has the bytes of another one.
    Swapped,
}

const ALL: [Damage; 3] = [Damage::Flipped, Damage::Truncated, Damage::Swapped];

impl Damage {
    /// Does it to these files, and gives what they had.
    fn strike(self, files: &[PathBuf]) -> Result<Good> {
        let good: BTreeMap<PathBuf, Vec<u8>> =
            files.iter().map(|file| Ok((file.clone(), fs::read(file)?))).collect::<Result<_>>()?;
        let others = good.values().cycle().skip(1);
        for ((file, bytes), other) in good.iter().zip(others) {
            let mut bytes = bytes.clone();
            let (last, middle) = (bytes.len() - 1, bytes.len() / 2);
            match self {
                Self::Flipped => bytes[middle] ^= 0x10,
                Self::Truncated => bytes.truncate(last),
                Self::Swapped => bytes.clone_from(other),
            }
            fs::write(file, bytes)?;
        }
        Ok(Good(good))
    }
}

/// Files as they were.
struct Good(BTreeMap<PathBuf, Vec<u8>>);

impl Good {
    fn put_back(&self) -> Result<()> {
        self.0.iter().try_for_each(|(file, bytes)| Ok(fs::write(file, bytes)?))
    }
}

/// A depot that reads so many MiB ahead.
fn ahead(mib: &str) -> Result<Depot> {
    Depot::with(Machine::stand_in()?, |start| start.set("NVSNAP_GPUSHARE_STAGE", mib))
}

/// Suspended to a store and a cache, both of which have everything.
fn suspended(depot: &Depot) -> Result<()> {
    depot.look()?;
    let tool = depot.saving().option("--cache").argument(depot.cache());
    filled(&tool.verb("suspend", &depot.pids())?.done()?)
}

/// The files of a store or cache, in two halves: of every second chunk, and of the others.
fn halves(place: &Path) -> Result<[Vec<PathBuf>; 2]> {
    let mut halves = [Vec::new(), Vec::new()];
    for (number, file) in chunks(place)?.into_keys().enumerate() {
        halves[number % 2].push(file);
    }
    ensure!(!halves[1].is_empty(), "{} has too little", place.display());
    Ok(halves)
}

/// The two largest chunks of a store or cache, which exchanged differ in nothing but content.
fn alike(place: &Path) -> Result<Vec<PathBuf>> {
    let largest = largest(place)?.metadata()?.len();
    let chunks = chunks(place)?.into_iter().filter(|(_, (len, ..))| *len == largest);
    let alike: Vec<PathBuf> = chunks.map(|(file, _)| file).collect();
    ensure!(alike.len() == 2, "{alike:?}");
    Ok(alike)
}

/// What the workers have said since then, or at all.
fn logs(depot: &Depot, since: [usize; 2]) -> String {
    depot.workers.iter().zip(since).map(|(worker, since)| worker.log().split_off(since)).collect()
}

fn now(depot: &Depot) -> [usize; 2] {
    depot.workers.each_ref().map(|worker| worker.log().len())
}

#[test]
fn whatever_is_wrong_with_one_copy_the_other_one_is_used() -> Result<()> {
    for mib in ["0", "4096"] {
        let depot = ahead(mib)?;
        for damage in ALL {
            for (in_cache, in_store) in [(vec![0, 1], vec![]), (vec![], vec![0, 1]), (vec![0], vec![1])] {
                let context = format!("{mib} MiB ahead, {damage:?}, {in_cache:?} {in_store:?}");
                suspended(&depot)?;
                let (cached, stored) = (halves(&depot.cache())?, halves(&depot.store())?);
                let bad: Vec<PathBuf> =
                    in_cache.iter().flat_map(|half: &usize| cached[*half].clone()).collect();
                let unused: Vec<PathBuf> =
                    in_store.iter().flat_map(|half: &usize| stored[*half].clone()).collect();
                let good = [damage.strike(&bad)?, damage.strike(&unused)?];
                let before = now(&depot);
                depot.resume_from(None, Some(&depot.cache()))?.done().with_context(|| context.clone())?;
                depot.is_as_it_was().with_context(|| context.clone())?;
                let log = logs(&depot, before);
                let named = |file: &&PathBuf| log.contains(&*file.to_string_lossy());
                ensure!(bad.iter().filter(named).eq(&bad), "{context}: not all of {bad:?} are in {log}");
                ensure!(!unused.iter().any(|file| named(&file)), "{context}: the store was read: {log}");
                good.iter().try_for_each(Good::put_back)?;
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_wrong_everywhere_is_named_with_all_its_places_and_put_right_the_resume_works() -> Result<()> {
    for (mib, damage) in ["0", "4096"].into_iter().flat_map(|mib| ALL.map(|damage| (mib, damage))) {
        let depot = ahead(mib)?;
        suspended(&depot)?;
        let (cached, stored) = (alike(&depot.cache())?, alike(&depot.store())?);
        let (in_cache, in_store) = (damage.strike(&cached)?, damage.strike(&stored)?);
        for attempt in 1..=2 {
            let refused = depot.resume_from(None, Some(&depot.cache()))?.exits(3)?;
            let text = refused.text();
            let both =
                cached.iter().zip(&stored).find(|(cached, _)| text.contains(&*cached.to_string_lossy()));
            let (_, other) = both.with_context(|| format!("{damage:?}, {attempt}: {text}"))?;
            ensure!(text.contains(&*other.to_string_lossy()), "{damage:?}, {attempt}: {text}");
            ensure!(text.contains("cannot be had"), "{damage:?}, {attempt}: {text}");
            let status = depot.machine.status(depot.workers[0].pid())?;
            ensure!(status["phase"] == "released", "{status}");
        }
        let back = if mib == "0" { in_cache } else { in_store };
        back.put_back()?;
        depot.resume_from(None, Some(&depot.cache()))?.done().context("good chunks are back")?;
        depot.is_as_it_was()?;
    }
    Ok(())
}

#[test]
fn what_was_bad_when_it_was_staged_is_read_anew_by_the_load() -> Result<()> {
    // What has another length is not there, and said before anything is read.
    for damage in [Damage::Flipped, Damage::Swapped] {
        let depot = ahead("4096")?;
        suspended(&depot)?;
        let good: Vec<Good> = [depot.cache(), depot.store()]
            .iter()
            .map(|place| damage.strike(&alike(place)?))
            .collect::<Result<_>>()?;
        depot.stage(Some(&depot.cache()))?;
        let log = logs(&depot, [0; 2]);
        ensure!(log.contains("the load has to read again"), "{log}");
        // Only the store is good again.
        good[1].put_back()?;
        depot.resume_from(None, Some(&depot.cache()))?.done()?;
        depot.is_as_it_was()?;
    }
    Ok(())
}

#[test]
fn what_goes_bad_in_the_cache_after_the_stage_is_read_from_the_store() -> Result<()> {
    for damage in ALL {
        // Room for one of the large chunks.
        let depot = ahead("70")?;
        suspended(&depot)?;
        depot.stage(Some(&depot.cache()))?;
        let files = halves(&depot.cache())?.concat();
        damage.strike(&files)?;
        let before = now(&depot);
        depot.resume_from(None, Some(&depot.cache()))?.done()?;
        depot.is_as_it_was()?;
        let log = logs(&depot, before);
        let named = files.iter().filter(|file| log.contains(&*file.to_string_lossy())).count();
        ensure!(named > 0 && named < files.len(), "{named} of {} were read again: {log}", files.len());
    }
    Ok(())
}

/// Where a page of a process that belongs to no file has these bytes, at the start of a huge page.
fn find(pid: i32, bytes: &[u8]) -> Result<(fs::File, u64)> {
    let memory = fs::File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    let mut page = vec![0; bytes.len()];
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-').context("a range")?;
        let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
        if fields.len() > 5 || !fields[1].starts_with("rw") {
            continue;
        }
        for at in (start.next_multiple_of(2 << 20)..end).step_by(2 << 20) {
            if memory.read_exact_at(&mut page, at).is_ok() && page == bytes {
                return Ok((memory, at));
            }
        }
    }
    anyhow::bail!("process {pid} has nothing of it in memory")
}

#[test]
fn a_chunk_that_goes_bad_in_memory_after_it_was_staged_is_read_again() -> Result<()> {
    let depot = ahead("4096")?;
    depot.suspend()?.done()?;
    depot.stage(None)?;
    let bytes = fs::read(largest(&depot.store())?)?;
    let (memory, at) = find(depot.workers[0].pid(), &bytes[..4096])?;
    memory.write_all_at(&[bytes[4096] ^ 1], at + 4096)?;
    depot.resume()?.done()?;
    depot.is_as_it_was()?;
    let log = depot.workers[0].log();
    let name = largest(&depot.store())?.file_name().context("a name")?.to_string_lossy().into_owned();
    ensure!(log.contains("since it was staged; it is read again") && log.contains(&name), "{log}");
    Ok(())
}

/// How many copies to a device the first worker has begun.
fn copies(depot: &Depot) -> Result<usize> {
    let calls = depot.machine.calls(depot.workers[0].pid())?;
    Ok(calls.iter().filter(|call| call.name == "cuMemcpyHtoDAsync_v2").count())
}

#[test]
fn bytes_that_only_the_device_finds_wrong_are_copied_again_and_at_last_an_error() -> Result<()> {
    // Which copies a load makes, is told by a run without faults.
    let lossy = |faults: &str| {
        Depot::with(Machine::stand_in()?, |start| {
            start.set("NVSNAP_GPUSHARE_STAGE", "0").set("FAKECUDA_FAULTS", faults)
        })
    };
    let (first, last) = {
        let depot = lossy("")?;
        depot.suspend()?.done()?;
        let before = copies(&depot)?;
        depot.resume()?.done()?;
        (before + 1, copies(&depot)?)
    };
    ensure!(last >= first + 4, "only {first} to {last}");
    let mut again = 0;
    for nth in first..=last {
        let depot = lossy(&format!("cuMemcpyHtoDAsync_v2:{nth}:1=lost"))?;
        depot.suspend()?.done()?;
        depot.resume()?.done().with_context(|| format!("copy {nth} is lost"))?;
        depot.is_as_it_was().with_context(|| format!("copy {nth} is lost"))?;
        again += usize::from(logs(&depot, [0; 2]).contains("it is copied again") && copies(&depot)? > last);
    }
    // Those of nothing but zeros do not miss their copy.
    ensure!(again >= 5, "{again} of copies {first} to {last} were made again");
    // All of them, and again.
    let faults: Vec<String> =
        (first..=2 * last).map(|nth| format!("cuMemcpyHtoDAsync_v2:{nth}:1=lost")).collect();
    let depot = lossy(&faults.join(";"))?;
    depot.suspend()?.done()?;
    let refused = depot.resume()?.exits(3)?;
    let text = refused.text();
    ensure!(
        text.contains("was copied to device") && text.contains("the bytes there have the digest"),
        "{text}"
    );
    let digests = chunks(&depot.store())?;
    let named = digests.keys().filter_map(|file| file.file_name()?.to_str()).find(|name| text.contains(name));
    ensure!(named.is_some(), "it names no chunk: {text}");
    let status = depot.machine.status(depot.workers[0].pid())?;
    ensure!(status["phase"] == "released", "{status}");
    // Each attempt uses up some of the losses.
    for _ in 0..2 * last {
        if depot.resume()?.code == 0 {
            return depot.is_as_it_was();
        }
    }
    anyhow::bail!("no attempt worked")
}
