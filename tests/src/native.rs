//! What the driver does to processes that share memory when nothing stands in between: the reason for this project.
//!
//! Played on the stand-in, and on a GPU to see that the stand-in is right.

use anyhow::{Result, ensure};

use crate::machine::{Driver, Machine};
use crate::target::Target;

/// A habit of the driver: a name, what shows it, and whether it may be tried on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Habit {
    /// Its name, as a sentence.
    pub name: &'static str,
    /// Shows it, or fails.
    pub show: fn(Driver) -> Result<()>,
    /// Managed memory can hang a GPU and is left out there.
    pub on_gpu: bool,
}

macro_rules! habits {
    ($($name:ident: $on_gpu:literal;)+) => {
        /// All habits.
        pub const HABITS: &[Habit] =
            &[$(Habit { name: stringify!($name), show: $name, on_gpu: $on_gpu },)+];

        /// Hands the name of every habit to a macro of the caller.
        #[macro_export]
        macro_rules! for_each_habit {
            ($then:path) => {
                $then! { $($name)+ }
            };
        }
    };
}

habits! {
    memory_of_its_own_comes_back: true;
    an_imported_mapping_makes_the_restore_fail_for_good: true;
    an_open_ipc_handle_makes_the_restore_fail_for_good: true;
    an_imported_pool_makes_the_restore_fail_for_good: true;
    an_allocation_of_an_imported_pool_makes_the_restore_fail_for_good: false;
    host_memory_of_the_family_makes_the_restore_fail_for_good: true;
    managed_memory_makes_the_checkpoint_fail_and_nothing_is_lost: false;
    an_import_given_back_before_the_checkpoint_does_no_harm: true;
}

/// A worker that holds something, and one that drives the checkpoint API on it.
struct Pair {
    machine: Machine,
    driver: Target,
    subject: Target,
}

const LOCKED: &str = "1";
const CHECKPOINTED: &str = "2";

fn pair(driver: Driver) -> Result<Pair> {
    let machine = Machine::new(driver)?;
    let driver = machine.worker("driver").start()?;
    driver.ok("init")?;
    let subject = machine.worker("subject").start()?;
    subject.ok("begin 0")?;
    subject.ok("listen")?;
    Ok(Pair { machine, driver, subject })
}

impl Pair {
    fn exporter(&self) -> Result<Target> {
        let exporter = self.machine.worker("exporter").start()?;
        exporter.ok("begin 0")?;
        Ok(exporter)
    }

    /// The driver's answer to a checkpoint call about the subject.
    fn call(&self, call: &str) -> Result<String> {
        let arguments = if call == "lock" { " 5000" } else { "" };
        self.driver.ask(&format!("{call} {}{arguments}", self.subject.pid()))
    }

    fn checkpoint(&self) -> Result<()> {
        for call in ["lock", "checkpoint"] {
            ensure!(self.call(call)? == "ok", "{call}");
        }
        Ok(())
    }

    /// A restore that fails with `code` can never be repeated, and the process is lost. A GPU also answers `OPERATING_SYSTEM`
    /// in all these cases (docs/DRIVER-VERSIONS.md, `locking`).
    fn is_lost_with(&self, code: u32) -> Result<()> {
        self.checkpoint()?;
        for _ in 0..2 {
            let answer = self.driver.ask(&format!("restore {}", self.subject.pid()))?;
            let codes = if self.machine.driver() == Driver::Real { [code, 304] } else { [code, code] };
            let known = codes.iter().any(|code| answer.starts_with(&format!("error {code} ")));
            ensure!(known, "the restore answered `{answer}`, not one of {codes:?}");
            ensure!(self.driver.ok(&format!("state {}", self.subject.pid()))? == CHECKPOINTED);
        }
        self.driver.refused(&format!("unlock {}", self.subject.pid()), 401)?;
        self.subject.ok("start stuck create y 2M device:0")?;
        ensure!(self.subject.ok("busy stuck")? == "yes", "a call of a lost process returned");
        Ok(())
    }

    fn comes_back(&self) -> Result<()> {
        self.checkpoint()?;
        for call in ["restore", "unlock"] {
            ensure!(self.call(call)? == "ok", "{call}");
        }
        Ok(())
    }
}

fn memory_of_its_own_comes_back(driver: Driver) -> Result<()> {
    let pair = pair(driver)?;
    pair.subject.ok("new x 4M device:0 fd")?;
    pair.subject.ok("fill x 0 4M 3")?;
    let before = pair.subject.ok("sum x 0 4M")?;
    pair.comes_back()?;
    ensure!(pair.subject.ok("sum x 0 4M")? == before, "the bytes changed");
    Ok(())
}

fn an_imported_mapping_makes_the_restore_fail_for_good(driver: Driver) -> Result<()> {
    let pair = pair(driver)?;
    let exporter = pair.exporter()?;
    for line in ["new x 2M device:0 fd", "export fd x", "send fd subject"] {
        exporter.ok(line)?;
    }
    for line in ["receive fd", "import x fd", "show x 2M"] {
        pair.subject.ok(line)?;
    }
    pair.is_lost_with(801)
}

fn an_open_ipc_handle_makes_the_restore_fail_for_good(driver: Driver) -> Result<()> {
    let pair = pair(driver)?;
    let exporter = pair.exporter()?;
    exporter.ok("malloc x 2M")?;
    let handle = exporter.ok("ipc-get x 0")?;
    pair.subject.ok(&format!("ipc-open x 2M {handle}"))?;
    pair.is_lost_with(1)
}

fn an_imported_pool_makes_the_restore_fail_for_good(driver: Driver) -> Result<()> {
    let pair = pair(driver)?;
    let exporter = pair.exporter()?;
    for line in ["pool fd p", "export-pool fd p", "send fd subject"] {
        exporter.ok(line)?;
    }
    for line in ["receive fd", "import-pool p fd"] {
        pair.subject.ok(line)?;
    }
    pair.is_lost_with(304)
}

/// The header: a pool that is destroyed lives on in what was obtained from it.
fn an_allocation_of_an_imported_pool_makes_the_restore_fail_for_good(driver: Driver) -> Result<()> {
    let pair = pair(driver)?;
    let exporter = pair.exporter()?;
    for line in
        ["stream s", "pool fd p", "malloc-from p x 2M s", "sync s", "export-pool fd p", "send fd subject"]
    {
        exporter.ok(line)?;
    }
    let pointer = exporter.ok("export-pointer x")?;
    for line in ["receive fd", "import-pool p fd", &format!("import-pointer x 2M p {pointer}"), "end-pool p"]
    {
        pair.subject.ok(line)?;
    }
    pair.is_lost_with(304)
}

fn host_memory_of_the_family_makes_the_restore_fail_for_good(driver: Driver) -> Result<()> {
    let pair = pair(driver)?;
    pair.subject.ok("new x 2M numa:0")?;
    pair.is_lost_with(999)
}

fn managed_memory_makes_the_checkpoint_fail_and_nothing_is_lost(driver: Driver) -> Result<()> {
    let pair = pair(driver)?;
    pair.subject.ok("managed x 2M")?;
    ensure!(pair.call("lock")? == "ok");
    pair.driver.refused(&format!("checkpoint {}", pair.subject.pid()), 801)?;
    ensure!(pair.driver.ok(&format!("state {}", pair.subject.pid()))? == LOCKED);
    ensure!(pair.call("unlock")? == "ok");
    pair.subject.ok("new y 2M device:0")?;
    Ok(())
}

fn an_import_given_back_before_the_checkpoint_does_no_harm(driver: Driver) -> Result<()> {
    let pair = pair(driver)?;
    let exporter = pair.exporter()?;
    for line in ["new x 2M device:0 fd", "export fd x", "send fd subject", "fill x 0 2M 9"] {
        exporter.ok(line)?;
    }
    for line in ["receive fd", "import x fd", "show x 2M", "drop x"] {
        pair.subject.ok(line)?;
    }
    pair.comes_back()?;
    for line in ["import x fd", "show x 2M"] {
        pair.subject.ok(line)?;
    }
    ensure!(pair.subject.ok("sum x 0 2M")? == exporter.ok("sum x 0 2M")?, "not one memory");
    Ok(())
}
