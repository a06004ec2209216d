//! The names inside a store.
//!
//! ```text
//! <root>/nvsnap-chunks                       marks the directory: its kind and version
//! <root>/chunks/<2 digits>/<64 digits>       a chunk under its digest
//! <root>/chunks/<2 digits>/.tmp-L-R          a chunk being written under lease L, R random
//! <root>/chunks/<2 digits>/.dead-L-<64>      a chunk set aside by the collector with lease L
//! <root>/leases/L                            a lease
//! <root>/leases/.tmp-L                       a lease being made
//! <ckpt-dir>/gpu-<pid>.chunks                the list of a checkpoint
//! <ckpt-dir>/.tmp-L-R                        a list being written
//! ```
//!
//! `L` and `R` are 32 digits. Other names are nobody's business here: they are reported and left alone.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::digest::Digest;

pub(crate) const MARKER: &str = "nvsnap-chunks";

/// 128 random bits, as 32 digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Random(u128);

impl Random {
    pub(crate) fn new() -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| match error.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::other(error),
        })?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let valid = text.len() == 32 && text.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        let text = std::str::from_utf8(text).ok().filter(|_| valid)?;
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) fn chunks_dir(root: &Path) -> PathBuf {
    root.join("chunks")
}

/// The directory that holds the chunks whose digest starts with `first`.
pub(crate) fn fan_dir(root: &Path, first: u8) -> PathBuf {
    root.join(format!("chunks/{first:02x}"))
}

pub(crate) fn fan_of(digest: &Digest) -> u8 {
    let [first, ..] = digest.0;
    first
}

pub(crate) fn chunk_path(root: &Path, digest: &Digest) -> PathBuf {
    fan_dir(root, fan_of(digest)).join(digest.to_string())
}

pub(crate) fn dead_path(root: &Path, lease: Random, digest: &Digest) -> PathBuf {
    fan_dir(root, fan_of(digest)).join(format!(".dead-{lease}-{digest}"))
}

pub(crate) fn temporary_name(lease: Random) -> io::Result<String> {
    Ok(format!(".tmp-{lease}-{}", Random::new()?))
}

pub(crate) fn leases_dir(root: &Path) -> PathBuf {
    root.join("leases")
}

pub(crate) fn lease_path(root: &Path, id: Random) -> PathBuf {
    root.join(format!("leases/{id}"))
}

pub(crate) fn new_lease_path(root: &Path, id: Random) -> PathBuf {
    root.join(format!("leases/.tmp-{id}"))
}

/// The name of the list of a process.
pub fn list_name(pid: u32) -> String {
    format!("gpu-{pid}.chunks")
}

/// What a name in a directory of ours stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    Chunk(Digest),
    Dead(Digest),
    /// Being written under this lease.
    Temporary(Random),
    Lease(Random),
    NewLease(Random),
    List,
    Other,
}

pub(crate) fn read_chunk_name(name: &OsStr) -> Name {
    let name = name.as_bytes();
    if let Ok(digest) = Digest::from_hex(name) {
        return Name::Chunk(digest);
    }
    if let Some((_, digest)) = two_parts(name, b".dead-") {
        return Digest::from_hex(digest).map_or(Name::Other, Name::Dead);
    }
    read_temporary_name(name)
}

pub(crate) fn read_lease_name(name: &OsStr) -> Name {
    let name = name.as_bytes();
    match (Random::parse(name), name.strip_prefix(b".tmp-").and_then(Random::parse)) {
        (Some(id), _) => Name::Lease(id),
        (_, Some(id)) => Name::NewLease(id),
        _ => Name::Other,
    }
}

pub(crate) fn read_list_name(name: &OsStr) -> Name {
    let name = name.as_bytes();
    let pid = name.strip_prefix(b"gpu-").and_then(|rest| rest.strip_suffix(b".chunks"));
    if pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit)) {
        return Name::List;
    }
    read_temporary_name(name)
}

fn read_temporary_name(name: &[u8]) -> Name {
    match two_parts(name, b".tmp-") {
        Some((lease, random)) if Random::parse(random).is_some() => Name::Temporary(lease),
        _ => Name::Other,
    }
}

fn two_parts<'a>(name: &'a [u8], prefix: &[u8]) -> Option<(Random, &'a [u8])> {
    let (lease, rest) = name.strip_prefix(prefix)?.split_at_checked(32)?;
    Some((Random::parse(lease)?, rest.strip_prefix(b"-")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_what_it_was_made_for() {
        let root = Path::new("/s");
        let (lease, digest) = (Random::new().unwrap(), Digest::of(b"x"));
        let name = |path: PathBuf| path.file_name().unwrap().to_owned();
        assert_eq!(read_chunk_name(&name(chunk_path(root, &digest))), Name::Chunk(digest));
        assert_eq!(read_chunk_name(&name(dead_path(root, lease, &digest))), Name::Dead(digest));
        let temporary = temporary_name(lease).unwrap();
        assert_eq!(read_chunk_name(temporary.as_ref()), Name::Temporary(lease));
        assert_eq!(read_list_name(temporary.as_ref()), Name::Temporary(lease));
        assert_eq!(read_list_name(list_name(4711).as_ref()), Name::List);
        assert_eq!(read_lease_name(&name(lease_path(root, lease))), Name::Lease(lease));
        assert_eq!(read_lease_name(&name(new_lease_path(root, lease))), Name::NewLease(lease));
    }

    #[test]
    fn other_names_are_other() {
        let plus = "+1234567890123456789012345678901";
        for name in ["", "x", ".tmp-", ".tmp-1-2", ".dead-", "gpu-.chunks", "gpu-1.chunks.bak", plus] {
            let name = OsStr::new(name);
            assert_eq!(read_chunk_name(name), Name::Other);
            assert_eq!(read_lease_name(name), Name::Other);
            assert_eq!(read_list_name(name), Name::Other);
        }
    }
}
