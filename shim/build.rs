//! Link arguments of the library. What they hold is checked on the built file by `tests/tests/exports.rs`.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "this runs in cargo, not in a program"
)]

use std::env;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=link");
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    // Holds a `libgcc_s.so` of ours: a preloaded library whose dependency is missing kills its process.
    println!("cargo:rustc-link-search=native={}", Path::new(&root).join("link").display());
    for argument in [
        // Our table names our functions, whoever stands before us in the search order.
        "-Bsymbolic",
        // Hooks, the fork handler and the control thread live as long as the process.
        "-znodelete",
        "-znoexecstack",
        // Images and core dumps name the library they belong to.
        "--build-id=sha1",
        "-soname=libnvsnap_gpushare.so",
    ] {
        println!("cargo:rustc-link-arg-cdylib=-Wl,{argument}");
    }
}
