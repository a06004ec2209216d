//! Attributes of a device: those of an H200 where programs ask for them (DRIVER-FACTS, cuMem: fabric 1, multicast 0,
//! HOST_NUMA VMM 1, GPUDirect RDMA with VMM 1).

use std::ffi::c_int;

/// The value of an attribute, or `None` for one that the header does not list.
pub(crate) fn value(attribute: u32, physical: usize) -> Option<c_int> {
    let bus = c_int::try_from(physical).unwrap_or(0) + 1;
    Some(match attribute {
        1..=3 => 1024,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65_535,
        8 => 49_152,
        9 => 65_536,
        10 => 32,
        11 => c_int::MAX,
        12 | 82 => 65_536,
        13 => 1_980_000,
        14 => 512,
        16 => 132,
        // Booleans that hold for this device.
        15 | 19 | 31 | 32 | 41 | 78 | 79 | 80 | 83 | 86 | 89 | 90 | 91 | 92 | 93 | 94 | 95 | 96 | 98 | 99
        | 102 | 103 | 107 | 110 | 112 | 113 | 115 | 116 | 117 | 119 | 120 | 121 | 122 | 123 | 124 | 125
        | 127 | 128 | 129 | 141 | 142 | 144 | 145 => 1,
        33 => bus,
        34 => 0,
        36 => 3_201_000,
        37 => 6144,
        38 => 62_914_560,
        39 => 2048,
        40 => 3,
        51 => 32,
        75 => 9,
        76 => 0,
        81 => 233_472,
        87 => 2,
        97 => 232_448,
        106 => 32,
        108 => 39_321_600,
        109 => 134_217_728,
        111 => 1024,
        118 => 100,
        126 => 4,
        // One NUMA node of the host.
        134 => 0,
        known if (1..=148).contains(&known) => 0,
        _ => return None,
    })
}
