//! The library for aarch64, in an emulator: the stub, the loader, and the roads that lead to a hook.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]

mod lab;

use std::path::Path;
use std::process::Command;

use lab::Lab;

const EMULATOR: &str = "qemu-aarch64";
/// Where the cross compiler's C library lies.
const ROOT: &str = "/usr/aarch64-linux-gnu";
const OURS: &str = "libnvsnap_gpushare.so";

/// The stub's own text, assembled into a C program.
#[test]
fn the_stub_keeps_what_the_caller_had() {
    let lab = Lab::aarch64();
    let stub = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shim/src/dlsym_aarch64.s");
    let stub = std::fs::read_to_string(stub).unwrap().replace("{resolve}", "road_resolve");
    let assembly = lab.path("stub.s");
    let text = format!(
        ".text\n.global road_dlsym\n.type road_dlsym, %function\nroad_dlsym:\n{stub}.size road_dlsym, . - road_dlsym\n\
         .section .note.GNU-stack,\"\",%progbits\n"
    );
    std::fs::write(&assembly, text).unwrap();
    let flags = ["-static", "-fasynchronous-unwind-tables", assembly.to_str().unwrap()];
    let program = lab.program("stub", "stub.c", &flags);
    let said = lab::check(Command::new(EMULATOR).arg(&program));
    assert_eq!(said, "answered 1\npassed on 1 1 1\nwalked 1\n");
}

#[test]
fn the_library_loads_and_every_look_up_leads_to_it() {
    let Some(shim) = lab::shim_for_aarch64() else { return };
    let lab = Lab::aarch64();
    let driver = lab.driver("driver", &[]);
    let ask = lab.program("ask", "ask.c", &[]);
    let said = |preload: Option<&Path>, verbs: &str| {
        let mut run = Command::new(EMULATOR);
        run.args(["-L", ROOT, "-E"]).arg(format!("LD_LIBRARY_PATH={}", driver.display()));
        if let Some(library) = preload {
            run.arg("-E").arg(format!("LD_PRELOAD={}", library.display()));
        }
        lab::check(run.arg(&ask).args(verbs.split_whitespace()))
    };
    let verbs = "open libcuda.so.1 sym cuInit init sym cuMemCreate create calls cuMemCreate default cuInit next strlen \
                 sym cuNoSuchThing error resolver cuGetProcAddress_v2 ask cuLaunchHostFunc 12000 0 host";
    let with = said(Some(shim), verbs);
    let (without, ours) = (said(None, verbs), format!("{OURS}:cu"));
    assert_eq!(
        with.replace("default cuInit libnvsnap_gpushare.so:cuInit", "default cuInit none"),
        without.replace("libcuda.so.1:cu", &ours)
    );
    assert!(
        with.contains(&format!("sym cuMemCreate {OURS}:cuMemCreate\ncreate 0 handle\ncalls cuMemCreate 1\n")),
        "{with}"
    );
}
