//! What is held by which leaf, who waits and how it is let through.

use super::*;

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
            assert_eq!(gate.inside(), Inside::default());
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
        assert_eq!(gate.inside(), Inside::default());
        // Who comes later finds the answers there.
        assert!(gate.ask(QUERY, || answered(true)).is_none());
        gate.open(ALL_HELD);
        assert!(unknown.join().unwrap());
    });
}
