//! The driver's calls as numbers: [`CallId`] is an index into [`for_each_call!`](cuda_sys::for_each_call).

use core::fmt;

use cuda_sys::{Class, for_each_call};

macro_rules! class {
    (launch) => {
        Class::Launch
    };
    (memory) => {
        Class::Memory
    };
    (object) => {
        Class::Object
    };
    (completion) => {
        Class::Completion
    };
    (information) => {
        Class::Information
    };
    (pass) => {
        Class::Pass
    };
}

macro_rules! define {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?;)+) => {
        /// A driver call that has a hook: an index into the list.
        #[allow(non_camel_case_types, missing_docs, reason = "the driver's own names")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum CallId {
            $($name),+
        }

        impl CallId {
            /// Every call, in the order of the list.
            pub const ALL: &[Self] = &[$(Self::$name),+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The driver's name of the call.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),+
                }
            }

            /// What a suspend does with the call.
            pub const fn class(self) -> Class {
                match self {
                    $(Self::$name => class!($class)),+
                }
            }
        }
    };
}

for_each_call!(define);

impl CallId {
    /// The call's place in the list.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_found_at_its_place_in_the_list() {
        for (at, call) in CallId::ALL.iter().enumerate() {
            assert_eq!(call.index(), at, "{call}");
        }
    }

    #[test]
    fn a_call_knows_its_name_and_class() {
        assert_eq!(CallId::cuLaunchKernel.name(), "cuLaunchKernel");
        assert_eq!(CallId::cuLaunchKernel.class(), Class::Launch);
        assert_eq!(CallId::cuGetProcAddress_v2.class(), Class::Pass);
    }
}
