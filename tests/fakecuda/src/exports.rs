//! The exported functions: every name of `cuda.h`, no other. Each makes its call through [`crate::trace`] and finds its
//! body in [`crate::api`].

#![allow(non_snake_case, reason = "the driver's own names")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt::Write;

use cuda_sys::*;

use crate::hold_class::hold_of;
use crate::trace;

macro_rules! export {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $($on:ident).+)?;)*) => {
        $(
            /// # Safety
            /// As the driver's function of this name.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> CuResult {
                trace::call(
                    stringify!($name),
                    const { hold_of(stringify!($class), stringify!($name)) },
                    |line| {
                        $(write!(line, "{:?}, ", $arg)?;)*
                        line.truncate(line.trim_end_matches(", ").len());
                        Ok(())
                    },
                    // SAFETY: the caller's arguments, unchanged.
                    || unsafe { crate::api::$name($($arg),*) },
                )
            }
        )*

        /// Every exported name in this list, with its address.
        fn part() -> Vec<(&'static str, usize)> {
            vec![$((stringify!($name), $name as *const () as usize)),*]
        }
    };
}

mod hooked {
    use super::*;
    cuda_sys::for_each_call!(export);

    pub(super) fn addresses() -> Vec<(&'static str, usize)> {
        part()
    }
}

mod passed {
    use super::*;
    crate::pass::for_each_pass!(export);

    pub(super) fn addresses() -> Vec<(&'static str, usize)> {
        part()
    }
}

/// Every exported name with its address.
pub(crate) fn addresses() -> Vec<(&'static str, usize)> {
    let mut all = hooked::addresses();
    all.extend(passed::addresses());
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_function_of_the_list_is_exported_and_no_other() {
        let names: Vec<&str> = super::addresses().into_iter().map(|(name, _)| name).collect();
        let passed: BTreeSet<&str> = super::passed::addresses().into_iter().map(|(name, _)| name).collect();
        assert_eq!(passed, cuda_sys::PASS.iter().copied().collect());
        assert_eq!(names.len(), 644);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 644);
    }
}
