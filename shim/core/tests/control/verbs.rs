//! Order and phases of the verbs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use protocol::{
    Cause, Extent, GateLevel, Held, HostLimits, InspectRequest, LoadExtent, LoadRequest, Phase, Progress,
    QuiesceRequest, ReleaseRequest, RemapReply, RemapRequest, ReopenReply, ReopenRequest, SaveTo,
    StageRequest, StepRequest, Turn, VerbKind, verbs,
};
use shim_core::control::Limits;

use crate::fixture::{Client, PATIENCE, Target};

const QUIESCE: QuiesceRequest = QuiesceRequest { level: GateLevel::Memory, wait_ms: 0, name_streams: false };
const CLOSE_LAUNCH: QuiesceRequest =
    QuiesceRequest { level: GateLevel::Launch, wait_ms: 0, name_streams: false };

fn release() -> ReleaseRequest {
    ReleaseRequest {
        extent: Extent::Drop,
        heir_of: Vec::new(),
        limits: HostLimits::default(),
        to: SaveTo::Memory,
    }
}

fn save() -> ReleaseRequest {
    ReleaseRequest { extent: Extent::Save, ..release() }
}

fn remap() -> RemapRequest {
    RemapRequest { sources: Vec::new(), wait_ms: 0, turn: Turn::Map }
}

#[test]
fn a_whole_cycle_moves_the_phase_verb_by_verb() {
    let target = Target::start(Limits::DEFAULT);
    let mut client = target.client();

    assert!(client.ask::<verbs::Quiesce>(&CLOSE_LAUNCH).expect("closed").drain.drained);
    assert_eq!(target.phases.get(), Phase::Quiescing, "only the first gate is closed");
    assert!(client.ask::<verbs::Quiesce>(&QUIESCE).expect("quiet").drain.drained);
    assert_eq!(target.phases.get(), Phase::Quiesced);
    client.ask::<verbs::Step>(&StepRequest { held: Held::One, wait_ms: 0 }).expect("a step");
    assert_eq!(target.phases.get(), Phase::Quiescing, "a step opens the memory gate");
    client.ask::<verbs::Quiesce>(&QUIESCE).expect("quiet again");
    client.ask::<verbs::Quiesce>(&CLOSE_LAUNCH).expect("a closed gate stays closed");
    assert_eq!(target.phases.get(), Phase::Quiesced);

    client.ask::<verbs::Release>(&save()).expect("saved");
    assert_eq!(target.phases.get(), Phase::Quiesced, "nothing was dropped");
    assert_eq!(client.ask::<verbs::Release>(&release()).expect("released").mappings, 3);
    assert_eq!(target.phases.get(), Phase::Released);
    client.ask::<verbs::Release>(&release()).expect("a repeated verb is allowed");
    client.ask::<verbs::Release>(&save()).expect("saving again is allowed");
    assert_eq!(target.phases.get(), Phase::Released);
    client.ask::<verbs::Stage>(&StageRequest::default()).expect("staged");
    assert_eq!(target.phases.get(), Phase::Released);
    let make = LoadRequest { extent: LoadExtent::Make, ..LoadRequest::default() };
    client.ask::<verbs::Load>(&make).expect("made");
    assert_eq!(target.phases.get(), Phase::Released, "nothing was filled");
    assert_eq!(client.ask::<verbs::Load>(&LoadRequest::default()).expect("loaded").mappings, 4);
    assert_eq!(target.phases.get(), Phase::Loaded);
    for turn in [Turn::Join, Turn::Bind] {
        client.ask::<verbs::Remap>(&RemapRequest { turn, ..remap() }).expect("stops for others");
        assert_eq!(target.phases.get(), Phase::Loaded);
    }
    assert_eq!(client.ask::<verbs::Remap>(&remap()), Ok(RemapReply { imports: 5, mappings: 6 }));
    assert_eq!(target.phases.get(), Phase::Remapped);
    assert_eq!(client.ask::<verbs::Reopen>(&ReopenRequest {}), Ok(ReopenReply { waiting: 7 }));
    assert_eq!(target.phases.get(), Phase::Running);
}

#[test]
fn a_verb_in_the_wrong_phase_is_told_which_phase_it_needs() {
    let target = Target::start(Limits::DEFAULT);
    let failure =
        target.client().ask::<verbs::Load>(&LoadRequest::default()).expect_err("nothing was released");
    assert_eq!((failure.cause, failure.phase), (Cause::WrongPhase, Phase::Running));
    let pid = std::process::id();
    assert_eq!(
        failure.message,
        format!("process {pid} is running; load is for a process that is released or loaded")
    );
    assert_eq!(target.script.changes.load(Ordering::SeqCst), 0, "the operation was not called");
}

#[test]
fn a_quiesce_that_does_not_drain_is_not_quiesced() {
    let target = Target::start(Limits::DEFAULT);
    target.script.undrained.store(true, Ordering::SeqCst);
    let reply = target.client().ask::<verbs::Quiesce>(&QUIESCE).expect("an answer");
    assert!(!reply.drain.drained);
    assert_eq!(target.phases.get(), Phase::Quiescing);
}

#[test]
fn a_quiesce_that_fails_leaves_what_reopen_undoes() {
    let target = Target::start(Limits::DEFAULT);
    target.script.fails.store(true, Ordering::SeqCst);
    let failure = target.client().ask::<verbs::Quiesce>(&QUIESCE).expect_err("scripted");
    assert_eq!((failure.cause, failure.phase), (Cause::Driver(2), Phase::Quiescing));
    target.script.fails.store(false, Ordering::SeqCst);
    target.client().ask::<verbs::Reopen>(&ReopenRequest {}).expect("reopened");
    assert_eq!(target.phases.get(), Phase::Running);
}

#[test]
fn a_release_that_fails_stays_in_the_phase_that_it_set_itself() {
    let target = Target::start(Limits::DEFAULT);
    let mut client = target.client();
    client.ask::<verbs::Quiesce>(&QUIESCE).expect("quiet");
    target.script.fails.store(true, Ordering::SeqCst);
    let early = client.ask::<verbs::Release>(&release()).expect_err("scripted");
    assert_eq!(early.phase, Phase::Quiesced, "nothing was dropped");
    // As the operation does just before it drops the first object.
    let (told, go) = target.script.hold();
    let asked = client.send::<verbs::Release>(&release());
    told.recv().expect("begun");
    target.phases.set(Phase::Released);
    go.send(()).expect("the worker waits");
    let late = client.hear(asked).expect_err("scripted");
    assert_eq!(late.phase, Phase::Released);
}

#[test]
fn the_second_verb_is_told_which_one_is_under_way() {
    let target = Target::start(Limits::DEFAULT);
    let (told, go) = target.script.hold();
    let mut first = target.client();
    let asked = first.send::<verbs::Quiesce>(&QUIESCE);
    told.recv().expect("begun");

    let failure = target.client().ask::<verbs::Reopen>(&ReopenRequest {}).expect_err("busy");
    assert_eq!(failure.cause, Cause::Busy);
    assert!(failure.message.contains("busy with quiesce"), "{}", failure.message);
    assert_eq!(target.script.changes.load(Ordering::SeqCst), 1);

    go.send(()).expect("the worker waits");
    first.hear(asked).expect("quiet");
}

#[test]
fn inspect_is_answered_while_a_verb_runs() {
    let target = Target::start(Limits::DEFAULT);
    let (told, go) = target.script.hold();
    let mut first = target.client();
    let asked = first.send::<verbs::Quiesce>(&QUIESCE);
    told.recv().expect("begun");

    target.assert_serves();
    assert_eq!(target.phases.progress(), Some(Progress { verb: VerbKind::Quiesce, bytes: 40, total: 100 }));
    assert_eq!(target.phases.get(), Phase::Quiescing, "shown from the beginning");
    go.send(()).expect("the worker waits");
    first.hear(asked).expect("quiet");
    assert_eq!(target.phases.progress(), None);
}

#[test]
fn a_verb_whose_asker_is_gone_is_carried_out_to_its_end() {
    let target = Target::start(Limits::DEFAULT);
    let (told, go) = target.script.hold();
    let mut asker = target.client();
    drop(asker.send::<verbs::Quiesce>(&QUIESCE));
    told.recv().expect("begun");
    drop(asker);
    target.assert_serves();
    go.send(()).expect("the worker waits");
    drop(go);

    // The next verb is begun only once the first is done; until then it is "busy".
    let mut next = target.client();
    while next.ask::<verbs::Release>(&release()).is_err_and(|failure| failure.cause == Cause::Busy) {
        std::thread::yield_now();
    }
    assert_eq!(told.recv().map(|request| request.verb()), Ok(VerbKind::Release), "quiesce led here");
}

#[test]
fn a_panic_in_a_verb_is_told_and_ends_all_that_change_something() {
    let target = Target::start(Limits::DEFAULT);
    let mut client = target.client();
    client.ask::<verbs::Quiesce>(&QUIESCE).expect("quiet");
    target.script.panics.store(true, Ordering::SeqCst);
    let failure = client.ask::<verbs::Release>(&release()).expect_err("a panic");
    assert_eq!((failure.cause, failure.phase), (Cause::Poisoned, Phase::Quiesced));
    assert!(failure.message.contains("internal error"), "{}", failure.message);

    target.script.panics.store(false, Ordering::SeqCst);
    let before = target.script.changes.load(Ordering::SeqCst);
    let failure = client.ask::<verbs::Release>(&release()).expect_err("poisoned");
    assert_eq!(failure.cause, Cause::Poisoned);
    assert_eq!(target.script.changes.load(Ordering::SeqCst), before, "not even begun");
    client.ask::<verbs::Inspect>(&InspectRequest { allocations: false }).expect("inspect still answers");
    client.ask::<verbs::Reopen>(&ReopenRequest {}).expect("nothing was dropped, so the program is let go");
    assert_eq!(target.phases.get(), Phase::Running);
}

#[test]
fn a_poisoned_process_that_was_taken_apart_is_not_let_go() {
    let target = Target::start(Limits::DEFAULT);
    target.phases.set(Phase::Remapped);
    target.script.poisoned.store(true, Ordering::SeqCst);
    let failure = target.client().ask::<verbs::Reopen>(&ReopenRequest {}).expect_err("poisoned");
    assert_eq!(failure.cause, Cause::Poisoned);
}

#[test]
fn an_idle_worker_looks_after_things_while_the_process_runs_and_only_then() {
    let soon = Duration::from_millis(5);
    let target = Target::start(Limits { tend: soon, tend_again: soon, ..Limits::DEFAULT });
    let tended = || target.script.tended.load(Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while tended() < 3 {
        assert!(Instant::now() < deadline, "tended {} times", tended());
        std::thread::yield_now();
    }
    // The verb runs on the same thread, so it is over when the answer is here.
    target.client().ask::<verbs::Quiesce>(&QUIESCE).expect("quiet");
    let (before, rests) = (tended(), target.script.rests());
    target.client().ask::<verbs::Quiesce>(&QUIESCE).expect("quiet");
    let deadline = Instant::now() + PATIENCE;
    while target.script.rests() < rests + 10 {
        assert!(Instant::now() < deadline, "it does not rest");
        std::thread::yield_now();
    }
    assert_eq!(tended(), before, "not while it is quiesced");
}

#[test]
fn a_verb_whose_asker_was_gone_before_it_was_read_is_not_begun() {
    let target = Target::start(Limits::DEFAULT);
    let name = target.name.clone();
    // It comes and goes while the server is busy with another.
    *target.script.during_inspect.lock().expect("not poisoned") = Some(Box::new(move || {
        Client::connect(&name).send::<verbs::Quiesce>(&QUIESCE);
    }));
    target.assert_serves();
    let mut client = target.client();
    client.ask::<verbs::Inspect>(&InspectRequest { allocations: true }).expect("served");
    assert_eq!(target.phases.get(), Phase::Running);
    // One that has only ended its writing is there still.
    let mut patient = target.client();
    let exchange = patient.send::<verbs::Quiesce>(&QUIESCE);
    patient.end_writing();
    patient.hear(exchange).expect("quiesced");
    assert_eq!(target.script.changes.load(Ordering::SeqCst), 1, "the other was not carried out");
}
