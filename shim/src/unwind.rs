//! Where the unwinder finds our own frames.
//!
//! The unwinder is linked in (see `link/libgcc_s.so`). It asks `_dl_find_object`, which glibc has since 2.35; with
//! a hidden function of that name in here the library loads with glibc 2.34. No panic of ours leaves the
//! library (see [`boundary`](crate::boundary)), so the only object it has to know is this one.

use core::arch::global_asm;
use core::ffi::{c_int, c_void};

/// `struct dl_find_object` of glibc's `<dlfcn.h>`, for 64-bit targets.
#[repr(C)]
struct FoundObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut c_void,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

unsafe extern "C" {
    /// The linker's name for our ELF header.
    static __ehdr_start: libc::Elf64_Ehdr;
}

// Hidden, which Rust's own attributes cannot say: a program must not find it.
global_asm!(
    ".globl _dl_find_object",
    ".hidden _dl_find_object",
    ".type _dl_find_object, @function",
    "_dl_find_object:",
    #[cfg(target_arch = "x86_64")]
    "jmp {find}",
    #[cfg(target_arch = "aarch64")]
    "b {find}",
    ".size _dl_find_object, . - _dl_find_object",
    find = sym find_object,
);

/// As glibc's `_dl_find_object`: 0 and `found` for an address of this library, -1 for any other.
unsafe extern "C" fn find_object(pc: *const c_void, found: *mut FoundObject) -> c_int {
    let base = (&raw const __ehdr_start).addr();
    // SAFETY: the header of a loaded object stays mapped and unchanged.
    let header = unsafe { &__ehdr_start };
    let at = base.wrapping_add(usize::try_from(header.e_phoff).unwrap_or(0));
    // SAFETY: `e_phnum` program headers lie at `e_phoff`, in the first loaded segment.
    let headers = unsafe {
        core::slice::from_raw_parts(
            core::ptr::with_exposed_provenance::<libc::Elf64_Phdr>(at),
            header.e_phnum.into(),
        )
    };
    let address = |offset: u64| base.wrapping_add(usize::try_from(offset).unwrap_or(0));
    let mut end = base;
    let mut eh_frame = 0;
    for segment in headers {
        match segment.p_type {
            libc::PT_LOAD => end = end.max(address(segment.p_vaddr.wrapping_add(segment.p_memsz))),
            libc::PT_GNU_EH_FRAME => eh_frame = address(segment.p_vaddr),
            _ => {}
        }
    }
    if !(base..end).contains(&pc.addr()) || eh_frame == 0 {
        return -1;
    }
    let object = FoundObject {
        flags: 0,
        map_start: core::ptr::with_exposed_provenance_mut(base),
        map_end: core::ptr::with_exposed_provenance_mut(end),
        link_map: core::ptr::null_mut(),
        eh_frame: core::ptr::with_exposed_provenance_mut(eh_frame),
        reserved: [0; 7],
    };
    // SAFETY: the unwinder's structure, writable.
    unsafe { found.write(object) };
    0
}
