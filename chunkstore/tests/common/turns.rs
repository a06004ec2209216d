//! A file system on which threads take turns as a schedule says, one call at a time.
//!
//! With it a test walks through the ways in which the calls of several actors can mix, the same way each time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex};

use super::memory::Memory;
use super::walls::{Wall, Will};

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

/// The layer that the actors get.
pub type Scheduled = Wall<Memory, TakeTurns>;

#[derive(Debug)]
pub struct TakeTurns {
    turns: Mutex<Turns>,
    changed: Condvar,
}

pub type Actor<'a> = &'a (dyn Fn(&Scheduled) + Sync);

/// Runs `actors` on `disk`, each on a thread, with their calls in the order of `schedule`.
pub fn run(disk: &Memory, schedule: &[(usize, u64)], actors: &[Actor<'_>]) {
    let turns = Turns { schedule: schedule.iter().copied().collect(), alive: vec![true; actors.len()] };
    let layer = Wall::new(disk.clone(), TakeTurns { turns: Mutex::new(turns), changed: Condvar::new() });
    std::thread::scope(|scope| {
        for (number, actor) in actors.iter().enumerate() {
            let layer = &layer;
            scope.spawn(move || {
                ACTOR.set(Some(number));
                let _end = End { turns: layer.will(), number };
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
    turns: &'a TakeTurns,
    number: usize,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.turns.turns.lock().unwrap().alive[self.number] = false;
        self.turns.changed.notify_all();
    }
}

impl Will for TakeTurns {
    fn around<T>(&self, _changes: bool, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some(actor) = ACTOR.get() else { return call() };
        let mut turns = self.turns.lock().unwrap();
        while turns.whose() != Some(actor) {
            turns = self.changed.wait(turns).unwrap();
        }
        let result = call();
        if let Some((whose, calls)) = turns.schedule.front_mut()
            && *whose == actor
        {
            *calls -= 1;
        }
        self.changed.notify_all();
        result
    }
}
