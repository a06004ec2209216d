//! Multicast objects: what the documentation says of them, and the habit of drivers before r610.

use std::os::fd::AsFd;
use std::time::Instant;

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::{Me, Other, PATIENCE, Setup, machine};

fn with_multicast() -> Setup {
    machine().with("FAKECUDA_MULTICAST", "1")
}

fn object(devices: u32, size: usize) -> CuResult<MemHandle> {
    let prop = MulticastObjectProp {
        num_devices: devices,
        size,
        handle_types: HandleType::POSIX_FD.0.into(),
        flags: 0,
    };
    let mut handle = MemHandle::NONE;
    cuMulticastCreate(&raw mut handle, &raw const prop).map(|()| handle)
}

/// Imports the object that the parent sends, and adds a device.
fn join(me: &Me, device: i32) -> MemHandle {
    start_on(device);
    let (_, descriptors) = me.parent().receive_with();
    let handle = import(descriptors[0].as_fd()).unwrap();
    cuMulticastAddDevice(handle, Device(device)).unwrap();
    handle
}

/// Hands the object to another process.
fn hand(other: &Other, handle: MemHandle) {
    let descriptor = export(handle).unwrap();
    other.link.send_with(&[], &[descriptor.as_fd()]);
}

#[test]
fn what_is_written_through_an_object_is_in_the_memory_of_every_member() {
    with_multicast().test(
        "multicast::what_is_written_through_an_object_is_in_the_memory_of_every_member",
        |me| {
            if me.role() == "member" {
                let handle = join(me, 1);
                let memory = create(GRANULE, exportable(1)).unwrap();
                let own = map(memory, GRANULE, 1);
                write(own, &[5]).unwrap();
                cuMulticastBindAddr_v2(handle, Device(1), 0, own, GRANULE, 0).unwrap();
                let all = map(handle, GRANULE, 1);
                me.parent().send(&[]);
                me.parent().receive();
                assert_eq!(read(own, 2).unwrap(), [11, 12]);
                write(all, &[21]).unwrap();
                me.parent().send(&[]);
                me.parent().receive();
                assert_eq!(read(own, 1).unwrap(), [21], "bound no more at the other end, and written there");
                return;
            }
            start_on(0);
            let other = me.start("member");
            let handle = object(2, GRANULE).unwrap();
            cuMulticastAddDevice(handle, Device(0)).unwrap();
            hand(&other, handle);
            let memory = create(GRANULE, exportable(0)).unwrap();
            let own = map(memory, GRANULE, 0);
            cuMulticastBindMem(handle, 0, memory, 0, GRANULE, 0).unwrap();
            let all = map(handle, GRANULE, 0);
            other.link.receive();
            write(all, &[11, 12]).unwrap();
            assert_eq!(read(own, 2).unwrap(), [11, 12]);
            other.link.send(&[]);
            other.link.receive();
            assert_eq!(read(own, 2).unwrap(), [21, 12]);
            cuMulticastUnbind(handle, Device(0), 0, GRANULE).unwrap();
            write(own, &[31]).unwrap();
            assert_eq!(read(all, 1).unwrap(), [21], "only the other's memory is bound");
            other.link.send(&[]);
            other.finish();
        },
    );
}

#[test]
fn binding_waits_until_every_device_has_been_added() {
    with_multicast().test("multicast::binding_waits_until_every_device_has_been_added", |me| {
        if me.role() == "member" {
            let handle = join(me, 1);
            let memory = create(GRANULE, exportable(1)).unwrap();
            // Returns only because the parent, which is told first, adds its device.
            me.parent().send(&[]);
            cuMulticastBindMem(handle, 0, memory, 0, GRANULE, 0).unwrap();
            return me.parent().send(&[7]);
        }
        start_on(0);
        let other = me.start("member");
        let handle = object(2, GRANULE).unwrap();
        hand(&other, handle);
        other.link.receive();
        // One that waits looks again after each sleep.
        let (sleeps, begun) = (other.sleeps(), Instant::now());
        while other.sleeps() < sleeps + 10 && !other.link.has_message() {
            assert!(begun.elapsed() < PATIENCE, "it neither waits nor comes back");
            std::thread::yield_now();
        }
        assert!(!other.link.has_message(), "it did not wait");
        cuMulticastAddDevice(handle, Device(0)).unwrap();
        assert_eq!(other.link.receive(), [7]);
        other.finish();
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    with_multicast().violates(&["Unmapped"]).test("multicast::what_makes_no_sense_is_refused", |_| {
        start_on(0);
        let invalid = Err(CuError::INVALID_VALUE);
        assert_eq!(object(0, GRANULE), Err(CuError::INVALID_VALUE));
        assert_eq!(object(1, GRANULE / 2), Err(CuError::INVALID_VALUE));
        let handle = object(1, 2 * GRANULE).unwrap();
        cuMulticastAddDevice(handle, Device(0)).unwrap();
        assert_eq!(cuMulticastAddDevice(handle, Device(0)), invalid, "twice");
        assert_eq!(cuMulticastAddDevice(handle, Device(1)), invalid, "one too many");
        let (near, far) = (create(GRANULE, exportable(0)).unwrap(), create(GRANULE, exportable(1)).unwrap());
        assert_eq!(cuMulticastBindMem(handle, 0, far, 0, GRANULE, 0), Err(CuError::INVALID_DEVICE));
        assert_eq!(cuMulticastBindMem_v2(handle, Device(1), 0, near, 0, GRANULE, 0), invalid);
        cuMulticastBindMem_v2(handle, Device(0), GRANULE, near, 0, GRANULE, 0).unwrap();
        assert_eq!(cuMulticastBindMem(handle, GRANULE, near, 0, GRANULE, 0), invalid, "bound already");
        assert_eq!(cuMulticastBindMem(handle, 2 * GRANULE, near, 0, GRANULE, 0), invalid, "past the end");
        assert_eq!(cuMulticastUnbind(handle, Device(0), 0, GRANULE), invalid, "nothing there");
        let all = map(handle, 2 * GRANULE, 0);
        assert_eq!(write(all, &[1]), invalid, "nothing is bound there");
        let second = DevicePtr(all.0 + GRANULE as u64);
        write(second, &[9]).unwrap();
        assert_eq!(read(map(near, GRANULE, 0), 1).unwrap(), [9]);
    });
}

/// Nobody knows what becomes of it; it is taken to be like an import.
#[test]
fn an_object_that_is_there_at_a_checkpoint_makes_the_restore_fail() {
    with_multicast().test(
        "multicast::an_object_that_is_there_at_a_checkpoint_makes_the_restore_fail",
        |me| {
            if me.role() == "target" {
                start();
                object(1, GRANULE).unwrap();
                me.parent().send(&[]);
                me.parent().receive();
                return;
            }
            start();
            let other = me.start("target");
            other.link.receive();
            lock(other.pid(), 1000).unwrap();
            checkpoint(other.pid()).unwrap();
            assert_eq!(restore(other.pid()), Err(CuError::NOT_SUPPORTED));
            other.kill();
        },
    );
}

/// Adds a device in a process that was restored, and says whether that worked.
fn join_after_restore(me: &Me) -> Option<bool> {
    if me.role() == "target" {
        start();
        me.parent().send(&[]);
        me.parent().receive();
        let joined = cuMulticastAddDevice(object(1, GRANULE).unwrap(), Device(0));
        me.parent().send(&[joined.is_ok().into()]);
        return None;
    }
    start();
    let other = me.start("target");
    other.link.receive();
    lock(other.pid(), 1000).unwrap();
    checkpoint(other.pid()).unwrap();
    restore(other.pid()).unwrap();
    unlock(other.pid()).unwrap();
    other.link.send(&[]);
    let joined = other.link.receive() == [1];
    other.finish();
    Some(joined)
}

/// Public reports (docs/DRIVER-VERSIONS.md): `cuMulticastAddDevice` fails after a restore on drivers older than r610.
#[test]
fn a_restored_process_cannot_join_again_before_r610() {
    with_multicast().with("FAKECUDA_VERSION", "13000").test(
        "multicast::a_restored_process_cannot_join_again_before_r610",
        |me| {
            assert_ne!(join_after_restore(me), Some(true));
        },
    );
}

#[test]
fn a_restored_process_joins_again_from_r610_on() {
    with_multicast().with("FAKECUDA_VERSION", "13030").test(
        "multicast::a_restored_process_joins_again_from_r610_on",
        |me| {
            assert_ne!(join_after_restore(me), Some(false));
        },
    );
}

#[test]
fn without_the_switch_the_devices_have_no_multicast() {
    machine().test("multicast::without_the_switch_the_devices_have_no_multicast", |_| {
        start();
        assert_eq!(object(1, GRANULE), Err(CuError::NOT_SUPPORTED));
    });
}
