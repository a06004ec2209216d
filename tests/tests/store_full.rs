//! A disk that is full, and one that may only be read: real file systems, mounted for the test. Where the user may not
//! mount, nothing is shown here; `store_faults.rs` has the same by order.
#![allow(clippy::indexing_slicing, reason = "a test that cannot go on fails, and says where")]

mod depot;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use integration::Outcome;

use depot::{Depot, chunks, filled};

/// A file system in memory, gone with this value.
struct Disk(PathBuf);

impl Disk {
    /// `None` where this user may not mount.
    fn new(at: &Path, size: &str) -> Result<Option<Self>> {
        std::fs::create_dir_all(at)?;
        let mounted = mount(&["-t", "tmpfs", "-o", size, "tmpfs"], at)?;
        Ok(mounted.then(|| Self(at.to_owned())))
    }

    /// A file system with quotas, in a file, and `limit` for what this folder may hold. `None` where this user may not
    /// mount, or does not have what makes such a one.
    fn with_quota(at: &Path, image: &Path, limit: &str) -> Result<Option<Self>> {
        std::fs::create_dir_all(at)?;
        std::fs::File::create(image)?.set_len(1 << 30)?;
        let made = Command::new("mkfs.btrfs").arg("-q").arg(image).output();
        if !made.is_ok_and(|output| output.status.success()) {
            return Ok(None);
        }
        let image = image.to_str().context("a name in UTF-8")?;
        if !mount(&["-o", "loop", image], at)? {
            return Ok(None);
        }
        let disk = Self(at.to_owned());
        quota(&["quota", "enable"], at)?;
        quota(&["qgroup", "limit", limit], at)?;
        Ok(Some(disk))
    }

    fn remount(&self, how: &str) -> Result<()> {
        ensure!(mount(&["-o", &format!("remount,{how}")], &self.0)?, "cannot remount with {how}");
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a worker that the test has not ended may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> Result<bool> {
    let output = Command::new("mount").args(arguments).arg(at).output().context("mount")?;
    Ok(output.status.success())
}

fn quota(arguments: &[&str], at: &Path) -> Result<()> {
    let output = Command::new("btrfs").args(arguments).arg(at).output().context("btrfs")?;
    ensure!(output.status.success(), "btrfs {arguments:?}: {output:?}");
    Ok(())
}

/// What was said about the room on disks.
fn warned(outcome: &Outcome) -> Result<String> {
    let findings = outcome.events()?.into_iter().filter(|event| event["kind"] == "disk-space");
    Ok(findings.map(|finding| finding["message"].as_str().unwrap_or_default().to_owned()).collect())
}

/// Fills a disk up, to the last page.
fn fill_up(disk: &Disk) -> Result<()> {
    let mut file = std::fs::File::create(disk.0.join("ballast"))?;
    loop {
        match file.write_all(&[1; 4096]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[test]
fn no_room_for_what_is_certain_is_refused_before_anything_is_touched() -> Result<()> {
    let depot = Depot::new()?;
    let Some(disk) = Disk::new(&depot.ckpt_dir(), "size=1m")? else {
        println!("not shown: this user may not mount");
        return Ok(());
    };
    fill_up(&disk)?;
    for verb in ["check", "suspend"] {
        let refused = depot.saving().verb(verb, &depot.pids())?.exits(4)?;
        let said = warned(&refused)?;
        ensure!(
            said.contains("of today") && said.contains("at least 8.0 KiB") && said.contains("0 B"),
            "{said}"
        );
        depot.is_as_it_was()?;
    }
    // Room, and no file may be made: what a quota does.
    disk.remount("size=10m,nr_inodes=2")?;
    std::fs::remove_file(disk.0.join("ballast"))?;
    std::fs::create_dir(disk.0.join("the only one"))?;
    let full = depot.suspend()?.exits(1)?;
    ensure!(full.text().contains("of today") && full.text().contains("undone"), "{}", full.text());
    depot.is_as_it_was()?;
    disk.remount("size=10m,nr_inodes=100")?;
    depot.suspend()?.done()?;
    depot.resume()?.done()?;
    depot.is_as_it_was()
}

#[test]
fn a_store_where_no_file_may_be_made_is_refused_before_anything_is_touched() -> Result<()> {
    let depot = Depot::new()?;
    let Some(disk) = Disk::new(&depot.store(), "size=10m,nr_inodes=1")? else {
        println!("not shown: this user may not mount");
        return Ok(());
    };
    let refused = depot.suspend()?.exits(4)?;
    ensure!(
        refused.text().contains("the störe") && refused.text().contains("No space"),
        "{}",
        refused.text()
    );
    depot.is_as_it_was()?;
    disk.remount("size=400m,nr_inodes=1000")?;
    depot.suspend()?.done()?;
    depot.resume()?.done()?;
    depot.is_as_it_was()
}

#[test]
fn a_cache_without_room_is_worth_a_warning_and_gets_what_fits() -> Result<()> {
    let depot = Depot::new()?;
    let Some(_disk) = Disk::new(&depot.cache(), "size=100m")? else {
        println!("not shown: this user may not mount");
        return Ok(());
    };
    let saving = || depot.saving().option("--cache").argument(depot.cache());
    let check = saving().verb("check", &depot.pids())?.done()?;
    ensure!(
        warned(&check)?.contains("缓存") && check.text().contains("the cache gets what fits"),
        "{}",
        check.text()
    );
    let saved = saving().verb("suspend", &depot.pids())?.done()?;
    ensure!(warned(&saved)?.contains("缓存"), "{}", saved.text());
    filled(&saved)?;
    let cached: u64 = chunks(&depot.cache())?.values().map(|(len, ..)| len).sum();
    ensure!(cached > 0 && cached < 100 << 20, "{cached} bytes are in the cache");
    depot.resume_from(None, Some(&depot.cache()))?.done()?;
    depot.is_as_it_was()
}

#[test]
fn a_full_disk_undoes_the_suspend_and_a_read_only_one_is_enough_for_the_resume() -> Result<()> {
    let depot = Depot::new()?;
    let Some(disk) = Disk::new(&depot.store(), "size=100m")? else {
        println!("not shown: this user may not mount");
        return Ok(());
    };
    let check = depot.saving().verb("check", &depot.pids())?.done()?;
    ensure!(
        warned(&check)?.contains("the störe") && warned(&check)?.contains("100.0 MiB"),
        "{}",
        check.text()
    );
    let full = depot.suspend()?.exits(1)?;
    // The store that was made has a few pages.
    ensure!(warned(&full)?.contains("the störe") && warned(&full)?.contains("99.9 MiB"), "{}", full.text());
    let text = full.text();
    ensure!(text.contains("No space left") && text.contains("the störe"), "{text}");
    ensure!(text.contains("undone"), "{text}");
    ensure!(!depot.list().exists(), "a checkpoint that was not made has a list");
    depot.is_as_it_was()?;
    let left: Vec<PathBuf> = chunks(&depot.store())?.into_keys().collect();
    let temporary = |path: &&PathBuf| path.to_string_lossy().contains(".tmp-");
    ensure!(!left.iter().any(|path| temporary(&path)), "left over: {left:?}");

    disk.remount("size=400m")?;
    let fits = depot.suspend()?.done()?;
    ensure!(warned(&fits)?.is_empty(), "{}", fits.text());
    disk.remount("ro")?;
    depot.resume()?.done()?;
    depot.is_as_it_was()?;
    // And to save there is refused, before anything is touched.
    let refused = depot.suspend()?.exits(4)?;
    ensure!(refused.text().contains("Read-only"), "{}", refused.text());
    depot.is_as_it_was()
}

/// What the file system has free is no sign: the quota is met in the middle of the save.
#[test]
fn a_quota_that_is_used_up_undoes_the_suspend_and_a_larger_one_is_enough() -> Result<()> {
    let depot = Depot::new()?;
    let Some(disk) = Disk::with_quota(&depot.store(), &depot.machine.path("image"), "100M")? else {
        println!("not shown: there is no file system with quotas here");
        return Ok(());
    };
    let full = depot.suspend()?.exits(1)?;
    ensure!(warned(&full)?.is_empty(), "{}", full.text());
    let text = full.text();
    ensure!(text.contains("quota exceeded") && text.contains("the störe"), "{text}");
    ensure!(text.contains("no room for") && text.contains("undone"), "{text}");
    ensure!(!depot.list().exists(), "a checkpoint that was not made has a list");
    depot.is_as_it_was()?;
    let left: Vec<PathBuf> = chunks(&depot.store())?.into_keys().collect();
    ensure!(
        !left.is_empty() && !left.iter().any(|path| path.to_string_lossy().contains(".tmp-")),
        "{left:?}"
    );
    let verify = depot.machine.tool().option("--json").option("store-verify").argument(depot.store());
    let summary = verify.run()?.done()?.events()?.pop().context("a summary")?;
    ensure!(summary["counts"]["bad"] == 0, "{summary}");

    quota(&["qgroup", "limit", "400M"], &disk.0)?;
    depot.look()?;
    depot.suspend()?.done()?;
    depot.resume()?.done()?;
    depot.is_as_it_was()
}
