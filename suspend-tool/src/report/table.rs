//! The table of stages at the end, for people.

use std::time::Duration;

use protocol::Moved;

use super::bytes;
use crate::lifecycle::Tally;

/// A table with a line per stage: seconds, and bytes by fate.
pub fn stages(tally: &Tally, total: Duration) -> String {
    let mut lines =
        vec![format!("{:<12}{:>9}{:>13}{:>13}{:>13}", "phase", "seconds", "moved", "zero", "deduplicated")];
    for (stage, took) in &tally.stages {
        lines.push(line(stage.name(), *took, tally.bytes.get(stage)));
    }
    lines.push(line("total", total, None));
    lines.join("\n")
}

fn line(name: &str, took: Duration, moved: Option<&Moved>) -> String {
    let mut line = format!("{name:<12}{:>9.3}", took.as_secs_f64());
    if let Some(moved) = moved {
        for count in [moved.moved, moved.zero, moved.deduplicated] {
            line.push_str(&format!("{:>13}", bytes(count)));
        }
    }
    line
}

/// Columns as wide as their widest cell, the first line being the heading.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Stage;

    #[test]
    fn the_table_has_a_line_per_stage_in_order_and_fits_a_terminal() {
        let mut tally = Tally::default();
        tally.stages.push((Stage::Quiesce, Duration::from_millis(20)));
        tally.stages.push((Stage::Release, Duration::from_millis(1500)));
        tally.bytes.insert(Stage::Release, Moved { objects: 1, moved: 1 << 30, zero: 0, deduplicated: 0 });
        let table = stages(&tally, Duration::from_secs(2));
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "quiesce         0.020");
        assert_eq!(lines[2], "release         1.500      1.0 GiB          0 B          0 B");
        assert_eq!(lines[3], "total           2.000");
        assert!(lines.iter().all(|line| line.len() <= 80));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["pid".to_owned(), "name".to_owned()], vec!["7".to_owned(), "x".to_owned()]];
        assert_eq!(columns(&rows), "pid  name\n7    x");
    }
}
