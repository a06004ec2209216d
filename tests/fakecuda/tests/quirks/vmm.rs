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
            (LocationType::HOST_NUMA_CURRENT, 0, Ok(())),
            (LocationType(99), 0, Err(CuError::INVALID_VALUE)),
        ] {
            assert_eq!(create(GRANULE, on(kind, id)).map(|_| ()), result, "{kind:?} {id}");
        }
        assert_eq!(create(GRANULE + 1, device(0)), Err(CuError::INVALID_VALUE));
        assert_eq!(create(0, device(0)), Err(CuError::INVALID_VALUE));
        let fabric = AllocationProp { requested_handle_types: HandleType::FABRIC, ..device(0) };
        assert_eq!(create(GRANULE, fabric), Err(CuError::NOT_PERMITTED));
        let mut granularity = 0;
        let prop = device(0);
        cuMemGetAllocationGranularity(&raw mut granularity, &raw const prop, GranularityFlags::MINIMUM)
            .unwrap();
        assert_eq!(granularity, GRANULE);
    });
}

#[test]
fn a_mapping_keeps_memory_whose_handle_was_released() {
    machine().test("vmm::a_mapping_keeps_memory_whose_handle_was_released", |_| {
        start();
        let handle = create(GRANULE, device(0)).unwrap();
        let at = map(handle, GRANULE, 0);
        cuMemRelease(handle).unwrap();
        write(at, &[1, 2, 3]).unwrap();
        assert_eq!(read(at, 3).unwrap(), [1, 2, 3]);
        let again = retain(at).unwrap();
        assert_eq!(again, handle, "the object is the same, and so is its handle");
        cuMemRelease(again).unwrap();
        assert_eq!(used(), GRANULE);
        unmap(at, GRANULE);
        assert_eq!(used(), 0);
    });
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

#[test]
fn access_is_per_device_and_per_part() {
    machine().test("vmm::access_is_per_device_and_per_part", |_| {
        start();
        let size = 3 * GRANULE;
        let handle = create(size, device(0)).unwrap();
        let at = reserve(size);
        cuMemMap(at, size, 0, handle, 0).unwrap();
        assert_eq!(write(at, &[1]), Err(CuError::INVALID_VALUE), "nobody may yet");
        grant(at, size, 0, AccessFlags::READ_WRITE).unwrap();
        let second = DevicePtr(at.0 + GRANULE as u64);
        grant(second, GRANULE, 1, AccessFlags::READ).unwrap();
        let access = |at: DevicePtr, id| {
            let location = MemLocation { kind: LocationType::DEVICE, id };
            let mut flags = u64::MAX;
            cuMemGetAccess(&raw mut flags, &raw const location, at).unwrap();
            flags
        };
        assert_eq!([access(at, 0), access(at, 1)], [3, 0]);
        assert_eq!([access(second, 0), access(second, 1)], [3, 1], "a later grant adds");
        grant(second, GRANULE, 0, AccessFlags::NONE).unwrap();
        assert_eq!([access(second, 0), access(second, 1)], [0, 1]);
        assert_eq!([access(DevicePtr(at.0 + 2 * GRANULE as u64), 0)], [3]);
        assert_eq!(read(second, 1), Err(CuError::INVALID_VALUE));
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
fn two_mappings_of_one_memory_show_the_same_bytes_at_their_offsets() {
    machine().test("vmm::two_mappings_of_one_memory_show_the_same_bytes_at_their_offsets", |_| {
        start();
        let handle = create(2 * GRANULE, device(0)).unwrap();
        let whole = map(handle, 2 * GRANULE, 0);
        let half = reserve(GRANULE);
        cuMemMap(half, GRANULE, GRANULE, handle, 0).unwrap();
        grant(half, GRANULE, 0, AccessFlags::READ_WRITE).unwrap();
        write(half, &[9]).unwrap();
        assert_eq!(read(DevicePtr(whole.0 + GRANULE as u64), 1).unwrap(), [9]);
        assert_eq!(cuMemMap(reserve(GRANULE), GRANULE, 2 * GRANULE, handle, 0), Err(CuError::INVALID_VALUE));
    });
}

#[test]
fn reservations_and_mappings_are_whole() {
    let words = ["still mapped", "whole mappings", "mapped in", "no reservation"];
    machine().violates(&words).test("vmm::reservations_and_mappings_are_whole", |_| {
        start();
        let at = reserve(4 * GRANULE);
        let second = DevicePtr(at.0 + 2 * GRANULE as u64);
        for part in [at, second] {
            let handle = create(2 * GRANULE, device(0)).unwrap();
            cuMemMap(part, 2 * GRANULE, 0, handle, 0).unwrap();
            cuMemRelease(handle).unwrap();
        }
        assert_eq!(cuMemAddressFree(at, 4 * GRANULE), Err(CuError::INVALID_VALUE));
        assert_eq!(cuMemUnmap(at, GRANULE), Err(CuError::INVALID_VALUE));
        let handle = create(GRANULE, device(0)).unwrap();
        assert_eq!(cuMemMap(at, GRANULE, 0, handle, 0), Err(CuError::INVALID_VALUE));
        // Several neighbours are unmapped at once.
        cuMemUnmap(at, 4 * GRANULE).unwrap();
        assert_eq!(cuMemAddressFree(at, 2 * GRANULE), Err(CuError::INVALID_VALUE));
        cuMemAddressFree(at, 4 * GRANULE).unwrap();
        let mut again = DevicePtr(0);
        cuMemAddressReserve(&raw mut again, 4 * GRANULE, 0, at, 0).unwrap();
        assert_eq!(again, at, "a wish for a free address is granted");
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
        assert_eq!(cuMemSetAccess(at, GRANULE, &raw const desc, 1), Err(CuError::INVALID_VALUE));
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
