//! The list of calls against the real header: every function has exactly one class, under its name, and every hook
//! has the driver's signature.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt::Write as _;

use cuda_sys::*;

use super::compiler;

/// How an argument travels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Pointer,
    Integer(usize),
    Float(usize),
    Struct(usize),
}

trait Argument {
    const KIND: Kind;
}

impl<T> Argument for *const T {
    const KIND: Kind = Kind::Pointer;
}

impl<T> Argument for *mut T {
    const KIND: Kind = Kind::Pointer;
}

macro_rules! arguments {
    ($($kind:ident: $($type:ty)+;)+) => {$($(
        impl Argument for $type {
            const KIND: Kind = arguments!(@ $kind $type);
        }
    )+)+};
    (@ pointer $type:ty) => {{
        assert!(size_of::<$type>() == 8);
        Kind::Pointer
    }};
    (@ integer $type:ty) => {
        Kind::Integer(size_of::<$type>())
    };
    (@ structure $type:ty) => {
        Kind::Struct(size_of::<$type>())
    };
}

arguments! {
    pointer: Context Stream Event Module Function Library Kernel Graph GraphNode GraphExec Array MipmappedArray
        MemPool LinkState ExternalMemory ExternalSemaphore GraphicsResource GreenContext DevResourceDesc UserObject
        HostFn StreamCallback BlockSizeToDynamicMemory;
    integer: c_int c_uint u8 u16 u64 usize Device DevicePtr DevicePtrV1 MemHandle HandleType
        DeviceAttribute;
    structure: MemLocation IpcMemHandle IpcEventHandle;
}

pub(super) struct Line {
    class: &'static str,
    pub(super) family: &'static str,
    pub(super) name: &'static str,
    arguments: &'static [Kind],
    /// Their types, as the list writes them.
    takes: &'static [&'static str],
    stream: &'static str,
}

macro_rules! lines {
    ($($class:ident $family:ident fn $name:ident($($arg:ident: $type:ty),*) $(on $($stream:ident).+)?;)+) => {
        pub(super) const LINES: &[Line] = &[$(
            Line {
                class: stringify!($class),
                family: stringify!($family),
                name: stringify!($name),
                arguments: &[$(<$type as Argument>::KIND),*],
                takes: &[$(stringify!($type)),*],
                stream: concat!($($(stringify!($stream), "."),+)?),
            },
        )+];
    };
}

for_each_call!(lines);

/// Whether a call is a copy or a fill that names no stream and may be given memory of `cuMemAlloc`. The forms with 32-bit
/// addresses cannot be, nor those between arrays and the host.
fn may_have_to_wait(line: &Line) -> bool {
    let is_copy = line.name.starts_with("cuMemcpy") || line.name.starts_with("cuMemset");
    let described = line.takes.len() == 1 && (line.name.contains("_v2") || line.name.contains("Peer"));
    is_copy && !line.name.contains("Async") && (described || line.takes.contains(&"DevicePtr"))
}

#[test]
fn every_copy_and_fill_that_may_have_to_wait_is_of_the_family_that_waits() {
    for line in LINES {
        assert_eq!(line.family == "sync", may_have_to_wait(line), "{}", line.name);
        assert!(line.family != "sync" || line.stream.is_empty(), "{} runs on a stream", line.name);
    }
    assert!(LINES.iter().any(may_have_to_wait));
}

/// The types of a function's arguments, as the header writes them.
pub(super) type Signatures = BTreeMap<String, Vec<String>>;

/// Every function that the header declares.
pub(super) fn declared() -> Signatures {
    let text = compiler::declarations();
    let mut rest = text.as_str();
    let mut found = Signatures::new();
    while let Some(at) = rest.find("CUresult") {
        rest = &rest[at + "CUresult".len()..];
        let Some((name, after)) = rest.trim_start().split_once('(') else { break };
        // Else a member, an argument, or a type of functions.
        if rest.starts_with(char::is_whitespace) && is_name(name.trim_end()) {
            let (arguments, _) = after.split_once(");").expect("a declaration ends");
            let types = arguments.split(',').map(type_of).filter(|text| text != "void");
            let before = found.insert(name.trim_end().to_owned(), types.collect());
            assert!(before.is_none(), "{name} is declared twice");
        }
    }
    found
}

fn is_name(text: &str) -> bool {
    text.starts_with("cu") && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// `const CUlaunchConfig *config` without the name.
fn type_of(argument: &str) -> String {
    let argument = argument.trim();
    assert!(!argument.contains(['[', '(']), "an argument this does not understand: {argument}");
    let name =
        argument.len() - argument.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
    let typed = argument[..argument.len() - name].trim();
    // `void`, and `unsigned int` alone, have no name.
    if typed.is_empty() { argument.to_owned() } else { typed.to_owned() }
}

/// How the compiler passes values of each of these types.
fn kinds(types: &BTreeSet<&String>) -> BTreeMap<String, Kind> {
    let mut body = String::new();
    for text in types {
        // A variable, since a cast is not possible for every type. See gcc's typeclass.h for the numbers.
        writeln!(body, "{{ static {text} value; printf(\"%d %zu {text}\\n\", __builtin_classify_type(value), sizeof value); }}")
            .expect("a string takes it");
    }
    let parse = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        let (class, size) = (number(), number());
        let kind = match class {
            // An integer, an enumeration, a truth value, a character.
            1..=4 => Kind::Integer(size),
            5 => Kind::Pointer,
            8 => Kind::Float(size),
            12 | 13 => Kind::Struct(size),
            other => panic!("gcc's type class {other}: {line}"),
        };
        (words.next().expect("a type").to_owned(), kind)
    };
    compiler::printed(&body).lines().map(parse).collect()
}

#[test]
fn every_function_of_the_header_has_exactly_one_class() {
    let mut listed = BTreeMap::<&str, u32>::new();
    for name in LINES.iter().map(|line| line.name).chain(PASS.iter().copied()) {
        *listed.entry(name).or_default() += 1;
    }
    let twice: Vec<_> = listed.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "listed twice: {twice:?}");
    let declared = declared();
    assert!(declared.len() > 600, "only {} declarations were found", declared.len());
    let missing: Vec<_> = declared.keys().filter(|name| !listed.contains_key(name.as_str())).collect();
    assert!(missing.is_empty(), "the header declares these, and nobody has classed them: {missing:?}");
    let invented: Vec<_> = listed.keys().filter(|name| !declared.contains_key(**name)).collect();
    assert!(invented.is_empty(), "the header does not declare these: {invented:?}");
}

#[test]
fn every_hook_has_the_signature_of_the_header() {
    let declared = declared();
    let types: BTreeSet<&String> = declared.values().flatten().collect();
    let kinds = kinds(&types);
    let mut wrong = Vec::new();
    for line in LINES {
        let theirs: Vec<Kind> = declared[line.name].iter().map(|text| kinds[text]).collect();
        if theirs != line.arguments {
            wrong.push(format!("{}: the header has {theirs:?}, the list {:?}", line.name, line.arguments));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Work that a gate holds has to be let through where its stream records: the list must say which stream that is.
#[test]
fn every_held_call_on_a_stream_names_it() {
    let declared = declared();
    for line in LINES.iter().filter(|line| ["launch", "memory"].contains(&line.class)) {
        let takes_stream = declared[line.name].iter().any(|text| text == "CUstream");
        let takes_config = declared[line.name].iter().any(|text| text.contains("CUlaunchConfig"));
        assert_eq!(takes_stream || takes_config, !line.stream.is_empty(), "{}", line.name);
    }
}

/// Every form of a function does the same, so a suspend does the same with it.
#[test]
fn all_forms_of_a_function_have_one_class() {
    let class_of: BTreeMap<&str, &str> = LINES
        .iter()
        .map(|line| (line.name, line.class))
        .chain(PASS.iter().map(|name| (*name, "pass")))
        .collect();
    let mut classes = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (name, class) in &class_of {
        classes.entry(base(name)).or_default().insert(class);
    }
    let mixed: Vec<_> = classes.iter().filter(|(_, classes)| classes.len() > 1).collect();
    assert!(mixed.is_empty(), "{mixed:?}");
}

/// The name without `_ptsz`, `_ptds` and a version.
pub(super) fn base(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if version.parse::<u32>().is_ok() => base,
        _ => name,
    }
}
