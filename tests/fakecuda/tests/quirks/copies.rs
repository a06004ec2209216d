//! Copies and fills, and who may make them.

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::machine;

fn context_of(device: i32) -> Context {
    let mut context = Context::NULL;
    cuDevicePrimaryCtxRetain(&raw mut context, Device(device)).unwrap();
    context
}

#[test]
fn native_memory_can_be_copied_from_any_context_and_vmm_memory_only_where_granted() {
    machine().test(
        "copies::native_memory_can_be_copied_from_any_context_and_vmm_memory_only_where_granted",
        |_| {
            let (zero, one) = (start_on(0), context_of(1));
            let native = [alloc(GRANULE).unwrap(), {
                cuCtxSetCurrent(one).unwrap();
                alloc(GRANULE).unwrap()
            }];
            let vmm = [0, 1].map(|id| map(create(GRANULE, device(id)).unwrap(), GRANULE, id));
            let mut word = 0_u32;
            let word = &raw mut word;
            // The current context is that of device 1, no peer access is enabled.
            for [to, from] in [[native[0], native[1]], [native[1], native[0]]] {
                cuMemcpyDtoD_v2(to, from, 4).unwrap();
                cuMemcpy(to, from, 4).unwrap();
                cuMemcpyAsync(to, from, 4, own_stream()).unwrap();
            }
            cuMemcpyDtoH_v2(word.cast(), native[0], 4).unwrap();
            cuMemcpyPeer(native[1], one, native[0], zero, 4).unwrap();
            let refused = Err(CuError::INVALID_VALUE);
            for [to, from] in [[vmm[0], vmm[1]], [vmm[1], vmm[0]]] {
                assert_eq!(cuMemcpyDtoD_v2(to, from, 4), refused);
                assert_eq!(cuMemcpy(to, from, 4), refused);
                assert_eq!(cuMemcpyAsync(to, from, 4, own_stream()), refused);
            }
            assert_eq!(cuMemcpyDtoH_v2(word.cast(), vmm[0], 4), refused);
            cuMemcpyDtoH_v2(word.cast(), vmm[1], 4).unwrap();
            cuMemcpyPeer(vmm[1], one, vmm[0], zero, 4).unwrap();
            // A fill from the other context fails for both.
            assert_eq!(cuMemsetD8_v2(native[0], 1, 4), refused);
            assert_eq!(cuMemsetD8_v2(vmm[0], 1, 4), refused);
            cuMemsetD8_v2(native[1], 1, 4).unwrap();
        },
    );
}

#[test]
fn a_kernel_reaches_native_memory_of_a_peer_only_with_peer_access() {
    let words = ["NoAccess"];
    machine().violates(&words).test(
        "copies::a_kernel_reaches_native_memory_of_a_peer_only_with_peer_access",
        |_| {
            let zero = start_on(0);
            let at = alloc(4).unwrap();
            let one = context_of(1);
            cuCtxSetCurrent(one).unwrap();
            cuCtxEnablePeerAccess(zero, 0).unwrap();
            assert_eq!(cuCtxEnablePeerAccess(zero, 0), Err(CuError::PEER_ACCESS_ALREADY_ENABLED));
            launch(kernel("fill"), Stream::NULL, &[at.0, 1, 8]).unwrap();
            assert_eq!(read(at, 1).unwrap(), [8]);
            cuCtxDisablePeerAccess(zero).unwrap();
            assert_eq!(cuCtxDisablePeerAccess(zero), Err(CuError::PEER_ACCESS_NOT_ENABLED));
            launch(kernel("fill"), Stream::NULL, &[at.0, 1, 9]).unwrap();
            assert_eq!(cuCtxSynchronize(), Err(CuError::ILLEGAL_ADDRESS));
            cuCtxSetCurrent(zero).unwrap();
            assert_eq!(read(at, 1).unwrap(), [8], "the other context goes on");
        },
    );
}

#[test]
fn a_copy_from_ordinary_memory_has_taken_it_and_one_from_locked_memory_has_not() {
    machine().test(
        "copies::a_copy_from_ordinary_memory_has_taken_it_and_one_from_locked_memory_has_not",
        |_| {
            start();
            let (flag, to, stream) = (alloc(4).unwrap(), alloc(8).unwrap(), own_stream());
            write(flag, &[0]).unwrap();
            let mut ordinary = Box::new(1_u32);
            let mut locked = std::ptr::null_mut();
            cuMemHostAlloc(&raw mut locked, 4, 0).unwrap();
            let locked = locked.cast::<u32>();
            // SAFETY: the driver allocated it, for a word.
            unsafe { locked.write(1) };
            launch(kernel("wait_flag"), stream, &[flag.0, 1]).unwrap();
            cuMemcpyHtoDAsync_v2(to, std::ptr::from_ref(ordinary.as_ref()).cast(), 4, stream).unwrap();
            cuMemcpyHtoDAsync_v2(DevicePtr(to.0 + 4), locked.cast(), 4, stream).unwrap();
            *ordinary = 2;
            // SAFETY: as above.
            unsafe { locked.write(2) };
            cuStreamWriteValue32_v2(own_stream(), flag, 1, 0).unwrap();
            cuStreamSynchronize(stream).unwrap();
            assert_eq!(read(to, 2).unwrap(), [1, 2]);
            assert_eq!(*ordinary, 2);
        },
    );
}

/// docs/DRIVER-VERSIONS.md: `cuPointerSetAttribute(SYNC_MEMOPS)` works for native memory. What it means is the header's: operations on it
/// that name no stream always wait.
#[test]
fn fills_and_copies_within_a_device_return_early_unless_the_memory_is_to_be_waited_for() {
    let name = "copies::fills_and_copies_within_a_device_return_early_unless_the_memory_is_to_be_waited_for";
    machine().test(name, |_| {
        start();
        let (x, y) = (alloc(64).unwrap(), alloc(64).unwrap());
        returns_early_unless_to_be_waited_for(
            x,
            &[&|| cuMemsetD8_v2(x, 1, 64), &|| cuMemcpyDtoD_v2(x, y, 64), &|| cuMemcpyDtoD_v2(y, x, 64)],
        );
    });
}

#[test]
fn a_copy_to_or_from_nowhere_on_the_host_is_refused_unless_it_is_of_no_bytes() {
    let name = "copies::a_copy_to_or_from_nowhere_on_the_host_is_refused_unless_it_is_of_no_bytes";
    machine().test(name, |_| {
        start();
        let at = alloc(64).unwrap();
        let (nothing, nowhere) = (std::ptr::null(), std::ptr::null_mut());
        for (size, answer) in [(4, Err(CuError::INVALID_VALUE)), (0, Ok(()))] {
            assert_eq!(cuMemcpyHtoD_v2(at, nothing, size), answer, "{size}");
            assert_eq!(cuMemcpyDtoH_v2(nowhere, at, size), answer, "{size}");
        }
    });
}

#[test]
fn fills_and_rows() {
    machine().test("copies::fills_and_rows", |_| {
        start();
        let (mut at, mut pitch) = (DevicePtr(0), 0);
        cuMemAllocPitch_v2(&raw mut at, &raw mut pitch, 12, 3, 4).unwrap();
        assert_eq!(pitch, 512);
        cuMemsetD2D32_v2(at, pitch, 7, 3, 3).unwrap();
        cuMemsetD16_v2(DevicePtr(at.0 + 512), 0x0102, 2).unwrap();
        assert_eq!(read(at, 3).unwrap(), [7; 3]);
        assert_eq!(read(DevicePtr(at.0 + 512), 3).unwrap(), [0x0102_0102, 7, 7]);
        // A picture of two words by three rows, to the host.
        let mut picture = [0_u32; 6];
        let copy: [u64; 16] = [
            4,
            0,
            2,
            0,
            at.0,
            0,
            512, // from x = 4 bytes, device memory
            0,
            0,
            1,
            picture.as_mut_ptr().expose_provenance() as u64,
            0,
            0,
            8, // to the host
            8,
            3,
        ];
        cuMemcpy2D_v2(copy.as_ptr().cast()).unwrap();
        assert_eq!(picture, [7; 6]);
    });
}

#[test]
fn memory_that_is_not_there_is_a_violation() {
    let words = ["cuMemcpyDtoH", "no device memory", "cuMemset", "cuMemFree", "cuMemFree"];
    machine().violates(&words).test("copies::memory_that_is_not_there_is_a_violation", |_| {
        start();
        let at = alloc(100).unwrap();
        assert_eq!(read(at, 26), Err(CuError::INVALID_VALUE), "beyond the end");
        cuMemFree_v2(at).unwrap();
        assert_eq!(write(at, &[1]), Err(CuError::INVALID_VALUE), "freed");
        assert_eq!(cuMemsetD8_v2(at, 0, 1), Err(CuError::INVALID_VALUE));
        assert_eq!(cuMemFree_v2(at), Err(CuError::INVALID_VALUE), "twice");
        let at = alloc(2000).unwrap();
        assert_eq!(cuMemFree_v2(DevicePtr(at.0 + 512)), Err(CuError::INVALID_VALUE), "in the middle");
        cuMemFree_v2(DevicePtr(0)).unwrap();
    });
}
