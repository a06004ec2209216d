//! The command line: what `--help`, the man page and the shell completions are made from.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::pid::Pid;

mod before;
mod storage;

pub use before::Before;
pub use storage::{
    CacheGcArgs, Gib, PlaceArgs, PrefetchArgs, SaveArgs, StoreGcArgs, StoreVerifyArgs, ThreadArgs,
};

/// Suspends and resumes all processes of a GPU workload.
///
/// Exit codes: 0 done; 1 failed, and everything runs as before; 2 wrong usage; 3 failed, and something needs the command
/// that is named; 4 refused by the check, nothing was touched.
#[derive(Debug, Parser)]
#[command(name = "nvsnap-gpu-suspend", version, max_term_width = 100)]
pub struct Cli {
    /// Options that may stand before the verb as well as behind it.
    #[command(flatten)]
    pub before: Before,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// How to report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct OutputArgs {
    /// Print one event per line as JSON, and a summary.
    #[arg(long)]
    pub json: bool,
}

/// How long to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct WaitArgs {
    /// How many seconds to wait for a moment at which no GPU work runs [default: 30].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
}

impl WaitArgs {
    /// The time that was asked for, or the usual one.
    pub fn or_usual(self) -> Duration {
        self.timeout.unwrap_or(Duration::from_secs(30))
    }
}

/// Which GPUs to come back on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct MapArgs {
    /// The list of GPUs that `gpus` printed when the processes were suspended; they come back on the GPUs that have the
    /// same places in the list of now.
    #[arg(long, value_name = "FILE")]
    pub gpu_map: Option<PathBuf>,
}

/// Which processes.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct PidArgs {
    /// The processes. All that share GPU memory have to be named together.
    #[arg(required = true, value_name = "PID")]
    pub pids: Vec<Pid>,
    /// Whether their descendants are meant too.
    #[command(flatten)]
    pub tree: TreeArgs,
}

/// Whether descendants are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct TreeArgs {
    /// Take the processes that use CUDA among those named and all their descendants.
    #[arg(long)]
    pub tree: bool,
}

/// Whether the processor threads go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct FreezeArgs {
    /// Leave the processor threads running: they wait only where they use the GPU.
    #[arg(long)]
    pub no_freeze: bool,
}

/// What the suspended processes are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct CriuArgs {
    /// Count what keeps CRIU from dumping the processes as being in the way too.
    #[arg(long)]
    pub criu: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Verb {
    /// Tell whether a suspend would succeed, and what is in the way.
    Check {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        criu: CriuArgs,
        #[command(flatten)]
        save: SaveArgs,
        #[command(flatten)]
        freeze: FreezeArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Tell where processes stand: their phase, the driver's state, what they hold and share.
    Status {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// List the processes here that use CUDA, and whether they could be suspended.
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Bring the processes to rest, save their GPU memory to host memory or to a chunk store, and free it.
    Suspend {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        wait: WaitArgs,
        #[command(flatten)]
        save: SaveArgs,
        #[command(flatten)]
        freeze: FreezeArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Bring everything back and let the processes run, from wherever each of them stands.
    Resume {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        map: MapArgs,
        #[command(flatten)]
        places: PlaceArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Leave suspended processes stopped (SIGSTOP), with nobody holding them, for `criu dump`; `resume` continues them.
    Stop {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Suspend the processes and then end them (SIGKILL): to end one that was restored while it uses its GPU can hang the
    /// machine.
    Kill {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        wait: WaitArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Print the GPUs that can be seen, one per line in ordinal order: UUID, name, memory.
    Gpus {
        /// Write the list to this file as well, for --gpu-map.
        file: Option<PathBuf>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Run a command with the library loaded, so that it can be suspended.
    Run {
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Phase 1 of a suspend: close the gates until no GPU work runs.
    Quiesce {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        wait: WaitArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Phase 2 of a suspend: take the sharing apart, save the memory and free it.
    Release {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        save: SaveArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Phase 3 of a suspend: the driver's lock and checkpoint.
    Checkpoint {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        wait: WaitArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Phase 1 of a resume: the driver's restore and unlock.
    Restore {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        map: MapArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Before or during phase 1 of a resume: start to read what was saved to a chunk store.
    Stage {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        places: PlaceArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Phase 2 of a resume: make the memory again, with its bytes.
    Load {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        places: PlaceArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Phase 3 of a resume: share it again.
    Remap {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Phase 4 of a resume, or the end of a quiesce: open the gates.
    Reopen {
        #[command(flatten)]
        processes: PidArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Copy the chunks of a checkpoint from a store to a cache on this node, and check them. May be repeated: it goes on
    /// where it was.
    CachePrefetch(PrefetchArgs),
    /// Remove from a cache what was not used for longest, until it has the size. What is in use stays.
    CacheGc(CacheGcArgs),
    /// Find the chunks of a store that no checkpoint needs, and remove them if told to.
    StoreGc(StoreGcArgs),
    /// Read every chunk of a store or cache, and name those that are bad.
    StoreVerify(StoreVerifyArgs),
    /// Hold threads for a command: started by it, and of no use otherwise.
    #[command(hide = true)]
    Hold {
        /// The channel to the command.
        channel: i32,
        /// The command itself.
        command: i32,
    },
    /// Print the completions of a shell.
    #[command(hide = true)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write those of the command and of all its verbs to a folder.
    #[command(hide = true)]
    Man {
        /// The folder.
        folder: Option<PathBuf>,
    },
}

impl Verb {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::Status { .. } => "status",
            Self::List { .. } => "list",
            Self::Suspend { .. } => "suspend",
            Self::Resume { .. } => "resume",
            Self::Stop { .. } => "stop",
            Self::Kill { .. } => "kill",
            Self::Gpus { .. } => "gpus",
            Self::Run { .. } => "run",
            Self::Quiesce { .. } => "quiesce",
            Self::Release { .. } => "release",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Restore { .. } => "restore",
            Self::Stage { .. } => "stage",
            Self::Load { .. } => "load",
            Self::Remap { .. } => "remap",
            Self::Reopen { .. } => "reopen",
            Self::CachePrefetch(_) => "cache-prefetch",
            Self::CacheGc(_) => "cache-gc",
            Self::StoreGc(_) => "store-gc",
            Self::StoreVerify(_) => "store-verify",
            Self::Hold { .. } => "hold",
            Self::Completions { .. } => "completions",
            Self::Man { .. } => "man",
        }
    }

    /// Whether it does something to processes.
    pub const fn changes(&self) -> bool {
        match self {
            Self::Suspend { .. }
            | Self::Resume { .. }
            | Self::Stop { .. }
            | Self::Kill { .. }
            | Self::Quiesce { .. }
            | Self::Release { .. }
            | Self::Checkpoint { .. }
            | Self::Restore { .. }
            | Self::Stage { .. }
            | Self::Load { .. }
            | Self::Remap { .. }
            | Self::Reopen { .. } => true,
            Self::Check { .. }
            | Self::Status { .. }
            | Self::List { .. }
            | Self::Gpus { .. }
            | Self::Run { .. }
            | Self::CachePrefetch(_)
            | Self::CacheGc(_)
            | Self::StoreGc(_)
            | Self::StoreVerify(_)
            | Self::Hold { .. }
            | Self::Completions { .. }
            | Self::Man { .. } => false,
        }
    }

    fn output(&mut self) -> Option<&mut OutputArgs> {
        match self {
            Self::Check { output, .. }
            | Self::Status { output, .. }
            | Self::List { output }
            | Self::Suspend { output, .. }
            | Self::Resume { output, .. }
            | Self::Stop { output, .. }
            | Self::Kill { output, .. }
            | Self::Gpus { output, .. }
            | Self::Quiesce { output, .. }
            | Self::Release { output, .. }
            | Self::Checkpoint { output, .. }
            | Self::Restore { output, .. }
            | Self::Stage { output, .. }
            | Self::Load { output, .. }
            | Self::Remap { output, .. }
            | Self::Reopen { output, .. } => Some(output),
            Self::CachePrefetch(args) => Some(&mut args.output),
            Self::CacheGc(args) => Some(&mut args.output),
            Self::StoreGc(args) => Some(&mut args.output),
            Self::StoreVerify(args) => Some(&mut args.output),
            Self::Run { .. } | Self::Hold { .. } | Self::Completions { .. } | Self::Man { .. } => None,
        }
    }

    fn wait(&mut self) -> Option<&mut WaitArgs> {
        match self {
            Self::Suspend { wait, .. }
            | Self::Kill { wait, .. }
            | Self::Quiesce { wait, .. }
            | Self::Checkpoint { wait, .. } => Some(wait),
            _ => None,
        }
    }

    fn freeze(&mut self) -> Option<&mut FreezeArgs> {
        match self {
            Self::Check { freeze, .. } | Self::Suspend { freeze, .. } => Some(freeze),
            _ => None,
        }
    }

    fn map(&mut self) -> Option<&mut MapArgs> {
        match self {
            Self::Resume { map, .. } | Self::Restore { map, .. } => Some(map),
            _ => None,
        }
    }

    fn processes(&mut self) -> Option<&mut PidArgs> {
        match self {
            Self::Check { processes, .. }
            | Self::Status { processes, .. }
            | Self::Suspend { processes, .. }
            | Self::Resume { processes, .. }
            | Self::Stop { processes, .. }
            | Self::Kill { processes, .. }
            | Self::Quiesce { processes, .. }
            | Self::Release { processes, .. }
            | Self::Checkpoint { processes, .. }
            | Self::Restore { processes, .. }
            | Self::Stage { processes, .. }
            | Self::Load { processes, .. }
            | Self::Remap { processes, .. }
            | Self::Reopen { processes, .. } => Some(processes),
            _ => None,
        }
    }

    /// Whether threads are to be held still. The single phases leave that to whoever drives them.
    pub const fn freezes(&self) -> bool {
        match self {
            Self::Check { freeze, .. } | Self::Suspend { freeze, .. } => !freeze.no_freeze,
            _ => false,
        }
    }

    /// Whether it is finished or undone by somebody else should this command die.
    pub const fn is_watched_over(&self) -> bool {
        matches!(self, Self::Suspend { .. } | Self::Resume { .. } | Self::Kill { .. })
    }

    /// Whether its events are to be printed as JSON.
    pub fn json(&mut self) -> bool {
        self.output().is_some_and(|output| output.json)
    }
}

impl Cli {
    /// Parses arguments; the error prints itself and knows its exit code.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Verb, clap::Error> {
        let Self { before, mut verb } = Self::try_parse_from(args)?;
        verb.take(before)?;
        if let Verb::Check { save, .. } | Verb::Suspend { save, .. } | Verb::Release { save, .. } = &verb {
            save.hold_together()?;
        }
        Ok(verb)
    }
}

fn wrong(kind: clap::error::ErrorKind, message: String) -> clap::Error {
    Cli::command().error(kind, message)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_owned())?;
    if !(seconds > 0.0 && seconds <= 86_400.0) {
        return Err("it has to be more than 0 and at most a day".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
