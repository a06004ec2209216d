//! The verbs: what each looks at, what it does, and what it says in the end.

mod check;
mod chunks;
mod context;
#[cfg(test)]
mod failures;
mod fill;
#[cfg(test)]
mod findings;
mod gpus;
mod kill;
mod outcome;
mod phases;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod rest;
mod resume;
mod run;
mod set;
mod status;
mod stop;
mod stopped;
mod storage;
mod suspend;

pub use check::check;
pub use context::Context;
pub use outcome::{Exit, Outcome};
pub use resume::resume;
pub use suspend::suspend;

use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use clap::CommandFactory;

use crate::check::Finding;
use crate::cli::{Cli, PidArgs, Verb};
use crate::faults::Faults;
use crate::freeze::{Hold, HoldError};
use crate::holder::{Holder, RESCUE_VARIABLE, Unwatched};
use crate::interrupt::Interrupt;
use crate::pid::Pid;
use crate::report::{Bars, Json, Reporter, Silent, print_line, unprinted};
use crate::state::Run;

/// Carries a verb out and shows what came of it.
pub fn carry_out(verb: Verb) -> Exit {
    let changes = verb.changes();
    let exit = shown(verb);
    let Some(error) = unprinted() else { return exit };
    // Nobody is left to tell if this cannot be printed either.
    let _ = writeln!(std::io::stderr().lock(), "nvsnap-gpu-suspend: the output cannot be written: {error}");
    // What was done is done; of a verb that only looks, the output is all there is.
    if exit == Exit::Done && !changes { Exit::Failed } else { exit }
}

fn shown(mut verb: Verb) -> Exit {
    let json = verb.json();
    let outcome = match verb {
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "nvsnap-gpu-suspend", &mut text);
            print_line(String::from_utf8_lossy(&text).trim_end());
            return Exit::Done;
        }
        Verb::Man { folder } => return man(folder.as_deref()),
        Verb::Run { command } => run::run(&command),
        Verb::CachePrefetch(args) => chunks::prefetch(&args),
        Verb::CacheGc(args) => chunks::collect_cache(&args),
        Verb::StoreGc(args) => chunks::collect_store(&args),
        Verb::StoreVerify(args) => chunks::verify(&args),
        Verb::Hold { channel, command } => {
            if crate::holder::serve(channel, command).is_ok() {
                return Exit::Done;
            }
            Outcome::new(
                "hold",
                Exit::Failed,
                "this is what a suspend starts by itself, and of no use by hand",
            )
        }
        verb => on_machine(verb, json),
    };
    outcome.show(json);
    outcome.exit
}

fn man(folder: Option<&Path>) -> Exit {
    let mut text = Vec::new();
    let made = match folder {
        Some(folder) => clap_mangen::generate_to(Cli::command(), folder),
        None => clap_mangen::Man::new(Cli::command()).render(&mut text),
    };
    match made {
        Ok(()) => {
            if folder.is_none() {
                print_line(String::from_utf8_lossy(&text).trim_end());
            }
            Exit::Done
        }
        Err(error) => {
            eprintln!("error: the man pages cannot be written: {error}");
            Exit::Failed
        }
    }
}

/// The verbs that look at the machine.
fn on_machine(verb: Verb, json: bool) -> Outcome {
    let name = verb.name();
    // First of all: threads inherit what signals are blocked. What only looks may be ended at any moment.
    let taken = if verb.changes() { Interrupt::take() } else { Ok(Interrupt::from_source(|| None)) };
    let interrupt = match taken {
        Ok(interrupt) => Rc::new(interrupt),
        Err(error) => {
            return Outcome::new(name, Exit::Failed, format!("signals cannot be taken: {error}"));
        }
    };
    let faults = match Faults::ordered() {
        Ok(faults) => faults,
        Err(text) => return Outcome::new(name, Exit::Usage, text),
    };
    let rescued = std::env::var(RESCUE_VARIABLE).ok().and_then(|run| run.parse().ok());
    let run = match rescued.map_or_else(Run::fresh, Ok) {
        Ok(run) => (run, rescued.is_some()),
        Err(error) => {
            return Outcome::new(name, Exit::Failed, format!("the system has no random numbers: {error}"));
        }
    };
    // Before the driver is touched: a process that has CUDA is not to be copied.
    let hold = match holder(&verb, rescued.is_some()) {
        Ok(hold) => hold,
        Err(error) => return Outcome::failed(name, &error),
    };
    let context = Context::open(reporter(json), interrupt, (hold, verb.freezes()), run, faults);
    match verb {
        Verb::Check { processes, criu, save, .. } => {
            with_pids(&context, name, &processes, |pids| check::check_for(&context, pids, criu.criu, &save))
        }
        Verb::Status { processes, .. } => {
            with_pids(&context, name, &processes, |pids| status::status(&context, pids, json))
        }
        Verb::List { .. } => status::list(&context, json),
        Verb::Gpus { file, .. } => gpus::gpus(&context, file.as_deref(), json),
        Verb::Suspend { processes, wait, save, .. } => with_pids(&context, name, &processes, |pids| {
            suspend::suspend_to(&context, pids, wait.or_usual(), &save)
        }),
        Verb::Resume { processes, map, places, .. } => with_pids(&context, name, &processes, |pids| {
            resume::resume_from(&context, pids, map.gpu_map.as_deref(), &places)
        }),
        Verb::Stop { processes, .. } => {
            with_pids(&context, name, &processes, |pids| stop::stop(&context, pids))
        }
        Verb::Kill { processes, wait, .. } => {
            with_pids(&context, name, &processes, |pids| kill::kill(&context, pids, wait.or_usual()))
        }
        Verb::Quiesce { processes, wait, .. } => {
            with_pids(&context, name, &processes, |pids| phases::quiesce(&context, pids, wait.or_usual()))
        }
        Verb::Release { processes, save, .. } => {
            with_pids(&context, name, &processes, |pids| phases::release(&context, pids, &save))
        }
        Verb::Checkpoint { processes, wait, .. } => {
            with_pids(&context, name, &processes, |pids| phases::checkpoint(&context, pids, wait.or_usual()))
        }
        Verb::Restore { processes, map, .. } => with_pids(&context, name, &processes, |pids| {
            phases::restore(&context, pids, map.gpu_map.as_deref())
        }),
        Verb::Stage { processes, places, .. } => {
            with_pids(&context, name, &processes, |pids| phases::stage(&context, pids, &places))
        }
        Verb::Load { processes, places, .. } => {
            with_pids(&context, name, &processes, |pids| phases::load(&context, pids, &places))
        }
        Verb::Remap { processes, .. } => {
            with_pids(&context, name, &processes, |pids| phases::remap(&context, pids))
        }
        Verb::Reopen { processes, .. } => {
            with_pids(&context, name, &processes, |pids| phases::reopen(&context, pids))
        }
        Verb::Run { .. }
        | Verb::Hold { .. }
        | Verb::CachePrefetch(_)
        | Verb::CacheGc(_)
        | Verb::StoreGc(_)
        | Verb::StoreVerify(_)
        | Verb::Completions { .. }
        | Verb::Man { .. } => Outcome::new(name, Exit::Usage, "it does not look at the machine"),
    }
}

/// Who watches over this run, and holds threads when it has ended.
fn holder(verb: &Verb, is_rescue: bool) -> Result<Rc<dyn Hold>, HoldError> {
    if verb.is_watched_over() && !is_rescue {
        Ok(Rc::new(Holder::start()?))
    } else {
        Ok(Rc::new(Unwatched::default()))
    }
}

fn reporter(json: bool) -> Arc<dyn Reporter> {
    use std::io::IsTerminal;
    if json {
        Arc::new(Json)
    } else if std::io::stderr().is_terminal() {
        Arc::new(Bars::default())
    } else {
        Arc::new(Silent)
    }
}

/// Calls `verb` with the processes that are meant.
fn with_pids(
    context: &Context,
    name: &'static str,
    processes: &PidArgs,
    verb: impl FnOnce(&[Pid]) -> Outcome,
) -> Outcome {
    let mut pids = processes.pids.clone();
    if processes.tree.tree {
        match context.machine.below(&processes.pids) {
            Ok(found) if found.is_empty() => {
                let text = format!(
                    "no process at or below {} uses CUDA",
                    crate::pid::listed(processes.pids.iter().copied())
                );
                return Outcome::new(name, Exit::Refused, text);
            }
            Ok(found) => pids = found,
            Err(error) => return Outcome::failed(name, &error),
        }
    }
    pids.sort_unstable();
    pids.dedup();
    let own = pids.iter().copied().find(|pid| u32::try_from(pid.number()) == Ok(std::process::id()));
    if let Some(own) = own {
        let finding = Finding::blocker("own", format!("process {own} is this command itself"), "").of(own);
        return Outcome::refused(name, vec![finding]).about(pids);
    }
    verb(&pids)
}
