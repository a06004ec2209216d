//! Memory that the driver keeps and saves itself, counted while it is alive.
//!
//! As with [`blockers`](crate::blockers), whoever gives memory back takes it out before the driver is asked, which may hand
//! out the same address at once, and puts it back where the driver refused.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::DriverMemory;

/// Which call it is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `cuMemAlloc` and its family.
    Malloc,
    /// Stream-ordered.
    Async,
    /// Page-locked host memory.
    Host,
}

/// One piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which call it is from.
    pub kind: Kind,
    /// The bytes that were asked for.
    pub bytes: u64,
    /// The context it goes with; 0 for none.
    pub owner: u64,
}

/// The pieces that are alive, by address.
#[derive(Debug, Default)]
pub struct Tally(Mutex<BTreeMap<u64, Piece>>);

impl Tally {
    /// Records what the driver has given.
    pub fn add(&self, at: u64, piece: Piece) {
        self.lock().insert(at, piece);
    }

    /// Takes out what is about to be given back.
    pub fn take(&self, at: u64) -> Option<Piece> {
        self.lock().remove(&at)
    }

    /// A context is gone, and what goes with it.
    pub fn owner_gone(&self, owner: u64) {
        self.lock().retain(|_, piece| owner == 0 || piece.owner != owner);
    }

    /// The sums.
    pub fn sums(&self) -> DriverMemory {
        let mut sums = DriverMemory::default();
        for piece in self.lock().values() {
            let sum = match piece.kind {
                Kind::Malloc => &mut sums.malloc_bytes,
                Kind::Async => &mut sums.async_bytes,
                Kind::Host => &mut sums.host_bytes,
            };
            *sum = sum.saturating_add(piece.bytes);
        }
        sums
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Piece>> {
        // Every change leaves a usable table.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alive_is_summed_by_kind_and_goes_with_its_context() {
        let tally = Tally::default();
        tally.add(0x1000, Piece { kind: Kind::Malloc, bytes: 10, owner: 7 });
        tally.add(0x2000, Piece { kind: Kind::Malloc, bytes: 5, owner: 8 });
        tally.add(0x3000, Piece { kind: Kind::Async, bytes: 300, owner: 0 });
        tally.add(0x4000, Piece { kind: Kind::Host, bytes: 4000, owner: 7 });
        let sums =
            |malloc_bytes, async_bytes, host_bytes| DriverMemory { malloc_bytes, async_bytes, host_bytes };
        assert_eq!(tally.sums(), sums(15, 300, 4000));
        let taken = tally.take(0x3000).expect("it is there");
        assert_eq!(tally.sums(), sums(15, 0, 4000));
        assert_eq!(tally.take(0x3000), None);
        tally.add(0x3000, taken);
        tally.owner_gone(7);
        assert_eq!(tally.sums(), sums(5, 300, 0));
        tally.owner_gone(0);
        assert_eq!(tally.sums(), sums(5, 300, 0));
    }
}
