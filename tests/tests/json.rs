//! What `--json` prints is what `docs/JSON.md` says, for every verb, whatever comes of it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use integration::{Machine, Outcome, Target};
use serde_json::Value;

/// The fields of an event: their types, and whether they are always there.
type Fields = BTreeMap<String, (Vec<String>, bool)>;

/// The tables of the page.
fn schema() -> Result<BTreeMap<String, Fields>> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/JSON.md"))?;
    let mut events: BTreeMap<String, Fields> = BTreeMap::new();
    let mut current = None;
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            current = Some(events.entry(heading.trim_matches('`').to_owned()).or_default());
        } else if let (Some(fields), Some(row)) = (&mut current, line.strip_prefix("| `")) {
            let (name, rest) = row.split_once("` | ").context("a field")?;
            let kind = rest.split(" |").next().context("a type")?;
            let always = !kind.ends_with('?');
            let kinds = kind.trim_end_matches('?').split(" or ").map(str::to_owned).collect();
            fields.insert(name.to_owned(), (kinds, always));
        }
    }
    Ok(events)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Holds every line against the page, and notes which kinds of events there were.
fn holds(schema: &BTreeMap<String, Fields>, outcome: &Outcome, seen: &mut BTreeSet<String>) -> Result<()> {
    let events = outcome.events()?;
    let last = events.last().context("nothing was printed")?;
    ensure!(last["event"] == "summary" && last["exit"] == outcome.code, "{last}");
    for event in &events {
        let object = event.as_object().context("an object")?;
        let name = event["event"].as_str().context("a name")?;
        let fields = schema.get(name).with_context(|| format!("`{name}` is not on the page: {event}"))?;
        seen.insert(name.to_owned());
        for (field, value) in object.iter().filter(|(field, _)| *field != "event") {
            let (kinds, _) = fields.get(field).with_context(|| format!("`{field}` of {event}"))?;
            ensure!(kinds.iter().any(|wanted| wanted == kind(value)), "`{field}` of {event}");
        }
        for (field, (_, always)) in fields {
            ensure!(!always || object.contains_key(field), "`{field}` is missing in {event}");
        }
    }
    Ok(())
}

fn worker(machine: &Machine, name: &str) -> Result<Target> {
    let worker = machine.worker(name).preload().start()?;
    for line in ["listen", "begin 0", "new own 4M device:0 fd", "fill own 0 4M 7"] {
        worker.ok(line)?;
    }
    Ok(worker)
}

#[test]
fn every_line_of_every_verb_is_on_the_page_and_all_of_the_page_is_printed() -> Result<()> {
    let schema = schema()?;
    let mut seen = BTreeSet::new();
    let machine = Machine::stand_in()?;
    let (a, b) = (worker(&machine, "a")?, worker(&machine, "b")?);
    for line in ["export own own", "send own b"] {
        a.ok(line)?;
    }
    for line in ["receive own", "import theirs own", "show theirs 4M", "close own"] {
        b.ok(line)?;
    }
    let pids = [a.pid(), b.pid()];
    let verb = |verb: &str| machine.tool().option("--json").verb(verb, &pids);
    for name in
        ["check", "status", "list", "gpus", "suspend", "status", "suspend", "stop", "resume", "resume"]
    {
        let outcome = match name {
            "list" | "gpus" => machine.tool().option("--json").option(name).run()?,
            name => verb(name)?,
        };
        holds(&schema, &outcome.done().context(name)?, &mut seen).context(name)?;
    }
    for name in ["quiesce", "release", "checkpoint", "restore", "load", "remap", "reopen"] {
        holds(&schema, &verb(name)?.done().context(name)?, &mut seen).context(name)?;
    }
    stores(&machine, &pids, |outcome| holds(&schema, outcome, &mut seen))?;
    // What goes wrong: undone, left unfinished, refused.
    let faults = |faults: &str| machine.tool().set("NVSNAP_GPU_SUSPEND_FAULTS", faults).option("--json");
    holds(
        &schema,
        &faults("cuCheckpointProcessCheckpoint:1:*=error").verb("suspend", &pids)?.exits(1)?,
        &mut seen,
    )?;
    holds(
        &schema,
        &faults("load:1:*=error;cuCheckpointProcessCheckpoint:1:*=error").verb("suspend", &pids)?.exits(3)?,
        &mut seen,
    )?;
    holds(&schema, &verb("suspend")?.exits(4)?, &mut seen)?;
    holds(&schema, &verb("resume")?.done()?, &mut seen)?;
    holds(&schema, &machine.tool().option("--json").verb("check", &[b.pid()])?.exits(4)?, &mut seen)?;
    holds(&schema, &held_launch(&machine)?, &mut seen)?;
    // How far a process is, is only asked where that takes a while.
    let missing: Vec<&String> =
        schema.keys().filter(|name| !seen.contains(*name) && *name != "moving").collect();
    ensure!(missing.is_empty(), "never printed: {missing:?}");
    Ok(())
}

/// A suspend to a store, and the verbs for stores and caches.
fn stores(machine: &Machine, pids: &[i32], mut holds: impl FnMut(&Outcome) -> Result<()>) -> Result<()> {
    let [store, list, cache] = ["store", "list", "cache"].map(|name| machine.path(name));
    let tool = || machine.tool().option("--json");
    let saving = tool().option("--store").argument(&store).option("--ckpt-dir").argument(&list);
    let saved = saving.option("--cache").argument(&cache).verb("suspend", pids)?.done()?;
    holds(&saved)?;
    let summary = saved.events()?.pop().context("a summary")?;
    let filler = summary
        .pointer("/counts/cache_fill/pid")
        .and_then(Value::as_i64)
        .with_context(|| summary.to_string())?;
    integration::threads::ends(i32::try_from(filler)?)?;
    holds(&tool().verb("resume", pids)?.done()?)?;
    let other = machine.path("other");
    let verbs: [&[&std::path::Path]; 4] = [&[&store, &list, &other], &[&other], &[&store, &list], &[&store]];
    for (name, paths) in ["cache-prefetch", "cache-gc", "store-gc", "store-verify"].iter().zip(verbs) {
        let mut verb = paths.iter().fold(tool().option(name), |tool, path| tool.argument(path));
        if *name == "cache-gc" {
            verb = verb.option("0");
        }
        holds(&verb.run()?.done().context(*name)?).context(*name)?;
    }
    // Chunks that no list names, and one that is not what it is called.
    let nothing = machine.path("nothing");
    std::fs::create_dir(&nothing)?;
    let collect = tool().option("store-gc").argument(&store).argument(&nothing).option("--allow-empty");
    holds(&collect.run()?.done()?)?;
    let chunk = std::fs::read_dir(store.join("chunks"))?
        .filter_map(|folder| std::fs::read_dir(folder.ok()?.path()).ok()?.next()?.ok())
        .next()
        .context("a chunk")?;
    let mut bytes = std::fs::read(chunk.path())?;
    *bytes.first_mut().context("a byte")? ^= 1;
    std::fs::write(chunk.path(), bytes)?;
    holds(&tool().option("store-verify").argument(&store).run()?.exits(1)?)
}

/// A quiesce that has to let a launch through.
fn held_launch(machine: &Machine) -> Result<Outcome> {
    let worker = machine.worker("launcher").preload().start()?;
    for line in ["begin 0", "stream s", "stream t", "new x 2M device:0", "memset x 0 2M 0", "sync"] {
        worker.ok(line)?;
    }
    worker.ok("on other context 0")?;
    worker.ok("launch s wait_flag x u32:1")?;
    let quiesce = machine.tool().option("--json").start_verb("quiesce", &[worker.pid()])?;
    machine.status_until(worker.pid(), |status| status["phase"] == "quiescing")?;
    worker.ok("start other launch t increment x")?;
    let outcome = quiesce.outcome()?.done()?;
    machine.tool().verb("reopen", &[worker.pid()])?.done()?;
    worker.ok("sync")?;
    Ok(outcome)
}

/// How often a phase begins, after it has been seen that each time it ends before it begins again, on all processes, and that the
/// summary has the seconds and bytes of all times together.
fn turns(outcome: &Outcome, stage: &str, pids: &[i32]) -> Result<usize> {
    let events = outcome.events()?;
    let mut turns = 0;
    let (mut seconds, mut objects) = (0.0, 0);
    let mut on = None;
    for event in events.iter().filter(|event| event["stage"] == stage) {
        match (event["event"].as_str().context("a name")?, on.take()) {
            ("begin", None) => {
                ensure!(event["pids"] == serde_json::json!(pids), "{event}");
                on = Some(BTreeSet::from_iter(pids.iter().map(|pid| i64::from(*pid))));
                turns += 1;
            }
            ("done", Some(mut left)) => {
                ensure!(left.remove(&event["pid"].as_i64().context("a pid")?), "{event}");
                objects += event.pointer("/bytes/objects").and_then(Value::as_u64).unwrap_or_default();
                on = Some(left);
            }
            ("end", Some(left)) => {
                ensure!(left.is_empty(), "{stage} is over without {left:?}");
                seconds += event["seconds"].as_f64().context("seconds")?;
            }
            _ => anyhow::bail!("out of order: {event}"),
        }
    }
    ensure!(on.is_none(), "{stage} does not end");
    let summary = events.last().context("a summary")?;
    let told = |what: &str| summary.pointer(what);
    let took =
        told(&format!("/seconds/{stage}")).and_then(Value::as_f64).with_context(|| summary.to_string())?;
    // Each is rounded to a millionth.
    ensure!((took - seconds).abs() < 0.000_01, "{stage} took {seconds} s: {summary}");
    let carried = told(&format!("/bytes/{stage}/objects")).and_then(Value::as_u64).unwrap_or_default();
    ensure!(carried == objects, "{summary}");
    Ok(turns)
}

#[test]
fn a_phase_in_turns_begins_and_ends_with_each_of_them() -> Result<()> {
    for (team, joins) in [(false, 1), (true, 3)] {
        let mut machine = Machine::stand_in()?;
        // That of r610, the first that lets a restored process join a multicast object again.
        machine.set("FAKECUDA_MULTICAST", "1").set("FAKECUDA_VERSION", "13030");
        let (a, b) = (worker(&machine, "a")?, worker(&machine, "b")?);
        if team {
            for worker in [&a, &b] {
                worker.ok("team t 2M 1")?;
                worker.ok("join t 0")?;
            }
        }
        let pids = [a.pid(), b.pid()];
        let verb = |verb: &str| machine.tool().option("--json").verb(verb, &pids)?.done();
        verb("suspend")?;
        let resume = verb("resume")?;
        let seen = ["load", "remap", "reopen"].map(|stage| turns(&resume, stage, &pids));
        let [load, remap, reopen] = seen;
        ensure!((load?, remap?, reopen?) == (2, joins, 1), "a multicast object: {team}");
    }
    Ok(())
}
