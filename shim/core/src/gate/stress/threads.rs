//! What happens to threads: signals, their end, and forks.

use super::*;

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
            let clean = gate.inside() == Inside::default() && waiting(&gate).is_empty();
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
