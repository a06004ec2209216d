//! What the programs of `dist/tests` have in common: the word for the driver, and how they end.

use std::process::ExitCode;

use anyhow::Result;

use crate::machine::Driver;

/// The driver that an option names.
pub fn driver(option: &str) -> Option<Driver> {
    match option {
        "--gpu" => Some(Driver::Real),
        "--stand-in" => Some(Driver::StandIn),
        _ => None,
    }
}

/// The status of a program that came to this; what went wrong is said.
pub fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
