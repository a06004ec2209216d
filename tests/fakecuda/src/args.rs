//! What a caller handed over, made safe to look at.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use cuda_sys::{CuError, CuResult};

/// The place of a result. A null pointer is INVALID_VALUE.
///
/// # Safety
/// `place` is null or writable for one `T` as long as the result is used.
pub(crate) unsafe fn out<'a, T>(place: *mut T) -> CuResult<&'a mut MaybeUninit<T>> {
    // SAFETY: the caller's promise; `MaybeUninit` asks nothing of what is there.
    unsafe { place.cast::<MaybeUninit<T>>().as_mut() }.ok_or(CuError::INVALID_VALUE)
}

/// The place of a result that the caller may leave out.
///
/// # Safety
/// As [`out`].
pub(crate) unsafe fn optional<'a, T>(place: *mut T) -> Option<&'a mut MaybeUninit<T>> {
    // SAFETY: the caller's promise.
    unsafe { place.cast::<MaybeUninit<T>>().as_mut() }
}

/// A value behind a pointer. A null pointer is INVALID_VALUE.
///
/// # Safety
/// `place` is null or readable for one `T`, which may be unaligned.
pub(crate) unsafe fn read<T: Copy>(place: *const T) -> CuResult<T> {
    if place.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's promise.
    Ok(unsafe { place.read_unaligned() })
}

/// `count` values behind a pointer. A null pointer is INVALID_VALUE, unless nothing is asked for.
///
/// # Safety
/// `place` is null or readable for `count` values.
pub(crate) unsafe fn list<'a, T>(place: *const T, count: usize) -> CuResult<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if place.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(place, count) })
}

/// A name. A null pointer or one that is not UTF-8 is INVALID_VALUE.
///
/// # Safety
/// `name` is null or a C string that lives as long as the result is used.
pub(crate) unsafe fn name<'a>(name: *const c_char) -> CuResult<&'a str> {
    if name.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| CuError::INVALID_VALUE)
}

/// Writes `text` as a C string of at most `length` bytes, cut where it does not fit.
///
/// # Safety
/// `place` is null or writable for `length` bytes.
pub(crate) unsafe fn write_text(place: *mut c_char, length: usize, text: &str) -> CuResult {
    if place.is_null() || length == 0 {
        return Err(CuError::INVALID_VALUE);
    }
    let kept = text.len().min(length - 1);
    // SAFETY: `kept` bytes and the terminator fit, by the caller's promise.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), kept) };
    // SAFETY: as above.
    let end = unsafe { place.add(kept) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

/// A 64-bit number of the ABI as a size of this process.
#[allow(clippy::cast_possible_truncation, reason = "the stand-in is built for 64-bit machines only")]
pub(crate) const fn size(value: u64) -> usize {
    const { assert!(size_of::<usize>() == size_of::<u64>()) };
    value as usize
}

/// A size of this process as a 64-bit number of the ABI.
pub(crate) const fn wide(value: usize) -> u64 {
    value as u64
}
