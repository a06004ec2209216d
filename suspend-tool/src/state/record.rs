//! What is remembered of a set of processes that is suspended, or on the way.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};

use super::{StateDir, StateError};
use crate::lifecycle::{Journal, StepError};
use crate::pid::{Pid, Target};
use crate::report::{Stage, chain};

/// The version of the file.
const VERSION: u32 = 1;

/// Memory that a GPU will have to give again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Needed {
    /// The GPU, as the driver prints its UUID.
    pub gpu: String,
    /// Bytes.
    pub bytes: u64,
}

/// A GPU of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedGpu {
    /// Its UUID, as the driver prints it.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub total: u64,
}

/// A set of processes that are suspended together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// The boot of the machine: pids of another one mean nothing.
    pub boot: String,
    /// The processes.
    pub targets: Vec<Target>,
    /// The stage that was begun last, by its name.
    pub stage: String,
    /// Whether the suspend came to its end.
    pub suspended: bool,
    /// Whether `stop` has stopped them since, so that a resume is to continue them.
    #[serde(default)]
    pub stopped: bool,
    /// The GPUs, in ordinal order.
    pub gpus: Vec<RecordedGpu>,
    /// What they will have to give again.
    pub needed: Vec<Needed>,
}

impl Record {
    /// A record of processes that nothing has been done to.
    pub fn new(boot: String, targets: Vec<Target>, gpus: Vec<RecordedGpu>) -> Self {
        let stage = Stage::Check.name().to_owned();
        Self {
            version: VERSION,
            boot,
            targets,
            stage,
            suspended: false,
            stopped: false,
            gpus,
            needed: Vec::new(),
        }
    }

    /// The processes of the set.
    pub fn pids(&self) -> Vec<Pid> {
        self.targets.iter().map(|target| target.pid).collect()
    }

    fn file_name(&self) -> String {
        let first = self.targets.iter().map(|target| target.pid.number()).min().unwrap_or(0);
        format!("{first}.json")
    }

    /// Writes it durably.
    pub fn write(&self, state: &StateDir) -> Result<(), StateError> {
        let name = self.file_name();
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|source| StateError::Unreadable { path: state.path_of(&name), source })?;
        state.write(&name, &bytes)
    }

    /// Forgets it.
    pub fn remove(&self, state: &StateDir) -> Result<(), StateError> {
        state.remove(&self.file_name())
    }

    /// The records of this boot that have one of these processes. Files that cannot be understood are passed over: nothing
    /// in them is needed to resume; see [`Self::not_understood`].
    pub fn of(state: &StateDir, boot: &str, pids: &[Pid]) -> Result<Vec<Self>, StateError> {
        let ours = |record: &Self| record.targets.iter().any(|target| pids.contains(&target.pid));
        let mut found: Vec<Self> = Self::all(state)?.into_iter().flatten().collect();
        found.retain(|record| ours(record) && record.boot == boot && record.version == VERSION);
        Ok(found)
    }

    /// What is wrong with the files that cannot be understood.
    pub fn not_understood(state: &StateDir) -> Vec<StateError> {
        Self::all(state).unwrap_or_default().into_iter().filter_map(Result::err).collect()
    }

    fn all(state: &StateDir) -> Result<Vec<Result<Self, StateError>>, StateError> {
        let mut found = Vec::new();
        for name in state.names()?.into_iter().filter(|name| name.ends_with(".json")) {
            let parsed = match state.read(&name) {
                Ok(None) => continue,
                Ok(Some(bytes)) => serde_json::from_slice(&bytes)
                    .map_err(|source| StateError::Unreadable { path: state.path_of(&name), source }),
                Err(error) => Err(error),
            };
            found.push(parsed);
        }
        Ok(found)
    }
}

/// Writes the stages of a suspend into its record before they begin.
#[derive(Debug)]
pub struct StateJournal<'a> {
    state: &'a StateDir,
    record: RefCell<Record>,
}

impl<'a> StateJournal<'a> {
    /// For this set of processes.
    pub const fn new(state: &'a StateDir, record: Record) -> Self {
        Self { state, record: RefCell::new(record) }
    }

    /// Changes the record and writes it.
    pub fn note(&self, change: impl FnOnce(&mut Record)) -> Result<(), StateError> {
        let mut record = self.record.borrow_mut();
        change(&mut record);
        record.write(self.state)
    }

    /// Forgets the record: all processes run.
    pub fn close(&self) -> Result<(), StateError> {
        self.record.borrow().remove(self.state)
    }
}

impl Journal for StateJournal<'_> {
    fn begin(&self, stage: Stage) -> Result<(), StepError> {
        self.note(|record| record.stage = stage.name().to_owned())
            .map_err(|error| StepError::Journal(chain(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(number: i32) -> Target {
        Target { pid: Pid::new(number).unwrap(), start: 5 }
    }

    fn record(numbers: &[i32]) -> Record {
        let targets = numbers.iter().map(|number| target(*number)).collect();
        let gpu = RecordedGpu { uuid: "GPU-1".into(), name: "a b".into(), total: 9 };
        Record::new("boot".into(), targets, vec![gpu])
    }

    #[test]
    fn a_record_is_found_by_any_of_its_processes_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open_at(folder.path().join("state")).unwrap();
        let journal = StateJournal::new(&state, record(&[8, 7]));
        journal.begin(Stage::Release).unwrap();
        let found = Record::of(&state, "boot", &[Pid::new(8).unwrap()]).unwrap();
        assert_eq!(found, [Record { stage: "release".into(), ..record(&[8, 7]) }]);
        assert_eq!(Record::of(&state, "boot", &[Pid::new(9).unwrap()]).unwrap(), []);
        assert_eq!(Record::of(&state, "other boot", &[Pid::new(8).unwrap()]).unwrap(), []);
        journal.close().unwrap();
        assert_eq!(Record::of(&state, "boot", &[Pid::new(8).unwrap()]).unwrap(), []);
    }

    #[test]
    fn a_broken_record_is_named_by_its_path_and_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open_at(folder.path().join("state")).unwrap();
        state.write("7.json", b"{").unwrap();
        record(&[8]).write(&state).unwrap();
        let pids = [7, 8].map(|number| Pid::new(number).unwrap());
        assert_eq!(Record::of(&state, "boot", &pids).unwrap(), [record(&[8])]);
        let errors = Record::not_understood(&state);
        assert!(matches!(&errors[..], [error] if error.to_string().contains("7.json")), "{errors:?}");
    }
}
