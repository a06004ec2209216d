//! The gate under real threads: small gates, so that threads share slots and stand, on machines with and without
//! `membarrier`.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use core::time::Duration;
use std::io::Write as _;
use std::sync::mpsc;
use std::time::Instant;
use std::{io, mem, process, thread};

use super::algorithm::Gate;
use super::linux::Linux;
use super::machine::Machine;
use super::rule::{ALL_HELD, FENCED, LAUNCHES_HELD, OBJECTS_HELD, PROBED};
use crate::calls::CallId;

mod steps;

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
                thread::sleep(Duration::from_micros(200));
            }
            assert_eq!(board.read(), before, "somebody launched at a closed gate");
            gate.open(LAUNCHES_HELD);
            until("a launch", || board.read() != before);
        }
        done.store(true, Relaxed);
        gate.open(ALL_HELD);
        callers.into_iter().map(|caller| caller.join().unwrap()).sum::<u64>()
    });
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

#[test]
fn each_class_is_held_by_its_own_leaf() {
    let gate = Small::<8, 8>::new();
    gate.close(LAUNCHES_HELD).unwrap();
    drop(gate.enter(COPY, || false));
    drop(gate.enter(QUERY, || false));
    gate.close(OBJECTS_HELD).unwrap();
    drop(gate.enter(QUERY, || false));
    gate.close(ALL_HELD).unwrap();
    thread::scope(|scope| {
        let callers = [LAUNCH, COPY, QUERY].map(|call| {
            let gate = &gate;
            scope.spawn(move || drop(gate.enter(call, || false)))
        });
        until("three waiting threads", || waiting(&gate).len() == 3);
        // Only what the opened leaf held comes through.
        gate.open(OBJECTS_HELD);
        until("the copy", || waiting(&gate).len() == 2);
        assert!(waiting(&gate).iter().all(|(_, call)| *call != COPY));
        gate.open(ALL_HELD);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
}

fn waiting<const OWN: usize, const SEATS: usize>(gate: &Small<OWN, SEATS>) -> Vec<(u32, CallId)> {
    let mut found = Vec::new();
    gate.waiters.for_each_waiting(|thread, call| found.push((thread, call)));
    found
}

#[test]
fn a_waiting_thread_is_listed_by_its_id_and_its_call() {
    let gate = Small::<8, 8>::new();
    gate.close(LAUNCHES_HELD).unwrap();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let gate = &gate;
        scope.spawn(move || {
            // SAFETY: takes nothing.
            tell.send(unsafe { libc::gettid() }).unwrap();
            drop(gate.enter(CallId::cuGraphLaunch_ptsz, || false));
        });
        let thread = told.recv().unwrap().cast_unsigned();
        until("a waiting thread", || !waiting(gate).is_empty());
        assert_eq!(waiting(gate), [(thread, CallId::cuGraphLaunch_ptsz)]);
        gate.open(ALL_HELD);
    });
    assert_eq!(waiting(&gate), []);
}

#[test]
fn a_call_from_within_a_call_goes_through() {
    let gate = Small::<1, 1>::new();
    // Once with a slot of its own, once with a shared one.
    thread::scope(|scope| {
        for _ in 0..2 {
            let (entered, has_entered) = mpsc::channel();
            let (closed, is_closed) = mpsc::channel();
            let gate = &gate;
            let caller = scope.spawn(move || {
                let outer = gate.enter(COPY, || false);
                entered.send(()).unwrap();
                is_closed.recv().unwrap();
                let inner = gate.enter(LAUNCH, || false);
                assert_eq!((gate.inside().launches, gate.inside().objects), (1, 1));
                drop(inner);
                assert_eq!((gate.inside().launches, gate.inside().objects), (0, 1));
                drop(outer);
            });
            has_entered.recv().unwrap();
            gate.close(ALL_HELD).unwrap();
            closed.send(()).unwrap();
            until("the end of both calls", || caller.is_finished());
            caller.join().unwrap();
            assert_eq!(gate.inside(), super::Inside::default());
            gate.open(ALL_HELD);
            // The slot stays taken, so that the second thread gets a shared one.
            let holder = scope.spawn(move || {
                drop(gate.enter(COPY, || false));
                thread::park_timeout(Duration::from_secs(10));
            });
            until("a taken slot", || gate.slots.used.load(SeqCst) == 1);
            holder.thread().unpark();
        }
    });
}

#[test]
fn a_launch_into_a_stream_that_records_passes_until_answers_are_held() {
    let gate = Small::<8, 8>::new();
    gate.close(LAUNCHES_HELD | OBJECTS_HELD).unwrap();
    let asked = AtomicU64::new(0);
    let records = || {
        asked.fetch_add(1, SeqCst);
        // It counts as a launch while it is asked, so that a capture that ends now is no way past the gate.
        assert_eq!(gate.inside().launches, 1);
        true
    };
    drop(gate.enter(LAUNCH, records));
    assert_eq!(asked.load(SeqCst), 1);
    gate.close(ALL_HELD).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(gate.enter(LAUNCH, records)));
        until("a waiting thread", || waiting(&gate).len() == 1);
        assert_eq!(asked.load(SeqCst), 1, "the driver was asked while it may be locked");
        gate.open(ALL_HELD);
    });
    drop(gate.enter(LAUNCH, records));
    assert_eq!(asked.load(SeqCst), 1, "an open gate asks nothing");
}

#[test]
fn a_held_question_is_answered_without_a_pass_once_there_are_answers() {
    let gate = Small::<8, 8>::new();
    let asked = AtomicU32::new(0);
    let answered = |known: bool| {
        asked.fetch_add(1, SeqCst);
        known
    };
    assert!(gate.ask(QUERY, || answered(true)).is_some(), "the driver answers while the gate is open");
    gate.close(ALL_HELD).unwrap();
    thread::scope(|scope| {
        let known = scope.spawn(|| gate.ask(QUERY, || answered(true)).is_none());
        let unknown = scope.spawn(|| gate.ask(QUERY, || answered(false)).is_some());
        until("two waiting threads", || waiting(&gate).len() == 2);
        assert_eq!(asked.load(SeqCst), 0, "there is no answer yet");
        gate.answer();
        assert!(known.join().unwrap());
        until("one waiting thread", || waiting(&gate).len() == 1 && asked.load(SeqCst) == 2);
        assert_eq!(gate.inside(), super::Inside::default());
        // Who comes later finds the answers there.
        assert!(gate.ask(QUERY, || answered(true)).is_none());
        gate.open(ALL_HELD);
        assert!(unknown.join().unwrap());
    });
}

#[test]
fn waiting_leaves_errno_alone() {
    extern "C" fn count(_: libc::c_int) {
        SIGNALS.fetch_add(1, SeqCst);
    }
    static SIGNALS: AtomicU32 = AtomicU32::new(0);
    // SAFETY: all zeros is a valid value.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // No SA_RESTART: the wait is interrupted, and says so in errno.
    action.sa_sigaction = count as *const () as usize;
    // SAFETY: the handler only adds to an atomic.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) }, 0);
    let gate = Small::<8, 8>::new();
    gate.close(LAUNCHES_HELD).unwrap();
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            // SAFETY: takes nothing.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: the thread's own errno.
            unsafe { errno.write(77) };
            drop(gate.enter(LAUNCH, || false));
            io::Error::last_os_error().raw_os_error()
        });
        until("a waiting thread", || !waiting(&gate).is_empty());
        let (process, thread) = (process::id(), waiting(&gate)[0].0);
        until("some signals", || {
            // SAFETY: a thread of this process; the signal has a handler.
            unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR2) };
            SIGNALS.load(SeqCst) > 20
        });
        gate.open(ALL_HELD);
        assert_eq!(caller.join().unwrap(), Some(77));
    });
}

#[test]
fn slots_of_dead_threads_are_taken_over() {
    let gate = Small::<4, 4>::new();
    for _ in 0..200 {
        thread::scope(|scope| {
            scope.spawn(|| {
                drop(gate.enter(LAUNCH, || false));
                assert!((1..=4).contains(&Linux::with_local(|local| local.place.get())));
            });
        });
    }
    assert_eq!(gate.slots.used.load(SeqCst), 4);
}

#[test]
fn a_thread_that_died_inside_is_not_waited_for() {
    let gate = Small::<4, 4>::new();
    thread::scope(|scope| {
        scope.spawn(|| mem::forget(gate.enter(LAUNCH, || false)));
    });
    gate.close(LAUNCHES_HELD).unwrap();
    // The scope ends a little before the kernel's thread does.
    until("nobody inside", || gate.inside().launches == 0);
}

#[test]
fn a_forked_child_has_an_open_gate_and_can_close_it() {
    let gate = Small::<4, 4>::new();
    // With a count and a waiting thread that the child must not inherit.
    gate.close(LAUNCHES_HELD).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(gate.enter(LAUNCH, || false)));
        until("a waiting thread", || !waiting(&gate).is_empty());
        let outer = gate.enter(QUERY, || false);
        // SAFETY: the child makes system calls and touches its own memory only, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            gate.forked();
            let own_is_kept = gate.inside().answers == 1;
            drop(outer);
            let clean = gate.inside() == super::Inside::default() && waiting(&gate).is_empty();
            drop(gate.enter(LAUNCH, || false));
            let closes = gate.close(ALL_HELD).is_ok();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!(own_is_kept && clean && closes))) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        drop(outer);
        gate.open(ALL_HELD);
        assert_eq!((waited, status), (child, 0), "the child found something else");
    });
}
