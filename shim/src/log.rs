//! The log: one line, formatted on the stack, written at once; off unless `NVSNAP_GPUSHARE_LOG` names a place.

/// Writes a line to the log: `log!("pid {pid} asked for {verb}")`.
#[allow(unused_macros, reason = "for the modules below this one")]
macro_rules! log {
    ($($arg:tt)*) => {
        $crate::log::line(format_args!($($arg)*))
    };
}

/// Writes a line to the log. Leaves `errno` as it was.
#[allow(dead_code, reason = "called by the macro")]
pub(crate) fn line(_text: core::fmt::Arguments<'_>) {}
