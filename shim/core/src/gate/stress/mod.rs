//! The gate under real threads: small gates, so that threads share slots and stand, on machines with and without
//! `membarrier`.

mod held;
mod steps;
mod threads;

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use core::time::Duration;
use std::io::Write as _;
use std::sync::mpsc;
use std::time::Instant;
use std::{io, mem, process, thread};

use super::Inside;
use super::algorithm::Gate;
use super::linux::Linux;
use super::machine::Machine;
use super::rule::{ALL_HELD, FENCED, LAUNCHES_HELD, OBJECTS_HELD, PROBED};
use crate::calls::CallId;

const LAUNCH: CallId = CallId::cuLaunchKernel;
const COPY: CallId = CallId::cuMemcpyDtoHAsync_v2;
const QUERY: CallId = CallId::cuEventQuery;

type Small<const OWN: usize, const SEATS: usize> = Gate<Linux, OWN, 2, SEATS>;

/// Looks until `met`, for ten seconds at most. Then the whole test ends: threads that wait for good cannot be
/// joined.
#[allow(clippy::disallowed_methods, reason = "the process is the tests' own")]
fn until(what: &str, met: impl Fn() -> bool) {
    let begun = Instant::now();
    while !met() {
        if begun.elapsed() > Duration::from_secs(10) {
            let _ = writeln!(
                io::stderr(),
                "{}: {what} did not come about",
                thread::current().name().unwrap_or("?")
            );
            process::abort();
        }
        thread::yield_now();
    }
}

/// What must not change while the gate is closed: plain memory, so that a race shows as a wrong number.
struct Board(UnsafeCell<u64>);

// SAFETY: callers write it by a lock of their own; who closed reads it when nobody is inside.
unsafe impl Sync for Board {}

impl Board {
    fn read(&self) -> u64 {
        // SAFETY: a valid number; where others may be changing it any value does.
        unsafe { self.0.get().read_volatile() }
    }

    /// # Safety
    /// Nobody else writes.
    unsafe fn add_one(&self) {
        // SAFETY: the only writer, as the caller says.
        unsafe { self.0.get().write_volatile(self.read() + 1) };
    }
}

/// Threads launch as fast as they can; the gate is closed and opened as fast as it can be.
fn closed_means_nobody_launches<const OWN: usize, const SEATS: usize>(threads: usize, rounds: u64) {
    let gate = Small::<OWN, SEATS>::new();
    let board = Board(UnsafeCell::new(0));
    let writers = AtomicU32::new(0);
    let done = AtomicBool::new(false);
    // Told at the end: the callers have to be let go first.
    let mut early = None;
    let launched = thread::scope(|scope| {
        let callers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut launched = 0;
                    while !done.load(Relaxed) {
                        let _pass = gate.enter(LAUNCH, || false);
                        // One writer at a time; the lock is no part of what is tried.
                        if writers.swap(1, SeqCst) == 0 {
                            // SAFETY: `writers` lets one in.
                            unsafe { board.add_one() };
                            writers.store(0, SeqCst);
                            launched += 1;
                        }
                    }
                    launched
                })
            })
            .collect();
        for round in 0..rounds {
            gate.close(LAUNCHES_HELD).unwrap();
            until("nobody inside", || gate.inside().launches == 0);
            let before = board.read();
            if round % 8 == 0 {
                let held = || waiting(&gate).len() + gate.waiters.standing() as usize;
                until("everybody at the gate, or somebody past it", || {
                    held() == threads || board.read() != before
                });
            }
            let held = board.read() == before;
            gate.open(LAUNCHES_HELD);
            if !held {
                early = Some(round);
                break;
            }
            until("a launch", || board.read() != before);
        }
        done.store(true, Relaxed);
        gate.open(ALL_HELD);
        callers.into_iter().map(|caller| caller.join().unwrap()).sum::<u64>()
    });
    assert_eq!(early, None, "somebody launched at a closed gate");
    assert_eq!(launched, board.0.into_inner(), "a launch was lost or doubled");
}

#[test]
fn nobody_launches_at_a_closed_gate() {
    closed_means_nobody_launches::<8, 8>(4, 300);
}

#[test]
fn nobody_launches_at_a_closed_gate_from_shared_slots_and_without_seats() {
    closed_means_nobody_launches::<1, 1>(4, 300);
}

#[test]
fn nobody_launches_at_a_closed_gate_where_the_kernel_refuses_membarrier() {
    refuse_membarrier();
    // Threads inherit the refusal.
    closed_means_nobody_launches::<8, 8>(4, 300);
}

#[test]
fn a_refusal_that_comes_late_fails_one_close_and_leaves_the_gate_open() {
    let gate = Small::<4, 4>::new();
    drop(gate.enter(LAUNCH, || false));
    assert_eq!(gate.word.0.load(SeqCst), PROBED, "this kernel has membarrier");
    refuse_membarrier();
    assert_eq!(gate.close(LAUNCHES_HELD), Err(libc::EACCES));
    drop(gate.enter(LAUNCH, || false));
    assert_eq!(gate.word.0.load(SeqCst), PROBED | FENCED);
    assert_eq!(gate.close(LAUNCHES_HELD), Ok(()));
    assert_eq!(gate.word.0.load(SeqCst), PROBED | FENCED | LAUNCHES_HELD);
}

/// From now on `membarrier` answers this thread, and those it makes, with `EACCES`.
fn refuse_membarrier() {
    let number = u32::try_from(libc::SYS_membarrier).unwrap();
    let refused = libc::SECCOMP_RET_ERRNO | libc::EACCES.cast_unsigned();
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let mut filter = [
        // The number of the system call is at the start of what a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_mut_ptr() };
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its steps live until the call returns.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

fn waiting<const OWN: usize, const SEATS: usize>(gate: &Small<OWN, SEATS>) -> Vec<(u32, CallId)> {
    let mut found = Vec::new();
    gate.waiters.for_each_waiting(|thread, call| found.push((thread, call)));
    found
}
