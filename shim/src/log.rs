//! The log: a line is formatted on the stack and written at once.
//!
//! Off unless `NVSNAP_GPUSHARE_LOG` names a place. A file is opened for each line and closed again, so that no
//! descriptor stays behind in the program.

use core::fmt::{self, Write};

use crate::boundary::Errno;
use crate::config::{self, LogPlace};

/// Writes a line to the log: `log!("{call}: no such allocation")`.
macro_rules! log {
    ($($arg:tt)*) => {
        $crate::log::line(format_args!($($arg)*))
    };
}

/// The longest line.
const LONGEST: usize = 512;

/// Writes a line to the log, if there is one. Leaves `errno` as it was.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    match config::log() {
        LogPlace::Off => {}
        LogPlace::Stderr => complain(text),
        LogPlace::File(path) => {
            let _errno = Errno::save();
            let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOCTTY;
            // SAFETY: a C string.
            let fd = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
            if fd >= 0 {
                write(fd, text);
                // SAFETY: our own descriptor.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// Writes a line to standard error whether or not there is a log: for what a user must see.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _errno = Errno::save();
    write(libc::STDERR_FILENO, text);
}

fn write(fd: libc::c_int, text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    // SAFETY: no preconditions.
    let pid = unsafe { libc::getpid() };
    line.set(format_args!("nvsnap-gpushare[{pid}]: {text}"));
    let bytes = line.terminated();
    // A log that cannot be written is no reason to disturb the program.
    // SAFETY: the buffer's own bytes.
    let _ = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
}

/// Text of bounded length; what does not fit is cut.
#[derive(Debug)]
pub(crate) struct Line {
    /// The text, with a byte to spare for the end of the line.
    bytes: [u8; LONGEST + 1],
    length: usize,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; LONGEST + 1], length: 0 }
    }

    /// Replaces the text.
    pub(crate) fn set(&mut self, text: fmt::Arguments<'_>) {
        self.length = 0;
        // Writing to a `Line` does not fail; an argument's own formatting may, and then what came before it is kept.
        let _ = self.write_fmt(text);
    }

    pub(crate) fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        match str::from_utf8(bytes) {
            Ok(text) => text,
            // Cut within a character.
            Err(error) => {
                bytes.get(..error.valid_up_to()).and_then(|whole| str::from_utf8(whole).ok()).unwrap_or("")
            }
        }
    }

    /// The text with the end of the line; no other line break is left in it.
    fn terminated(&mut self) -> &[u8] {
        for byte in self.bytes.iter_mut().take(self.length).filter(|byte| **byte == b'\n') {
            *byte = b' ';
        }
        if let Some(end) = self.bytes.get_mut(self.length) {
            *end = b'\n';
        }
        self.bytes.get(..=self.length).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LONGEST - self.length;
        for (to, from) in self.bytes.iter_mut().skip(self.length).take(room).zip(text.bytes()) {
            *to = from;
        }
        self.length += text.len().min(room);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_is_cut_where_the_buffer_ends() {
        let mut line = Line::new();
        line.set(format_args!("one\ntwo"));
        assert_eq!(line.terminated(), b"one two\n");
        line.set(format_args!("{}", "é".repeat(LONGEST)));
        assert_eq!(line.as_str().len(), LONGEST);
        line.set(format_args!("x{}", "é".repeat(LONGEST)));
        assert_eq!(line.as_str().len(), LONGEST - 1);
        assert_eq!(line.terminated().len(), LONGEST + 1);
    }
}
