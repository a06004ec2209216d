//! Writers, readers and collectors at the same time, some of them killed again and again.
//!
//! `CHUNKSTORE_STRESS_SECONDS` says for how long.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chunkstore::read_lists;
use common::children::{End, Lot, Role, Setting, Told, role};
use common::quick;
use common::scene::{LEN, Scene, assert_clean, assert_sound};

/// What is done, by how many processes, and what is counted.
const CAST: [(&str, u64, &str); 6] = [
    ("save", 3, "chunks written"),
    ("load", 2, "chunks read and compared"),
    ("collect", 2, "chunks removed from the store"),
    ("fetch", 1, "chunks copied to the cache"),
    ("empty", 1, "chunks removed from the cache"),
    ("verify", 1, "chunks verified"),
];
/// Everything has to happen; on a slow machine that takes longer than was asked for.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program of all children.
#[test]
fn a_child_plays_its_role() {
    let Some((name, dir, seed, faults)) = role() else { return };
    let scene = Scene { dir, seed, faults };
    match name.as_str() {
        "save" => scene.keep(|lot| scene.save_some(lot)),
        "load" => scene.keep(|_| scene.load()),
        "collect" => scene.keep(|_| scene.collect()),
        "fetch" => scene.keep(|_| scene.prefetch()),
        "empty" => scene.keep(|lot| scene.collect_cache(lot.below(40) * LEN as u64)),
        "verify" => scene.keep(|_| scene.verify()),
        other => panic!("{other} is no role"),
    }
}

/// What all children of a kind have done, and how many were killed.
#[derive(Clone, Copy, Default, Debug)]
struct Done {
    told: Told,
    kills: u64,
}

/// How long it goes on, and what was done until then.
struct Play<'a> {
    dir: &'a Path,
    until: Instant,
    done: Mutex<[Done; CAST.len()]>,
}

impl Play<'_> {
    fn is_over(&self) -> bool {
        let now = Instant::now();
        let all = || self.done.lock().unwrap().iter().all(|done| done.told.things > 0 && done.kills > 0);
        now >= self.until && (all() || now >= self.until + PATIENCE)
    }

    /// Starts children of a kind, one after the other, and kills one in twenty steps.
    fn cast(&self, kind: usize, seed: u64) {
        let mut lot = Lot::new(seed);
        while !self.is_over() {
            let role = Role { name: CAST[kind].0, dir: self.dir, seed, faults: "", setting: Setting::Plain };
            let mut child = role.start();
            let mut runs = true;
            while runs && !self.is_over() && lot.below(20) > 0 {
                runs = child.wait_for_steps(1);
            }
            let killed = runs && !self.is_over();
            if killed {
                child.kill();
            } else {
                std::fs::write(self.dir.join("enough"), "").unwrap();
                assert_eq!(child.end(), End::Good, "{role:?}");
            }
            let done = &mut self.done.lock().unwrap()[kind];
            done.told.steps += child.told.steps;
            done.told.things += child.told.things;
            done.kills += u64::from(killed);
        }
    }
}

#[test]
fn writers_readers_and_collectors_at_once() {
    let seconds = match std::env::var("CHUNKSTORE_STRESS_SECONDS") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 4,
    };
    let dir = quick();
    let scene = Scene { dir: dir.path().to_owned(), seed: 0, faults: String::new() };
    scene.save(0, &[1]);
    scene.cache();
    let until = Instant::now() + Duration::from_secs(seconds);
    let play = Play { dir: dir.path(), until, done: Mutex::default() };
    std::thread::scope(|scope| {
        let mut seed = 0;
        for (kind, (_, count, _)) in CAST.iter().enumerate() {
            for _ in 0..*count {
                seed += 1;
                let play = &play;
                scope.spawn(move || play.cast(kind, seed));
            }
        }
    });
    for ((name, count, what), done) in CAST.iter().zip(play.done.into_inner().unwrap()) {
        let Done { told: Told { steps, things }, kills } = done;
        println!("{count} who {name}: {steps} times, {things} {what}, {kills} killed");
        assert!(things > 0 && kills > 0, "{name}: {done:?}");
    }
    // Nobody takes a checkpoint away: each of those who saved has one, and all of it is there.
    let lists = read_lists(&scene.ckpt()).unwrap();
    let paths: Vec<_> = lists.into_iter().map(|listed| listed.path).collect();
    assert_eq!(paths, [0, 1, 2, 3].map(|pid| scene.ckpt().join(format!("gpu-{pid}.chunks"))));
    assert_sound(dir.path(), "after all of it");
    assert_clean(dir.path(), "after all of it");
}
