//! A file system on which threads take turns as a schedule says, one call at a time.
//!
//! With it a test walks through the ways in which the calls of several actors can mix, the same way each time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use chunkstore::layer::{FileLayer, Open, OpenFile, Rename, Stat, Volume};

use super::memory::Memory;

thread_local! {
    /// Which actor this thread is. Calls of other threads go through at once.
    static ACTOR: Cell<Option<usize>> = const { Cell::new(None) };
}

#[derive(Debug)]
struct Turns {
    /// Actors, and how many calls each makes before the next one's turn. After the last, who is left goes to its end.
    schedule: VecDeque<(usize, u64)>,
    alive: Vec<bool>,
}

impl Turns {
    fn whose(&mut self) -> Option<usize> {
        while let Some((actor, calls)) = self.schedule.front() {
            if *calls > 0 && self.alive[*actor] {
                return Some(*actor);
            }
            self.schedule.pop_front();
        }
        self.alive.iter().position(|alive| *alive)
    }
}

#[derive(Clone, Debug)]
pub struct Scheduled {
    behind: Memory,
    turns: Arc<(Mutex<Turns>, Condvar)>,
}

pub type Actor<'a> = &'a (dyn Fn(&Scheduled) + Sync);

/// Runs `actors` on `disk`, each on a thread, with their calls in the order of `schedule`.
pub fn run(disk: &Memory, schedule: &[(usize, u64)], actors: &[Actor<'_>]) {
    let turns = Turns { schedule: schedule.iter().copied().collect(), alive: vec![true; actors.len()] };
    let layer = Scheduled { behind: disk.clone(), turns: Arc::new((Mutex::new(turns), Condvar::new())) };
    std::thread::scope(|scope| {
        for (number, actor) in actors.iter().enumerate() {
            let layer = &layer;
            scope.spawn(move || {
                ACTOR.set(Some(number));
                let _end = End { layer, number };
                actor(layer);
            });
        }
    });
}

/// How many calls an actor makes alone.
pub fn calls_alone(disk: &Memory, actor: Actor<'_>) -> u64 {
    let disk = disk.after_kill();
    disk.stop_at(u64::MAX);
    run(&disk, &[], &[actor]);
    disk.calls()
}

struct End<'a> {
    layer: &'a Scheduled,
    number: usize,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.layer.turns.0.lock().unwrap().alive[self.number] = false;
        self.layer.turns.1.notify_all();
    }
}

impl Scheduled {
    fn turn<T>(&self, call: impl FnOnce() -> T) -> T {
        let Some(actor) = ACTOR.get() else { return call() };
        let (turns, changed) = &*self.turns;
        let mut turns = turns.lock().unwrap();
        while turns.whose() != Some(actor) {
            turns = changed.wait(turns).unwrap();
        }
        let result = call();
        if let Some((whose, calls)) = turns.schedule.front_mut()
            && *whose == actor
        {
            *calls -= 1;
        }
        changed.notify_all();
        result
    }
}

impl FileLayer for Scheduled {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn OpenFile>> {
        let behind = self.turn(|| self.behind.open(path, how))?;
        Ok(Box::new(ScheduledFile { behind: Some(behind), layer: self.clone() }))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.turn(|| self.behind.stat(path))
    }

    fn rename(&self, from: &Path, to: &Path, how: Rename) -> io::Result<()> {
        self.turn(|| self.behind.rename(from, to, how))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.turn(|| self.behind.link(from, to))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.turn(|| self.behind.unlink(path))
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.turn(|| self.behind.make_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.turn(|| self.behind.sync_dir(path))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.turn(|| self.behind.list_dir(path))
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.turn(|| self.behind.touch(path))
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        self.turn(|| self.behind.volume(path))
    }
}

#[derive(Debug)]
struct ScheduledFile {
    behind: Option<Box<dyn OpenFile>>,
    layer: Scheduled,
}

impl ScheduledFile {
    fn turn<T>(&self, call: impl FnOnce(&dyn OpenFile) -> T) -> T {
        self.layer.turn(|| call(&**self.behind.as_ref().unwrap()))
    }
}

impl OpenFile for ScheduledFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.turn(|file| file.read_at(into, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.turn(|file| file.write_at(bytes, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.turn(|file| file.sync_data())
    }

    fn stat(&self) -> io::Result<Stat> {
        self.turn(|file| file.stat())
    }

    fn set_buffered(&self) -> io::Result<()> {
        self.turn(|file| file.set_buffered())
    }

    fn direct_alignment(&self) -> usize {
        4096
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.turn(|file| file.try_lock())
    }
}
