//! What the kernels are told: where the bytes of each text lie.
//!
//! A text is what gets one digest; its spans lie here and there. The kernels make a node of every 256 KiB of a span, so
//! a text can be hashed where it lies if its spans but the last are multiples of that.

use super::TransferError;

/// The longest text: what one block of threads can fold.
pub(super) const LONGEST: u64 = 64 << 20;
/// Bytes of a span for one block of threads: it makes a node of them.
const NODE: u64 = 256 << 10;
/// Bytes of a leaf of the tree.
const LEAF: u64 = 1 << 10;
/// How many spans one launch is told of.
pub(super) const SPANS: usize = 4096;
/// How many nodes the spans of one launch have together: 8 GiB in chunks of 64 MiB.
pub(super) const NODES: usize = 32 << 10;

/// Bytes of GPU memory in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::transfer) struct Span {
    pub(in crate::transfer) address: u64,
    pub(in crate::transfer) len: u64,
    /// Whether a text ends with them; the next span begins another one.
    pub(in crate::transfer) ends_text: bool,
}

/// A span as the kernels are told of it: `Piece` of `hash.cu`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Row {
    address: u64,
    length: u64,
    first_leaf: u64,
    first_node: u64,
    leaves: u64,
}

/// A text as the kernels are told of it: `Text` of `hash.cu`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct Text {
    first_node: u64,
    leaves: u64,
}

/// One launch.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    pub(super) rows: Vec<Row>,
    pub(super) texts: Vec<Text>,
    /// How many rows each text has.
    pub(super) spans: Vec<usize>,
    /// How many nodes the longest row has.
    pub(super) longest: usize,
}

impl Plan {
    /// Of whole texts.
    pub(super) fn of(spans: &[Span]) -> Self {
        let mut plan = Self::default();
        let mut first_node = 0;
        for spans in spans.split_inclusive(|span| span.ends_text) {
            let leaves = spans.iter().map(|span| span.len).sum::<u64>().div_ceil(LEAF).max(1);
            plan.texts.push(Text { first_node, leaves });
            plan.spans.push(spans.len());
            let mut at = 0;
            for &Span { address, len: length, .. } in spans {
                plan.rows.push(Row { address, length, first_leaf: at / LEAF, first_node, leaves });
                at += length;
                first_node += nodes(length);
                plan.longest = plan.longest.max(usize::try_from(nodes(length)).unwrap_or(usize::MAX));
            }
        }
        plan
    }
}

/// Whether spans of these lengths can be one text.
pub(in crate::transfer) fn are_one_text(lengths: impl IntoIterator<Item = u64>) -> bool {
    let (mut whole, mut before) = (0_u64, None);
    let fit = lengths.into_iter().all(|len| {
        whole = whole.saturating_add(len);
        before.replace(len).is_none_or(|before: u64| before > 0 && before.is_multiple_of(NODE) && len > 0)
    });
    fit && whole <= LONGEST
}

/// How many of the spans one launch can be told of: whole texts, at least one.
pub(super) fn fitting(spans: &[Span]) -> Result<usize, TransferError> {
    let mut left = NODES;
    let mut taken = 0;
    for spans in spans.split_inclusive(|span| span.ends_text) {
        if !are_one_text(spans.iter().map(|span| span.len)) {
            return Err(TransferError::System { call: "the table of digests", errno: libc::E2BIG });
        }
        let count: u64 = spans.iter().map(|span| nodes(span.len)).sum();
        match left.checked_sub(usize::try_from(count).unwrap_or(usize::MAX)) {
            Some(rest) if taken + spans.len() <= SPANS => left = rest,
            _ => break,
        }
        taken += spans.len();
    }
    Ok(taken)
}

/// How many nodes a span has: one for no bytes.
fn nodes(len: u64) -> u64 {
    len.div_ceil(NODE).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<T: AsRef<[u64]>>(texts: &[T]) -> Vec<Span> {
        let mut spans = Vec::new();
        for lengths in texts {
            let lengths = lengths.as_ref();
            for (number, &len) in lengths.iter().enumerate() {
                let address = u64::try_from(spans.len()).unwrap() << 32;
                spans.push(Span { address, len, ends_text: number + 1 == lengths.len() });
            }
        }
        spans
    }

    #[test]
    fn a_launch_takes_whole_texts_that_its_tables_have_room_for() {
        assert_eq!(fitting(&texts(&[[LONGEST]; 500])), Ok(128));
        assert_eq!(fitting(&texts(&[[2 << 20]; 5000])), Ok(SPANS));
        assert_eq!(fitting(&texts(&[[0]; 3])), Ok(3));
        // 4096 is no multiple of 33.
        assert_eq!(fitting(&texts(&[[NODE; 33]; 200])), Ok(33 * 124));
        assert_eq!(fitting(&texts(&[[LONGEST / 2; 2]; 500])), Ok(256));
        assert!(fitting(&texts(&[[LONGEST + 1]])).is_err());
        assert!(fitting(&texts(&[[1, 1]])).is_err());
    }

    #[test]
    fn spans_are_one_text_if_all_but_the_last_end_with_a_node() {
        for good in [&[0][..], &[5], &[LONGEST], &[NODE, 1], &[3 * NODE, NODE, NODE + 5]] {
            assert!(are_one_text(good.iter().copied()), "{good:?}");
        }
        for bad in [&[LONGEST + 1][..], &[LONGEST, 1], &[1, NODE], &[0, 5], &[NODE, 0], &[NODE, 5, NODE]] {
            assert!(!are_one_text(bad.iter().copied()), "{bad:?}");
        }
    }

    #[test]
    fn nodes_of_a_text_lie_in_a_row_and_leaves_are_counted_through() {
        let plan = Plan::of(&texts(&[&[2 * NODE, NODE, 5][..], &[0], &[NODE + 1]]));
        let row = |address: u64, length, first_leaf, first_node, leaves| Row {
            address: address << 32,
            length,
            first_leaf,
            first_node,
            leaves,
        };
        let rows = [
            row(0, 2 * NODE, 0, 0, 769),
            row(1, NODE, 512, 2, 769),
            row(2, 5, 768, 3, 769),
            row(3, 0, 0, 4, 1),
            row(4, NODE + 1, 0, 5, 257),
        ];
        let text = |first_node, leaves| Text { first_node, leaves };
        let told = Plan {
            rows: rows.to_vec(),
            texts: vec![text(0, 769), text(4, 1), text(5, 257)],
            spans: vec![3, 1, 1],
            longest: 2,
        };
        assert_eq!(plan, told);
    }
}
