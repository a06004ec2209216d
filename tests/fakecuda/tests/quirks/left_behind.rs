//! What a process holds when it is checkpointed, and whether it comes back with it: docs/DRIVER-VERSIONS.md, `locking`.

use std::os::fd::AsFd;

use cuda_sys::*;

use crate::checkpoint::{cycle_to_restore, ready, target};
use crate::cuda::*;
use crate::helpers::*;
use crate::process::{Me, machine};

#[test]
fn an_import_left_behind_makes_the_restore_fail_for_good() {
    machine().test("left_behind::an_import_left_behind_makes_the_restore_fail_for_good", |me| {
        if me.role() == "target" {
            start();
            let (_, descriptors) = me.parent().receive_with();
            let handle = import(descriptors[0].as_fd()).unwrap();
            let at = map(handle, GRANULE, 0);
            cuMemRelease(handle).unwrap();
            ready(me);
            // Never returns.
            let _ = read(at, 1);
            return me.parent().send(&[1]);
        }
        start();
        let other = me.start("target");
        let handle = create(GRANULE, exportable(0)).unwrap();
        other.link.send_with(&[], &[export(handle).unwrap().as_fd()]);
        other.link.receive();
        assert_eq!(cycle_to_restore(other.pid()), Err(CuError::NOT_SUPPORTED));
        other.link.send(&[]);
        other.kill();
        assert_eq!(used(), GRANULE);
    });
}

#[test]
fn a_released_import_is_harmless_and_can_be_made_again() {
    machine().test("left_behind::a_released_import_is_harmless_and_can_be_made_again", |me| {
        if me.role() == "target" {
            start();
            let (_, descriptors) = me.parent().receive_with();
            let handle = import(descriptors[0].as_fd()).unwrap();
            let at = map(handle, GRANULE, 0);
            cuMemUnmap(at, GRANULE).unwrap();
            cuMemRelease(handle).unwrap();
            ready(me);
            let (_, descriptors) = me.parent().receive_with();
            // The reservation has survived: the new import goes to the old address.
            cuMemMap(at, GRANULE, 0, import(descriptors[0].as_fd()).unwrap(), 0).unwrap();
            grant(at, GRANULE, 0, AccessFlags::READ_WRITE).unwrap();
            assert_eq!(read(at, 1).unwrap(), [9]);
            return;
        }
        start();
        let other = me.start("target");
        let handle = create(GRANULE, exportable(0)).unwrap();
        write(map(handle, GRANULE, 0), &[9]).unwrap();
        other.link.send_with(&[], &[export(handle).unwrap().as_fd()]);
        other.link.receive();
        assert_eq!(cycle_to_restore(other.pid()), Ok(()));
        unlock(other.pid()).unwrap();
        other.link.send(&[]);
        other.link.send_with(&[], &[export(handle).unwrap().as_fd()]);
        other.finish();
    });
}

#[test]
fn after_the_exporter_alone_was_cycled_both_read_right_but_share_no_longer() {
    machine().test(
        "left_behind::after_the_exporter_alone_was_cycled_both_read_right_but_share_no_longer",
        |me| {
            if me.role() == "target" {
                start();
                let handle = create(GRANULE, exportable(0)).unwrap();
                let at = map(handle, GRANULE, 0);
                write(at, &[5]).unwrap();
                me.parent().send_with(&[], &[export(handle).unwrap().as_fd()]);
                me.parent().receive();
                assert_eq!(read(at, 1).unwrap(), [5]);
                write(at, &[6]).unwrap();
                return ready(me);
            }
            start();
            let other = me.start("target");
            let (_, descriptors) = other.link.receive_with();
            let at = map(import(descriptors[0].as_fd()).unwrap(), GRANULE, 0);
            drop(descriptors);
            assert_eq!(used(), GRANULE);
            assert_eq!(cycle_to_restore(other.pid()), Ok(()));
            assert_eq!(used(), 2 * GRANULE, "two memories now");
            unlock(other.pid()).unwrap();
            other.link.send(&[]);
            other.link.receive();
            assert_eq!(read(at, 1).unwrap(), [5]);
            other.link.send(&[]);
            other.finish();
        },
    );
}

/// Cycles a target that holds something, and says how the restore went.
fn restore_of(me: &Me, hold: impl FnOnce()) -> Option<CuResult> {
    if me.role() == "target" {
        start();
        hold();
        ready(me);
        return None;
    }
    let other = target(me);
    let result = cycle_to_restore(other.pid());
    other.kill();
    Some(result)
}

#[test]
fn memory_of_the_host_makes_the_restore_fail_for_good() {
    machine().test("left_behind::memory_of_the_host_makes_the_restore_fail_for_good", |me| {
        let result = restore_of(me, || {
            create(GRANULE, on(LocationType::HOST_NUMA, 0)).unwrap();
        });
        assert!(result.is_none_or(|result| result == Err(CuError::UNKNOWN)), "{result:?}");
    });
}

/// Of pools nothing is measured: what they make is taken for no better.
#[test]
fn memory_out_of_a_pool_of_the_host_does_the_same() {
    machine().test("left_behind::memory_out_of_a_pool_of_the_host_does_the_same", |me| {
        let result = restore_of(me, || {
            let (mut pool, mut at) = (MemPool::NULL, DevicePtr(0));
            let mut location = MemLocation { kind: LocationType::HOST_NUMA, id: 0 };
            cuMemGetDefaultMemPool(&raw mut pool, &raw mut location, AllocationType::PINNED.0).unwrap();
            cuMemAllocFromPoolAsync(&raw mut at, 100, pool, own_stream()).unwrap();
        });
        assert!(result.is_none_or(|result| result == Err(CuError::UNKNOWN)), "{result:?}");
    });
}

#[test]
fn released_memory_of_the_host_is_harmless() {
    machine().test("left_behind::released_memory_of_the_host_is_harmless", |me| {
        let result = restore_of(me, || {
            cuMemRelease(create(GRANULE, on(LocationType::HOST_NUMA, 0)).unwrap()).unwrap();
        });
        assert!(result.is_none_or(|result| result == Ok(())), "{result:?}");
    });
}

#[test]
fn private_pools_registered_memory_and_events_are_carried() {
    machine().test("left_behind::private_pools_registered_memory_and_events_are_carried", |me| {
        let result = restore_of(me, || {
            let mut at = DevicePtr(0);
            cuMemAllocAsync(&raw mut at, 100, own_stream()).unwrap();
            let memory = vec![0_u8; 8192].leak();
            cuMemHostRegister_v2(memory.as_mut_ptr().cast(), memory.len(), 0).unwrap();
            event(6);
        });
        assert!(result.is_none_or(|result| result == Ok(())), "{result:?}");
    });
}

#[test]
fn managed_memory_makes_the_checkpoint_fail_and_the_process_goes_on() {
    machine().test("left_behind::managed_memory_makes_the_checkpoint_fail_and_the_process_goes_on", |me| {
        if me.role() == "target" {
            start();
            let mut at = DevicePtr(0);
            cuMemAllocManaged(&raw mut at, 4096, 1).unwrap();
            ready(me);
            return alloc(4).map(|_| ()).unwrap();
        }
        let other = target(me);
        lock(other.pid(), 1000).unwrap();
        assert_eq!(checkpoint(other.pid()), Err(CuError::NOT_SUPPORTED));
        assert_eq!(state(other.pid()), Ok(ProcessState::LOCKED));
        unlock(other.pid()).unwrap();
        other.link.send(&[]);
        other.finish();
    });
}
