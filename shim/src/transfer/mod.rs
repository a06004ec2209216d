//! Moving the bytes of an allocation between the memory it has and the place where they wait.
//!
//! ```text
//!   memory --> mapping --> ring of pinned slots --> crew --> sink     (saving)
//!   memory <-- mapping <-- ring of pinned slots <-- crew <-- source   (loading)
//! ```
//!
//! Each device has a lane ([`lanes`]), whose thread makes the driver calls for its memory; the first one is the thread that
//! carries out the verb. One crew of plain threads serves all lanes: it looks at the bytes and moves
//! them between the rings and their place. Host-located memory has a lane too, and needs no ring: the processor sees it.
//! Where bytes go and come from is behind [`Sink`] and [`Source`].

pub(crate) mod arena;
pub(crate) mod certain;
mod context;
pub(crate) mod crew;
mod digest;
pub(crate) mod kept;
pub(crate) mod lanes;
mod load;
mod look;
mod own_stream;
mod queue;
mod reach;
mod ring;
mod save;
pub(crate) mod store;
mod window;
mod zero;

use core::{fmt, ptr, slice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use cuda_sys::{CuError, Device};
use shim_core::world::Place;

pub(crate) use context::Current;
pub(crate) use load::{Loader, with_loaders};
pub(crate) use reach::Subject;
pub(crate) use ring::Rings;
pub(crate) use save::save;

/// Bytes are looked at and put away in grains of this size, a huge page: a grain that is zero takes no room.
const GRAIN: usize = 2 << 20;

/// Where saved bytes go. Called by several threads at once.
pub(crate) trait Sink: Sync {
    /// Puts away a grain: bytes of the object of that number that begin at `at`, a multiple of the grain's size.
    fn keep(&self, object: usize, at: u64, bytes: &[u8]) -> Result<Place, TransferError>;

    /// The place of the grain at `at`, if a grain with this digest is there already. Where it is not, [`Sink::keep`] is
    /// called with it before anything else is asked about it.
    fn has(&self, _object: usize, _at: u64, _len: u64, _digest: [u8; 32]) -> Option<Place> {
        None
    }
}

/// Where saved bytes come from. Called by several threads at once.
pub(crate) trait Source: Sync {
    /// Fills `into` with bytes that [`Sink::keep`] has put away.
    fn fetch(&self, place: Place, into: &mut [u8]) -> Result<(), TransferError>;
}

/// Why bytes could not be moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TransferError {
    /// The driver said no.
    Driver {
        /// Which call.
        call: &'static str,
        /// What it said.
        error: CuError,
    },
    /// The system said no.
    System {
        /// Which call.
        call: &'static str,
        /// What it said.
        errno: i32,
    },
    /// The bytes need more host memory than was allowed.
    OverLimit {
        /// How much was allowed.
        limit: u64,
    },
    /// A store or cache failed, or does not have what was saved to it.
    Storage {
        /// What was wrong where, in full.
        text: String,
        /// What the system said, where it was the system.
        errno: Option<i32>,
    },
    /// A panic was caught in the crew.
    Panicked,
    /// Another lane has failed, whose error is told instead.
    Stopped,
}

impl TransferError {
    /// An error of `call`, for `map_err`.
    pub(crate) const fn driver(call: &'static str) -> impl FnOnce(CuError) -> Self {
        move |error| Self::Driver { call, error }
    }

    /// What `call` has just left in `errno`.
    pub(crate) fn system(call: &'static str) -> Self {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self::System { call, errno }
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver { call, error } => write!(f, "{call} failed with {error}"),
            Self::System { call, errno } => {
                write!(f, "{call} failed: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::OverLimit { limit } => {
                write!(f, "more than the allowed {limit} bytes of host memory are needed")
            }
            Self::Storage { text, .. } => f.write_str(text),
            Self::Panicked => f.write_str("an internal error of libnvsnap_gpushare.so"),
            Self::Stopped => f.write_str("another device has failed"),
        }
    }
}

/// How the memory in the window can be reached.
enum Shown {
    /// By the processor.
    Processor(Memory),
    /// By copies of a device, at this address.
    Device(Device, u64),
}

/// A part of memory that the processor reaches, on its way to the crew and back.
#[derive(Debug)]
struct Memory {
    start: *mut u8,
    len: usize,
}

// SAFETY: whoever has the value has the bytes.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory that is mapped, and accessible to the processor.
    fn at(address: u64, size: u64) -> Result<Self, TransferError> {
        let too_large = |_| TransferError::System { call: "the window", errno: libc::EFAULT };
        let start = usize::try_from(address).map_err(too_large)?;
        let len = usize::try_from(size).map_err(too_large)?;
        Ok(Self { start: ptr::with_exposed_provenance_mut(start), len })
    }

    /// The bytes.
    ///
    /// # Safety
    /// They are still mapped.
    unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped as the caller says, and nobody else's as long as `self` is.
        unsafe { slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// The first `len` bytes; `self` is what is left.
    fn split(&mut self, len: usize) -> Self {
        let len = len.min(self.len);
        let first = Self { start: self.start, len };
        self.start = self.start.wrapping_add(len);
        self.len -= len;
        first
    }
}

/// The first error of many threads, and the object it is about.
#[derive(Debug, Default)]
struct Trouble(Mutex<Option<(usize, TransferError)>>);

impl Trouble {
    /// Runs `step` for an object unless there was an error before; a panic in it is an error.
    fn unless<T>(&self, object: usize, step: impl FnOnce() -> Result<T, TransferError>) -> Option<T> {
        if self.first().is_some() {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(step)).unwrap_or(Err(TransferError::Panicked)) {
            Ok(result) => Some(result),
            Err(error) => {
                self.note(object, error);
                None
            }
        }
    }

    /// An error of an object, which counts if it is the first.
    fn note(&self, object: usize, error: TransferError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((object, error));
    }

    fn first(&self) -> Option<(usize, TransferError)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Success unless there was an error.
    fn outcome(&self) -> Result<(), TransferError> {
        self.first().map_or(Ok(()), |(_, error)| Err(error))
    }
}
