//! Attributes of a device: those of an H200, as measured (fabric 1, multicast 0, HOST_NUMA VMM 1, GPUDirect RDMA with VMM 1).

use std::ffi::c_int;

use cuda_sys::DeviceAttribute;

use crate::config::config;

/// `CU_DEVICE_ATTRIBUTE_PCI_BUS_ID`
const PCI_BUS_ID: usize = 33;

/// The values of the attributes from 1 on.
#[rustfmt::skip]
const VALUES: &[c_int] = &[
    1024, 1024, 1024, 64, 2_147_483_647, 65_535, 65_535, 49_152, 65_536, 32, 2_147_483_647, 65_536,
    1_980_000, 512, 1, 132, 0, 0, 1, 0, 131_072, 131_072, 65_536, 16_384, 16_384, 16_384, 32_768,
    32_768, 2048, 512, 1, 1, 0, 6, 0, 3_201_000, 6016, 62_914_560, 2048, 3, 1, 32_768, 2048, 1, 32_768,
    32_768, 8192, 8192, 32_768, 0, 32, 32_768, 32_768, 2046, 32_768, 131_072, 65_536, 16_384, 16_384,
    16_384, 32_768, 2048, 32_768, 32_768, 2048, 32_768, 32_768, 2046, 268_435_456, 131_072, 65_000,
    2_097_120, 32_768, 32_768, 9, 0, 32_768, 1, 1, 1, 233_472, 65_536, 1, 0, 0, 0, 2, 0, 1, 1, 1, 0, 0,
    0, 1, 1, 232_448, 0, 1, 0, 0, 1, 1, 0, 0, 32, 1, 39_321_600, 134_217_728, 1, 1024, 1, 1, 1, 1, 1, 1,
    100, 9, 1, 1, 1, 1, 1, 1, 4, 1, 1, 1, 0, -1, 0, 0, 0, 0, 0, 0, 0, 590_680_286, 415_174_878, 1, 1, 0,
    1, 1, 0, 0,
];

/// The value of an attribute, or `None` for one that the driver does not know. Each device is on a bus of its own.
pub(crate) fn value(attribute: u32, physical: usize) -> Option<c_int> {
    let number = usize::try_from(attribute).ok()?;
    if number == PCI_BUS_ID {
        return c_int::try_from(physical + 1).ok();
    }
    if attribute == DeviceAttribute::MULTICAST_SUPPORTED.0 && config().multicast {
        return Some(1);
    }
    VALUES.get(number.checked_sub(1)?).copied()
}
