//! Peers that ask for descriptors, seen from the asker.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use protocol::{
    AllocationId, Cause, FrameError, GateLevel, Phase, QuiesceRequest, Reason, Secret, Unreachable, VERSION,
    VerbKind, verbs,
};
use shim_core::control::{Descriptors, Limits};
use shim_core::peer::{self, PeerError};

use crate::fixture::{PATIENCE, SECRET, Target, own_pid};
use crate::remote::{Remote, Role};

static DESCRIPTORS: Descriptors = Descriptors::new();

const ALLOCATION: AllocationId = AllocationId(*b"sixteen bytes id");

fn in_time() -> Instant {
    Instant::now() + PATIENCE
}

fn export(pid: i32, secret: Secret, deadline: Instant) -> Result<OwnedFd, PeerError> {
    peer::export(pid, ALLOCATION, secret, deadline, &DESCRIPTORS)
}

fn contents(descriptor: OwnedFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::fs::File::from(descriptor).read_to_end(&mut bytes).expect("a pipe");
    bytes
}

fn cause(error: &PeerError) -> Option<Cause> {
    match error {
        PeerError::Failed { failure, .. } => Some(failure.cause),
        _ => None,
    }
}

fn reason(error: &PeerError) -> Option<Reason> {
    match error {
        PeerError::Unreachable(Unreachable { reason, .. }) => Some(*reason),
        _ => None,
    }
}

#[test]
fn a_ticket_holder_gets_the_descriptor_and_a_stranger_does_not() {
    let remote = Remote::start(Role::Server);
    assert_eq!(contents(export(remote.pid, SECRET, in_time()).expect("a descriptor")), ALLOCATION.0);
    let error = export(remote.pid, Secret([1; 16]), in_time()).expect_err("a wrong secret");
    assert_eq!(cause(&error), Some(Cause::Unknown), "{error}");
}

#[test]
fn a_request_waits_in_the_peer_until_its_phase_allows_it() {
    let mut remote = Remote::start(Role::Server);
    remote.tell("release");
    let pid = remote.pid;
    let asker = std::thread::spawn(move || contents(export(pid, SECRET, in_time()).expect("a descriptor")));
    let late =
        export(pid, SECRET, Instant::now() + Duration::from_millis(300)).expect_err("not in this phase");
    assert!(matches!(late, PeerError::TimedOut { pid: asked } if asked == pid), "{late}");
    assert_eq!(remote.tell("exports"), "0", "the operation is not called in this phase");
    assert!(!asker.is_finished());
    remote.tell("load");
    assert_eq!(asker.join().expect("no panic"), ALLOCATION.0);
}

/// In this process, so that what the operation answers can be scripted.
#[test]
fn whoever_is_told_not_now_asks_again_until_its_deadline() {
    let limits = Limits { park: Duration::from_millis(100), ..Limits::DEFAULT };
    let target = Target::start_as(own_pid(), limits);
    target.script.not_now.store(3, Ordering::SeqCst);
    assert_eq!(contents(export(own_pid(), SECRET, in_time()).expect("a descriptor")), ALLOCATION.0);
    assert_eq!(target.script.exports.load(Ordering::SeqCst), 4);

    target.phases.set(Phase::Released);
    let late = export(own_pid(), SECRET, Instant::now() + Duration::from_millis(350)).expect_err("not now");
    assert!(matches!(late, PeerError::TimedOut { pid } if pid == own_pid()), "{late}");

    // A request that is not answered in this phase is answered at once in the next, park or not.
    target.phases.set(Phase::Running);
    target.script.not_now.store(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| contents(export(own_pid(), SECRET, in_time()).expect("a descriptor")));
        target.phases.set(Phase::Quiescing);
        assert_eq!(asker.join().expect("no panic"), ALLOCATION.0);
    });

    // A verb under way is no obstacle.
    let (told, go) = target.script.hold();
    let mut client = target.client();
    let asked = client.send::<verbs::Quiesce>(&QuiesceRequest { level: GateLevel::Memory, wait_ms: 0 });
    assert_eq!(told.recv().expect("begun").verb(), VerbKind::Quiesce);
    assert_eq!(contents(export(own_pid(), SECRET, in_time()).expect("a descriptor")), ALLOCATION.0);
    go.send(()).expect("the worker waits");
    client.hear(asked).expect("quiet");
}

#[test]
fn a_name_that_nobody_serves_does_not_hide_the_one_that_is_served() {
    let mut remote = Remote::start(Role::StaleName);
    assert_eq!(remote.tell("name"), protocol::socket_name(remote.pid, 1));
    assert_eq!(contents(export(remote.pid, SECRET, in_time()).expect("a descriptor")), ALLOCATION.0);
    let error = export(remote.pid, Secret([0; 16]), in_time()).expect_err("a wrong secret");
    assert_eq!(cause(&error), Some(Cause::Unknown), "an answer counts, whoever else is silent: {error}");
}

#[test]
fn an_allocation_is_found_with_whoever_has_it() {
    let mut busy = Remote::start(Role::Server);
    let holder = Remote::start(Role::Server);
    let gone = Remote::start(Role::HangsUp);
    busy.tell("release");
    let (pid, descriptor) = peer::find(ALLOCATION, SECRET, in_time(), &DESCRIPTORS).expect("somebody has it");
    assert_eq!(contents(descriptor), ALLOCATION.0);
    assert_ne!(pid, busy.pid, "that one has to wait");
    assert_ne!(pid, gone.pid);
    drop(holder);
}

#[test]
fn a_process_that_is_gone_is_called_gone() {
    let mut remote = Remote::start(Role::Server);
    remote.kill();
    let error = export(remote.pid, SECRET, in_time()).expect_err("gone");
    assert_eq!(reason(&error), Some(Reason::NoProcess), "{error}");
}

#[test]
fn a_process_without_the_library_is_called_that() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
    let error = export(i32::try_from(child.id()).expect("a pid"), SECRET, in_time()).expect_err("no library");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(reason(&error), Some(Reason::NoShim), "{error}");
    assert!(error.to_string().contains("LD_PRELOAD"), "{error}");
}

#[test]
fn a_process_that_hangs_up_is_asked_again_and_then_named() {
    let remote = Remote::start(Role::HangsUp);
    let error = export(remote.pid, SECRET, in_time()).expect_err("no answer");
    assert!(matches!(error, PeerError::Closed { pid } if pid == remote.pid), "{error}");
}

#[test]
fn a_library_of_another_version_is_named_with_both_versions() {
    let remote = Remote::start(Role::OtherVersion);
    let error = export(remote.pid, SECRET, in_time()).expect_err("another version");
    let PeerError::Garbled { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source, &protocol::ExchangeError::Frame(FrameError::Version { theirs: 9, ours: VERSION }));
}

#[test]
fn a_name_taken_by_somebody_else_proves_nothing() {
    // The name says "this process", the socket says who it is.
    let impostor = Remote::start(Role::ParentsName);
    let error = export(own_pid(), Secret([9; 16]), in_time());
    // Where this process serves too (another test), that one answers; the impostor never sees the secret.
    assert!(error.is_err());
    let mut impostor = impostor;
    assert_eq!(impostor.tell("exports"), "0");
}
