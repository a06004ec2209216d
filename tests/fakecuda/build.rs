//! The library carries the name under which programs and loaders look for the driver.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // The resolver gives the library's own functions, whoever else exports their names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
