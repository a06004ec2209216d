//! Processes, shims and a driver made up for tests, with the driver's unforgiving rules.
//!
//! A [`World`] holds processes that share memory. It carries out what the command asks, keeps a list of the calls, and
//! notes a *violation* wherever something was asked that would do damage in a real process. One or more calls can be
//! made to fail.

mod driver;
mod hold;
mod process;
mod shim;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuda_sys::ProcessState;
use protocol::{Contents, Phase};

pub(crate) use process::Process;

use crate::check::Machine;
use crate::command::Context;
use crate::interrupt::{Interrupt, Signal};
use crate::pid::Pid;
use crate::proc::ProcFs;
use crate::report::Silent;
use crate::state::Run;

/// A call: of which process, what, and the how manieth of that kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Call {
    pub(crate) pid: i32,
    pub(crate) what: &'static str,
    pub(crate) nth: usize,
}

/// What a failing call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It fails and does nothing.
    Before,
    /// It does everything, and the answer is a failure all the same.
    After,
    /// The process dies of it.
    Dies,
}

/// Everything there is.
pub(crate) struct World {
    inner: Arc<Mutex<Inner>>,
    folder: tempfile::TempDir,
}

/// What is shared with the threads of the command.
#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) processes: BTreeMap<i32, Process>,
    pub(crate) calls: Vec<Call>,
    pub(crate) violations: Vec<String>,
    pub(crate) faults: Vec<(Call, Fault)>,
    pub(crate) free: u64,
    /// Shims that drop as soon as they are asked to save.
    pub(crate) all_at_once: bool,
    next_memory: u64,
    proc_root: std::path::PathBuf,
}

pub(crate) fn locked(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Notes a call, and says whether it is to fail.
    pub(crate) fn called(&mut self, pid: i32, what: &'static str) -> Option<Fault> {
        let before = self.calls.iter().filter(|call| call.pid == pid && call.what == what).count();
        let call = Call { pid, what, nth: before + 1 };
        let fault = self.faults.iter().find(|(at, _)| *at == call).map(|(_, fault)| *fault);
        self.calls.push(call);
        if fault == Some(Fault::Dies) {
            self.end(pid);
        }
        fault
    }

    /// Ends a process.
    pub(crate) fn end(&mut self, pid: i32) {
        self.processes.remove(&pid);
        let _ = std::fs::remove_dir_all(self.proc_root.join(pid.to_string()));
    }

    pub(crate) fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    /// A new piece of memory.
    pub(crate) fn new_memory(&mut self) -> u64 {
        self.next_memory += 1;
        self.next_memory
    }
}

impl World {
    /// A world with these processes, all running.
    pub(crate) fn of(processes: impl IntoIterator<Item = Process>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut inner = Inner { free: 1 << 40, proc_root: folder.path().join("proc"), ..Inner::default() };
        for process in processes {
            inner.processes.insert(process.pid, process);
        }
        // Importers see the memory of their exporters.
        let made: BTreeMap<_, _> = inner
            .processes
            .values()
            .flat_map(|process| &process.holdings)
            .filter(|holding| !holding.is_import())
            .map(|holding| (holding.id, holding.value))
            .collect();
        let mut memory_of = BTreeMap::new();
        for process in inner.processes.values_mut() {
            for holding in &mut process.holdings {
                holding.value = made.get(&holding.id).copied().unwrap_or(holding.value);
                let next = memory_of.len() as u64 + 1;
                holding.memory = Some(*memory_of.entry(holding.id).or_insert(next));
            }
        }
        inner.next_memory = memory_of.len() as u64;
        write_proc(folder.path(), &inner);
        Self { inner: Arc::new(Mutex::new(inner)), folder }
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        locked(&self.inner)
    }

    /// The pids of the living.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.inner().processes.keys().filter_map(|pid| Pid::new(*pid)).collect()
    }

    /// What the command works with.
    pub(crate) fn context(&self) -> Context {
        self.interrupted_by(|| None)
    }

    /// The same, with a source of signals.
    pub(crate) fn interrupted_by(&self, source: impl Fn() -> Option<Signal> + 'static) -> Context {
        let machine = Machine {
            proc: ProcFs::at(self.folder.path().join("proc")),
            driver: Ok(Arc::new(driver::Simulated(Arc::clone(&self.inner)))),
            shims: Arc::new(shim::Simulated(Arc::clone(&self.inner))),
        };
        Context {
            machine,
            reporter: Arc::new(Silent),
            interrupt: Rc::new(Interrupt::from_source(source)),
            hold: Rc::new(hold::Simulated(Arc::clone(&self.inner))),
            freezes: true,
            run: Run::fresh().unwrap(),
            rescues: false,
            state_dir: Some(self.folder.path().join("state")),
        }
    }

    /// Where the kernel's word on a process lies.
    pub(crate) fn proc_of(&self, pid: i32) -> std::path::PathBuf {
        self.folder.path().join("proc").join(pid.to_string())
    }

    /// The records that are in the state directory.
    pub(crate) fn records(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("state")) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.ends_with(".json")).collect()
    }

    /// Makes a call fail from now on counted.
    pub(crate) fn fail(&self, call: Call, fault: Fault) {
        self.inner().faults.push((call, fault));
    }

    /// Everything that is not as it was in the beginning, and everything forbidden that was asked.
    pub(crate) fn damage(&self) -> Vec<String> {
        let inner = self.inner();
        let mut damage = inner.violations.clone();
        let mut shared: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for process in inner.processes.values() {
            let pid = process.pid;
            if process.phase != Phase::Running || process.gates_closed {
                damage.push(format!("{pid} is {:?}, gates closed: {}", process.phase, process.gates_closed));
            }
            if process.frozen {
                damage.push(format!("the threads of {pid} are frozen"));
            }
            if process.state != ProcessState::RUNNING {
                damage.push(format!("the driver has {pid} in state {:?}", process.state));
            }
            for holding in &process.holdings {
                if holding.contents != Contents::Live {
                    damage.push(format!("{} of {pid} is {:?}", holding.id, holding.contents));
                }
                shared.entry(holding.id).or_default().push((pid, holding.memory, holding.value));
            }
        }
        for (id, views) in shared {
            let first = views.first().map(|(_, memory, value)| (*memory, *value));
            if views.iter().any(|(_, memory, value)| Some((*memory, *value)) != first) {
                damage.push(format!("{id} is no longer one memory: {views:?}"));
            }
        }
        damage
    }

    /// Everything that is not as it should be while suspended.
    pub(crate) fn not_suspended(&self) -> Vec<String> {
        let inner = self.inner();
        let mut wrong = inner.violations.clone();
        for process in inner.processes.values() {
            if process.state != ProcessState::CHECKPOINTED || process.phase != Phase::Released {
                wrong.push(format!("{} is {:?} and {:?}", process.pid, process.phase, process.state));
            }
            if !process.frozen {
                wrong.push(format!("the threads of {} run", process.pid));
            }
        }
        wrong
    }
}

/// Writes what the kernel would tell.
fn write_proc(folder: &Path, inner: &Inner) {
    let root = folder.join("proc");
    let mut sockets = String::from("Num RefCount Protocol Flags Type St Inode Path\n");
    for pid in inner.processes.keys() {
        let process = root.join(pid.to_string());
        std::fs::create_dir_all(process.join("fd")).unwrap();
        let zeros = ["0"; 17].join(" ");
        std::fs::write(process.join("stat"), format!("{pid} (worker) S 1 {zeros} 5000 0\n")).unwrap();
        let maps =
            "7f0-7f1 r-xp 0 08:01 1 /usr/lib/libcuda.so.1\n7f2-7f3 r-xp 0 08:01 2 /l/libnvsnap_gpushare.so\n";
        std::fs::write(process.join("maps"), maps).unwrap();
        sockets.push_str(&format!("0: 2 0 00010000 0001 01 1 @nvsnap-gpushare.{pid}\n"));
    }
    std::fs::create_dir_all(root.join("net")).unwrap();
    std::fs::write(root.join("net/unix"), sockets).unwrap();
    std::fs::create_dir_all(root.join("sys/kernel/random")).unwrap();
    std::fs::write(root.join("sys/kernel/random/boot_id"), "a-boot\n").unwrap();
    std::fs::write(root.join("meminfo"), "MemAvailable: 1000000 kB\n").unwrap();
}
