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
use super::rule::{self, ALL_HELD, ANSWERED, ANSWERS_HELD, FENCED, PROBED, Rule};
use super::slots::{Place, Slots};
use super::waiters::{Called, Waiters};
use crate::calls::CallId;
use cuda_sys::Class;

/// The gate of a process.
pub(super) struct Gate<M: Machine, const OWN: usize, const SHARED: usize, const SEATS: usize> {
    pub(super) word: Alone<M::U32>,
    pub(super) slots: Slots<M, OWN, SHARED>,
    pub(super) waiters: Waiters<M, SEATS>,
}

/// On cache lines of its own, which nobody writes while nobody writes it.
#[repr(align(128))]
pub(super) struct Alone<T>(pub(super) T);

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

/// What becomes of a held call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It waits.
    Wait,
    /// It goes through the closed gate.
    Pass,
    /// It is answered without the driver.
    Leave,
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
    pub(super) fn enter(&self, call: CallId, mut capturing: impl FnMut() -> bool) -> Pass<'_, M> {
        match self.enter_open(Rule::of(call)) {
            Some(pass) => pass,
            None => self.enter_slowly(call, &mut capturing),
        }
    }

    /// Takes a pass for a call that only asks. While it is held, `answered` may answer in the driver's place; then
    /// there is no pass.
    #[inline(always)]
    pub(super) fn ask(&self, call: CallId, mut answered: impl FnMut() -> bool) -> Option<Pass<'_, M>> {
        self.enter_open(Rule::of(call)).or_else(|| self.ask_slowly(call, &mut answered))
    }

    /// A pass, if the thread has a slot of its own and nothing is held.
    #[inline(always)]
    fn enter_open(&self, rule: Rule) -> Option<Pass<'_, M>> {
        let slot = self.slots.own(M::with_local(|local| local.place.get()))?;
        let before = slot.count.load(Relaxed);
        slot.count.store(before + rule.counts, Relaxed);
        M::light_fence();
        if self.word.0.load(Acquire) & (rule.held_by | FENCED) == 0 {
            return Some(Pass { count: &slot.count, before, shared: 0, thread: PhantomData });
        }
        slot.count.store(before, Release);
        None
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(&self, call: CallId, capturing: &mut dyn FnMut() -> bool) -> Pass<'_, M> {
        self.probe();
        M::with_local(|local| {
            let place = self.slots.place(local);
            let pass = self.pass(&place, local, call);
            // Counted while it asks: the stream may stop capturing after that, and then the call does start work.
            // Nobody asks the driver while the answers are held.
            self.await_turn(&place, local, call, &mut |word| {
                if word & ANSWERS_HELD == 0 && capturing() { Verdict::Pass } else { Verdict::Wait }
            });
            pass
        })
    }

    #[cold]
    #[inline(never)]
    fn ask_slowly(&self, call: CallId, answered: &mut dyn FnMut() -> bool) -> Option<Pass<'_, M>> {
        self.probe();
        M::with_local(|local| {
            let place = self.slots.place(local);
            let pass = self.pass(&place, local, call);
            let entered = self.await_turn(&place, local, call, &mut |word| {
                if word & ANSWERED != 0 && answered() { Verdict::Leave } else { Verdict::Wait }
            });
            if entered {
                return Some(pass);
            }
            // Not counted any more.
            core::mem::forget(pass);
            None
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

    /// Returns once the thread is inside, and counted, or has left. A held call is as `held` says.
    fn await_turn(
        &self,
        place: &Place<'_, M>,
        local: &Local,
        call: CallId,
        held: &mut dyn FnMut(u32) -> Verdict,
    ) -> bool {
        let rule = Rule::of(call);
        let nested = place.count(local) != 0;
        loop {
            place.add(local, rule.counts);
            M::full_fence();
            let word = self.word.0.load(Acquire);
            // The driver calls back into hooked functions: what is under way is let end.
            if nested || !rule.is_held(word) {
                return true;
            }
            let verdict = held(word);
            if verdict == Verdict::Pass {
                return true;
            }
            place.subtract(local, rule.counts);
            if verdict == Verdict::Leave {
                return false;
            }
            let admitted = || place.add(local, rule.counts);
            if self.waiters.wait(&self.word.0, word, call, admitted) == Called::Admitted {
                return true;
            }
        }
    }

    /// Finds out, once, whether threads can be ordered from outside. Until then each orders itself.
    fn probe(&self) {
        if self.word.0.load(Relaxed) & PROBED == 0 {
            if M::has_heavy_fence() {
                self.word.0.fetch_and(!FENCED, SeqCst);
            }
            self.word.0.fetch_or(PROBED, SeqCst);
        }
    }

    /// Holds what `bits` say, and what was held before. Does not wait for anybody.
    ///
    /// When it fails nothing is held that was not held before, and threads order themselves from then on, so
    /// that a later attempt needs no heavy fence.
    pub(super) fn close(&self, bits: u32) -> Result<(), i32> {
        let before = self.word.0.fetch_or(bits, SeqCst);
        M::full_fence();
        if before & FENCED != 0 {
            return Ok(());
        }
        M::heavy_fence().inspect_err(|_| {
            self.word.0.fetch_or(FENCED, SeqCst);
            self.open(bits & !before);
        })
    }

    /// Holds no longer what `bits` say, and wakes who waited for it.
    pub(super) fn open(&self, bits: u32) {
        self.word.0.fetch_and(!bits, SeqCst);
        self.waiters.open(&self.word.0);
    }

    /// From now on threads that wait with a question may be answered without the driver: they look whether they are.
    pub(super) fn answer(&self) {
        self.word.0.fetch_or(ANSWERED, SeqCst);
        self.waiters.call(|call| Rule::of(call).held_by == ANSWERS_HELD);
    }

    /// Lets one held call through that gives work or touches memory, or else one begin of a capture; of `thread` if one is
    /// named. Whether there was one.
    pub(super) fn step(&self, thread: Option<u32>) -> bool {
        let works = |call: CallId| {
            matches!(call.class(), Class::Launch | Class::Memory | Class::Object) && !call.begins_capture()
        };
        self.waiters.admit(thread, works) || self.waiters.admit(thread, CallId::begins_capture)
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
        self.word.0.fetch_and(!(ALL_HELD | ANSWERED), SeqCst);
        M::with_local(|local| self.slots.forked(local));
        self.waiters.forked();
    }
}

impl<const OWN: usize, const SHARED: usize, const SEATS: usize> Gate<Linux, OWN, SHARED, SEATS> {
    /// An open gate that nobody has passed.
    pub(super) const fn new() -> Self {
        Self { word: Alone(AtomicU32::new(FENCED)), slots: Slots::new(), waiters: Waiters::new() }
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
