//! `docs/COVERAGE.md` against the header and the list: every call that makes, shares, maps or frees memory is on the
//! page once, under the treatment that its hook gives it.

use std::collections::BTreeMap;
use std::path::Path;

use cuda_sys::PASS;

use super::list::{LINES, base, declared};

/// Names that begin like this are about memory, its owners, or its sharing.
const BEGINNINGS: &[&str] = &[
    "cuArray3DCreate",
    "cuArrayCreate",
    "cuArrayDestroy",
    "cuCtxAttach",
    "cuCtxCreate",
    "cuCtxDestroy",
    "cuCtxDetach",
    "cuDestroyExternal",
    "cuDevicePrimaryCtxRe",
    "cuGreenCtxCreate",
    "cuGreenCtxDestroy",
    "cuImportExternal",
    "cuIpc",
    "cuLibraryLoad",
    "cuLibraryUnload",
    "cuMem",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy",
    "cuModuleUnload",
    "cuMulticast",
];

/// So are names with such a word anywhere in them.
const WORDS: &[&str] = &[
    "Alloc",
    "AttachMem",
    "Export",
    "ExternalMemory",
    "ExternalSemaphoresAsync",
    "Free",
    "GraphAddNode",
    "GraphMem",
    "GraphicsUnregister",
    "Import",
    "Map",
    "MemPool",
    "MemoryRequirements",
    "ModuleLoad",
    "Peer",
    "Reserve",
    "Share",
    "Unmap",
];

/// These have such a name by chance.
const NOT: &[&str] = &[
    "cuGetExportTable",
    "cuMemBatchDecompressAsync",
    "cuCtxGetSharedMemConfig",
    "cuCtxSetSharedMemConfig",
    "cuFuncSetSharedMemConfig",
    "cuFuncSetSharedSize",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeIm2colWide",
    "cuTensorMapEncodeTiled",
    "cuTensorMapReplaceAddress",
];

fn is_about_memory(name: &str) -> bool {
    let base = base(name);
    let copies = (base.contains("Memcpy") || base.contains("Memset")) && !base.contains("Peer");
    let named = BEGINNINGS.iter().any(|beginning| base.starts_with(beginning))
        || WORDS.iter().any(|word| base.contains(word));
    named && !copies && !NOT.contains(&base)
}

/// What the hook of a family does with a call.
fn treatment(family: &str) -> &'static str {
    match family {
        "refuse" => "refused",
        "gate" | "sync" | "pass" => "passed on",
        _ => "tracked",
    }
}

/// The page's rows: every name with its treatment and the reason for it.
fn rows() -> Vec<(String, String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/COVERAGE.md");
    let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| `cu")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [names, treatment, why] = cells.as_slice() else { panic!("three cells: {line}") };
        for name in names.split(", ") {
            let name = name.trim_matches('`').to_owned();
            rows.push((name, (*treatment).to_owned(), (*why).to_owned()));
        }
    }
    rows
}

#[test]
fn every_call_about_memory_is_on_the_page_once_and_nothing_else_is() {
    let mut listed = BTreeMap::<String, u32>::new();
    for (name, ..) in rows() {
        *listed.entry(name).or_default() += 1;
    }
    let declared = declared();
    let twice: Vec<_> = listed.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "on the page twice: {twice:?}");
    let wanted = declared.keys().filter(|name| is_about_memory(name));
    let missing: Vec<_> = wanted.filter(|name| !listed.contains_key(*name)).collect();
    assert!(missing.is_empty(), "not in docs/COVERAGE.md: {missing:?}");
    let invented: Vec<_> = listed.keys().filter(|name| !declared.contains_key(*name)).collect();
    assert!(invented.is_empty(), "docs/COVERAGE.md has what the header does not declare: {invented:?}");
    assert!(listed.len() > 130, "only {} calls are on the page", listed.len());
}

#[test]
fn every_call_has_the_treatment_that_its_hook_gives_it() {
    let families: BTreeMap<&str, &str> = LINES
        .iter()
        .map(|line| (line.name, line.family))
        .chain(PASS.iter().map(|name| (*name, "pass")))
        .collect();
    let mut wrong = Vec::new();
    for (name, said, why) in rows() {
        let family = families.get(name.as_str()).copied().unwrap_or_default();
        if said != treatment(family) {
            wrong.push(format!("{name}: the page says {said}, its family {family} is {}", treatment(family)));
        }
        if why.is_empty() {
            wrong.push(format!("{name}: no reason"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
