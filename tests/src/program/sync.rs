//! Copies and fills that name no stream, each by its name, and the attribute that makes them wait.

use std::ffi::c_void;

use cuda_sys::{Array, Context, CuResult, DevicePtr, Memcpy2D, Memcpy3D, MemoryType};

use super::words::Words;
use super::{Answer, Session};
use crate::driver;

/// Bytes of a row, rows, and bytes from one to the next.
const WIDTH: usize = 64;
const HEIGHT: usize = 2;
const PITCH: usize = 512;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "sync-memops" => sync_memops(session, words),
        "without-stream" => without_stream(session, words),
        _ => return None,
    })
}

/// `sync-memops X 0|1`
fn sync_memops(session: &Session, words: &mut Words<'_>) -> Answer {
    const SYNC_MEMOPS: u32 = 6;
    let (range, on): (_, u32) = (session.objects.ranges.get(words.word()?)?, words.parse()?);
    // SAFETY: for this attribute the driver reads a whole number.
    unsafe { driver::cuPointerSetAttribute((&raw const on).cast(), SYNC_MEMOPS, range.address) }?;
    Ok(String::new())
}

/// `without-stream FUNCTION X Y [A [to|from]]`: the function with X for its target and Y for its source, as far as it takes one, A where it
/// takes an array; a copy that is described has A on the side that is named.
fn without_stream(session: &Session, words: &mut Words<'_>) -> Answer {
    let name = words.word()?;
    let to = session.objects.ranges.get(words.word()?)?.address;
    let from = session.objects.ranges.get(words.word()?)?.address;
    let array = words.next().map_or(Ok(Array::NULL), |name| session.objects.arrays.get(name))?;
    let side = match words.next() {
        None => Side::None,
        Some("to") => Side::To,
        Some("from") => Side::From,
        Some(other) => return Err(format!("{other} is no side").into()),
    };
    let mut context = Context::NULL;
    // SAFETY: a place for the context.
    unsafe { driver::cuCtxGetCurrent(&raw mut context) }?;
    let mut ends = Ends { to, from, array, side, context, host: [0; PITCH * HEIGHT] };
    let result = call(name, &mut ends).ok_or_else(|| format!("{name} is no such function"))?;
    result.map(|()| String::new()).map_err(Into::into)
}

/// Which side of a copy is an array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    None,
    To,
    From,
}

/// What an argument may stand for.
struct Ends {
    to: DevicePtr,
    from: DevicePtr,
    array: Array,
    side: Side,
    context: Context,
    host: [u8; PITCH * HEIGHT],
}

impl Ends {
    /// The description that a copy of rows or of slices takes. It lives as long as the program.
    fn described(&self, name: &str) -> *const c_void {
        let null = std::ptr::null_mut();
        if !name.starts_with("cuMemcpy3D") {
            return std::ptr::from_ref(Box::leak(Box::new(self.rows()))).cast();
        }
        let context = if name.contains("Peer") { self.context.0 } else { null };
        let rows = self.rows();
        let slices = Memcpy3D {
            src_x: 0,
            src_y: 0,
            src_z: 0,
            src_lod: 0,
            src_kind: rows.src_kind,
            src_host: null,
            src_device: rows.src_device,
            src_array: rows.src_array,
            src_context: context,
            src_pitch: PITCH,
            src_height: HEIGHT,
            dst_x: 0,
            dst_y: 0,
            dst_z: 0,
            dst_lod: 0,
            dst_kind: rows.dst_kind,
            dst_host: null,
            dst_device: rows.dst_device,
            dst_array: rows.dst_array,
            dst_context: context,
            dst_pitch: PITCH,
            dst_height: HEIGHT,
            width: WIDTH,
            height: HEIGHT,
            depth: 1,
        };
        std::ptr::from_ref(Box::leak(Box::new(slices))).cast()
    }

    fn rows(&self) -> Memcpy2D {
        let kind = |side| if self.side == side { MemoryType::ARRAY } else { MemoryType::DEVICE };
        Memcpy2D {
            src_x: 0,
            src_y: 0,
            src_kind: kind(Side::From),
            src_host: std::ptr::null(),
            src_device: self.from,
            src_array: self.array,
            src_pitch: PITCH,
            dst_x: 0,
            dst_y: 0,
            dst_kind: kind(Side::To),
            dst_host: std::ptr::null_mut(),
            dst_device: self.to,
            dst_array: self.array,
            dst_pitch: PITCH,
            width: WIDTH,
            height: HEIGHT,
        }
    }
}

/// What stands for an argument, by the name that the list gives it.
macro_rules! value {
    (dst of $function:ident in $ends:ident) => {
        $ends.to
    };
    (dst_device of $function:ident in $ends:ident) => {
        $ends.to
    };
    (src of $function:ident in $ends:ident) => {
        $ends.from
    };
    (src_device of $function:ident in $ends:ident) => {
        $ends.from
    };
    (dst_host of $function:ident in $ends:ident) => {
        $ends.host.as_mut_ptr().cast()
    };
    (src_host of $function:ident in $ends:ident) => {
        $ends.host.as_ptr().cast()
    };
    (dst_context of $function:ident in $ends:ident) => {
        $ends.context
    };
    (src_context of $function:ident in $ends:ident) => {
        $ends.context
    };
    (dst_array of $function:ident in $ends:ident) => {
        $ends.array
    };
    (src_array of $function:ident in $ends:ident) => {
        $ends.array
    };
    (dst_offset of $function:ident in $ends:ident) => {
        0
    };
    (src_offset of $function:ident in $ends:ident) => {
        0
    };
    (byte_count of $function:ident in $ends:ident) => {
        WIDTH
    };
    (n of $function:ident in $ends:ident) => {
        WIDTH
    };
    (width of $function:ident in $ends:ident) => {
        WIDTH
    };
    (height of $function:ident in $ends:ident) => {
        HEIGHT
    };
    (dst_pitch of $function:ident in $ends:ident) => {
        PITCH
    };
    (uc of $function:ident in $ends:ident) => {
        7
    };
    (us of $function:ident in $ends:ident) => {
        7
    };
    (ui of $function:ident in $ends:ident) => {
        7
    };
    (p_copy of $function:ident in $ends:ident) => {
        $ends.described(stringify!($function))
    };
}

macro_rules! one {
    (sync $function:ident($($arg:ident),*) named $name:ident in $ends:ident) => {
        if $name == stringify!($function) {
            // SAFETY: the ranges of the line are large enough, and so is the memory of the host.
            return Some(unsafe { driver::$function($(value!($arg of $function in $ends)),*) });
        }
    };
    ($family:ident $function:ident($($arg:ident),*) named $name:ident in $ends:ident) => {};
}

macro_rules! calls {
    ($($class:ident $family:ident fn $function:ident($($arg:ident: $type:ty),*) $(on $($stream:ident).+)?;)*) => {
        /// Every function of the family, with an argument for each of its own.
        fn call(name: &str, ends: &mut Ends) -> Option<CuResult> {
            $(one! { $family $function($($arg),*) named name in ends })*
            None
        }
    };
}

cuda_sys::for_each_call!(calls);
