//! Makes what `worker-linked` links against: an empty `libcuda.so` with the SONAME of the driver and the names in
//! `linked.txt`. At run time the loader binds them to the driver that is there.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=linked.txt");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let names = std::fs::read_to_string("linked.txt").expect("linked.txt is readable");
    let names: Vec<&str> = names.split_whitespace().collect();

    let source: String = names.iter().map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
    std::fs::write(folder.join("libcuda.c"), source).expect("OUT_DIR is writable");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(folder.join("libcuda.so"))
        .arg(folder.join("libcuda.c"))
        .status()
        .expect("the C compiler runs, which links Rust programs too");
    assert!(status.success(), "{compiler:?}: {status}");

    let declared: String = names.iter().map(|name| format!("    fn {name}();\n")).collect();
    let entries: String =
        names.iter().map(|name| format!("    (\"{name}\", {name} as unsafe extern \"C\" fn()),\n")).collect();
    let table = format!(
        "#[link(name = \"cuda\")]\nunsafe extern \"C\" {{\n{declared}}}\n\n\
         const LINKED: &[(&str, unsafe extern \"C\" fn())] = &[\n{entries}];\n"
    );
    std::fs::write(folder.join("linked.rs"), table).expect("OUT_DIR is writable");
    println!("cargo::rustc-link-search=native={}", folder.display());
}
