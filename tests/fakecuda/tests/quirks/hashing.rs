//! The kernels that hash GPU memory give what the `blake3` crate gives.

use std::ffi::c_void;

use cuda_sys::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::cuda::*;
use crate::helpers::*;
use crate::process::machine;

const NODE: usize = 256 << 10;
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

/// Hashes texts, each in pieces, and insists on the digest of each and on which pieces are zero.
fn check(texts: &[Vec<Vec<u8>>], stream: Stream) {
    let (mut pieces, mut table, mut longest, mut nodes) = (Vec::new(), Vec::new(), 1, 0);
    for text in texts {
        let whole: usize = text.iter().map(Vec::len).sum();
        let leaves = whole.div_ceil(1024).max(1);
        table.extend([nodes, leaves]);
        let mut at = 0;
        for piece in text {
            pieces.extend([usize::try_from(upload(piece).0).unwrap(), piece.len(), at / 1024, nodes, leaves]);
            let count = piece.len().div_ceil(NODE).max(1);
            nodes += count;
            longest = longest.max(count);
            at += piece.len();
        }
    }
    let count = pieces.len() / 5;
    let (pieces, table) = (upload(&pieces), upload(&table));
    let scratch = alloc(nodes * 32).unwrap();
    let (nonzero, digests) = (upload(&vec![0_u32; count]), alloc(texts.len() * 32).unwrap());
    launch_grid(kernel("nvsnap_hash_leaves"), (longest, count), stream, &[pieces.0, scratch.0, nonzero.0]);
    launch_grid(kernel("nvsnap_hash_roots"), (texts.len(), 1), stream, &[table.0, scratch.0, digests.0]);
    cuStreamSynchronize(stream).unwrap();

    let told: Vec<u8> =
        read(digests, texts.len() * 8).unwrap().into_iter().flat_map(u32::to_le_bytes).collect();
    for (text, told) in texts.iter().zip(told.chunks(32)) {
        let lengths: Vec<usize> = text.iter().map(Vec::len).collect();
        assert_eq!(told, blake3::hash(&text.concat()).as_bytes(), "pieces of {lengths:?} bytes");
    }
    let any = |piece: &Vec<u8>| u32::from(piece.iter().any(|byte| *byte != 0));
    let any: Vec<u32> = texts.iter().flatten().map(any).collect();
    assert_eq!(read(nonzero, count).unwrap(), any);
}

fn patterned(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * at + seed) % 251).unwrap()).collect()
}

#[test]
fn digests_and_zero_flags_of_many_pieces() {
    machine().test("hashing::digests_and_zero_flags_of_many_pieces", |_| {
        start();
        let mut bytes: Vec<Vec<u8>> = LENGTHS.iter().map(|&length| patterned(length, 0)).collect();
        bytes.push(vec![0; 600_000]);
        let mut last = vec![0; 600_000];
        last[599_999] = 1;
        bytes.push(last);
        let texts: Vec<Vec<Vec<u8>>> = bytes.into_iter().map(|piece| vec![piece]).collect();
        check(&texts, own_stream());
    });
}

/// A text in pieces of whole nodes, some of them zero, and a last one of any length.
fn text() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let whole = (1..4_usize, any::<Option<u8>>()).prop_map(|(nodes, seed)| (nodes * NODE, seed));
    let last = (1..3 * NODE, any::<Option<u8>>());
    (prop::collection::vec(whole, 0..5), last).prop_map(|(mut pieces, last)| {
        pieces.push(last);
        let fill = |(length, seed): (usize, Option<u8>)| {
            seed.map_or_else(|| vec![0; length], |seed| patterned(length, seed.into()))
        };
        pieces.into_iter().map(fill).collect()
    })
}

#[test]
fn a_text_in_pieces_has_the_digest_of_its_bytes_in_a_row() {
    machine().test("hashing::a_text_in_pieces_has_the_digest_of_its_bytes_in_a_row", |_| {
        start();
        let stream = own_stream();
        let mut runner = TestRunner::new(Config { cases: 8, failure_persistence: None, ..Config::default() });
        let texts = prop::collection::vec(text(), 1..4);
        let checked = |texts: Vec<Vec<Vec<u8>>>| {
            check(&texts, stream);
            Ok(())
        };
        runner.run(&texts, checked).unwrap();
    });
}
