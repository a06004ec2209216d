//! The built library, as the loader sees it: what it needs, what it offers, and what it costs every process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]

mod lab;

use std::collections::BTreeSet;

use object::elf;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};

type Elf<'a> = ElfFile64<'a, Endianness>;

/// The only libraries that may be needed: a missing one ends every process that inherits the preload.
const NEEDED: &[&str] = &["libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
/// The newest version of glibc's symbols.
const NEWEST_GLIBC: [u32; 2] = [2, 34];
/// Bytes of thread-local memory, which each thread of each process pays.
const THREAD_LOCAL_LIMIT: u64 = 64;

macro_rules! names {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $ty:ty),*) $(on $stream:ident $(.$field:ident)?)?;)+) => {
        /// Every function somebody stands in front of.
        const LISTED: &[&str] = &[$(stringify!($name)),+];
    };
}

cuda_sys::for_each_call!(names);

fn with_library(check: impl Fn(&Elf<'_>, &[u8])) {
    for library in [Some(lab::shim()), lab::shim_for_aarch64()].into_iter().flatten() {
        eprintln!("{}", library.display());
        let bytes = std::fs::read(library).expect("the built library");
        check(&Elf::parse(&*bytes).expect("an ELF file of 64 bits"), &bytes);
    }
}

#[test]
fn it_exports_the_list_and_dlsym_and_nothing_else() {
    with_library(|elf, _| {
        let exported: BTreeSet<&str> = elf
            .dynamic_symbols()
            .filter(|symbol| symbol.is_definition() && symbol.is_global())
            .map(|symbol| symbol.name().unwrap())
            .collect();
        let mut expected: BTreeSet<&str> = LISTED.iter().copied().collect();
        assert_eq!(expected.len(), LISTED.len(), "a name stands in the list twice");
        expected.insert("dlsym");
        let missing: Vec<_> = expected.difference(&exported).collect();
        let unexpected: Vec<_> = exported.difference(&expected).collect();
        assert!(
            missing.is_empty() && unexpected.is_empty(),
            "missing {missing:?}, unexpected {unexpected:?}"
        );
    });
}

#[test]
fn it_needs_nothing_but_the_c_library_and_the_loader() {
    with_library(|elf, bytes| {
        let needed = dynamic_strings(elf, bytes, elf::DT_NEEDED);
        assert!(needed.contains("libc.so.6"), "{needed:?}");
        let unexpected: Vec<_> = needed.iter().filter(|name| !NEEDED.contains(&name.as_str())).collect();
        assert!(unexpected.is_empty(), "{unexpected:?}");
        assert_eq!(
            dynamic_strings(elf, bytes, elf::DT_SONAME),
            BTreeSet::from(["libnvsnap_gpushare.so".to_owned()])
        );
        let searched = [elf::DT_RPATH, elf::DT_RUNPATH].map(|tag| dynamic_strings(elf, bytes, tag));
        assert!(searched.iter().all(BTreeSet::is_empty), "{searched:?}");
    });
}

#[test]
fn it_loads_with_glibc_2_34() {
    with_library(|elf, bytes| {
        let endian = elf.endian();
        let sections = elf.elf_header().sections(endian, bytes).unwrap();
        let (mut needs, strings) = sections.gnu_verneed(endian, bytes).unwrap().expect("versions are needed");
        let strings = sections.strings(endian, bytes, strings).unwrap();
        let mut versions = BTreeSet::new();
        while let Some((_, mut of_library)) = needs.next().unwrap() {
            while let Some(version) = of_library.next().unwrap() {
                versions.insert(String::from_utf8(version.name(endian, strings).unwrap().to_vec()).unwrap());
            }
        }
        assert!(versions.contains("GLIBC_2.34"), "{versions:?}");
        for version in &versions {
            let number = version.strip_prefix("GLIBC_").unwrap_or_else(|| panic!("{version}"));
            let number: Vec<u32> = number.split('.').map(|part| part.parse().unwrap()).collect();
            assert!(number.as_slice() <= NEWEST_GLIBC.as_slice(), "{version}");
        }
    });
}

#[test]
fn its_memory_is_never_both_writable_and_executable() {
    with_library(|elf, _| {
        let mut stack = None;
        for segment in elf.elf_program_headers() {
            let flags = segment.p_flags(elf.endian());
            assert!(flags.0 & elf::PF_W.0 == 0 || flags.0 & elf::PF_X.0 == 0, "{segment:?}");
            if segment.p_type(elf.endian()) == elf::PT_GNU_STACK {
                stack = Some(flags);
            }
        }
        assert_eq!(stack, Some(elf::PF_R | elf::PF_W), "the stack is not executable, and says so");
    });
}

#[test]
fn it_has_a_build_id() {
    with_library(|elf, _| {
        let id = elf.build_id().unwrap().expect("a build id");
        assert!(id.len() >= 16, "{id:?}");
    });
}

#[test]
fn a_thread_pays_little_for_it() {
    if !optimised() {
        return;
    }
    with_library(|elf, _| {
        let local =
            elf.elf_program_headers().iter().find(|segment| segment.p_type(elf.endian()) == elf::PT_TLS);
        let bytes = local.map_or(0, |segment| segment.p_memsz(elf.endian()));
        println!("thread-local bytes: {bytes}");
        assert!(bytes <= THREAD_LOCAL_LIMIT, "{bytes}");
    });
}

#[test]
fn nothing_of_it_runs_when_a_thread_ends() {
    if !optimised() {
        return;
    }
    with_library(|elf, _| {
        let wanted: Vec<&str> = elf
            .dynamic_symbols()
            .filter(|symbol| symbol.is_undefined())
            .map(|symbol| symbol.name().unwrap())
            .filter(|name| {
                matches!(*name, "__cxa_thread_atexit_impl" | "pthread_key_create" | "pthread_setspecific")
            })
            .collect();
        assert!(wanted.is_empty(), "{wanted:?}");
    });
}

/// Whether the library is one to be shipped: only an optimised build leaves out what nobody uses.
fn optimised() -> bool {
    let optimised = std::env::var_os("NVSNAP_ARTIFACTS").is_some() || !cfg!(debug_assertions);
    if !optimised {
        println!("not run: the library is a development build");
    }
    optimised
}

/// The strings that the dynamic section's entries with this tag name.
fn dynamic_strings(elf: &Elf<'_>, bytes: &[u8], tag: elf::DynamicTag) -> BTreeSet<String> {
    let endian = elf.endian();
    let sections = elf.elf_header().sections(endian, bytes).unwrap();
    let (entries, strings) = sections.dynamic(endian, bytes).unwrap().expect("a dynamic section");
    let strings = sections.strings(endian, bytes, strings).unwrap();
    entries
        .iter()
        .filter(|entry| entry.tag(endian) == tag)
        .map(|entry| String::from_utf8(entry.string(endian, strings).unwrap().to_vec()).unwrap())
        .collect()
}
