//! The algorithm under a tool that runs every order of accesses the memory model allows, and fails on a data
//! race, a deadlock or a wrong answer in any of them.
//!
//! A heavy fence is modelled as what it is: an interrupt that makes each other thread execute a full fence
//! between two of its instructions. The light fence is such a place between two instructions, [`Model::point`]
//! is one in a test's own code, and a thread that sleeps or has ended takes part at once.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::array;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

use super::algorithm::{Alone, Gate};
use super::machine::{Local, Machine, atomics};
use super::rule::{FENCED, LAUNCHES_HELD, PROBED};
use super::slots::{Slot, Slots};
use super::waiters::{Seat, Waiters};
use crate::calls::CallId;

/// The most threads a model has.
const THREADS: usize = 3;
const LAUNCH: CallId = CallId::cuLaunchKernel;

atomics!(AtomicU32: u32, AtomicU64: u64);

#[derive(Debug)]
struct Model;

#[derive(Debug, Default)]
struct Interrupts {
    /// Heavy fences begun, one after the other.
    asked: u32,
    /// Up to which of them each thread has taken part.
    answered: [u32; THREADS],
    /// Who sleeps, or does not exist.
    off: [bool; THREADS],
}

#[derive(Debug)]
struct World {
    /// Tells, without a lock, that a heavy fence has begun.
    asked: AtomicU32,
    interrupts: Mutex<Interrupts>,
    changed: Condvar,
    /// One bit for each name whose thread lives.
    living: AtomicU32,
}

loom::lazy_static! {
    static ref WORLD: World = World {
        asked: AtomicU32::new(0),
        interrupts: Mutex::new(Interrupts { off: [true; THREADS], ..Interrupts::default() }),
        changed: Condvar::new(),
        living: AtomicU32::new(0),
    };
}

loom::thread_local! {
    static LOCAL: Local = Local::new();
    static NAME: core::cell::Cell<u32> = core::cell::Cell::new(0);
}

impl Model {
    fn name() -> u32 {
        NAME.with(core::cell::Cell::get)
    }

    fn me() -> usize {
        Self::name() as usize - 1
    }

    /// Starts to take part under a name. The thread owns the slot `place - 1`, if that is not 0.
    fn begin(name: u32, place: u32) {
        NAME.with(|cell| cell.set(name));
        LOCAL.with(|local| local.place.set(place));
        WORLD.living.fetch_or(1 << name, SeqCst);
        Self::set_off(&mut Self::lock(), false);
    }

    /// Ends taking part.
    fn end() {
        fence(SeqCst);
        Self::set_off(&mut Self::lock(), true);
        WORLD.changed.notify_all();
    }

    fn lock() -> MutexGuard<'static, Interrupts> {
        WORLD.interrupts.lock().unwrap()
    }

    fn set_off(interrupts: &mut Interrupts, off: bool) {
        interrupts.off[Self::me()] = off;
        interrupts.answered[Self::me()] = interrupts.asked;
    }

    /// A place where the thread can be interrupted.
    fn point() {
        if WORLD.asked.load(Relaxed) == 0 {
            return;
        }
        let mut interrupts = Self::lock();
        if interrupts.answered[Self::me()] != interrupts.asked {
            fence(SeqCst);
            interrupts.answered[Self::me()] = interrupts.asked;
            WORLD.changed.notify_all();
        }
    }
}

impl Machine for Model {
    type U32 = AtomicU32;
    type U64 = AtomicU64;

    fn with_local<R>(f: impl FnOnce(&Local) -> R) -> R {
        LOCAL.with(f)
    }

    fn light_fence() {
        Self::point();
    }

    fn full_fence() {
        fence(SeqCst);
    }

    fn has_heavy_fence() -> bool {
        true
    }

    fn heavy_fence() -> Result<(), i32> {
        fence(SeqCst);
        let mut interrupts = Self::lock();
        interrupts.asked += 1;
        WORLD.asked.store(interrupts.asked, SeqCst);
        WORLD.changed.notify_all();
        let asked = interrupts.asked;
        let me = Self::me();
        let waits_for = |interrupts: &Interrupts| {
            (0..THREADS).any(|at| at != me && !interrupts.off[at] && interrupts.answered[at] < asked)
        };
        while waits_for(&interrupts) {
            interrupts = WORLD.changed.wait(interrupts).unwrap();
        }
        drop(interrupts);
        fence(SeqCst);
        Ok(())
    }

    fn wait(word: &AtomicU32, value: u32) {
        let mut interrupts = Self::lock();
        if word.load(SeqCst) == value {
            fence(SeqCst);
            if interrupts.answered[Self::me()] != interrupts.asked {
                WORLD.changed.notify_all();
            }
            Self::set_off(&mut interrupts, true);
            interrupts = WORLD.changed.wait(interrupts).unwrap();
        }
        Self::set_off(&mut interrupts, false);
    }

    fn wake(_word: &AtomicU32) {
        drop(Self::lock());
        WORLD.changed.notify_all();
    }

    fn thread() -> u32 {
        Self::name()
    }

    fn is_alive(thread: u32) -> bool {
        WORLD.living.load(SeqCst) & (1 << thread) != 0
    }
}

type ModelGate<const OWN: usize, const SEATS: usize> = Gate<Model, OWN, 1, SEATS>;

/// A gate whose first slots belong to the threads named 1, 2, ...
fn gate<const OWN: usize, const SEATS: usize>(word: u32) -> Arc<ModelGate<OWN, SEATS>> {
    let slot = |owner| Slot { count: AtomicU32::new(0), owner: AtomicU64::new(owner) };
    let seat = |_| Seat { state: AtomicU32::new(0), thread: AtomicU32::new(0), arrival: AtomicU64::new(0) };
    Arc::new(Gate {
        word: Alone(AtomicU32::new(PROBED | word)),
        slots: Slots {
            own: array::from_fn(|at| slot(at as u64 + 1)),
            shared: array::from_fn(|_| slot(0)),
            used: AtomicU32::new(u32::try_from(OWN).unwrap()),
        },
        waiters: Waiters {
            seats: array::from_fn(seat),
            arrivals: AtomicU64::new(0),
            standing: AtomicU32::new(0),
        },
    })
}

/// Runs `model` in every order with at most so many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// What calls work on: a data race where two threads touch it at once.
struct Memory(UnsafeCell<u32>);

// SAFETY: that no two threads touch it at once is what the models check.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }

    fn touch(&self) {
        self.0.with_mut(|value| {
            // SAFETY: a pointer to a live value; loom fails the model where another thread uses it meanwhile.
            unsafe { *value += 1 };
        });
    }
}

/// A thread makes a call; who closes touches what calls work on as soon as nobody is inside.
fn nobody_is_inside_once_closed<const OWN: usize, const SEATS: usize>(word: u32) {
    let gate = gate::<OWN, SEATS>(word);
    let memory = Memory::new();
    let caller = {
        let (gate, memory) = (gate.clone(), memory.clone());
        thread::spawn(move || {
            Model::begin(1, 1);
            Model::point();
            let pass = gate.enter(LAUNCH, || false);
            Model::point();
            memory.touch();
            drop(pass);
            Model::end();
        })
    };
    Model::begin(2, 2);
    gate.close(LAUNCHES_HELD).unwrap();
    if gate.inside().launches == 0 {
        memory.touch();
    }
    gate.open(LAUNCHES_HELD);
    Model::end();
    caller.join().unwrap();
}

#[test]
fn who_closes_sees_every_thread_inside() {
    explore(3, || nobody_is_inside_once_closed::<2, 1>(0));
}

#[test]
fn who_closes_sees_every_thread_inside_where_threads_fence() {
    explore(3, || nobody_is_inside_once_closed::<2, 1>(FENCED));
}

#[test]
fn who_closes_sees_every_thread_inside_of_a_shared_slot() {
    explore(3, || nobody_is_inside_once_closed::<0, 1>(0));
}

#[test]
fn a_thread_without_a_seat_comes_through_when_the_gate_opens() {
    explore(3, || nobody_is_inside_once_closed::<2, 0>(0));
}

/// Callers want to launch at a closed gate, and one step is made.
fn a_step<const CALLERS: usize>() {
    let gate = gate::<3, CALLERS>(LAUNCHES_HELD);
    let memories: [_; CALLERS] = array::from_fn(|_| Memory::new());
    let through = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (1..)
        .zip(&memories)
        .map(|(name, memory)| {
            let (gate, memory, through) = (gate.clone(), memory.clone(), through.clone());
            thread::spawn(move || {
                Model::begin(name, name);
                let pass = gate.enter(LAUNCH, || false);
                memory.touch();
                through.fetch_add(1, Relaxed);
                drop(pass);
                Model::end();
            })
        })
        .collect();
    Model::begin(3, 3);
    let stepped = gate.step(None);
    // Who was let through is inside, or done: there is no time between the two. The others are neither.
    if gate.inside().launches == 0 {
        assert_eq!(through.load(Relaxed), u32::from(stepped));
        memories.iter().for_each(|memory| memory.touch());
    }
    gate.open(LAUNCHES_HELD);
    Model::end();
    for caller in callers {
        caller.join().unwrap();
    }
}

#[test]
fn a_step_counts_whom_it_lets_through_at_once() {
    explore(3, a_step::<1>);
}

#[test]
fn a_step_lets_exactly_one_through() {
    explore(1, a_step::<2>);
}

/// A slot of a dead thread, wanted by a living one and by a new one that bears the dead one's name.
#[test]
fn a_dead_threads_slot_goes_to_one_thread_only() {
    explore(3, || {
        let gate = gate::<1, 1>(0);
        gate.slots.own[0].count.store(7, Relaxed);
        let claimant = |name| {
            let gate = gate.clone();
            thread::spawn(move || {
                Model::begin(name, 0);
                let place = LOCAL.with(|local| {
                    gate.slots.place(local);
                    local.place.get()
                });
                Model::end();
                place
            })
        };
        let places = [claimant(1), claimant(2)].map(|thread| thread.join().unwrap());
        assert_eq!(places.iter().filter(|place| **place == 1).count(), 1);
        assert_eq!(gate.slots.own[0].count.load(Relaxed), 0);
    });
}
