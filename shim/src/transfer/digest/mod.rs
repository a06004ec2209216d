//! BLAKE3-256 and zero detection, computed where the bytes are: on the GPU.
//!
//! While the process is quiesced, the kernels of `shim/kernels/hash.cu` are loaded into the context that copies are
//! made in, and unloaded afterwards. Where they cannot be loaded, or there is no memory for their tables, bytes are
//! looked at by the processor after they have been copied.

mod image;
mod tables;

use core::ffi::{CStr, c_uint, c_void};
use core::ptr;

use cuda_sys::{Device, Function, Module, Stream};

use super::TransferError;
use crate::driver::real;
use tables::{Row, Tables};

/// Bytes of GPU memory that get a digest of their own: at most 64 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) address: u64,
    pub(super) len: u64,
}

/// What is known of a span without having moved it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Digest {
    pub(super) hash: [u8; 32],
    pub(super) is_zero: bool,
}

/// The longest span: what one block of threads can fold.
const LONGEST: u64 = 64 << 20;
/// Bytes of a span for one block of threads: it makes a node of them.
const NODE: u64 = 256 << 10;
/// Threads in a block, as the kernels are compiled for.
const THREADS: c_uint = 256;
/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: c_uint = 1;

/// The kernels, loaded into the context that is current on this thread as long as this lives.
#[derive(Debug)]
pub(super) struct Hasher {
    leaves: Function,
    roots: Function,
    tables: Tables,
    stream: Own,
    _module: Loaded,
}

impl Hasher {
    /// Loads the kernels into the current context, which is one of `device`.
    pub(super) fn new(device: Device) -> Result<Self, TransferError> {
        let image = image::for_device(device).map_err(TransferError::driver("cuDeviceGetAttribute"))?;
        let module = Loaded::new(image)?;
        let (leaves, roots) =
            (module.function(c"nvsnap_hash_leaves")?, module.function(c"nvsnap_hash_roots")?);
        Ok(Self { leaves, roots, tables: Tables::new()?, stream: Own::new(), _module: module })
    }

    /// The digests of spans, in their order. The device can read all of them.
    pub(super) fn digests(&mut self, spans: &[Span]) -> Result<Vec<Digest>, TransferError> {
        let mut digests = Vec::with_capacity(spans.len());
        let mut rest = spans;
        while !rest.is_empty() {
            let (turn, later) = rest.split_at(tables::fitting(rest)?);
            self.turn(turn, &mut digests)?;
            rest = later;
        }
        Ok(digests)
    }

    /// As many spans as the tables have room for.
    fn turn(&mut self, spans: &[Span], digests: &mut Vec<Digest>) -> Result<(), TransferError> {
        let mut rows = Vec::with_capacity(spans.len());
        let mut first_node = 0;
        for span in spans {
            rows.push(Row { address: span.address, length: span.len, first_node });
            first_node += nodes(span.len);
        }
        let longest = spans.iter().map(|span| nodes(span.len)).max().unwrap_or(1);
        let too_many = TransferError::System { call: "the table of digests", errno: libc::E2BIG };
        let count = c_uint::try_from(spans.len()).map_err(|_| too_many)?;
        let longest = c_uint::try_from(longest).map_err(|_| too_many)?;
        let stream = self.stream.0;
        self.tables.describe(&rows);
        let [table, nodes, nonzero, found] = self.tables.places();
        let launched = launch(self.leaves, (longest, count), [table, nodes, nonzero], stream)
            .and_then(|()| launch(self.roots, (count, 1), [table, nodes, found], stream));
        // Also after an error: the device may still be at it.
        let waited = self.stream.wait();
        launched.and(waited)?;
        digests.extend(self.tables.digests(spans.len()));
        Ok(())
    }
}

impl Drop for Hasher {
    fn drop(&mut self) {
        // What is unloaded and freed next must not be in use any more.
        if let Err(error) = self.stream.wait() {
            log!("{error}");
        }
    }
}

/// How many nodes a span has: one for no bytes.
fn nodes(len: u64) -> u64 {
    len.div_ceil(NODE).max(1)
}

/// Launches a kernel with three pointers.
fn launch(
    function: Function,
    grid: (c_uint, c_uint),
    mut arguments: [u64; 3],
    stream: Stream,
) -> Result<(), TransferError> {
    let mut places = arguments.each_mut().map(|argument| ptr::from_mut(argument).cast::<c_void>());
    let (columns, rows) = grid;
    // SAFETY: a function of ours with three arguments of 64 bits, which the call reads before it returns; the tables
    // that they point to live until the stream is idle.
    unsafe {
        real::cuLaunchKernel(
            function,
            columns,
            rows,
            1,
            THREADS,
            1,
            1,
            0,
            stream,
            places.as_mut_ptr(),
            ptr::null_mut(),
        )
    }
    .map_err(TransferError::driver("cuLaunchKernel"))
}

/// The module.
#[derive(Debug)]
struct Loaded(Module);

impl Loaded {
    fn new(image: &'static [u8]) -> Result<Self, TransferError> {
        let mut module = Module::NULL;
        // SAFETY: `module` is writable; the image is a whole one.
        unsafe { real::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) }
            .map_err(TransferError::driver("cuModuleLoadData"))?;
        Ok(Self(module))
    }

    fn function(&self, name: &CStr) -> Result<Function, TransferError> {
        let mut function = Function::NULL;
        // SAFETY: `function` is writable; a module that is loaded and a C string.
        unsafe { real::cuModuleGetFunction(&raw mut function, self.0, name.as_ptr()) }
            .map_err(TransferError::driver("cuModuleGetFunction"))?;
        Ok(function)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: loaded by `new`; its functions are not used any more.
        if let Err(error) = unsafe { real::cuModuleUnload(self.0) } {
            log!("cuModuleUnload: {error}");
        }
    }
}

/// A stream of ours, or the default one where there is no memory for one.
#[derive(Debug)]
struct Own(Stream);

impl Own {
    fn new() -> Self {
        let mut stream = Stream::NULL;
        // SAFETY: `stream` is writable.
        if let Err(error) = unsafe { real::cuStreamCreate(&raw mut stream, NON_BLOCKING) } {
            log!("cuStreamCreate: {error}; the default stream does");
            stream = Stream::NULL;
        }
        Self(stream)
    }

    fn wait(&self) -> Result<(), TransferError> {
        // SAFETY: our own stream, or the default one.
        unsafe { real::cuStreamSynchronize(self.0) }.map_err(TransferError::driver("cuStreamSynchronize"))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: our own stream, not used any more.
        if let Err(error) = unsafe { real::cuStreamDestroy_v2(self.0) } {
            log!("cuStreamDestroy_v2: {error}");
        }
    }
}
