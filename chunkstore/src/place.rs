//! Putting a file in its place: under a temporary name first, durable, then renamed.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::content::{self, Writing};
use crate::error::{About, FileError};
use crate::layer::{Access, FileLayer, Open, Rename};
use crate::layout::{self, Random};
use crate::stats::Route;

/// What happens when the place is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// The new file takes it.
    Replace,
    /// The file in place stays.
    Keep,
}

/// A file under a temporary name. Dropped before it got its own, it is gone.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    layer: &'a dyn FileLayer,
    path: PathBuf,
    writing: Writing,
    is_placed: bool,
}

impl<'a> Draft<'a> {
    /// An empty one, in the directory of what it is going to be.
    pub(crate) fn new(layer: &'a dyn FileLayer, lease: Random, to: &Path) -> Result<Self, FileError> {
        let dir = to.parent().unwrap_or(to);
        let mut path = dir.join(layout::temporary_name(lease).about("name a file in", dir)?);
        let direct = Open { access: Access::Create, direct: true };
        let (file, opened_direct) = match layer.open(&path, direct) {
            Err(error) if content::refuses_direct(&error) => {
                // Some file systems create the file before they refuse. The name is ours, so this harms nobody.
                let _ = layer.unlink(&path);
                path = dir.join(layout::temporary_name(lease).about("name a file in", dir)?);
                let buffered = Open { access: Access::Create, direct: false };
                (layer.open(&path, buffered).about("create", &path)?, false)
            }
            file => (file.about("create", &path)?, true),
        };
        Ok(Self { layer, path, writing: Writing::new(file, opened_direct), is_placed: false })
    }

    /// Writes `bytes` behind what it has.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.writing.append(bytes).about("write", &self.path)
    }

    /// Bytes that it has.
    pub(crate) fn len(&self) -> u64 {
        self.writing.len()
    }

    /// Makes its bytes durable, and says which way they went.
    pub(crate) fn sync(&self) -> Result<Route, FileError> {
        self.writing.sync().about("sync", &self.path)
    }

    /// Gives it the name `to`, which is in the directory that it was made for. False where that was taken. The
    /// directory is not synced.
    pub(crate) fn place(&mut self, to: &Path, taken: Taken) -> Result<bool, FileError> {
        self.is_placed = publish(self.layer, &self.path, to, taken)?;
        Ok(self.is_placed)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            // Whatever went wrong is told already, and a collector sweeps what cannot be removed.
            let _ = self.layer.unlink(&self.path);
        }
    }
}

/// Writes a file under a temporary name, syncs it and gives it the name `to`. `None` where that was taken. Whatever
/// fails, no temporary file is left and nothing else was touched.
///
/// The directory is not synced.
pub(crate) fn place(
    layer: &dyn FileLayer,
    lease: Random,
    to: &Path,
    bytes: &[u8],
    taken: Taken,
) -> Result<Option<Route>, FileError> {
    let mut draft = Draft::new(layer, lease, to)?;
    draft.append(bytes)?;
    let route = draft.sync()?;
    Ok(draft.place(to, taken)?.then_some(route))
}

/// Gives a file its name. False where the name was taken and has stayed what it was.
pub(crate) fn publish(
    layer: &dyn FileLayer,
    from: &Path,
    to: &Path,
    taken: Taken,
) -> Result<bool, FileError> {
    if taken == Taken::Replace {
        return layer.rename(from, to, Rename::Replace).about("put in place", to).map(|()| true);
    }
    match layer.rename(from, to, Rename::Keep) {
        Err(error) if lacks(&error, &[Errno::EXIST]) => Ok(false),
        // Not every file system can rename without replacing; nearly every one can make a second name.
        Err(error) if lacks(&error, &[Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP]) => {
            publish_by_link(layer, from, to)
        }
        renamed => renamed.about("put in place", to).map(|()| true),
    }
}

fn publish_by_link(layer: &dyn FileLayer, from: &Path, to: &Path) -> Result<bool, FileError> {
    let refusals = [Errno::PERM, Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::MLINK];
    match layer.link(from, to) {
        Err(error) if lacks(&error, &[Errno::EXIST]) => Ok(false),
        Err(error) if lacks(&error, &refusals) => {
            // Between look and rename somebody may put a file there. It has the same bytes as this one: names are
            // digests, and whoever else comes by here has checked them.
            if exists(layer, to)? {
                return Ok(false);
            }
            layer.rename(from, to, Rename::Replace).about("put in place", to).map(|()| true)
        }
        linked => {
            linked.about("put in place", to)?;
            // The file has its name; a second one that stays is swept later.
            let _ = layer.unlink(from);
            Ok(true)
        }
    }
}

fn lacks(error: &io::Error, errnos: &[Errno]) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| errnos.contains(&errno))
}

/// Whether anything is at `path`.
pub(crate) fn exists(layer: &dyn FileLayer, path: &Path) -> Result<bool, FileError> {
    match layer.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found.about("look at", path).map(|_| true),
    }
}

/// Makes a directory, if it is not there.
pub(crate) fn make_dir(layer: &dyn FileLayer, path: &Path) -> Result<(), FileError> {
    match layer.make_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // What is there need not be made, whatever else stands in the way of making it.
        Err(error) if lacks(&error, &[Errno::ROFS, Errno::ACCESS, Errno::PERM]) => match layer.stat(path) {
            Ok(_) => Ok(()),
            Err(_) => Err(error).about("make the directory", path),
        },
        made => made.about("make the directory", path),
    }
}

/// Makes a directory and those above it that are missing, all of them durable.
pub(crate) fn make_dirs(layer: &dyn FileLayer, path: &Path) -> Result<(), FileError> {
    if exists(layer, path)? {
        return Ok(());
    }
    match path.parent() {
        Some(above) if above != Path::new("") => {
            make_dirs(layer, above)?;
            make_dir(layer, path)?;
            layer.sync_dir(above).about("sync", above)
        }
        _ => make_dir(layer, path),
    }
}

/// Makes the name of `dir` itself durable: somebody else may have made it a moment ago.
pub(crate) fn sync_above(layer: &dyn FileLayer, dir: &Path) -> Result<(), FileError> {
    let Some(above) = dir.parent() else { return Ok(()) };
    match layer.sync_dir(above) {
        // Who may not look into the directory above did not make this one there.
        Err(error) if lacks(&error, &[Errno::ACCESS, Errno::PERM]) => Ok(()),
        synced => synced.about("sync", above),
    }
}
