//! The roads a program may take to a driver function.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::str::FromStr;
use std::sync::OnceLock;

use cuda_sys::CuError;

/// How a program finds the driver's functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Road {
    /// `cuGetProcAddress_v2`, itself found by `dlsym`: what cudart does.
    #[default]
    Resolver,
    /// The same with the flag for the per-thread default stream.
    PerThread,
    /// `dlsym` on a handle of the driver.
    Dlsym,
    /// `dlsym` on the default scope.
    Scope,
    /// What the loader bound when the program started.
    Linked,
}

impl FromStr for Road {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "resolver" => Ok(Self::Resolver),
            "per-thread" => Ok(Self::PerThread),
            "dlsym" => Ok(Self::Dlsym),
            "scope" => Ok(Self::Scope),
            "linked" => Ok(Self::Linked),
            other => Err(format!("no road is called {other}")),
        }
    }
}

static TAKEN: OnceLock<Road> = OnceLock::new();

/// What a linked program found by its own symbols.
type Linked = Vec<(&'static str, unsafe extern "C" fn())>;
static LINKED: OnceLock<Linked> = OnceLock::new();

/// Takes the road of a linked program, with these symbols.
pub fn link(symbols: Linked) {
    LINKED.get_or_init(|| symbols);
    take(Road::Linked);
}

/// Decides the road of this process; the first to decide wins.
pub fn take(road: Road) {
    TAKEN.get_or_init(|| road);
}

/// Where the call of this name is, on the road this process takes. Asked once per function.
pub(super) fn find(name: &str) -> Result<*mut c_void, CuError> {
    let found = address(*TAKEN.get_or_init(Road::default), name);
    if found.is_null() { Err(CuError::SHARED_OBJECT_SYMBOL_NOT_FOUND) } else { Ok(found) }
}

/// Where `name` is on this road, or null where the road does not lead there.
pub fn address(road: Road, name: &str) -> *mut c_void {
    match road {
        Road::Dlsym => symbol(driver(), name),
        // SAFETY: the pseudo-handle of the default scope.
        Road::Scope => symbol(libc::RTLD_DEFAULT, name),
        Road::Linked => {
            let found = LINKED.get().into_iter().flatten().find(|(symbol, _)| *symbol == name);
            found.map_or(std::ptr::null_mut(), |(_, function)| *function as *mut c_void)
        }
        // The forms of the per-thread stream have no name of their own there.
        Road::Resolver if name.ends_with("_ptsz") || name.ends_with("_ptds") => {
            resolve(name, cuda_sys::GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        }
        Road::Resolver => resolve(name, cuda_sys::GET_PROC_ADDRESS_LEGACY_STREAM),
        Road::PerThread => resolve(name, cuda_sys::GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
    }
}

/// A handle of the driver, or null where there is none.
fn driver() -> *mut c_void {
    struct Handle(*mut c_void);
    // SAFETY: a handle of the loader may be used from any thread.
    unsafe impl Send for Handle {}
    // SAFETY: as above.
    unsafe impl Sync for Handle {}
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    // SAFETY: the name is a C string; loading the driver runs only its own constructors.
    HANDLE.get_or_init(|| Handle(unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) })).0
}

fn symbol(handle: *mut c_void, name: &str) -> *mut c_void {
    let Ok(name) = CString::new(name) else { return std::ptr::null_mut() };
    // SAFETY: a C string, and a handle that is never closed, or a pseudo-handle.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// Asks the driver's resolver, as cudart does: by the name without suffix, and the version that the suffix belongs to.
fn resolve(name: &str, flags: u64) -> *mut c_void {
    type Resolver = unsafe extern "C" fn(*const i8, *mut *mut c_void, c_int, u64, *mut c_uint) -> c_uint;
    let resolver = symbol(driver(), "cuGetProcAddress_v2");
    if resolver.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the driver's function of this name has this type.
    let resolver: Resolver = unsafe { std::mem::transmute(resolver) };
    let (base, version) = base_and_version(name);
    let ask = |base: &CStr, version: c_int| {
        let (mut found, mut status) = (std::ptr::null_mut(), 0);
        // SAFETY: a C string and two places to write to.
        let code = unsafe { resolver(base.as_ptr().cast(), &raw mut found, version, flags, &raw mut status) };
        if code == 0 { found } else { std::ptr::null_mut() }
    };
    let Ok(base) = CString::new(base) else { return std::ptr::null_mut() };
    let found = ask(&base, version);
    // It may have come with a later version.
    if found.is_null() { ask(&base, NEWEST) } else { found }
}

/// A version that has every function of the list.
const NEWEST: c_int = 13010;

/// The name to ask the resolver for, and the version at which it gives the form with this suffix.
fn base_and_version(name: &str) -> (&str, c_int) {
    let plain = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    match plain.rsplit_once("_v") {
        // The last version before cuCtxCreate took one more argument.
        Some(("cuCtxCreate", "2")) => ("cuCtxCreate", 11030),
        // The first version with the argument for the device.
        Some((base @ ("cuMulticastBindMem" | "cuMulticastBindAddr"), "2")) => (base, 13010),
        Some((base, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => (base, 13000),
        _ => (plain, 12080),
    }
}
