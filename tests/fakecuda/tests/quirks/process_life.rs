//! Processes: contexts, forks, the call log, faults.

use std::ffi::c_int;

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::{file, machine};

#[test]
fn the_context_stack_is_as_programs_know_it() {
    machine().violates(&["cuMemcpyDtoH"]).test(
        "process_life::the_context_stack_is_as_programs_know_it",
        |_| {
            let mut context = Context::NULL;
            assert_eq!(cuCtxGetCurrent(&raw mut context), Err(CuError::NOT_INITIALIZED));
            cuInit(0).unwrap();
            cuCtxGetCurrent(&raw mut context).unwrap();
            assert!(context.is_null());
            assert_eq!(alloc(4), Err(CuError::INVALID_CONTEXT));
            let mut device = Device(7);
            assert_eq!(cuCtxGetDevice(&raw mut device), Err(CuError::INVALID_CONTEXT));
            cuCtxCreate_v2(&raw mut context, 0, Device(1)).unwrap();
            cuCtxGetDevice(&raw mut device).unwrap();
            assert_eq!(device, Device(1));
            let primary = {
                let mut primary = Context::NULL;
                cuDevicePrimaryCtxRetain(&raw mut primary, Device(0)).unwrap();
                primary
            };
            cuCtxPushCurrent_v2(primary).unwrap();
            let mut popped = Context::NULL;
            cuCtxPopCurrent_v2(&raw mut popped).unwrap();
            assert_eq!(popped, primary);
            let mut current = Context::NULL;
            cuCtxGetCurrent(&raw mut current).unwrap();
            assert_eq!(current, context);
            // What is destroyed while current elsewhere stays there, and says so.
            let (ready, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    cuCtxSetCurrent(context).unwrap();
                    ready.wait();
                    go.wait();
                    assert_eq!(alloc(4), Err(CuError::CONTEXT_IS_DESTROYED));
                });
                ready.wait();
                let kept = alloc(3 * MIB).unwrap();
                cuCtxDestroy_v2(context).unwrap();
                assert_eq!(
                    cuCtxPopCurrent_v2(&raw mut popped),
                    Err(CuError::INVALID_CONTEXT),
                    "popped by the destroy"
                );
                cuCtxSetCurrent(primary).unwrap();
                assert_eq!(read(kept, 1), Err(CuError::INVALID_VALUE), "freed with its context");
                go.wait();
            });
            let (mut flags, mut active): (u32, c_int) = (0, 0);
            cuDevicePrimaryCtxGetState(Device(0), &raw mut flags, &raw mut active).unwrap();
            assert_eq!(active, 1);
            cuDevicePrimaryCtxRelease_v2(Device(0)).unwrap();
            cuDevicePrimaryCtxGetState(Device(0), &raw mut flags, &raw mut active).unwrap();
            assert_eq!(active, 0);
            assert_eq!(alloc(4), Err(CuError::CONTEXT_IS_DESTROYED));
        },
    );
}

/// Forks, and gives the child's exit status.
fn in_child(body: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child makes its calls and ends; nothing of the test program runs in it.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = body();
        // SAFETY: ends the child without its parent's destructors.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: waits for our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WEXITSTATUS(status)
}

fn own_pid() -> c_int {
    std::process::id().try_into().unwrap()
}

fn as_status(result: CuResult) -> i32 {
    i32::try_from(number(result) % 256).unwrap()
}

#[test]
fn where_a_child_can_start_anew_its_parent_has_no_context() {
    machine().with("FAKECUDA_FORK", "anew").test(
        "process_life::where_a_child_can_start_anew_its_parent_has_no_context",
        |_| {
            cuInit(0).unwrap();
            let status = in_child(|| as_status(state(own_pid()).map(|_| ())));
            assert_eq!(status, 3, "NOT_INITIALIZED");
            let parent = own_pid();
            let status = in_child(|| {
                start();
                alloc(4 * MIB).unwrap();
                assert_eq!(state(own_pid()), Ok(ProcessState::RUNNING));
                assert_eq!(state(parent), Ok(ProcessState::RUNNING));
                lock(parent, 1000).unwrap();
                unlock(parent).unwrap();
                0
            });
            assert_eq!(status, 0);
            start();
            assert_eq!(used(), 0);
        },
    );
}

#[test]
fn a_child_of_a_process_that_uses_the_driver_cannot() {
    machine().test("process_life::a_child_of_a_process_that_uses_the_driver_cannot", |_| {
        cuInit(0).unwrap();
        assert_eq!(in_child(|| as_status(cuInit(0))), 3, "cuInit of the parent suffices");
        start();
        let at = alloc(4).unwrap();
        assert_eq!(in_child(|| as_status(read(at, 1).map(|_| ()))), 3);
        assert_eq!(in_child(|| as_status(cuInit(0))), 3);
        let parent = own_pid();
        assert_eq!(in_child(|| as_status(lock(parent, 100))), 3, "it is not initialised itself");
        read(at, 1).unwrap();
    });
}

#[test]
fn the_call_log_has_a_line_per_call() {
    machine().with("FAKECUDA_LOG", "$DIR/calls").test(
        "process_life::the_call_log_has_a_line_per_call",
        |_| {
            start();
            let at = alloc(4096).unwrap();
            assert_eq!(alloc(0), Err(CuError::INVALID_VALUE));
            cuMemFree_v2(at).unwrap();
            let log = std::fs::read_to_string(file(&format!("calls.{}", std::process::id()))).unwrap();
            let tid = rustix::thread::gettid().as_raw_nonzero();
            let lines: Vec<&str> = log.lines().collect();
            assert_eq!(lines[0], format!("0 {tid} cuInit(0) = 0"));
            assert!(lines[4].contains("cuMemAlloc_v2(") && lines[4].ends_with(", 4096) = 0"), "{}", lines[4]);
            assert!(lines[5].ends_with(" = 1"), "{}", lines[5]);
            assert_eq!(lines[6], format!("6 {tid} cuMemFree_v2(DevicePtr({})) = 0", at.0));
            assert_eq!(lines.len(), 7);
        },
    );
}

#[test]
fn faults_come_where_they_are_ordered() {
    let faults = "cuMemCreate:2:1=oom; cuMemAlloc*:1:*=error(999); cuMemFree_v2:1:*=late(700);\
                  cuCheckpointProcessLock:1:2=error(304); cuMemGetInfo_v2:1:2=kill";
    machine().with("FAKECUDA_FAULTS", faults).with("FAKECUDA_INDEX", "1").test(
        "process_life::faults_come_where_they_are_ordered",
        |me| {
            if me.role() == "other" {
                start();
                create(GRANULE, device(0)).unwrap();
                create(GRANULE, device(0)).unwrap();
                me.parent().send(&[]);
                me.parent().receive();
                used();
                unreachable!("killed by its fault");
            }
            start();
            let other = me.start_with("other", &[("FAKECUDA_INDEX", "2")]);
            create(GRANULE, device(0)).unwrap();
            assert_eq!(create(GRANULE, device(0)), Err(CuError::OUT_OF_MEMORY));
            create(GRANULE, device(0)).unwrap();
            assert_eq!(alloc(4), Err(CuError::UNKNOWN));
            let at = alloc(4).unwrap();
            assert_eq!(cuMemFree_v2(at), Err(CuError::ILLEGAL_ADDRESS));
            other.link.receive();
            assert_eq!(used(), 8 * MIB, "freed all the same");
            assert_eq!(lock(other.pid(), 1000), Err(CuError::OPERATING_SYSTEM));
            lock(other.pid(), 1000).unwrap();
            unlock(other.pid()).unwrap();
            other.link.send(&[]);
            assert_eq!(other.signal(), libc::SIGKILL);
        },
    );
}
