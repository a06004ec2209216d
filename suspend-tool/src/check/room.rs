//! Whether the disks have room for what is going to be written.
//!
//! How much that is turns out when the memory is hashed, which is when the processes have come to rest: zeros are not
//! written, nor what is there already. Before, there are two bounds. Less room than at least needed is in the way, less
//! than at most needed is worth knowing.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Finding;
use crate::report::bytes;

/// What its findings are called.
const KIND: &str = "disk-space";
/// What a file takes at least.
const BLOCK: u64 = 4096;

/// What is going to be written somewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// Below which directory. It need not be there yet.
    pub path: PathBuf,
    /// Bytes, at least.
    pub least: u64,
    /// Bytes, at most.
    pub most: u64,
    /// Whether a suspend fails without them.
    pub is_vital: bool,
}

/// What a file of so many bytes takes.
pub fn on_disk(len: u64) -> u64 {
    len.max(1).next_multiple_of(BLOCK)
}

/// A file system, and what is going to be written there.
#[derive(Debug)]
struct Volume {
    device: u64,
    free: u64,
    needs: Vec<Need>,
}

/// What does not fit, or may not.
pub fn room(needs: Vec<Need>) -> Vec<Finding> {
    let mut volumes: Vec<Volume> = Vec::new();
    for need in needs {
        // Whoever cannot look there is going to be told when it is opened.
        let Some((device, free)) = look(&need.path) else { continue };
        match volumes.iter_mut().find(|volume| volume.device == device) {
            Some(volume) => volume.needs.push(need),
            None => volumes.push(Volume { device, free, needs: vec![need] }),
        }
    }
    volumes.iter().filter_map(judge).collect()
}

/// The file system that a directory is in or is going to be in, and the bytes that are free there for this user.
fn look(path: &Path) -> Option<(u64, u64)> {
    let there = path.ancestors().find(|path| path.exists())?;
    let device = std::fs::metadata(there).ok()?.dev();
    let volume = rustix::fs::statvfs(there).ok()?;
    Some((device, volume.f_bavail.saturating_mul(volume.f_frsize)))
}

fn judge(volume: &Volume) -> Option<Finding> {
    let sum = |bound: fn(&Need) -> u64| volume.needs.iter().map(bound).fold(0, u64::saturating_add);
    let vital = |bound: fn(&Need) -> u64| {
        volume.needs.iter().filter(|need| need.is_vital).map(bound).fold(0, u64::saturating_add)
    };
    let least = vital(|need| need.least);
    let most = sum(|need| need.most);
    let places: Vec<String> = volume.needs.iter().map(|need| need.path.display().to_string()).collect();
    let (places, free) = (places.join(" and "), bytes(volume.free));
    if least > volume.free {
        let message =
            format!("at least {} have to be written to {places}, and {free} are free there", bytes(least));
        return Some(
            Finding::blocker(KIND, message, "free space there, or give another directory").on(places),
        );
    }
    if most <= volume.free {
        return None;
    }
    let message = format!(
        "up to {} may have to be written to {places}, and {free} are free there; what is zero or there already takes \
         no room",
        bytes(most)
    );
    let remedy = if vital(|need| need.most) > volume.free {
        "free space there, or give another directory; if the disk turns out to be too small, everything is undone"
    } else {
        "the suspend does not fail for that: the cache gets what fits"
    };
    Some(Finding::warning(KIND, message, remedy).on(places))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(path: &str, least: u64, most: u64, is_vital: bool) -> Need {
        Need { path: path.into(), least, most, is_vital }
    }

    fn told(free: u64, needs: &[Need]) -> Option<(bool, String)> {
        let found = judge(&Volume { device: 1, free, needs: needs.to_vec() })?;
        Some((found.blocks(), format!("{} | {}", found.message, found.remedy)))
    }

    #[test]
    fn what_has_to_fit_and_does_not_is_in_the_way() {
        let needs = [need("/s", 4096, 1 << 30, true), need("/c", 8192, 8192, true)];
        let (blocks, text) = told(10_000, &needs).unwrap();
        assert!(blocks && text.contains("12.0 KiB") && text.contains("9.7 KiB"), "{text}");
        assert!(text.contains("/s and /c"), "{text}");
    }

    #[test]
    fn what_may_not_fit_is_worth_knowing() {
        let needs = [need("/s", 0, 600, true), need("/k", 0, 600, false)];
        assert_eq!(told(1200, &needs), None);
        let (blocks, text) = told(1199, &needs).unwrap();
        assert!(
            !blocks && text.contains("up to 1.1 KiB") && text.contains("the cache gets what fits"),
            "{text}"
        );
        let (blocks, text) = told(599, &needs).unwrap();
        assert!(!blocks && text.contains("everything is undone"), "{text}");
        // A cache is never in the way.
        assert!(!told(0, &[need("/k", 1, 1, false)]).unwrap().0);
    }

    #[test]
    fn directories_of_one_disk_share_its_room_and_need_not_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let below = |name: &str| Need { path: folder.path().join(name), least: 0, most: 0, is_vital: true };
        let half = u64::MAX / 2;
        let needs = vec![Need { most: half, ..below("a") }, Need { most: half, ..below("b/c") }];
        let found = room(needs);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("a and ") && found[0].message.contains("b/c"), "{}", found[0]);
        assert_eq!(room(vec![below("a")]), []);
    }
}
