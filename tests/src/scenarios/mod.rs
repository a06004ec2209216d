//! The scenarios: written once, played on the stand-in and on a GPU, with the library and without.
//!
//! Each says what a program sees. None may tell from its answers which of the four it was played on, but for sizes and
//! properties that belong to the machine.

mod captures;
mod contexts;
mod cycles;
mod events;
mod handles;
mod host;
mod malloc;
mod mappings;
mod orphans;
mod peers;
mod sharing;
mod sync;

use anyhow::{Context, Result};

use crate::failure::noted;
use crate::machine::Driver;
use crate::stage::Stage;

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name, as a sentence.
    pub name: &'static str,
    /// Plays it.
    pub play: fn(&mut Stage) -> Result<()>,
    /// Devices it needs.
    pub devices: usize,
}

macro_rules! scenarios {
    ($($module:ident::$name:ident on $devices:literal;)+) => {
        /// All scenarios.
        pub const ALL: &[Scenario] = &[$(
            Scenario { name: stringify!($name), play: $module::$name, devices: $devices },
        )+];

        /// Hands the name of every scenario to a macro of the caller.
        #[macro_export]
        macro_rules! for_each_scenario {
            ($then:path) => {
                $then! { $($name)+ }
            };
        }
    };
}

scenarios! {
    cycles::three_cycles_leave_everything_as_it_was on 1;
    cycles::private_memory_keeps_its_bytes on 1;
    cycles::memory_never_exported_before_can_be_shared_after_a_cycle on 1;
    cycles::memory_never_handed_out_before_can_be_opened_after_a_cycle on 1;
    cycles::arrays_keep_their_bytes on 1;
    cycles::work_that_runs_when_the_suspend_comes_is_not_lost on 1;
    handles::handles_are_counted_as_the_driver_counts on 1;
    handles::a_mapping_holds_the_memory on 1;
    handles::wrong_handles_are_refused on 1;
    handles::properties_are_those_asked_for on 1;
    mappings::rights_are_kept_per_mapping on 1;
    mappings::an_allocation_is_mapped_twice on 1;
    mappings::wrong_ranges_are_refused on 1;
    sharing::a_write_by_one_is_read_by_the_other on 1;
    sharing::a_descriptor_kept_since_before_still_imports on 1;
    sharing::a_descriptor_alone_holds_the_memory on 1;
    sharing::an_import_of_ones_own on 1;
    sharing::several_importers_and_several_imports on 1;
    orphans::an_orphan_stays_one_memory_for_two_importers on 1;
    orphans::an_exporter_that_freed_its_memory_leaves_an_orphan on 1;
    orphans::a_descriptor_closed_just_before_a_suspend_holds_nothing on 1;
    orphans::an_importer_comes_after_the_exporter_has_crashed on 1;
    orphans::a_descriptor_alone_holds_the_memory_of_an_exporter_that_is_gone on 1;
    orphans::an_importer_comes_after_a_cycle_that_the_exporter_did_not_see on 1;
    orphans::a_descriptor_holds_the_memory_when_all_have_let_go_of_it on 1;
    host::memory_of_a_numa_node_is_carried on 1;
    host::host_memory_needs_no_context on 1;
    host::registered_memory_stays_registered on 1;
    host::registered_memory_that_two_processes_share on 1;
    host::registered_memory_is_registered_anew on 1;
    host::shared_memory_is_registered_anew_by_two_processes on 1;
    peers::copies_between_devices_need_no_peer_access on 2;
    peers::opened_memory_is_copied_between_devices on 2;
    events::an_event_connects_two_processes_over_suspends on 1;
    malloc::every_size_is_as_native_memory on 1;
    malloc::small_and_large_blocks_survive_cycles on 1;
    malloc::identities_of_blocks_are_kept on 1;
    malloc::a_block_is_not_used_again_under_a_running_kernel on 1;
    malloc::buffers_are_found_by_handle_and_offset on 1;
    malloc::buffers_on_two_devices_are_found_by_handle_and_offset on 2;
    malloc::memory_opened_by_handle_is_shared on 1;
    malloc::opened_memory_ends_with_its_context on 1;
    malloc::opened_memory_outlives_its_exporter on 1;
    sync::memory_with_sync_memops_is_waited_for on 1;
    captures::calls_in_a_capture_answer_and_disturb_as_the_driver_does on 1;
    captures::a_graph_recorded_before_a_cycle_runs_after_it on 1;
    contexts::the_current_context_is_as_it_was on 1;
    contexts::the_context_stack_is_as_it_was on 2;
    contexts::a_primary_context_ends_with_its_last_user on 2;
    contexts::a_context_ends_with_the_memory_that_was_made_in_it on 2;
    contexts::everything_works_from_a_thread_without_context on 1;
}

impl Scenario {
    /// The scenario with this name.
    pub fn named(name: &str) -> Result<&'static Self> {
        ALL.iter().find(|scenario| scenario.name == name).with_context(|| format!("no scenario {name}"))
    }

    /// Plays it once. What was said comes back.
    pub fn play(&self, driver: Driver, preload: bool) -> Result<Vec<String>> {
        let mut stage = Stage::new(driver, preload)?;
        (self.play)(&mut stage).map_err(noted).with_context(|| {
            let side = if preload { "with" } else { "without" };
            format!("{} {side} the library", self.name)
        })?;
        Ok(stage.into_record())
    }
}
