//! The state directory.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::pid::Pid;

/// Names another directory than the usual one.
pub const DIRECTORY_VARIABLE: &str = "NVSNAP_GPU_SUSPEND_DIR";
/// The usual one.
const USUAL: &str = "/tmp/nvsnap-gpu-suspend";

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is not what it has to be.
    #[error(
        "{path} {wrong}: it has to be a real directory of user {user} with mode 0700; remove it, or name another one \
         in {DIRECTORY_VARIABLE}"
    )]
    Unfit {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        wrong: String,
        /// Whose it should be.
        user: u32,
    },
    /// The system refused something.
    #[error("cannot {what} {path}")]
    System {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A file in it does not look as it should.
    #[error("{path} cannot be understood and is passed over: remove it")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Another command works on the process.
    #[error("another nvsnap-gpu-suspend (process {holder}) works on process {pid}: wait for it to end")]
    Claimed {
        /// The process.
        pid: Pid,
        /// The other command.
        holder: u64,
    },
}

/// The open state directory.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    dir: OwnedFd,
}

impl StateDir {
    /// Opens the directory that the environment names, or the usual one; makes it if it is not there.
    pub fn open() -> Result<Self, StateError> {
        Self::open_at(named())
    }

    /// Opens this directory; makes it if it is not there.
    pub fn open_at(path: impl Into<PathBuf>) -> Result<Self, StateError> {
        let path = path.into();
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Self::existing(path),
            Err(errno) => Err(system("make", &path, errno)),
        }
    }

    /// Opens this directory, or the one that the environment names, or the usual one, and makes none: for those who only
    /// look.
    pub fn find(path: Option<&Path>) -> Result<Self, StateError> {
        Self::existing(path.map_or_else(named, Path::to_path_buf))
    }

    fn existing(path: PathBuf) -> Result<Self, StateError> {
        let user = rustix::process::geteuid().as_raw();
        let unfit = |wrong: String| StateError::Unfit { path: path.clone(), wrong, user };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(unfit("is a symbolic link or no directory".into()));
            }
            Err(Errno::ACCESS) => return Err(unfit("may not be opened".into())),
            Err(errno) => return Err(system("open", &path, errno)),
        };
        let facts = rustix::fs::fstat(&dir).map_err(|errno| system("look at", &path, errno))?;
        if facts.st_uid != user {
            return Err(unfit(format!("belongs to user {}", facts.st_uid)));
        }
        if facts.st_mode & 0o7777 != 0o700 {
            return Err(unfit(format!("has mode {:04o}", facts.st_mode & 0o7777)));
        }
        Ok(Self { path, dir })
    }

    /// Where a file of it is.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn system(&self, what: &'static str, name: &str, source: impl Into<io::Error>) -> StateError {
        StateError::System { what, path: self.path_of(name), source: source.into() }
    }

    /// Opens a file in it, which has to be a plain file.
    pub(super) fn open_file(&self, name: &str, flags: OFlags) -> Result<File, StateError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| self.system("open", name, errno))?;
        let facts = rustix::fs::fstat(&file).map_err(|errno| self.system("look at", name, errno))?;
        if FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile {
            Ok(File::from(file))
        } else {
            Err(self.system("use", name, io::Error::other("not a plain file")))
        }
    }

    /// Opens a file for words that are put behind those that are there; and says where it is. One of more than `most`
    /// bytes is begun anew.
    pub(crate) fn log(&self, name: &str, most: u64) -> Result<(File, PathBuf), StateError> {
        let file = self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)?;
        let begun =
            file.metadata().and_then(|about| if about.len() > most { file.set_len(0) } else { Ok(()) });
        begun.map_err(|error| self.system("look at", name, error))?;
        Ok((file, self.path_of(name)))
    }

    /// Writes a file whole: after a crash it is as before, or as it should be.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let fresh = format!("{name}.new-{}", std::process::id());
        // What a command of this number left behind when it died.
        self.remove(&fresh)?;
        let mut file = self.open_file(&fresh, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let placed = written.map_err(|error| self.system("write", &fresh, error)).and_then(|()| {
            rustix::fs::renameat(&self.dir, &fresh, &self.dir, name)
                .map_err(|errno| self.system("rename", &fresh, errno))
        });
        if placed.is_err() {
            // What is in the way of it now is the cause that was found.
            let _ = self.remove(&fresh);
        }
        placed?;
        rustix::fs::fsync(&self.dir).map_err(|errno| self.system("sync", "", errno))
    }

    /// Reads a file whole; `None` where there is none.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        let mut file = match self.open_file(name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(StateError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| self.system("read", name, error))?;
        Ok(Some(bytes))
    }

    /// Removes a file; one that is not there is removed already.
    pub(super) fn remove(&self, name: &str) -> Result<(), StateError> {
        match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.system("remove", name, errno)),
        }
    }

    /// The names of the files in it.
    pub(super) fn names(&self) -> Result<Vec<String>, StateError> {
        let entries = Dir::read_from(&self.dir).map_err(|errno| self.system("list", "", errno))?;
        let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
        Ok(names.filter_map(|name| OsString::from_vec(name).into_string().ok()).collect())
    }
}

/// The directory that the environment names, or the usual one.
fn named() -> PathBuf {
    let path = std::env::var_os(DIRECTORY_VARIABLE).filter(|path| !path.is_empty());
    path.map_or_else(|| PathBuf::from(USUAL), PathBuf::from)
}

fn system(what: &'static str, path: &Path, errno: Errno) -> StateError {
    StateError::System { what, path: path.to_path_buf(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn refused(path: &Path) -> String {
        match StateDir::open_at(path).unwrap_err() {
            StateError::Unfit { wrong, .. } => wrong,
            error => panic!("{error}"),
        }
    }

    #[test]
    fn it_is_made_for_its_user_alone_and_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let state = StateDir::open_at(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
        state.write("a", b"one").unwrap();
        state.write("a", b"two").unwrap();
        let again = StateDir::open_at(&path).unwrap();
        assert_eq!(again.read("a").unwrap().unwrap(), b"two");
        assert_eq!(again.read("b").unwrap(), None);
        assert_eq!(std::fs::metadata(path.join("a")).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(again.names().unwrap().iter().filter(|name| name.starts_with('a')).count(), 1);
        again.remove("a").unwrap();
        again.remove("a").unwrap();
        assert_eq!(again.read("a").unwrap(), None);
    }

    #[test]
    fn words_are_put_behind_those_that_are_there_until_they_are_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open_at(folder.path().join("state")).unwrap();
        let say = |words: &str| {
            let (mut file, path) = state.log("log", 8).unwrap();
            file.write_all(words.as_bytes()).unwrap();
            std::fs::read_to_string(path).unwrap()
        };
        assert_eq!(say("12345"), "12345");
        assert_eq!(say("6789"), "123456789");
        assert_eq!(say("new"), "new");
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open_at(folder.path().join("state")).unwrap();
        // A file cannot take the place of a directory.
        std::fs::create_dir(folder.path().join("state/a")).unwrap();
        assert!(state.write("a", b"one").is_err());
        assert!(!state.names().unwrap().iter().any(|name| name.starts_with("a.")));
    }

    #[test]
    fn a_link_a_file_and_an_open_directory_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        StateDir::open_at(&real).unwrap();
        let link = folder.path().join("link");
        symlink(&real, &link).unwrap();
        assert!(refused(&link).contains("symbolic link"));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(refused(&file).contains("no directory"));
        std::fs::set_permissions(&real, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(refused(&real).contains("mode 0755"));
        std::fs::set_permissions(&real, PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(refused(&real).contains("mode 1777"));
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused() {
        if rustix::process::geteuid().is_root() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("state");
            StateDir::open_at(&path).unwrap();
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert!(refused(&path).contains("user 12345"));
        }
    }

    #[test]
    fn nothing_is_read_or_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        std::fs::write(&outside, "untouched").unwrap();
        let path = folder.path().join("state");
        let state = StateDir::open_at(&path).unwrap();
        symlink(&outside, path.join("a")).unwrap();
        assert!(state.read("a").is_err());
        state.write("a", b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "untouched");
        assert_eq!(state.read("a").unwrap().unwrap(), b"new");
    }
}
