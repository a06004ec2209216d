//! Multicast objects over suspends and resumes: members with different roles, makers that are gone, and drivers that cannot do it.

mod faults;

use anyhow::{Result, ensure};
use integration::{Machine, Target};

/// The API version of r610, the first driver on which a restored process can join again.
const R610: &str = "13030";

fn machine(devices: usize, version: &str) -> Result<Machine> {
    let mut machine = Machine::stand_in()?;
    machine.set("FAKECUDA_MULTICAST", "1").set("FAKECUDA_VERSION", version);
    machine.set("FAKECUDA_DEVICES", devices.to_string());
    Ok(machine)
}

fn all(worker: &Target, lines: &[&str]) -> Result<()> {
    lines.iter().try_for_each(|line| worker.ok(line).map(drop))
}

/// A member on a device of its own, with memory `m` mapped.
fn member(machine: &Machine, device: usize, size: &str, fault: &str) -> Result<Target> {
    let worker = machine.worker(&format!("m{device}")).preload();
    let index = (device + 1).to_string();
    let worker = worker.set("FAKECUDA_INDEX", index).set("FAKECUDA_FAULTS", fault).start()?;
    all(&worker, &["listen", &format!("begin {device}"), &format!("new m {size} device:{device} fd")])?;
    worker.ok(&format!("fill m 0 {size} {device}"))?;
    Ok(worker)
}

/// The first member makes the object and hands it to the others; all add their devices.
fn gather(members: &[Target], size: &str) -> Result<()> {
    let [first, others @ ..] = members else { anyhow::bail!("a member") };
    all(first, &[&format!("team t {size} {}", members.len()), "join t 0", "export fd t"])?;
    hand_out(first, others, 1)
}

/// Whoever made the object hands it to the others, who add their devices, the first of them this one.
fn hand_out(maker: &Target, others: &[Target], first: usize) -> Result<()> {
    for (other, device) in others.iter().zip(first..) {
        maker.ok(&format!("send fd m{device}"))?;
        all(other, &["receive fd", "import t fd", "close fd", &format!("join t {device}")])?;
    }
    Ok(())
}

fn pids(members: &[Target]) -> Vec<i32> {
    members.iter().map(Target::pid).collect()
}

/// What a member has in its own memory.
fn seen(member: &Target, offset: &str, size: &str) -> Result<String> {
    member.ok(&format!("sum m {offset} {size}"))
}

#[test]
fn members_with_different_roles_are_one_team_over_three_cycles() -> Result<()> {
    let machine = machine(3, R610)?;
    let members: Vec<Target> =
        (0..3).map(|device| member(&machine, device, "6M", "")).collect::<Result<_>>()?;
    let [a, b, c] = members.as_slice() else { anyhow::bail!("three") };
    gather(&members, "6M")?;
    // Two pieces by handle, with a hole between them, whose memory has no mapping of its own any more.
    all(a, &["create n 2M device:0", "bind t 0 2M m 0", "bind t 4M 2M n 0 0", "release n", "show t 6M 0"])?;
    // All of it by address.
    all(b, &["bind-at t 0 6M m 0 1", "show t 6M 1"])?;
    // The middle by address, in the older form, crosswise; this one never maps the object.
    all(c, &["bind-at t 0 2M m 4M", "bind t 2M 2M m 2M 2"])?;
    for round in 0..4 {
        a.ok(&format!("fill t 0 2M {}", 10 + round))?;
        let first = seen(a, "0", "2M")?;
        ensure!(seen(b, "0", "2M")? == first && seen(c, "4M", "2M")? == first, "round {round}: the first");
        b.ok(&format!("fill t 2M 2M {}", 20 + round))?;
        ensure!(seen(b, "2M", "2M")? == seen(c, "2M", "2M")?, "round {round}: the middle");
        b.ok(&format!("fill t 4M 2M {}", 30 + round))?;
        ensure!(a.ok("sum t 4M 2M")? == seen(b, "4M", "2M")?, "round {round}: the last");
        // What is not bound is the program's own, and is carried like all memory.
        let own = format!("add m 2M 4M {round}");
        let before = a.ok(&own).and_then(|_| seen(a, "2M", "4M"))?;
        machine.suspend(&pids(&members))?.done()?;
        machine.resume(&pids(&members))?.done()?;
        ensure!(seen(a, "2M", "4M")? == before, "round {round}: memory beside it");
        ensure!(seen(a, "0", "2M")? == first && seen(c, "4M", "2M")? == first, "round {round}: contents");
    }
    // Handles count as before: the object is named by what is mapped, and ends with it.
    all(a, &["retain again t", "same again t", "release again"])?;
    all(a, &["unbind t 0 0 2M", "unbind t 0 4M 2M", "unmap t", "release t"])?;
    // The descriptor still holds it.
    all(a, &["import t fd", "release t", "close fd"])?;
    a.refused("bind t 0 2M m 0", 1)?;
    all(b, &["unbind t 1 0 6M", "drop t"])?;
    all(c, &["unbind t 2 0 2M", "unbind t 2 2M 2M", "release t"])?;
    machine.suspend(&pids(&members))?.done()?;
    machine.resume(&pids(&members))?.done()?;
    Ok(())
}

#[test]
fn an_object_whose_maker_let_go_of_it_is_refused_until_it_is_given_up() -> Result<()> {
    let machine = machine(2, R610)?;
    let members: Vec<Target> =
        (0..2).map(|device| member(&machine, device, "2M", "")).collect::<Result<_>>()?;
    let [a, b] = members.as_slice() else { anyhow::bail!("two") };
    gather(&members, "2M")?;
    all(b, &["bind t 0 2M m 0", "show t 2M 1", "fill t 0 2M 5"])?;
    // Any call that changes objects notices that nobody holds the descriptor.
    all(a, &["release t", "close fd", "new other 2M device:0"])?;
    // The device of the one that let go belongs to the object for good, and nobody can add it again.
    let refused = machine.tool().verb("check", &pids(&members))?.exits(4)?;
    ensure!(
        refused.text().contains("multicast") && refused.text().contains("1 belong"),
        "{}",
        refused.text()
    );
    all(b, &["unbind t 1 0 2M", "drop t"])?;
    machine.suspend(&pids(&members))?.done()?;
    machine.resume(&pids(&members))?.done()?;
    ensure!(seen(b, "0", "2M")? != seen(a, "0", "2M")?);
    Ok(())
}

/// One process with two devices needs no other; and one that joined before memory was bound keeps its place.
#[test]
fn a_team_of_one_process_and_one_that_is_not_complete_yet() -> Result<()> {
    let machine = machine(2, R610)?;
    let a = member(&machine, 0, "2M", "")?;
    all(&a, &["team t 2M 2", "join t 0"])?;
    for _ in 0..2 {
        machine.suspend(&[a.pid()])?.done()?;
        machine.resume(&[a.pid()])?.done()?;
    }
    a.refused("join t 0", 1)?;
    all(&a, &["begin 1", "new far 2M device:1", "join t 1", "bind t 0 2M m 0", "bind t 0 2M far 0 1"])?;
    all(&a, &["show t 2M 1", "fill t 0 2M 3"])?;
    for round in 0..2 {
        machine.suspend(&[a.pid()])?.done()?;
        machine.resume(&[a.pid()])?.done()?;
        a.ok(&format!("add t 0 2M {round}"))?;
        let far = a.ok("sum far 0 2M")?;
        a.ok("context 0")?;
        ensure!(seen(&a, "0", "2M")? == far, "not one team any more");
        a.ok("context 1")?;
    }
    Ok(())
}

/// CASES 45: nothing of ours is locked while the driver waits for another process.
#[test]
fn a_bind_that_waits_for_another_process_holds_nobody_up() -> Result<()> {
    let machine = machine(2, R610)?;
    let members: Vec<Target> =
        (0..2).map(|device| member(&machine, device, "2M", "")).collect::<Result<_>>()?;
    let [a, b] = members.as_slice() else { anyhow::bail!("two") };
    all(a, &["team t 2M 2", "join t 0", "export fd t", "send fd m1"])?;
    all(b, &["receive fd", "import t fd"])?;
    a.ok("start waiter bind t 0 2M m 0")?;
    for round in 0..20 {
        all(a, &[&format!("new x{round} 2M device:0 fd"), &format!("export f{round} x{round}")])?;
        all(b, &[&format!("new x{round} 2M device:1 fd"), &format!("drop x{round}")])?;
        all(a, &[&format!("close f{round}"), &format!("drop x{round}")])?;
        ensure!(a.ok("busy waiter")? == "yes", "the bind did not wait");
    }
    // Nor a question.
    ensure!(machine.status(a.pid())?.get("phase").is_some());
    b.ok("join t 1")?;
    a.ok("wait waiter")?;
    Ok(())
}

#[test]
fn a_driver_before_r610_is_refused_beforehand_and_the_switches_are_named() -> Result<()> {
    let machine = machine(1, "13010")?;
    let a = member(&machine, 0, "2M", "")?;
    all(&a, &["team t 2M 1", "join t 0", "bind t 0 2M m 0", "show t 2M", "fill t 0 2M 9"])?;
    let sum = seen(&a, "0", "2M")?;
    for verb in ["check", "suspend"] {
        let refused = machine.tool().verb(verb, &[a.pid()])?.exits(4)?;
        for word in ["multicast", "r610", "NCCL_NVLS_ENABLE=0", "VLLM_", "SGLang", "TORCH_"] {
            ensure!(refused.text().contains(word), "{verb} does not say {word}: {}", refused.text());
        }
    }
    ensure!(seen(&a, "0", "2M")? == sum);
    all(&a, &["add t 0 2M 1", "unbind t 0 0 2M", "drop t"])?;
    machine.suspend(&[a.pid()])?.done()?;
    machine.resume(&[a.pid()])?.done()?;
    Ok(())
}

/// What a program gets wrong is answered as the driver answers it, by every form of the calls, and leaves the object as it was.
#[test]
fn wrong_calls_are_answered_as_without_the_library() -> Result<()> {
    let machine = machine(2, R610)?;
    let (without, with) = (machine.worker("without").start()?, machine.worker("with").preload().start()?);
    let ask = |line: &str| -> Result<String> {
        let (native, shimmed) = (without.ask(line)?, with.ask(line)?);
        ensure!(!native.starts_with("usage"), "`{line}` answered `{native}`");
        ensure!(native == shimmed, "`{line}`\nwithout: {native}\nwith:    {shimmed}");
        Ok(native)
    };
    for line in [
        "begin 0",
        "malloc native 4M",
        "new m 4M device:0 fd",
        "new private 4M device:0",
        "new far 4M device:1 fd",
        "create bare 4M device:0 fd",
        "fill m 0 4M 1",
    ] {
        ask(line)?;
    }
    ask("team none 0 1")?;
    ask("team none 2M 0")?;
    ask("team none 3M 1")?;
    ask("team t 4M 1")?;
    let wrong = [
        "join t 9",
        "join m 0",
        "bind m 0 2M t 0",
        "bind t 0 2M bare 3M",
        "bind t 1M 2M m 0",
        "bind t 4M 2M m 0",
        "bind t 0 2M far 0",
        "bind t 0 2M m 0 9",
        "bind t 0 3M m 0 0",
        "bind-at t 0 2M native 0",
        "bind-at t 0 2M native 0 0",
        "bind-at t 0 2M m 3M",
        "bind-at t 0 8M m 0 0",
        "unbind t 0 2M 2M",
        "unbind t 9 0 2M",
        "unbind m 0 0 2M",
    ];
    ask("join t 0")?;
    for line in wrong {
        ask(line)?;
    }
    // As if nothing of it had been asked.
    for line in ["bind t 0 2M m 0 0", "bind-at t 2M 2M m 2M", "show t 4M 0", "fill t 0 4M 3", "sum m 0 4M"] {
        ensure!(ask(line)?.starts_with("ok"), "{line}");
    }
    for line in wrong.into_iter().chain(["join t 0", "bind t 0 2M m 0", "bind t 0 2M private 0"]) {
        ask(line)?;
    }
    machine.take_violations()?;
    machine.suspend(&[with.pid()])?.done()?;
    machine.resume(&[with.pid()])?.done()?;
    for line in [
        "sum m 0 4M",
        "fill t 0 4M 4",
        "sum m 0 4M",
        "unbind t 0 0 2M",
        "unbind t 0 2M 2M",
        "unbind t 0 0 2M",
        "drop t",
    ] {
        ask(line)?;
    }
    machine.take_violations()?;
    Ok(())
}
