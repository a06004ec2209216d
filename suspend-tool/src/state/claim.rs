//! Who works on which process.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use super::{StateDir, StateError};
use crate::pid::Pid;

/// A sparse file with a slot for every pid there could be.
const FILE: &str = "claims";
/// Bytes of a slot.
const SLOT: u64 = 4;

/// A claim on processes, held until it is dropped. It dies with the command, however that ends: the kernel keeps it, as
/// a lock on the slot of each process. In the slot stands who claimed it last.
#[derive(Debug)]
pub struct Claim {
    _file: File,
}

impl Claim {
    /// Claims all of these processes, or none.
    pub fn on(state: &StateDir, pids: &[Pid]) -> Result<Self, StateError> {
        let file = state.open_file(FILE, OFlags::RDWR | OFlags::CREATE)?;
        let failed = |error| state.system("lock", FILE, error);
        for &pid in pids {
            let slot = u64::from(pid.number().unsigned_abs()) * SLOT;
            if !lock(&file, slot).map_err(failed)? {
                let mut holder = [0; 4];
                file.read_exact_at(&mut holder, slot).map_err(failed)?;
                // Closing the file gives back what was claimed before.
                return Err(StateError::Claimed { pid, holder: u32::from_le_bytes(holder) });
            }
            file.write_all_at(&std::process::id().to_le_bytes(), slot).map_err(failed)?;
        }
        Ok(Self { _file: file })
    }
}

/// Locks a slot. `false` where somebody else has it.
fn lock(file: &File, slot: u64) -> io::Result<bool> {
    let unfit = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let range = libc::flock {
        l_type: libc::F_WRLCK.try_into().map_err(unfit)?,
        l_whence: libc::SEEK_SET.try_into().map_err(unfit)?,
        l_start: slot.try_into().map_err(unfit)?,
        l_len: SLOT.try_into().map_err(unfit)?,
        l_pid: 0,
    };
    // SAFETY: an open descriptor and the structure this command of fcntl takes. Not through std, whose locks are on
    // whole files. A lock of the open file, unlike one of the process, is not lost when somebody closes another
    // descriptor of it.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) };
    if answer == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    #[test]
    fn a_process_is_claimed_once_and_free_after_the_claim() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open_at(folder.path().join("state")).unwrap();
        let first = Claim::on(&state, &[pid(7), pid(8)]).unwrap();
        match Claim::on(&state, &[pid(9), pid(8)]).unwrap_err() {
            StateError::Claimed { pid, holder } => {
                assert_eq!((pid.number(), holder), (8, std::process::id()));
            }
            error => panic!("{error}"),
        }
        // What the refused one had claimed before it met the other is free again.
        drop(Claim::on(&state, &[pid(9)]).unwrap());
        drop(first);
        Claim::on(&state, &[pid(8), pid(i32::MAX)]).unwrap();
    }
}
