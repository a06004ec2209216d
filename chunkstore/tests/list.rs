//! Lists in bytes: what was written is read, and nothing else is.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use chunkstore::list::format::{FormatError, decode, encode, list_bytes};
use chunkstore::{CHUNK_BYTES, Chunk, Digest, Extent, List, Object, ReadListError, list_name, read_lists};
use common::{list_of, temporary, told};
use proptest::collection::vec;
use proptest::prelude::*;

/// Any list: up to 40 chunks and 20 objects.
fn any_list() -> impl Strategy<Value = List> {
    let chunk = (any::<u128>(), 1..=CHUNK_BYTES);
    let extent = (any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>());
    let object = (any::<[u8; 16]>(), vec(extent, 0..12));
    (vec(chunk, 0..40), vec(object, 0..20)).prop_map(|(chunks, objects)| {
        let digest = |name: u128| Digest::of(&name.to_le_bytes());
        let mut chunks: Vec<_> =
            chunks.into_iter().map(|(name, len)| Chunk { digest: digest(name), len }).collect();
        chunks.sort();
        chunks.dedup_by_key(|chunk| chunk.digest);
        let place = |(a, b, c, zero): (u32, u32, u32, bool)| {
            if zero || chunks.is_empty() {
                return Extent::Zero { len: (u64::from(a) << 12) + 1 };
            }
            let index = a % u32::try_from(chunks.len()).unwrap();
            let offset = b % chunks[index as usize].len;
            Extent::Chunk { index, offset, len: 1 + c % (chunks[index as usize].len - offset) }
        };
        let mut objects: Vec<_> = objects
            .into_iter()
            .map(|(id, extents)| {
                let extents: Vec<_> = extents.into_iter().map(place).collect();
                Object { id, size: extents.iter().map(Extent::len).sum(), extents }
            })
            .collect();
        objects.sort_by_key(|object| object.id);
        objects.dedup_by_key(|object| object.id);
        List::new(chunks, objects).unwrap()
    })
}

/// Puts the right checksum behind bytes, so that they are looked at at all.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let check = Digest::of(&bytes);
    bytes.extend(check.0);
    bytes
}

proptest! {
    // `PROPTEST_CASES` sets how many cases there are.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_list_is_read_as_it_was_written(list in any_list()) {
        let bytes = encode(&list);
        prop_assert_eq!(&decode(&bytes).unwrap(), &list);
        let extents: usize = list.objects().iter().map(|object| object.extents.len()).sum();
        let counts = [list.chunks().len(), list.objects().len(), extents].map(|count| count as u64);
        prop_assert_eq!(list_bytes(counts[0], counts[1], counts[2]), bytes.len() as u64);
        prop_assert_eq!(encode(&decode(&bytes).unwrap()), bytes);
    }

    #[test]
    fn a_list_with_a_flipped_bit_is_refused(list in any_list(), place in any::<prop::sample::Index>(), bit in 0..8) {
        let mut bytes = encode(&list);
        let place = place.index(bytes.len());
        bytes[place] ^= 1_u8 << bit;
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_refused(bytes in vec(any::<u8>(), 0..600)) {
        prop_assert!(decode(&bytes).is_err());
    }

    /// Sealed, so that the checksum does not hide what comes after it.
    #[test]
    fn sealed_bytes_are_refused_or_are_the_only_form_of_a_list(
        list in any_list(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = encode(&list);
        bytes.truncate(bytes.len() - 32);
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        let bytes = seal(bytes);
        if let Ok(read) = decode(&bytes) {
            prop_assert_eq!(encode(&read), bytes);
        }
    }

    #[test]
    fn sealed_headers_with_any_counts_are_refused(counts in any::<[u32; 3]>(), body in vec(any::<u8>(), 0..200)) {
        let mut bytes = b"NVSNAPCL\x01\0\0\0".to_vec();
        counts.iter().for_each(|count| bytes.extend(count.to_le_bytes()));
        bytes.extend(body);
        let bytes = seal(bytes);
        if let Ok(read) = decode(&bytes) {
            prop_assert_eq!(encode(&read), bytes);
        }
    }
}

fn some_list() -> List {
    let chunk = |name: u8, len| Chunk { digest: Digest([name; 32]), len };
    let extents = vec![
        Extent::Chunk { index: 1, offset: 3, len: 40 },
        Extent::Zero { len: 1 << 40 },
        Extent::Chunk { index: 0, offset: 0, len: CHUNK_BYTES },
    ];
    let size = extents.iter().map(Extent::len).sum();
    List::new(vec![chunk(1, CHUNK_BYTES), chunk(2, 50)], vec![Object { id: [9; 16], size, extents }]).unwrap()
}

#[test]
fn a_list_cut_at_any_byte_or_with_one_more_is_refused() {
    let bytes = encode(&some_list());
    for end in 0..bytes.len() {
        assert!(decode(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
        if end >= 24 {
            // Also where the cut is followed by a checksum that fits.
            assert!(
                matches!(decode(&seal(bytes[..end].to_vec())), Err(FormatError::Length { .. }))
                    || end == bytes.len() - 32
            );
        }
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(matches!(decode(&longer), Err(FormatError::Length { .. })));
}

/// Files of version 1 must be readable for ever: this one is written out here byte by byte.
#[test]
fn the_format_is_what_it_was() {
    let mut expected = b"NVSNAPCL".to_vec();
    for number in [1_u32, 2, 1, 3] {
        expected.extend(number.to_le_bytes());
    }
    for (name, len) in [(1, 0x0400_0000_u32), (2, 50)] {
        expected.extend([name; 32]);
        expected.extend(len.to_le_bytes());
    }
    expected.extend([9; 16]);
    expected.extend(0x0100_0400_0028_u64.to_le_bytes());
    expected.extend(3_u32.to_le_bytes());
    for (index, offset, len) in [(1_u32, 3_u32, 40_u64), (u32::MAX, 0, 1 << 40), (0, 0, 64 << 20)] {
        expected.extend(index.to_le_bytes());
        expected.extend(offset.to_le_bytes());
        expected.extend(len.to_le_bytes());
    }
    assert_eq!(encode(&some_list()), seal(expected));
}

#[test]
fn another_version_is_named() {
    let mut bytes = encode(&some_list());
    bytes[8] = 7;
    assert_eq!(decode(&bytes), Err(FormatError::Version(7)));
    assert!(FormatError::Version(7).to_string().contains("version 7"));
    assert_eq!(decode(b"ELF and other things"), Err(FormatError::Magic));
}

#[test]
fn lists_of_a_directory_come_by_name_and_other_files_are_passed_over() {
    let dir = temporary();
    for pid in [30, 4] {
        std::fs::write(dir.path().join(list_name(pid)), encode(&list_of(&[]))).unwrap();
    }
    std::fs::write(dir.path().join("gpus"), "GPU-1").unwrap();
    std::fs::write(dir.path().join(".tmp-half-a-list"), "NVSN").unwrap();
    let names: Vec<_> = read_lists(dir.path()).unwrap().into_iter().map(|listed| listed.path).collect();
    assert_eq!(names, ["gpu-30.chunks", "gpu-4.chunks"].map(|name| dir.path().join(name)));
}

#[test]
fn a_list_that_is_bad_or_too_long_is_named() {
    let dir = temporary();
    let path = dir.path().join(list_name(1));
    std::fs::write(&path, "NVSNAPCL").unwrap();
    let short = told(&read_lists(dir.path()).unwrap_err());
    assert!(short.contains("gpu-1.chunks"), "{short}");
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(read_lists(dir.path()), Err(ReadListError::Long { len: 0x100_0000_0000, .. })));
}
