//! The real `cuda.h`: what it declares, and what a C compiler makes of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

/// The release that the list and the types were written for.
const VERSION: &str = "13.1.80";

/// The folder with `cuda.h`, which `scripts/fetch-header` puts under `target/`.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace");
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let folder = root.join(target).join("cuda-header").join(VERSION).join("nvidia/cu13/include");
        if !folder.join("cuda.h").exists() {
            let fetched = Command::new(root.join("scripts/fetch-header")).status().expect("cannot run bash");
            assert!(fetched.success(), "scripts/fetch-header could not fetch cuda.h {VERSION}");
        }
        folder
    })
}

/// `cuda.h` without its macros, as it is for the driver's own build: every form of every function is declared, under
/// its real name.
pub(crate) fn declarations() -> String {
    let header = folder().join("cuda.h");
    text(gcc().args(["-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", "-x", "c"]).arg(header))
}

/// What a C program prints that has this body, with `cuda.h` as programs see it and no name redirected.
pub(crate) fn printed(body: &str) -> String {
    let source = format!(
        "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <stddef.h>\n#include <stdio.h>\n\
         int main(void) {{\n{body}\nreturn 0;\n}}\n"
    );
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Tests of one process run at the same time, and so do test processes.
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let program = scratch.join(format!("header-{}-{number}", std::process::id()));
    let file = program.with_extension("c");
    fs::write(&file, source).expect("cannot write a C program");
    text(gcc().arg("-I").arg(folder()).arg("-o").arg(&program).arg(&file));
    let printed = text(&mut Command::new(&program));
    fs::remove_file(&file).expect("it was written above");
    fs::remove_file(&program).expect("the compiler wrote it");
    printed
}

/// As [`printed`], for a body that prints lines of `name number`.
pub(crate) fn numbers(body: &str) -> BTreeMap<String, u64> {
    let parse = |line: &str| {
        let (name, number) = line.rsplit_once(' ').expect("a name and a number");
        (name.to_owned(), number.parse().expect("a number"))
    };
    printed(body).lines().map(parse).collect()
}

fn gcc() -> Command {
    Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

fn text(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("output in UTF-8")
}
