//! A disk that is full, and one that may only be read: real file systems, mounted for the test. Where the user may not
//! mount, nothing is shown here; `store_faults.rs` has the same by order.

mod depot;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use depot::{Depot, chunks};

/// A file system in memory, gone with this value.
struct Disk(PathBuf);

impl Disk {
    /// `None` where this user may not mount.
    fn new(at: &Path, size: &str) -> Result<Option<Self>> {
        std::fs::create_dir_all(at)?;
        let mounted = mount(&["-t", "tmpfs", "-o", size, "tmpfs"], at)?;
        Ok(mounted.then(|| Self(at.to_owned())))
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

#[test]
fn a_full_disk_undoes_the_suspend_and_a_read_only_one_is_enough_for_the_resume() -> Result<()> {
    let depot = Depot::new()?;
    let Some(disk) = Disk::new(&depot.store(), "size=100m")? else {
        println!("not shown: this user may not mount");
        return Ok(());
    };
    let full = depot.suspend()?.exits(1)?;
    let text = full.text();
    ensure!(text.contains("No space left") && text.contains("the störe"), "{text}");
    ensure!(text.contains("undone"), "{text}");
    ensure!(!depot.list().exists(), "a checkpoint that was not made has a list");
    depot.is_as_it_was()?;
    let left: Vec<PathBuf> = chunks(&depot.store())?.into_keys().collect();
    let temporary = |path: &&PathBuf| path.to_string_lossy().contains(".tmp-");
    ensure!(!left.iter().any(|path| temporary(&path)), "left over: {left:?}");

    disk.remount("size=400m")?;
    depot.suspend()?.done()?;
    disk.remount("ro")?;
    depot.resume()?.done()?;
    depot.is_as_it_was()?;
    // And to save there is refused, before anything is touched.
    let refused = depot.suspend()?.exits(4)?;
    ensure!(refused.text().contains("Read-only"), "{}", refused.text());
    depot.is_as_it_was()
}
