//! `/proc/<pid>/task`: the threads of a process.

use super::{ProcError, ProcFs, RunState, explain, stat};
use crate::pid::Pid;

/// Flags of the ninth field of `stat`: threads that the kernel made (`include/linux/sched.h`). They run nothing of the
/// program, and the kernel does not let them be traced.
const PF_IO_WORKER: u32 = 0x10;
const PF_KTHREAD: u32 = 0x0020_0000;

/// What a thread does, as far as it concerns who wants to stop it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskState {
    /// It is no more, or about to be.
    Ended,
    /// It is in a system call that only a deadly signal interrupts.
    Uninterruptible,
    /// It is stopped by job control.
    Stopped,
    /// Anything else.
    Other,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: TaskState,
    /// The same as the kernel's letter.
    pub letter: char,
    /// Whether it is one of the kernel's own, made on behalf of the process.
    pub is_kernels: bool,
}

impl Task {
    /// Parses `stat`.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, tail) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        let mut fields = tail.split_ascii_whitespace();
        let letter = fields.next()?.chars().next()?;
        let flags: u32 = fields.nth(5)?.parse().ok()?;
        let state = match letter {
            'Z' | 'X' | 'x' => TaskState::Ended,
            'D' => TaskState::Uninterruptible,
            'T' => TaskState::Stopped,
            _ => TaskState::Other,
        };
        Some(Self {
            name: name.to_owned(),
            state,
            letter,
            is_kernels: flags & (PF_IO_WORKER | PF_KTHREAD) != 0,
        })
    }
}

impl ProcFs {
    /// The ids of the threads of a process.
    pub fn threads(&self, pid: Pid) -> Result<Vec<i32>, ProcError> {
        let folder = self.pid_path(pid, "task");
        let entries = std::fs::read_dir(&folder).map_err(|error| explain(pid, folder, error))?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// A thread of a process; `None` where it is gone.
    pub fn task(&self, pid: Pid, tid: i32) -> Option<Task> {
        let path = self.pid_path(pid, &format!("task/{tid}/stat"));
        Task::parse(&std::fs::read(path).ok()?)
    }

    /// Whether a process is stopped by job control, also where a tracer holds its first thread.
    pub fn is_stopped(&self, pid: Pid, state: RunState) -> bool {
        let stopped = |tid| self.task(pid, tid).is_some_and(|task| task.state == TaskState::Stopped);
        match state {
            RunState::Stopped => true,
            RunState::Traced => self.threads(pid).unwrap_or_default().into_iter().any(stopped),
            RunState::Alive | RunState::Zombie => false,
        }
    }

    /// Whether this command could trace a process: opening its memory is asked for the same right, and does nothing to it.
    /// A process of which there is no such file is not refused by this.
    pub fn may_trace(&self, pid: Pid) -> bool {
        let opened = std::fs::File::open(self.pid_path(pid, "mem"));
        !opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    }

    /// The process that traces a thread. The kernel names a thread of it.
    pub fn tracer(&self, pid: Pid, tid: i32) -> Option<i32> {
        let status = std::fs::read(self.pid_path(pid, &format!("task/{tid}/status"))).ok()?;
        let thread = Pid::new(stat::number(&status, "TracerPid")?)?;
        let process = self.read(thread, "status").ok().and_then(|status| stat::number(&status, "Tgid"));
        Some(process.unwrap_or(thread.number()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_told_by_its_line() {
        let line = |letter: char, flags: u32| {
            format!("7 (a) b) {letter} 1 7 7 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 5 0\n")
        };
        let task = Task::parse(line('D', 0x40_0040).as_bytes()).unwrap();
        assert_eq!(
            (task.name.as_str(), task.state, task.is_kernels),
            ("a) b", TaskState::Uninterruptible, false)
        );
        assert_eq!(Task::parse(line('Z', 0).as_bytes()).unwrap().state, TaskState::Ended);
        assert_eq!(Task::parse(line('t', 0).as_bytes()).unwrap().state, TaskState::Other);
        assert!(Task::parse(line('S', PF_IO_WORKER).as_bytes()).unwrap().is_kernels);
        assert_eq!(Task::parse(b"7 (a) S 1"), None);
    }

    #[test]
    fn this_thread_is_found_and_nobody_traces_it() {
        let proc = ProcFs::default();
        let me = Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap();
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(proc.threads(me).unwrap().contains(&tid));
        assert!(proc.task(me, tid).is_some());
        assert_eq!(proc.tracer(me, tid), None);
    }
}
