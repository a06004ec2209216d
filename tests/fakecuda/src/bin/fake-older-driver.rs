//! Makes an older driver: a copy of the stand-in's library that does not export certain functions.
//!
//! `fake-older-driver LIBRARY COPY NAME,NAME...` In the copy the named symbols are weak and undefined: `dlsym` does not find them, and
//! programs linked against them find null. `FAKECUDA_WITHOUT` does the same for the resolver; an older driver needs both.

use std::process::ExitCode;

use object::Endianness;
use object::elf::{FileHeader64, STB_WEAK};
use object::read::elf::{FileHeader, Sym};

/// Size of a symbol in the table, and where its parts are.
const SYMBOL: usize = 24;
const INFO: usize = 4;
const SECTION_AND_VALUE: std::ops::Range<usize> = 6..SYMBOL;

/// Where in the file the symbols with these names stand.
fn places(library: &[u8], names: &[&str]) -> Result<Vec<usize>, String> {
    let header = FileHeader64::<Endianness>::parse(library).map_err(|error| error.to_string())?;
    let endian = header.endian().map_err(|error| error.to_string())?;
    let sections = header.sections(endian, library).map_err(|error| error.to_string())?;
    let symbols =
        sections.symbols(endian, library, object::elf::SHT_DYNSYM).map_err(|error| error.to_string())?;
    let table = sections.section(symbols.section()).map_err(|error| error.to_string())?;
    let start = usize::try_from(table.sh_offset.get(endian)).map_err(|error| error.to_string())?;
    let mut places = Vec::new();
    for name in names {
        let at = symbols
            .iter()
            .position(|symbol| symbol.name(endian, symbols.strings()) == Ok(name.as_bytes()))
            .ok_or_else(|| format!("the library does not export {name}"))?;
        places.push(start + at * SYMBOL);
    }
    Ok(places)
}

fn without(mut library: Vec<u8>, names: &[&str]) -> Result<Vec<u8>, String> {
    for place in places(&library, names)? {
        let symbol = library.get_mut(place..place + SYMBOL).ok_or("the symbol table is cut off")?;
        if let Some(info) = symbol.get_mut(INFO) {
            *info = STB_WEAK.0 << 4 | *info & 0xf;
        }
        if let Some(rest) = symbol.get_mut(SECTION_AND_VALUE) {
            rest.fill(0);
        }
    }
    Ok(library)
}

fn make(library: &str, copy: &str, names: &str) -> Result<(), String> {
    let names: Vec<&str> = names.split(',').filter(|name| !name.is_empty()).collect();
    let bytes = std::fs::read(library).map_err(|error| format!("{library}: {error}"))?;
    let bytes = without(bytes, &names).map_err(|error| format!("{library}: {error}"))?;
    std::fs::write(copy, bytes).map_err(|error| format!("{copy}: {error}"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, copy, names] = arguments.as_slice() else {
        eprintln!("usage: fake-older-driver LIBRARY COPY NAME,NAME...");
        return ExitCode::from(2);
    };
    match make(library, copy, names) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake-older-driver: {error}");
            ExitCode::FAILURE
        }
    }
}
