//! A server in a process of its own: this very test program, started again as the hidden test `remote::serve`.
//!
//! Commands go to its standard input, a line each; each is answered by one line on its standard error.

use std::ffi::CString;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use protocol::{Phase, socket_name};
use shim_core::control::{Limits, socket};

use crate::fixture::{PATIENCE, Target, own_pid};

const ROLE: &str = "SHIM_CORE_TEST_ROLE";

/// What a process of ours does when it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Serves, and lets peers wait for longer than any test does.
    Server,
    /// Listens on its bare name without ever taking a client; serves under the next.
    StaleName,
    /// Listens on the name of its parent, as its own process.
    ParentsName,
    /// Hangs up on whoever comes.
    HangsUp,
    /// Answers in another version of the protocol.
    OtherVersion,
}

pub(crate) struct Remote {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStderr>>,
    pub(crate) pid: i32,
}

impl Remote {
    pub(crate) fn start(role: Role) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "remote::serve", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the test program starts");
        let output = BufReader::new(child.stderr.take().expect("piped")).lines();
        let pid = i32::try_from(child.id()).expect("a pid");
        let mut remote = Self { input: child.stdin.take(), child, output, pid };
        assert_eq!(remote.line(), "ready");
        remote
    }

    /// Gives a command and waits for its answer.
    pub(crate) fn tell(&mut self, command: &str) -> String {
        writeln!(self.input.as_mut().expect("open"), "{command}").expect("it reads");
        self.line()
    }

    fn line(&mut self) -> String {
        self.output.next().expect("it lives").expect("text")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Not a test: what a [`Remote`] runs.
#[test]
fn serve() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let inherited = (3..256).filter(|fd| is_socket_or_pipe(*fd)).collect::<Vec<i32>>();
    let target = match role.as_str() {
        "Server" => {
            let park = PATIENCE * 10;
            Some(Target::start_as(own_pid(), Limits { park, ..Limits::DEFAULT }))
        }
        "StaleName" => {
            std::mem::forget(socket::listen(&socket_name(own_pid(), 0)).expect("a free name"));
            Some(Target::start_as(own_pid(), Limits::DEFAULT))
        }
        "ParentsName" => {
            let parent = i32::try_from(std::os::unix::process::parent_id()).expect("a pid");
            Some(Target::start_as(parent, Limits::DEFAULT))
        }
        "HangsUp" | "OtherVersion" => {
            answer_badly(role == "OtherVersion");
            None
        }
        other => panic!("no role is called {other}"),
    };
    eprintln!("ready");
    for command in std::io::stdin().lines() {
        let answer = obey(target.as_ref(), &command.expect("text"), &inherited);
        eprintln!("{answer}");
    }
    // Standard input is at its end: the test is over, and so is this process, with whatever it serves.
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) };
}

fn obey(target: Option<&Target>, command: &str, inherited: &[i32]) -> String {
    if command == "visits" {
        return VISITS.load(Ordering::SeqCst).to_string();
    }
    let target = target.expect("a server");
    match command {
        "name" => target.name.clone(),
        "release" => {
            target.phases.set(Phase::Released);
            "ok".into()
        }
        "load" => {
            target.phases.set(Phase::Loaded);
            "ok".into()
        }
        "know nothing" => know(target, 255),
        "know 33" => know(target, 33),
        "exports" => target.script.exports.load(Ordering::SeqCst).to_string(),
        "descriptors" => std::fs::read_dir("/proc/self/fd").expect("proc").count().to_string(),
        "hold" => {
            // The worker waits for ever; a test that is over ends this process.
            let (told, go) = target.script.hold();
            std::mem::forget((told, go));
            "ok".into()
        }
        "notes" => target.script.notes().join("; "),
        "close everything" => {
            // SAFETY: closes descriptors, as a program that becomes a daemon does.
            unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
            "ok".into()
        }
        "take all numbers" => {
            for _ in 0..64 {
                std::mem::forget(std::fs::File::open("/dev/zero").expect("a descriptor"));
            }
            "ok".into()
        }
        "count zeros" => {
            let entries = std::fs::read_dir("/proc/self/fd").expect("proc").flatten();
            let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
            links.filter(|link| link.as_os_str() == "/dev/zero").count().to_string()
        }
        "fork" => fork(target, true, inherited),
        "fork behind our back" => fork(target, false, inherited),
        "exec" => exec(),
        other => panic!("no command is called {other}"),
    }
}

fn know(target: &Target, byte: u8) -> String {
    target.script.known.store(byte, Ordering::SeqCst);
    "ok".into()
}

/// Forks a child that stays, past the end of this process, until standard input is at its end. Gives the number
/// of its sockets and pipes that this process was not `inherited` itself.
fn fork(target: &Target, with_handler: bool, inherited: &[i32]) -> String {
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child calls what a forked child of the shim calls, and then nothing that needs a lock but the
    // allocator's, which the C library sees to.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        if with_handler {
            target.descriptors.forked();
            target.phases.forked();
        }
        let known = [inherited, &[reader.as_raw_fd(), writer.as_raw_fd()]].concat();
        let count = (3..256).filter(|fd| !known.contains(fd)).filter(|fd| is_socket_or_pipe(*fd)).count();
        drop(writer.write_all(&[u8::try_from(count).expect("few")]));
        let mut byte = [0_u8; 1];
        // SAFETY: one byte into a live array. Nobody writes while this child lives.
        while unsafe { libc::read(0, byte.as_mut_ptr().cast(), 1) } > 0 {}
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut count = [0_u8; 1];
    reader.read_exact(&mut count).expect("the child counts");
    count[0].to_string()
}

fn is_socket_or_pipe(fd: i32) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|link| {
        let link = link.to_string_lossy();
        link.starts_with("socket:") || link.starts_with("pipe:")
    })
}

/// Starts this program again in place; its answer is the "ready" of the new image.
fn exec() -> String {
    let words = ["--exact", "remote::serve", "--nocapture", "--test-threads=1"];
    let program =
        CString::new(std::env::current_exe().expect("a path").into_os_string().into_encoded_bytes())
            .expect("no NUL");
    let words: Vec<CString> = words.iter().map(|word| CString::new(*word).expect("no NUL")).collect();
    let mut arguments = vec![program.as_ptr()];
    arguments.extend(words.iter().map(|word| word.as_ptr()));
    arguments.push(std::ptr::null());
    // SAFETY: a null-terminated array of C strings that live until the call is over.
    unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
    panic!("exec: {}", std::io::Error::last_os_error());
}

/// Clients of [`answer_badly`].
static VISITS: AtomicU32 = AtomicU32::new(0);

fn answer_badly(in_another_version: bool) {
    let listener = socket::listen(&socket_name(own_pid(), 0)).expect("a free name");
    listener.set_nonblocking(false).expect("an open listener");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a client");
            VISITS.fetch_add(1, Ordering::SeqCst);
            let header = protocol::Header { verb: 9, kind: protocol::FrameKind::Reply, id: 1, length: 0 };
            let mut bytes = header.encode();
            bytes[4] = 9;
            if in_another_version {
                client.write_all(&bytes).expect("it listens");
                // Held until the client has gone, so that it reads all of it.
                std::mem::forget(client);
            }
        }
    });
}
