//! How threads pass, and how somebody closes before them.
//!
//! A thread writes into its slot that it is inside, and then looks at the word; who closes writes the word, and
//! then looks at the slots. One of the two sees the other, provided that neither processor moves its look before
//! its write. The one who closes pays for both: its heavy fence makes every thread of the process execute a full
//! fence. A thread whose write comes before that fence is seen by the closer; one whose look comes after it sees
//! the closed word. There is no third kind, since the light fence keeps the write before the look in the code.

use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::linux::Linux;
use super::machine::{Atomic, Local, Machine};
use super::rule::{self, ALL_HELD, ANSWERS_HELD, FENCED, PROBED, Rule};
use super::slots::{Place, Slots};
use super::waiters::{Called, Waiters};
use crate::calls::CallId;
use cuda_sys::Class;

/// The gate of a process.
pub(super) struct Gate<M: Machine, const OWN: usize, const SHARED: usize, const SEATS: usize> {
    pub(super) word: M::U32,
    pub(super) slots: Slots<M, OWN, SHARED>,
    pub(super) waiters: Waiters<M, SEATS>,
}

/// The right of one thread to be inside one call; given back on drop.
pub(super) struct Pass<'a, M: Machine> {
    count: &'a M::U32,
    /// The thread's count before the pass.
    before: u32,
    /// What to take from a shared count; 0 where the count is the thread's own.
    shared: u32,
    /// Bound to its thread.
    thread: PhantomData<*const ()>,
}

/// Threads inside calls, by kind of call. A thread may be inside of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Inside {
    /// Of calls that launch, or begin a capture.
    pub launches: u32,
    /// Of calls that touch memory or objects.
    pub objects: u32,
    /// Of calls that ask.
    pub answers: u32,
}

impl Inside {
    fn add(&mut self, count: u32) {
        self.launches += rule::launches(count);
        self.objects += rule::objects(count);
        self.answers += rule::answers(count);
    }
}

impl<M: Machine, const OWN: usize, const SHARED: usize, const SEATS: usize> Gate<M, OWN, SHARED, SEATS> {
    /// Takes a pass, waiting while the gate holds the call.
    #[inline(always)]
    pub(super) fn enter(&self, call: CallId, capturing: impl FnMut() -> bool) -> Pass<'_, M> {
        let rule = Rule::of(call);
        if let Some(slot) = self.slots.own(M::with_local(|local| local.place.get())) {
            let before = slot.count.load(Relaxed);
            slot.count.store(before + rule.counts, Relaxed);
            M::light_fence();
            if self.word.load(Acquire) & (rule.held_by | FENCED) == 0 {
                return Pass { count: &slot.count, before, shared: 0, thread: PhantomData };
            }
            slot.count.store(before, Release);
        }
        let mut capturing = capturing;
        self.enter_slowly(call, &mut capturing)
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(&self, call: CallId, capturing: &mut dyn FnMut() -> bool) -> Pass<'_, M> {
        self.probe();
        M::with_local(|local| {
            let place = self.slots.place(local);
            let pass = self.pass(&place, local, call);
            self.await_turn(&place, local, call, capturing);
            pass
        })
    }

    /// A pass for the call; to be counted by the caller.
    fn pass<'a>(&self, place: &Place<'a, M>, local: &Local, call: CallId) -> Pass<'a, M> {
        let before = place.count(local);
        let (count, shared) = match place {
            Place::Own(slot) => (&slot.count, 0),
            Place::Shared(slot) => (&slot.count, Rule::of(call).counts),
        };
        Pass { count, before, shared, thread: PhantomData }
    }

    /// Returns once the thread is inside, and counted.
    fn await_turn(
        &self,
        place: &Place<'_, M>,
        local: &Local,
        call: CallId,
        capturing: &mut dyn FnMut() -> bool,
    ) {
        let rule = Rule::of(call);
        let nested = place.count(local) != 0;
        loop {
            place.add(local, rule.counts);
            M::full_fence();
            let word = self.word.load(Acquire);
            // The driver calls back into hooked functions: what is under way is let end.
            if nested || !rule.is_held(word) {
                return;
            }
            // Counted meanwhile: the stream may stop capturing after it was asked, and then the call does start
            // work. Nobody asks the driver while the answers are held.
            if word & ANSWERS_HELD == 0 && capturing() {
                return;
            }
            place.subtract(local, rule.counts);
            let admitted = || place.add(local, rule.counts);
            if self.waiters.wait(&self.word, call, admitted) == Called::Admitted {
                return;
            }
        }
    }

    /// Finds out, once, whether threads can be ordered from outside. Until then each orders itself.
    fn probe(&self) {
        if self.word.load(Relaxed) & PROBED == 0 {
            if M::has_heavy_fence() {
                self.word.fetch_and(!FENCED, SeqCst);
            }
            self.word.fetch_or(PROBED, SeqCst);
        }
    }

    /// Holds what `bits` say, and what was held before. Does not wait for anybody.
    ///
    /// When it fails nothing is held that was not held before, and threads order themselves from then on, so
    /// that a later attempt needs no heavy fence.
    pub(super) fn close(&self, bits: u32) -> Result<(), i32> {
        let before = self.word.fetch_or(bits, SeqCst);
        M::full_fence();
        if before & FENCED != 0 {
            return Ok(());
        }
        M::heavy_fence().inspect_err(|_| {
            self.word.fetch_or(FENCED, SeqCst);
            self.open(bits & !before);
        })
    }

    /// Holds no longer what `bits` say, and wakes who waited for it.
    pub(super) fn open(&self, bits: u32) {
        self.word.fetch_and(!bits, SeqCst);
        self.waiters.open(&self.word);
    }

    /// Lets one held launch through, or else one begin of a capture. Whether there was one.
    pub(super) fn step(&self) -> bool {
        self.waiters.admit(|call| call.class() == Class::Launch) || self.waiters.admit(CallId::begins_capture)
    }

    /// Who is inside. What was closed before is exact: who is not counted now will not get in.
    pub(super) fn inside(&self) -> Inside {
        let mut inside = Inside::default();
        self.waiters.for_each_admitted(|count| inside.add(count));
        self.slots.for_each_count(|count| inside.add(count));
        inside
    }

    /// In a forked child, on its only thread: open, and nobody else is inside or waits.
    pub(super) fn forked(&self) {
        self.word.fetch_and(!ALL_HELD, SeqCst);
        M::with_local(|local| self.slots.forked(local));
        self.waiters.forked();
    }
}

impl<const OWN: usize, const SHARED: usize, const SEATS: usize> Gate<Linux, OWN, SHARED, SEATS> {
    /// An open gate that nobody has passed.
    pub(super) const fn new() -> Self {
        Self { word: AtomicU32::new(FENCED), slots: Slots::new(), waiters: Waiters::new() }
    }
}

impl<M: Machine> Drop for Pass<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.shared == 0 {
            self.count.store(self.before, Release);
        } else {
            self.leave_shared();
        }
    }
}

impl<M: Machine> Pass<'_, M> {
    #[cold]
    #[inline(never)]
    fn leave_shared(&self) {
        M::with_local(|local| local.count.set(self.before));
        self.count.fetch_sub(self.shared, Release);
    }
}
