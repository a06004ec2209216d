//! What a call pays at the open gate with more and more threads, as a table: nanoseconds of the bare call, with a pass,
//! and, to compare with, with one counter that all threads share. A plain binary, to be carried to a machine with
//! many cores: `gate-scaling [THREADS]`.
#![allow(
    clippy::disallowed_macros,
    clippy::exit,
    clippy::disallowed_methods,
    reason = "a program of its own"
)]

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{env, process, thread};

use shim_core::calls::CallId;
use shim_core::gate;

/// Calls of each thread in one measurement, and measurements, of which the fastest counts.
const CALLS: u32 = 2_000_000;
const TRIES: u32 = 7;

/// Stands for a driver function: a call that is not inlined and does next to nothing.
#[inline(never)]
extern "C" fn driver(argument: u64) -> u64 {
    black_box(argument)
}

fn bare() {
    black_box(driver(black_box(1)));
}

fn gated() {
    let _pass = gate::enter(CallId::cuLaunchKernel);
    black_box(driver(black_box(1)));
}

static SHARED: AtomicU64 = AtomicU64::new(0);

fn counted() {
    SHARED.fetch_add(1, Ordering::SeqCst);
    black_box(driver(black_box(1)));
    SHARED.fetch_sub(1, Ordering::SeqCst);
}

fn main() {
    let most = match env::args().nth(1).map(|text| text.parse::<usize>()) {
        Some(Ok(threads)) if threads > 0 => threads,
        None => thread::available_parallelism().map_or(1, usize::from),
        _ => {
            eprintln!("usage: gate-scaling [THREADS]");
            process::exit(2);
        }
    };
    println!("threads    bare    pass   added   shared counter   (ns per call)");
    let mut threads = 1;
    loop {
        let [bare, gated, counted] = [bare, gated, counted].map(|call| nanoseconds(threads, call));
        let added = gated - bare;
        println!("{threads:7} {bare:7.2} {gated:7.2} {added:7.2} {counted:16.2}");
        if threads == most {
            break;
        }
        threads = (threads * 2).min(most);
    }
}

/// What one call takes on each of so many threads at once.
fn nanoseconds(threads: usize, call: fn()) -> f64 {
    let start = Barrier::new(threads);
    let measure = || {
        (0..TRIES)
            .map(|_| {
                start.wait();
                let begun = Instant::now();
                (0..CALLS).for_each(|_| call());
                begun.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
            })
            .fold(f64::INFINITY, f64::min)
    };
    thread::scope(|scope| {
        let runners: Vec<_> = (0..threads).map(|_| scope.spawn(measure)).collect();
        // The slowest thread: a line that wanders between cores shows there first.
        runners.into_iter().map(|runner| runner.join().expect("nothing panics here")).fold(0.0, f64::max)
    })
}
