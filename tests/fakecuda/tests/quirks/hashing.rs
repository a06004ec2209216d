//! The kernels that hash GPU memory give what the `blake3` crate gives.

use std::ffi::c_void;

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::machine;

/// Lengths around every border of the tree: block, leaf, node, and powers of two of them.
const LENGTHS: [usize; 14] = [
    0,
    1,
    64,
    1023,
    1024,
    1025,
    256 << 10,
    (256 << 10) + 1,
    512 << 10,
    3 * (256 << 10),
    (1 << 20) - 1,
    1 << 20,
    5 * (256 << 10) + 77,
    (2 << 20) + 4,
];

fn launch_grid(function: Function, grid: (usize, usize), stream: Stream, arguments: &[u64]) {
    let mut places: Vec<*mut c_void> =
        arguments.iter().map(|argument| std::ptr::from_ref(argument).cast_mut().cast()).collect();
    let (columns, rows) = (grid.0.try_into().unwrap(), grid.1.try_into().unwrap());
    let (places, none) = (places.as_mut_ptr(), std::ptr::null_mut());
    cuLaunchKernel(function, columns, rows, 1, 256, 1, 1, 0, stream, places, none).unwrap();
}

fn upload<T>(values: &[T]) -> DevicePtr {
    let at = alloc(size_of_val(values).max(1)).unwrap();
    cuMemcpyHtoD_v2(at, values.as_ptr().cast(), size_of_val(values)).unwrap();
    at
}

#[test]
fn digests_and_zero_flags_of_many_pieces() {
    machine().test("hashing::digests_and_zero_flags_of_many_pieces", |_| {
        start();
        let stream = own_stream();
        let mut bytes: Vec<Vec<u8>> = LENGTHS
            .iter()
            .map(|&length| (0..length).map(|at| u8::try_from(at * at % 251).unwrap()).collect())
            .collect();
        bytes.push(vec![0; 600_000]);
        let mut last = vec![0; 600_000];
        last[599_999] = 1;
        bytes.push(last);

        let (mut table, mut nodes, mut longest) = (Vec::new(), 0_u64, 1);
        for piece in &bytes {
            let count = piece.len().div_ceil(256 << 10).max(1);
            table.extend([upload(piece).0, piece.len() as u64, nodes]);
            nodes += count as u64;
            longest = longest.max(count);
        }
        let count = bytes.len();
        let table = upload(&table);
        let scratch = alloc(usize::try_from(nodes).unwrap() * 32).unwrap();
        let (nonzero, digests) = (upload(&vec![0_u32; count]), alloc(count * 32).unwrap());
        launch_grid(kernel("nvsnap_hash_leaves"), (longest, count), stream, &[table.0, scratch.0, nonzero.0]);
        launch_grid(kernel("nvsnap_hash_roots"), (count, 1), stream, &[table.0, scratch.0, digests.0]);
        cuStreamSynchronize(stream).unwrap();

        let told: Vec<u8> =
            read(digests, count * 8).unwrap().into_iter().flat_map(u32::to_le_bytes).collect();
        for (piece, told) in bytes.iter().zip(told.chunks(32)) {
            assert_eq!(told, blake3::hash(piece).as_bytes(), "{} bytes", piece.len());
        }
        let any: Vec<u32> =
            bytes.iter().map(|piece| u32::from(piece.iter().any(|byte| *byte != 0))).collect();
        assert_eq!(read(nonzero, count).unwrap(), any);
    });
}
