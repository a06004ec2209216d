//! The hooks, by family: each is the driver's function of its name, seen from the program.
//!
//! A line of the list names its family, and the exported function calls `hooks::<family>::<name>`. The family
//! `gate` needs no body of its own, nor does `sync`; every other family is a module that defines each of its functions.
#![allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own names and signatures")]

pub(crate) mod capture;
pub(crate) mod completion;
pub(crate) mod context;
pub(crate) mod entry;
pub(crate) mod fabric;
pub(crate) mod gate;
pub(crate) mod ipc;
pub(crate) mod malloc;
pub(crate) mod multicast;
pub(crate) mod refuse;
pub(crate) mod register;
pub(crate) mod sync;
pub(crate) mod vmm;
