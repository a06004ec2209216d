//! The entry of `nvsnap-gpu-suspend`.

use std::process::ExitCode;

use suspend_tool::cli::Cli;
use suspend_tool::{command, own_preload};

fn main() -> ExitCode {
    let verb = match Cli::from_args(std::env::args_os()) {
        Ok(verb) => verb,
        Err(error) => {
            // Help and version are "errors" too. Nobody is left to tell if it cannot be printed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    own_preload::step_out(&verb);
    ExitCode::from(command::carry_out(verb).code())
}
