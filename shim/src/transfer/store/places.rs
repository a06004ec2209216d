//! Opening what the command names.
//!
//! Files are opened by this process: as its user, in its mount namespace.
//!
//! For tests, calls on files fail on order: `NVSNAP_GPUSHARE_FILE_FAULTS` is a plan of [`chunkstore::FaultPlan`], and
//! the calls are written down in the file that `NVSNAP_GPUSHARE_FILE_TRACE` names. One plan serves for the whole life of
//! the process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use chunkstore::{FaultPlan, Faulty, FileLayer, Kind, Sources, Store, System};
use protocol::{PathBytes, ReadFrom};

use super::{broken, held};
use crate::config;
use crate::transfer::TransferError;

/// A path as the system has it.
pub(crate) fn path(bytes: &PathBytes) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&bytes.0))
}

/// The store to save to.
pub(crate) fn store(root: &PathBytes) -> Result<Store, TransferError> {
    Store::open_on(layer()?, &path(root), Kind::Store).map_err(|error| broken(&error))
}

/// Where saved bytes are read: the cache first, then the store. One of the two is enough as long as it has
/// everything.
pub(crate) fn sources(from: &ReadFrom) -> Result<Sources, TransferError> {
    let layer = layer()?;
    let open = |root: PathBuf, kind| Store::open_on(Arc::clone(&layer), &root, kind);
    let cache = from.cache.as_ref().map(|root| open(path(root), Kind::Cache)).transpose();
    let root = from.store.as_ref().map(path).or_else(held::root);
    let store = root.map(|root| open(root, Kind::Store)).transpose();
    match (cache, store) {
        (Ok(cache), Ok(store)) => Ok(Sources::new(cache, store)),
        (Ok(Some(cache)), Err(error)) => {
            log!("{error}; the cache may have everything");
            Ok(Sources::new(Some(cache), None))
        }
        (Err(error), Ok(Some(store))) => {
            log!("{error}; the store is read");
            Ok(Sources::new(None, Some(store)))
        }
        (_, Err(error)) | (Err(error), _) => Err(broken(&error)),
    }
}

/// The file system, or one that fails on order.
fn layer() -> Result<Arc<dyn FileLayer>, TransferError> {
    let (plan, trace) = (config::file_faults(), config::file_trace());
    if plan.is_none() && trace.is_none() {
        return Ok(Arc::new(System));
    }
    static ORDERED: Mutex<Option<Arc<dyn FileLayer>>> = Mutex::new(None);
    let mut ordered = ORDERED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(ordered) = &*ordered {
        return Ok(Arc::clone(ordered));
    }
    let text = plan.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    let plan = FaultPlan::parse(&text).map_err(|error| broken(&error))?;
    let faulty = match trace {
        Some(path) => {
            let path = PathBuf::from(OsStr::from_bytes(path.to_bytes()));
            Faulty::traced(System, plan, &path).map_err(|error| broken(&error))?
        }
        None => Faulty::new(System, plan),
    };
    Ok(Arc::clone(ordered.insert(Arc::new(faulty))))
}
