//! Other libraries that are loaded in front: allocators, and those that make memory their own way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]

mod lab;

use std::path::{Path, PathBuf};

use integration::{Machine, Target};
use lab::Lab;

/// A program with these libraries in front, in this order.
fn start(machine: &Machine, program: &str, name: &str, libraries: &[&Path]) -> Target {
    let list: Vec<&str> = libraries.iter().map(|library| library.to_str().unwrap()).collect();
    machine.program(program, name).set("LD_PRELOAD", list.join(":")).start().unwrap()
}

/// Memory keeps its bytes through a cycle.
fn cycle(machine: &Machine, worker: &Target) {
    for line in ["begin 0", "malloc x 4M", "fill x 0 4M 11", "new y 2M device:0 fd", "fill y 0 2M 12"] {
        worker.ok(line).unwrap();
    }
    let sums = || ["sum x 0 4M", "sum y 0 2M"].map(|line| worker.ok(line).unwrap());
    let before = sums();
    machine.suspend(&[worker.pid()]).unwrap().done().unwrap();
    machine.resume(&[worker.pid()]).unwrap().done().unwrap();
    assert_eq!(sums(), before, "{worker:?}");
}

#[test]
fn an_allocator_before_us_and_after_us() {
    let lab = Lab::new();
    let machine = Machine::stand_in().unwrap();
    // Found by the loader, as a user names it; the other's first allocation looks a function up.
    let allocators = [PathBuf::from("libjemalloc.so.2"), lab.library("liballocator.so", "allocator.c", &[])];
    let shim = lab.shim();
    for (number, allocator) in allocators.iter().enumerate() {
        for (place, order) in [[allocator, &shim], [&shim, allocator]].into_iter().enumerate() {
            let order = order.map(PathBuf::as_path);
            let worker = start(&machine, "worker", &format!("w{number}{place}"), &order);
            cycle(&machine, &worker);
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", worker.pid())).unwrap();
            let file = allocator.file_name().unwrap().to_str().unwrap();
            assert!(maps.contains(file), "{file} is loaded");
        }
    }
}

#[test]
fn a_library_that_makes_memory_its_own_way_before_us_and_after_us() {
    let lab = Lab::new();
    let machine = Machine::stand_in().unwrap();
    let saver = lab.library("libsaver.so", "saver.c", &[]);
    let shim = lab.shim();
    for (name, order) in [("before", [&*saver, &*shim]), ("after", [&*shim, &*saver])] {
        let worker = start(&machine, "worker-linked", name, &order);
        cycle(&machine, &worker);
        // Before us its memory is the program's own; after us nobody asks it.
        let attribute = worker.ok("extent x 0").unwrap();
        assert_eq!(attribute, "0 4194304");
        let retained = worker.ask("retain h x").unwrap();
        assert_eq!(retained, if name == "before" { "ok" } else { "error 1 CUDA_ERROR_INVALID_VALUE" });
    }
}
