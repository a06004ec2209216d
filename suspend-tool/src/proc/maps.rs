//! `/proc/<pid>/maps`: which of the libraries that concern us are in a process.

/// The shim's file name.
const SHIM: &str = "libnvsnap_gpushare.so";

/// What the maps of a process say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Maps {
    /// The driver's library is loaded.
    pub libcuda: bool,
    /// A device of the driver is mapped.
    pub device: bool,
    /// The files of the shim that are loaded, without the mark of deletion.
    pub shims: Vec<String>,
    /// A file of the shim has been replaced or deleted since it was loaded.
    pub shim_deleted: bool,
    /// A probe of the kernel is set somewhere in the process.
    pub probed: bool,
}

impl Maps {
    /// Whether the shim is loaded.
    pub fn has_shim(&self) -> bool {
        !self.shims.is_empty()
    }

    /// Parses the file.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut maps = Self::default();
        for line in text.lines() {
            // address, permissions, offset, device, inode, then the path with all its spaces.
            let Some(path) = path_of(line) else { continue };
            if path == "[uprobes]" {
                maps.probed = true;
                continue;
            }
            let (path, deleted) = match path.strip_suffix(" (deleted)") {
                Some(path) => (path, true),
                None => (path, false),
            };
            let name = path.rsplit('/').next().unwrap_or(path);
            if name.starts_with("libcuda.so") {
                maps.libcuda = true;
            } else if path.starts_with("/dev/nvidia") {
                maps.device = true;
            } else if name.starts_with(SHIM) {
                maps.shim_deleted |= deleted;
                if !maps.shims.iter().any(|known| known == path) {
                    maps.shims.push(path.to_owned());
                }
            }
        }
        maps
    }
}

fn path_of(line: &str) -> Option<&str> {
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.trim_start_matches(' ');
        rest = rest.get(rest.find(' ')?..)?;
    }
    let path = rest.trim_start_matches(' ');
    (!path.is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0a0000000-55d0a0001000 r-xp 00000000 08:01 131      /usr/bin/python3.11
7f0000000000-7f0000100000 r-xp 00001000 08:01 1234     /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
7f0000200000-7f0000300000 r--p 00000000 08:01 77       /opt/a b/lib/libnvsnap_gpushare.so
7f0000300000-7f0000400000 r-xp 00001000 08:01 77       /opt/a b/lib/libnvsnap_gpushare.so
7f0000500000-7f0000600000 rw-s 00000000 00:05 9        /dev/nvidiactl
7f0000700000-7f0000701000 rw-p 00000000 00:00 0 
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0        [stack]
";

    #[test]
    fn libraries_are_recognised_by_their_file_names() {
        let maps = Maps::parse(MAPS.as_bytes());
        assert_eq!(
            maps,
            Maps {
                libcuda: true,
                device: true,
                shims: vec!["/opt/a b/lib/libnvsnap_gpushare.so".into()],
                shim_deleted: false,
                probed: false,
            }
        );
    }

    #[test]
    fn a_deleted_shim_and_probes_are_seen() {
        let text =
            "7f0-7f1 r-xp 0 08:01 77 /x/libnvsnap_gpushare.so (deleted)\n7f2-7f3 --xp 0 00:00 0 [uprobes]\n";
        let maps = Maps::parse(text.as_bytes());
        assert!(maps.has_shim() && maps.shim_deleted && maps.probed);
        assert!(!maps.libcuda && !maps.device);
    }

    #[test]
    fn a_library_of_a_similar_name_is_not_the_driver() {
        let text = "7f0-7f1 r-xp 0 08:01 77 /x/libcudart.so.12\n7f0-7f1 r-xp 0 08:01 77 /x/mylibcuda.so.1\n";
        assert_eq!(Maps::parse(text.as_bytes()), Maps::default());
    }
}
