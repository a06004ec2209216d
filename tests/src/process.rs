//! What the kernel says about a process: descriptors, mappings, threads, memory. Two snapshots are compared to see that
//! nothing was left behind.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// What a process holds at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Open descriptors: number and what is behind it.
    pub descriptors: BTreeMap<i32, String>,
    /// How many mappings there are per file or kind.
    pub mappings: BTreeMap<String, usize>,
    /// Names of the threads, sorted.
    pub threads: Vec<String>,
    /// Resident memory in KiB, mappings of files and shared memory included.
    pub resident_kib: u64,
}

impl Snapshot {
    /// Takes a snapshot of a process.
    pub fn of(pid: i32) -> Result<Self> {
        let proc = format!("/proc/{pid}");
        let mut descriptors = BTreeMap::new();
        for entry in std::fs::read_dir(format!("{proc}/fd")).with_context(|| proc.clone())? {
            let entry = entry?;
            let number = entry.file_name().to_string_lossy().parse().context("a descriptor's number")?;
            // One that was closed meanwhile is none.
            if let Ok(behind) = std::fs::read_link(entry.path()) {
                descriptors.insert(number, behind.to_string_lossy().into_owned());
            }
        }
        let mut mappings = BTreeMap::new();
        for line in std::fs::read_to_string(format!("{proc}/maps"))?.lines() {
            let name = line.split_whitespace().nth(5).unwrap_or("anonymous");
            *mappings.entry(name.to_owned()).or_insert(0) += 1;
        }
        let mut threads = Vec::new();
        for entry in std::fs::read_dir(format!("{proc}/task"))? {
            if let Ok(name) = std::fs::read_to_string(entry?.path().join("comm")) {
                threads.push(name.trim().to_owned());
            }
        }
        threads.sort();
        let status = std::fs::read_to_string(format!("{proc}/status"))?;
        let resident_kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
            .context("no VmRSS")?;
        Ok(Self { descriptors, mappings, threads, resident_kib })
    }

    /// How many descriptors there are per file, or per kind of what has no name: `socket:[12]` is another each time.
    fn kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for behind in self.descriptors.values() {
            let kind = behind.split(":[").next().unwrap_or_default();
            *kinds.entry(kind.to_owned()).or_insert(0) += 1;
        }
        kinds
    }

    /// What `later` holds that this snapshot does not, as sentences; empty when nothing was left behind.
    /// Resident memory may differ by `slack_kib`.
    pub fn left_behind(&self, later: &Self, slack_kib: u64) -> Vec<String> {
        let mut found = Vec::new();
        let tables =
            [("descriptors", &self.kinds(), &later.kinds()), ("mappings", &self.mappings, &later.mappings)];
        for (what, earlier, later) in tables {
            for (name, count) in later {
                let before = earlier.get(name).copied().unwrap_or(0);
                if *count > before {
                    found.push(format!("{count} {what} of {name}, were {before}"));
                }
            }
        }
        let count = |threads: &[String], name: &String| threads.iter().filter(|other| *other == name).count();
        let more = |name: &&String| count(&later.threads, name) > count(&self.threads, name);
        if later.threads.iter().any(|name| more(&name)) {
            found.push(format!("threads {:?}, were {:?}", later.threads, self.threads));
        }
        if later.resident_kib > self.resident_kib + slack_kib {
            found.push(format!("{} KiB resident, were {}", later.resident_kib, self.resident_kib));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Snapshot;

    #[test]
    fn an_open_descriptor_and_a_thread_are_found() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let before = Snapshot::of(own).expect("a snapshot");
        assert!(before.left_behind(&before, 0).is_empty());
        let file = std::fs::File::open("/dev/zero").expect("a file");
        let (wait, go) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("left-behind".into()).spawn(move || go.recv());
        let after = Snapshot::of(own).expect("a snapshot");
        drop((file, wait));
        thread.expect("a thread").join().expect("it ends").expect_err("nothing was sent");
        let found = before.left_behind(&after, 1 << 20).join("\n");
        assert!(found.contains("/dev/zero") && found.contains("threads"), "{found}");
    }
}
