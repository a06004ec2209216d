//! Memory of the GPU that a device has pinned behind our back.
//!
//! GDRCopy maps pages of the GPU into the program. They are the old memory's pages: what is mapped at the same address after a
//! resume is other memory, and the program's window shows memory that belongs to nobody or to somebody else.

use protocol::{Blocker, BlockerKind};

use crate::config;

const GDRCOPY: &str = "/dev/gdrdrv";

/// What stands in the way of a suspend, unless the environment says that the program sees to it.
pub(super) fn blocker(maps: &str) -> Option<Blocker> {
    if config::gdrcopy() { None } else { windows(maps) }
}

fn windows(maps: &str) -> Option<Blocker> {
    let mut windows = maps.lines().filter(|line| line.split_ascii_whitespace().nth(5) == Some(GDRCOPY));
    let first = windows.next()?.split_ascii_whitespace().next().unwrap_or_default();
    let count = 1 + u64::try_from(windows.count()).unwrap_or(u64::MAX - 1);
    Some(Blocker { kind: BlockerKind::Pinned, count, example: format!("{GDRCOPY} at {first}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_gdrcopy_are_counted_and_nothing_else() {
        let maps = "7f0000000000-7f0000010000 rw-s 00000000 00:06 712   /dev/gdrdrv\n\
                    7f0000020000-7f0000030000 rw-s 00000000 00:06 700   /dev/nvidiactl\n\
                    7f0000040000-7f0000050000 rw-s 00100000 00:06 712   /dev/gdrdrv\n\
                    7f0000060000-7f0000070000 rw-p 00000000 00:00 0\n";
        let blocker = windows(maps).expect("two windows");
        assert_eq!((blocker.kind, blocker.count), (BlockerKind::Pinned, 2));
        assert_eq!(blocker.example, "/dev/gdrdrv at 7f0000000000-7f0000010000");
        assert_eq!(windows("7f0000060000-7f0000070000 r--p 00000000 08:01 1  /home/gdrdrv\n"), None);
    }
}
