//! The verbs, with the options of each.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

use super::{
    CacheGcArgs, CriuArgs, FreezeArgs, MapArgs, OutputArgs, PidArgs, PlaceArgs, PrefetchArgs, SaveArgs,
    StoreGcArgs, StoreVerifyArgs, WaitArgs,
};

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
