//! Clients that mean harm, and clients that are merely slow.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use protocol::{
    AllocationId, Cause, ExportRequest, FrameKind, GateLevel, Header, InspectRequest, LoadRequest, MAGIC,
    QuiesceRequest, REQUEST_LIMIT, VERSION, VerbKind, verbs,
};
use shim_core::control::{Limits, socket};

use crate::fixture::{Client, PATIENCE, SECRET, Target, in_child, is_root, unasked_failure};
use crate::remote::{Remote, Role};

const ALL: InspectRequest = InspectRequest { allocations: true };
const LONG: InspectRequest = InspectRequest { allocations: false };
/// Long enough for a client that the scheduler forgets for a while.
const SHORT: Duration = Duration::from_secs(2);

fn header(verb: u8, length: u32) -> [u8; Header::LEN] {
    Header { verb, kind: FrameKind::Request, id: 1, length }.encode()
}

#[test]
fn another_user_is_told_who_is_served_and_let_go() {
    if !is_root() {
        return;
    }
    let target = Target::start(Limits::DEFAULT);
    let bytes = in_child(|out| {
        // SAFETY: numbers only; the raw call changes this thread, which is the only one.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
        out.write_all(&Client::connect(&target.name).read_to_close()).expect("a pipe");
    });
    let failure = unasked_failure(&bytes);
    assert_eq!(failure.cause, Cause::Refused);
    let pid = std::process::id();
    assert_eq!(
        failure.message,
        format!(
            "process {pid}: this process serves root and user 0, not user 65534: run the command as one of them"
        )
    );
    target.assert_serves();
    assert!(target.script.notes().iter().any(|note| note.contains("of user 65534")), "it is on record");
}

#[test]
fn a_process_of_a_pid_namespace_below_is_refused_even_as_root() {
    if !is_root() {
        return;
    }
    let target = Target::start(Limits::DEFAULT);
    let bytes = in_child(|out| {
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
        out.write_all(&in_child(|out| {
            out.write_all(&Client::connect(&target.name).read_to_close()).expect("a pipe");
        }))
        .expect("a pipe");
    });
    let failure = unasked_failure(&bytes);
    assert_eq!(failure.cause, Cause::Refused);
    assert!(failure.message.contains("its own pid namespace only"), "{}", failure.message);
    target.assert_serves();
}

#[test]
fn a_process_without_a_pid_here_is_refused_even_as_root() {
    if !is_root() {
        return;
    }
    // The server goes below, so that this process has no pid there.
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (stay, leave) = std::io::pipe().expect("a pipe");
    // SAFETY: as in `in_child`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(leave);
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
        in_child(|_| {
            let target = Target::start(Limits::DEFAULT);
            writeln!(writer, "{}", target.name).expect("a pipe");
            let mut stay = stay;
            stay.read_to_end(&mut Vec::new()).expect("a pipe");
        });
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut name = String::new();
    BufReader::new(reader).read_line(&mut name).expect("text");
    let bytes = Client::connect(name.trim_end()).read_to_close();
    drop(leave);
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    let failure = unasked_failure(&bytes);
    assert_eq!(failure.cause, Cause::Refused);
    assert!(failure.message.contains("its own pid namespace only"), "{}", failure.message);
}

#[test]
fn half_a_message_holds_up_nobody_and_is_dropped_in_time() {
    let target = Target::start(Limits { receive: SHORT, ..Limits::DEFAULT });
    let mut halves: Vec<Client> = Vec::new();
    for cut in [0, 1, 8, Header::LEN, Header::LEN + 50] {
        let mut client = target.client();
        let bytes = [header(VerbKind::Inspect as u8, 100).as_slice(), &[0; 50]].concat();
        client.stream.write_all(&bytes[..cut]).expect("it reads");
        target.assert_serves();
        halves.push(client);
    }
    let began = Instant::now();
    for mut client in halves {
        assert_eq!(client.read_to_close(), b"", "closed, without a word");
    }
    assert!(began.elapsed() < PATIENCE / 2);
    target.assert_serves();
}

#[test]
fn a_client_that_has_asked_once_may_be_silent_for_longer() {
    let target = Target::start(Limits { receive: SHORT, ..Limits::DEFAULT });
    let mut client = target.client();
    client.ask::<verbs::Inspect>(&ALL).expect("served");
    // Once this one is gone, the time is up for whoever is measured by it.
    assert_eq!(target.client().read_to_close(), b"");
    client.ask::<verbs::Inspect>(&ALL).expect("still served");
    client.stream.write_all(&header(1, 4)[..3]).expect("it reads");
    assert_eq!(client.read_to_close(), b"", "but half a message has its time");
}

#[test]
fn a_length_of_a_gibibyte_is_refused_unread() {
    let target = Target::start(Limits::DEFAULT);
    let mut client = target.client();
    client.stream.write_all(&header(VerbKind::Release as u8, 1 << 30)).expect("it reads");
    let failure = unasked_failure(&client.read_to_close());
    assert_eq!(failure.cause, Cause::BadRequest);
    let limit = format!("a message of {} bytes is over the limit of {REQUEST_LIMIT}", 1 << 30);
    assert!(failure.message.contains(&limit), "{}", failure.message);
    target.assert_serves();
}

#[test]
fn another_version_is_answered_with_both_versions() {
    let target = Target::start(Limits::DEFAULT);
    let mut client = target.client();
    let mut bytes = header(VerbKind::Inspect as u8, 4);
    bytes[4] = 200;
    client.stream.write_all(&bytes).expect("it reads");
    let failure = unasked_failure(&client.read_to_close());
    assert_eq!(failure.cause, Cause::Version);
    let text = failure.message;
    assert!(text.contains("version 200") && text.contains(&format!("version {VERSION}")), "{text}");
}

#[test]
fn an_unknown_verb_and_an_unreadable_body_are_answered_and_the_connection_goes_on() {
    let target = Target::start(Limits::DEFAULT);
    let mut client = target.client();
    let asked = client.send::<verbs::Load>(&LoadRequest::default());
    assert_eq!(client.hear(asked).expect_err("running").cause, Cause::WrongPhase);

    for (verb, body, words) in
        [(77, &[][..], "no verb number 77"), (VerbKind::Quiesce as u8, &[9, 9][..], "message for quiesce")]
    {
        let length = u32::try_from(body.len()).expect("short");
        client.stream.write_all(&header(verb, length)).expect("it reads");
        client.stream.write_all(body).expect("it reads");
        let mut bytes = [0; Header::LEN];
        client.stream.read_exact(&mut bytes).expect("an answer");
        let answer = Header::decode(bytes, protocol::Side::Client).expect("a sound header");
        assert_eq!((answer.kind, answer.verb, answer.id), (FrameKind::Failure, verb, 1));
        let mut body = vec![0; answer.length as usize];
        client.stream.read_exact(&mut body).expect("a body");
        let failure = protocol::decode_failure(&body).expect("a failure");
        assert_eq!(failure.cause, Cause::BadRequest);
        assert!(failure.message.contains(words), "{}", failure.message);
    }
    client.ask::<verbs::Inspect>(&ALL).expect("the connection is sound");
}

#[test]
fn a_hundred_idle_connections_keep_nobody_out() {
    let mut remote = Remote::start(Role::Server);
    let name = remote.tell("name");
    let mut descriptors = || -> usize { remote.tell("descriptors").parse().expect("a number") };
    let before = descriptors();
    let mut first = Client::connect(&name);
    first.ask::<verbs::Inspect>(&ALL).expect("served");
    let idle: Vec<Client> = (0..100).map(|_| Client::connect(&name)).collect();
    let began = Instant::now();
    Client::connect(&name).ask::<verbs::Inspect>(&ALL).expect("served");
    assert!(began.elapsed() < PATIENCE / 4, "took {:?}", began.elapsed());
    first.ask::<verbs::Inspect>(&ALL).expect("one that has asked is not the first to go");
    let held = descriptors() - before;
    assert!(held <= Limits::DEFAULT.connections, "{held} connections are held");
    drop(idle);
}

#[test]
fn a_client_that_is_gone_is_let_go_while_its_verb_is_carried_out() {
    let mut remote = Remote::start(Role::Server);
    let name = remote.tell("name");
    remote.tell("hold");
    let mut descriptors = || -> usize { remote.tell("descriptors").parse().expect("a number") };
    let before = descriptors();
    let mut asker = Client::connect(&name);
    let quiesce = QuiesceRequest { level: GateLevel::Memory, wait_ms: 0, name_streams: false };
    drop(asker.send::<verbs::Quiesce>(&quiesce));
    let busy = || Client::connect(&name).ask::<verbs::Quiesce>(&quiesce).expect_err("busy").cause;
    assert_eq!(busy(), Cause::Busy);
    drop(asker);
    // One for the client that asks meanwhile and may not have been let go yet.
    let deadline = Instant::now() + PATIENCE;
    while descriptors() > before {
        assert!(Instant::now() < deadline, "its connection is kept");
    }
    assert_eq!(busy(), Cause::Busy, "and its verb goes on");
}

#[test]
fn garbage_is_answered_once_and_harms_nobody() {
    let target = Target::start(Limits::DEFAULT);
    // A fixed sequence with no pattern.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let mut client = target.client();
        let mut bytes: Vec<u8> = (0..random() % 600).map(|_| random().to_le_bytes()[0]).collect();
        if round % 3 == 0 {
            // Sound headers with garbage behind them.
            let length = u32::try_from(bytes.len()).expect("short");
            let verb = (random() % 11).to_le_bytes()[0];
            bytes.splice(0..0, header(verb, length));
            assert_eq!(bytes[..4], MAGIC);
        }
        // The server may have closed already.
        drop(client.stream.write_all(&bytes));
        client.stream.shutdown(std::net::Shutdown::Write).ok();
        client.read_to_close();
    }
    target.assert_serves();
    assert!(!target.script.poisoned.load(Ordering::SeqCst), "no panic");
}

#[test]
fn a_slow_writer_is_served_when_it_is_done_and_others_meanwhile() {
    let target = Target::start(Limits::DEFAULT);
    let mut slow = target.client();
    let exchange = protocol::Exchange::<verbs::Inspect>::new(5, &ALL).expect("small");
    for byte in exchange.unsent() {
        slow.stream.write_all(&[*byte]).expect("it reads");
        target.assert_serves();
    }
    assert!(slow.hear(exchange).expect("an inventory").poisoned);
}

#[test]
fn a_client_that_does_not_read_its_answer_holds_up_nobody_and_is_dropped_in_time() {
    let target = Target::start(Limits { send: SHORT, unsent: 4 << 20, ..Limits::DEFAULT });
    target.script.long_inventory.store(8 << 20, Ordering::Relaxed);
    let mut deaf = target.client();
    deaf.send::<verbs::Inspect>(&LONG);
    // The first byte is there, so the answer is written as far as it goes.
    deaf.stream.read_exact(&mut [0]).expect("an answer has begun");

    let failure = target.client().ask::<verbs::Inspect>(&ALL).expect_err("too much is waiting");
    assert_eq!(failure.cause, Cause::Busy);
    assert!(failure.message.contains("wait to be read by others"), "{}", failure.message);
    let failure = target.client().ask::<verbs::Load>(&LoadRequest::default()).expect_err("running");
    assert_eq!(failure.cause, Cause::WrongPhase, "what is short is answered");

    // Once the deaf one is dropped everything is as before. It gets what was in the socket, and the end.
    let deadline = Instant::now() + PATIENCE;
    while target.client().ask::<verbs::Inspect>(&ALL).is_err() {
        assert!(Instant::now() < deadline, "never dropped");
        std::thread::yield_now();
    }
    assert!(deaf.read_to_close().len() < 8 << 20, "not all of it came");
}

#[test]
fn a_long_answer_arrives_whole_at_a_slow_reader() {
    let target = Target::start(Limits { send: PATIENCE, ..Limits::DEFAULT });
    target.script.long_inventory.store(8 << 20, Ordering::Relaxed);
    let mut slow = target.client();
    let asked = slow.send::<verbs::Inspect>(&LONG);
    target.assert_serves();
    assert_eq!(slow.hear(asked).expect("an inventory").shim_version.len(), 8 << 20);
}

#[test]
fn requests_sent_without_waiting_are_answered_in_order() {
    let target = Target::start(Limits::DEFAULT);
    let mut client = target.client();
    let asked: Vec<_> = (0..50).map(|_| client.send::<verbs::Inspect>(&ALL)).collect();
    for exchange in asked {
        client.hear(exchange).expect("answered");
    }
}

#[test]
fn descriptors_that_nobody_asked_for_are_dropped() {
    let target = Target::start(Limits::DEFAULT);
    let client = target.client();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let reader = OwnedFd::from(reader);
    let exchange = protocol::Exchange::<verbs::Inspect>::new(1, &ALL).expect("small");
    let count = socket::send(client.stream.as_fd(), exchange.unsent(), Some(reader.as_fd())).expect("sent");
    assert_eq!(count, exchange.unsent().len());
    drop(reader);
    let mut client = client;
    client.hear(exchange).expect("answered");
    // Had the server kept the reading end, there would be no error.
    let mut writer = writer;
    assert_eq!(writer.write(b"x").expect_err("nobody reads").kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_client_that_hangs_up_at_any_point_leaves_nothing_behind() {
    let target = Target::start(Limits::DEFAULT);
    let exchange = protocol::Exchange::<verbs::Inspect>::new(1, &ALL).expect("small");
    for cut in 0..=exchange.unsent().len() {
        let mut client = target.client();
        client.stream.write_all(&exchange.unsent()[..cut]).expect("it reads");
        drop(client);
    }
    target.assert_serves();
}

#[test]
fn a_client_that_hangs_up_as_its_answer_comes_costs_no_other_its_own() {
    let target = Target::start(Limits::DEFAULT);
    let asked = ExportRequest { allocation: AllocationId([1; 16]), secret: SECRET };
    let (told, exporting) = channel();
    let (go_on, gate) = channel::<()>();
    *target.script.before_export.lock().expect("not poisoned") = Some(Box::new(move || {
        told.send(()).expect("the test listens");
        gate.recv_timeout(PATIENCE).expect("the test says so");
    }));
    let mut leaving = target.client();
    leaving.send::<verbs::Export>(&asked);
    exporting.recv_timeout(PATIENCE).expect("it is being carried out");
    let (changing, end) = target.script.hold();
    let mut staying = target.client();
    let quiesce = staying.send::<verbs::Quiesce>(&QuiesceRequest {
        level: GateLevel::Launch,
        wait_ms: 0,
        name_streams: false,
    });
    changing.recv_timeout(PATIENCE).expect("it is being carried out");
    let mut next = target.client();
    let second = next.send::<verbs::Export>(&asked);
    // Nobody is served meanwhile, so that the server learns of all this at once.
    let script = target.script;
    *script.during_inspect.lock().expect("not poisoned") = Some(Box::new(move || {
        drop(leaving);
        go_on.send(()).expect("the export waits");
        let deadline = Instant::now() + PATIENCE;
        while script.exports.load(Ordering::SeqCst) < 2 {
            assert!(Instant::now() < deadline, "the first export did not end");
            std::thread::yield_now();
        }
    }));
    target.assert_serves();
    next.hear(second).expect("a descriptor");
    end.send(()).expect("the change waits");
    staying.hear(quiesce).expect("quiesced");
}
