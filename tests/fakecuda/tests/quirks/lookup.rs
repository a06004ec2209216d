//! The road in: symbols and the resolver.

use std::ffi::{CString, OsStr, c_int, c_uint, c_void};
use std::process::Command;

use cuda_sys::*;

use crate::cuda::*;
use crate::process::{file, machine};

fn resolve(name: &str, version: c_int, flags: u64) -> (CuResult, *mut c_void, c_uint) {
    let name = CString::new(name).unwrap();
    let (mut function, mut status) = (std::ptr::null_mut(), u32::MAX);
    let result = cuGetProcAddress_v2(name.as_ptr(), &raw mut function, version, flags, &raw mut status);
    (result, function, status)
}

#[test]
fn the_resolver_gives_the_addresses_that_dlsym_gives() {
    machine().test("lookup::the_resolver_gives_the_addresses_that_dlsym_gives", |_| {
        for (name, version, flags, symbol_name) in [
            ("cuMemAlloc", 13000, 0, "cuMemAlloc_v2"),
            ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
            ("cuMemAlloc", 3000, 0, "cuMemAlloc"),
            ("cuCtxCreate", 13000, 0, "cuCtxCreate_v4"),
            ("cuCtxCreate", 12040, 0, "cuCtxCreate_v3"),
            ("cuCtxCreate", 11030, 0, "cuCtxCreate_v2"),
            ("cuLaunchKernel", 12000, 0, "cuLaunchKernel"),
            ("cuLaunchKernel", 12000, 1, "cuLaunchKernel"),
            ("cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"),
            ("cuLaunchKernel", 6050, 2, "cuLaunchKernel"),
            ("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"),
            ("cuMemAlloc", 12000, 2, "cuMemAlloc_v2"),
            ("cuStreamGetCaptureInfo", 13000, 2, "cuStreamGetCaptureInfo_v3_ptsz"),
            ("cuStreamGetCaptureInfo", 12000, 2, "cuStreamGetCaptureInfo_v2_ptsz"),
            ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
            ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
            ("cuMulticastBindMem", 13010, 0, "cuMulticastBindMem_v2"),
            ("cuMulticastBindMem", 13000, 0, "cuMulticastBindMem"),
        ] {
            let (result, function, status) = resolve(name, version, flags);
            assert_eq!(
                (result, function, status),
                (Ok(()), symbol(symbol_name), 0),
                "{name} {version} {flags}"
            );
        }
    });
}

#[test]
fn the_resolver_says_what_it_does_not_find() {
    machine().test("lookup::the_resolver_says_what_it_does_not_find", |_| {
        let null = std::ptr::null_mut();
        assert_eq!(resolve("cuNothing", 12000, 0), (Ok(()), null, 1));
        assert_eq!(resolve("", 12000, 0), (Ok(()), null, 1));
        assert_eq!(resolve("cuMemAlloc_v2", 12000, 0), (Ok(()), null, 1), "names are base names");
        assert_eq!(resolve("cuMemCreate", 10000, 0), (Ok(()), null, 2), "older than the function");
        assert_eq!(resolve("cuMemAlloc", 99000, 0).0, Err(CuError::INVALID_VALUE), "newer than the driver");
        assert_eq!(resolve("cuMemAlloc", 12000, 64).0, Err(CuError::INVALID_VALUE));
        let mut function = null;
        let old = cuGetProcAddress(c"cuNothing".as_ptr(), &raw mut function, 12000, 0);
        assert_eq!(old, Err(CuError::NOT_FOUND));
        assert_eq!(
            cuGetProcAddress(std::ptr::null(), &raw mut function, 12000, 0),
            Err(CuError::INVALID_VALUE)
        );
    });
}

#[test]
fn an_old_driver_lacks_what_it_is_told_to_lack() {
    machine()
        .with("FAKECUDA_WITHOUT", "cuEventDestroy_v2,checkpoint,multicast")
        .with("FAKECUDA_VERSION", "12020")
        .test("lookup::an_old_driver_lacks_what_it_is_told_to_lack", |_| {
            let mut version = 0;
            cuDriverGetVersion(&raw mut version).unwrap();
            assert_eq!(version, 12020);
            assert_eq!(resolve("cuCheckpointProcessLock", 12020, 0).2, 1);
            assert_eq!(resolve("cuMulticastCreate", 12020, 0).2, 1);
            assert_eq!(crate::helpers::state(1), Err(CuError::NOT_SUPPORTED), "called as a symbol");
            assert_eq!(
                resolve("cuEventDestroy", 12020, 0).1,
                symbol("cuEventDestroy"),
                "the older form is left"
            );
            assert_eq!(resolve("cuMemCreate", 12020, 0).2, 0);
            assert_eq!(resolve("cuMemcpyBatchAsync", 12020, 0).2, 1, "of a newer driver");
        });
}

#[test]
fn a_library_can_be_made_that_does_not_export_what_an_old_driver_lacks() {
    let name = "lookup::a_library_can_be_made_that_does_not_export_what_an_old_driver_lacks";
    let lacks = "cuCheckpointProcessLock,cuMemAlloc_v2";
    machine().with("FAKECUDA_WITHOUT", lacks).test(name, |me| {
        if me.role() == "user" {
            assert!(symbol("cuMemAlloc_v2").is_null() && symbol("cuCheckpointProcessLock").is_null());
            assert!(!symbol("cuMemAlloc").is_null());
            assert_eq!(
                resolve("cuMemAlloc", 12000, 0).1,
                symbol("cuMemAlloc"),
                "the older form is what there is"
            );
            return cuInit(0).unwrap();
        }
        let older = file("libcuda.so.1");
        let made = Command::new(env!("CARGO_BIN_EXE_fake-older-driver"))
            .args([std::env::var_os(LIBRARY).unwrap().as_os_str(), older.as_os_str(), OsStr::new(lacks)])
            .status();
        assert!(made.unwrap().success());
        me.start_with("user", &[(LIBRARY, older.to_str().unwrap())]).finish();
    });
}

#[test]
fn functions_without_a_body_say_so() {
    machine().test("lookup::functions_without_a_body_say_so", |_| {
        assert_eq!(cuTensorMapReplaceAddress(), Err(CuError::NOT_SUPPORTED));
        let mut table = std::ptr::null();
        assert_eq!(cuGetExportTable(&raw mut table, std::ptr::null()), Err(CuError::INVALID_VALUE));
        assert!(table.is_null());
    });
}
