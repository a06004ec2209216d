//! The control socket of a process with the library, seen by a client that knows `docs/PROTOCOL.md` and no code.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use integration::threads::Thread;
use integration::{Machine, Place, Target, at_each};

const INSPECT: u8 = 1;
const QUIESCE: u8 = 2;
const LOAD: u8 = 6;
const REOPEN: u8 = 8;

const REPLY: u8 = 1;
const FAILURE: u8 = 2;

/// An answer: its kind, its id and its body.
struct Answer {
    kind: u8,
    id: u32,
    body: Vec<u8>,
}

impl Answer {
    /// Whether the body holds this text somewhere.
    fn says(&self, text: &str) -> bool {
        self.holds(text.as_bytes())
    }

    fn holds(&self, bytes: &[u8]) -> bool {
        self.body.windows(bytes.len()).any(|window| window == bytes)
    }
}

fn connect(pid: i32) -> Result<UnixStream> {
    let address = SocketAddr::from_abstract_name(format!("nvsnap-gpushare.{pid}"))?;
    let stream = UnixStream::connect_addr(&address).with_context(|| format!("process {pid}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

fn header(version: u16, verb: u8, length: u32) -> Vec<u8> {
    let mut bytes = b"NVSG".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend([verb, 0]);
    bytes.extend(77_u32.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes
}

fn hear(stream: &mut UnixStream) -> Result<Answer> {
    let mut header = [0; 16];
    stream.read_exact(&mut header)?;
    let number = |at: usize| -> Result<u32> {
        let bytes = header.get(at..at + 4).context("a header")?;
        Ok(u32::from_le_bytes(bytes.try_into()?))
    };
    ensure!(header.starts_with(b"NVSG\x01\x00"), "an answer starts with {header:?}");
    let mut body = vec![0; usize::try_from(number(12)?)?];
    stream.read_exact(&mut body)?;
    Ok(Answer { kind: *header.get(7).context("a header")?, id: number(8)?, body })
}

fn ask(pid: i32, verb: u8, body: &[u8]) -> Result<Answer> {
    let mut stream = connect(pid)?;
    let mut bytes = header(1, verb, u32::try_from(body.len())?);
    bytes.extend(body);
    stream.write_all(&bytes)?;
    hear(&mut stream)
}

/// Asks for the inventory, with allocations.
fn inspect(pid: i32) -> Result<Answer> {
    ask(pid, INSPECT, &[1])
}

fn working(machine: &Machine) -> Result<Target> {
    let worker = machine.worker("a").preload().start()?;
    worker.ok("begin 0")?;
    Ok(worker)
}

#[test]
fn nothing_listens_before_cu_init_and_one_socket_after_it() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    let before = worker.snapshot()?;
    ensure!(connect(worker.pid()).is_err(), "no socket before the program uses CUDA");
    ensure!(before.threads.iter().all(|name| !name.starts_with("nvsnap")), "{:?}", before.threads);

    worker.ok("begin 0")?;
    ensure!(inspect(worker.pid())?.kind == REPLY);
    // A thread gives itself its name when it has begun to run.
    Thread::all_until(worker.pid(), |threads| {
        threads.iter().filter(|thread| thread.name.starts_with("nvsnap")).count() >= 3
    })?;
    let after = worker.snapshot()?;
    let ours: Vec<&str> =
        after.threads.iter().map(String::as_str).filter(|name| name.starts_with("nvsnap")).collect();
    ensure!(ours == ["nvsnap-ctl", "nvsnap-peer", "nvsnap-work"], "{ours:?}");
    ensure!(after.descriptors.range(..3).eq(before.descriptors.range(..3)), "0 to 2 are the program's");
    Ok(())
}

/// An inventory that names every thread of the library: a thread enters itself when it has begun to run.
fn with_all_threads(pid: i32) -> Result<Answer> {
    let threads = Thread::all_until(pid, |threads| {
        threads.iter().filter(|thread| thread.name.starts_with("nvsnap-")).count() == 3
    })?;
    let ours = threads.iter().filter(|thread| thread.name.starts_with("nvsnap-"));
    // Signed numbers are sent with the sign in the last bit, seven bits to a byte.
    let coded = |mut number: i32| {
        number <<= 1;
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
            number >>= 7;
        }
        bytes.push(u8::try_from(number).unwrap_or_default());
        bytes
    };
    let wanted: Vec<Vec<u8>> = ours.map(|thread| coded(thread.tid)).collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = inspect(pid)?;
        if wanted.iter().all(|tid| answer.holds(tid)) {
            return Ok(answer);
        }
        ensure!(Instant::now() < deadline, "threads {threads:?} are not all in {:?}", answer.body);
    }
}

#[test]
fn the_inventory_says_who_answers_and_what_it_holds() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = working(&machine)?;
    let empty = with_all_threads(worker.pid())?;
    ensure!((empty.kind, empty.id) == (REPLY, 77), "kind {}, id {}", empty.kind, empty.id);
    ensure!(empty.says(env!("CARGO_PKG_VERSION")), "its version");
    worker.ok("new x 4M device:0 fd")?;
    let one = inspect(worker.pid())?;
    // 4 MiB as a varint of seven bits each.
    ensure!(one.body.len() > empty.body.len() && one.holds(&[0x80, 0x80, 0x80, 0x02]), "{:?}", one.body);
    worker.ok("drop x")?;
    ensure!(inspect(worker.pid())?.body == empty.body, "and nothing of it is left");
    Ok(())
}

#[test]
fn the_inventory_is_answered_while_the_driver_is_locked() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = working(&machine)?;
    let other = machine.worker("other").start()?;
    other.ok("begin 0")?;
    let open = inspect(worker.pid())?;
    other.ok(&format!("lock {} 1000", worker.pid()))?;
    ensure!(inspect(worker.pid())?.body == open.body);
    other.ok(&format!("checkpoint {}", worker.pid()))?;
    ensure!(inspect(worker.pid())?.body == open.body);
    other.ok(&format!("restore {}", worker.pid()))?;
    other.ok(&format!("unlock {}", worker.pid()))?;
    Ok(())
}

#[test]
fn a_closed_gate_holds_and_an_opened_one_lets_go() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = working(&machine)?;
    worker.ok("new x 4M device:0")?;
    // The memory gate, without waiting for the drain.
    ensure!(ask(worker.pid(), QUIESCE, &[1, 0, 0])?.kind == REPLY);
    let held = worker.begin("fill x 0 4M 7")?;
    if let Some(answer) = held.within(Duration::from_millis(100))? {
        bail!("the gate is closed, and a launch was answered: {answer}");
    }
    ensure!(ask(worker.pid(), REOPEN, &[])?.kind == REPLY);
    ensure!(held.answer()? == "ok");
    Ok(())
}

#[test]
fn a_verb_out_of_turn_is_refused_in_words() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = working(&machine)?;
    // All of it, from no store and no cache, with no bound on host memory.
    let answer = ask(worker.pid(), LOAD, &[1, 0, 0, 0])?;
    ensure!(answer.kind == FAILURE);
    let words =
        format!("process {} is running; load is for a process that is released or loaded", worker.pid());
    ensure!(answer.says(&words), "{}", String::from_utf8_lossy(&answer.body));
    Ok(())
}

#[test]
fn a_load_takes_no_more_host_memory_than_it_may() -> Result<()> {
    const CHUNKS: usize = 2;
    // No bound, and no byte: then the one buffer that it cannot do without.
    for (bound, allowed) in [(&[0_u8][..], CHUNKS..=usize::MAX), (&[1, 0], 1..=1)] {
        let machine = Machine::stand_in()?;
        let worker = working(&machine)?;
        worker.ok(&format!("new x {}M device:0", 64 * CHUNKS))?;
        for chunk in 0..CHUNKS {
            worker.ok(&format!("fill x {}M 64M {}", 64 * chunk, chunk + 1))?;
        }
        let (sum, pids) = (format!("sum x 0 {}M", 64 * CHUNKS), [worker.pid()]);
        let before = worker.ok(&sum)?;
        machine.tool().verb("quiesce", &pids)?.done()?;
        let tool = machine.tool().option("--store").argument(machine.path("store"));
        tool.option("--ckpt-dir").argument(machine.path("list")).verb("release", &pids)?.done()?;
        let registered = || -> Result<usize> {
            let calls = machine.calls(worker.pid())?;
            Ok(calls.iter().filter(|call| call.name == "cuMemHostRegister_v2").count())
        };
        let earlier = registered()?;
        // All of it, from where it was saved.
        let answer = ask(worker.pid(), LOAD, &[&[1, 0, 0], bound].concat())?;
        ensure!(answer.kind == REPLY, "{}", String::from_utf8_lossy(&answer.body));
        let buffers = registered()? - earlier;
        ensure!(allowed.contains(&buffers), "{buffers} buffers, not {allowed:?}");
        for verb in ["remap", "reopen"] {
            machine.tool().verb(verb, &pids)?.done()?;
        }
        ensure!(worker.ok(&sum)? == before);
    }
    Ok(())
}

/// A process that shares memory, and one that uses it beside its own and meets these faults.
fn sharing(faults: &str) -> Result<(Machine, [Target; 2])> {
    let machine = Machine::stand_in()?;
    let a = working(&machine)?;
    let b =
        machine.worker("b").preload().set("FAKECUDA_INDEX", "2").set("FAKECUDA_FAULTS", faults).start()?;
    for line in ["listen", "begin 0", "new own 2M device:0", "fill own 0 2M 5"] {
        b.ok(line)?;
    }
    for line in ["new x 4M device:0 fd", "fill x 0 4M 3", "export x x", "send x b"] {
        a.ok(line)?;
    }
    for line in
        ["receive x", "import x x", "show x 4M", "close x", "new last 2M device:0", "fill last 0 2M 6"]
    {
        b.ok(line)?;
    }
    Ok((machine, [a, b]))
}

/// A release that fails there leaves imports of memory that is made anew before they are dropped. The command sees to it that it
/// does not come to that; other clients need not.
fn exchanges_what_is_left(place: &Place) -> Result<bool> {
    // What takes memory apart is asked for once more where it fails.
    let (machine, [a, b]) = sharing(&[place.fault("error(999)"), place.fault("error(999)")].join(";"))?;
    let pids = [a.pid(), b.pid()];
    let look = || -> Result<Vec<String>> {
        let lines = [(&a, "sum x 0 4M"), (&b, "sum x 0 4M"), (&b, "sum own 0 2M"), (&b, "sum last 0 2M")];
        lines.iter().map(|(worker, line)| worker.ok(line)).collect()
    };
    let before = look()?;
    machine.tool().verb("quiesce", &pids)?.done()?;
    let release = machine.tool().verb("release", &pids)?;
    ensure!(release.code == 3, "{}", release.text());
    for pid in pids {
        let answer = ask(pid, LOAD, &[1, 0, 0, 0])?;
        ensure!(answer.kind == REPLY, "{}", String::from_utf8_lossy(&answer.body));
    }
    for verb in ["remap", "reopen"] {
        machine.tool().verb(verb, &pids)?.done()?;
    }
    for _ in 0..2 {
        ensure!(look()? == before, "{:?}, before: {before:?}", look()?);
        a.ok("add x 0 4M 1")?;
        ensure!(a.ok("sum x 0 4M")? == b.ok("sum x 0 4M")?, "not one memory any more");
        a.ok(&format!("add x 0 4M {}", u32::MAX))?;
        machine.suspend(&pids)?.done()?;
        machine.resume(&pids)?.done()?;
    }
    Ok(true)
}

#[test]
fn an_import_that_a_release_did_not_get_to_is_exchanged_for_what_its_owner_has_made_since() -> Result<()> {
    let (machine, [a, b]) = sharing("")?;
    let pids = [a.pid(), b.pid()];
    machine.tool().verb("quiesce", &pids)?.done()?;
    let before = machine.calls(b.pid())?.len();
    machine.tool().verb("release", &pids)?.done()?;
    let mut places = Place::behind(&machine.calls(b.pid())?, before, 2);
    machine.resume(&pids)?.done()?;
    places.retain(|place| ["cuMemUnmap", "cuMemRelease"].contains(&place.call.as_str()));
    ensure!(places.len() >= 6, "of three allocations: {places:?}");
    at_each(&places, exchanges_what_is_left).map(drop)
}

#[test]
fn strangers_and_their_lengths_are_answered_and_the_program_goes_on() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = working(&machine)?;
    let before = worker.snapshot()?;
    for (bytes, words) in [
        (header(9, INSPECT, 0), "version 9"),
        (header(1, INSPECT, 1 << 30), "1073741824 bytes is over the limit"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "does not speak the control protocol"),
    ] {
        let mut stream = connect(worker.pid())?;
        stream.write_all(&bytes)?;
        let answer = hear(&mut stream)?;
        ensure!((answer.kind, answer.id) == (FAILURE, 0), "the connection is refused");
        ensure!(answer.says(words), "{}", String::from_utf8_lossy(&answer.body));
    }
    let idle = (0..100).map(|_| connect(worker.pid())).collect::<Result<Vec<_>>>()?;
    ensure!(inspect(worker.pid())?.kind == REPLY, "a hundred idle clients keep nobody out");
    drop(idle);

    // The last of them are gone when the server has looked once more.
    ensure!(inspect(worker.pid())?.kind == REPLY);
    worker.ok("new x 4M device:0")?;
    let after = worker.snapshot()?;
    // By number: a thread that has just begun may not have its name yet.
    ensure!(after.threads.len() == before.threads.len(), "{:?}", after.threads);
    ensure!(worker.end()?.success());
    Ok(())
}

#[test]
fn a_program_that_execs_itself_listens_under_its_name_again() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    for _ in 0..3 {
        ensure!(connect(worker.pid()).is_err(), "a new image has not begun");
        worker.ok("begin 0")?;
        ensure!(inspect(worker.pid())?.kind == REPLY);
        // The new image answers.
        worker.ok("exec")?;
        ensure!(worker.begin("echo here")?.answer()? == "ok here");
    }
    Ok(())
}

#[test]
fn a_program_ends_while_clients_are_connected() -> Result<()> {
    let machine = Machine::stand_in()?;
    for round in 0..20 {
        let worker = machine.worker(&format!("round-{round}")).preload().start()?;
        worker.ok("begin 0")?;
        let clients = (0..5).map(|_| connect(worker.pid())).collect::<Result<Vec<_>>>()?;
        ensure!(inspect(worker.pid())?.kind == REPLY);
        ensure!(worker.end()?.success());
        drop(clients);
    }
    Ok(())
}

#[test]
fn a_command_in_another_network_namespace_is_told_so() -> Result<()> {
    let machine = Machine::stand_in()?;
    let worker = machine.worker("a").preload().start()?;
    worker.ok("begin 0")?;
    let mut command = machine.command("unshare");
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        command.arg("--map-root-user");
    }
    let pid = worker.pid().to_string();
    let output = command.arg("--net").arg(&machine.artifacts().tool).args(["check", &pid]).output()?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("network namespace") && text.contains(&format!("nsenter --target {pid} --net")),
        "{text}"
    );
    Ok(())
}
