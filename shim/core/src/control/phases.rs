//! The phase of the process, how far the running verb has come, and word of it to the control thread.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use protocol::{Phase, Progress, VerbKind};

use super::wake::Wake;

/// Where the process stands. Read by anybody; set by the one verb that is being carried out.
#[derive(Debug)]
pub struct Phases {
    /// Index into [`Phase::ALL`].
    phase: AtomicU8,
    /// Counts every `set`, so that whoever looked before and after knows whether anything happened between.
    changes: AtomicU32,
    /// The running verb's number on the wire; 0 while none runs.
    verb: AtomicU8,
    bytes: AtomicU64,
    total: AtomicU64,
    pub(super) wake: Wake,
}

impl Phases {
    /// A process that runs.
    pub const fn new() -> Self {
        Self {
            phase: AtomicU8::new(0),
            changes: AtomicU32::new(0),
            verb: AtomicU8::new(0),
            bytes: AtomicU64::new(0),
            total: AtomicU64::new(0),
            wake: Wake::new(),
        }
    }

    /// Where the process stands.
    pub fn get(&self) -> Phase {
        let index = usize::from(self.phase.load(Ordering::Acquire));
        Phase::ALL.get(index).copied().unwrap_or_default()
    }

    /// Moves the process to `phase`; peers whose requests were put off are answered.
    pub fn set(&self, phase: Phase) {
        let index = (0..).zip(Phase::ALL).find_map(|(index, known)| (known == phase).then_some(index));
        self.phase.store(index.unwrap_or(0), Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.wake.ring();
    }

    /// How often the phase was set.
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    /// Notes how many bytes the running verb has to deal with.
    pub fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// How many bytes the running verb has said it has to deal with.
    pub fn expected(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Notes that the running verb has dealt with `bytes` more.
    pub fn advance(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How far the running verb has come.
    pub fn progress(&self) -> Option<Progress> {
        let verb = VerbKind::from_wire(self.verb.load(Ordering::Relaxed))?;
        let bytes = self.bytes.load(Ordering::Relaxed);
        Some(Progress { verb, bytes, total: self.expected() })
    }

    pub(super) fn begin(&self, verb: VerbKind) {
        self.bytes.store(0, Ordering::Relaxed);
        self.total.store(0, Ordering::Relaxed);
        self.verb.store(verb as u8, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.verb.store(0, Ordering::Relaxed);
    }

    /// Forgets the parent's phase: called in a forked child, which runs. Takes no lock.
    pub fn forked(&self) {
        self.phase.store(0, Ordering::Relaxed);
        self.end();
        self.wake.forked();
    }
}

impl Default for Phases {
    fn default() -> Self {
        Self::new()
    }
}
