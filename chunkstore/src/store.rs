//! A store or a cache on disk: opening, making, looking and reading.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::content;
use crate::digest::{Chunk, Digest};
use crate::error::{About, FileError, GetError, OpenError};
use crate::layer::{Access, FileLayer, Open, OpenFile, System};
use crate::layout::{self, Name, Random};
use crate::lease::{Reading, read_to_end};
use crate::place::{self, Taken};
use crate::stats::{Counters, Route, Stats, add};

/// What a directory of chunks is for. Both look the same; what may be removed from them differs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Holds what checkpoints need. A chunk stays while a list names it.
    Store,
    /// Holds copies. A chunk stays while there is room.
    Cache,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "chunk store",
            Self::Cache => "chunk cache",
        })
    }
}

/// A store or a cache. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layer: Arc<dyn FileLayer>,
    root: PathBuf,
    kind: Kind,
    local: bool,
    counters: Counters,
}

/// How often a chunk is looked for while collectors move it about.
const LOOKS: u32 = 16;

const MARKER_START: &str = "nvsnap-gpushare ";

fn marker_text(kind: Kind) -> String {
    format!("{MARKER_START}{kind}, version 1\n")
}

impl Store {
    /// Opens a store or cache that exists.
    pub fn open(root: &Path, kind: Kind) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(System), root, kind)
    }

    /// Opens a store or cache; makes it if the directory is empty or not there.
    pub fn create(root: &Path, kind: Kind) -> Result<Self, OpenError> {
        Self::create_on(Arc::new(System), root, kind)
    }

    /// [`open`](Self::open), on a file system of the caller's choice.
    pub fn open_on(layer: Arc<dyn FileLayer>, root: &Path, kind: Kind) -> Result<Self, OpenError> {
        let root = absolute(root)?;
        if !check_marker(&*layer, &root, kind)? {
            // A directory that is not there at all is another mistake.
            layer.stat(&root).about("find the directory", &root)?;
            return Err(OpenError::NotAStore { path: root, kind });
        }
        Self::new(layer, root, kind)
    }

    /// [`create`](Self::create), on a file system of the caller's choice.
    pub fn create_on(layer: Arc<dyn FileLayer>, root: &Path, kind: Kind) -> Result<Self, OpenError> {
        let root = absolute(root)?;
        place::make_dirs(&*layer, &root)?;
        place::sync_above(&*layer, &root)?;
        if !check_marker(&*layer, &root, kind)? {
            let strangers = layer.list_dir(&root).about("list", &root)?;
            // What a run that was cut short has left is no stranger, nor what a fresh file system has.
            let known = |name: &_| {
                name == "lost+found"
                    || name == layout::MARKER
                    || matches!(layout::read_list_name(name), Name::Temporary(_))
            };
            if !strangers.iter().all(|name| known(name.as_os_str())) {
                return Err(OpenError::NotAStore { path: root, kind });
            }
            let id = Random::new().about("name a file in", &root)?;
            let marker = root.join(layout::MARKER);
            place::place(&*layer, id, &marker, marker_text(kind).as_bytes(), Taken::Keep)?;
            layer.sync_dir(&root).about("sync", &root)?;
            // Somebody else may have been first, and of another mind.
            check_marker(&*layer, &root, kind)?;
        }
        Self::new(layer, root, kind)
    }

    fn new(layer: Arc<dyn FileLayer>, root: PathBuf, kind: Kind) -> Result<Self, OpenError> {
        let local = layer.volume(&root).about("look at the volume of", &root)?.local;
        Ok(Self(Arc::new(Inner { layer, root, kind, local, counters: Counters::default() })))
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// What it is for.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What was done with it since it was opened.
    pub fn stats(&self) -> Stats {
        self.0.counters.read()
    }

    /// Bytes that may still be written there.
    pub fn free_bytes(&self) -> Result<u64, FileError> {
        Ok(self.layer().volume(self.root()).about("look at the volume of", self.root())?.free)
    }

    /// The file of a chunk.
    pub fn path_of(&self, digest: &Digest) -> PathBuf {
        layout::chunk_path(self.root(), digest)
    }

    /// Whether a chunk is there with its length, at this moment. To have it stay, take a
    /// [`Writer`](crate::Writer) or [`Sources`](crate::Sources) and claim it.
    pub fn contains(&self, chunk: &Chunk) -> Result<bool, FileError> {
        let path = self.path_of(&chunk.digest);
        match self.layer().stat(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            stat => {
                let stat = stat.about("look at", &path)?;
                Ok(stat.regular && stat.len == u64::from(chunk.len))
            }
        }
    }

    /// Reads a chunk to the start of `into` and checks that it is what its name says. Direct I/O needs an aligned
    /// `into`, and room behind the chunk up to the next page.
    pub fn get(&self, chunk: &Chunk, into: &mut [u8]) -> Result<Route, GetError> {
        self.read(chunk, into, true)
    }

    /// Reads a chunk and checks its length only. The caller has to check the content.
    pub fn get_unverified(&self, chunk: &Chunk, into: &mut [u8]) -> Result<Route, GetError> {
        self.read(chunk, into, false)
    }

    fn read(&self, chunk: &Chunk, into: &mut [u8], verify: bool) -> Result<Route, GetError> {
        let result = self.read_uncounted(chunk, into, verify);
        match &result {
            Ok(route) => {
                add(&self.counters().read_chunks, 1);
                add(&self.counters().read_bytes, chunk.len.into());
                add(&self.counters().buffered_reads, u64::from(*route == Route::Buffered));
                if self.kind() == Kind::Cache {
                    // The time of last use, by which a cache is emptied. A read-only one is not emptied.
                    let _ = self.layer().touch(&self.path_of(&chunk.digest));
                }
            }
            Err(GetError::Room { .. }) => {}
            Err(_) => add(&self.counters().bad_chunks, 1),
        }
        result
    }

    pub(crate) fn read_uncounted(
        &self,
        chunk: &Chunk,
        into: &mut [u8],
        verify: bool,
    ) -> Result<Route, GetError> {
        let len = usize::try_from(chunk.len).unwrap_or(usize::MAX);
        if into.len() < len {
            return Err(GetError::Room { chunk: *chunk, room: into.len() });
        }
        let (path, file, direct) = self.open_chunk(&chunk.digest)?;
        let stat = file.stat().about("look at", &path)?;
        if !stat.regular || stat.len != u64::from(chunk.len) {
            return Err(GetError::Length { path, expected: chunk.len.into(), found: stat.len });
        }
        let route = match content::read(&*file, direct, into, len) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let found = file.stat().about("look at", &path)?.len;
                return Err(GetError::Length { path, expected: chunk.len.into(), found });
            }
            route => route.about("read", &path)?,
        };
        if verify {
            let found = Digest::of(into.split_at(len).0);
            if found != chunk.digest {
                return Err(GetError::Content { path, found });
            }
        }
        Ok(route)
    }

    fn open_chunk(&self, digest: &Digest) -> Result<(PathBuf, Box<dyn OpenFile>, bool), GetError> {
        let path = self.path_of(digest);
        let mut looks_in_vain = 0;
        // A collector may have set it aside a moment ago and be about to bring it back, or another collector take it
        // over: names change between listing and opening, so one look in vain does not count.
        for _ in 0..LOOKS {
            let mut places = vec![path.clone()];
            if looks_in_vain > 0 {
                places.extend(self.set_aside(digest)?);
            }
            let only_place = places.len() == 1;
            for place in places {
                match self.open_to_read(&place) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(source) => return Err(FileError { action: "open", path: place, source }.into()),
                    Ok((file, direct)) => return Ok((place, file, direct)),
                }
            }
            looks_in_vain += u32::from(only_place);
            if looks_in_vain > 2 {
                break;
            }
        }
        Err(GetError::Missing { path })
    }

    fn open_to_read(&self, path: &Path) -> io::Result<(Box<dyn OpenFile>, bool)> {
        match self.layer().open(path, Open { access: Access::Read, direct: true }) {
            Err(error) if content::refuses_direct(&error) => {
                Ok((self.layer().open(path, Open { access: Access::Read, direct: false })?, false))
            }
            file => Ok((file?, true)),
        }
    }

    fn set_aside(&self, digest: &Digest) -> Result<Vec<PathBuf>, FileError> {
        let dir = layout::fan_dir(self.root(), layout::fan_of(digest));
        let names = match self.layer().list_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names.about("list", &dir)?,
        };
        let of_it = |name: &std::ffi::OsString| layout::read_chunk_name(name) == Name::Dead(*digest);
        Ok(names.iter().filter(|name| of_it(name)).map(|name| dir.join(name)).collect())
    }

    /// Whether a chunk is there, also if a collector has it set aside.
    pub(crate) fn has(&self, chunk: &Chunk) -> bool {
        let found = self.open_chunk(&chunk.digest).ok().and_then(|(_, file, _)| file.stat().ok());
        found.is_some_and(|stat| stat.regular && stat.len == u64::from(chunk.len))
    }

    /// Gives a chunk that is claimed its name back, if a collector has set it aside: the collector may have looked at
    /// the leases before the claim.
    pub(crate) fn bring_back(&self, digest: &Digest) -> Result<(), FileError> {
        let path = self.path_of(digest);
        while !place::exists(self.layer(), &path)? {
            let Some(aside) = self.set_aside(digest)?.pop() else { return Ok(()) };
            match place::publish(self.layer(), &aside, &path, Taken::Keep) {
                // Removed, brought back or taken over in this moment.
                Err(error) if error.source.kind() == io::ErrorKind::NotFound => {}
                placed => return placed.map(|_| ()),
            }
        }
        Ok(())
    }

    pub(crate) fn layer(&self) -> &dyn FileLayer {
        &*self.0.layer
    }

    pub(crate) fn shared_layer(&self) -> &Arc<dyn FileLayer> {
        &self.0.layer
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(crate) fn reading_at(&self, now: std::time::Duration) -> Reading<'_> {
        Reading { layer: self.layer(), root: self.root(), local: self.0.local, now }
    }
}

/// A program may change its directory while a store is open.
fn absolute(root: &Path) -> Result<PathBuf, FileError> {
    std::path::absolute(root).about("make an absolute path of", root)
}

/// Whether the directory bears the marker of `kind`.
fn check_marker(layer: &dyn FileLayer, root: &Path, kind: Kind) -> Result<bool, OpenError> {
    let path = root.join(layout::MARKER);
    let file = match layer.open(&path, Open { access: Access::Read, direct: false }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file.about("open", &path)?,
    };
    // Whatever is longer than this is not of this version.
    let len = file.stat().about("look at", &path)?.len.min(256);
    let mut text = read_to_end(&*file, len).about("read", &path)?;
    text.truncate(256);
    let text = String::from_utf8_lossy(&text);
    let known = marker_text(kind);
    if text == known {
        return Ok(true);
    }
    let other = [Kind::Store, Kind::Cache].into_iter().find(|other| text == marker_text(*other));
    Err(match other {
        Some(found) => OpenError::OtherKind { path: root.to_owned(), wanted: kind, found },
        None => OpenError::Version {
            path: root.to_owned(),
            found: text.trim_end().to_owned(),
            known: known.trim_end().to_owned(),
        },
    })
}
