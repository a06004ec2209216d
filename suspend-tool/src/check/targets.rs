//! The GPUs that processes come back on: which, and whether they have room.

use cuda_sys::{CheckpointGpuPair, Uuid};

use super::Finding;
use crate::driver::Gpu;
use crate::pid::Pid;
use crate::report::bytes;
use crate::state::{Needed, RecordedGpu};
use crate::topology::{Member, Plan, device_bytes};

/// What a context takes on a GPU at the most.
const CONTEXT: u64 = 1 << 30;

/// Where each GPU of the time of the suspend is now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GpuMap {
    /// Pairs for the driver; none where every GPU stays itself.
    pub pairs: Vec<CheckpointGpuPair>,
}

impl GpuMap {
    /// What moves where, as the end of a sentence; empty where everything stays.
    pub fn moves(&self) -> String {
        let moved = self.pairs.iter().filter(|pair| pair.old != pair.new);
        moved.map(|pair| format!("; {} takes the place of {}", pair.new, pair.old)).collect()
    }

    /// The GPU that takes the place of this one, both as the driver prints their UUIDs.
    fn target_of(&self, gpu: &str) -> String {
        let pair = self.pairs.iter().find(|pair| pair.old.to_string() == gpu);
        pair.map_or_else(|| gpu.to_owned(), |pair| pair.new.to_string())
    }
}

/// The GPUs of the time of the suspend, in the order that decides which of now takes the place of which.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Before {
    /// All there were, as far as that is known.
    pub order: Vec<Uuid>,
    /// Those that the processes had; all of them where that is not known.
    pub used: Vec<Uuid>,
    /// The order was given by whoever runs the command, so that it counts although the GPUs are still there.
    pub ordered: bool,
}

/// The map from the GPUs of the time of the suspend to those of now, by their places. Where nobody has ordered
/// otherwise, GPUs that are still there stay.
pub fn gpu_map(before: &Before, now: &[Gpu]) -> Result<GpuMap, Finding> {
    let is_used = |gpu: &&Uuid| before.used.is_empty() || before.used.contains(gpu);
    let there = |gpu: &Uuid| now.iter().any(|now| now.uuid == *gpu);
    if !before.ordered && before.order.iter().filter(is_used).all(there) {
        return Ok(GpuMap::default());
    }
    if let Some(unknown) = before.used.iter().find(|gpu| !before.order.contains(gpu)) {
        let message = format!("the list of GPUs does not have {unknown}, which the processes use");
        let remedy = "give the list that `nvsnap-gpu-suspend gpus` printed when they were suspended";
        return Err(Finding::blocker("gpu-list", message, remedy).on(unknown.to_string()));
    }
    // Those that no process uses need no place where there are too few.
    let used: Vec<Uuid> = before.order.iter().filter(is_used).copied().collect();
    let order = if now.len() < before.order.len() { &used } else { &before.order };
    if now.len() < order.len() {
        return Err(Finding::blocker(
            "gpu-count",
            format!(
                "the processes see {} GPU(s), of which not all are here, and {} can be opened now",
                order.len(),
                now.len()
            ),
            "resume where at least as many GPUs can be opened (the container's devices)",
        ));
    }
    let stay = order.iter().zip(now).all(|(before, now)| *before == now.uuid);
    if stay {
        return Ok(GpuMap::default());
    }
    let pairs = order.iter().zip(now).map(|(old, new)| CheckpointGpuPair { old: *old, new: new.uuid });
    Ok(GpuMap { pairs: pairs.collect() })
}

/// What these processes will need on each GPU when they come back.
///
/// What the library moves is known to the byte. What the driver moves, and what its contexts take, is measured as what
/// became free on the GPU, within what can be true: another process may have come or gone meanwhile.
pub fn device_demand(
    members: &[Member],
    plan: &Plan,
    gpus: &[RecordedGpu],
    freed: Option<&[u64]>,
) -> Vec<Needed> {
    let own: Vec<([u8; 16], u64)> =
        members.iter().flat_map(|member| device_bytes(member, plan.heir_of(member.pid))).collect();
    let by_driver = members.iter().fold(0_u64, |sum, member| {
        let memory = &member.inventory.driver_memory;
        sum.saturating_add(memory.malloc_bytes).saturating_add(memory.async_bytes)
    });
    let contexts: u64 = members.iter().map(|member| u64::from(member.inventory.contexts)).sum();
    let most = by_driver.saturating_add(contexts.saturating_mul(CONTEXT));
    let demand = gpus.iter().enumerate().map(|(ordinal, gpu)| {
        let tracked = own
            .iter()
            .filter(|(uuid, _)| Uuid { bytes: *uuid }.to_string() == gpu.uuid)
            .fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let measured = freed.and_then(|freed| freed.get(ordinal)).copied().unwrap_or(0);
        Needed { gpu: gpu.uuid.clone(), bytes: measured.clamp(tracked, tracked.saturating_add(most)) }
    });
    demand.filter(|needed| needed.bytes > 0).collect()
}

/// What is in the way of a restore: a GPU that is not there, or has too little free memory. A restore that fails for
/// want of memory cannot be repeated, so that the driver is not asked.
pub fn enough_memory(
    needed: &[Needed],
    map: &GpuMap,
    now: &[Gpu],
    free: &[u64],
    pids: &[Pid],
) -> Vec<Finding> {
    let resume =
        format!("then run `nvsnap-gpu-suspend resume {}` again", crate::pid::listed(pids.iter().copied()));
    needed
        .iter()
        .filter_map(|needed| {
            let target = map.target_of(&needed.gpu);
            let ordinal = now.iter().position(|gpu| gpu.uuid.to_string() == target);
            let Some(free) = ordinal.and_then(|ordinal| free.get(ordinal)).copied() else {
                let message = format!("GPU {target}, which the processes used, cannot be seen");
                let remedy = "give the list of GPUs of the time of the suspend with --gpu-map";
                return Some(Finding::blocker("gpu-missing", message, remedy).on(target));
            };
            (free < needed.bytes).then(|| {
                let message = format!(
                    "GPU {target} has {} free, and the processes need {} there",
                    bytes(free),
                    bytes(needed.bytes)
                );
                Finding::blocker("gpu-memory", message, format!("free memory there, {resume}")).on(target)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::made_up::{created, imported, member, pid};

    fn uuid(number: u8) -> Uuid {
        Uuid { bytes: [number; 16] }
    }

    fn gpu(number: u8) -> Gpu {
        Gpu { uuid: uuid(number), name: "x".into(), total: 1 << 40 }
    }

    fn recorded(number: u8) -> RecordedGpu {
        RecordedGpu { uuid: uuid(number).to_string(), name: "x".into(), total: 1 << 40 }
    }

    #[test]
    fn gpus_that_stay_need_no_map_and_others_are_paired_by_ordinal() {
        let before = |order: &[u8], used: &[u8], ordered| Before {
            order: order.iter().copied().map(uuid).collect(),
            used: used.iter().copied().map(uuid).collect(),
            ordered,
        };
        let map =
            |before: &Before, now: &[u8]| gpu_map(before, &now.iter().copied().map(gpu).collect::<Vec<_>>());
        assert_eq!(map(&before(&[1], &[], true), &[1, 2]).unwrap(), GpuMap::default());
        let pairs = map(&before(&[1, 2], &[1, 2], true), &[2, 3]).unwrap().pairs;
        assert_eq!(
            pairs,
            [
                CheckpointGpuPair { old: uuid(1), new: uuid(2) },
                CheckpointGpuPair { old: uuid(2), new: uuid(3) }
            ]
        );
        assert_eq!(map(&before(&[1, 2], &[1, 2], false), &[1]).unwrap_err().kind, "gpu-count");
        // What is still there stays, wherever it is now, unless that was ordered otherwise.
        assert_eq!(map(&before(&[1, 2], &[2], false), &[2]).unwrap(), GpuMap::default());
        assert_eq!(map(&before(&[1, 2], &[1, 2], false), &[2, 1]).unwrap(), GpuMap::default());
        assert_eq!(map(&before(&[1, 2], &[1, 2], true), &[2, 1]).unwrap().pairs.len(), 2);
        // Where there are too few for all, those that are used take the places.
        let one = map(&before(&[1, 2, 3], &[3], false), &[4]).unwrap().pairs;
        assert_eq!(one, [CheckpointGpuPair { old: uuid(3), new: uuid(4) }]);
        assert_eq!(map(&before(&[1], &[2], true), &[3]).unwrap_err().kind, "gpu-list");
    }

    #[test]
    fn what_is_measured_counts_within_what_can_be_true() {
        let mut maker = member(1, [created(1)]);
        maker.inventory.contexts = 1;
        let members = [maker, member(2, [imported(1, 1)])];
        let demand = |freed: &[u64]| {
            device_demand(&members, &Plan::default(), &[recorded(7)], Some(freed))
                .first()
                .map(|needed| needed.bytes)
        };
        assert_eq!(demand(&[0]), Some(1000), "somebody else took it meanwhile");
        assert_eq!(demand(&[5000]), Some(5000), "with the context");
        assert_eq!(demand(&[1 << 40]), Some(1000 + CONTEXT), "somebody else gave it back meanwhile");
        assert_eq!(device_demand(&members, &Plan::default(), &[recorded(7)], None)[0].bytes, 1000);
    }

    #[test]
    fn too_little_memory_on_the_target_is_a_blocker_and_so_is_a_missing_gpu() {
        let needed = [Needed { gpu: uuid(1).to_string(), bytes: 100 }];
        let judged = |map: &GpuMap, now: &[Gpu], free: &[u64]| {
            enough_memory(&needed, map, now, free, &[pid(5)])
                .into_iter()
                .map(|found| found.kind)
                .collect::<Vec<_>>()
        };
        assert_eq!(judged(&GpuMap::default(), &[gpu(1)], &[100]), Vec::<&str>::new());
        assert_eq!(judged(&GpuMap::default(), &[gpu(1)], &[99]), ["gpu-memory"]);
        assert_eq!(judged(&GpuMap::default(), &[gpu(2)], &[100]), ["gpu-missing"]);
        let moved =
            gpu_map(&Before { order: vec![uuid(1)], ordered: true, ..Before::default() }, &[gpu(2)]).unwrap();
        assert_eq!(judged(&moved, &[gpu(2)], &[100]), Vec::<&str>::new());
        assert_eq!(judged(&moved, &[gpu(2)], &[99]), ["gpu-memory"]);
    }
}
