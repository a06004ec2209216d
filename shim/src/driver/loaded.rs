//! The objects that are loaded: all of them, and the one an address lies in.

use core::ffi::{c_int, c_void};
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

/// The first loaded object, in load order, for which `wanted` has an answer.
pub(crate) fn first<T>(mut wanted: impl FnMut(&Object) -> Option<T>) -> Option<T> {
    struct Search<'a, T> {
        wanted: &'a mut dyn FnMut(&Object) -> Option<T>,
        found: Option<T>,
    }

    unsafe extern "C" fn visit<T>(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: the loader hands its callback a valid structure.
        let info = unsafe { &*info };
        // SAFETY: the pointer we gave, to a search that outlives the walk; only this function uses it.
        let search = unsafe { &mut *search.cast::<Search<'_, T>>() };
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
        search.found = object.and_then(|object| (search.wanted)(&object));
        c_int::from(search.found.is_some())
    }

    let mut search = Search { wanted: &mut wanted, found: None };
    // SAFETY: `visit` is instantiated for the type that `search` has.
    unsafe { libc::dl_iterate_phdr(Some(visit::<T>), (&raw mut search).cast()) };
    search.found
}
