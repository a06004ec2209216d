//! Reading ahead and writing behind, with a fixed number of buffers.
//!
//! Neither makes threads. A caller starts as many as it likes, has each of them call `work`, and uses the other end
//! itself. While there is no worker the other end does the work, so that nobody waits for threads that do not exist.

mod read;
mod write;

pub use read::{Filled, ReadAhead, Reader};
pub use write::{Producer, WriteBehind, WriteError};

/// Memory that chunks go through.
pub trait Memory: AsRef<[u8]> + AsMut<[u8]> + Send {}

impl<M: AsRef<[u8]> + AsMut<[u8]> + Send> Memory for M {}

/// Tells a pipeline that a worker goes, and whether by a panic: the other end must not wait for it.
struct OnLeave<F: FnMut(bool)>(F);

impl<F: FnMut(bool)> Drop for OnLeave<F> {
    fn drop(&mut self) {
        (self.0)(std::thread::panicking());
    }
}
