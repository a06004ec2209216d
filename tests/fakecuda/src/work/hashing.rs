//! BLAKE3 and zero detection of many pieces of memory: the kernels `nvsnap_hash_leaves` and `nvsnap_hash_roots`.
//!
//! A text is what gets one digest; its bytes lie in pieces, one behind the other. A piece is five words of 64 bits:
//! address, length, number of its first leaf of 1 KiB in the text, number of its first node, leaves of the text. A text
//! is two words: number of its first node, leaves. The first kernel makes a node of every 256 KiB of a piece and says
//! which pieces have a byte that is not zero; the second folds the nodes of each text to its digest.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

use super::kernels::{Run, Stop};

const LEAF: usize = 1 << 10;
/// Bytes of a piece that fold to one node.
const NODE: usize = 256 * LEAF;
/// Bytes of the description of a piece.
pub(super) const PIECE: usize = 40;
/// Bytes of the description of a text.
pub(super) const TEXT: usize = 16;

/// Bytes of a text in a row.
#[derive(Clone, Copy, Debug)]
struct Piece {
    address: usize,
    length: usize,
    first_leaf: usize,
    first_node: usize,
    leaves: usize,
}

impl Piece {
    /// The nodes of the piece: where in it each begins, and how long it is. A piece of no bytes has one.
    fn nodes(self) -> impl Iterator<Item = (usize, usize)> {
        let count = self.length.div_ceil(NODE).max(1);
        (0..count).map(move |number| (number * NODE, NODE.min(self.length - number * NODE)))
    }
}

impl Run {
    /// One piece for each row of the grid.
    pub(super) fn hash_leaves(
        &self,
        table: usize,
        nodes: usize,
        nonzero: usize,
        pieces: usize,
    ) -> Result<(), Stop> {
        for number in 0..pieces {
            let piece = self.piece(table, number)?;
            let mut any = false;
            let whole = piece.leaves <= NODE / LEAF;
            for (index, (at, length)) in piece.nodes().enumerate() {
                let bytes = self.bytes(piece.address + at, length)?;
                any = any || bytes.chunks(4096).any(|page| page.iter().fold(0, |all, byte| all | byte) != 0);
                let mut hasher = Hasher::new();
                let node = if whole {
                    hasher.update(&bytes).finalize().into()
                } else {
                    let before = piece.first_leaf.saturating_mul(LEAF).saturating_add(at);
                    hasher.set_input_offset(u64::try_from(before).unwrap_or(u64::MAX));
                    hasher.update(&bytes).finalize_non_root()
                };
                self.store(nodes + (piece.first_node + index) * 32, &node)?;
            }
            if any {
                self.words(nonzero + number * 4, 1, true, |_, word| word.store(1, Ordering::Relaxed))?;
            }
        }
        Ok(())
    }

    /// One text for each column of the grid.
    pub(super) fn hash_roots(
        &self,
        table: usize,
        nodes: usize,
        digests: usize,
        texts: usize,
    ) -> Result<(), Stop> {
        for number in 0..texts {
            let words = self.pointers(table + number * TEXT, 2)?;
            let [first_node, leaves] = words.as_slice() else { return Err(Stop::Misaligned) };
            let from = nodes + first_node * 32;
            let values = (0..leaves.div_ceil(NODE / LEAF))
                .map(|node| self.value(from + node * 32))
                .collect::<Result<Vec<_>, _>>()?;
            if let Some(digest) = fold(&values, true) {
                self.store(digests + number * 32, &digest)?;
            }
        }
        Ok(())
    }

    fn piece(&self, table: usize, number: usize) -> Result<Piece, Stop> {
        match *self.pointers(table + number * PIECE, 5)?.as_slice() {
            [address, length, first_leaf, first_node, leaves] => {
                Ok(Piece { address, length, first_leaf, first_node, leaves })
            }
            _ => Err(Stop::Misaligned),
        }
    }

    fn bytes(&self, at: usize, length: usize) -> Result<Vec<u8>, Stop> {
        let mut bytes = Vec::with_capacity(length);
        crate::read(&self.driver.memory.space).walk(at, length, self.agent, false, |place, length| {
            let from = bytes.len();
            bytes.resize(from + length, 0);
            let into = bytes.get_mut(from..).unwrap_or_default();
            // SAFETY: the piece has `length` bytes, and the space is locked. Others may write to it at the same
            // time: hence atomics.
            let piece = unsafe { std::slice::from_raw_parts(place.cast::<AtomicU8>(), length) };
            // SAFETY: bytes make words wherever a word may begin.
            let (head, words, tail) = unsafe { piece.align_to::<AtomicU64>() };
            let (into_head, rest) = into.split_at_mut(head.len());
            let (into_words, into_tail) = rest.split_at_mut(words.len() * 8);
            for (to, word) in into_words.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed).to_ne_bytes();
            }
            for (into, from) in [(into_head, head), (into_tail, tail)] {
                into.iter_mut().zip(from).for_each(|(to, byte)| *to = byte.load(Ordering::Relaxed));
            }
        })?;
        Ok(bytes)
    }

    fn value(&self, at: usize) -> Result<ChainingValue, Stop> {
        let mut value = ChainingValue::default();
        for (to, from) in value.iter_mut().zip(self.bytes(at, 32)?) {
            *to = from;
        }
        Ok(value)
    }

    fn store(&self, at: usize, value: &ChainingValue) -> Result<(), Stop> {
        let mut words = value.as_chunks::<4>().0.iter();
        self.words(at, 8, true, |_, word: &AtomicU32| {
            word.store(words.next().map_or(0, |bytes| u32::from_le_bytes(*bytes)), Ordering::Relaxed);
        })
    }
}

/// One value of many: the left side of each parent is the largest complete tree.
fn fold(values: &[ChainingValue], root: bool) -> Option<ChainingValue> {
    match values {
        [] => None,
        [value] => Some(*value),
        _ => {
            let (left, right) = values.split_at_checked(values.len().next_power_of_two() / 2)?;
            let (left, right) = (fold(left, false)?, fold(right, false)?);
            Some(if root {
                merge_subtrees_root(&left, &right, Mode::Hash).into()
            } else {
                merge_subtrees_non_root(&left, &right, Mode::Hash)
            })
        }
    }
}
