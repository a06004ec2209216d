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
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    /// The call at this place in the list.
    pub fn at(index: usize) -> Option<Self> {
        Self::ALL.get(index).copied()
    }

    /// Whether null stands for the calling thread's own default stream in this call.
    pub const fn is_per_thread(self) -> bool {
        let name = self.name().as_bytes();
        matches!(name, [.., b'_', b'p', b't', b's' | b'd', b'z' | b's'])
    }

    /// Whether the call makes a stream record instead of run: from then on its launches start no work.
    pub const fn begins_capture(self) -> bool {
        matches!(
            self,
            Self::cuStreamBeginCapture
                | Self::cuStreamBeginCapture_ptsz
                | Self::cuStreamBeginCapture_v2
                | Self::cuStreamBeginCapture_v2_ptsz
                | Self::cuStreamBeginCaptureToGraph
                | Self::cuStreamBeginCaptureToGraph_ptsz
        )
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

    #[test]
    fn the_forms_for_the_default_stream_of_a_thread_are_told_by_their_names() {
        assert!(CallId::cuLaunchKernel_ptsz.is_per_thread());
        assert!(CallId::cuMemcpyDtoH_v2_ptds.is_per_thread());
        assert!(!CallId::cuMemcpyDtoH_v2.is_per_thread());
        assert!(!CallId::cuLaunchKernel.is_per_thread());
        let by_name = |call: &&CallId| call.name().ends_with("_ptsz") || call.name().ends_with("_ptds");
        let by_itself = |call: &&CallId| call.is_per_thread();
        assert!(CallId::ALL.iter().filter(by_name).eq(CallId::ALL.iter().filter(by_itself)));
    }

    #[test]
    fn every_call_that_begins_a_capture_is_known_as_such() {
        for call in CallId::ALL {
            let named = call.name().starts_with("cuStreamBeginCapture");
            assert_eq!(call.begins_capture(), named, "{call}");
        }
    }

    #[test]
    fn a_place_beyond_the_list_has_no_call() {
        assert_eq!(CallId::at(3), CallId::ALL.get(3).copied());
        assert_eq!(CallId::at(CallId::COUNT), None);
    }
}
