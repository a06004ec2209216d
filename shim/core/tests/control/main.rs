//! The control server, without a driver behind it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program of its own, not code in somebody else's process"
)]

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod remote;

#[cfg(test)]
mod askers;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod verbs;
