//! Options that several verbs have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::pid::Pid;

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

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_owned())?;
    if !(seconds > 0.0 && seconds <= 86_400.0) {
        return Err("it has to be more than 0 and at most a day".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
