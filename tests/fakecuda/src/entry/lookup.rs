//! The resolver. It answers with the addresses of the exported functions (docs/DRIVER-VERSIONS.md, resolver),
//! also for the forms of the per-thread default stream.
//!
//! A caller gives the base name, the CUDA version it was built for, and which default stream it means. Of the forms
//! of that name (`cuX`, `cuX_v2`, ...) the newest one that this version knows is meant; with the per-thread
//! flag it is that one's `_ptsz` or `_ptds` form, where there is one. `versions.txt` says which version of CUDA
//! brought which name.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use cuda_sys::{
    CuError, CuResult, GET_PROC_ADDRESS_LEGACY_STREAM, GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
};

use crate::args;
use crate::config::config;

const FOUND: c_uint = 0;
const SYMBOL_NOT_FOUND: c_uint = 1;
const VERSION_NOT_SUFFICIENT: c_uint = 2;

/// One function that a base name can mean.
#[derive(Clone, Copy, Debug)]
struct Form {
    since: c_int,
    address: usize,
    per_thread: Option<(c_int, usize)>,
}

/// A name without `_v2` and the like: what a caller asks for.
fn base(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|digit| digit.is_ascii_digit()) => base,
        _ => name,
    }
}

fn table() -> &'static HashMap<&'static str, Vec<Form>> {
    static TABLE: OnceLock<HashMap<&'static str, Vec<Form>>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let addresses: HashMap<&str, usize> = crate::exports::addresses().into_iter().collect();
        let mut since = HashMap::new();
        let mut version = 0;
        for word in include_str!("versions.txt").split_whitespace() {
            match word.parse::<c_int>() {
                Ok(number) => version = number,
                Err(_) => {
                    since.insert(word, version);
                }
            }
        }
        let absent = |name: &str| config().lacks(name);
        let mut table: HashMap<&str, Vec<Form>> = HashMap::new();
        for (&name, &version) in &since {
            let plain = !name.ends_with("_ptsz") && !name.ends_with("_ptds");
            let Some(&address) = addresses.get(name).filter(|_| plain && !absent(name)) else { continue };
            let per_thread = ["_ptsz", "_ptds"].iter().find_map(|suffix| {
                let name = format!("{name}{suffix}");
                Some((*since.get(name.as_str())?, *addresses.get(name.as_str()).filter(|_| !absent(&name))?))
            });
            table.entry(base(name)).or_default().push(Form { since: version, address, per_thread });
        }
        for forms in table.values_mut() {
            forms.sort_by_key(|form| form.since);
        }
        table
    })
}

fn resolve(symbol: &str, version: c_int, flags: u64) -> Result<usize, c_uint> {
    let forms = table().get(symbol).ok_or(SYMBOL_NOT_FOUND)?;
    let known = forms.iter().filter(|form| form.since <= config().version);
    let form = known.clone().rfind(|form| form.since <= version);
    let form = form.ok_or(if known.count() == 0 { SYMBOL_NOT_FOUND } else { VERSION_NOT_SUFFICIENT })?;
    let per_thread = flags & GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0;
    match form.per_thread {
        Some((since, address)) if per_thread && since <= version => Ok(address),
        _ => Ok(form.address),
    }
}

/// What both forms of the resolver have in common. Says in the last value whether the symbol was found.
unsafe fn look_up(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CuResult<Result<(), c_uint>> {
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(function) }?;
    // SAFETY: the caller's promise.
    let symbol = unsafe { args::name(symbol) }?;
    let known_flags = GET_PROC_ADDRESS_LEGACY_STREAM | GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if flags & !known_flags != 0 || version > config().version {
        return Err(CuError::INVALID_VALUE);
    }
    let found = resolve(symbol, version, flags);
    place.write(found.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut));
    Ok(found.map(|_| ()))
}

/// The form before CUDA 12: a symbol that is not found is an error.
pub(crate) unsafe fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { look_up(symbol, pfn, cuda_version, flags) }?.map_err(|_| CuError::NOT_FOUND)
}

/// The form since CUDA 12: success with a null address and a status.
pub(crate) unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
    symbol_status: *mut c_uint,
) -> CuResult {
    // SAFETY: the caller's promise.
    let found = unsafe { look_up(symbol, pfn, cuda_version, flags) }?;
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { args::optional(symbol_status) } {
        place.write(found.err().unwrap_or(FOUND));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_exported_name_has_a_version() {
        let listed: Vec<&str> =
            include_str!("versions.txt").split_whitespace().filter(|word| word.starts_with("cu")).collect();
        for (name, _) in crate::exports::addresses() {
            assert!(listed.contains(&name), "{name}");
        }
        assert_eq!(listed.len(), 644);
    }
}
