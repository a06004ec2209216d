//! Moving the whole content of a file, past the page cache where that is possible.
//!
//! `O_DIRECT` may be refused when the file is opened, at any read or write, or because memory, offset or length do
//! not fit what the file system wants. Each refusal sends the rest of this one file through the page cache. An odd
//! tail goes through it always. The answer says which way the bytes went.

use std::io;

use rustix::io::Errno;

use crate::layer::OpenFile;
use crate::stats::Route;

/// Whether a call that was to go past the page cache failed because of that.
pub(crate) fn refuses_direct(error: &io::Error) -> bool {
    let refusals = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOTSUP, Errno::PERM];
    Errno::from_io_error(error).is_some_and(|errno| refusals.contains(&errno))
}

fn interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

/// How one file is moved.
#[derive(Debug)]
struct Way {
    align: usize,
    direct: bool,
    route: Route,
}

impl Way {
    fn new(file: &dyn OpenFile, opened_direct: bool) -> Self {
        let align = if opened_direct { file.direct_alignment() } else { 1 };
        let route = if opened_direct { Route::Direct } else { Route::Buffered };
        Self { align, direct: opened_direct, route }
    }

    /// Looks whether direct I/O takes this memory.
    fn consider(&mut self, file: &dyn OpenFile, memory: *const u8) -> io::Result<()> {
        if self.direct && memory.align_offset(self.align) != 0 { self.refuse(file) } else { Ok(()) }
    }

    /// Sends the rest through the page cache since direct I/O was refused.
    fn refuse(&mut self, file: &dyn OpenFile) -> io::Result<()> {
        self.route = Route::Buffered;
        self.leave(file)
    }

    /// Sends the rest through the page cache.
    fn leave(&mut self, file: &dyn OpenFile) -> io::Result<()> {
        file.set_buffered()?;
        self.direct = false;
        Ok(())
    }

    /// Looks at how a call went; `None` has it tried again.
    fn moved(&mut self, file: &dyn OpenFile, result: io::Result<usize>) -> io::Result<Option<usize>> {
        match result {
            Ok(moved) => Ok(Some(moved)),
            Err(error) if interrupted(&error) => Ok(None),
            Err(error) if self.direct && refuses_direct(&error) => self.refuse(file).map(|()| None),
            Err(error) => Err(error),
        }
    }
}

/// A file that is written from its start.
#[derive(Debug)]
pub(crate) struct Writing {
    file: Box<dyn OpenFile>,
    way: Way,
    /// Bytes that it has.
    len: u64,
}

impl Writing {
    pub(crate) fn new(file: Box<dyn OpenFile>, opened_direct: bool) -> Self {
        let way = Way::new(&*file, opened_direct);
        Self { file, way, len: 0 }
    }

    /// Writes `bytes` behind what is there. What is not a multiple of the alignment sends all that follows through the
    /// page cache.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { file, way, len } = self;
        way.consider(&**file, bytes.as_ptr())?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut amount = rest.len();
            if way.direct {
                amount -= amount % way.align;
                // The tail; or what a short write left at an odd offset.
                if amount == 0 || *len % widen(way.align) != 0 {
                    way.leave(&**file)?;
                    amount = rest.len();
                }
            }
            let result = file.write_at(rest.split_at(amount).0, *len);
            if let Some(written) = way.moved(&**file, result)? {
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                rest = rest.get(written..).unwrap_or_default();
                *len += widen(written);
            }
        }
        Ok(())
    }

    /// Makes it durable, and says which way it went.
    pub(crate) fn sync(&self) -> io::Result<Route> {
        self.file.sync_data().map(|()| self.way.route)
    }

    /// Bytes that it has.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

/// Fills `into` up to `len` from the start of `file`, which has that many bytes. With room to spare in `into` the
/// tail need not go through the page cache.
pub(crate) fn read(
    file: &dyn OpenFile,
    opened_direct: bool,
    into: &mut [u8],
    len: usize,
) -> io::Result<Route> {
    let mut way = Way::new(file, opened_direct);
    way.consider(file, into.as_ptr())?;
    let mut done = 0;
    while done < len {
        let mut end = len;
        if way.direct {
            let room = into.len() - into.len() % way.align;
            end = len.next_multiple_of(way.align).min(room);
            if end <= done || done % way.align != 0 {
                way.leave(file)?;
                end = len;
            }
        }
        let Some(part) = into.get_mut(done..end) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let result = file.read_at(part, widen(done));
        if let Some(read) = way.moved(file, result)? {
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += read;
        }
    }
    Ok(way.route)
}

/// Every length in memory fits.
fn widen(amount: usize) -> u64 {
    amount as u64
}
