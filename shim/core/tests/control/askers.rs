//! Peers that ask for descriptors, seen from the asker.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use protocol::{
    AllocationId, Cause, ExportRequest, FrameError, GateLevel, InspectRequest, Phase, QuiesceRequest, Reason,
    Secret, Unreachable, VERSION, VerbKind, verbs,
};
use shim_core::control::{Descriptors, Limits};
use shim_core::peer::{self, PeerError};

use crate::fixture::{Client, PATIENCE, SECRET, Target, in_child, is_root, own_pid};
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

#[test]
fn who_asks_a_peer_for_what_it_does_not_have_is_told_so_in_every_phase() {
    let mut remote = Remote::start(Role::Server);
    remote.tell("release");
    let error = export(remote.pid, Secret([1; 16]), in_time()).expect_err("a wrong secret");
    assert_eq!(cause(&error), Some(Cause::Unknown), "{error}");
    assert_eq!(remote.tell("exports"), "0", "the operation is not called in this phase");
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

    // A verb under way is no obstacle.
    target.phases.set(Phase::Running);
    let (told, go) = target.script.hold();
    let mut client = target.client();
    let asked = client.send::<verbs::Quiesce>(&QuiesceRequest {
        level: GateLevel::Memory,
        wait_ms: 0,
        name_streams: false,
    });
    assert_eq!(told.recv().expect("begun").verb(), VerbKind::Quiesce);
    assert_eq!(contents(export(own_pid(), SECRET, in_time()).expect("a descriptor")), ALLOCATION.0);
    go.send(()).expect("the worker waits");
    client.hear(asked).expect("quiet");
}

#[test]
fn a_phase_that_changes_while_a_peer_is_being_told_not_now_is_not_missed() {
    let target = Target::start(Limits { park: PATIENCE * 10, ..Limits::DEFAULT });
    target.script.not_now.store(1, Ordering::SeqCst);
    let (phases, name) = (target.phases, target.name.clone());
    *target.script.before_export.lock().expect("not poisoned") = Some(Box::new(move || {
        phases.set(Phase::Quiescing);
        // Once this is answered, the control thread has looked at what was parked, and found nothing.
        Client::connect(&name).ask::<verbs::Inspect>(&InspectRequest { allocations: true }).expect("served");
    }));
    let request = ExportRequest { allocation: ALLOCATION, secret: SECRET };
    assert_eq!(target.client().ask::<verbs::Export>(&request).expect("in the new phase").size, 16);
    assert_eq!(target.script.exports.load(Ordering::SeqCst), 2);
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
    let rude = Remote::start(Role::HangsUp);
    busy.tell("release");
    let (pid, descriptor) = peer::find(ALLOCATION, SECRET, in_time(), &DESCRIPTORS).expect("somebody has it");
    assert_eq!(contents(descriptor), ALLOCATION.0);
    assert_ne!(pid, busy.pid, "that one has to wait");
    assert_ne!(pid, rude.pid);
    drop(holder);
}

#[test]
fn a_no_of_one_process_does_not_end_the_search() {
    let mut holder = Remote::start(Role::Server);
    let mut stranger = Remote::start(Role::Server);
    stranger.tell("know nothing");
    // A secret of this test's own, so that no other test's server has an answer.
    let secret = Secret([33; 16]);
    holder.tell("release");
    holder.tell("know 33");
    let search = std::thread::spawn(move || peer::find(ALLOCATION, secret, in_time(), &DESCRIPTORS));
    while stranger.tell("exports") == "0" {
        std::thread::yield_now();
    }
    holder.tell("load");
    let (pid, descriptor) = search.join().expect("no panic").expect("the holder has it");
    assert_eq!((pid, contents(descriptor)), (holder.pid, ALLOCATION.0.to_vec()));
}

#[test]
fn a_process_that_is_gone_is_called_gone() {
    let mut remote = Remote::start(Role::Server);
    remote.kill();
    let error = export(remote.pid, SECRET, in_time()).expect_err("gone");
    assert_eq!(reason(&error), Some(Reason::NoProcess), "{error}");
}

#[test]
fn a_dead_process_that_nobody_has_waited_for_is_called_gone() {
    let mut child = std::process::Command::new("true").spawn().expect("a process");
    let pid = i32::try_from(child.id()).expect("a pid");
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("nobody has waited");
    while !stat().contains(") Z ") {
        std::thread::yield_now();
    }
    let error = export(pid, SECRET, in_time()).expect_err("gone");
    child.wait().expect("it ended");
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
    let mut remote = Remote::start(Role::HangsUp);
    let error = export(remote.pid, SECRET, in_time()).expect_err("no answer");
    assert!(matches!(error, PeerError::Closed { pid } if pid == remote.pid), "{error}");
    let visits: u32 = remote.tell("visits").parse().expect("a number");
    assert!(visits >= 3, "asked {visits} times");
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

#[test]
fn a_process_in_another_network_namespace_is_called_that() {
    if !is_root() {
        return;
    }
    let remote = Remote::start(Role::Server);
    let text = in_child(|out| {
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        let error = export(remote.pid, SECRET, in_time()).expect_err("its socket cannot be seen");
        write!(out, "{error}").expect("a pipe");
    });
    let text = String::from_utf8(text).expect("text");
    let pid = remote.pid;
    assert!(text.starts_with(&format!("process {pid} lives in another network namespace")), "{text}");
    assert!(text.contains(&format!("nsenter --target {pid} --net")), "{text}");
}
