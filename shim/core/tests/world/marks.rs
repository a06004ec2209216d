//! A suspend that stops anywhere is undone by what the marks say.

use std::time::Duration;

use shim_core::world::{
    Adopted, Backing, Bytes, Description, NotHere, Origin, Piece, Pinned, Place, Saved, Standing, World,
};

use crate::{BASE, Fds, SIZE, create, description, id, map, real};

fn copy() -> Saved {
    let mut saved = Saved::default();
    saved.push(Piece { len: SIZE, place: Place::Host(4096) });
    saved
}

fn bytes(world: &World<Fds>) -> Vec<Bytes> {
    world.objects().iter().map(|object| object.bytes).collect()
}

fn import(world: &World<Fds>, number: u64) {
    let what = Description { origin: Origin::Imported { exporter: 77 }, ..description(number) };
    let Adopted { surplus, .. } = world.adopt_import(real(number), what);
    assert!(surplus.is_none());
}

#[test]
fn own_memory_is_copied_dropped_created_and_filled() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    let key = world.objects()[0].key;
    world.copied(key, copy());
    assert_eq!(bytes(&world), [Bytes::Copied]);
    assert_eq!(world.withhold(key, Duration::ZERO), Ok(Some(real(0))));
    world.dropped(key);
    assert_eq!(bytes(&world), [Bytes::Saved]);
    assert_eq!(world.pin(handle).err(), Some(NotHere::Dropped));
    world.created(key, real(9));
    assert_eq!(bytes(&world), [Bytes::Saved], "the memory is there, its bytes are not");
    assert_eq!(world.filled(key), Some(copy()));
    assert_eq!(bytes(&world), [Bytes::Live]);
    assert_eq!(world.pin(handle).map(|pin| pin.real()).ok(), Some(real(9)), "the same virtual handle");
}

#[test]
fn a_copy_of_live_bytes_can_be_forgotten() {
    let world = World::<Fds>::new();
    create(&world, 0);
    let key = world.objects()[0].key;
    world.copied(key, copy());
    world.forget_copies();
    assert_eq!(bytes(&world), [Bytes::Live]);
    assert!(world.saved(key).is_none() && !world.any_saved());
}

#[test]
fn imports_are_elsewhere_from_the_moment_that_anybody_may_drop_them() {
    let world = World::<Fds>::new();
    create(&world, 0);
    import(&world, 1);
    import(&world, 2);
    let keys: Vec<_> = world.objects().iter().map(|object| object.key).collect();
    world.copied(keys[0], copy());
    world.copied(keys[2], copy());
    world.lend(&[id(2)]);
    assert_eq!(bytes(&world), [Bytes::Copied, Bytes::Elsewhere, Bytes::Copied]);
    assert!(matches!(world.objects()[1].backing, Backing::Live(_)), "stale, and still to be dropped");
    for key in &keys {
        world.dropped(*key);
    }
    assert_eq!(bytes(&world), [Bytes::Saved, Bytes::Elsewhere, Bytes::Saved]);
    world.imported(keys[1], real(8));
    assert_eq!(bytes(&world)[1], Bytes::Live);
}

#[test]
fn a_pinned_handle_is_not_dropped() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    let key = world.objects()[0].key;
    let pin = world.pin(handle).expect("held");
    assert_eq!(world.withhold(key, Duration::from_millis(1)), Err(Pinned));
    let second = world.pin(handle).expect("a withhold that gave up lets pins in again");
    assert!(world.unpin(second).is_none());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| world.withhold(key, Duration::from_secs(60)));
        // The waiter withholds before it waits: from then on no new pin is given.
        while let Ok(extra) = world.pin(handle) {
            assert!(world.unpin(extra).is_none());
            std::thread::yield_now();
        }
        assert!(world.unpin(pin).is_none());
        assert_eq!(waiter.join().expect("no panic"), Ok(Some(real(0))));
    });
}

#[test]
fn a_mapping_stands_as_it_was_left() {
    let world = World::<Fds>::new();
    let handle = create(&world, 0);
    map(&world, handle, BASE, SIZE, SIZE);
    let standing = || world.views().into_values().next().map(|views| views[0].standing);
    for told in [Standing::Dropped, Standing::Bare, Standing::Live] {
        world.stand(BASE, told);
        assert_eq!(standing(), Some(told));
    }
}

#[test]
fn a_second_import_of_one_allocation_shares_the_first_ones_handle() {
    let world = World::<Fds>::new();
    import(&world, 1);
    let what = Description { origin: Origin::Imported { exporter: 77 }, ..description(1) };
    let second = world.adopt_import(real(5), what);
    assert_eq!(second.surplus, Some(real(5)));
    let pin = world.pin(second.handle).expect("held");
    assert_eq!(pin.real(), real(1));
    assert_eq!(world.inventory()[0].handles, 2);
}
