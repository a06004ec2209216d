//! What a server leaves to children, to the next image, and to a program that closes everything.

use std::time::Instant;

use protocol::{AllocationId, InspectRequest, socket_name, verbs};
use shim_core::control::Limits;

use crate::fixture::{Client, PATIENCE, Target, own_pid};
use crate::remote::{Remote, Role};

fn serves(name: &str) -> bool {
    Client::connect(name).ask::<verbs::Inspect>(&InspectRequest { allocations: true }).is_ok()
}

#[test]
fn its_threads_are_named_and_block_every_signal() {
    let target = Target::start(Limits::DEFAULT);
    target.assert_serves();
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").expect("proc").flatten() {
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let Some(name) = field("Name:").filter(|name| name.starts_with("nvsnap-")) else { continue };
        let blocked = u64::from_str_radix(field("SigBlk:").expect("a mask"), 16).expect("hex");
        // All but SIGKILL and SIGSTOP, which nobody blocks, and the two that the C library keeps for itself.
        let unblockable = [9_u32, 19, 32, 33].into_iter().fold(0, |mask, signal| mask | 1 << (signal - 1));
        assert_eq!(blocked | unblockable, u64::MAX, "{name} takes signals");
        found.push(name.to_owned());
    }
    for name in ["nvsnap-ctl", "nvsnap-work", "nvsnap-peer"] {
        assert!(found.iter().any(|known| known == name), "{name} is not among {found:?}");
    }
}

#[test]
fn starting_it_leaves_the_callers_signal_mask_as_it_was() {
    let mask = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("proc");
        status.lines().find(|line| line.starts_with("SigBlk:")).map(str::to_owned)
    };
    let before = mask();
    Target::start(Limits::DEFAULT).assert_serves();
    assert_eq!(mask(), before);
}

#[test]
fn equal_pids_get_names_with_suffixes() {
    let pid = (1 << 29) + own_pid();
    for suffix in 0..3 {
        let target = Target::start_as(pid, Limits::DEFAULT);
        assert_eq!(target.name, socket_name(pid, suffix));
        target.assert_serves();
    }
}

#[test]
fn a_forked_child_closes_what_it_inherited() {
    let mut remote = Remote::start(Role::Server);
    let name = remote.tell("name");
    let mut connected = Client::connect(&name);
    connected.ask::<verbs::Inspect>(&InspectRequest { allocations: true }).expect("served");
    assert_eq!(remote.tell("fork"), "0", "sockets and pipes in the child");
    assert!(serves(&name), "the parent goes on");

    // The child lives; with its parent gone the name is free, and the connection is at its end.
    remote.kill();
    assert_eq!(connected.read_to_close(), b"");
    assert!(shim_core::control::socket::listen(&name).is_ok(), "nobody holds the name");
}

#[test]
fn without_the_handler_a_child_would_keep_them() {
    // Shows that the test above sees what it looks for: listener, two pipe ends.
    let mut remote = Remote::start(Role::Server);
    assert_eq!(remote.tell("fork behind our back"), "3");
}

#[test]
fn after_an_exec_the_name_is_free_for_the_new_image() {
    let mut remote = Remote::start(Role::Server);
    let name = remote.tell("name");
    for _ in 0..2 {
        let mut connected = Client::connect(&name);
        connected.ask::<verbs::Inspect>(&InspectRequest { allocations: true }).expect("served");
        assert_eq!(remote.tell("exec"), "ready");
        assert_eq!(connected.read_to_close(), b"", "the new image has no copy of the connection");
        assert_eq!(remote.tell("name"), name, "the same name, with no suffix");
        assert!(serves(&name));
    }
}

#[test]
fn a_program_that_closes_everything_is_served_again_and_keeps_its_own_files() {
    let mut remote = Remote::start(Role::Server);
    let name = remote.tell("name");
    assert!(serves(&name));
    remote.tell("close everything");
    remote.tell("take all numbers");

    // The thread finds out when somebody comes; whoever that is has to come again.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let export = shim_core::peer::export(
            remote.pid,
            AllocationId([1; 16]),
            crate::fixture::SECRET,
            deadline,
            &DESCRIPTORS,
        );
        if export.is_ok() {
            break;
        }
        assert!(Instant::now() < deadline, "{}", export.expect_err("not served"));
    }
    assert_eq!(remote.tell("count zeros"), "64", "none of the program's files was closed");
    let notes = remote.tell("notes");
    assert!(notes.contains("the control socket was lost; listening on @"), "{notes}");
}

static DESCRIPTORS: shim_core::control::Descriptors = shim_core::control::Descriptors::new();
