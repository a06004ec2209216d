//! What the threads of a process do, as the kernel tells, and the processes that hold them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::failure::fail;

/// How long something may take to come about.
const PATIENCE: Duration = Duration::from_secs(20);

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Its id.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// The kernel's letter for what it does: `t` in the hands of a tracer, `T` stopped by job control.
    pub state: char,
    /// Who traces it, or 0.
    pub tracer: i32,
    /// Whether it is on its way out, as it may still be when it was joined.
    pub is_ending: bool,
}

/// `PF_EXITING` of the kernel's flags of a thread.
const ENDING: u64 = 4;

impl Thread {
    /// All threads of a process.
    pub fn all(pid: i32) -> Result<Vec<Self>> {
        let mut threads = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            let Ok(status) = std::fs::read_to_string(task.join("status")) else { continue };
            let Ok(stat) = std::fs::read_to_string(task.join("stat")) else { continue };
            // Behind the name, which may have anything in it: state, four ids, the terminal's group, flags.
            let (_, behind) = stat.rsplit_once(')').context("a name")?;
            let flags: u64 = behind.split_whitespace().nth(6).context("flags")?.parse()?;
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.map(|rest| rest.trim_start_matches(':').trim()).with_context(|| format!("no {name}"))
            };
            threads.push(Self {
                tid: field("Pid")?.parse()?,
                name: field("Name")?.to_owned(),
                state: field("State")?.chars().next().context("a letter")?,
                tracer: field("TracerPid")?.parse()?,
                is_ending: flags & ENDING != 0,
            });
        }
        Ok(threads)
    }

    /// Whether it goes on while its process is frozen: the library's, and the driver's for the restore.
    pub fn is_spared(&self) -> bool {
        self.name.starts_with("nvsnap-") || self.name.starts_with("cuda")
    }

    /// Looks at the threads of a process until they are as wanted.
    pub fn all_until(pid: i32, wanted: impl Fn(&[Self]) -> bool) -> Result<Vec<Self>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let threads = Self::all(pid)?;
            if wanted(&threads) {
                return Ok(threads);
            }
            if Instant::now() > deadline {
                fail!("the threads of {pid} do not come to be as wanted: {threads:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The process that holds the threads of this one, if any.
pub fn holder_of(pid: i32) -> Result<Option<i32>> {
    let threads = Thread::all(pid)?;
    Ok(threads.iter().map(|thread| thread.tracer).find(|tracer| *tracer != 0))
}

/// Waits until a process is gone, or a zombie of somebody who does not care.
pub fn ends(pid: i32) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        if stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')) {
            return Ok(());
        }
        if Instant::now() > deadline {
            fail!("process {pid} does not end: {stat}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Sends a signal.
pub fn signal(pid: i32, signal: i32) -> Result<()> {
    let pid = rustix::process::Pid::from_raw(pid).context("a pid")?;
    // Any number is allowed here, and those used are those of the C library.
    let signal = rustix::process::Signal::from_named_raw(signal).context("a signal")?;
    rustix::process::kill_process(pid, signal)?;
    Ok(())
}
