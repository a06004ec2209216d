//! The calls that have a hook, from the one list.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_sys::*;

use super::road::find;

macro_rules! functions {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(on $($stream:ident).+)?;)*) => {$(
        /// The driver's function of this name, on the road this process takes.
        ///
        /// # Safety
        /// As the driver's function of this name.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's names and signatures")]
        pub unsafe fn $name($($arg: $type),*) -> CuResult {
            static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let mut found = FOUND.load(Ordering::Relaxed);
            if found.is_null() {
                found = find(stringify!($name))?;
                FOUND.store(found, Ordering::Relaxed);
            }
            // SAFETY: the list gives this function this type; `found` is not null.
            let call: unsafe extern "C" fn($($type),*) -> CuResult = unsafe { std::mem::transmute(found) };
            // SAFETY: the caller meets the driver's demands.
            unsafe { call($($arg),*) }
        }
    )*};
}

cuda_sys::for_each_call!(functions);
pub(super) use functions;
