//! The arrows between the crates: what may know of what.

use std::collections::BTreeSet;
use std::process::Command;

/// Who may use whom. `shim-core` is the part of the shim that tests and benchmarks can link.
const ARROWS: &[(&str, &[&str])] = &[
    ("cuda-sys", &[]),
    ("protocol", &[]),
    ("chunkstore", &[]),
    ("shim-core", &["cuda-sys", "protocol"]),
    ("shim", &["chunkstore", "cuda-sys", "protocol", "shim-core"]),
    ("suspend-tool", &["chunkstore", "cuda-sys", "protocol"]),
    ("fakecuda", &["cuda-sys"]),
    ("integration", &["cuda-sys"]),
];

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn no_crate_uses_another_against_the_arrows() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let ours: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let listed: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(ours, listed, "every crate of the workspace has its line in the table");

    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let allowed = ARROWS.iter().find(|(of, _)| *of == name).map(|(_, to)| *to).unwrap_or_default();
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let to = dependency["name"].as_str().expect("a name");
            if ours.contains(to) {
                assert!(allowed.contains(&to), "{name} must not use {to}");
            }
        }
    }
}

#[test]
fn nothing_links_the_shim() {
    for package in metadata()["packages"].as_array().expect("packages") {
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            assert_ne!(dependency["name"], "shim", "{} links the shim", package["name"]);
        }
    }
}

#[test]
fn a_dependency_of_the_shim_says_why_it_is_there() {
    let manifest = include_str!("../../shim/Cargo.toml");
    let section =
        manifest.split("[dependencies]").nth(1).expect("a section").split("\n[").next().expect("its lines");
    let mut argued = false;
    for line in section.lines().filter(|line| !line.trim().is_empty()) {
        let own =
            ["chunkstore", "cuda-sys", "protocol", "shim-core"].iter().any(|name| line.starts_with(name));
        if line.starts_with('#') {
            argued = true;
        } else {
            assert!(argued || own, "no sentence says why the shim needs: {line}");
            argued = false;
        }
    }
}
