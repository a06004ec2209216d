//! Roads to the driver that lead past the library, found by what they leave behind.
//!
//! * A library that was opened with `RTLD_DEEPBIND` binds the driver's functions, and the C library's `dlsym`, before ours:
//!   the loader has written their addresses into it. Likewise all libraries where an interposer before us goes straight to the
//!   C library.
//! * What such a `dlsym` was asked for lies in the library's own data: the driver's addresses, where ours should be.
//! * A second libcuda, from another file or in a namespace of its own, is a driver whose functions nobody stands in front of.
//!
//! Looked for when somebody asks for the whole inventory. It reads the loader's lists and tables, and a library's data only
//! where its `dlsym` is not ours.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use cuda_sys::Class;
use protocol::{Blocker, BlockerKind};
use shim_core::calls::CallId;

use super::loaded::{self, Listed};
use super::{call_at, is_driver, own_base};

/// The driver's addresses, and the `dlsym`s that are not ours.
#[derive(Default)]
struct Others {
    drivers: Vec<Range<usize>>,
    lookups: Vec<usize>,
}

/// What stands in the way of a suspend. `maps` is what the kernel says is mapped.
pub(crate) fn blockers(maps: &str) -> Vec<Blocker> {
    let own = own_base();
    let mut others = Others::default();
    loaded::walk(&mut |listed| {
        if is_driver(&listed.object) {
            others.drivers.push(extent(listed));
        }
        if Some(listed.object.base()) != own {
            others.lookups.extend(listed.object.function("dlsym"));
        }
        false
    });
    let mut bound: BTreeSet<(String, CallId)> = BTreeSet::new();
    // Only where a library can be read at all is there something to be said about it.
    let memory = File::open("/proc/self/mem").ok();
    loaded::walk(&mut |listed| {
        if Some(listed.object.base()) != own && !is_driver(&listed.object) {
            let calls = bound_past_us(listed, &others, memory.as_ref());
            bound.extend(calls.into_iter().map(|call| (name(listed.path), call)));
        }
        false
    });
    let example = bound.first().map(|(library, call)| format!("{call}, by {library}"));
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let bound =
        example.map(|example| Blocker { kind: BlockerKind::BoundPast, count: count(bound.len()), example });
    let drivers = others.drivers.len().max(mapped_drivers(maps));
    let second = (drivers > 1).then(|| Blocker {
        kind: BlockerKind::SecondDriver,
        count: count(drivers),
        example: String::new(),
    });
    bound.into_iter().chain(second).collect()
}

/// The calls that a library reaches without us.
fn bound_past_us(listed: &Listed<'_>, others: &Others, memory: Option<&File>) -> BTreeSet<CallId> {
    let mut calls = BTreeSet::new();
    let mut looks_past_us = false;
    let note = |calls: &mut BTreeSet<CallId>, address: usize| {
        if others.drivers.iter().any(|driver| driver.contains(&address)) {
            calls.extend(call_at(address).filter(|call| matters(*call)));
        }
    };
    for address in listed.object.bound() {
        note(&mut calls, address);
        looks_past_us |= others.lookups.contains(&address);
    }
    if looks_past_us && let Some(memory) = memory {
        for segment in listed.segments(true) {
            each_word(memory, segment, |word| note(&mut calls, word));
        }
    }
    calls
}

/// Whether a call past us does harm: one that only asks does none while the process runs.
fn matters(call: CallId) -> bool {
    matches!(call.class(), Class::Launch | Class::Memory | Class::Object)
}

/// Every word in this part of our memory; what cannot be read is skipped.
fn each_word(memory: &File, part: Range<usize>, mut each: impl FnMut(usize)) {
    const WORD: usize = size_of::<usize>();
    let mut page = [0; 4096];
    let mut at = part.start.next_multiple_of(WORD);
    while at < part.end {
        let wanted = page.len().min(part.end - at);
        let read = u64::try_from(at).ok().zip(page.get_mut(..wanted));
        let read = read.and_then(|(offset, page)| memory.read_at(page, offset).ok());
        let (words, _) = page.get(..read.unwrap_or(0)).unwrap_or_default().as_chunks::<WORD>();
        words.iter().for_each(|word| each(usize::from_ne_bytes(*word)));
        at += page.len();
    }
}

fn extent(listed: &Listed<'_>) -> Range<usize> {
    let segments = || listed.segments(false);
    let start = segments().map(|segment| segment.start).min().unwrap_or(0);
    start..segments().map(|segment| segment.end).max().unwrap_or(0)
}

/// How often a file with the driver's name is mapped from its beginning: also in other namespaces of the loader.
fn mapped_drivers(maps: &str) -> usize {
    maps.lines().filter(|line| begins_a_driver(line)).count()
}

/// A line of `maps`: addresses, rights, offset, device, inode, path.
fn begins_a_driver(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let at_beginning = words.nth(2).is_some_and(|offset| offset.bytes().all(|digit| digit == b'0'));
    let path = words.nth(2).unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    at_beginning && file.starts_with("libcuda.so")
}

fn name(path: &CStr) -> String {
    if path.is_empty() { "the program itself".to_owned() } else { path.to_string_lossy().into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_file_with_the_drivers_name_counts() {
        let line = |offset, path| format!("7f0000000000-7f0000001000 r--p {offset} 08:01 1234   {path}");
        assert!(begins_a_driver(&line("00000000", "/usr/lib/libcuda.so.580.1")));
        assert!(begins_a_driver(&line("00000000", "/opt/compat/libcuda.so.1 (deleted)")));
        assert!(!begins_a_driver(&line("00001000", "/usr/lib/libcuda.so.580.1")));
        assert!(!begins_a_driver(&line("00000000", "/usr/lib/libcudart.so.12")));
        assert!(!begins_a_driver("7f0000000000-7f0000001000 rw-p 00000000 00:00 0"));
    }

    #[test]
    fn memory_is_read_word_by_word_and_a_hole_is_skipped() {
        let words: Vec<usize> = (0..2000).collect();
        let part = words.as_ptr_range();
        let memory = File::open("/proc/self/mem").unwrap();
        let mut seen = Vec::new();
        each_word(&memory, part.start.addr()..part.end.addr(), |word| seen.push(word));
        assert_eq!(seen, words);
        each_word(&memory, 8..4096, |_| panic!("nothing is mapped there"));
    }
}
