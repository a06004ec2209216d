//! What pointers say of themselves, and legacy IPC.

use std::ffi::{c_uint, c_void};

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::machine;

/// An attribute of up to 64 bits.
fn attribute(at: DevicePtr, attribute: c_uint) -> CuResult<u64> {
    let mut value = 0_u64;
    cuPointerGetAttribute((&raw mut value).cast::<c_void>(), attribute, at).map(|()| value)
}

#[test]
fn native_and_vmm_memory_differ_as_measured() {
    machine().test("native::native_and_vmm_memory_differ_as_measured", |_| {
        start();
        let native = alloc(1000).unwrap();
        let vmm = map(create(GRANULE, exportable(0)).unwrap(), GRANULE, 0);
        assert_eq!([attribute(native, 10), attribute(vmm, 10)], [Ok(1), Ok(0)], "legacy IPC");
        assert_eq!([attribute(native, 14), attribute(vmm, 14)], [Ok(0), Ok(1)], "handle types");
        assert_eq!([attribute(native, 2), attribute(vmm, 2)], [Ok(2), Ok(2)], "device memory");
        assert!(
            [attribute(native, 1).unwrap() == 0, attribute(vmm, 1).unwrap() == 0] == [false, true],
            "context"
        );
        let mut bytes = u64::MAX;
        cuPointerGetAttribute((&raw mut bytes).cast::<c_void>(), 10, native).unwrap();
        assert_eq!(bytes, u64::MAX << 32 | 1, "a boolean takes four bytes");
        let range = |at| {
            let (mut base, mut size) = (DevicePtr(0), 0);
            cuMemGetAddressRange_v2(&raw mut base, &raw mut size, at).unwrap();
            (base, size)
        };
        assert_eq!(range(DevicePtr(native.0 + 999)), (native, 1000), "the requested size");
        assert_eq!(range(vmm), (vmm, GRANULE));
        let retain = |at: DevicePtr| {
            let mut handle = MemHandle::NONE;
            let address = std::ptr::without_provenance_mut(at.0.try_into().unwrap());
            cuMemRetainAllocationHandle(&raw mut handle, address)
        };
        assert_eq!(retain(native), Err(CuError::INVALID_VALUE));
        retain(vmm).unwrap();
        let yes: c_uint = 1;
        let set = |at| cuPointerSetAttribute((&raw const yes).cast(), SYNC_MEMOPS, at);
        set(native).unwrap();
        assert_eq!(set(vmm), Err(CuError::NOT_SUPPORTED));
        assert_eq!(attribute(DevicePtr(0x1000), 2), Err(CuError::INVALID_VALUE));
        assert_eq!(alloc(0), Err(CuError::INVALID_VALUE));
    });
}

#[test]
fn host_registration_minds_what_is_there() {
    machine().test("native::host_registration_minds_what_is_there", |_| {
        start();
        let memory = vec![0_u8; 3 * 4096].leak();
        let at = memory.as_mut_ptr();
        let register = |from: usize, size: usize| cuMemHostRegister_v2(at.wrapping_add(from).cast(), size, 0);
        register(100, 5000).unwrap();
        assert_eq!(register(0, 200), Err(CuError::HOST_MEMORY_ALREADY_REGISTERED));
        assert_eq!(register(5000, 200), Err(CuError::HOST_MEMORY_ALREADY_REGISTERED));
        register(5100, 100).unwrap();
        let mut pointer = DevicePtr(0);
        cuMemHostGetDevicePointer_v2(&raw mut pointer, at.wrapping_add(200).cast(), 0).unwrap();
        assert_eq!(pointer.0, at.wrapping_add(200).expose_provenance() as u64);
        launch(kernel("fill"), Stream::NULL, &[pointer.0, 1, 9]).unwrap();
        cuCtxSynchronize().unwrap();
        assert_eq!(memory[200], 9);
        assert_eq!(
            cuMemHostUnregister(at.wrapping_add(200).cast()),
            Err(CuError::HOST_MEMORY_NOT_REGISTERED)
        );
        cuMemHostUnregister(at.wrapping_add(100).cast()).unwrap();
        let nowhere = std::ptr::without_provenance_mut(0x1000);
        assert_eq!(cuMemHostRegister_v2(nowhere, 4096, 0), Err(CuError::INVALID_VALUE));
    });
}

fn handle(at: DevicePtr) -> CuResult<IpcMemHandle> {
    let mut handle = IpcMemHandle { reserved: [0; IPC_HANDLE_SIZE] };
    cuIpcGetMemHandle(&raw mut handle, at).map(|()| handle)
}

fn open(handle: IpcMemHandle) -> CuResult<DevicePtr> {
    let mut at = DevicePtr(0);
    cuIpcOpenMemHandle_v2(&raw mut at, handle, 1).map(|()| at)
}

fn to_words(handle: IpcMemHandle) -> Vec<u64> {
    handle.reserved.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn from_words(words: &[u64]) -> IpcMemHandle {
    let mut handle = IpcMemHandle { reserved: [0; IPC_HANDLE_SIZE] };
    for (bytes, word) in handle.reserved.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    handle
}

#[test]
fn legacy_ipc_opens_counts_and_closes() {
    machine().violates(&["cuIpcCloseMemHandle", "cuMemFree"]).test(
        "native::legacy_ipc_opens_counts_and_closes",
        |me| {
            if me.role() == "opener" {
                start();
                let handle = from_words(&me.parent().receive());
                let at = open(handle).unwrap();
                assert_eq!(read(at, 1).unwrap(), [5]);
                write(DevicePtr(at.0 + 4), &[6]).unwrap();
                assert_eq!(open(handle).unwrap(), at, "the same address");
                cuIpcCloseMemHandle(at).unwrap();
                assert_eq!(read(at, 1).unwrap(), [5], "opened twice, closed once");
                cuIpcCloseMemHandle(at).unwrap();
                assert_eq!(cuIpcCloseMemHandle(at), Err(CuError::INVALID_VALUE));
                // What is open stays, whatever its exporter does, and can be opened again.
                let at = open(handle).unwrap();
                me.parent().send(&[]);
                me.parent().receive();
                assert_eq!(read(at, 2).unwrap(), [5, 6], "freed by its exporter");
                assert_eq!(open(handle).unwrap(), at);
                assert_eq!(used(), GRANULE + 4 * MIB, "it still counts");
                cuIpcCloseMemHandle(at).unwrap();
                assert_eq!(cuMemFree_v2(at), Err(CuError::INVALID_VALUE), "not allocated here");
                cuIpcCloseMemHandle(at).unwrap();
                assert_eq!(used(), GRANULE);
                return assert_eq!(open(handle), Err(CuError::INVALID_VALUE), "nothing keeps it any longer");
            }
            start();
            let other = me.start("opener");
            let at = alloc(3 * MIB).unwrap();
            write(at, &[5, 0]).unwrap();
            let inside = handle(DevicePtr(at.0 + 4096)).unwrap();
            assert_eq!(handle(at).unwrap(), inside, "any pointer into it gives its handle");
            assert_eq!(open(inside), Err(CuError::INVALID_CONTEXT), "one's own");
            let vmm = map(create(GRANULE, exportable(0)).unwrap(), GRANULE, 0);
            assert_eq!(handle(vmm), Err(CuError::INVALID_VALUE));
            let mut anywhere = DevicePtr(0);
            for flags in [0, 2] {
                let opened = cuIpcOpenMemHandle_v2(&raw mut anywhere, inside, flags);
                assert_eq!(opened, Err(CuError::INVALID_VALUE), "flags {flags}");
            }
            other.link.send(&to_words(inside));
            other.link.receive();
            assert_eq!(read(at, 2).unwrap(), [5, 6]);
            cuMemFree_v2(at).unwrap();
            other.link.send(&[]);
            other.finish();
        },
    );
}

#[test]
fn an_open_ipc_mapping_makes_the_restore_fail_for_good() {
    machine().test("native::an_open_ipc_mapping_makes_the_restore_fail_for_good", |me| {
        if me.role() == "opener" {
            start();
            open(from_words(&me.parent().receive())).unwrap();
            me.parent().send(&[]);
            me.parent().receive();
            return;
        }
        start();
        let other = me.start("opener");
        other.link.send(&to_words(handle(alloc(3 * MIB).unwrap()).unwrap()));
        other.link.receive();
        lock(other.pid(), 1000).unwrap();
        checkpoint(other.pid()).unwrap();
        assert_eq!(restore(other.pid()), Err(CuError::INVALID_VALUE));
        assert_eq!(restore(other.pid()), Err(CuError::INVALID_VALUE));
        assert_eq!(unlock(other.pid()), Err(CuError::ILLEGAL_STATE));
        other.kill();
    });
}

#[test]
fn ipc_memory_that_the_driver_restored_cannot_be_opened() {
    machine().test("native::ipc_memory_that_the_driver_restored_cannot_be_opened", |me| {
        if me.role() == "exporter" {
            start();
            let at = alloc(3 * MIB).unwrap();
            me.parent().send(&to_words(handle(at).unwrap()));
            me.parent().receive();
            me.parent().send(&to_words(handle(at).unwrap()));
            me.parent().receive();
            return;
        }
        start();
        let other = me.start("exporter");
        let before = from_words(&other.link.receive());
        let at = open(before).unwrap();
        cuIpcCloseMemHandle(at).unwrap();
        lock(other.pid(), 1000).unwrap();
        checkpoint(other.pid()).unwrap();
        restore(other.pid()).unwrap();
        unlock(other.pid()).unwrap();
        other.link.send(&[]);
        let after = from_words(&other.link.receive());
        assert_eq!(open(before), Err(CuError::NOT_PERMITTED));
        assert_eq!(open(after), Err(CuError::NOT_PERMITTED));
        other.link.send(&[]);
        other.finish();
    });
}
