//! The table of `docs/TESTING.md` names tests that exist.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails, and says where")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Cases that have to have a row.
const CASES: [&str; 49] = [
    "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15", "16", "20",
    "21", "22", "23", "24", "25", "36", "37", "38", "39", "42", "43", "44", "45", "46", "47", "48", "49",
    "50", "51", "52", "53", "54", "55", "56", "57", "59", "60", "61", "62", "63", "64", "65",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Case, file and test of each row.
fn rows(table: &str) -> Vec<[String; 3]> {
    let cells = |line: &str| -> Option<[String; 3]> {
        let mut cells = line.strip_prefix("| ")?.split(" | ").map(|cell| cell.trim_matches('`').to_owned());
        let row = [cells.next()?, cells.next()?, cells.next()?];
        row.first().is_some_and(|case| case.bytes().all(|byte| byte.is_ascii_digit())).then_some(row)
    };
    table.lines().filter_map(cells).collect()
}

/// Whether a file has a test of this name: marked as one, or listed for a macro that makes it one.
fn has(file: &str, test: &str) -> bool {
    let lines: Vec<&str> = file.lines().collect();
    let by_macro = file.contains("(stage: &mut Stage)");
    lines.iter().enumerate().any(|(at, line)| {
        let defined = line.contains(&format!("fn {test}("));
        let marked = lines
            .get(at.saturating_sub(3)..at)
            .unwrap_or_default()
            .iter()
            .any(|line| line.trim() == "#[test]");
        defined && (marked || by_macro)
    })
}

#[test]
fn every_test_that_the_table_names_exists() {
    let table = std::fs::read_to_string(root().join("docs/TESTING.md")).unwrap();
    let rows = rows(&table);
    let mut wrong = Vec::new();
    for [case, file, test] in &rows {
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        if !has(&text, test) {
            wrong.push(format!("case {case}: {file} has no test {test}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let covered: BTreeSet<&str> = rows.iter().map(|[case, ..]| case.as_str()).collect();
    let missing: Vec<_> = CASES.iter().filter(|case| !covered.contains(*case)).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}

#[test]
fn a_row_without_its_test_is_found() {
    let row = rows("| case | file |\n| --- | --- |\n| 07 | `a/b.rs` | `it_works` | much |\n");
    assert_eq!(row, [["07".to_owned(), "a/b.rs".to_owned(), "it_works".to_owned()]]);
    assert!(has("#[test]\nfn it_works() {", "it_works"));
    assert!(has("pub(super) fn it_works(stage: &mut Stage) {", "it_works"));
    assert!(!has("fn it_works() {", "it_works") && !has("#[test]\nfn it_works_too() {", "it_works"));
}
