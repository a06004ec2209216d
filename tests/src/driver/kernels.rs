//! The kernels of `tests/kernels`, loaded into a context.

use std::collections::HashMap;
use std::ffi::{CString, c_void};

use cuda_sys::{CuError, CuResult, Function, Module, Stream};

use super::{cuLaunchKernel, cuModuleGetFunction, cuModuleLoadData};

/// The driver wants the text to end in a zero byte.
const IMAGE: &str = concat!(include_str!("../../kernels/kernels.ptx"), "\0");
const NAMES: &[&str] =
    &["fill", "add", "noise", "copy", "checksum", "wait_flag", "spin", "increment", "allreduce"];

/// The kernels, ready for the context they were loaded in.
#[derive(Debug)]
pub struct Kernels {
    functions: HashMap<&'static str, Function>,
}

impl Kernels {
    /// Loads them into the current context.
    pub fn load() -> CuResult<Self> {
        let mut module = Module::NULL;
        // SAFETY: a place for the module, and a text that ends in zero.
        unsafe { cuModuleLoadData(&raw mut module, IMAGE.as_ptr().cast()) }?;
        let mut functions = HashMap::new();
        for name in NAMES {
            let text = CString::new(*name).map_err(|_| CuError::INVALID_VALUE)?;
            let mut function = Function::NULL;
            // SAFETY: a place for the function, and a C string.
            unsafe { cuModuleGetFunction(&raw mut function, module, text.as_ptr()) }?;
            functions.insert(*name, function);
        }
        Ok(Self { functions })
    }

    /// Launches a kernel on a stream of its context. Each argument has eight bytes to itself, of which a `u32` takes the
    /// low half.
    pub fn launch(&self, stream: Stream, kernel: &str, arguments: &mut [u64]) -> CuResult {
        let function = *self.functions.get(kernel).ok_or(CuError::NOT_FOUND)?;
        let (blocks, threads) = match kernel {
            "wait_flag" | "spin" | "increment" => (1, 1),
            "allreduce" => (1, 256),
            _ => (256, 256),
        };
        let mut pointers: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| (&raw mut *argument).cast()).collect();
        let (pointers, none) = (pointers.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the kernel takes these arguments, and they live through the call, which copies them.
        unsafe { cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, none) }
    }
}
