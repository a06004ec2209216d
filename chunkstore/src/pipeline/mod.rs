//! Reading ahead and writing behind, with a fixed number of buffers.
//!
//! Neither makes threads. A caller starts as many as it likes, has each of them call `work`, and uses the other end
//! itself. Where no worker is to be had the other end does the work, so that nobody waits for threads that do not
//! exist.

mod read;
mod write;

pub use read::{Filled, ReadAhead, Reader};
pub use write::{Producer, WriteBehind, WriteError};

/// Memory that chunks go through.
pub trait Memory: AsRef<[u8]> + AsMut<[u8]> + Send {}

impl<M: AsRef<[u8]> + AsMut<[u8]> + Send> Memory for M {}

/// Stops a pipeline when a worker unwinds: the other end must not wait for it.
struct OnUnwind<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnUnwind<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}
