//! The code for the GPU: `shim/kernels/hash.cu`, compiled beforehand.

use core::ffi::c_int;

use cuda_sys::{CuError, Device, DeviceAttribute};

use crate::driver::real;

/// An image begins where a pointer may: the driver reads its header in place.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

/// A committed file, aligned.
macro_rules! image {
    ($name:literal) => {{
        static IMAGE: &Aligned<[u8]> =
            &Aligned(*include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $name)));
        &IMAGE.0
    }};
}

/// The image for a device: machine code where there is some for its major version, else PTX, ended by a zero byte,
/// which the driver compiles.
pub(super) fn for_device(device: Device) -> Result<&'static [u8], CuError> {
    let capability = (
        attribute(DeviceAttribute::COMPUTE_CAPABILITY_MAJOR, device)?,
        attribute(DeviceAttribute::COMPUTE_CAPABILITY_MINOR, device)?,
    );
    Ok(for_capability(capability))
}

fn attribute(attribute: DeviceAttribute, device: Device) -> Result<c_int, CuError> {
    let mut value = 0;
    // SAFETY: `value` is writable.
    unsafe { real::cuDeviceGetAttribute(&raw mut value, attribute, device) }?;
    Ok(value)
}

/// Machine code runs on its own major version, from its minor version on (CUDA C++ Programming Guide, "Binary
/// Compatibility").
fn for_capability(capability: (c_int, c_int)) -> &'static [u8] {
    match capability.0 {
        8 => image!("hash.sm_80.cubin"),
        9 => image!("hash.sm_90.cubin"),
        10 => image!("hash.sm_100.cubin"),
        12 => image!("hash.sm_120.cubin"),
        _ => PTX.0.as_slice(),
    }
}

/// The text, and the zero byte that ends it.
static PTX: &Aligned<[u8; PTX_TEXT.len() + 1]> = &Aligned(ended(PTX_TEXT));
const PTX_TEXT: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/hash.ptx"));

const fn ended<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut ended = [0; N];
    ended.split_at_mut(text.len()).0.copy_from_slice(text);
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data of a module, constants too, have to be allocated; code goes where the driver has room for it in any case
    /// (docs/DRIVER-VERSIONS.md, what fits on a full card).
    #[test]
    fn no_image_has_data_that_a_full_card_has_no_room_for() {
        for major in [8, 9, 10, 12] {
            let image = for_capability((major, 0));
            for section in [&b".nv.constant3"[..], b".nv.constant4", b".nv.global"] {
                let found = image.windows(section.len()).any(|bytes| bytes == section);
                assert!(!found, "{major} has {}", String::from_utf8_lossy(section));
            }
        }
        for line in PTX_TEXT.split(|byte| *byte == b'\n') {
            let is_data = [&b".global"[..], b".const"].iter().any(|word| line.starts_with(word));
            assert!(!is_data, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn machine_code_for_common_devices_and_text_for_all_others() {
        let machine = [8, 9, 10, 12];
        for major in 7..14 {
            let image = for_capability((major, 0));
            let is_machine_code = image.starts_with(b"\x7fELF");
            assert_eq!(is_machine_code, machine.contains(&major), "{major}");
            assert_eq!(image.as_ptr().addr() % 64, 0);
            if !is_machine_code {
                assert_eq!(image.last(), Some(&0));
                assert!(image.windows(8).any(|word| word == b".version"));
            }
        }
    }
}
