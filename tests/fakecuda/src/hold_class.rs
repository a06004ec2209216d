//! What a call does while its process is locked or checkpointed, by its name.
//!
//! Measured on driver 580: new work, new objects and mappings wait for the unlock; questions and completion calls go on while the process
//! is locked. While it is checkpointed completion calls end the process, since they touch memory that is not there, and a few
//! questions fail. A function that was not measured behaves like its like.

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// Waits until the process runs again.
    Waits,
    /// Goes on in every state.
    Goes,
    /// Goes on while the process is locked, and ends it while it is checkpointed.
    Dies,
    /// Goes on while the process is locked, and gives this error while it is checkpointed.
    Fails(u32),
}

/// Waits although it only asks.
const WAITS: &[&str] = &["cuCtxGetLimit", "cuMemPoolGetAttribute"];

/// Goes on although it changes something.
const GOES: &[&str] = &[
    "cuDevicePrimaryCtxRetain",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemSetAccess",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
    "cuGetProcAddress",
];

/// Fails while the process is checkpointed, with this error.
const FAILS: &[(&str, u32)] = &[
    ("cuDeviceGetName", 304),
    ("cuIpcGetMemHandle", 304),
    ("cuMemExportToShareableHandle", 999),
    ("cuMemGetInfo", 304),
];

/// Whether `name` is `base`, up to the version and the form for the per-thread stream.
const fn is(name: &str, base: &str) -> bool {
    let (name, base) = (name.as_bytes(), base.as_bytes());
    let Some((start, rest)) = name.split_at_checked(base.len()) else { return false };
    let mut at = 0;
    while let Some((byte, _)) = start.split_at(at).1.split_first() {
        let Some((other, _)) = base.split_at(at).1.split_first() else { return false };
        if *byte != *other {
            return false;
        }
        at += 1;
    }
    matches!(rest, [] | [b'_', ..])
}

const fn is_in(name: &str, names: &[&str]) -> bool {
    let mut rest = names;
    while let Some((first, others)) = rest.split_first() {
        if is(name, first) {
            return true;
        }
        rest = others;
    }
    false
}

const fn equal(a: &str, b: &str) -> bool {
    a.len() == b.len() && is(a, b)
}

/// The hold of a function of the list, by the list's class for it and its name.
pub(crate) const fn hold_of(class: &str, name: &str) -> Hold {
    let mut fails = FAILS;
    while let Some((first, others)) = fails.split_first() {
        if is(name, first.0) {
            return Hold::Fails(first.1);
        }
        fails = others;
    }
    if is_in(name, WAITS) {
        return Hold::Waits;
    }
    if is(name, "cuEventElapsedTime") || equal(class, "completion") {
        return Hold::Dies;
    }
    if is_in(name, GOES) || equal(class, "information") || equal(class, "pass") {
        return Hold::Goes;
    }
    Hold::Waits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_from_longer_ones() {
        assert_eq!(hold_of("memory", "cuStreamWaitEvent_ptsz"), Hold::Goes);
        assert_eq!(hold_of("completion", "cuStreamQuery"), Hold::Dies);
        assert_eq!(hold_of("information", "cuEventElapsedTime_v2"), Hold::Dies);
        assert_eq!(hold_of("information", "cuMemGetInfo_v2"), Hold::Fails(304));
        assert_eq!(hold_of("object", "cuGraphCreateNothing"), Hold::Waits);
        assert_eq!(hold_of("launch", "cuLaunchKernel"), Hold::Waits);
        assert_eq!(hold_of("object", "cuInit"), Hold::Waits);
        assert_eq!(hold_of("information", "cuCtxGetCurrent"), Hold::Goes);
    }
}
