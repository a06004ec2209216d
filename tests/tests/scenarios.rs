//! Every scenario on the stand-in driver, with the library and without: what programs see has to be the same.

use anyhow::Result;
use integration::scenarios::Scenario;
use integration::{Driver, for_each_scenario};

fn twice(name: &str) -> Result<()> {
    let scenario = Scenario::named(name)?;
    let without = scenario.play(Driver::StandIn, false)?;
    let with = scenario.play(Driver::StandIn, true)?;
    assert!(!without.is_empty(), "{name} asks nothing");
    for (native, shimmed) in without.iter().zip(&with) {
        assert_eq!(native, shimmed, "the library changes what a program sees");
    }
    assert_eq!(without.len(), with.len());
    Ok(())
}

macro_rules! tests {
    ($($name:ident)+) => {$(
        #[test]
        fn $name() -> Result<()> {
            twice(stringify!($name))
        }
    )+};
}

for_each_scenario!(tests);
