//! Memory of the devices, over all processes.

use std::process::Command;

use cuda_sys::*;

use crate::cuda::*;
use crate::helpers::*;
use crate::process::machine;

#[test]
fn a_device_has_only_so_much_memory_for_all() {
    machine().with("FAKECUDA_MEMORY", "16777216").test(
        "accounting::a_device_has_only_so_much_memory_for_all",
        |me| {
            if me.role() == "other" {
                start();
                alloc(10 * MIB).unwrap();
                me.parent().send(&[]);
                me.parent().receive();
                return;
            }
            start();
            let other = me.start("other");
            other.link.receive();
            assert_eq!(used(), 10 * MIB);
            assert_eq!(alloc(8 * MIB), Err(CuError::OUT_OF_MEMORY));
            assert_eq!(create(8 * MIB, device(0)), Err(CuError::OUT_OF_MEMORY));
            let at = alloc(6 * MIB).unwrap();
            create(16 * MIB, device(1)).unwrap();
            cuMemFree_v2(at).unwrap();
            other.kill();
            assert_eq!(used(), 0, "what a killed process had is free");
            alloc(16 * MIB).unwrap();
        },
    );
}

/// docs/DRIVER-VERSIONS.md, what fits on a full card.
#[test]
fn the_second_stream_of_a_context_takes_memory_for_all_and_a_full_card_has_none_for_it() {
    machine().with("FAKECUDA_MEMORY", "16777216").with("FAKECUDA_STREAM_MEMORY", "2097152").test(
        "accounting::the_second_stream_of_a_context_takes_memory_for_all_and_a_full_card_has_none_for_it",
        |_| {
            start();
            let at = alloc(16 * MIB).unwrap();
            let first = stream(1);
            let mut none = Stream::NULL;
            assert_eq!(cuStreamCreate(&raw mut none, 1), Err(CuError::OUT_OF_MEMORY));
            cuMemFree_v2(at).unwrap();
            let streams = [first, stream(1), stream(1)];
            assert_eq!(used(), 2 * MIB);
            for stream in streams {
                cuStreamDestroy_v2(stream).unwrap();
            }
            assert_eq!(used(), 2 * MIB, "until the context ends");
            assert_eq!(alloc(16 * MIB), Err(CuError::OUT_OF_MEMORY));
            cuDevicePrimaryCtxReset_v2(Device(0)).unwrap();
            start();
            assert_eq!(used(), 0);
        },
    );
}

#[test]
fn small_allocations_share_granules() {
    machine().test("accounting::small_allocations_share_granules", |_| {
        start();
        let all: Vec<DevicePtr> = (0..4096).map(|_| alloc(4096).unwrap()).collect();
        assert_eq!(used(), 16 * MIB);
        assert!(all.iter().all(|at| at.0 % 512 == 0));
        for (number, at) in all.iter().enumerate() {
            write(*at, &[u32::try_from(number).unwrap()]).unwrap();
        }
        for (number, at) in all.iter().enumerate() {
            assert_eq!(read(*at, 1).unwrap(), [u32::try_from(number).unwrap()]);
        }
        for at in all {
            cuMemFree_v2(at).unwrap();
        }
        assert_eq!(used(), 0);
    });
}

#[test]
fn the_machine_can_be_looked_at_from_outside() {
    machine().test("accounting::the_machine_can_be_looked_at_from_outside", |_| {
        start();
        alloc(4 * MIB).unwrap();
        let shared = create(2 * MIB, exportable(1)).unwrap();
        let _descriptor = export(shared).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_fake-smi")).arg("--json").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["memory"], 8_u64 << 30);
        assert_eq!(report["devices"][0]["used"], 4 * MIB);
        assert_eq!(report["devices"][1]["used"], 2 * MIB);
        assert_eq!(report["processes"][0]["pid"], std::process::id());
        assert_eq!(report["processes"][0]["used"], serde_json::json!([4 * MIB, 2 * MIB]));
    });
}
