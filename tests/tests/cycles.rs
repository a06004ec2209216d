//! Many cycles of the same processes: nothing grows.

use std::collections::BTreeSet;

use anyhow::Result;
use integration::{Crowd, Machine, Target};

#[test]
fn twenty_cycles_leave_descriptors_mappings_threads_and_memory_as_five_did() -> Result<()> {
    let machine = Machine::stand_in()?;
    let start = |name: &str| -> Result<Target> {
        let worker = machine.worker(name).preload().start()?;
        worker.ok("listen")?;
        worker.ok("begin 0")?;
        Ok(worker)
    };
    let (a, b) = (start("a")?, start("b")?);
    for line in ["new x 8M device:0 fd", "fill x 0 8M 3", "export fd x", "send fd b"] {
        a.ok(line)?;
    }
    for line in ["receive fd", "import x fd", "show x 8M", "new y 2M device:0"] {
        b.ok(line)?;
    }
    let sum = a.ok("sum x 0 8M")?;
    let pids = [a.pid(), b.pid()];
    let used = machine.usage()?;
    let mut after_five = None;
    for cycle in 1..=20 {
        machine.suspend(&pids)?.done()?;
        machine.resume(&pids)?.done()?;
        if cycle == 5 {
            after_five = Some((a.snapshot()?, b.snapshot()?));
        }
    }
    if let Some((five_a, five_b)) = after_five {
        a.settles_to(&five_a, 2048)?;
        b.settles_to(&five_b, 2048)?;
    }
    assert_eq!(machine.usage()?, used);
    assert_eq!(b.ok("sum x 0 8M")?, sum);
    Ok(())
}

#[test]
fn very_many_imports_come_back_each_with_its_own_bytes() -> Result<()> {
    // More than are asked for by one thread alone, and more than may be asked for ahead.
    const PIECES: usize = 17;
    let crowd = Crowd::new(Machine::stand_in()?, 3)?;
    for piece in 0..PIECES {
        crowd.share(&format!("p{piece}-"))?;
        for rank in 0..3 {
            crowd.worker(rank)?.ok(&format!("fill p{piece}-{rank} 0 2M {}", 3 * piece + rank))?;
        }
    }
    let sums = || -> Result<Vec<String>> {
        let names = (0..PIECES).flat_map(|piece| (0..3).map(move |owner| format!("p{piece}-{owner}")));
        names
            .flat_map(|name| (0..3).map(move |rank| (name.clone(), rank)))
            .map(|(name, rank)| crowd.worker(rank)?.ok(&format!("sum {name} 0 2M")))
            .collect()
    };
    let before = sums()?;
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), 3 * PIECES);
    for _ in 0..2 {
        crowd.cycle()?;
        assert_eq!(sums()?, before);
    }
    Ok(())
}
