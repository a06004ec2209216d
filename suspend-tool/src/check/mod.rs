//! Whether a suspend or a resume would succeed, told before anything is touched.
//!
//! `survey` looks at everything at once; `judge` turns what was seen into [`Finding`]s and, where nothing is in the
//! way, into what each process is to do.

mod criu;
mod finding;
mod freezing;
mod host;
mod judge;
mod room;
mod surroundings;
mod survey;
mod targets;
mod unclaimed;

pub use finding::{Finding, Severity, refusal};
pub use freezing::cannot_freeze;
pub use host::{host_limits, host_shares};
pub use judge::{Verdict, judge, plan};
pub use room::{Need, on_disk, room};
pub use survey::{Machine, Seen, Standing, Survey};
pub use targets::{Before, GpuMap, device_demand, enough_memory, gpu_map};
