//! Real processes that are killed: at every call, or by lot while others write the same.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use chunkstore::{Kind, Store, read_lists, store_gc};
use common::children::{End, Lot, Role, Setting, role};
use common::scene::{DELETE, Scene, assert_clean, assert_sound};
use common::{files_below, quick, wrong_files};

/// The program of all children.
#[test]
fn a_child_plays_its_role() {
    let Some((name, dir, seed, faults)) = role() else { return };
    let scene = Scene { dir, seed, faults };
    match name.as_str() {
        "save" => drop(scene.save(1, &[1, 2, 0, 3])),
        "collect" => drop(scene.collect()),
        "fill and empty a cache" => {
            scene.prefetch();
            scene.collect_cache(30_000);
        }
        "write 200 chunks" => scene.write_200_chunks(),
        other => panic!("{other} is no role"),
    }
}

fn kill_at_every_call(name: &str) {
    for nth in 1.. {
        let dir = quick();
        let scene = Scene { dir: dir.path().to_owned(), seed: 0, faults: String::new() };
        scene.save(1, &[1, 4]);
        scene.save(2, &[4, 5]);
        // Chunk 6 is named by no list any more.
        scene.save(3, &[6]);
        std::fs::remove_file(dir.path().join("ckpt/gpu-3.chunks")).unwrap();
        let faults = format!("*:{nth}:*=kill");
        let end =
            Role { name, dir: dir.path(), seed: 0, faults: &faults, setting: Setting::Plain }.start().end();
        let context = format!("{name}, killed at call {nth}");
        assert_sound(dir.path(), &context);
        assert_clean(dir.path(), &context);
        if end == End::Good {
            assert!(nth > 30, "{name} makes {nth} calls only");
            return;
        }
    }
}

#[test]
fn a_save_killed_at_every_call() {
    kill_at_every_call("save");
}

#[test]
fn a_collection_killed_at_every_call() {
    kill_at_every_call("collect");
}

#[test]
fn filling_and_emptying_a_cache_killed_at_every_call() {
    kill_at_every_call("fill and empty a cache");
}

#[test]
fn eight_writers_of_the_same_200_chunks_of_which_some_are_killed() {
    let dir = quick();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let dir = dir.path();
            scope.spawn(move || {
                let mut lot = Lot::new(number + 100);
                for round in 0..4 {
                    let seed = number + 8 * round;
                    let mut child =
                        Role { name: "write 200 chunks", dir, seed, faults: "", setting: Setting::EqualPids }
                            .start();
                    if round < 3 && child.wait_for_steps(lot.below(200)) {
                        child.kill();
                    } else {
                        assert_eq!(child.end(), End::Good);
                    }
                }
            });
        }
    });
    let store = Store::open(&dir.path().join("store"), Kind::Store).unwrap();
    let dirs: Vec<_> = (0..8).map(|number| dir.path().join(format!("ckpt-{number}"))).collect();
    let report = store_gc(&store, &dirs, DELETE).unwrap();
    assert_eq!((report.named.files, report.removed.files, report.missing.len()), (200, 0, 0));
    for ckpt in &dirs {
        let lists = read_lists(ckpt).unwrap();
        assert!(lists.iter().all(|listed| listed.list.chunks().len() == 200) && !lists.is_empty());
    }
    assert!(wrong_files(store.root()).is_empty());
    assert_eq!(files_below(&store.root().join("chunks")).len(), 200);
}
