//! What the process has that cannot be carried over a suspend, counted by kind.
//!
//! An entry lives as long as the object it stands for: whoever destroys one takes the entry out before the driver is
//! asked, since the driver may give the same name to a new object at once, and puts it back where the driver
//! refused. So the table is as large as what is alive.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::{Blocker, BlockerKind};

/// The table.
#[derive(Debug, Default)]
pub struct Blockers {
    entries: Mutex<BTreeMap<(BlockerKind, u64), Entry>>,
    /// How many entries there are, to be read without the lock.
    live: AtomicUsize,
}

/// One object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// How often it was obtained and not given back.
    pub count: u64,
    /// Its size, where that is known.
    pub bytes: u64,
    /// What it goes with: a context, an array; 0 for nothing.
    pub owner: u64,
    /// How a user knows it; empty where its key is all there is.
    pub name: String,
}

impl Entry {
    /// An object that was obtained once.
    pub fn of(bytes: u64, owner: u64) -> Self {
        Self { count: 1, bytes, owner, name: String::new() }
    }
}

/// Entries that are out of the table while the driver is asked to destroy what they stand for.
#[derive(Debug, Default)]
#[must_use = "what the driver did not destroy has to be put back"]
pub struct Taken(Vec<((BlockerKind, u64), Entry)>);

impl Blockers {
    /// Records that an object was obtained, once more if it is known.
    pub fn add(&self, kind: BlockerKind, key: u64, entry: Entry) {
        self.change(|entries| {
            let known = entries.entry((kind, key)).or_insert_with(|| Entry { count: 0, ..entry.clone() });
            known.count += entry.count;
        });
    }

    /// Records an object that is there or not, however often that is said.
    pub fn set(&self, kind: BlockerKind, key: u64, entry: Entry) {
        self.change(|entries| entries.insert((kind, key), entry));
    }

    /// Whether there is an object of this kind that `is` it.
    pub fn any(&self, kind: BlockerKind, is: impl Fn(u64, &Entry) -> bool) -> bool {
        !self.is_empty()
            && self.lock().range((kind, 0)..=(kind, u64::MAX)).any(|((_, key), entry)| is(*key, entry))
    }

    /// Takes one use of an object out.
    pub fn take(&self, kind: BlockerKind, key: u64) -> Taken {
        self.take_some(|entries| {
            let Some(known) = entries.get_mut(&(kind, key)) else { return Vec::new() };
            let one = Entry { count: 1, ..known.clone() };
            known.count = known.count.saturating_sub(1);
            if known.count == 0 {
                entries.remove(&(kind, key));
            }
            vec![((kind, key), one)]
        })
    }

    /// Takes every object out that `goes`.
    pub fn take_all(&self, goes: impl Fn(BlockerKind, u64, &Entry) -> bool) -> Taken {
        self.take_some(|entries| {
            entries.extract_if(.., |(kind, key), entry| goes(*kind, *key, entry)).collect()
        })
    }

    /// The driver has not destroyed them.
    pub fn put_back(&self, taken: Taken) {
        for ((kind, key), entry) in taken.0 {
            self.add(kind, key, entry);
        }
    }

    /// All kinds of which something is there, with an example of each.
    pub fn list(&self) -> Vec<Blocker> {
        let mut blockers: Vec<Blocker> = Vec::new();
        for ((kind, key), entry) in self.lock().iter() {
            match blockers.last_mut().filter(|last| last.kind == *kind) {
                Some(last) => last.count += entry.count,
                None => {
                    let blocker = Blocker { kind: *kind, count: entry.count, example: describe(*key, entry) };
                    blockers.push(blocker);
                }
            }
        }
        blockers
    }

    fn is_empty(&self) -> bool {
        self.live.load(Ordering::Acquire) == 0
    }

    fn take_some(&self, take: impl FnOnce(&mut Entries) -> Vec<((BlockerKind, u64), Entry)>) -> Taken {
        // The way of every free in a process that has nothing to refuse.
        if self.is_empty() { Taken::default() } else { Taken(self.change(take)) }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Entries) -> R) -> R {
        let mut entries = self.lock();
        let result = change(&mut entries);
        self.live.store(entries.len(), Ordering::Release);
        result
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // Every change leaves a usable table.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Entries = BTreeMap<(BlockerKind, u64), Entry>;

fn describe(key: u64, entry: &Entry) -> String {
    match (entry.name.as_str(), entry.bytes) {
        ("", 0) => format!("{key:#x}"),
        ("", bytes) => format!("{key:#x}, {bytes} bytes"),
        (name, 0) => name.to_owned(),
        (name, bytes) => format!("{name}, {bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BlockerKind::{IpcOpened, Managed, Multicast};

    fn counts(table: &Blockers) -> Vec<(BlockerKind, u64)> {
        table.list().into_iter().map(|blocker| (blocker.kind, blocker.count)).collect()
    }

    #[test]
    fn kinds_are_counted_and_each_has_an_example() {
        let table = Blockers::default();
        table.add(Managed, 0x2000, Entry::of(64, 1));
        table.add(Managed, 0x1000, Entry::of(32, 1));
        table.add(Multicast, 0x55, Entry::default());
        table.set(
            BlockerKind::UnknownAbi,
            3,
            Entry { count: 1, name: "cuMemFrobnicate".into(), ..Entry::default() },
        );
        let list = table.list();
        assert_eq!(list.len(), 3);
        assert_eq!((list[0].count, list[0].example.as_str()), (2, "0x1000, 32 bytes"));
        assert_eq!(list[2].example, "cuMemFrobnicate");
    }

    #[test]
    fn what_was_opened_twice_is_gone_after_two_closes() {
        let table = Blockers::default();
        table.add(IpcOpened, 1, Entry::of(0, 0));
        table.add(IpcOpened, 1, Entry::of(0, 0));
        drop(table.take(IpcOpened, 1));
        assert_eq!(counts(&table), [(IpcOpened, 1)]);
        drop(table.take(IpcOpened, 1));
        assert_eq!(counts(&table), []);
        drop(table.take(IpcOpened, 1));
        assert_eq!(counts(&table), []);
    }

    #[test]
    fn what_is_set_twice_is_there_once() {
        let table = Blockers::default();
        table.set(Managed, 1, Entry::of(8, 0));
        table.set(Managed, 1, Entry::of(8, 0));
        assert_eq!(counts(&table), [(Managed, 1)]);
    }

    #[test]
    fn what_the_driver_did_not_destroy_is_put_back_as_it_was() {
        let table = Blockers::default();
        table.add(IpcOpened, 1, Entry::of(4, 9));
        table.add(IpcOpened, 1, Entry::of(4, 9));
        let before = table.list();
        let taken = table.take(IpcOpened, 1);
        table.put_back(taken);
        assert_eq!(table.list(), before);
        let taken = table.take_all(|_, _, entry| entry.owner == 9);
        assert_eq!(counts(&table), []);
        table.put_back(taken);
        assert_eq!(table.list(), before);
    }

    #[test]
    fn objects_go_with_their_owner() {
        let table = Blockers::default();
        table.add(Managed, 1, Entry::of(8, 7));
        table.add(Managed, 2, Entry::of(8, 6));
        drop(table.take_all(|kind, _, entry| kind == Managed && entry.owner == 7));
        assert!(!table.any(Managed, |key, _| key == 1) && table.any(Managed, |key, _| key == 2));
        assert!(!table.any(Multicast, |_, _| true));
    }
}
