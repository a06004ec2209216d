//! The library carries the name under which programs and loaders look for the driver.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // As in the real one, its own functions are called and handed out whoever exports the same names before it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
