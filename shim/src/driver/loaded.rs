//! The objects that are loaded: all of them, and the one an address lies in.

use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use core::ptr;
use core::slice;

use super::object::Object;

/// The start of glibc's `struct link_map`, as `<link.h>` publishes it.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const libc::c_char,
    dynamic: *const c_void,
}

/// `RTLD_DL_LINKMAP`
const LINK_MAP: c_int = 2;

unsafe extern "C" {
    /// glibc's `dladdr1`. It takes the lock that `dlsym` takes, and neither allocates nor touches `dlerror`.
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// The object in which `address` lies.
pub(crate) fn around(address: usize) -> Option<Object> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    let mut map = ptr::null_mut();
    // SAFETY: both out-parameters are writable; any address may be asked for.
    let found =
        unsafe { dladdr1(ptr::with_exposed_provenance(address), &raw mut info, &raw mut map, LINK_MAP) };
    if found == 0 || map.is_null() {
        return None;
    }
    // SAFETY: `RTLD_DL_LINKMAP` gives the link map of the object.
    let map = unsafe { map.cast::<LinkMap>().read() };
    if map.dynamic.is_null() {
        return None;
    }
    // SAFETY: the object's own base and section; it is loaded, since somebody holds an address in it.
    unsafe { Object::new(map.base, map.dynamic) }
}

/// A loaded object as the loader lists it.
pub(super) struct Listed<'a> {
    pub(super) object: Object,
    /// The file, or nothing for the program itself.
    pub(super) path: &'a CStr,
    headers: &'a [libc::Elf64_Phdr],
}

impl Listed<'_> {
    /// The addresses it takes up, those of writable memory only or all.
    pub(super) fn segments(&self, writable: bool) -> impl Iterator<Item = Range<usize>> {
        let loaded = self.headers.iter().filter(|segment| segment.p_type == libc::PT_LOAD);
        loaded.filter(move |segment| !writable || segment.p_flags & libc::PF_W != 0).filter_map(|segment| {
            let start = self.object.base().wrapping_add(usize::try_from(segment.p_vaddr).ok()?);
            Some(start..start.checked_add(usize::try_from(segment.p_memsz).ok()?)?)
        })
    }
}

/// The first loaded object, in load order, for which `wanted` has an answer.
pub(crate) fn first<T>(mut wanted: impl FnMut(&Object) -> Option<T>) -> Option<T> {
    let mut found = None;
    walk(&mut |listed| {
        found = wanted(&listed.object);
        found.is_some()
    });
    found
}

/// Shows every loaded object that has symbols, in load order, until `done` says so.
pub(super) fn walk(done: &mut dyn FnMut(&Listed<'_>) -> bool) {
    type Done<'a> = &'a mut dyn FnMut(&Listed<'_>) -> bool;

    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, done: *mut c_void) -> c_int {
        // SAFETY: the loader hands its callback a valid structure.
        let info = unsafe { &*info };
        // SAFETY: the pointer we gave, to what outlives the walk; only this function uses it.
        let done = unsafe { &mut *done.cast::<Done<'_>>() };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the object's program headers, as many as it says.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let Ok(base) = usize::try_from(info.dlpi_addr) else { return 0 };
        let Some(segment) = headers.iter().find(|segment| segment.p_type == libc::PT_DYNAMIC) else {
            return 0;
        };
        let Ok(offset) = usize::try_from(segment.p_vaddr) else { return 0 };
        // SAFETY: the loader holds the object loaded during the walk.
        let object = unsafe { Object::new(base, ptr::with_exposed_provenance(base.wrapping_add(offset))) };
        // SAFETY: null, or a C string that lives as long as the object.
        let path = if info.dlpi_name.is_null() { c"" } else { unsafe { CStr::from_ptr(info.dlpi_name) } };
        c_int::from(object.is_some_and(|object| done(&Listed { object, path, headers })))
    }

    let mut done: Done<'_> = done;
    // SAFETY: `visit` gets a pointer to what it takes it for.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut done).cast()) };
}
