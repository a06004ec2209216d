//! This command is no workload, even when it was started with the library in `LD_PRELOAD`.
//!
//! The library would take it for a program that initialises CUDA, listen for it, and count its calls. So the command
//! starts itself once more with the library switched off. `run` does not: it is about to become the workload.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;

use crate::cli::Verb;

const SWITCH: &str = "NVSNAP_GPUSHARE";
const LIBRARY: &str = "libnvsnap_gpushare";

/// Starts this command again if the library is in it and not switched off.
pub fn step_out(verb: &Verb) {
    if matches!(verb, Verb::Run { .. } | Verb::Hold { .. } | Verb::Completions { .. } | Verb::Man { .. }) {
        return;
    }
    let preload = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let off = std::env::var_os(SWITCH).is_some_and(|value| value == OsStr::new("off"));
    if off || !preload.to_string_lossy().contains(LIBRARY) {
        return;
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // If that fails the library stays in; what it does here disturbs nothing but itself.
    let _ = std::process::Command::new("/proc/self/exe").arg0(name).args(arguments).env(SWITCH, "off").exec();
}
