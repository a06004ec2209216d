//! The environment, read once.
//!
//! | variable | meaning | default |
//! | --- | --- | --- |
//! | `FAKECUDA_DIR` | shared state of all processes of one machine | `/tmp/fakecuda-<uid>` |
//! | `FAKECUDA_DEVICES` | number of devices, at most 16 | 2 |
//! | `FAKECUDA_MEMORY` | bytes per device | 8 GiB |
//! | `FAKECUDA_GRANULARITY` | bytes that the size of exportable memory is a multiple of (public reports: 64 KiB to 512 MiB, by machine and properties) | 2 MiB |
//! | `FAKECUDA_STREAM_MEMORY` | bytes of its device that a context takes for a second stream and all later ones, until it ends (docs/DRIVER-VERSIONS.md, what fits on a full card) | none |
//! | `FAKECUDA_VERSION` | driver version, as `cuDriverGetVersion` reports it | 13010 |
//! | `FAKECUDA_WITHOUT` | functions an old driver lacks: names, or families (`checkpoint`, `multicast`, `vmm`, `ipc`, `pools`, `graphs`). The resolver does not know them, and called as symbols they are NOT_SUPPORTED | none |
//! | `FAKECUDA_FABRIC` | `1`: the machine has a channel for fabric handles | it has none |
//! | `FAKECUDA_MULTICAST` | `1`: the devices have multicast | they do not |
//! | `FAKECUDA_QUEUE` | work items a stream holds before a launch blocks | 1024 |
//! | `FAKECUDA_LOG` | prefix of the call log; the pid is appended | no log |
//! | `FAKECUDA_STRICT_LOG` | file that gets a line per violation | no log |
//! | `FAKECUDA_FAULTS` | see [`crate::faults`] | none |
//! | `FAKECUDA_FORK` | `anew`: a forked child can start the driver, as long as its parent had no context | it cannot |
//! | `FAKECUDA_INDEX` | the number by which faults name this process | none |
//! | `CUDA_VISIBLE_DEVICES` | as for the real driver: ordinals or UUID prefixes | all |
//!
//! Devices and memory are those of the machine: the first process alive in `FAKECUDA_DIR` decides them.

use std::ffi::{OsString, c_int};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;

use crate::faults::Fault;

/// Devices a machine can have at most.
pub(crate) const MAX_DEVICES: usize = 16;

/// What the environment asks for.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) dir: PathBuf,
    pub(crate) devices: usize,
    pub(crate) memory: u64,
    pub(crate) granularity: usize,
    pub(crate) stream_memory: usize,
    pub(crate) version: c_int,
    pub(crate) without: Vec<String>,
    pub(crate) queue: usize,
    pub(crate) log: Option<OsString>,
    pub(crate) strict_log: Option<PathBuf>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) index: Option<u32>,
    pub(crate) visible: Option<String>,
    pub(crate) fork_anew: bool,
    pub(crate) multicast: bool,
    pub(crate) fabric: bool,
}

fn number<T: FromStr>(name: &str, default: T) -> T {
    match std::env::var(name) {
        Err(_) => default,
        Ok(text) => text.trim().parse().unwrap_or_else(|_| {
            crate::trace::complain(&format!(
                "{name}: \"{text}\" is not a number that fits; the default is used"
            ));
            default
        }),
    }
}

impl Config {
    /// Whether the driver is to be one that does not have this function.
    pub(crate) fn lacks(&self, name: &str) -> bool {
        self.without.iter().any(|without| without == name || in_family(name, without))
    }

    fn read() -> Self {
        // SAFETY: always succeeds and touches nothing.
        let uid = unsafe { libc::getuid() };
        let faults = match crate::faults::parse(&std::env::var("FAKECUDA_FAULTS").unwrap_or_default()) {
            Ok(faults) => faults,
            Err(why) => {
                crate::trace::complain(&format!("FAKECUDA_FAULTS: {why}; no fault is injected"));
                Vec::new()
            }
        };
        Self {
            dir: std::env::var_os("FAKECUDA_DIR")
                .map_or_else(|| PathBuf::from(format!("/tmp/fakecuda-{uid}")), PathBuf::from),
            devices: number("FAKECUDA_DEVICES", 2).min(MAX_DEVICES),
            memory: number("FAKECUDA_MEMORY", 8 << 30),
            granularity: number("FAKECUDA_GRANULARITY", 2 << 20),
            stream_memory: number("FAKECUDA_STREAM_MEMORY", 0),
            version: number("FAKECUDA_VERSION", 13010),
            without: std::env::var("FAKECUDA_WITHOUT")
                .unwrap_or_default()
                .split(',')
                .map(|name| name.trim().to_owned())
                .filter(|name| !name.is_empty())
                .collect(),
            queue: number("FAKECUDA_QUEUE", 1024).max(1),
            log: std::env::var_os("FAKECUDA_LOG"),
            strict_log: std::env::var_os("FAKECUDA_STRICT_LOG").map(PathBuf::from),
            faults,
            index: std::env::var("FAKECUDA_INDEX").ok().and_then(|text| text.trim().parse().ok()),
            visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            multicast: std::env::var("FAKECUDA_MULTICAST").is_ok_and(|how| how == "1"),
            fabric: std::env::var("FAKECUDA_FABRIC").is_ok_and(|how| how == "1"),
            fork_anew: std::env::var("FAKECUDA_FORK").is_ok_and(|how| how == "anew"),
        }
    }
}

/// Whether a name belongs to a family of `FAKECUDA_WITHOUT`.
fn in_family(name: &str, family: &str) -> bool {
    match family {
        "checkpoint" => name.starts_with("cuCheckpoint"),
        "multicast" => name.starts_with("cuMulticast"),
        "ipc" => name.starts_with("cuIpc"),
        "pools" => name.starts_with("cuMemPool"),
        "graphs" => name.starts_with("cuGraph"),
        "vmm" => [
            "cuMemCreate",
            "cuMemRelease",
            "cuMemMap",
            "cuMemUnmap",
            "cuMemSetAccess",
            "cuMemGetAccess",
            "cuMemAddressReserve",
            "cuMemAddressFree",
            "cuMemExportToShareableHandle",
            "cuMemImportFromShareableHandle",
            "cuMemRetainAllocationHandle",
            "cuMemGetAllocationPropertiesFromHandle",
            "cuMemGetAllocationGranularity",
        ]
        .contains(&name),
        _ => false,
    }
}

/// The environment as it was at the first call into the library.
pub(crate) fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(Config::read)
}
