//! Arrays (docs/DRIVER-VERSIONS.md, arrays: not measured, from the header).

use cuda_sys::*;

use crate::checkpoint::{ready, target};
use crate::cuda::*;
use crate::helpers::*;
use crate::process::machine;

fn bytes(width: usize, height: usize) -> ArrayDescriptor {
    ArrayDescriptor { width, height, format: ArrayFormat::UNSIGNED_INT8, num_channels: 1 }
}

fn array(wanted: ArrayDescriptor) -> CuResult<Array> {
    let mut made = Array::NULL;
    cuArrayCreate_v2(&raw mut made, (&raw const wanted).cast()).map(|()| made)
}

fn put(array: Array, offset: usize, bytes: &[u8]) -> CuResult {
    cuMemcpyHtoA_v2(array, offset, bytes.as_ptr().cast(), bytes.len())
}

fn get(array: Array, offset: usize, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    cuMemcpyAtoH_v2(bytes.as_mut_ptr().cast(), array, offset, count).unwrap();
    bytes
}

/// Two rows of four bytes: a part of an array, at x and y, to or from ordinary device memory.
fn rows(array: Array, (x, y): (usize, usize), device: DevicePtr, into_array: bool) -> Memcpy2D {
    let (kind, other) = if into_array {
        (MemoryType::DEVICE, MemoryType::ARRAY)
    } else {
        (MemoryType::ARRAY, MemoryType::DEVICE)
    };
    let of_array = |is: bool| if is { (x, y) } else { (0, 0) };
    let ((src_x, src_y), (dst_x, dst_y)) = (of_array(!into_array), of_array(into_array));
    Memcpy2D {
        src_x,
        src_y,
        src_kind: kind,
        src_host: std::ptr::null(),
        src_device: device,
        src_array: array,
        src_pitch: 4,
        dst_x,
        dst_y,
        dst_kind: other,
        dst_host: std::ptr::null_mut(),
        dst_device: device,
        dst_array: array,
        dst_pitch: 4,
        width: 4,
        height: 2,
    }
}

fn copy(rows: Memcpy2D) -> CuResult {
    cuMemcpy2D_v2((&raw const rows).cast())
}

#[test]
fn bytes_go_in_and_out_by_every_copy() {
    machine().test("arrays::bytes_go_in_and_out_by_every_copy", |_| {
        start();
        let (line, device) = (array(bytes(16, 0)).unwrap(), alloc(64).unwrap());
        put(line, 0, b"0123456789abcdef").unwrap();
        assert_eq!(get(line, 4, 8), b"456789ab");
        cuMemcpyAtoD_v2(device, line, 8, 8).unwrap();
        assert_eq!(read(device, 2).unwrap(), [0x6261_3938, 0x6665_6463]);
        cuMemcpyDtoA_v2_ptds(line, 2, device, 4).unwrap();
        assert_eq!(get(line, 0, 8), b"0189ab67");
        // Rows of an array of two dimensions lie one behind the other for nobody but the array.
        let plane = array(bytes(8, 4)).unwrap();
        write(device, &[0x0403_0201, 0x0807_0605]).unwrap();
        copy(rows(plane, (3, 1), device, true)).unwrap();
        write(device, &[0, 0]).unwrap();
        copy(rows(plane, (3, 1), device, false)).unwrap();
        assert_eq!(read(device, 2).unwrap(), [0x0403_0201, 0x0807_0605]);
        copy(rows(plane, (4, 1), device, false)).unwrap();
        assert_eq!(read(device, 2).unwrap(), [0x0004_0302, 0x0008_0706]);
        let mut found = ArrayDescriptor::default();
        cuArrayGetDescriptor_v2((&raw mut found).cast(), plane).unwrap();
        assert_eq!(found, bytes(8, 4));
    });
}

#[test]
fn an_array_takes_memory_until_it_or_its_context_ends() {
    machine().test("arrays::an_array_takes_memory_until_it_or_its_context_ends", |_| {
        let primary = start();
        let before = used();
        let line = array(bytes(4 * MIB, 0)).unwrap();
        assert_eq!(used() - before, 4 * MIB);
        cuArrayDestroy(line).unwrap();
        assert_eq!(used(), before);
        let mut own = Context::NULL;
        cuCtxCreate_v2(&raw mut own, 0, Device(0)).unwrap();
        array(bytes(4 * MIB, 0)).unwrap();
        cuCtxSetCurrent(primary).unwrap();
        let stays = array(bytes(16, 0)).unwrap();
        cuCtxDestroy_v2(own).unwrap();
        assert_eq!(used() - before, GRANULE);
        put(stays, 0, b"x").unwrap();
    });
}

#[test]
fn what_is_no_array_or_not_in_it_is_refused_and_a_violation() {
    let words = ["cuMemcpyHtoA", "two dimensions", "cuMemcpy2D", "cuArrayDestroy", "cuMemcpyAtoD"];
    machine().violates(&words).test(
        "arrays::what_is_no_array_or_not_in_it_is_refused_and_a_violation",
        |_| {
            start();
            let invalid = Err(CuError::INVALID_VALUE);
            assert_eq!(array(bytes(0, 4)), Err(CuError::INVALID_VALUE));
            assert_eq!(
                array(ArrayDescriptor { num_channels: 3, ..bytes(4, 4) }),
                Err(CuError::INVALID_VALUE)
            );
            assert_eq!(
                array(ArrayDescriptor { format: ArrayFormat(77), ..bytes(4, 4) }),
                Err(CuError::INVALID_VALUE)
            );
            let (line, plane) = (array(bytes(16, 0)).unwrap(), array(bytes(8, 4)).unwrap());
            let device = alloc(64).unwrap();
            assert_eq!(put(line, 13, b"four"), invalid);
            assert_eq!(put(plane, 0, b"four"), invalid);
            for (size, answer) in [(4, invalid), (0, Ok(()))] {
                assert_eq!(cuMemcpyHtoA_v2(line, 0, std::ptr::null(), size), answer, "{size}");
                assert_eq!(cuMemcpyAtoH_v2(std::ptr::null_mut(), line, 0, size), answer, "{size}");
            }
            assert_eq!(copy(rows(plane, (5, 0), device, true)), invalid);
            cuArrayDestroy(line).unwrap();
            assert_eq!(cuArrayDestroy(line), Err(CuError::INVALID_HANDLE));
            assert_eq!(cuMemcpyAtoD_v2(device, line, 0, 4), Err(CuError::INVALID_HANDLE));
        },
    );
}

/// The header: what goes on within devices, arrays among them, is not waited for, but where the memory says so.
#[test]
fn copies_to_and_from_device_memory_return_early_unless_it_is_to_be_waited_for() {
    machine().test(
        "arrays::copies_to_and_from_device_memory_return_early_unless_it_is_to_be_waited_for",
        |_| {
            start();
            let (line, x) = (array(bytes(64, 0)).unwrap(), alloc(64).unwrap());
            returns_early_unless_to_be_waited_for(
                x,
                &[&|| cuMemcpyDtoA_v2(line, 0, x, 64), &|| cuMemcpyAtoD_v2(x, line, 0, 64)],
            );
        },
    );
}

#[test]
fn an_array_is_carried_through_a_checkpoint() {
    machine().test("arrays::an_array_is_carried_through_a_checkpoint", |me| {
        if me.role() == "target" {
            start();
            let line = array(bytes(4 * MIB, 0)).unwrap();
            put(line, 100, b"as it was").unwrap();
            ready(me);
            assert_eq!(get(line, 100, 9), b"as it was");
            return;
        }
        let other = target(me);
        let before = used();
        lock(other.pid(), 1000).unwrap();
        checkpoint(other.pid()).unwrap();
        assert!(before - used() >= 4 * MIB, "it is off the device");
        restore(other.pid()).unwrap();
        unlock(other.pid()).unwrap();
        assert_eq!(used(), before);
        other.link.send(&[]);
        other.finish();
    });
}
