//! The call log of the stand-in driver: one line per call of a process, in order.

use std::path::Path;

use anyhow::{Context, Result};

/// One driver call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The thread that made it.
    pub thread: i32,
    /// The function.
    pub name: String,
    /// Its arguments as logged.
    pub arguments: String,
    /// The driver's number, 0 for success.
    pub result: u32,
}

/// Reads the log of `pid` below `folder`. A process that made no call has none.
pub(crate) fn read_calls(folder: &Path, pid: i32) -> Result<Vec<Call>> {
    let path = folder.join(format!("calls.{pid}"));
    match std::fs::read_to_string(&path) {
        Ok(text) => text.lines().map(parse).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// A line reads `seq tid name(args) = result`.
fn parse(line: &str) -> Result<Call> {
    let call = || {
        let (_, rest) = line.split_once(' ')?;
        let (thread, rest) = rest.split_once(' ')?;
        let (name, rest) = rest.split_once('(')?;
        let (arguments, result) = rest.rsplit_once(") = ")?;
        let result = result.split_whitespace().next()?.parse().ok()?;
        Some(Call { thread: thread.parse().ok()?, name: name.into(), arguments: arguments.into(), result })
    };
    call().with_context(|| format!("not a line of a call log: {line}"))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_line_of_the_log_is_taken_apart() {
        let call = parse("12 4711 cuMemMap(0x7f00, 2097152, 0, 0x10, 0) = 0").expect("a line");
        assert_eq!((call.thread, call.name.as_str(), call.result), (4711, "cuMemMap", 0));
        assert_eq!(call.arguments, "0x7f00, 2097152, 0, 0x10, 0");
        assert!(parse("cuMemMap").is_err());
    }
}
