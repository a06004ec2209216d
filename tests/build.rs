//! Makes what `worker-linked` links against: an empty `libcuda.so` with the SONAME of the driver and every function of the header,
//! and a table of references to them. At run time the loader binds those to the driver that is there; they are weak, since a
//! driver may lack functions of a later header.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

macro_rules! names {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(on $($stream:ident).+)?;)*) => {
        const LISTED: &[&str] = &[$(stringify!($name)),*];
    };
}

cuda_sys::for_each_call!(names);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let names = || LISTED.iter().chain(cuda_sys::PASS);

    let functions: String = names().map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
    let library = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    compile(&folder, "libcuda", &functions, &library, "libcuda.so");

    // One reference is not weak, or the linker would leave the library out.
    let declared: String = names()
        .map(|name| {
            let weak = if *name == "cuInit" { "" } else { " __attribute__((weak))" };
            format!("extern int {name}(void){weak};\n")
        })
        .collect();
    let entries: String = names().map(|name| format!("    {{\"{name}\", {name}}},\n")).collect();
    let table = format!(
        "{declared}const struct {{ const char *name; int (*call)(void); }} nvsnap_linked[] = {{\n{entries}}};\n\
         const unsigned long nvsnap_linked_count = sizeof nvsnap_linked / sizeof *nvsnap_linked;\n"
    );
    compile(&folder, "linked", &table, &["-c", "-fPIC"], "linked.o");
    let archive = folder.join("libnvsnap_linked.a");
    let status = Command::new("ar").arg("crs").arg(archive).arg(folder.join("linked.o")).status();
    assert!(status.expect("ar runs").success(), "ar failed");
    println!("cargo::rustc-link-search=native={}", folder.display());
}

fn compile(folder: &Path, name: &str, source: &str, flags: &[&str], made: &str) {
    let file = folder.join(name).with_extension("c");
    std::fs::write(&file, source).expect("OUT_DIR is writable");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler).args(flags).arg("-o").arg(folder.join(made)).arg(&file).status();
    assert!(
        status.expect("the C compiler runs, which links Rust programs too").success(),
        "{compiler:?} failed"
    );
}
