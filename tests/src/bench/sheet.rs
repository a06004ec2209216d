//! The table, as it goes into `docs/BENCHMARKS.md`.

use std::time::Duration;

use super::ceilings::Bound;
use crate::machine::Driver;

/// One direction: the whole command, and the part of it in which bytes move.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leg {
    pub(super) whole: Duration,
    pub(super) moving: Duration,
    /// Bytes that crossed the bus.
    pub(super) moved: u64,
}

/// Prints rows as they come. Times of the stand-in say nothing of a GPU, so there only ratios to the first row are
/// printed.
#[derive(Debug)]
pub(super) struct Sheet {
    driver: Driver,
    first: Option<(Leg, Leg)>,
}

impl Sheet {
    pub(super) fn new(driver: Driver) -> Self {
        Self { driver, first: None }
    }

    /// A bound of the hardware.
    pub(super) fn bound(&self, what: &str, bound: Bound) {
        let rate = |time: Duration| gib(bound.bytes) / time.as_secs_f64();
        if self.driver == Driver::Real {
            println!(
                "| ceiling: {what} | {:.1} GiB/s out | {:.1} GiB/s back |",
                rate(bound.out),
                rate(bound.back)
            );
        }
    }

    /// The head of the table.
    pub(super) fn head(&self) {
        let unit = if self.driver == Driver::Real { "s" } else { "of the first row" };
        println!(
            "\n| what | GiB | suspend ({unit}) | moving | over the bus | resume ({unit}) | moving | over the bus |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    }

    /// A row.
    pub(super) fn row(&mut self, what: &str, bytes: u64, suspend: Leg, resume: Leg) {
        let (first_out, first_back) = *self.first.get_or_insert((suspend, resume));
        let leg = |leg: Leg, first: Leg| match self.driver {
            Driver::Real => {
                format!(
                    "{:.2} | {:.2} | {:.2} GiB",
                    leg.whole.as_secs_f64(),
                    leg.moving.as_secs_f64(),
                    gib(leg.moved)
                )
            }
            Driver::StandIn => {
                let ratio = |time: Duration| time.as_secs_f64() / first.whole.as_secs_f64();
                format!("{:.2} | {:.2} | {:.2} GiB", ratio(leg.whole), ratio(leg.moving), gib(leg.moved))
            }
        };
        println!(
            "| {what} | {:.1} | {} | {} |",
            gib(bytes),
            leg(suspend, first_out),
            leg(resume, first_back)
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "printed with two digits")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
