//! Handles, reservations, mappings and access.

use std::ffi::c_void;

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::machine;

fn retain(at: DevicePtr) -> CuResult<MemHandle> {
    let mut handle = MemHandle::NONE;
    let address: *mut c_void = std::ptr::without_provenance_mut(at.0.try_into().unwrap());
    cuMemRetainAllocationHandle(&raw mut handle, address).map(|()| handle)
}

#[test]
fn a_freed_handle_value_comes_back() {
    machine().test("vmm::a_freed_handle_value_comes_back", |_| {
        cuInit(0).unwrap();
        let first = create(GRANULE, device(0)).unwrap();
        cuMemRelease(first).unwrap();
        assert_eq!(create(GRANULE, device(0)).unwrap(), first);
    });
}

#[test]
fn creation_needs_no_context_and_knows_its_locations() {
    machine().test("vmm::creation_needs_no_context_and_knows_its_locations", |_| {
        assert_eq!(create(GRANULE, device(0)), Err(CuError::NOT_INITIALIZED));
        cuInit(0).unwrap();
        for (kind, id, result) in [
            (LocationType::DEVICE, 0, Ok(())),
            (LocationType::DEVICE, 1, Ok(())),
            (LocationType::DEVICE, 2, Err(CuError::INVALID_DEVICE)),
            (LocationType::DEVICE, -1, Err(CuError::INVALID_DEVICE)),
            (LocationType::HOST, 77, Ok(())),
            (LocationType::HOST_NUMA, 0, Ok(())),
            (LocationType::HOST_NUMA, 99, Err(CuError::INVALID_VALUE)),
            (LocationType::HOST_NUMA_CURRENT, 0, Err(CuError::INVALID_VALUE)),
            (LocationType(99), 0, Err(CuError::INVALID_VALUE)),
        ] {
            assert_eq!(create(GRANULE, on(kind, id)).map(|_| ()), result, "{kind:?} {id}");
        }
        assert_eq!(create(GRANULE + 1, device(0)), Err(CuError::INVALID_VALUE));
        assert_eq!(create(0, device(0)), Err(CuError::INVALID_VALUE));
        let with = |types, prop| AllocationProp { requested_handle_types: HandleType(types), ..prop };
        assert_eq!(
            create(GRANULE, with(8, device(0))),
            Err(CuError::NOT_PERMITTED),
            "no channel for fabric handles"
        );
        assert_eq!(create(GRANULE, with(2, device(0))), Err(CuError::INVALID_VALUE));
        assert_eq!(create(GRANULE, with(1, on(LocationType::HOST, 0))), Err(CuError::INVALID_VALUE));
        create(GRANULE, with(1, on(LocationType::HOST_NUMA, 0))).unwrap();
        let reads_back = |handle| {
            let mut prop = AllocationProp::default();
            cuMemGetAllocationPropertiesFromHandle(&raw mut prop, handle).unwrap();
            (prop.location, prop.requested_handle_types)
        };
        let host = reads_back(create(GRANULE, on(LocationType::HOST, 7)).unwrap());
        assert_eq!(host, (MemLocation { kind: LocationType::HOST_NUMA, id: 0 }, HandleType::NONE));
        let odd = reads_back(create(GRANULE, with(64, device(1))).unwrap());
        assert_eq!(odd, (MemLocation { kind: LocationType::DEVICE, id: 1 }, HandleType::NONE));
        let mut granularity = 0;
        let prop = device(0);
        cuMemGetAllocationGranularity(&raw mut granularity, &raw const prop, GranularityFlags::MINIMUM)
            .unwrap();
        assert_eq!(granularity, GRANULE);
    });
}

#[test]
fn a_mapping_keeps_memory_and_the_value_of_a_released_handle() {
    machine().violates(&["released before"]).test(
        "vmm::a_mapping_keeps_memory_and_the_value_of_a_released_handle",
        |_| {
            start();
            let handle = create(GRANULE, exportable(0)).unwrap();
            let at = map(handle, GRANULE, 0);
            cuMemRelease(handle).unwrap();
            write(at, &[1, 2, 3]).unwrap();
            assert_eq!(read(at, 3).unwrap(), [1, 2, 3]);
            // As measured: it can be used, but not released.
            export(handle).unwrap();
            let again = map(handle, GRANULE, 0);
            assert_eq!(read(again, 1).unwrap(), [1]);
            unmap(again, GRANULE);
            assert_eq!(cuMemRelease(handle), Err(CuError::INVALID_VALUE));
            assert_eq!(retain(DevicePtr(at.0 + 4097)).unwrap(), handle, "the same value");
            cuMemRelease(handle).unwrap();
            assert_eq!(used(), GRANULE);
            unmap(at, GRANULE);
            assert_eq!(used(), 0);
        },
    );
}

#[test]
fn what_is_no_handle_is_a_violation() {
    let words = ["cuMemRelease", "cuMemMap", "cuMemRelease"];
    machine().violates(&words).test("vmm::what_is_no_handle_is_a_violation", |_| {
        cuInit(0).unwrap();
        let handle = create(GRANULE, device(0)).unwrap();
        cuMemRelease(handle).unwrap();
        assert_eq!(cuMemRelease(handle), Err(CuError::INVALID_VALUE));
        let at = reserve(GRANULE);
        assert_eq!(cuMemMap(at, GRANULE, 0, handle, 0), Err(CuError::INVALID_VALUE));
        assert_eq!(cuMemRelease(MemHandle(0x1234)), Err(CuError::INVALID_VALUE));
    });
}

fn access(at: DevicePtr, kind: LocationType, id: i32) -> CuResult<u64> {
    let location = MemLocation { kind, id };
    let mut flags = u64::MAX;
    cuMemGetAccess(&raw mut flags, &raw const location, at).map(|()| flags)
}

#[test]
fn access_is_per_location_and_whole_mapping() {
    machine().test("vmm::access_is_per_location_and_whole_mapping", |_| {
        start();
        let at = reserve(4 * GRANULE);
        let second = DevicePtr(at.0 + GRANULE as u64);
        for (at, size) in [(at, GRANULE), (second, 2 * GRANULE)] {
            let handle = create(size, device(0)).unwrap();
            cuMemMap(at, size, 0, handle, 0).unwrap();
        }
        let on = |at, id| access(at, LocationType::DEVICE, id);
        assert_eq!(write(at, &[1]), Err(CuError::INVALID_VALUE), "nobody may yet");
        assert_eq!(on(at, 0), Ok(0));
        grant(at, 3 * GRANULE, 0, AccessFlags::READ_WRITE).unwrap();
        grant(second, 2 * GRANULE, 1, AccessFlags::READ).unwrap();
        assert_eq!([on(at, 0), on(at, 1)], [Ok(3), Ok(0)]);
        assert_eq!([on(second, 0), on(second, 1)], [Ok(3), Ok(1)], "a later grant adds");
        grant(second, 2 * GRANULE, 0, AccessFlags::NONE).unwrap();
        assert_eq!([on(second, 0), on(second, 1)], [Ok(0), Ok(1)]);
        assert_eq!(read(second, 1), Err(CuError::INVALID_VALUE));
        let refused = Err(CuError::INVALID_VALUE);
        assert_eq!(grant(second, GRANULE, 0, AccessFlags::READ), refused, "half of a mapping");
        assert_eq!(grant(at, 4 * GRANULE, 0, AccessFlags::READ), refused, "beyond the mappings");
        assert_eq!(grant(at, GRANULE, 0, AccessFlags(2)), refused);
        assert_eq!(grant(at, GRANULE, 9, AccessFlags::READ), refused);
        assert_eq!(on(at, 0), Ok(3), "nothing has changed");
        assert_eq!([on(at, 9), access(at, LocationType(99), 0)], [Err(CuError::INVALID_DEVICE); 2]);
        assert_eq!(on(DevicePtr(at.0 + 3 * GRANULE as u64), 0), Err(CuError::INVALID_VALUE), "only reserved");
    });
}

#[test]
fn writing_to_read_only_memory_is_a_violation() {
    machine().violates(&["ReadOnly"]).test("vmm::writing_to_read_only_memory_is_a_violation", |_| {
        start();
        let handle = create(GRANULE, device(0)).unwrap();
        let at = map(handle, GRANULE, 0);
        write(at, &[5]).unwrap();
        grant(at, GRANULE, 0, AccessFlags::READ).unwrap();
        assert_eq!(read(at, 1).unwrap(), [5]);
        assert_eq!(write(at, &[6]), Err(CuError::INVALID_VALUE));
        assert_eq!(read(at, 1).unwrap(), [5]);
    });
}

#[test]
fn memory_is_mapped_whole_and_as_often_as_one_likes() {
    machine().test("vmm::memory_is_mapped_whole_and_as_often_as_one_likes", |_| {
        start();
        let handle = create(2 * GRANULE, device(0)).unwrap();
        let (first, second) = (map(handle, 2 * GRANULE, 0), map(handle, 2 * GRANULE, 0));
        write(DevicePtr(first.0 + GRANULE as u64), &[9]).unwrap();
        assert_eq!(read(DevicePtr(second.0 + GRANULE as u64), 1).unwrap(), [9]);
        let at = reserve(4 * GRANULE);
        let part = |at: DevicePtr, size, offset| cuMemMap(at, size, offset, handle, 0);
        for (at, size, offset) in [
            (at, GRANULE, GRANULE),
            (at, GRANULE, 0),
            (at, 3 * GRANULE, 0),
            (at, 2 * GRANULE, 4096),
            (DevicePtr(at.0 + 4096), GRANULE, 0),
        ] {
            assert_eq!(part(at, size, offset), Err(CuError::NOT_SUPPORTED), "{size} {offset}");
        }
        assert_eq!(part(at, 0, 0), Err(CuError::INVALID_VALUE));
        assert_eq!(part(DevicePtr(at.0 + 4096), 2 * GRANULE, 0), Err(CuError::INVALID_VALUE));
    });
}

#[test]
fn reservations_and_mappings_are_whole() {
    let words = ["still mapped", "cuts a mapping", "mapped in", "no reservation"];
    machine().violates(&words).test("vmm::reservations_and_mappings_are_whole", |_| {
        start();
        let at = reserve(6 * GRANULE);
        let second = DevicePtr(at.0 + 2 * GRANULE as u64);
        for part in [at, second] {
            let handle = create(2 * GRANULE, device(0)).unwrap();
            cuMemMap(part, 2 * GRANULE, 0, handle, 0).unwrap();
            cuMemRelease(handle).unwrap();
        }
        assert_eq!(cuMemAddressFree(at, 6 * GRANULE), Err(CuError::INVALID_VALUE));
        assert_eq!(cuMemUnmap(at, GRANULE), Err(CuError::INVALID_VALUE));
        assert_eq!(cuMemUnmap(at, 0), Err(CuError::INVALID_VALUE));
        let handle = create(GRANULE, device(0)).unwrap();
        assert_eq!(cuMemMap(at, GRANULE, 0, handle, 0), Err(CuError::INVALID_VALUE));
        // Neighbours are unmapped at once, and what is only reserved with them.
        cuMemUnmap(at, 6 * GRANULE).unwrap();
        cuMemUnmap(at, 2 * GRANULE).unwrap();
        assert_eq!(used(), GRANULE);
        assert_eq!(cuMemAddressFree(at, 2 * GRANULE), Err(CuError::INVALID_VALUE));
        cuMemAddressFree(at, 6 * GRANULE).unwrap();
        let mut again = DevicePtr(0);
        cuMemAddressReserve(&raw mut again, 6 * GRANULE, 0, at, 0).unwrap();
        assert_eq!(again, at, "a wish for a free address is granted");
        cuMemAddressReserve(&raw mut again, 6 * GRANULE, 0, at, 0).unwrap();
        assert_ne!(again, at, "one for a taken address is not");
        let odd = cuMemAddressReserve(&raw mut again, GRANULE, 3, DevicePtr(0), 0);
        assert_eq!(odd, Err(CuError::INVALID_VALUE));
    });
}

#[test]
fn host_memory_can_be_touched_by_the_host_once_it_is_granted() {
    machine().test("vmm::host_memory_can_be_touched_by_the_host_once_it_is_granted", |_| {
        start();
        let handle = create(GRANULE, on(LocationType::HOST_NUMA, 0)).unwrap();
        let at = map(handle, GRANULE, 0);
        let desc = AccessDesc {
            location: MemLocation { kind: LocationType::HOST, id: 0 },
            flags: AccessFlags::READ_WRITE,
        };
        cuMemSetAccess(at, GRANULE, &raw const desc, 1).unwrap();
        write(at, &[41]).unwrap();
        let place: *mut u32 = std::ptr::with_exposed_provenance_mut(at.0.try_into().unwrap());
        // SAFETY: granted to the host.
        let value = unsafe { place.read() };
        // SAFETY: as above.
        unsafe { place.write(value + 1) };
        assert_eq!(read(at, 1).unwrap(), [42]);
        assert_eq!(used(), 0, "it is on no device");
        let on_device = create(GRANULE, device(0)).unwrap();
        let at = map(on_device, GRANULE, 0);
        assert_eq!(cuMemSetAccess(at, GRANULE, &raw const desc, 1), Err(CuError::NOT_SUPPORTED));
    });
}

#[test]
fn unmapping_what_pending_work_uses_is_a_violation_and_the_work_faults() {
    let words = ["pending work", "Unmapped"];
    machine().violates(&words).test(
        "vmm::unmapping_what_pending_work_uses_is_a_violation_and_the_work_faults",
        |_| {
            start();
            let handle = create(GRANULE, device(0)).unwrap();
            let at = map(handle, GRANULE, 0);
            let gate = alloc(4).unwrap();
            write(gate, &[0]).unwrap();
            let stream = own_stream();
            launch(kernel("wait_flag"), stream, &[gate.0, 1]).unwrap();
            launch(kernel("fill"), stream, &[at.0, 10, 1]).unwrap();
            cuMemUnmap(at, GRANULE).unwrap();
            let other = own_stream();
            cuStreamWriteValue32_v2(other, gate, 1, 0).unwrap();
            assert_eq!(cuStreamSynchronize(stream), Err(CuError::ILLEGAL_ADDRESS));
            assert_eq!(alloc(4), Err(CuError::ILLEGAL_ADDRESS), "the error stays");
        },
    );
}
