//! Reading the lists in the directory of a checkpoint.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{About, ReadListError};
use crate::layer::{Access, FileLayer, Open, System};
use crate::layout::{self, Name};
use crate::lease::read_to_end;
use crate::list::{List, format};

/// A list, and where it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The file.
    pub path: PathBuf,
    /// What it says.
    pub list: List,
}

/// Reads the list of process `pid` in `ckpt_dir`.
pub fn read_list(ckpt_dir: &Path, pid: u32) -> Result<List, ReadListError> {
    read_list_file(&System, &ckpt_dir.join(layout::list_name(pid)))
}

/// Reads all lists in `ckpt_dir`, by name. There may be none.
pub fn read_lists(ckpt_dir: &Path) -> Result<Vec<Listed>, ReadListError> {
    read_lists_on(&System, ckpt_dir)
}

/// [`read_lists`], on a file system of the caller's choice.
pub fn read_lists_on(layer: &dyn FileLayer, ckpt_dir: &Path) -> Result<Vec<Listed>, ReadListError> {
    let mut names = layer.list_dir(ckpt_dir).about("list", ckpt_dir)?;
    names.retain(|name| layout::read_list_name(name) == Name::List);
    names.sort();
    let mut lists = Vec::with_capacity(names.len());
    for path in names.iter().map(|name| ckpt_dir.join(name)) {
        match read_list_file(layer, &path) {
            // Given up since the directory was listed.
            Err(ReadListError::File(error)) if error.source.kind() == io::ErrorKind::NotFound => {}
            list => lists.push(Listed { list: list?, path }),
        }
    }
    Ok(lists)
}

fn read_list_file(layer: &dyn FileLayer, path: &Path) -> Result<List, ReadListError> {
    let file = layer.open(path, Open { access: Access::Read, direct: false }).about("open", path)?;
    let len = file.stat().about("look at", path)?.len;
    if len > format::MOST_BYTES as u64 {
        return Err(ReadListError::Long { path: path.to_owned(), len });
    }
    let bytes = read_to_end(&*file, len).about("read", path)?;
    format::decode(&bytes).map_err(|source| ReadListError::Format { path: path.to_owned(), source })
}
