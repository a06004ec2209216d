//! BLAKE3-256 and zero detection, computed where the bytes are: on the GPU.
//!
//! While the process is quiesced, the kernels of `shim/kernels/hash.cu` are loaded into the context that copies are
//! made in, and unloaded afterwards. Where they cannot be loaded, or there is no memory for their tables, bytes are
//! looked at by the processor after they have been copied.

mod image;
mod plan;
mod tables;

use core::ffi::{CStr, c_uint, c_void};
use core::ptr;

use cuda_sys::{Device, Function, Module, Stream};

use super::own_stream::{end_stream, own_stream};
use super::{Current, TransferError, certain};
use crate::driver::real;
use plan::Plan;
pub(super) use plan::{Span, are_one_text};
use tables::Tables;

/// What is known of a text without having moved it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Digest {
    pub(super) hash: [u8; 32],
    pub(super) is_zero: bool,
}

/// Threads in a block, as the kernels are compiled for.
const THREADS: c_uint = 256;

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

    /// The digests of texts, in their order. The device can read all of their spans.
    pub(super) fn digests(&mut self, spans: &[Span]) -> Result<Vec<Digest>, TransferError> {
        let mut digests = Vec::with_capacity(spans.iter().filter(|span| span.ends_text).count());
        let mut rest = spans;
        while !rest.is_empty() {
            let (turn, later) = rest.split_at(plan::fitting(rest)?);
            self.turn(&Plan::of(turn), &mut digests)?;
            rest = later;
        }
        Ok(digests)
    }

    /// As many spans as the tables have room for.
    fn turn(&mut self, plan: &Plan, digests: &mut Vec<Digest>) -> Result<(), TransferError> {
        let fit = |count: usize| {
            let too_many = |_| TransferError::System { call: "the table of digests", errno: libc::E2BIG };
            c_uint::try_from(count).map_err(too_many)
        };
        let (longest, rows, texts) = (fit(plan.longest)?, fit(plan.rows.len())?, fit(plan.texts.len())?);
        let stream = self.stream.0;
        self.tables.describe(plan);
        let places = self.tables.places();
        let launched =
            launch(self.leaves, (longest, rows), [places.rows, places.nodes, places.flags], stream).and_then(
                |()| launch(self.roots, (texts, 1), [places.texts, places.nodes, places.digests], stream),
            );
        // Also after an error: the device may still be at it.
        let waited = self.stream.wait();
        launched.and(waited)?;
        digests.extend(self.tables.digests(plan));
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

/// The digests of texts that `device` can read. `None` where it cannot be asked, which is said: then the processor
/// looks at the bytes when they have come.
pub(super) fn ask(device: Device, spans: &[Span]) -> Option<Vec<Digest>> {
    let asked = Current::on(device).and_then(|current| {
        let digests = Hasher::new(device).and_then(|mut hasher| hasher.digests(spans));
        // The kernels are unloaded by now: that needs their context.
        drop(current);
        digests
    });
    asked.inspect_err(|error| cannot(device, error)).ok()
}

/// Says why the bytes of a device have to be copied before they can be looked at.
pub(super) fn cannot(device: Device, error: &TransferError) {
    log!("device {} does not hash its memory: {error}; all of it is copied", device.0);
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
        Self(own_stream())
    }

    fn wait(&self) -> Result<(), TransferError> {
        certain::wait(self.0)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        end_stream(self.0);
    }
}
