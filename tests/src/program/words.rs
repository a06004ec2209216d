//! The words of a line, and how they are read.

use std::ffi::c_int;
use std::str::{FromStr, SplitWhitespace};

use cuda_sys::{AccessFlags, AllocationProp, AllocationType, HandleType, LocationType, MemLocation};

/// The words of a line that are still to be read.
#[derive(Clone, Debug)]
pub(super) struct Words<'l> {
    rest: SplitWhitespace<'l>,
    line: &'l str,
}

impl<'l> Words<'l> {
    pub(super) fn of(line: &'l str) -> Self {
        Self { rest: line.split_whitespace(), line }
    }

    /// The next word, which has to be there.
    pub(super) fn word(&mut self) -> Result<&'l str, String> {
        self.rest.next().ok_or_else(|| format!("`{}` lacks a word", self.line))
    }

    /// The next word, if there is one.
    pub(super) fn next(&mut self) -> Option<&'l str> {
        self.rest.next()
    }

    /// All that is left, as a line of its own.
    pub(super) fn remainder(&mut self) -> String {
        self.rest.by_ref().collect::<Vec<_>>().join(" ")
    }

    /// A number: decimal, or hexadecimal after `0x`, with `K`, `M` or `G` behind it.
    pub(super) fn number(&mut self) -> Result<u64, String> {
        number(self.word()?)
    }

    /// A number that is a size here.
    pub(super) fn size(&mut self) -> Result<usize, String> {
        usize::try_from(self.number()?).map_err(|error| error.to_string())
    }

    /// A whole number of any type.
    pub(super) fn parse<T: FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("{word} is no number that fits"))
    }

    /// A location: `device:0`, `host`, `numa:1`, `numa-current`, or `type:99:0` for what the driver does not know.
    pub(super) fn location(&mut self) -> Result<MemLocation, String> {
        let word = self.word()?;
        let mut parts = word.split(':');
        let kind = match parts.next() {
            Some("device") => LocationType::DEVICE,
            Some("host") => LocationType::HOST,
            Some("numa") => LocationType::HOST_NUMA,
            Some("numa-current") => LocationType::HOST_NUMA_CURRENT,
            Some("type") => LocationType(parts.next().and_then(|part| part.parse().ok()).unwrap_or(0)),
            _ => return Err(format!("{word} is no location")),
        };
        let id: c_int =
            parts.next().map_or(Ok(0), str::parse).map_err(|_| format!("{word} is no location"))?;
        Ok(MemLocation { kind, id })
    }

    /// Rights: `none`, `r`, `rw`, or a number.
    pub(super) fn rights(&mut self) -> Result<AccessFlags, String> {
        match self.word()? {
            "none" => Ok(AccessFlags::NONE),
            "r" => Ok(AccessFlags::READ),
            "rw" => Ok(AccessFlags::READ_WRITE),
            other => other.parse().map(AccessFlags).map_err(|_| format!("{other} are no rights")),
        }
    }

    /// Properties of an allocation: a location, and the handle types: `private`, `fd`, or a number.
    pub(super) fn properties(&mut self) -> Result<AllocationProp, String> {
        let location = self.location()?;
        let requested_handle_types = match self.next() {
            None | Some("private") => HandleType::NONE,
            Some("fd") => HandleType::POSIX_FD,
            Some(other) => HandleType(other.parse().map_err(|_| format!("{other} is no handle type"))?),
        };
        Ok(AllocationProp {
            kind: AllocationType::PINNED,
            requested_handle_types,
            location,
            ..AllocationProp::default()
        })
    }
}

/// A number: decimal, or hexadecimal after `0x`, with `K`, `M` or `G` behind it.
pub(super) fn number(word: &str) -> Result<u64, String> {
    let (digits, shift) = match word.as_bytes().last() {
        Some(b'K') => (word.trim_end_matches('K'), 10),
        Some(b'M') => (word.trim_end_matches('M'), 20),
        Some(b'G') => (word.trim_end_matches('G'), 30),
        _ => (word, 0),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    value.map(|value| value << shift).map_err(|_| format!("{word} is no number"))
}

/// How a location is written.
pub(super) fn location_text(location: MemLocation) -> String {
    match location.kind {
        LocationType::DEVICE => format!("device:{}", location.id),
        LocationType::HOST => "host".to_owned(),
        LocationType::HOST_NUMA => format!("numa:{}", location.id),
        LocationType::HOST_NUMA_CURRENT => "numa-current".to_owned(),
        other => format!("type:{}:{}", other.0, location.id),
    }
}
