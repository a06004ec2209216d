//! Modules, libraries, functions. Any image loads, and each module has every kernel of [`super::kernels`].

#![allow(non_snake_case, reason = "the driver's own names")]
#![allow(clippy::too_many_arguments, reason = "the driver's own signatures")]

pub(crate) mod functions;

use std::ffi::{c_char, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use cuda_sys::{
    CuError, CuResult, Function as FunctionHandle, Kernel as KernelHandle, Library as LibraryHandle,
    Module as ModuleHandle,
};

use super::kernels::Kernel;
use crate::args;
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::slab::{Slab, address_of};
use crate::trace::violation;

/// A module or a library: they differ in what programs call them.
#[derive(Debug, Default)]
pub(crate) struct Module {
    functions: OnceLock<Vec<&'static Function>>,
    loads: AtomicU32,
}

/// A kernel as one module has it.
#[derive(Debug, Default)]
pub(crate) struct Function {
    kernel: OnceLock<Kernel>,
    module: AtomicPtr<Module>,
    shared: AtomicU32,
}

/// All modules of the process.
#[derive(Debug)]
pub(crate) struct Modules {
    modules: Slab<Module>,
    functions: Slab<Function>,
}

impl Modules {
    pub(crate) fn new() -> Self {
        Self { modules: Slab::new(), functions: Slab::new() }
    }

    /// A module's functions live in its place and come back with it.
    fn load(&self) -> &'static Module {
        self.modules.insert(|module| {
            module.loads.fetch_add(1, Ordering::Relaxed);
            module.functions.get_or_init(|| {
                let make = |&kernel| {
                    self.functions.insert(|function| {
                        function.kernel.get_or_init(|| kernel);
                        function.module.store(std::ptr::from_ref(module).cast_mut(), Ordering::Release);
                    })
                };
                Kernel::ALL.iter().map(make).collect()
            });
        })
    }

    fn module(&self, address: usize) -> CuResult<&'static Module> {
        self.modules.get(address).ok_or_else(|| {
            violation(format_args!("{address:#x} is not a module"));
            CuError::INVALID_HANDLE
        })
    }

    fn unload(&self, address: usize) -> CuResult {
        let module = self.module(address)?;
        if self.modules.remove(address).is_some() {
            self.modules.recycle(module);
        }
        Ok(())
    }

    /// The function of a module that is loaded.
    fn function(&self, address: usize) -> CuResult<&'static Function> {
        let found = self.functions.get(address).filter(|function| {
            let module = function.module.load(Ordering::Acquire);
            self.modules.get(module.addr()).is_some()
        });
        found.ok_or_else(|| {
            violation(format_args!("{address:#x} is not a function"));
            CuError::INVALID_HANDLE
        })
    }
}

/// The kernel behind a function or kernel handle.
pub(super) fn kernel(driver: &Driver, address: usize) -> CuResult<Kernel> {
    driver.modules.function(address)?.kernel.get().copied().ok_or(CuError::INVALID_HANDLE)
}

fn module_handle(module: &'static Module) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address_of(module))
}

fn find(module: &Module, name: &str) -> CuResult<&'static Function> {
    let wanted = Kernel::named(name).ok_or(CuError::NOT_FOUND)?;
    let functions = module.functions.get().ok_or(CuError::NOT_FOUND)?;
    functions
        .iter()
        .find(|function| function.kernel.get() == Some(&wanted))
        .copied()
        .ok_or(CuError::NOT_FOUND)
}

/// Waits for work of the device (as measured).
pub(crate) unsafe fn cuModuleLoadData(module: *mut ModuleHandle, image: *const c_void) -> CuResult {
    let driver = driver()?;
    let context = current()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(module) }?;
    if image.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    super::wait_for_device(driver, context.ordinal());
    place.write(ModuleHandle(module_handle(driver.modules.load())));
    Ok(())
}

pub(crate) unsafe fn cuModuleLoadDataEx(
    module: *mut ModuleHandle,
    image: *const c_void,
    _num_options: c_uint,
    _options: *mut c_void,
    _option_values: *mut *mut c_void,
) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuModuleLoadData(module, image) }
}

pub(crate) unsafe fn cuModuleLoadFatBinary(module: *mut ModuleHandle, fat_cubin: *const c_void) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuModuleLoadData(module, fat_cubin) }
}

pub(crate) unsafe fn cuModuleLoad(module: *mut ModuleHandle, fname: *const c_char) -> CuResult {
    // SAFETY: the caller's promise.
    let name = unsafe { args::name(fname) }?;
    if !std::path::Path::new(name).exists() {
        return Err(CuError::FILE_NOT_FOUND);
    }
    // SAFETY: the caller's promise; the image only has to be there.
    unsafe { cuModuleLoadData(module, fname.cast()) }
}

pub(crate) unsafe fn cuModuleUnload(hmod: ModuleHandle) -> CuResult {
    driver()?.modules.unload(hmod.0.addr())
}

pub(crate) unsafe fn cuModuleGetFunction(
    hfunc: *mut FunctionHandle,
    hmod: ModuleHandle,
    name: *const c_char,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(hfunc) }?;
    let module = driver.modules.module(hmod.0.addr())?;
    // SAFETY: the caller's promise.
    let function = find(module, unsafe { args::name(name) }?)?;
    place.write(FunctionHandle(std::ptr::with_exposed_provenance_mut(address_of(function))));
    Ok(())
}

/// Modules have no variables here.
pub(crate) unsafe fn cuModuleGetGlobal_v2(
    _dptr: *mut cuda_sys::DevicePtr,
    _bytes: *mut usize,
    hmod: ModuleHandle,
    name: *const c_char,
) -> CuResult {
    driver()?.modules.module(hmod.0.addr())?;
    // SAFETY: the caller's promise.
    unsafe { args::name(name) }?;
    Err(CuError::NOT_FOUND)
}

pub(crate) unsafe fn cuModuleGetLoadingMode(mode: *mut c_uint) -> CuResult {
    driver()?;
    // Lazy.
    // SAFETY: the caller's promise.
    unsafe { args::out(mode) }?.write(2);
    Ok(())
}

pub(crate) unsafe fn cuModuleGetFunctionCount(count: *mut c_uint, module: ModuleHandle) -> CuResult {
    driver()?.modules.module(module.0.addr())?;
    // SAFETY: the caller's promise.
    unsafe { args::out(count) }?.write(u32::try_from(Kernel::ALL.len()).unwrap_or(0));
    Ok(())
}

pub(crate) unsafe fn cuLibraryLoadData(
    library: *mut LibraryHandle,
    code: *const c_void,
    _jit_options: *mut c_void,
    _jit_options_values: *mut *mut c_void,
    _num_jit_options: c_uint,
    _library_options: *mut c_void,
    _library_option_values: *mut *mut c_void,
    _num_library_options: c_uint,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(library) }?;
    if code.is_null() {
        return Err(CuError::INVALID_VALUE);
    }
    place.write(LibraryHandle(module_handle(driver.modules.load())));
    Ok(())
}

pub(crate) unsafe fn cuLibraryUnload(library: LibraryHandle) -> CuResult {
    driver()?.modules.unload(library.0.addr())
}

pub(crate) unsafe fn cuLibraryGetModule(p_mod: *mut ModuleHandle, library: LibraryHandle) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(p_mod) }?;
    driver.modules.module(library.0.addr())?;
    place.write(ModuleHandle(library.0));
    Ok(())
}

pub(crate) unsafe fn cuLibraryGetKernel(
    p_kernel: *mut KernelHandle,
    library: LibraryHandle,
    name: *const c_char,
) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(p_kernel) }?;
    let module = driver.modules.module(library.0.addr())?;
    // SAFETY: the caller's promise.
    let function = find(module, unsafe { args::name(name) }?)?;
    place.write(KernelHandle(std::ptr::with_exposed_provenance_mut(address_of(function))));
    Ok(())
}

pub(crate) unsafe fn cuLibraryGetKernelCount(count: *mut c_uint, library: LibraryHandle) -> CuResult {
    // SAFETY: the caller's promise.
    unsafe { cuModuleGetFunctionCount(count, ModuleHandle(library.0)) }
}

/// A kernel is a function of whatever context is current.
pub(crate) unsafe fn cuKernelGetFunction(p_func: *mut FunctionHandle, kernel: KernelHandle) -> CuResult {
    let driver = driver()?;
    current()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(p_func) }?;
    driver.modules.function(kernel.0.addr())?;
    place.write(FunctionHandle(kernel.0));
    Ok(())
}

pub(crate) unsafe fn cuKernelGetLibrary(library: *mut LibraryHandle, kernel: KernelHandle) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(library) }?;
    let function = driver.modules.function(kernel.0.addr())?;
    place.write(LibraryHandle(function.module.load(Ordering::Acquire).cast()));
    Ok(())
}

pub(crate) unsafe fn cuFuncGetModule(module: *mut ModuleHandle, function: FunctionHandle) -> CuResult {
    let driver = driver()?;
    // SAFETY: the caller's promise.
    let place = unsafe { args::out(module) }?;
    let function = driver.modules.function(function.0.addr())?;
    place.write(ModuleHandle(function.module.load(Ordering::Acquire).cast()));
    Ok(())
}
