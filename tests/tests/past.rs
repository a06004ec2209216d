//! Roads to the driver that lead past the library are found, and stand in the way of a suspend.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]

mod lab;

use std::path::{Path, PathBuf};

use integration::{Machine, Outcome};
use lab::Lab;

/// What is loaded in front, what the program does after `cuInit`, and what `check` then says.
struct Past {
    lab: Lab,
    machine: Machine,
}

impl Past {
    fn new() -> Self {
        let past = Self { lab: Lab::new(), machine: Machine::stand_in().unwrap() };
        past.lab.program("ask", "ask.c", &[]);
        past
    }

    fn driver(&self) -> PathBuf {
        self.machine.artifacts().stand_in.join("libcuda.so.1")
    }

    /// What the program says, and what `check` says of it.
    fn check(&self, preload: &[&Path], verbs: &str) -> (String, Outcome) {
        let verbs = format!("global libcuda.so.1 default cuInit init {verbs} stay");
        let list: Vec<&str> = preload.iter().map(|library| library.to_str().unwrap()).collect();
        let mut command = self.machine.command(self.lab.path("ask"));
        command.env("LD_PRELOAD", list.join(":")).args(verbs.split_whitespace());
        let (mut child, said) = lab::start(&mut command, "stays");
        let checked = self.machine.tool().verb("check", &[child.id().cast_signed()]).unwrap();
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        (said, checked)
    }

    /// Nothing is in the way.
    fn passes(&self, preload: &[&Path], verbs: &str) {
        let (said, checked) = self.check(preload, verbs);
        assert!(said.contains("allocates by libnvsnap_gpushare.so:cuMemAlloc_v2"), "{said}");
        assert_eq!(checked.code, 0, "{}", checked.text());
    }

    /// This is in the way.
    fn refused(&self, preload: &[&Path], verbs: &str, words: &[&str]) {
        let (_, checked) = self.check(preload, verbs);
        let text = checked.text();
        assert_eq!(checked.code, 4, "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

const BOUND: &str = "lead past the library";

#[test]
fn a_library_that_is_bound_before_us() {
    let past = Past::new();
    let driver = past.driver();
    let linked = past.lab.library("liblinked.so", "past.c", &["-DLINKED", driver.to_str().unwrap()]);
    let shim = past.lab.shim();
    past.passes(&[&shim], &format!("open {} run", linked.display()));
    let verbs = format!("deep {} run", linked.display());
    past.refused(&[&shim], &verbs, &[BOUND, "cuMemAlloc_v2, by ", "liblinked.so", "RTLD_DEEPBIND"]);
}

#[test]
fn a_library_whose_look_ups_lead_past_us() {
    let past = Past::new();
    let looks = past.lab.library("liblooks.so", "past.c", &[]);
    let shim = past.lab.shim();
    past.passes(&[&shim], &format!("open {} run", looks.display()));
    let verbs = format!("deep {} run", looks.display());
    past.refused(&[&shim], &verbs, &[BOUND, "cuMemAlloc_v2, by ", "liblooks.so"]);
    // Opened that way, but never asked for anything of the driver's: nothing is wrong yet.
    let (_, checked) = past.check(&[&shim], &format!("deep {}", looks.display()));
    assert_eq!(checked.code, 0, "{}", checked.text());
}

#[test]
fn an_interposer_before_us_that_goes_straight_to_the_c_library() {
    let past = Past::new();
    let looks = past.lab.library("liblooks.so", "past.c", &[]);
    let interposer = past.lab.library("libinterposer.so", "interposer.c", &[]);
    let shim = past.lab.shim();
    let verbs = format!("open {} run", looks.display());
    past.passes(&[&shim, &interposer], &verbs);
    past.refused(&[&interposer, &shim], &verbs, &[BOUND, "cuMemAlloc_v2, by ", "LD_PRELOAD"]);
}

#[test]
fn a_second_driver() {
    let past = Past::new();
    let copy = past.lab.path("copy").join("libcuda.so.1");
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    std::fs::copy(past.driver(), &copy).unwrap();
    let shim = past.lab.shim();
    let second = ["2 copies of the CUDA driver library", "dlmopen"];
    past.refused(&[&shim], &format!("open {}", copy.display()), &second);
    past.refused(&[&shim], &format!("apart {}", past.driver().display()), &second);
    let (_, checked) = past.check(&[&shim], &format!("open {}", past.driver().display()));
    assert_eq!(checked.code, 0, "{}", checked.text());
}
