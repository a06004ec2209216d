//! The checkpoint API, with exactly the failures of the real one.

use std::ffi::c_uint;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::{Me, Other, machine};

/// Starts the target of a test and waits until it has what it is to have.
pub(crate) fn target(me: &Me) -> Other {
    start();
    let other = me.start("target");
    other.link.receive();
    other
}

/// The target is ready, and waits until it is let go.
pub(crate) fn ready(me: &Me) {
    me.parent().send(&[]);
    me.parent().receive();
}

/// Locks and checkpoints, asks for a restore twice, and says how the first went; the second must go the same way.
pub(crate) fn cycle_to_restore(pid: i32) -> CuResult {
    lock(pid, 1000).unwrap();
    checkpoint(pid).unwrap();
    let first = restore(pid);
    if first.is_err() {
        assert_eq!(restore(pid), first, "a failing restore is final");
        assert_eq!(state(pid), Ok(ProcessState::CHECKPOINTED));
        assert_eq!(unlock(pid), Err(CuError::ILLEGAL_STATE));
    }
    first
}

#[test]
fn a_process_goes_through_a_cycle_and_keeps_bytes_and_addresses() {
    machine().test("checkpoint::a_process_goes_through_a_cycle_and_keeps_bytes_and_addresses", |me| {
        if me.role() == "target" {
            start();
            let plain = alloc(4 * MIB).unwrap();
            let handle = create(GRANULE, exportable(0)).unwrap();
            let mapped = map(handle, GRANULE, 0);
            let mut host = std::ptr::null_mut();
            cuMemHostAlloc(&raw mut host, 4096, 0).unwrap();
            write(plain, &[1, 2, 3]).unwrap();
            write(mapped, &[4, 5, 6]).unwrap();
            ready(me);
            assert_eq!(read(plain, 3).unwrap(), [1, 2, 3]);
            assert_eq!(read(mapped, 3).unwrap(), [4, 5, 6]);
            // Memory that the driver restored can be exported for the first time.
            let descriptor = export(handle).unwrap();
            let again = map(import(descriptor.as_fd()).unwrap(), GRANULE, 0);
            assert_eq!(read(again, 1).unwrap(), [4]);
            return;
        }
        let other = target(me);
        let pid = other.pid();
        assert_eq!(state(pid), Ok(ProcessState::RUNNING));
        assert_eq!(checkpoint(pid), Err(CuError::ILLEGAL_STATE));
        assert_eq!(used(), 6 * MIB);
        lock(pid, 1000).unwrap();
        assert_eq!(state(pid), Ok(ProcessState::LOCKED));
        assert_eq!(lock(pid, 1000), Err(CuError::ILLEGAL_STATE));
        checkpoint(pid).unwrap();
        assert_eq!(state(pid), Ok(ProcessState::CHECKPOINTED));
        assert_eq!(used(), 0, "everything is freed");
        assert_eq!(unlock(pid), Err(CuError::ILLEGAL_STATE));
        restore(pid).unwrap();
        assert_eq!(used(), 6 * MIB);
        unlock(pid).unwrap();
        assert_eq!(state(pid), Ok(ProcessState::RUNNING));
        other.link.send(&[]);
        other.finish();
    });
}

#[test]
fn calls_of_a_locked_process_wait() {
    machine().test("checkpoint::calls_of_a_locked_process_wait", |me| {
        if me.role() == "target" {
            start();
            let at = alloc(4).unwrap();
            ready(me);
            // Locked by now. Questions go on, and so does waiting for what is done.
            let mut version = 0;
            cuDriverGetVersion(&raw mut version).unwrap();
            used();
            cuCtxSynchronize().unwrap();
            cuStreamQuery(Stream::NULL).unwrap();
            me.parent().send(&[1]);
            read(at, 1).unwrap();
            return me.parent().send(&[2]);
        }
        let other = target(me);
        lock(other.pid(), 1000).unwrap();
        other.link.send(&[]);
        assert_eq!(other.link.receive(), [1]);
        checkpoint(other.pid()).unwrap();
        restore(other.pid()).unwrap();
        // Sent before the unlock is: nothing. The kernel keeps the order of messages, so a 2 would be there.
        assert!(!other.link.has_message(), "the call did not wait");
        unlock(other.pid()).unwrap();
        assert_eq!(other.link.receive(), [2]);
        other.finish();
    });
}

/// What a checkpointed process gets for a call, or the signal that ended it.
fn checkpointed_call(me: &Me, call: impl FnOnce() -> CuResult) -> Option<u64> {
    if me.role() == "target" {
        start();
        ready(me);
        me.parent().send(&[number(call()).into()]);
        me.parent().receive();
        return None;
    }
    let other = target(me);
    lock(other.pid(), 1000).unwrap();
    checkpoint(other.pid()).unwrap();
    other.link.send(&[]);
    let answer = other.link.receive();
    if answer.is_empty() {
        return Some(other.signal().try_into().unwrap());
    }
    restore(other.pid()).unwrap();
    unlock(other.pid()).unwrap();
    other.link.send(&[]);
    other.finish();
    Some(answer[0])
}

#[test]
fn a_completion_call_ends_a_checkpointed_process() {
    machine().violates(&["cuStreamQuery"]).test(
        "checkpoint::a_completion_call_ends_a_checkpointed_process",
        |me| {
            let result = checkpointed_call(me, || cuStreamQuery(Stream::NULL));
            assert!(
                result.is_none_or(|result| result == u64::from(libc::SIGSEGV.unsigned_abs())),
                "{result:?}"
            );
        },
    );
}

#[test]
fn some_questions_fail_in_a_checkpointed_process() {
    machine().violates(&["cuMemGetInfo"]).test(
        "checkpoint::some_questions_fail_in_a_checkpointed_process",
        |me| {
            let (mut free, mut total) = (0, 0);
            let result = checkpointed_call(me, || cuMemGetInfo_v2(&raw mut free, &raw mut total));
            assert!(result.is_none_or(|result| result == 304), "{result:?}");
        },
    );
}

#[test]
fn a_lock_waits_for_work_until_its_timeout() {
    machine().test("checkpoint::a_lock_waits_for_work_until_its_timeout", |me| {
        if me.role() == "target" {
            start();
            let flag = alloc(4).unwrap();
            write(flag, &[0]).unwrap();
            let waiting = own_stream();
            launch(kernel("wait_flag"), waiting, &[flag.0, 1]).unwrap();
            ready(me);
            cuStreamWriteValue32_v2(own_stream(), flag, 1, 0).unwrap();
            cuStreamSynchronize(waiting).unwrap();
            return ready(me);
        }
        let other = target(me);
        assert_eq!(lock(other.pid(), 100), Err(CuError::NOT_READY));
        assert_eq!(state(other.pid()), Ok(ProcessState::RUNNING), "left running");
        other.link.send(&[]);
        other.link.receive();
        lock(other.pid(), 1000).unwrap();
        unlock(other.pid()).unwrap();
        other.link.send(&[]);
        other.finish();
    });
}

#[test]
fn too_little_memory_at_the_restore_poisons_the_process() {
    let setup = machine().with("FAKECUDA_MEMORY", "8388608");
    setup.test("checkpoint::too_little_memory_at_the_restore_poisons_the_process", |me| {
        if me.role() == "target" {
            start();
            alloc(6 * MIB).unwrap();
            return ready(me);
        }
        let other = target(me);
        lock(other.pid(), 1000).unwrap();
        checkpoint(other.pid()).unwrap();
        let taken = alloc(4 * MIB).unwrap();
        assert_eq!(restore(other.pid()), Err(CuError::OUT_OF_MEMORY));
        cuMemFree_v2(taken).unwrap();
        assert_eq!(restore(other.pid()), Err(CuError::UNKNOWN), "another code, although there is room now");
        assert_eq!(state(other.pid()), Ok(ProcessState::CHECKPOINTED));
        assert_eq!(used(), 0, "nothing half restored");
        other.kill();
    });
}

#[test]
fn pairs_of_gpus_move_a_process() {
    machine().test("checkpoint::pairs_of_gpus_move_a_process", |me| {
        if me.role() == "target" {
            start();
            let at = alloc(2 * MIB).unwrap();
            write(at, &[3]).unwrap();
            ready(me);
            return assert_eq!(read(at, 1).unwrap(), [3]);
        }
        let other = target(me);
        let uuid = |id| {
            let mut uuid = Uuid::default();
            cuDeviceGetUuid(&raw mut uuid, Device(id)).unwrap();
            uuid
        };
        let with = |pairs: &mut [CheckpointGpuPair]| {
            let mut args = CheckpointRestoreArgs {
                gpu_pairs: pairs.as_mut_ptr(),
                gpu_pairs_count: c_uint::try_from(pairs.len()).unwrap(),
                ..CheckpointRestoreArgs::default()
            };
            cuCheckpointProcessRestore(other.pid(), &raw mut args)
        };
        lock(other.pid(), 1000).unwrap();
        checkpoint(other.pid()).unwrap();
        let (zero, one) = (uuid(0), uuid(1));
        let swap = [CheckpointGpuPair { old: zero, new: one }, CheckpointGpuPair { old: one, new: zero }];
        assert_eq!(with(&mut swap[..1].to_vec()), Err(CuError::INVALID_VALUE), "all GPUs have to be listed");
        with(&mut swap.to_vec()).unwrap();
        assert_eq!(used(), 0);
        cuCtxSetCurrent({
            let mut context = Context::NULL;
            cuDevicePrimaryCtxRetain(&raw mut context, Device(1)).unwrap();
            context
        })
        .unwrap();
        assert_eq!(used(), 2 * MIB, "the process is on the other device now");
        unlock(other.pid()).unwrap();
        other.link.send(&[]);
        other.finish();
    });
}

#[test]
fn who_has_not_initialised_the_driver_cannot_be_locked() {
    machine().test("checkpoint::who_has_not_initialised_the_driver_cannot_be_locked", |me| {
        if me.role() == "target" {
            ready(me);
            cuInit(0).unwrap();
            return ready(me);
        }
        let own: i32 = std::process::id().try_into().unwrap();
        assert_eq!(state(own), Err(CuError::NOT_INITIALIZED));
        let other = target(me);
        assert_eq!(state(other.pid()), Err(CuError::NOT_INITIALIZED));
        assert_eq!(lock(other.pid(), 0), Err(CuError::NOT_INITIALIZED));
        for nobody in [0, -1, i32::MAX] {
            assert_eq!(state(nobody), Err(CuError::OPERATING_SYSTEM));
            assert_eq!(lock(nobody, 0), Err(CuError::OPERATING_SYSTEM));
        }
        other.link.send(&[]);
        other.link.receive();
        // Initialised, without a context: it can be cycled like any other.
        assert_eq!(cycle_to_restore(other.pid()), Ok(()));
        unlock(other.pid()).unwrap();
        other.link.send(&[]);
        other.finish();
    });
}

#[test]
fn the_restore_thread_is_a_thread_of_the_process() {
    machine().test("checkpoint::the_restore_thread_is_a_thread_of_the_process", |me| {
        if me.role() == "target" {
            start();
            return ready(me);
        }
        let other = target(me);
        let mut tid = 0;
        cuCheckpointProcessGetRestoreThreadId(other.pid(), &raw mut tid).unwrap();
        let name = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", other.pid())).unwrap();
        let digits = name.trim().strip_prefix("cuda").unwrap();
        assert!(u64::from_str_radix(digits, 16).is_ok(), "{name}");
        other.link.send(&[]);
        other.finish();
    });
}

#[test]
fn a_checkpoint_needs_no_lock_that_a_stopped_thread_holds() {
    machine().test("checkpoint::a_checkpoint_needs_no_lock_that_a_stopped_thread_holds", |me| {
        if me.role() == "target" {
            start();
            let at = alloc(2 * MIB).unwrap();
            let go_on = AtomicBool::new(true);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    // Threads that allocate from the C library all the time.
                    scope.spawn(|| {
                        while go_on.load(Ordering::Relaxed) {
                            drop(std::hint::black_box(vec![1_u8; 100_000]));
                        }
                    });
                }
                ready(me);
                go_on.store(false, Ordering::Relaxed);
            });
            return read(at, 1).map(|_| ()).unwrap();
        }
        let other = target(me);
        lock(other.pid(), 1000).unwrap();
        checkpoint(other.pid()).unwrap();
        let mut keep = 0;
        cuCheckpointProcessGetRestoreThreadId(other.pid(), &raw mut keep).unwrap();
        let stopped = crate::process::stop_threads(other.pid(), keep);
        restore(other.pid()).unwrap();
        drop(stopped);
        unlock(other.pid()).unwrap();
        other.link.send(&[]);
        other.finish();
    });
}
