//! `libnvsnap_gpushare.so`: stands between a program and the CUDA driver.
//!
//! ```text
//!  program -- linked --> exports --+
//!  program -- dlsym ---> dlsym ----+--> boundary --> hooks::<family> --> gate, world --> driver::real --> libcuda
//!  program -- resolver > procaddr -+                                        ^
//!  tool ------ socket -> control ----> op::<verb> --------------------------+
//! ```
//!
//! # Rules for code in here
//!
//! The library lives in somebody else's process, before that process's own code has run.
//!
//! 1. Reachable from [`resolve`]: atomics and the C library's `dlsym` only, and for a driver call not seen before
//!    `dladdr1` and `dl_iterate_phdr`, whose locks are the loader's too. No allocation, lock of ours, thread-local,
//!    environment, log, panic.
//! 2. Resolution is idempotent stores, never a once-cell around `dlopen` or `dlsym`: libcuda's constructor calls
//!    `dlsym`, which is us.
//! 3. The `.init_array` entry only maps the generation page, registers the fork handler and reads the environment.
//!    No thread, no CUDA, no file. Nothing may *depend* on it having run.
//! 4. No driver call before the program's own `cuInit` has succeeded.
//! 5. The control thread starts in the hook of the first successful `cuInit` of a process generation, named, with
//!    a small explicit stack and all signals blocked.
//! 6. Thread-locals: `const`, a `Cell` of a plain type, no `Drop`; read with `try_with`.
//! 7. The log is a stack buffer and one write, off unless configured.
//! 8. Locks are leaf mutexes, never held across a driver call.
//! 9. Descriptors are close-on-exec and above 2.
//! 10. `errno` is as found.

#[macro_use]
mod log;

mod answers;
mod attached;
mod blocks;
mod boundary;
mod busy;
mod callers;
mod captures;
mod config;
mod contexts;
mod control;
mod dlsym;
mod dlsym_next;
mod driver;
mod exports;
mod fresh;
mod generation;
mod hooks;
mod init;
mod kept;
mod op;
mod peer;
mod procaddr;
mod registered;
mod resolve;
mod ticket;
mod transfer;
mod unwind;
mod world;
