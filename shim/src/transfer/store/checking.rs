//! Checking loaded bytes where they lie.
//!
//! A processor hashes about as fast as it reads from a file in memory, so that a thread which does both reads half as
//! much. The device hashes a chunk that has been copied to it in a hundredth of the time that the copy took.

use cuda_sys::Device;

use super::errand::Cover;
use crate::transfer::TransferError;
use crate::transfer::digest::Hasher;

/// The kernels on one device, loaded when they are first needed. Their context is current as long as they are.
#[derive(Debug, Default)]
pub(super) struct Checking(Option<(Device, Option<Hasher>)>);

impl Checking {
    /// What the bytes hash to, as their device tells; its context is current. `None` where it cannot tell, also not
    /// later: that is said once.
    pub(super) fn digest(&mut self, cover: &Cover) -> Option<chunkstore::Digest> {
        let device = cover.device;
        let cannot = |error: &TransferError| {
            log!("device {} does not check what it gets: {error}; the processor does", device.0);
        };
        let (_, hasher) = match &mut self.0 {
            Some(own) if own.0 == device => own,
            other => other.insert((device, Hasher::new(device).inspect_err(cannot).ok())),
        };
        let told = hasher.as_mut()?.digests(&cover.text).inspect_err(cannot);
        if told.is_err() {
            *hasher = None;
        }
        told.ok()?.first().map(|digest| chunkstore::Digest(digest.hash))
    }

    /// To be called before the context goes.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }
}
