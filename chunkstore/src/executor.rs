//! Running work on several threads, whoever makes them.
//!
//! Code of this crate that works in parallel asks an [`Executor`] for threads. A program takes [`Threads`]; a library
//! that lives in somebody else's process brings its own.

use std::io;

/// Makes threads.
pub trait Executor {
    /// Runs `work(0)` to `work(count - 1)`, each on a thread of its own, and returns when all have returned. Where
    /// fewer threads are to be had it runs at least one, since the work is shared out among those that run.
    fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) -> io::Result<()>;
}

/// Threads of the standard library. The calling thread is one of them.
#[derive(Clone, Copy, Default, Debug)]
pub struct Threads;

impl Executor for Threads {
    fn run(&self, count: usize, work: &(dyn Fn(usize) + Sync)) -> io::Result<()> {
        std::thread::scope(|scope| {
            for number in 1..count {
                let named = std::thread::Builder::new().name(format!("chunks-{number}"));
                if named.spawn_scoped(scope, move || work(number)).is_err() {
                    break;
                }
            }
            work(0);
        });
        Ok(())
    }
}

/// No thread but the calling one.
#[derive(Clone, Copy, Default, Debug)]
pub struct Inline;

impl Executor for Inline {
    fn run(&self, _count: usize, work: &(dyn Fn(usize) + Sync)) -> io::Result<()> {
        work(0);
        Ok(())
    }
}
