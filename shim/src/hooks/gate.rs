//! Hooks that only hold a pass while the driver's function runs: take a pass, call the driver.
//!
//! The bodies follow from the list. A call on a stream asks whether that stream records a graph, but only when
//! the gate is closed.

use core::ffi::{c_char, c_int, c_uint, c_void};

use cuda_sys::{for_each_call, *};
use shim_core::calls::CallId;
use shim_core::gate::{self, Pass};

use crate::captures;
use crate::driver::real;

macro_rules! pass {
    ($name:ident) => {
        gate::enter(CallId::$name)
    };
    ($name:ident $stream:ident) => {
        gate::enter_on(CallId::$name, || captures::capturing(CallId::$name, $stream))
    };
    ($name:ident $config:ident.$field:ident) => {
        gate::enter_on(CallId::$name, || {
            // SAFETY: the caller's argument; the driver reads it too.
            unsafe { $config.as_ref() }
                .is_some_and(|config| captures::capturing(CallId::$name, config.$field))
        })
    };
}

macro_rules! hook {
    ($class:ident gate fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?) => {
        /// # Safety
        /// As the driver's function of this name.
        #[inline]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> CuResult {
            let _pass: Pass = pass!($name $($stream $(.$field)?)?);
            // SAFETY: the caller's arguments, unchanged.
            unsafe { real::$name($($arg),*) }
        }
    };
    ($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?) => {};
}

macro_rules! hooks {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?;)+) => {
        $(hook! { $class $family fn $name($($arg: $ty),*) $(on $stream $(.$field)?)? })+
    };
}

for_each_call!(hooks);
