//! The process's one world.

use shim_core::world::World;

static WORLD: World = World::new();

/// What the process owns, maps and shares.
#[allow(dead_code, reason = "the hooks that record what they do come with the families")]
pub(crate) fn world() -> &'static World {
    &WORLD
}
