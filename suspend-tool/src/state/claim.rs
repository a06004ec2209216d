//! Who works on which process, and who has begun something there.
//!
//! ```text
//!   slot of a process   | pid of the command that claimed it last | run that began something with it last |
//! ```
//!
//! A command that dies may leave somebody behind who undoes what it began: its *rescue*, which is of the same run. However late that
//! comes, it only takes back what nobody else has laid hands on since. Claiming is not beginning: a command that was
//! refused has changed nothing, and takes nothing over.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::str::FromStr;

use rustix::fs::OFlags;
use rustix::rand::GetRandomFlags;
use serde::{Deserialize, Serialize};

use super::{StateDir, StateError};
use crate::pid::Pid;

/// A sparse file with a slot for every pid there could be.
const FILE: &str = "claims";
/// Bytes of a slot: two numbers.
const SLOT: u64 = 16;
/// Where the run is in it.
const RUN: u64 = 8;

/// A run of the command, with the rescue that follows if it dies. No two have the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Run(u64);

impl Run {
    /// A new one.
    pub fn fresh() -> io::Result<Self> {
        let mut number = [0; 8];
        rustix::rand::getrandom(&mut number, GetRandomFlags::empty())?;
        Ok(Self(u64::from_ne_bytes(number)))
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Run {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// A claim on processes, held until it is dropped. It dies with the command, however that ends: the kernel keeps it, as
/// a lock on the slot of each process.
#[derive(Debug)]
pub struct Claim {
    file: File,
    pids: Vec<Pid>,
}

impl Claim {
    /// Claims all of these processes, or none.
    pub fn on(state: &StateDir, pids: &[Pid]) -> Result<Self, StateError> {
        Self::locked(state, pids, libc::F_OFD_SETLK)
    }

    /// Claims all of these processes, each as soon as nobody else has it. For those who come in the order of the
    /// numbers, so that no two wait for each other.
    pub fn in_turn(state: &StateDir, pids: &[Pid]) -> Result<Self, StateError> {
        Self::locked(state, pids, libc::F_OFD_SETLKW)
    }

    fn locked(state: &StateDir, pids: &[Pid], how: libc::c_int) -> Result<Self, StateError> {
        let file = state.open_file(FILE, OFlags::RDWR | OFlags::CREATE)?;
        let failed = |error| state.system("lock", FILE, error);
        for &pid in pids {
            if !lock(&file, slot(pid), how).map_err(failed)? {
                // Where it is not written yet who that is, the process is said to be 0.
                let holder = number(&file, slot(pid)).map_err(failed)?;
                // Closing the file gives back what was claimed before.
                return Err(StateError::Claimed { pid, holder });
            }
            let own = u64::from(std::process::id());
            file.write_all_at(&own.to_le_bytes(), slot(pid)).map_err(failed)?;
        }
        Ok(Self { file, pids: pids.to_vec() })
    }

    /// Who has a claim on this process now. For those who only look: it claims nothing.
    pub fn holder(state: &StateDir, pid: Pid) -> Result<Option<u64>, StateError> {
        let file = match state.open_file(FILE, OFlags::RDONLY) {
            Err(StateError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            file => file?,
        };
        let failed = |error| state.system("look at", FILE, error);
        let is_free = lock(&file, slot(pid), libc::F_OFD_GETLK).map_err(failed)?;
        if is_free { Ok(None) } else { number(&file, slot(pid)).map(Some).map_err(failed) }
    }

    /// Notes that something begins with all of these processes. What another run began is not to be undone from here on.
    pub fn begin(&self, state: &StateDir, run: Run) -> Result<(), StateError> {
        let note = |pid: &Pid| self.file.write_all_at(&run.0.to_le_bytes(), slot(*pid) + RUN);
        self.pids.iter().try_for_each(note).map_err(|error| state.system("write", FILE, error))
    }

    /// The processes with which this run was the last to begin something.
    pub fn begun_by(&self, state: &StateDir, run: Run) -> Result<Vec<Pid>, StateError> {
        let mut begun = Vec::new();
        for &pid in &self.pids {
            let last = number(&self.file, slot(pid) + RUN);
            if last.map_err(|error| state.system("read", FILE, error))? == run.0 {
                begun.push(pid);
            }
        }
        Ok(begun)
    }
}

fn slot(pid: Pid) -> u64 {
    u64::from(pid.number().unsigned_abs()) * SLOT
}

/// A number of the file; 0 where nothing was written yet.
fn number(file: &File, at: u64) -> io::Result<u64> {
    let mut number = [0; 8];
    match file.read_exact_at(&mut number, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        read => read.map(|()| u64::from_le_bytes(number)),
    }
}

/// Locks a slot, or asks whether it could be. `false` where somebody else has it.
fn lock(file: &File, slot: u64, how: libc::c_int) -> io::Result<bool> {
    let unfit = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut range = libc::flock {
        l_type: libc::F_WRLCK.try_into().map_err(unfit)?,
        l_whence: libc::SEEK_SET.try_into().map_err(unfit)?,
        l_start: slot.try_into().map_err(unfit)?,
        l_len: SLOT.try_into().map_err(unfit)?,
        l_pid: 0,
    };
    // SAFETY: an open descriptor and the structure this command of fcntl takes. Not through std, whose locks are on
    // whole files. A lock of the open file, unlike one of the process, is not lost when somebody closes another
    // descriptor of it.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), how, &raw mut range) };
    if answer == 0 {
        // A question is answered in the structure.
        return Ok(how != libc::F_OFD_GETLK || i32::from(range.l_type) == libc::F_UNLCK);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error if error.kind() == io::ErrorKind::Interrupted => lock(file, slot, how),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

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
                assert_eq!((pid.number(), holder), (8, u64::from(std::process::id())));
            }
            error => panic!("{error}"),
        }
        // What the refused one had claimed before it met the other is free again.
        drop(Claim::on(&state, &[pid(9)]).unwrap());
        let holder = |number| Claim::holder(&state, pid(number)).unwrap();
        assert_eq!([holder(7), holder(9)], [Some(u64::from(std::process::id())), None]);
        drop(first);
        assert_eq!(holder(7), None);
        Claim::on(&state, &[pid(8), pid(i32::MAX)]).unwrap();
    }

    #[test]
    fn what_a_run_began_is_its_own_until_another_begins_something() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open_at(folder.path().join("state")).unwrap();
        let (first, second) = (Run::fresh().unwrap(), Run::fresh().unwrap());
        assert_eq!(first.to_string().parse(), Ok(first));
        let claim = Claim::on(&state, &[pid(7), pid(8)]).unwrap();
        assert_eq!(claim.begun_by(&state, first).unwrap(), []);
        claim.begin(&state, first).unwrap();
        drop(claim);
        // Who only claims takes nothing over.
        drop(Claim::on(&state, &[pid(7), pid(8)]).unwrap());
        let claim = Claim::on(&state, &[pid(8), pid(9)]).unwrap();
        assert_eq!(claim.begun_by(&state, first).unwrap(), [pid(8)]);
        claim.begin(&state, second).unwrap();
        drop(claim);
        let claim = Claim::in_turn(&state, &[pid(7), pid(8), pid(9)]).unwrap();
        assert_eq!(claim.begun_by(&state, first).unwrap(), [pid(7)]);
        assert_eq!(claim.begun_by(&state, second).unwrap(), [pid(8), pid(9)]);
    }

    #[test]
    fn who_comes_in_turn_waits_for_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open_at(folder.path().join("state")).unwrap();
        let first = Claim::on(&state, &[pid(7)]).unwrap();
        std::thread::scope(|scope| {
            let (claimed, is_claimed) = std::sync::mpsc::channel();
            let state = &state;
            let second = scope.spawn(move || {
                let claim = Claim::in_turn(state, &[pid(7)]).unwrap();
                claimed.send(claim.begun_by(state, Run(5)).unwrap()).unwrap();
            });
            // The kernel marks who waits for a lock with an arrow.
            let inode = format!(":{} ", first.file.metadata().unwrap().ino());
            let waits = || {
                let locks = std::fs::read_to_string("/proc/locks").unwrap();
                locks.lines().any(|line| line.contains("->") && line.contains(&inode))
            };
            while !waits() {
                assert!(!second.is_finished(), "it has not waited");
            }
            first.begin(state, Run(5)).unwrap();
            drop(first);
            assert_eq!(is_claimed.recv().unwrap(), [pid(7)]);
        });
    }
}
