//! The exported `dlsym`: ours where the program looks up a driver call, invisible everywhere else.
//!
//! The C library's `dlsym` acts on who calls it: `RTLD_NEXT` is the object after the caller, `RTLD_DEFAULT`
//! the caller's own scope. So the stub, which is written in assembly, puts the caller's registers and stack back and
//! jumps to the next `dlsym`, unless [`resolve`](crate::resolve) has an answer. To the next `dlsym`, and to a
//! debugger, it looks as if the caller had called it itself.

use core::arch::naked_asm;
use core::ffi::{c_char, c_void};

use crate::resolve::resolve;

/// # Safety
/// As the C library's function of this name.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(include_str!("dlsym_x86_64.s"), resolve = sym resolve);
    #[cfg(target_arch = "aarch64")]
    naked_asm!(include_str!("dlsym_aarch64.s"), resolve = sym resolve);
}
