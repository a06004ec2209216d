//! Requests over real sockets. The process that is asked is this one: it listens under its own number.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use protocol::verbs::{Inspect, Load, Reopen};
use protocol::{
    Cause, Decoder, Failure, Frame, FrameError, Inventory, Phase, Progress, Reason, ReopenReply,
    ReopenRequest, Reply, Request, Side, Transferred, Unreachable, VerbKind, socket_name,
};

use super::*;
use crate::pid::Pid;
use crate::proc::ProcFs;

/// Listens under the number of a process.
fn listen_under(pid: i32) -> UnixListener {
    let address = SocketAddr::from_abstract_name(socket_name(pid, 0)).unwrap();
    UnixListener::bind_addr(&address).unwrap()
}

/// Serves every connection under one's own number with `serve`, each on a thread of its own.
fn serve(serve: impl Fn(UnixStream) + Send + Sync + Clone + 'static) {
    let listener = listen_under(own());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
}

fn own() -> i32 {
    std::process::id().cast_signed()
}

fn target(pid: i32) -> Target {
    ProcFs::default().target(Pid::new(pid).unwrap()).unwrap()
}

fn sockets() -> Sockets {
    Sockets::new(ProcFs::default())
}

fn read_request(stream: &mut UnixStream) -> Option<Frame> {
    let mut decoder = Decoder::new(Side::Server);
    let mut byte = [0];
    while stream.read(&mut byte).ok()? == 1 {
        if let Some(frame) = decoder.feed(&mut &byte[..]).ok()? {
            return Some(frame);
        }
    }
    None
}

fn reopen(limit: Duration) -> Result<ReopenReply, ShimError> {
    sockets().ask_within::<Reopen>(target(own()), &ReopenRequest {}, limit)
}

/// Runs a test in a process of its own, so that each has its own number to listen under.
fn alone(test: &str, body: impl FnOnce()) {
    const VARIABLE: &str = "NVSNAP_TEST_ALONE";
    if std::env::var_os(VARIABLE).is_some_and(|name| name == test) {
        return body();
    }
    let path = format!("client::tests::{test}");
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &path, "--nocapture"])
        .env(VARIABLE, test)
        .status()
        .unwrap();
    assert!(status.success(), "{test}");
}

#[test]
fn the_answer_of_the_process_itself_is_taken_also_in_small_pieces() {
    alone("the_answer_of_the_process_itself_is_taken_also_in_small_pieces", || {
        serve(|mut stream| {
            let frame = read_request(&mut stream).unwrap();
            assert_eq!(Request::decode(&frame).unwrap(), Request::Reopen(ReopenRequest {}));
            for byte in Reply::Reopen(ReopenReply { waiting: 7 }).encode(frame.header.id).unwrap() {
                stream.write_all(&[byte]).unwrap();
            }
        });
        assert_eq!(reopen(Duration::from_secs(10)).unwrap(), ReopenReply { waiting: 7 });
        assert_eq!(reopen(Duration::from_secs(10)).unwrap(), ReopenReply { waiting: 7 });
    });
}

#[test]
fn a_failure_is_told_in_the_words_of_the_process() {
    alone("a_failure_is_told_in_the_words_of_the_process", || {
        serve(|mut stream| {
            // Refused before the request was read.
            let failure = Failure { cause: Cause::Busy, message: "its words".into(), phase: Phase::Loaded };
            let verb = VerbKind::Inspect as u8;
            stream.write_all(&protocol::encode_failure(verb, protocol::UNASKED, &failure).unwrap()).unwrap();
        });
        let error = reopen(Duration::from_secs(10)).unwrap_err();
        assert_eq!((error.cause(), error.phase()), (Some(Cause::Busy), Some(Phase::Loaded)));
        assert!(crate::report::chain(&error).ends_with("its words"), "{error}");
    });
}

#[test]
fn a_process_that_does_not_answer_costs_no_more_than_the_limit() {
    alone("a_process_that_does_not_answer_costs_no_more_than_the_limit", || {
        serve(|stream| {
            // Holds the connection until the other end has given up.
            let mut stream = stream;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
        });
        let begun = Instant::now();
        let error = reopen(Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, ShimError::Late { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn a_process_that_accepts_nobody_costs_no_more_than_the_limit() {
    alone("a_process_that_accepts_nobody_costs_no_more_than_the_limit", || {
        let listener = listen_under(own());
        // Fill the queue of the listener, which nobody empties.
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        loop {
            let (send, receive) = std::sync::mpsc::channel();
            let address = address.clone();
            std::thread::spawn(move || send.send(UnixStream::connect_addr(&address)));
            match receive.recv_timeout(Duration::from_millis(500)) {
                Ok(stream) => waiting.push(stream),
                Err(_) => break,
            }
        }
        let error = reopen(Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, ShimError::Late { .. }), "{error}");
    });
}

#[test]
fn what_is_no_answer_is_said_to_be_none() {
    alone("what_is_no_answer_is_said_to_be_none", || {
        let answers = Mutex::new(vec![
            Vec::new(),
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            Reply::Reopen(ReopenReply::default()).encode(99_999).unwrap(),
            {
                let mut other = Reply::Reopen(ReopenReply::default()).encode(1).unwrap();
                other[4] = 200;
                other
            },
        ]);
        let answers = std::sync::Arc::new(answers);
        serve(move |mut stream| {
            read_request(&mut stream);
            let answer = answers.lock().unwrap().pop().unwrap_or_default();
            stream.write_all(&answer).unwrap();
        });
        let ask = || reopen(Duration::from_secs(10)).unwrap_err();
        let error = ask();
        match &error {
            ShimError::Frame { source: FrameError::Version { theirs: 200, ours }, .. } => {
                assert_eq!(*ours, protocol::VERSION);
            }
            _ => panic!("{error}"),
        }
        assert!(matches!(ask(), ShimError::Unasked { .. }));
        assert!(matches!(ask(), ShimError::Frame { source: FrameError::Magic(_), .. }));
        assert!(matches!(ask(), ShimError::Connection { .. }));
    });
}

/// A server whose `load` takes 1.5 s, and which tells how far it is by `step` bytes more each time.
fn slow(step: u64) {
    let bytes = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    serve(move |mut stream| {
        let frame = read_request(&mut stream).unwrap();
        let reply = match Request::decode(&frame).unwrap() {
            Request::Inspect(_) => {
                let bytes = bytes.fetch_add(step, Ordering::Relaxed);
                let progress = Some(Progress { verb: VerbKind::Load, bytes, total: 100 });
                Reply::Inspect(Inventory { progress, ..Inventory::default() })
            }
            _ => {
                // What is waited for is the time itself.
                std::thread::sleep(Duration::from_millis(1500));
                Reply::Load(Transferred::default())
            }
        };
        let _ = stream.write_all(&reply.encode(frame.header.id).unwrap());
    });
}

fn load() -> Result<Transferred, ShimError> {
    let patience = Patience::WhileMoving(Duration::from_millis(900));
    sockets().ask::<Load>(target(own()), &protocol::LoadRequest::default(), patience)
}

#[test]
fn moving_bytes_may_take_as_long_as_they_move() {
    alone("moving_bytes_may_take_as_long_as_they_move", || {
        slow(10);
        assert_eq!(load().unwrap(), Transferred::default());
    });
}

#[test]
fn bytes_that_stand_still_are_given_up() {
    alone("bytes_that_stand_still_are_given_up", || {
        slow(0);
        assert!(matches!(load().unwrap_err(), ShimError::Stalled { .. }));
    });
}

fn reason(sockets: &Sockets, target: Target) -> Reason {
    let request = protocol::InspectRequest { allocations: false };
    match sockets.ask_within::<Inspect>(target, &request, Duration::from_secs(10)).unwrap_err() {
        ShimError::Unreachable(Unreachable { reason, .. }) => reason,
        error => panic!("{error}"),
    }
}

#[test]
fn why_a_process_is_not_reached_is_told_apart() {
    alone("why_a_process_is_not_reached_is_told_apart", || {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id().cast_signed();
        let target = target(pid);
        assert_eq!(reason(&sockets(), target), Reason::NoShim);

        // The same process as it would look with the library loaded.
        let folder = tempfile::tempdir().unwrap();
        let looks = folder.path().join(pid.to_string());
        std::fs::create_dir(&looks).unwrap();
        std::fs::copy(format!("/proc/{pid}/stat"), looks.join("stat")).unwrap();
        std::fs::write(looks.join("maps"), "7f0-7f1 r-xp 0 08:01 2 /l/libnvsnap_gpushare.so\n").unwrap();
        let dressed = Sockets::new(ProcFs::at(folder.path()));
        assert_eq!(reason(&dressed, target), Reason::NotListening);

        // Somebody else listens under its number.
        let _listener = listen_under(pid);
        let Reason::NameTaken(holder) = reason(&dressed, target) else { panic!("not taken") };
        assert_eq!(holder.pid, own());

        // A later process of the number, a zombie, and nobody.
        let later = Target { start: target.start + 1, ..target };
        assert_eq!(reason(&sockets(), later), Reason::NoProcess);
        child.kill().unwrap();
        while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ") {
            std::thread::yield_now();
        }
        assert_eq!(reason(&sockets(), target), Reason::NoProcess);
        child.wait().unwrap();
        assert_eq!(reason(&sockets(), target), Reason::NoProcess);
    });
}
