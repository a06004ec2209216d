//! What goes round every call: the hold of a locked process, the call log, faults, and the log of violations.
//!
//! A call costs one relaxed load here while neither a log nor a fault is asked for. A line of the call log reads
//! `seq tid name(arguments) = result`, is written after the call with one `write`, and `seq` counts the calls of
//! the process in the order in which they began.

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cuda_sys::{CuError, CuResult, number};

use crate::config::config;
use crate::hold_class::Hold;
use crate::{faults, hold};

const LOG: u32 = 1;
const FAULTS: u32 = 2;
const WITHOUT: u32 = 4;
const UNREAD: u32 = 1 << 31;

static FEATURES: AtomicU32 = AtomicU32::new(UNREAD);
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// The files that are open, each with the process that opened it: a forked child opens its own.
static CALL_LOG: Mutex<Option<(u32, File)>> = Mutex::new(None);
static STRICT_LOG: Mutex<Option<(u32, File)>> = Mutex::new(None);

/// Makes a call with all that goes round it.
#[inline]
pub(crate) fn call(
    name: &'static str,
    hold: Hold,
    arguments: impl Fn(&mut String) -> fmt::Result,
    mut body: impl FnMut() -> CuResult,
) -> CuResult {
    let _inside = hold::enter(name, hold)?;
    if FEATURES.load(Ordering::Relaxed) == 0 { body() } else { traced(name, &arguments, body) }
}

#[cold]
fn traced(
    name: &'static str,
    arguments: &dyn Fn(&mut String) -> fmt::Result,
    mut body: impl FnMut() -> CuResult,
) -> CuResult {
    let features = features();
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    // The calls about another process are counted by that process: `checkpoint::calls` asks for them itself.
    let faulty = features & FAULTS != 0 && !name.starts_with("cuCheckpointProcess");
    let result = if features & WITHOUT != 0 && config().lacks(name) {
        Err(CuError::NOT_SUPPORTED)
    } else if faulty {
        faults::around(name, body)
    } else {
        body()
    };
    if features & LOG != 0 {
        let mut line = format!("{sequence} {} {name}(", rustix::thread::gettid().as_raw_nonzero());
        // Formatting into a string cannot fail.
        let _ = arguments(&mut line);
        line.push_str(&format!(") = {}\n", number(result)));
        write_call(&line);
    }
    result
}

fn features() -> u32 {
    let features = FEATURES.load(Ordering::Relaxed);
    if features != UNREAD {
        return features;
    }
    let config = config();
    let when = |wanted, bit| if wanted { bit } else { 0 };
    let features = when(config.log.is_some(), LOG)
        | when(!config.faults.is_empty(), FAULTS)
        | when(!config.without.is_empty(), WITHOUT);
    FEATURES.store(features, Ordering::Relaxed);
    features
}

fn write_call(line: &str) {
    let Some(prefix) = &config().log else { return };
    let mut path = OsString::from(prefix);
    path.push(format!(".{}", std::process::id()));
    append(&CALL_LOG, Path::new(&path), line);
}

fn append(log: &Mutex<Option<(u32, File)>>, path: &Path, line: &str) {
    let mut log = crate::lock(log);
    let pid = std::process::id();
    if log.as_ref().is_none_or(|(owner, _)| *owner != pid) {
        match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => *log = Some((pid, file)),
            Err(error) => return complain(&format!("{}: {error}", path.display())),
        }
    }
    if let Some((_, file)) = log.as_mut()
        && let Err(error) = file.write_all(line.as_bytes())
    {
        complain(&format!("{}: {error}", path.display()));
    }
}

/// Notes that the program did what no correct program does. The call still answers what the driver would.
pub(crate) fn violation(what: fmt::Arguments<'_>) {
    let Some(path) = &config().strict_log else { return };
    let tid = rustix::thread::gettid().as_raw_nonzero();
    append(&STRICT_LOG, path, &format!("{} {tid} {what}\n", std::process::id()));
}

/// Tells the person who runs the test that something is wrong with how the stand-in is set up.
pub(crate) fn complain(what: &str) {
    let line = format!("fakecuda {}: {what}\n", std::process::id());
    // Nowhere is left to report a failure to.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
