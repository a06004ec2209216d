//! Every road from a program to the driver leads past the library, and ends where it would have ended without.

mod lab;

use std::path::Path;
use std::process::Command;

use integration::Machine;
use lab::{Lab, Run};

const OURS: &str = "libnvsnap_gpushare.so";

/// A run of `ask`, which does what `script` says.
fn script(lab: &Lab, run: fn(&Lab, &Path) -> Run, driver: &Path, script: &str) -> Run {
    let program = lab.path("ask");
    if !program.exists() {
        lab.program("ask", "ask.c", &[]);
    }
    run(lab, &program).driver(driver).args(&script.split_whitespace().collect::<Vec<_>>())
}

fn held(lab: &Lab, program: &Path) -> Run {
    lab.run(program)
}

fn bare(lab: &Lab, program: &Path) -> Run {
    lab.bare(program)
}

/// What a program says without the library, with the library's functions in place of the driver's, except for those
/// that nobody stands in front of (named without their `cu`).
fn in_front(said: &str, passed_on: &[&str]) -> String {
    said.lines()
        .map(|line| match line.split_once("libcuda.so.1:cu") {
            Some((before, name)) if !passed_on.contains(&name) => format!("{before}{OURS}:cu{name}\n"),
            _ => format!("{line}\n"),
        })
        .collect()
}

#[test]
fn the_driver_is_held_by_whichever_name_it_was_loaded() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let absolute = driver.join("libcuda.so.1");
    for name in ["libcuda.so.1", "libcuda.so", absolute.to_str().unwrap()] {
        for how in ["open", "global"] {
            let verbs = format!("{how} {name} sym cuInit init sym cuMemCreate create calls cuMemCreate");
            let said = script(&lab, held, &driver, &verbs).said();
            let expected = format!(
                "sym cuInit {OURS}:cuInit\ninit 0\nsym cuMemCreate {OURS}:cuMemCreate\ncreate 0 handle\n\
                 calls cuMemCreate 1\n"
            );
            assert_eq!(said, expected, "{how} {name}");
        }
    }
}

#[test]
fn a_program_linked_with_the_driver_is_held_and_reaches_it() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let program = lab.program("linked", "linked.c", &[driver.join("libcuda.so.1").to_str().unwrap()]);
    let without = lab.bare(&program).driver(&driver).said();
    let with = lab.run(&program).driver(&driver).said();
    assert_eq!(with, in_front(&without, &[]));
    assert!(with.contains("calls 1 1 1 1"), "{with}");
}

#[test]
fn a_plugin_linked_with_the_driver_is_held_in_a_scope_of_its_own() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let plugin = lab.library("libplugin.so", "plugin.c", &[driver.join("libcuda.so.1").to_str().unwrap()]);
    let program = lab.program("host", "host.c", &[]);
    let run = |run: Run| run.driver(&driver).args(&[plugin.to_str().unwrap()]).said();
    let without = run(lab.bare(&program));
    assert_eq!(run(lab.run(&program)), in_front(&without, &[]));
}

#[test]
fn a_library_of_trampolines_between_program_and_driver_goes_on_working() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let trampoline = lab.library("libtrampoline.so", "trampoline.c", &[]);
    let program = lab.program("linked", "linked.c", &[trampoline.to_str().unwrap()]);
    let without = lab.bare(&program).driver(&driver).said();
    assert!(without.contains("address libtrampoline.so:cuInit"), "{without}");
    let with = lab.run(&program).driver(&driver).said();
    assert_eq!(with, in_front(&without, &[]).replace("libtrampoline.so", OURS));
}

#[test]
fn a_library_before_us_that_exports_a_function_of_the_driver_passes_on_to_us() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let counter = lab.library("libcounter.so", "counter.c", &[]);
    let program = lab.program("linked", "linked.c", &[driver.join("libcuda.so.1").to_str().unwrap()]);
    let said = lab.bare(&program).preload(&[&counter, &lab.shim()]).driver(&driver).said();
    // By handle and by the driver's resolver the driver's own is asked for, not the counter's.
    assert!(
        said.contains(&format!("resolver 0 0 {OURS}:cuMemAlloc_v2\ncalls 1 1 1 1\ncounted 1\n")),
        "{said}"
    );
    let run = script(&lab, held, &driver, "open libcuda.so.1 sym cuMemAlloc_v2 default cuMemAlloc_v2");
    let said = run.preload(&[&counter, &lab.shim()]).said();
    let expected = format!(
        "sym cuMemAlloc_v2 {OURS}:cuMemAlloc_v2\ndefault cuMemAlloc_v2 libcounter.so:cuMemAlloc_v2\ncounted 0\n"
    );
    assert_eq!(said, expected);
}

#[test]
fn both_kinds_of_symbol_hash_are_read() {
    let lab = Lab::new();
    for style in ["gnu", "sysv"] {
        let driver = lab.driver(style, &[&format!("-Wl,--hash-style={style}"), "-DWITHOUT_MULTICAST"]);
        let verbs = "open libcuda.so.1 sym cuInit init sym cuMemCreate create sym cuMulticastCreate calls cuMemCreate";
        let without = script(&lab, bare, &driver, verbs).said();
        assert_eq!(script(&lab, held, &driver, verbs).said(), in_front(&without, &[]), "{style}");
    }
}

#[test]
fn a_lookup_through_a_library_that_needs_the_driver_is_held() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let linked = driver.join("libcuda.so.1");
    let needs = lab.library("libneeds.so", "nothing.c", &["-Wl,--no-as-needed", linked.to_str().unwrap()]);
    let said = script(&lab, held, &driver, &format!("open {} sym cuMemCreate", needs.display())).said();
    assert_eq!(said, format!("sym cuMemCreate {OURS}:cuMemCreate\n"));
}

#[test]
fn pseudo_handles_and_the_programs_own_find_our_function_in_the_callers_scope() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let verbs = "global libcuda.so.1 default cuInit next cuInit self sym cuInit init";
    let said = script(&lab, held, &driver, verbs).said();
    let expected = format!(
        "default cuInit {OURS}:cuInit\nnext cuInit {OURS}:cuInit\nsym cuInit {OURS}:cuInit\ninit 0\n"
    );
    assert_eq!(said, expected);
}

#[test]
fn where_no_driver_is_loaded_its_functions_are_missing() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &["-DWITHOUT_MULTICAST"]);
    let verbs =
        "default cuInit next cuInit global libcuda.so.1 default cuMulticastCreate sym cuMulticastCreate";
    let without = script(&lab, bare, &driver, verbs).said();
    assert!(!without.contains("libcuda.so.1:"), "{without}");
    assert_eq!(script(&lab, held, &driver, verbs).said(), without);
    let said = script(&lab, held, &driver, "default cuInit error error").said();
    let (first, second) =
        said.split_once("undefined symbol: cuInit\n").expect("dlerror names what is missing");
    assert!(first.starts_with("default cuInit none\nerror "), "{said}");
    assert_eq!(second, "error none\n", "and says it once");
}

#[test]
fn the_resolver_is_asked_with_the_programs_arguments_and_its_answer_replaced_by_address() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &["-DWITH_CREATE_V3"]);
    let mut verbs = String::from("open libcuda.so.1 sym cuInit init ");
    let names = [
        "cuInit",
        "cuMemAlloc",
        "cuMemCreate",
        "cuLaunchKernel",
        "cuStreamSynchronize",
        "cuIpcOpenMemHandle",
        "cuMulticastCreate",
        "cuDriverGetVersion",
        "cuGetProcAddress",
        "cuNobodyKnows",
        "cuNoSuchThing",
        "cudnnCreate",
    ];
    for resolver in ["cuGetProcAddress", "cuGetProcAddress_v2"] {
        verbs.push_str(&format!("resolver {resolver} "));
        for name in names {
            for version in [2000, 3020, 11030, 12000, 12080, 13000, 14000] {
                for flags in [0, 1, 2] {
                    verbs.push_str(&format!("ask {name} {version} {flags} "));
                }
            }
        }
    }
    let without = script(&lab, bare, &driver, &verbs).said();
    let with = script(&lab, held, &driver, &verbs).said();
    assert_eq!(with, in_front(&without, &["DriverGetVersion", "NobodyKnows", "MemCreate_v3"]));
    assert!(with.contains(&format!("ask cuLaunchKernel 12000 2: 0 0 {OURS}:cuLaunchKernel_ptsz")), "{with}");
    assert!(with.contains(&format!("ask cuMemAlloc 2000 0: 0 77 {OURS}:cuMemAlloc\n")), "{with}");
}

#[test]
fn a_form_of_a_call_that_nobody_knows_is_passed_on_and_logged() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &["-DWITH_CREATE_V3"]);
    let verbs = "open libcuda.so.1 sym cuInit init resolver cuGetProcAddress_v2 ask cuMemCreate 14000 0 \
                 ask cuNobodyKnows 14000 0 ask cuDriverGetVersion 14000 0";
    let log = lab.path("log");
    let said = script(&lab, held, &driver, verbs).env("NVSNAP_GPUSHARE_LOG", &log).said();
    assert!(said.contains("ask cuMemCreate 14000 0: 0 0 libcuda.so.1:cuMemCreate_v3"), "{said}");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("cuMemCreate at 0x"), "{log}");
    assert!(log.contains("cuNobodyKnows is a function this library has never heard of"), "{log}");
    assert_eq!(log.lines().filter(|line| line.contains("cuGetProcAddress: ")).count(), 2, "{log}");
}

#[test]
fn a_newer_form_of_a_call_that_allocates_stands_in_the_way_of_a_suspend() {
    let lab = Lab::new();
    let newer = lab.driver("driver", &["-DWITH_CREATE_V3"]).join("libcuda.so.1");
    lab.program("ask", "ask.c", &[]);
    let machine = Machine::stand_in().unwrap();
    let blockers = |lookups: &str| {
        // The stand-in is the driver of the process; the newer one is there to be looked into.
        let verbs = format!("open libcuda.so.1 sym cuInit init open {} {lookups} stay", newer.display());
        let mut command = machine.command(lab.path("ask"));
        command.env("LD_PRELOAD", lab.shim()).args(verbs.split_whitespace());
        let (mut child, _) = lab::start(&mut command, "stays");
        let checked = machine.tool().verb("check", &[child.id().cast_signed()]).unwrap();
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        checked.text()
    };
    let fine = blockers("sym cuMemCreate sym cuLaunchKernel_v7 sym cuMulticastCreate_v9");
    assert!(!fine.contains("newer form"), "{fine}");
    for lookups in ["sym cuMemCreate_v3", "resolver cuGetProcAddress_v2 ask cuMemCreate 14000 0"] {
        let found = blockers(lookups);
        assert!(found.contains("a newer form of cuMemCreate"), "{lookups}: {found}");
    }
}

#[test]
fn the_oldest_abi_is_not_the_new_one() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let said = script(&lab, held, &driver, "open libcuda.so.1 sym cuMemAlloc sym cuMemAlloc_v2").said();
    assert_eq!(said, format!("sym cuMemAlloc {OURS}:cuMemAlloc\nsym cuMemAlloc_v2 {OURS}:cuMemAlloc_v2\n"));
}

#[test]
fn a_driver_that_lacks_a_function_looks_like_one_that_lacks_it() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &["-DWITHOUT_RESOLVER_V2", "-DWITHOUT_MULTICAST"]);
    let verbs = "open libcuda.so.1 sym cuInit init sym cuGetProcAddress_v2 error sym cuMulticastCreate error \
                 resolver cuGetProcAddress ask cuGetProcAddress 12000 0 ask cuMulticastCreate 12010 0 \
                 ask cuMemCreate 12000 0 create ask cuLaunchHostFunc 12000 0 host";
    let without = script(&lab, bare, &driver, verbs).said();
    assert!(without.contains("sym cuMulticastCreate none"), "{without}");
    assert_eq!(script(&lab, held, &driver, verbs).said(), in_front(&without, &[]));
}

#[test]
fn a_driver_loaded_again_at_another_address_replaces_the_first() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let other = lab.driver("other", &["-DWITHOUT_MULTICAST"]);
    let other = other.join("libcuda.so.1");
    let verbs = format!(
        "open libcuda.so.1 sym cuInit init calls cuInit close open {} sym cuInit init sym cuMulticastCreate calls cuInit",
        other.display()
    );
    let without = script(&lab, bare, &driver, &verbs).said();
    assert_eq!(script(&lab, held, &driver, &verbs).said(), in_front(&without, &[]));
}

#[test]
fn switched_off_the_library_is_not_there() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let verbs = "open libcuda.so.1 sym cuInit init sym cuMemCreate create resolver cuGetProcAddress_v2 \
                 ask cuMemCreate 12000 0 ask cuGetProcAddress 12000 0 calls cuMemCreate";
    let without = script(&lab, bare, &driver, verbs).said();
    assert_eq!(script(&lab, held, &driver, verbs).env("NVSNAP_GPUSHARE", "off").said(), without);

    let program = lab.program("linked", "linked.c", &[driver.join("libcuda.so.1").to_str().unwrap()]);
    let said = lab.run(&program).driver(&driver).env("NVSNAP_GPUSHARE", "off").said();
    assert!(said.contains("resolver 0 0 libcuda.so.1:cuMemAlloc_v2\ncalls 1 1 1 1\n"), "{said}");
}

#[test]
fn a_bad_value_is_said_once_and_only_where_cuda_is_used() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let bad = |verbs| script(&lab, held, &driver, verbs).env("NVSNAP_GPUSHARE_RAW_FD", "maybe");
    bad("open libcuda.so.1 sym cuInit").said();
    let output = bad("open libcuda.so.1 sym cuInit init init").output();
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.ends_with("NVSNAP_GPUSHARE_RAW_FD is not 0 or 1: its value is ignored\n"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn the_last_calls_of_a_process_still_work() {
    let lab = Lab::new();
    let driver = lab.driver("driver", &[]);
    let program = lab.path("exit");
    let mut compiler = Command::new("c++");
    compiler.args(["-O1", "-g", "-Wall", "-Werror", "-pthread", "-I"]).arg(lab::sources()).arg("-o");
    lab::check(compiler.arg(&program).arg(lab::sources().join("exit.cc")).arg("-ldl"));
    for round in 0..100 {
        let said = match round % 2 {
            0 => lab.run(&program).driver(&driver).said(),
            _ => {
                let script = format!("exec 2>&-; exec {}", program.display());
                let run = lab.run("bash").driver(&driver).env("NVSNAP_GPUSHARE_LOG", "stderr");
                run.args(&["-c", &script]).said()
            }
        };
        assert_eq!(said, "late uses 5\n", "round {round}");
    }
}
