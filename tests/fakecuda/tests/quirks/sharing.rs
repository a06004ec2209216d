//! Memory that several processes share by descriptor, and what it counts.

use std::os::fd::{AsFd, OwnedFd};

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::{Me, Other, machine};

/// Exports memory to another process and waits until that says it has it mapped.
fn share(other: &Other, handle: MemHandle) -> OwnedFd {
    let descriptor = export(handle).unwrap();
    other.link.send_with(&[], &[descriptor.as_fd()]);
    other.link.receive();
    descriptor
}

/// The other side of [`share`].
fn take(me: &Me) -> (MemHandle, DevicePtr) {
    start();
    let (_, descriptors) = me.parent().receive_with();
    let handle = import(descriptors[0].as_fd()).unwrap();
    let at = map(handle, GRANULE, 0);
    me.parent().send(&[]);
    (handle, at)
}

#[test]
fn what_one_process_writes_the_other_reads() {
    machine().test("sharing::what_one_process_writes_the_other_reads", |me| {
        if me.role() == "importer" {
            let (_, at) = take(me);
            assert_eq!(me.parent().receive(), [1]);
            assert_eq!(read(at, 2).unwrap(), [11, 12]);
            write(at, &[21, 22]).unwrap();
            return me.parent().send(&[2]);
        }
        start();
        let other = me.start("importer");
        let handle = create(GRANULE, exportable(0)).unwrap();
        let at = map(handle, GRANULE, 0);
        share(&other, handle);
        write(at, &[11, 12]).unwrap();
        other.link.send(&[1]);
        assert_eq!(other.link.receive(), [2]);
        assert_eq!(read(at, 2).unwrap(), [21, 22]);
        assert_eq!(used(), GRANULE, "one memory, counted once");
        other.finish();
    });
}

#[test]
fn a_descriptor_keeps_the_memory_of_a_dead_process() {
    machine().test("sharing::a_descriptor_keeps_the_memory_of_a_dead_process", |me| {
        if me.role() == "exporter" {
            start();
            let handle = create(GRANULE, exportable(0)).unwrap();
            write(map(handle, GRANULE, 0), &[77]).unwrap();
            let descriptor = export(handle).unwrap();
            // Never exported: gone with its process.
            alloc(8 * MIB).unwrap();
            me.parent().send_with(&[], &[descriptor.as_fd()]);
            me.parent().receive();
            return;
        }
        start();
        let other = me.start("exporter");
        let descriptor = other.link.receive_with().1.remove(0);
        assert_eq!(used(), GRANULE + 8 * MIB);
        other.kill();
        assert_eq!(used(), GRANULE, "only the descriptor is left");
        let handle = import(descriptor.as_fd()).unwrap();
        drop(descriptor);
        assert_eq!(read(map(handle, GRANULE, 0), 1).unwrap(), [77]);
        assert_eq!(used(), GRANULE);
    });
}

#[test]
fn the_last_reference_gives_the_memory_back_wherever_it_is() {
    machine().test("sharing::the_last_reference_gives_the_memory_back_wherever_it_is", |me| {
        if me.role() == "importer" {
            let (handle, at) = take(me);
            assert_eq!(me.parent().receive(), [1]);
            unmap(at, GRANULE);
            cuMemRelease(handle).unwrap();
            return me.parent().send(&[2]);
        }
        start();
        let other = me.start("importer");
        let handle = create(GRANULE, exportable(0)).unwrap();
        let descriptor = share(&other, handle);
        cuMemRelease(handle).unwrap();
        assert_eq!(used(), GRANULE);
        other.link.send(&[1]);
        assert_eq!(other.link.receive(), [2]);
        assert_eq!(used(), GRANULE, "the descriptor is still open");
        drop(descriptor);
        assert_eq!(used(), 0);
        other.finish();
    });
}

#[test]
fn only_descriptors_of_the_driver_are_imported() {
    machine().test("sharing::only_descriptors_of_the_driver_are_imported", |_| {
        start();
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert_eq!(import(file.as_fd()), Err(CuError::UNKNOWN));
        let of_kind = |kind| {
            let mut handle = MemHandle::NONE;
            let descriptor = std::ptr::without_provenance_mut(7);
            cuMemImportFromShareableHandle(&raw mut handle, descriptor, HandleType(kind))
        };
        let [unknown, refused, foreign] =
            [CuError::UNKNOWN, CuError::INVALID_VALUE, CuError::NOT_SUPPORTED].map(Err);
        assert_eq!([0, 1, 2, 4, 99].map(of_kind), [refused, unknown, foreign, foreign, refused]);
        let private = create(GRANULE, device(0)).unwrap();
        assert_eq!(export(private).map(|_| ()), Err(CuError::INVALID_VALUE), "not made exportable");
        cuMemRelease(private).unwrap();
        let handle = create(GRANULE, exportable(0)).unwrap();
        let descriptor = export(handle).unwrap();
        let imported = import(descriptor.as_fd()).unwrap();
        assert_ne!(imported, handle, "each import is a handle of its own");
        let mut prop = AllocationProp::default();
        cuMemGetAllocationPropertiesFromHandle(&raw mut prop, imported).unwrap();
        assert_eq!(prop.location, MemLocation { kind: LocationType::DEVICE, id: 0 });
        assert_eq!(prop.requested_handle_types, HandleType::NONE);
        assert_eq!(
            export(imported).map(|_| ()),
            Err(CuError::INVALID_VALUE),
            "an import is not exported again"
        );
        let at = map(imported, GRANULE, 0);
        let mut retained = MemHandle::NONE;
        let address = std::ptr::without_provenance_mut(at.0.try_into().unwrap());
        cuMemRetainAllocationHandle(&raw mut retained, address).unwrap();
        assert_eq!(retained, imported, "the handle that was mapped");
        cuMemRelease(retained).unwrap();
        cuMemRelease(handle).unwrap();
        drop(descriptor);
        assert_eq!(used(), GRANULE);
        unmap(at, GRANULE);
        cuMemRelease(imported).unwrap();
        assert_eq!(used(), 0);
    });
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn sharing_again_and_again_leaves_no_descriptor_behind() {
    machine().test("sharing::sharing_again_and_again_leaves_no_descriptor_behind", |me| {
        if me.role() == "importer" {
            start();
            let mut before = 0;
            for round in 0..5 {
                let (_, descriptor) = me.parent().receive_with();
                let handle = import(descriptor[0].as_fd()).unwrap();
                drop(descriptor);
                let at = map(handle, GRANULE, 0);
                assert_eq!(read(at, 1).unwrap(), [round]);
                unmap(at, GRANULE);
                cuMemRelease(handle).unwrap();
                me.parent().send(&[]);
                if round == 1 {
                    before = descriptors();
                }
            }
            return assert_eq!(descriptors(), before);
        }
        start();
        let other = me.start("importer");
        let mut before = 0;
        for round in 0..5 {
            let handle = create(GRANULE, exportable(0)).unwrap();
            let at = map(handle, GRANULE, 0);
            write(at, &[round]).unwrap();
            share(&other, handle);
            unmap(at, GRANULE);
            cuMemRelease(handle).unwrap();
            if round == 1 {
                before = descriptors();
            }
        }
        assert_eq!(descriptors(), before);
        other.finish();
    });
}

#[test]
fn an_exporter_finds_its_memory_free_again() {
    machine().test("sharing::an_exporter_finds_its_memory_free_again", |_| {
        start();
        // Ten times the device's memory, one after the other.
        for round in 0..40 {
            let handle = create(1024 * MIB, exportable(0)).unwrap();
            let descriptor = export(handle).unwrap();
            let at = map(handle, 1024 * MIB, 0);
            assert_eq!(read(at, 1).unwrap(), [0], "round {round}: new memory is zero");
            write(at, &[1]).unwrap();
            unmap(at, 1024 * MIB);
            cuMemRelease(handle).unwrap();
            drop(descriptor);
        }
        assert_eq!(used(), 0);
    });
}

/// The header: opening enables peer access as needed.
#[test]
fn the_device_that_opens_reaches_what_it_has_opened() {
    machine().test("sharing::the_device_that_opens_reaches_what_it_has_opened", |me| {
        let mut handle = IpcMemHandle { reserved: [0; 64] };
        if me.role() == "opener" {
            start_on(1);
            let words = me.parent().receive();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            handle.reserved.copy_from_slice(&bytes);
            let mut at = DevicePtr(0);
            cuIpcOpenMemHandle_v2(&raw mut at, handle, 1).unwrap();
            launch(kernel("fill"), Stream::NULL, &[at.0, 1, 8]).unwrap();
            cuCtxSynchronize().unwrap();
            me.parent().send(&[]);
            return;
        }
        start_on(0);
        let at = alloc(4 * MIB).unwrap();
        cuIpcGetMemHandle(&raw mut handle, at).unwrap();
        let other = me.start("opener");
        let words = handle.reserved.chunks_exact(8);
        let words: Vec<u64> = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        other.link.send(&words);
        other.link.receive();
        assert_eq!(read(at, 1).unwrap(), [8]);
        other.finish();
    });
}
