//! What `check` and `suspend` say of a process that they refuse, and that they leave it alone.

use anyhow::{Result, ensure};

use crate::machine::Machine;
use crate::target::Target;

/// The exit status of a verb that touches nothing because something is in the way.
const REFUSED: i32 = 4;

/// What is in the way of a suspend.
#[derive(Clone, Copy, Debug)]
pub struct InTheWay<'a> {
    /// Its kind, by the name that a `--json` run has for it.
    pub kind: &'a str,
    /// How many there are.
    pub count: u32,
    /// How the name of one of them begins.
    pub object: &'a str,
    /// What the message says of them besides.
    pub message: &'a [&'a str],
    /// What the remedy says.
    pub remedy: &'a [&'a str],
}

impl InTheWay<'_> {
    /// Insists that `check` and `suspend` refuse a process for this and for nothing else, and that it runs on, its memory
    /// `memory` (name and size) with the same bytes and writable.
    pub fn of(&self, machine: &Machine, target: &Target, (memory, size): (&str, &str)) -> Result<()> {
        let sum = || target.ok(&format!("sum {memory} 0 {size}"));
        let before = sum()?;
        for verb in ["check", "suspend"] {
            self.refuses(machine, target.pid(), verb)?;
        }
        let status = machine.status(target.pid())?;
        ensure!(status.get("phase").is_some_and(|phase| phase == "running"), "{status}");
        for amount in [1, u32::MAX] {
            target.ok(&format!("add {memory} 0 {size} {amount}"))?;
        }
        ensure!(sum()? == before, "the bytes of {memory} changed");
        Ok(())
    }

    fn refuses(&self, machine: &Machine, pid: i32, verb: &str) -> Result<()> {
        let outcome = machine.tool().option("--json").verb(verb, &[pid])?.exits(REFUSED)?;
        let events = outcome.events()?;
        let blockers: Vec<_> = events.iter().filter(|event| event["severity"] == "blocker").collect();
        let [blocker] = blockers.as_slice() else { anyhow::bail!("{verb}, {self:?}: {blockers:?}") };
        let says = |field: &str| blocker[field].as_str().unwrap_or_default();
        ensure!(says("kind") == self.kind && blocker["pid"] == pid, "{verb}, {self:?}: {blocker}");
        let (message, object, remedy) = (says("message"), says("object"), says("remedy"));
        let begin = format!("process {pid} holds {} ", self.count);
        ensure!(message.starts_with(&begin), "{verb}, {self:?}: {blocker}");
        ensure!(self.message.iter().all(|said| message.contains(said)), "{verb}, {self:?}: {blocker}");
        ensure!(self.remedy.iter().all(|said| remedy.contains(said)), "{verb}, {self:?}: {blocker}");
        ensure!(!object.is_empty() && object.starts_with(self.object), "{verb}, {self:?}: {blocker}");
        ensure!(message.contains(object), "{verb}, {self:?}: {blocker}");
        let asked = machine.calls(outcome.pid)?;
        ensure!(!asked.iter().any(|call| call.name == "cuCheckpointProcessLock"), "{verb} locked it");
        Ok(())
    }
}
