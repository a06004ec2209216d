//! The exported `dlsym` is invisible: to whoever looks up something that is not the driver's, to the C library, which
//! acts on who calls, to other interposers, and to a debugger.

mod lab;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use lab::{Lab, Run};

const OURS: &str = "libnvsnap_gpushare.so";

/// Both runs say the same.
fn same(with: Run, without: Run) -> String {
    let said = without.said();
    assert_eq!(with.said(), said);
    said
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_library_in_the_middle_finds_the_next_after_itself() {
    let lab = Lab::new();
    let last = lab.library("liblast.so", "middle.c", &[]);
    let middle = lab.library("libmiddle.so", "middle.c", &["-DFIRST"]);
    let program = lab.program("middle", "middle_main.c", &["-Wl,--no-as-needed", text(&middle), text(&last)]);
    let said = same(lab.run(&program), lab.bare(&program));
    assert_eq!(said, "answer the last\ndiffers at 0\n");
    // Preloaded itself, before us and after us.
    for order in [[middle.clone(), lab.shim()], [lab.shim(), middle.clone()]] {
        let order: Vec<&Path> = order.iter().map(PathBuf::as_path).collect();
        assert_eq!(lab.bare(&program).preload(&order).said(), said);
    }
}

#[test]
fn the_default_scope_of_a_plugin_is_its_own() {
    let lab = Lab::new();
    let dependency = lab.library("libdependency.so", "local.c", &["-DDEPENDENCY"]);
    let plugin = lab.library("libplugin.so", "local.c", &[text(&dependency)]);
    let program = lab.program("host", "host.c", &[]);
    let run = |run: Run| run.args(&[text(&plugin)]);
    let said = same(run(lab.run(&program)), run(lab.bare(&program)));
    assert_eq!(said, "from the plugin 42\nis the linked one 1\n");
}

#[test]
fn a_miss_leaves_the_text_it_would_have_left_and_a_hit_leaves_none() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let program = lab.program("ask", "ask.c", &[]);
    let verbs = "open libcuda.so.1 sym cuNoSuchThing error error sym cuMulticastBindMem error sym cudnnCreate sym cuMemCreate \
                 error default road_no_such_thing error next strlen error sym cuMulticastBindMem sym cuInit init error";
    let args: Vec<&str> = verbs.split_whitespace().collect();
    let without = lab.bare(&program).driver(&driver).args(&args).said();
    let with = lab.run(&program).driver(&driver).args(&args).said();
    assert_eq!(with.replace(&format!("{OURS}:cu"), "libcuda.so.1:cu"), without);
    assert!(without.contains("undefined symbol: cuMulticastBindMem"), "{without}");
}

#[test]
fn an_error_the_program_has_not_read_yet_survives_our_own_lookups() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &["-DWITHOUT_MULTICAST"]);
    let program = lab.program("linked", "unread.c", &[text(&driver.join("libcuda.so.1"))]);
    // The calls after the miss make us find the whole driver, part of which it lacks.
    let said = same(lab.run(&program).driver(&driver), lab.bare(&program).driver(&driver));
    assert!(said.contains("undefined symbol: road_no_such_thing"), "{said}");
}

#[test]
fn names_that_only_begin_like_the_drivers_are_left_alone_wherever_the_library_lies() {
    let lab = Lab::new();
    let target = lab.library("libtarget.so", "prefix.c", &["-DTARGET"]);
    let program = lab.program("prefix", "prefix.c", &[]);
    // A preload list is split at blanks.
    let odd = lab.path("odd").join("libcudnn.so.9");
    std::fs::create_dir_all(odd.parent().expect("a folder")).unwrap();
    std::fs::copy(lab.shim(), &odd).unwrap();
    for shim in [lab.shim(), odd] {
        let run = |run: Run| run.args(&[text(&target)]);
        let said = same(run(lab.bare(&program).preload(&[&shim])), run(lab.bare(&program)));
        assert!(said.contains("cudnnCreate cudnnCreate\n"), "{said}");
        assert!(said.contains("cuMemCreate cuMemCreate of a stranger\n"), "{said}");
    }
}

#[test]
fn another_interposer_of_dlsym_after_us_sees_the_callers_own_lookups() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let other = lab.library("libother.so", "interposer.c", &[]);
    let program = lab.program("interposed", "interposed.c", &["-rdynamic"]);
    let said = lab.run(&program).preload(&[&lab.shim(), &other]).driver(&driver).said();
    assert_eq!(said, format!("strlen 1\ncaller interposed:main\ncuInit {OURS}:cuInit 0\nlookups 1\n"));
}

#[test]
fn an_interposer_before_us_that_goes_straight_to_the_c_library_gets_what_it_would_have_got() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let other = lab.library("libother.so", "interposer.c", &[]);
    let program = lab.program("interposed", "interposed.c", &["-rdynamic"]);
    let said = lab.run(&program).preload(&[&other, &lab.shim()]).driver(&driver).said();
    assert_eq!(said, lab.bare(&program).preload(&[&other]).driver(&driver).said());
}

#[test]
fn a_constructor_that_runs_before_ours_gets_our_functions_and_they_work() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let early = lab.library("libearly.so", "early.c", &[]);
    let program = lab.program("early", "early_main.c", &[text(&early)]);
    let said = lab.run(&program).driver(&driver).said();
    assert_eq!(said, format!("early cuInit {OURS}:cuInit 0\nearly alloc 0\nmain 1\n"));
    // Switched off, the functions are there, since nothing has been read yet, and lead straight on.
    let said = lab.run(&program).driver(&driver).env("NVSNAP_GPUSHARE", "off").said();
    assert!(said.ends_with(" 0\nearly alloc 0\nmain 1\n"), "{said}");
}

#[test]
fn a_lookup_from_inside_malloc_is_answered() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let allocator = lab.library("liballocator.so", "allocator.c", &[]);
    let program = lab.program("threads", "threads.c", &[]);
    for order in [[allocator.clone(), lab.shim()], [lab.shim(), allocator.clone()]] {
        let order: Vec<&Path> = order.iter().map(PathBuf::as_path).collect();
        let said = lab.bare(&program).preload(&order).driver(&driver).said();
        assert_eq!(said, format!("cuInit {OURS}:cuInit\nwrong 0\n"), "{order:?}");
    }
}

#[test]
fn eight_threads_that_look_up_at_once_all_get_the_same_answers() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let program = lab.program("threads", "threads.c", &[]);
    let said = lab.run(&program).driver(&driver).said();
    assert_eq!(said, format!("cuInit {OURS}:cuInit\nwrong 0\n"));
}

#[test]
fn the_stack_can_be_walked_through_the_stub() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let other = lab.library("libother.so", "interposer.c", &["-DTRACE"]);
    let program = lab.program("ask", "ask.c", &["-rdynamic"]);
    // By handle and for a name of the driver, the next dlsym is called from inside the stub.
    let run = lab.run(&program).preload(&[&lab.shim(), &other]).driver(&driver);
    let said = run.args(&["open", "libcuda.so.1", "sym", "cuInit"]).said();
    assert_eq!(said, format!("trace reaches main\nsym cuInit {OURS}:cuInit\n"));
}

#[test]
fn opened_late_the_library_finds_the_c_librarys_dlsym_by_version() {
    let lab = Lab::new();
    let program = lab.program("late", "late.c", &[]);
    let shim = lab.shim();
    let said = lab.bare(&program).args(&[text(&shim)]).said();
    assert_eq!(said, "strlen 1\nmissing 1\n");
}

#[test]
fn where_no_dlsym_is_to_be_found_the_reason_is_said() {
    let lab = Lab::new();
    let program = lab.program("late", "late.c", &[]);
    let noversion = lab.library("libnoversion.so", "noversion.c", &[]);
    let shim = lab.shim();
    let output = lab.bare(&program).preload(&[&noversion]).args(&[text(&shim)]).output();
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no dlsym of the C library found behind this library"), "{said}");
}
