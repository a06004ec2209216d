//! `run`: a command with the library loaded.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use super::{Exit, Outcome};

const VERB: &str = "run";
/// Names the library where it is not beside this command.
const LIBRARY_VARIABLE: &str = "NVSNAP_GPUSHARE_LIB";
const LIBRARY: &str = "libnvsnap_gpushare.so";
const PRELOAD: &str = "LD_PRELOAD";

/// Replaces this process by the command, so that its status and its signals are its own. Returns only if that fails.
pub(super) fn run(command: &[OsString]) -> Outcome {
    let Some((program, arguments)) = command.split_first() else {
        return Outcome::new(VERB, Exit::Usage, "there is no command to run");
    };
    let library = match find_library() {
        Ok(library) => library,
        Err(text) => return Outcome::new(VERB, Exit::Failed, text),
    };
    let preload = with_library(library.as_os_str(), std::env::var_os(PRELOAD).as_deref());
    let error = std::process::Command::new(program).args(arguments).env(PRELOAD, preload).exec();
    Outcome::new(VERB, Exit::Failed, format!("cannot run {}: {error}", program.display()))
}

/// The library: where the variable says, or beside this command.
fn find_library() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return std::fs::canonicalize(&path)
            .map_err(|error| format!("{LIBRARY_VARIABLE} names {}: {error}", path.display()));
    }
    let own = std::env::current_exe().map_err(|error| format!("this command cannot find itself: {error}"))?;
    let folder = own.parent().map(PathBuf::from).unwrap_or_default();
    let places = [folder.join("../lib").join(LIBRARY), folder.join(LIBRARY)];
    places.iter().find_map(|place| std::fs::canonicalize(place).ok()).ok_or_else(|| {
        format!(
            "{LIBRARY} is not beside this command ({} and {} were looked at): name it in {LIBRARY_VARIABLE}",
            places[0].display(),
            places[1].display()
        )
    })
}

/// The list of libraries to load with ours in it, once. What stands there keeps its order: other libraries may depend
/// on being first.
fn with_library(library: &OsStr, present: Option<&OsStr>) -> OsString {
    let present = present.unwrap_or_default();
    // The loader takes colons and spaces between entries.
    let entries = present.as_encoded_bytes().split(|byte| matches!(byte, b':' | b' '));
    if entries.into_iter().any(|entry| entry == library.as_encoded_bytes()) {
        return present.to_owned();
    }
    let mut list = present.to_owned();
    if !list.is_empty() {
        list.push(":");
    }
    list.push(library);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_joins_those_that_are_there_once() {
        let with = |present: Option<&str>| {
            with_library(OsStr::new("/l/ours.so"), present.map(OsStr::new)).into_string().unwrap()
        };
        assert_eq!(with(None), "/l/ours.so");
        assert_eq!(with(Some("")), "/l/ours.so");
        assert_eq!(with(Some("/a.so:/b.so")), "/a.so:/b.so:/l/ours.so");
        assert_eq!(with(Some("/l/ours.so /b.so")), "/l/ours.so /b.so");
        assert_eq!(with(Some("/l/ours.so.1")), "/l/ours.so.1:/l/ours.so");
    }
}
