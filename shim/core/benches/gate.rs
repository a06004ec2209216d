//! What a call pays at the open gate: the bare call, the call with a pass, and both on as many threads as there are
//! cores.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use shim_core::calls::CallId;
use shim_core::gate;

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

fn on_a_stream() {
    let stream = black_box(1);
    let _pass = gate::enter_on(CallId::cuLaunchKernel, || black_box(stream) == 0);
    black_box(driver(stream));
}

fn nested() {
    let _pass = gate::enter(CallId::cuMemcpyAsync);
    gated();
}

fn one_thread(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("open gate, one thread");
    group.bench_function("bare call", |bencher| bencher.iter(bare));
    group.bench_function("with a pass", |bencher| bencher.iter(gated));
    group.bench_function("with a pass, on a stream", |bencher| bencher.iter(on_a_stream));
    group.bench_function("with a pass inside a pass", |bencher| bencher.iter(nested));
    group.finish();
}

fn all_cores(criterion: &mut Criterion) {
    let threads = thread::available_parallelism().map_or(2, usize::from);
    let mut group = criterion.benchmark_group(format!("open gate, {threads} threads"));
    group.bench_function("bare call", |bencher| bencher.iter_custom(|count| together(threads, count, bare)));
    group.bench_function("with a pass", |bencher| {
        bencher.iter_custom(|count| together(threads, count, gated))
    });
    group.finish();
}

/// The mean time of `count` calls on each of so many threads at once.
fn together(threads: usize, count: u64, call: fn()) -> Duration {
    let start = Barrier::new(threads);
    let run = || {
        start.wait();
        let begun = Instant::now();
        (0..count).for_each(|_| call());
        begun.elapsed()
    };
    let total: Duration = thread::scope(|scope| {
        let runners: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        runners.into_iter().map(|runner| runner.join().expect("nothing panics here")).sum()
    });
    total / u32::try_from(threads).expect("not that many")
}

criterion_group!(benches, one_thread, all_cores);
criterion_main!(benches);
