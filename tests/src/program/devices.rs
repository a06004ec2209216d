//! More than one device or context: contexts of one's own, peer access, and copies in all their shapes.

use std::ffi::c_void;

use cuda_sys::{Context, Device, DevicePtr, Graph, GraphNode};

use super::objects::Range;
use super::words::Words;
use super::work::named;
use super::{Answer, Session};
use crate::driver;

pub(super) fn obey(session: &Session, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "make-context" => make_context(session, words),
        "use-context" => use_context(session, words),
        "destroy-context" => destroy_context(session, words),
        "push-context" => push_context(session, words),
        "pop-context" => pop_context(session, words),
        "release-device" => release_device(words),
        "reset-device" => reset_device(words),
        "peer" => peer(session, words),
        "copy-async" => copy_async(session, words),
        "copy-peer" => copy_peer(session, words),
        "copy-2d" => copy_2d(session, words),
        "copy-3d" => copy_3d(session, words),
        "graph-copy" => graph_copy(session, words),
        _ => return None,
    })
}

/// `make-context C DEVICE`: one of its own, which becomes the current one.
fn make_context(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, device) = (words.word()?, words.parse()?);
    let mut made = Context::NULL;
    // SAFETY: a place for the context.
    unsafe { driver::cuCtxCreate_v2(&raw mut made, 0, Device(device)) }?;
    session.objects.contexts.put(name, made);
    Ok(String::new())
}

/// `use-context C`
fn use_context(session: &Session, words: &mut Words<'_>) -> Answer {
    let context = session.objects.contexts.get(words.word()?)?;
    // SAFETY: what the line asks for; a context that is gone is the driver's to refuse.
    unsafe { driver::cuCtxSetCurrent(context) }?;
    Ok(String::new())
}

/// `destroy-context C`
fn destroy_context(session: &Session, words: &mut Words<'_>) -> Answer {
    let context = session.objects.contexts.get(words.word()?)?;
    // SAFETY: what the line asks for; the line does not use it afterwards.
    unsafe { driver::cuCtxDestroy_v2(context) }?;
    Ok(String::new())
}

/// `push-context C`
fn push_context(session: &Session, words: &mut Words<'_>) -> Answer {
    let context = session.objects.contexts.get(words.word()?)?;
    // SAFETY: what the line asks for; a context that is gone is the driver's to refuse.
    unsafe { driver::cuCtxPushCurrent_v2(context) }?;
    Ok(String::new())
}

/// `pop-context C`: whether this is the one that lay on top.
fn pop_context(session: &Session, words: &mut Words<'_>) -> Answer {
    let expected = session.objects.contexts.get(words.word()?)?;
    let mut popped = Context::NULL;
    // SAFETY: a place for the context.
    unsafe { driver::cuCtxPopCurrent_v2(&raw mut popped) }?;
    Ok((popped == expected).to_string())
}

/// `release-device DEVICE`: one use less of its primary context.
fn release_device(words: &mut Words<'_>) -> Answer {
    // SAFETY: what the line asks for; with the last use the line uses it no more.
    unsafe { driver::cuDevicePrimaryCtxRelease_v2(Device(words.parse()?)) }?;
    Ok(String::new())
}

/// `reset-device DEVICE`: ends its primary context, whoever uses it.
fn reset_device(words: &mut Words<'_>) -> Answer {
    // SAFETY: what the line asks for; the line does not use it afterwards.
    unsafe { driver::cuDevicePrimaryCtxReset_v2(Device(words.parse()?)) }?;
    Ok(String::new())
}

/// `peer on|off C`: whether the current context reaches memory of another one.
fn peer(session: &Session, words: &mut Words<'_>) -> Answer {
    let (how, other) = (words.word()?, session.objects.contexts.get(words.word()?)?);
    match how {
        // SAFETY: a context of this program.
        "on" => unsafe { driver::cuCtxEnablePeerAccess(other, 0) }?,
        // SAFETY: as above.
        "off" => unsafe { driver::cuCtxDisablePeerAccess(other) }?,
        _ => return Err("on or off".to_owned().into()),
    }
    Ok(String::new())
}

/// The two ends of a copy: `TO OFFSET FROM OFFSET`.
fn ends(session: &Session, words: &mut Words<'_>) -> Result<(DevicePtr, DevicePtr), String> {
    let mut end = || -> Result<DevicePtr, String> {
        let range: Range = session.objects.ranges.get(words.word()?)?;
        Ok(range.at(words.number()?))
    };
    Ok((end()?, end()?))
}

/// `copy-async TO OFFSET FROM OFFSET COUNT STREAM`
fn copy_async(session: &Session, words: &mut Words<'_>) -> Answer {
    let ((to, from), count) = (ends(session, words)?, words.size()?);
    let stream = named(session, words.word()?)?;
    // SAFETY: what the line asks for.
    unsafe { driver::cuMemcpyDtoDAsync_v2(to, from, count, stream) }?;
    Ok(String::new())
}

/// `copy-peer TO OFFSET FROM OFFSET COUNT TO-CONTEXT FROM-CONTEXT`
fn copy_peer(session: &Session, words: &mut Words<'_>) -> Answer {
    let ((to, from), count) = (ends(session, words)?, words.size()?);
    let contexts = &session.objects.contexts;
    let (there, here) = (contexts.get(words.word()?)?, contexts.get(words.word()?)?);
    // SAFETY: what the line asks for.
    unsafe { driver::cuMemcpyPeer(to, there, from, here, count) }?;
    Ok(String::new())
}

/// `CU_MEMORYTYPE_DEVICE`
const ON_DEVICE: u32 = 2;

/// `CUDA_MEMCPY2D_v2`, one end.
#[repr(C)]
struct Flat {
    x: usize,
    y: usize,
    kind: u32,
    host: *const c_void,
    device: DevicePtr,
    array: *const c_void,
    pitch: usize,
}

impl Flat {
    fn at(device: DevicePtr, pitch: usize) -> Self {
        Self { x: 0, y: 0, kind: ON_DEVICE, host: std::ptr::null(), device, array: std::ptr::null(), pitch }
    }
}

/// `copy-2d TO OFFSET FROM OFFSET WIDTH HEIGHT PITCH`
fn copy_2d(session: &Session, words: &mut Words<'_>) -> Answer {
    #[repr(C)]
    struct Copy {
        from: Flat,
        to: Flat,
        width: usize,
        height: usize,
    }
    let (to, from) = ends(session, words)?;
    let (width, height, pitch) = (words.size()?, words.size()?, words.size()?);
    let copy = Copy { from: Flat::at(from, pitch), to: Flat::at(to, pitch), width, height };
    // SAFETY: a description that lives through the call.
    unsafe { driver::cuMemcpy2D_v2((&raw const copy).cast()) }?;
    Ok(String::new())
}

/// `CUDA_MEMCPY3D_v2`, one end.
#[repr(C)]
struct Deep {
    position: [usize; 3],
    level: usize,
    kind: u32,
    host: *const c_void,
    device: DevicePtr,
    array: *const c_void,
    reserved: *const c_void,
    pitch: usize,
    height: usize,
}

impl Deep {
    fn at(device: DevicePtr, pitch: usize, height: usize) -> Self {
        let none = std::ptr::null();
        let (position, level, kind) = ([0; 3], 0, ON_DEVICE);
        Self { position, level, kind, host: none, device, array: none, reserved: none, pitch, height }
    }
}

/// `CUDA_MEMCPY3D_v2`
#[repr(C)]
struct DeepCopy {
    from: Deep,
    to: Deep,
    extent: [usize; 3],
}

impl DeepCopy {
    /// `TO OFFSET FROM OFFSET WIDTH HEIGHT DEPTH PITCH`
    fn told(session: &Session, words: &mut Words<'_>) -> Result<Self, String> {
        let (to, from) = ends(session, words)?;
        let (width, height, depth, pitch) = (words.size()?, words.size()?, words.size()?, words.size()?);
        let extent = [width, height, depth];
        Ok(Self { from: Deep::at(from, pitch, height), to: Deep::at(to, pitch, height), extent })
    }
}

/// `copy-3d TO OFFSET FROM OFFSET WIDTH HEIGHT DEPTH PITCH`
fn copy_3d(session: &Session, words: &mut Words<'_>) -> Answer {
    let copy = DeepCopy::told(session, words)?;
    // SAFETY: a description that lives through the call.
    unsafe { driver::cuMemcpy3D_v2((&raw const copy).cast()) }?;
    Ok(String::new())
}

/// `graph-copy G TO OFFSET FROM OFFSET WIDTH HEIGHT DEPTH PITCH`: a graph of that copy alone, for the current context.
fn graph_copy(session: &Session, words: &mut Words<'_>) -> Answer {
    let (name, copy) = (words.word()?, DeepCopy::told(session, words)?);
    let (mut context, mut graph, mut node) = (Context::NULL, Graph::NULL, GraphNode::NULL);
    // SAFETY: a place for the context.
    unsafe { driver::cuCtxGetCurrent(&raw mut context) }?;
    // SAFETY: a place for the graph.
    unsafe { driver::cuGraphCreate(&raw mut graph, 0) }?;
    let description = (&raw const copy).cast();
    // SAFETY: a place for the node, a graph that was just made, no nodes before, and a description that lives through the call.
    unsafe { driver::cuGraphAddMemcpyNode(&raw mut node, graph, std::ptr::null(), 0, description, context) }?;
    session.objects.graphs.put(name, graph);
    Ok(String::new())
}
