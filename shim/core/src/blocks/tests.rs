use proptest::prelude::*;
use protocol::AllocationId;

use super::*;

fn owner(context: usize) -> Owner {
    Owner { context: Context(std::ptr::without_provenance_mut(context)), device: Device(0) }
}

fn block(blocks: &Blocks, address: u64) -> Block {
    match blocks.find(address) {
        Found::Block(block) => block,
        other => panic!("{address:#x} is {other:?}"),
    }
}

#[test]
fn a_large_block_is_as_long_as_was_asked_for() {
    let blocks = Blocks::new();
    blocks.add_large(Span { base: 0x20_0000, len: 0x40_0000 }, 0x20_0001, owner(1));
    assert_eq!(block(&blocks, 0x40_0000).base, 0x20_0000);
    assert_eq!(blocks.find(0x40_0001), Found::Gap);
    assert_eq!(blocks.find(0x60_0000), Found::Foreign);
    assert_eq!(blocks.find(0x1f_ffff), Found::Foreign);
    assert!(blocks.touches(0x1f_0000, 0x2_0000) && blocks.touches(0x5f_ffff, 1));
    assert!(!blocks.touches(0x60_0000, 1) && !blocks.touches(0, 0x20_0000));
}

#[test]
fn a_block_is_freed_once_and_only_at_its_base() {
    let blocks = Blocks::new();
    blocks.add_large(Span { base: 0x20_0000, len: SLAB }, SLAB, owner(1));
    assert!(blocks.take(0x20_0200).is_none());
    let taken = blocks.take(0x20_0000).expect("it is there");
    assert!(blocks.take(0x20_0000).is_none());
    assert_eq!(blocks.find(0x20_0000), Found::Gap);
    blocks.put_back(taken);
    let taken = blocks.take(0x20_0000).expect("it is back");
    assert_eq!(blocks.end(taken), Some(Span { base: 0x20_0000, len: SLAB }));
    assert_eq!(blocks.find(0x20_0000), Found::Foreign);
}

#[test]
fn the_room_of_a_small_block_is_free_only_when_it_has_ended() {
    let blocks = Blocks::new();
    assert_eq!(blocks.place(4096, owner(1).context), None);
    blocks.add_slab(Span { base: SLAB, len: SLAB }, owner(1), SMALL);
    let first = blocks.place(SMALL, owner(1).context).expect("room");
    let second = blocks.place(SMALL, owner(1).context).expect("room");
    assert_eq!(blocks.place(1, owner(1).context), None);
    let taken = blocks.take(first).expect("it is there");
    assert_eq!(blocks.place(1, owner(1).context), None, "work may still use it");
    assert_eq!(blocks.end(taken), None);
    assert_eq!(blocks.place(SMALL, owner(1).context), Some(first));
    assert_ne!(first, second);
    assert_ne!(block(&blocks, first).id, block(&blocks, second).id);
}

#[test]
fn slabs_of_one_context_are_not_used_for_another() {
    let blocks = Blocks::new();
    blocks.add_slab(Span { base: SLAB, len: SLAB }, owner(1), 1);
    assert_eq!(blocks.place(1, owner(2).context), None);
    assert_eq!(blocks.take_context(owner(2).context), []);
    assert_eq!(blocks.take_context(owner(1).context), [Span { base: SLAB, len: SLAB }]);
    assert_eq!(blocks.place(1, owner(1).context), None);
}

#[test]
fn one_empty_slab_is_kept_and_a_second_one_goes() {
    let blocks = Blocks::new();
    blocks.add_slab(Span { base: SLAB, len: SLAB }, owner(1), SMALL);
    let in_first: Vec<u64> = (0..2).map(|_| blocks.place(SMALL, owner(1).context).expect("room")).collect();
    blocks.add_slab(Span { base: 2 * SLAB, len: SLAB }, owner(1), 1);
    let in_second = blocks.place(1, owner(1).context).expect("room");
    assert_eq!(blocks.end(blocks.take(in_second).expect("there")), None);
    assert_eq!(blocks.end(blocks.take(in_first[0]).expect("there")), None);
    assert_eq!(blocks.end(blocks.take(in_first[1]).expect("there")), Some(Span { base: SLAB, len: SLAB }));
    assert_eq!(blocks.take_empty_slabs(), [Span { base: 2 * SLAB, len: SLAB }]);
    assert_eq!(blocks.census(), (0, 0, 0));
}

#[test]
fn opened_memory_counts_per_block_and_cannot_be_freed() {
    let blocks = Blocks::new();
    let peers = AllocationId([7; 16]);
    assert_eq!(blocks.open(peers, 0, 100, owner(1).context), None);
    assert!(blocks.add_opened(Span { base: SLAB, len: SLAB }, peers, owner(1)));
    assert!(!blocks.add_opened(Span { base: 2 * SLAB, len: SLAB }, peers, owner(1)));
    assert_eq!(blocks.open(peers, 0, 100, owner(1).context), Some(SLAB));
    assert_eq!(blocks.open(peers, 512, 100, owner(1).context), Some(SLAB + 512));
    assert_eq!(blocks.open(peers, 512, 100, owner(1).context), Some(SLAB + 512));
    assert!(block(&blocks, SLAB + 600).opened);
    assert!(blocks.take(SLAB).is_none());
    assert!(blocks.close(SLAB + 1).is_none());
    assert!(matches!(blocks.close(SLAB + 512), Some(Closed::Counted)));
    assert!(matches!(blocks.close(SLAB), Some(Closed::Counted)));
    assert!(blocks.close(SLAB).is_none());
    assert!(matches!(blocks.close(SLAB + 512), Some(Closed::Last(Span { base: SLAB, len: SLAB }))));
    assert_eq!(blocks.open(peers, 0, 100, owner(1).context), None);
}

#[test]
fn opened_memory_ends_with_the_only_context_that_has_opened_it() {
    let blocks = Blocks::new();
    let (one, other) = (AllocationId([1; 16]), AllocationId([2; 16]));
    for (number, peers) in [(1, one), (2, other)] {
        assert!(blocks.add_opened(Span { base: number * SLAB, len: SLAB }, peers, owner(1)));
        assert_eq!(blocks.open(peers, 0, 100, owner(1).context), Some(number * SLAB));
    }
    assert_eq!(blocks.open(other, 0, 100, owner(2).context), Some(2 * SLAB));
    assert_eq!(blocks.take_context(owner(1).context), [Span { base: SLAB, len: SLAB }]);
    assert!(blocks.close(SLAB).is_none());
    assert_eq!(blocks.open(one, 0, 100, owner(1).context), None);
    assert!(matches!(blocks.close(2 * SLAB), Some(Closed::Counted)));
    assert!(matches!(blocks.close(2 * SLAB), Some(Closed::Last(Span { base, .. })) if base == 2 * SLAB));
}

#[test]
fn small_blocks_waste_little() {
    let blocks = Blocks::new();
    let mut slabs = 0;
    for _ in 0..20_000 {
        if blocks.place(4096, owner(1).context).is_none() {
            slabs += 1;
            blocks.add_slab(Span { base: slabs * SLAB, len: SLAB }, owner(1), 4096);
            blocks.place(4096, owner(1).context).expect("a new slab has room");
        }
    }
    assert!(slabs * SLAB <= 20_000 * 4096 * 105 / 100, "{slabs} slabs");
}

#[test]
fn a_slab_that_began_with_a_large_block_is_full_when_its_places_are_used_up_and_has_room_again() {
    let blocks = Blocks::new();
    blocks.add_slab(Span { base: SLAB, len: SLAB }, owner(1), SMALL);
    let large = blocks.place(SMALL, owner(1).context).expect("room");
    let mut small = Vec::new();
    while let Some(base) = blocks.place(1, owner(1).context) {
        small.push(base);
    }
    assert!((250..=256).contains(&small.len()), "{} places", small.len());
    // It is not in the way of the next one.
    blocks.add_slab(Span { base: 2 * SLAB, len: SLAB }, owner(1), 1);
    for _ in 0..4000 {
        assert!(blocks.place(1, owner(1).context).expect("room") >= 2 * SLAB);
    }
    for base in small {
        assert_eq!(blocks.end(blocks.take(base).expect("there")), None);
    }
    assert!(blocks.place(SMALL / 2, owner(1).context).expect("room again") < 2 * SLAB);
    assert_eq!(blocks.end(blocks.take(large).expect("there")), None);
}

proptest! {
    #[test]
    fn blocks_never_overlap(actions in prop::collection::vec((1..=SMALL, any::<bool>(), any::<prop::sample::Index>()), 1..300)) {
        let blocks = Blocks::new();
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut slabs = 0;
        for (size, free, which) in actions {
            if free && !live.is_empty() {
                let (base, _) = live.swap_remove(which.index(live.len()));
                let taken = blocks.take(base).expect("it is there");
                blocks.end(taken);
                continue;
            }
            let base = blocks.place(size, owner(1).context).unwrap_or_else(|| {
                slabs += 1;
                blocks.add_slab(Span { base: slabs * SLAB, len: SLAB }, owner(1), size);
                blocks.place(size, owner(1).context).expect("a new slab has room")
            });
            prop_assert_eq!(base % 512, 0);
            for (other, len) in &live {
                prop_assert!(base + size <= *other || other + len <= base);
            }
            let found = block(&blocks, base + size - 1);
            prop_assert_eq!((found.base, found.size), (base, size));
            live.push((base, size));
        }
        prop_assert_eq!(blocks.census().1, live.len());
    }
}
