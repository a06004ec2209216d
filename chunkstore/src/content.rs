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

/// One file on its way.
struct Way<'a> {
    file: &'a dyn OpenFile,
    align: usize,
    direct: bool,
    route: Route,
}

impl<'a> Way<'a> {
    fn new(file: &'a dyn OpenFile, opened_direct: bool, memory: *const u8) -> io::Result<Self> {
        let align = if opened_direct { file.direct_alignment() } else { 1 };
        let route = if opened_direct { Route::Direct } else { Route::Buffered };
        let mut way = Self { file, align, direct: opened_direct, route };
        if opened_direct && memory.align_offset(align) != 0 {
            way.refuse()?;
        }
        Ok(way)
    }

    /// Sends the rest through the page cache since direct I/O was refused.
    fn refuse(&mut self) -> io::Result<()> {
        self.route = Route::Buffered;
        self.leave()
    }

    /// Sends the rest through the page cache.
    fn leave(&mut self) -> io::Result<()> {
        self.file.set_buffered()?;
        self.direct = false;
        Ok(())
    }

    /// Looks at how a call went; `None` has it tried again.
    fn moved(&mut self, result: io::Result<usize>) -> io::Result<Option<usize>> {
        match result {
            Ok(moved) => Ok(Some(moved)),
            Err(error) if interrupted(&error) => Ok(None),
            Err(error) if self.direct && refuses_direct(&error) => self.refuse().map(|()| None),
            Err(error) => Err(error),
        }
    }
}

/// Writes `bytes` from the start of `file`.
pub(crate) fn write(file: &dyn OpenFile, opened_direct: bool, bytes: &[u8]) -> io::Result<Route> {
    let mut way = Way::new(file, opened_direct, bytes.as_ptr())?;
    let mut rest = bytes;
    let mut offset = 0;
    while !rest.is_empty() {
        let mut amount = rest.len();
        if way.direct {
            amount -= amount % way.align;
            // The tail; or what a short write left at an odd offset.
            if amount == 0 || offset % widen(way.align) != 0 {
                way.leave()?;
                amount = rest.len();
            }
        }
        let result = file.write_at(rest.split_at(amount).0, offset);
        if let Some(written) = way.moved(result)? {
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = rest.get(written..).unwrap_or_default();
            offset += widen(written);
        }
    }
    Ok(way.route)
}

/// Fills `into` up to `len` from the start of `file`, which has that many bytes. With room to spare in `into` the
/// tail need not go through the page cache.
pub(crate) fn read(
    file: &dyn OpenFile,
    opened_direct: bool,
    into: &mut [u8],
    len: usize,
) -> io::Result<Route> {
    let mut way = Way::new(file, opened_direct, into.as_ptr())?;
    let mut done = 0;
    while done < len {
        let mut end = len;
        if way.direct {
            let room = into.len() - into.len() % way.align;
            end = len.next_multiple_of(way.align).min(room);
            if end <= done || done % way.align != 0 {
                way.leave()?;
                end = len;
            }
        }
        let Some(part) = into.get_mut(done..end) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let result = file.read_at(part, widen(done));
        if let Some(read) = way.moved(result)? {
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
