//! The command line: what `--help`, the man page and the shell completions are made from.

mod before;
mod facts;
mod options;
mod storage;
mod verb;

use std::ffi::OsString;

use clap::{Args, CommandFactory, Parser};

pub use options::{CriuArgs, FreezeArgs, MapArgs, OutputArgs, PidArgs, TreeArgs, WaitArgs};
pub use storage::{
    CacheGcArgs, Gib, PlaceArgs, PrefetchArgs, SaveArgs, StoreGcArgs, StoreVerifyArgs, ThreadArgs,
};
pub use verb::Verb;

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

/// Options before the verb.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Options, also behind the verbs that take them")]
pub struct Before {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
    #[command(flatten)]
    pub(crate) map: MapArgs,
    #[command(flatten)]
    pub(crate) freeze: FreezeArgs,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    #[command(flatten)]
    pub(crate) criu: CriuArgs,
    #[command(flatten)]
    pub(crate) save: SaveArgs,
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

fn unfit(option: &str, verb: &str) -> clap::Error {
    wrong(clap::error::ErrorKind::UnknownArgument, format!("`{verb}` has no option {option}"))
}

fn wrong(kind: clap::error::ErrorKind, message: String) -> clap::Error {
    Cli::command().error(kind, message)
}

#[cfg(test)]
mod tests;
