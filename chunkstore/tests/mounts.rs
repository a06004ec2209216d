//! Real file systems of other kinds, mounted for one child each. Where the user may not mount, nothing is shown.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, as it should"
)]

mod common;

use std::path::Path;
use std::sync::Mutex;

use chunkstore::{AlignedBuf, Executor, Kind, PutError, Route, Store, Threads, read_lists};
use common::children::{End, Role, Setting, may_unshare, role};
use common::{content, files_below, list_of, temporary, told, wrong_files};

const LEN: usize = 1 << 20;

/// The program of all children.
#[test]
fn a_child_plays_its_role() {
    let Some((name, dir, _, _)) = role() else { return };
    match name.as_str() {
        "there and back" => {
            there_and_back(&dir);
        }
        "there and back, buffered" => assert_eq!(there_and_back(&dir), Route::Buffered),
        "fill the disk" => fill_the_disk(&dir),
        other => panic!("{other} is no role"),
    }
}

fn there_and_back(dir: &Path) -> Route {
    let store = Store::create(&dir.join("store"), Kind::Store).unwrap();
    let writer = store.writer(true).unwrap();
    let mut routes = Vec::new();
    for len in [1, 4096, 5000, LEN, LEN + 77] {
        let chunk = writer.put(&content(1, len)[..len]).unwrap().chunk().unwrap();
        writer.put(&content(1, len)[..len]).unwrap();
        let mut into = AlignedBuf::new(len).unwrap();
        routes.push(store.get(&chunk, &mut into).unwrap());
        assert!(into[..len] == content(1, len)[..len]);
        writer.commit(&dir.join("ckpt"), 1, &list_of(&[chunk])).unwrap();
    }
    drop(writer);
    assert!(wrong_files(store.root()).is_empty());
    routes[3]
}

/// Eight writers save three times what there is room for.
fn fill_the_disk(dir: &Path) {
    let store = Store::create(&dir.join("store"), Kind::Store).unwrap();
    let ckpt = dir.join("ckpt");
    let writer = store.writer(false).unwrap();
    let first = writer.put(&content(1, LEN)[..LEN]).unwrap().chunk().unwrap();
    writer.commit(&ckpt, 1, &list_of(&[first])).unwrap();
    let room = store.free_bytes().unwrap();
    let refused = Mutex::new(Vec::new());
    let writers = 8;
    let each = 3 * usize::try_from(room).unwrap() / LEN / writers;
    Threads
        .run(writers, &|number| {
            for seed in 0..each {
                let seed = (number * each + seed + 100) as u64;
                if let Err(error) = writer.put(&content(seed, LEN)[..LEN]) {
                    return refused.lock().unwrap().push(error);
                }
            }
        })
        .unwrap();
    let refused = refused.into_inner().unwrap();
    assert!(!refused.is_empty());
    for error in &refused {
        assert!(matches!(error, PutError::Full { need, .. } if *need == LEN as u64), "{}", told(error));
        assert!(told(error).contains("No space left") && told(error).contains(dir.to_str().unwrap()));
    }
    drop(writer);
    assert!(wrong_files(store.root()).is_empty());
    let lists = read_lists(&ckpt).unwrap();
    assert_eq!((lists.len(), lists[0].list.chunks()), (1, [first].as_slice()));
    store.get(&first, &mut AlignedBuf::new(LEN).unwrap()).unwrap();
}

fn on(mount: &str, name: &str) {
    if !may_unshare("--mount") {
        println!("not shown: this user may not mount {mount}");
        return;
    }
    let dir = temporary();
    let place = dir.path().join("mounted here");
    for name in ["mounted here", "lower", "upper", "work"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let role = Role { name, dir: &place, seed: 0, faults: "", setting: Setting::Mounted(mount) };
    assert_eq!(role.start().end(), End::Good, "{mount}");
    assert!(files_below(&place).is_empty());
}

#[test]
fn memory_is_a_disk_like_others() {
    on("-t tmpfs none", "there and back");
}

#[test]
fn an_overlay_as_in_a_container() {
    let dirs = ["lowerdir=lower", "upperdir=upper", "workdir=work"].join(",");
    on(&format!("-t overlay overlay -o {dirs}"), "there and back");
}

/// `ramfs` knows no direct I/O: a real refusal.
#[test]
fn a_file_system_without_direct_io_is_used_through_the_page_cache() {
    on("-t ramfs none", "there and back, buffered");
}

#[test]
fn a_disk_that_is_really_full_is_told_and_what_was_saved_before_is_untouched() {
    on("-t tmpfs -o size=24m none", "fill the disk");
}
