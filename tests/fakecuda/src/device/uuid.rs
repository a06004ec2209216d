//! The names of devices.

use cuda_sys::Uuid;

/// The UUID of a device of the machine. It never changes, so that maps of GPUs can be written down.
pub(crate) fn uuid(physical: usize) -> Uuid {
    let number = u8::try_from(physical).unwrap_or(u8::MAX);
    Uuid { bytes: [0xfa, 0xce, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, number] }
}
