//! A loaded ELF object, read from its own tables in memory.
//!
//! The loader's `dlsym` would do, but a miss there allocates and overwrites the program's pending `dlerror`.
//! Reading the tables takes no lock and leaves no trace. What is read was mapped and relocated by the loader and
//! stays so while the object is loaded.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Tags of the dynamic section (`<elf.h>`).
mod tag {
    pub(super) const NULL: i64 = 0;
    pub(super) const HASH: i64 = 4;
    pub(super) const STRTAB: i64 = 5;
    pub(super) const SYMTAB: i64 = 6;
    pub(super) const RELA: i64 = 7;
    pub(super) const RELASZ: i64 = 8;
    pub(super) const SONAME: i64 = 14;
    pub(super) const PLTRELSZ: i64 = 2;
    pub(super) const JMPREL: i64 = 23;
    pub(super) const RELACOUNT: i64 = 0x6fff_fff9;
    pub(super) const GNU_HASH: i64 = 0x6fff_fef5;
}

/// `STT_GNU_IFUNC`: the symbol's value is not the function but a chooser.
const IFUNC: u8 = 10;

/// An entry of the dynamic section.
#[derive(Clone, Copy)]
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// The tables of a loaded object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    base: usize,
    strings: *const c_char,
    symbols: *const libc::Elf64_Sym,
    gnu_hash: *const u32,
    hash: *const u32,
    soname: Option<usize>,
    /// Relocations of data and of calls, each with its size in bytes.
    relocations: [(*const libc::Elf64_Rela, usize); 2],
    /// How many of the first only add the base: they come first.
    relative: usize,
}

impl Object {
    /// The object at `base` whose dynamic section lies at `dynamic`, or `None` when it has no symbols.
    ///
    /// # Safety
    /// Both are those of an object that is loaded and stays so while the result is used.
    pub(crate) unsafe fn new(base: usize, dynamic: *const c_void) -> Option<Self> {
        let mut object = Self {
            base,
            strings: ptr::null(),
            symbols: ptr::null(),
            gnu_hash: ptr::null(),
            hash: ptr::null(),
            soname: None,
            relocations: [(ptr::null(), 0); 2],
            relative: 0,
        };
        let [mut data, mut calls] = object.relocations;
        let mut entry = dynamic.cast::<Dynamic>();
        loop {
            // SAFETY: the section ends with a null entry, and we have not passed it.
            let Dynamic { tag, value } = unsafe { entry.read() };
            let value = usize::try_from(value).ok()?;
            match tag {
                tag::NULL => break,
                tag::STRTAB => object.strings = object.pointer(value),
                tag::SYMTAB => object.symbols = object.pointer(value),
                tag::GNU_HASH => object.gnu_hash = object.pointer(value),
                tag::HASH => object.hash = object.pointer(value),
                tag::SONAME => object.soname = Some(value),
                tag::RELA => data.0 = object.pointer(value),
                tag::RELASZ => data.1 = value,
                tag::JMPREL => calls.0 = object.pointer(value),
                tag::PLTRELSZ => calls.1 = value,
                tag::RELACOUNT => object.relative = value,
                _ => {}
            }
            // SAFETY: not the last entry.
            entry = unsafe { entry.add(1) };
        }
        object.relocations = [data, calls];
        (!object.strings.is_null() && !object.symbols.is_null()).then_some(object)
    }

    /// An address in the object. The loader has relocated the section of most objects, but not of all (the vDSO's,
    /// and where the section is read-only).
    fn pointer<T>(&self, value: usize) -> *const T {
        let address = if value < self.base { self.base.wrapping_add(value) } else { value };
        ptr::with_exposed_provenance(address)
    }

    /// What the loader has put into the object in place of a symbol's name: addresses of data and of functions. A call that
    /// was not made yet is still bound to the object itself.
    pub(super) fn bound(&self) -> impl Iterator<Item = usize> {
        let tables = self.relocations.iter().zip([self.relative, 0]);
        tables.flat_map(move |(&(table, bytes), skip)| {
            let count = if table.is_null() { 0 } else { bytes / size_of::<libc::Elf64_Rela>() };
            (skip..count).map(move |at| {
                // SAFETY: the section says how many there are.
                let entry = unsafe { table.add(at) };
                // SAFETY: as above.
                let offset = unsafe { (*entry).r_offset };
                let place = self.base.wrapping_add(usize::try_from(offset).unwrap_or(0));
                let place = ptr::with_exposed_provenance::<AtomicUsize>(place);
                // SAFETY: the loader has written there. Calls are bound when they are first made, by any thread; a place that is
                // not aligned belongs to packed data, which nobody changes.
                if place.is_aligned() { unsafe { (*place).load(Ordering::Relaxed) } } else { 0 }
            })
        })
    }

    /// Where the object is loaded.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// The name by which other objects need it.
    pub(crate) fn soname(&self) -> Option<&CStr> {
        let at = self.soname?;
        // SAFETY: an offset in the object's string table.
        let name = unsafe { self.strings.add(at) };
        // SAFETY: the table's strings end with a NUL.
        Some(unsafe { CStr::from_ptr(name) })
    }

    /// The address of the function `name` that the object exports itself.
    pub(crate) fn function(&self, name: &str) -> Option<usize> {
        if !self.gnu_hash.is_null() {
            self.by_gnu_hash(name)
        } else if !self.hash.is_null() {
            self.by_hash(name)
        } else {
            None
        }
    }

    /// The symbol table's entry `index` as the function `name`.
    fn entry(&self, index: u32, name: &str) -> Option<usize> {
        // SAFETY: indexes come from the object's own hash table.
        let symbol = unsafe { self.symbols.add(usize::try_from(index).ok()?) };
        // SAFETY: as above.
        let symbol = unsafe { symbol.read() };
        if symbol.st_shndx == 0 || symbol.st_value == 0 || symbol.st_info & 0xf == IFUNC {
            return None;
        }
        // SAFETY: an offset in the object's string table.
        let found = unsafe { self.strings.add(usize::try_from(symbol.st_name).ok()?) };
        // SAFETY: the table's strings end with a NUL.
        let found = unsafe { CStr::from_ptr(found) };
        (found.to_bytes() == name.as_bytes())
            .then(|| self.base.wrapping_add(usize::try_from(symbol.st_value).unwrap_or(0)))
    }

    /// `DT_GNU_HASH`: header (buckets, first symbol, bloom words, shift), bloom words of 64 bits, buckets, chains.
    fn by_gnu_hash(&self, name: &str) -> Option<usize> {
        let hash = gnu_hash(name);
        let [buckets, first, bloom] =
            [self.word(self.gnu_hash, 0)?, self.word(self.gnu_hash, 1)?, self.word(self.gnu_hash, 2)?];
        let table = 4 + 2 * usize::try_from(bloom).ok()?;
        let chains = table + usize::try_from(buckets).ok()?;
        let mut index =
            self.word(self.gnu_hash, table + usize::try_from(hash.checked_rem(buckets)?).ok()?)?;
        if index < first {
            return None;
        }
        loop {
            let found = self.word(self.gnu_hash, chains + usize::try_from(index - first).ok()?)?;
            if found | 1 == hash | 1
                && let Some(address) = self.entry(index, name)
            {
                return Some(address);
            }
            if found & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }

    /// `DT_HASH`: bucket count, chain count, buckets, chains.
    fn by_hash(&self, name: &str) -> Option<usize> {
        let buckets = self.word(self.hash, 0)?;
        let chains = 2 + usize::try_from(buckets).ok()?;
        let mut index =
            self.word(self.hash, 2 + usize::try_from(sysv_hash(name).checked_rem(buckets)?).ok()?)?;
        while index != 0 {
            if let Some(address) = self.entry(index, name) {
                return Some(address);
            }
            index = self.word(self.hash, chains + usize::try_from(index).ok()?)?;
        }
        None
    }

    fn word(&self, table: *const u32, at: usize) -> Option<u32> {
        // SAFETY: the hash table's own counts say how far it reaches.
        let word = unsafe { table.add(at) };
        // SAFETY: as above.
        Some(unsafe { word.read() })
    }
}

/// The hash of `DT_GNU_HASH`.
fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

/// The hash of `DT_HASH`.
fn sysv_hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}
