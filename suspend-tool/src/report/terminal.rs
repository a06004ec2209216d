//! Events for people at a terminal: a bar for each process while a stage runs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{Event, Reporter, Stage, bytes};
use crate::pid::Pid;

/// Bars on standard error.
#[derive(Debug, Default)]
pub struct Bars {
    all: MultiProgress,
    bars: Mutex<BTreeMap<Pid, ProgressBar>>,
    /// For what is done to no process.
    chunks: Mutex<Option<ProgressBar>>,
}

impl Bars {
    fn with(&self, pid: Pid, change: impl FnOnce(&ProgressBar)) {
        let bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = bars.get(&pid) {
            change(bar);
        }
    }

    fn begin(&self, stage: Stage, pids: &[Pid]) {
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        for &pid in pids {
            let bar = self.all.add(ProgressBar::new_spinner());
            bar.set_style(waiting());
            bar.set_prefix(format!("{stage:<10} {pid:>7}"));
            bar.enable_steady_tick(Duration::from_millis(100));
            bars.insert(pid, bar);
        }
    }

    fn chunks(&self, done: u64, total: u64, rate: u64, left: Option<Duration>) {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = chunks.get_or_insert_with(|| {
            let bar = self.all.add(ProgressBar::new(total));
            bar.set_style(style("{wide_bar} {binary_bytes}/{binary_total_bytes} {msg}"));
            bar
        });
        let left = left.map_or_else(String::new, |left| format!(", {} s left", left.as_secs()));
        bar.set_message(format!("{}/s{left}", bytes(rate)));
        bar.set_position(done);
        if done >= total {
            bar.finish_and_clear();
        }
    }

    fn end(&self) {
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, bar) in std::mem::take(&mut *bars) {
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
    }
}

fn waiting() -> ProgressStyle {
    style("{prefix} {spinner} {elapsed} {wide_msg}")
}

fn moving() -> ProgressStyle {
    style("{prefix} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}")
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; one that did not parse would only cost its looks.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl Reporter for Bars {
    fn clear(&self) {
        if let Some(bar) = self.chunks.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
    }

    fn report(&self, event: &Event<'_>) {
        match event {
            Event::Begin { stage, pids } => self.begin(*stage, pids),
            Event::Moving { pid, bytes, total } => self.with(*pid, |bar| {
                if *total > 0 {
                    bar.set_style(moving());
                    bar.set_length(*total);
                }
                bar.set_position(*bytes);
            }),
            Event::Chunks { bytes, total, rate, left } => self.chunks(*bytes, *total, *rate, *left),
            Event::Done { pid, .. } => self.with(*pid, |bar| {
                bar.set_style(waiting());
                bar.finish_with_message("done");
            }),
            Event::Failed { pid, error, .. } => self.with(*pid, |bar| {
                bar.set_style(waiting());
                bar.abandon_with_message(format!("failed: {error}"));
            }),
            Event::Stepped { pid } => {
                self.with(*pid, |bar| bar.set_message("a held launch was let through"));
            }
            Event::End { .. } => self.end(),
            Event::Undoing { reason } => {
                let _ = self.all.println(format!("undoing what was done: {reason}"));
            }
        }
    }
}
