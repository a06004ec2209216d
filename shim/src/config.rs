//! What the environment says, read once.
//!
//! | variable | values | meaning |
//! | --- | --- | --- |
//! | `NVSNAP_GPUSHARE` | `on`, `off` | `off` makes the library inert |
//! | `NVSNAP_GPUSHARE_LOG` | `stderr`, a path | where the log goes; none by default |
//! | `NVSNAP_GPUSHARE_FABRIC` | `0`, `1` | lets fabric handles through |
//! | `NVSNAP_GPUSHARE_GDRCOPY` | `0`, `1` | memory pinned by GDRCopy is no obstacle: the program pins anew after a resume |
//! | `NVSNAP_GPUSHARE_RAW_FD` | `0`, `1` | hands out the driver's own descriptors |
//! | `NVSNAP_GPUSHARE_REREGISTER` | `0`, `1` | host memory that the program has registered is unregistered and registered again by the library |
//! | `NVSNAP_GPUSHARE_STAGING` | MiB, 64 to 65536 | host memory for chunks between device and store; 1024 by default |
//! | `NVSNAP_GPUSHARE_STAGE` | MiB, 0 to 1048576 | host memory for chunks read while the driver restores; 4096 by default |
//! | `NVSNAP_GPUSHARE_THREADS` | 1 to 64 | threads that help with moving bytes; one per processor, at most 16 for each device and 64 in all, by default |
//! | `NVSNAP_GPUSHARE_LANES` | 1 to 64 | devices whose memory is moved at the same time, memory of the host counting as one; all by default |
//! | `NVSNAP_GPUSHARE_FILE_FAULTS`, `NVSNAP_GPUSHARE_FILE_TRACE` | for tests | see `transfer/store/places.rs` |
//!
//! An empty value is the default. A bad value is ignored, and said once the program has begun to use CUDA. A privileged
//! program (`AT_SECURE`) takes nothing from its caller's environment.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::log;

const OFF: u32 = 1 << 0;
const LOG_STDERR: u32 = 1 << 1;
const LOG_FILE: u32 = 1 << 2;
const FABRIC: u32 = 1 << 3;
const GDRCOPY: u32 = 1 << 4;
const RAW_FD: u32 = 1 << 5;
const FILE_FAULTS: u32 = 1 << 6;
const FILE_TRACE: u32 = 1 << 7;
const REREGISTER: u32 = 1 << 8;

/// A variable, how its value becomes bits, and what its values are.
struct Variable {
    name: &'static [u8],
    parse: fn(&CStr) -> Option<u32>,
    values: &'static str,
}

const VARIABLES: &[Variable] = &[
    Variable { name: b"NVSNAP_GPUSHARE", parse: parse_switch, values: "on or off" },
    Variable { name: b"NVSNAP_GPUSHARE_LOG", parse: parse_log, values: "stderr or a path" },
    Variable { name: b"NVSNAP_GPUSHARE_FABRIC", parse: |value| parse_flag(value, FABRIC), values: "0 or 1" },
    Variable {
        name: b"NVSNAP_GPUSHARE_GDRCOPY",
        parse: |value| parse_flag(value, GDRCOPY),
        values: "0 or 1",
    },
    Variable { name: b"NVSNAP_GPUSHARE_RAW_FD", parse: |value| parse_flag(value, RAW_FD), values: "0 or 1" },
    Variable {
        name: b"NVSNAP_GPUSHARE_REREGISTER",
        parse: |value| parse_flag(value, REREGISTER),
        values: "0 or 1",
    },
    Variable {
        name: b"NVSNAP_GPUSHARE_STAGING",
        parse: |value| parse_number(value, 64..=65536, &STAGING_MIB),
        values: "a number of MiB from 64 to 65536",
    },
    Variable {
        name: b"NVSNAP_GPUSHARE_STAGE",
        parse: |value| parse_number(value, 0..=1_048_576, &STAGE_MIB),
        values: "a number of MiB from 0 to 1048576",
    },
    Variable {
        name: b"NVSNAP_GPUSHARE_THREADS",
        parse: |value| parse_number(value, 1..=64, &THREADS),
        values: "a number from 1 to 64",
    },
    Variable {
        name: b"NVSNAP_GPUSHARE_LANES",
        parse: |value| parse_number(value, 1..=64, &LANES),
        values: "a number from 1 to 64",
    },
    Variable {
        name: b"NVSNAP_GPUSHARE_FILE_FAULTS",
        parse: |value| keep(value, &FAULTS_TEXT, FILE_FAULTS),
        values: "a plan of faults of at most 4 KiB",
    },
    Variable {
        name: b"NVSNAP_GPUSHARE_FILE_TRACE",
        parse: |value| keep(value, &TRACE_PATH, FILE_TRACE),
        values: "a path",
    },
];

const USUAL_STAGE_MIB: u32 = 4096;

/// Numbers that were given, or what stands for none.
static STAGE_MIB: AtomicU32 = AtomicU32::new(USUAL_STAGE_MIB);
static STAGING_MIB: AtomicU32 = AtomicU32::new(0);
static THREADS: AtomicU32 = AtomicU32::new(0);
static LANES: AtomicU32 = AtomicU32::new(0);

/// What was read.
static BITS: AtomicU32 = AtomicU32::new(0);
/// The variables whose value was bad, by place in `VARIABLES`; cleared when said.
static BAD: AtomicU32 = AtomicU32::new(0);

const PATH_MAX: usize = 4096;

/// A text, a C string.
struct Path(UnsafeCell<[u8; PATH_MAX]>);

// SAFETY: written only by `read`, before the bit that makes others read it is set.
unsafe impl Sync for Path {}

static LOG_PATH: Path = Path(UnsafeCell::new([0; PATH_MAX]));
static FAULTS_TEXT: Path = Path(UnsafeCell::new([0; PATH_MAX]));
static TRACE_PATH: Path = Path(UnsafeCell::new([0; PATH_MAX]));

unsafe extern "C" {
    /// The C library's.
    static environ: *const *const c_char;
}

/// Where the log goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogPlace {
    Off,
    Stderr,
    File(&'static CStr),
}

/// Whether the library is to be inert.
pub(crate) fn off() -> bool {
    has(OFF)
}

/// Where the log goes.
pub(crate) fn log() -> LogPlace {
    if has(LOG_STDERR) {
        return LogPlace::Stderr;
    }
    if !has(LOG_FILE) {
        return LogPlace::Off;
    }
    LOG_PATH.text().map_or(LogPlace::Off, LogPlace::File)
}

/// How many bytes of host memory may be used for chunks on their way.
pub(crate) fn staging_bytes() -> u64 {
    const USUAL_MIB: u32 = 1024;
    let mib = match STAGING_MIB.load(Ordering::Relaxed) {
        0 => USUAL_MIB,
        mib => mib,
    };
    u64::from(mib) << 20
}

/// How many bytes of host memory may be used for chunks that are read ahead.
pub(crate) fn stage_bytes() -> u64 {
    u64::from(STAGE_MIB.load(Ordering::Relaxed)) << 20
}

/// How many threads are to help with moving bytes, where that was said.
pub(crate) fn threads() -> Option<usize> {
    given(&THREADS)
}

/// For how many devices bytes are to be moved at the same time, where that was said.
pub(crate) fn lanes() -> Option<usize> {
    given(&LANES)
}

fn given(number: &AtomicU32) -> Option<usize> {
    usize::try_from(number.load(Ordering::Relaxed)).ok().filter(|count| *count > 0)
}

/// Faults of files that a test has ordered.
pub(crate) fn file_faults() -> Option<&'static CStr> {
    has(FILE_FAULTS).then(|| FAULTS_TEXT.text()).flatten()
}

/// Where a test wants calls on files to be written down.
pub(crate) fn file_trace() -> Option<&'static CStr> {
    has(FILE_TRACE).then(|| TRACE_PATH.text()).flatten()
}

impl Path {
    /// To be called when the bit of the text is set.
    fn text(&self) -> Option<&CStr> {
        // SAFETY: the bit is set after the last write.
        let text = unsafe { &*self.0.get() };
        CStr::from_bytes_until_nul(text).ok()
    }
}

/// Whether fabric handles are let through.
pub(crate) fn fabric() -> bool {
    has(FABRIC)
}

/// Whether memory that GDRCopy has pinned is the program's own business.
pub(crate) fn gdrcopy() -> bool {
    has(GDRCOPY)
}

/// Whether the driver's own descriptors are handed out.
pub(crate) fn raw_fd() -> bool {
    has(RAW_FD)
}

/// Whether registered host memory is given up and registered again, instead of being left to the driver.
pub(crate) fn reregister() -> bool {
    has(REREGISTER)
}

fn has(bit: u32) -> bool {
    BITS.load(Ordering::Acquire) & bit != 0
}

/// Reads the environment. Called once, before any other thread asks.
pub(crate) fn read() {
    // SAFETY: no preconditions.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return;
    }
    let (mut bits, mut bad) = (0, 0);
    for (at, variable) in VARIABLES.iter().enumerate() {
        let Some(value) = value_of(variable.name) else { continue };
        match (variable.parse)(value) {
            Some(parsed) => bits |= parsed,
            None => bad |= 1 << at,
        }
    }
    BAD.store(bad, Ordering::Relaxed);
    BITS.store(bits, Ordering::Release);
}

/// Says what was bad, once.
pub(crate) fn say_bad_values() {
    let bad = BAD.swap(0, Ordering::Relaxed);
    for (at, variable) in VARIABLES.iter().enumerate() {
        if bad & (1 << at) != 0 {
            let name = str::from_utf8(variable.name).unwrap_or("");
            log::complain(format_args!("{name} is not {}: its value is ignored", variable.values));
        }
    }
}

fn value_of(name: &[u8]) -> Option<&'static CStr> {
    // SAFETY: the C library's variable, set before any of our code runs.
    let mut entry = unsafe { (&raw const environ).read() };
    if entry.is_null() {
        return None;
    }
    loop {
        // SAFETY: the list ends with a null pointer, and we have not passed it.
        let text = unsafe { entry.read() };
        if text.is_null() {
            return None;
        }
        // SAFETY: an entry is a C string; it lives as long as nobody changes the environment, which `read` outlives.
        let text = unsafe { CStr::from_ptr(text) };
        if let Some(rest) = text.to_bytes_with_nul().strip_prefix(name)
            && let Some(value) = rest.strip_prefix(b"=")
        {
            return CStr::from_bytes_with_nul(value).ok();
        }
        // SAFETY: not the last entry.
        entry = unsafe { entry.add(1) };
    }
}

fn parse_switch(value: &CStr) -> Option<u32> {
    match value.to_bytes() {
        b"off" => Some(OFF),
        b"on" | b"" => Some(0),
        _ => None,
    }
}

fn parse_flag(value: &CStr, bit: u32) -> Option<u32> {
    match value.to_bytes() {
        b"1" => Some(bit),
        b"0" | b"" => Some(0),
        _ => None,
    }
}

fn parse_number(value: &CStr, range: core::ops::RangeInclusive<u32>, into: &AtomicU32) -> Option<u32> {
    if value.is_empty() {
        return Some(0);
    }
    let number = str::from_utf8(value.to_bytes()).ok()?.parse().ok()?;
    if !range.contains(&number) {
        return None;
    }
    into.store(number, Ordering::Relaxed);
    Some(0)
}

/// Keeps a text as it is.
fn keep(value: &CStr, into: &Path, bit: u32) -> Option<u32> {
    if value.is_empty() {
        return Some(0);
    }
    // SAFETY: `read` is the only writer, and nobody reads before it is done.
    let text = unsafe { &mut *into.0.get() };
    let value = value.to_bytes_with_nul();
    text.get_mut(..value.len())?.copy_from_slice(value);
    Some(bit)
}

/// Keeps the path, absolute: the program may change its directory.
fn parse_log(value: &CStr) -> Option<u32> {
    match value.to_bytes() {
        b"" => return Some(0),
        b"stderr" => return Some(LOG_STDERR),
        _ => {}
    }
    // SAFETY: `read` is the only writer, and nobody reads before it is done.
    let path = unsafe { &mut *LOG_PATH.0.get() };
    let mut length = 0;
    if !value.to_bytes().starts_with(b"/") {
        // SAFETY: a buffer of our own, of this length.
        if unsafe { libc::getcwd(path.as_mut_ptr().cast(), path.len()) }.is_null() {
            return None;
        }
        length = path.iter().position(|byte| *byte == 0)?;
        *path.get_mut(length)? = b'/';
        length += 1;
    }
    let value = value.to_bytes_with_nul();
    path.get_mut(length..length + value.len())?.copy_from_slice(value);
    Some(LOG_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_table_says() {
        assert_eq!(parse_switch(c"off"), Some(OFF));
        assert_eq!(parse_switch(c"on"), Some(0));
        assert_eq!(parse_switch(c""), Some(0));
        assert_eq!(parse_switch(c"OFF"), None);
        assert_eq!(parse_flag(c"1", FABRIC), Some(FABRIC));
        assert_eq!(parse_flag(c"0", FABRIC), Some(0));
        assert_eq!(parse_flag(c"yes", FABRIC), None);
        assert_eq!(parse_log(c"stderr"), Some(LOG_STDERR));
        let number = AtomicU32::new(0);
        for bad in [c"0", c"65", c"-1", c"x", c"1 "] {
            assert_eq!(parse_number(bad, 1..=64, &number), None, "{bad:?}");
        }
        assert_eq!((parse_number(c"", 1..=64, &number), number.load(Ordering::Relaxed)), (Some(0), 0));
        assert_eq!((parse_number(c"64", 1..=64, &number), number.load(Ordering::Relaxed)), (Some(0), 64));
    }
}
