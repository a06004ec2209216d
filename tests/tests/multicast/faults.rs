//! A fault at every driver call that a suspend and a resume make for an object, whoever made it.

use anyhow::{Context, Result, ensure};
use integration::{Machine, Place, Target, at_each};

use super::{R610, all, gather, hand_out, machine, member, pids, seen};

/// Two members, each with memory in the object and a mapping of it.
struct Pair {
    machine: Machine,
    members: Vec<Target>,
    sums: Vec<String>,
}

/// The first of the two made the object.
fn pair(fault: &str) -> Result<Pair> {
    let machine = machine(2, R610)?;
    let members = two(&machine, fault)?;
    gather(&members, "4M")?;
    bound(machine, members)
}

/// A third process, which takes no part itself, made the object, and is gone.
fn orphaned(fault: &str) -> Result<Pair> {
    let machine = machine(2, R610)?;
    let members = two(&machine, fault)?;
    let maker = machine.worker("maker").preload().start()?;
    all(&maker, &["begin 0", "team t 4M 2", "export fd t"])?;
    hand_out(&maker, &members, 0)?;
    let pair = bound(machine, members)?;
    maker.kill()?;
    maker.wait()?;
    pair.is_as_it_was().context("when its maker has ended")?;
    Ok(pair)
}

fn two(machine: &Machine, fault: &str) -> Result<Vec<Target>> {
    (0..2).map(|device| member(machine, device, "4M", fault)).collect()
}

fn bound(machine: Machine, members: Vec<Target>) -> Result<Pair> {
    for (member, device) in members.iter().zip(0..) {
        let lines = [format!("bind t 0 2M m 0 {device}"), format!("bind-at t 2M 2M m 2M {device}")];
        lines.iter().try_for_each(|line| member.ok(line).map(drop))?;
        member.ok(&format!("show t 4M {device}"))?;
    }
    members.iter().try_for_each(|member| member.ok("fill t 0 4M 77").map(drop))?;
    let mut pair = Pair { machine, members, sums: Vec::new() };
    pair.sums = pair.look()?;
    Ok(pair)
}

impl Pair {
    fn look(&self) -> Result<Vec<String>> {
        self.members.iter().map(|member| seen(member, "0", "4M")).collect()
    }

    fn is_as_it_was(&self) -> Result<()> {
        ensure!(self.look()? == self.sums, "contents changed");
        for writer in &self.members {
            writer.ok("add t 1M 2M 1")?;
            let sums = self.look()?;
            ensure!(sums.first() == sums.last() && sums != self.sums, "not one object any more: {sums:?}");
            writer.ok(&format!("add t 1M 2M {}", u32::MAX))?;
        }
        for pid in pids(&self.members) {
            let status = self.machine.status(pid)?;
            ensure!(status.get("phase").is_some_and(|phase| phase == "running"), "{status}");
        }
        Ok(())
    }

    /// Whatever became of a suspend or resume: one more `resume` is enough, and the next cycle works.
    fn recovers(&self, suspended: i32) -> Result<()> {
        if suspended != 1 {
            let resume = self.machine.resume(&pids(&self.members))?;
            if resume.code != 0 {
                self.machine.resume(&pids(&self.members))?.done().with_context(|| resume.text())?;
            }
        }
        self.is_as_it_was()?;
        self.machine.suspend(&pids(&self.members))?.done().context("a later suspend")?;
        self.machine.resume(&pids(&self.members))?.done().context("a later resume")?;
        self.is_as_it_was().context("after a later cycle")
    }
}

/// How two members come to an object, with a fault ahead of them.
type Make = fn(&str) -> Result<Pair>;

/// Where a suspend and a resume call the driver.
fn places(make: Make) -> Result<Vec<Place>> {
    let pair = make("")?;
    let lengths: Vec<usize> =
        pids(&pair.members).iter().map(|pid| Ok(pair.machine.calls(*pid)?.len())).collect::<Result<_>>()?;
    pair.machine.suspend(&pids(&pair.members))?.done()?;
    pair.machine.resume(&pids(&pair.members))?.done()?;
    let mut found = Vec::new();
    for (process, (pid, length)) in pids(&pair.members).into_iter().zip(lengths).enumerate() {
        found.extend(Place::behind(&pair.machine.calls(pid)?, length, process + 1));
    }
    // The calls that other memory asks for as well are failed in `rollback.rs`.
    found.retain(|place| place.call.starts_with("cuMem") || place.call.starts_with("cuMulticast"));
    Ok(found)
}

fn each(make: Make, effect: &str) -> Result<()> {
    let places = places(make)?;
    ensure!(places.len() > 20, "only {} places: {places:?}", places.len());
    for call in ["cuMulticastCreate", "cuMulticastAddDevice", "cuMulticastBindMem_v2", "cuMulticastUnbind"] {
        ensure!(places.iter().any(|place| place.call == call), "{call} is never called");
    }
    let bitten = at_each(&places, |place| {
        let pair = make(&place.fault(effect))?;
        let suspend = pair.machine.suspend(&pids(&pair.members))?;
        ensure!([0, 1, 3].contains(&suspend.code), "exit status {}", suspend.code);
        pair.recovers(suspend.code).with_context(|| suspend.text())?;
        Ok(suspend.code != 0)
    })?;
    ensure!(bitten > 0, "no fault made a suspend fail");
    Ok(())
}

#[test]
fn a_fault_at_any_call_for_an_object_leaves_one_team_with_all_its_bytes() -> Result<()> {
    each(pair, "error(999)")
}

#[test]
fn an_object_whose_maker_has_ended_is_made_again_by_an_heir() -> Result<()> {
    let pair = orphaned("")?;
    for round in 0..3 {
        let before: Vec<usize> = pids(&pair.members)
            .iter()
            .map(|pid| Ok(pair.machine.calls(*pid)?.len()))
            .collect::<Result<_>>()?;
        pair.machine.suspend(&pids(&pair.members))?.done()?;
        pair.machine.resume(&pids(&pair.members))?.done()?;
        pair.is_as_it_was().with_context(|| format!("round {round}"))?;
        let mut makers = 0;
        for (pid, before) in pids(&pair.members).into_iter().zip(before) {
            let made = |call: &&integration::Call| call.name == "cuMulticastCreate";
            makers += pair.machine.calls(pid)?.iter().skip(before).filter(made).count();
        }
        ensure!(makers == 1, "round {round}: made {makers} times");
    }
    // It is nobody's to hand out, though a process has made it by now.
    for member in &pair.members {
        member.refused("export more t", 1)?;
        all(member, &["retain again t", "same again t", "release again"])?;
    }
    pair.recovers(0)
}

#[test]
fn a_fault_at_any_call_for_an_object_whose_maker_has_ended_leaves_one_team_with_all_its_bytes() -> Result<()>
{
    each(orphaned, "error(999)")
}

/// To end a binding may be asked twice.
#[test]
fn an_unbind_that_says_it_failed_but_did_its_work_is_seen_through() -> Result<()> {
    let unbinds: Vec<Place> =
        places(pair)?.into_iter().filter(|place| place.call == "cuMulticastUnbind").collect();
    ensure!(unbinds.len() == 4, "{unbinds:?}");
    for place in unbinds {
        let pair = pair(&place.fault("late(999)"))?;
        let suspend = pair.machine.suspend(&pids(&pair.members))?;
        pair.recovers(suspend.code).with_context(|| format!("{place}: {}", suspend.text()))?;
    }
    Ok(())
}
