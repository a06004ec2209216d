//! The habits of the driver that this project rests on, on the stand-in.

use anyhow::{Context, Result};
use integration::{Driver, for_each_habit, native};

fn shown(name: &str) -> Result<()> {
    let habit = native::HABITS.iter().find(|habit| habit.name == name).context("a habit")?;
    (habit.show)(Driver::StandIn)
}

macro_rules! tests {
    ($($name:ident)+) => {$(
        #[test]
        fn $name() -> Result<()> {
            shown(stringify!($name))
        }
    )+};
}

for_each_habit!(tests);
