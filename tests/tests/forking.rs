//! A child behaves as if the library had just been loaded into it, however it was made.

mod lab;

use std::path::PathBuf;

use lab::Lab;

struct Setting {
    lab: Lab,
    driver: PathBuf,
    program: PathBuf,
}

impl Setting {
    fn new() -> Self {
        let lab = Lab::new();
        let driver = lab.driver("driver", &[]);
        let program = lab.program("forking", "forking.c", &[]);
        Self { lab, driver, program }
    }

    /// What the program said, and the processes that began to use CUDA, in order, as the log has them.
    fn run(&self, args: &[&str]) -> (String, Vec<String>) {
        let log = self.lab.path("log");
        let _ = std::fs::remove_file(&log);
        let run =
            self.lab.run(&self.program).driver(&self.driver).env("NVSNAP_GPUSHARE_LOG", &log).args(args);
        let said = run.said();
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let begun =
            log.lines().filter(|line| line.ends_with(": the program uses CUDA")).map(pid_of_line).collect();
        (said, begun)
    }
}

/// The process that wrote a line of the log.
fn pid_of_line(line: &str) -> String {
    let (_, rest) = line.split_once('[').expect("nvsnap-gpushare[PID]");
    rest.split_once(']').expect("nvsnap-gpushare[PID]").0.to_owned()
}

/// The process of the program's line that begins with `word`.
fn pid_of<'a>(said: &'a str, word: &str) -> &'a str {
    let line =
        said.lines().find_map(|line| line.strip_prefix(word)).unwrap_or_else(|| panic!("{word}: {said}"));
    line.split(' ').next().expect("a pid")
}

#[test]
fn a_child_begins_a_life_of_its_own_however_it_was_made() {
    let setting = Setting::new();
    for way in ["fork", "_Fork", "rawfork", "clone"] {
        for parent in ["bare", "cuda"] {
            let (said, begun) = setting.run(&[way, parent]);
            let (own, child) = (pid_of(&said, "parent again "), pid_of(&said, "child "));
            assert!(said.contains(&format!("child {child} 0 errno kept\n")), "{way} {parent}: {said}");
            assert!(said.contains("ended 0\n"), "{way} {parent}: {said}");
            assert!(said.ends_with(&format!("parent again {own} 0\n")), "{way} {parent}: {said}");
            let expected = if parent == "cuda" { [own, child] } else { [child, own] };
            assert_eq!(begun, expected, "{way} {parent}: each begins once");
        }
    }
}

#[test]
fn a_child_that_only_runs_a_program_is_no_life_and_disturbs_none() {
    let setting = Setting::new();
    for way in ["vfork", "spawn", "system"] {
        let (said, begun) = setting.run(&[way, "cuda"]);
        let own = pid_of(&said, "parent again ");
        assert!(said.contains("program 0\n"), "{way}: {said}");
        assert_eq!(begun, [own], "{way}");
    }
}

#[test]
fn forks_under_threads_that_are_inside_hooks_take_no_lock_of_the_parent() {
    let setting = Setting::new();
    let (said, begun) = setting.run(&["storm"]);
    assert_eq!(said, "failed 0\n");
    assert_eq!(begun.len(), 201, "the parent and each child begin once");
}

#[test]
fn a_program_that_replaces_itself_starts_anew_and_inherits_nothing_of_ours() {
    let setting = Setting::new();
    let program = setting.lab.program("again", "again.c", &[]);
    let log = setting.lab.path("log");
    let run = setting.lab.run(&program).driver(&setting.driver).env("NVSNAP_GPUSHARE_LOG", &log).args(&["0"]);
    let said = run.said();
    let without = setting.lab.bare(&program).driver(&setting.driver).args(&["0"]).said();
    assert_eq!(said, without);
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(log.lines().filter(|line| line.ends_with(": the program uses CUDA")).count(), 3, "{log}");
}
