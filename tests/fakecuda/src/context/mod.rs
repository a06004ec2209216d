//! Contexts, primary and created, and each thread's stack of them.
//!
//! A stack entry remembers which life of a context it means: a context that was destroyed while current stays on the
//! stack, and calls then answer CONTEXT_IS_DESTROYED.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::ThreadId;

use cuda_sys::{Context, CuError, CuResult, result};

use crate::config::{MAX_DEVICES, config};
use crate::driver::{Driver, driver};
use crate::slab::{Slab, address_of};
use crate::work::stream::{Kind, Stream};

pub(crate) mod calls;

/// One context. Its handle is its address.
#[derive(Debug, Default)]
pub(crate) struct Ctx {
    ordinal: AtomicUsize,
    primary: AtomicBool,
    flags: AtomicU32,
    id: AtomicU64,
    /// Counts lives: odd while alive.
    life: AtomicU32,
    /// The error that a fault of its work left, 0 for none. It stays until the context ends.
    error: AtomicU32,
    /// Ordinals whose memory its kernels may access, as a bit set.
    peers: AtomicU32,
    /// All its streams, the default ones included.
    streams: Mutex<Vec<&'static Stream>>,
    legacy: AtomicPtr<Stream>,
    /// Bytes of the device that it has taken for its streams.
    stream_memory: AtomicUsize,
    /// The default stream of each thread that has used it.
    per_thread: Mutex<HashMap<ThreadId, &'static Stream>>,
}

/// The primary context of a device.
#[derive(Debug, Default)]
struct Primary {
    context: Option<&'static Ctx>,
    retained: u32,
    flags: u32,
}

/// All contexts of the process.
#[derive(Debug)]
pub(crate) struct Contexts {
    all: Slab<Ctx>,
    primaries: [Mutex<Primary>; MAX_DEVICES],
    made: AtomicBool,
    next_id: AtomicU64,
}

const DEPTH: usize = 64;

/// A thread's stack. Plain cells without a destructor: calls during the exit of a thread still find it.
struct Stack {
    generation: Cell<u32>,
    depth: Cell<usize>,
    entries: [Cell<(usize, u32)>; DEPTH],
}

thread_local! {
    static STACK: Stack = const {
        Stack {
            generation: Cell::new(0),
            depth: Cell::new(0),
            entries: [const { Cell::new((0, 0)) }; DEPTH],
        }
    };
}

impl Stack {
    fn with<T>(driver: &Driver, use_it: impl FnOnce(&Self) -> T) -> T {
        STACK.with(|stack| {
            if stack.generation.get() != driver.generation {
                stack.generation.set(driver.generation);
                stack.depth.set(0);
            }
            use_it(stack)
        })
    }

    fn top(&self) -> Option<(usize, u32)> {
        let depth = self.depth.get();
        self.entries.get(depth.checked_sub(1)?).map(Cell::get)
    }

    fn push(&self, entry: (usize, u32)) -> CuResult {
        let depth = self.depth.get();
        self.entries.get(depth).ok_or(CuError::INVALID_VALUE)?.set(entry);
        self.depth.set(depth + 1);
        Ok(())
    }

    fn pop(&self) -> Option<(usize, u32)> {
        let top = self.top()?;
        self.depth.set(self.depth.get() - 1);
        Some(top)
    }
}

impl Contexts {
    pub(crate) fn new() -> Self {
        Self {
            all: Slab::new(),
            primaries: [const { Mutex::new(Primary { context: None, retained: 0, flags: 0 }) }; MAX_DEVICES],
            made: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
        }
    }

    /// Whether the process has ever had a context.
    pub(crate) fn any_was_made(&self) -> bool {
        self.made.load(Ordering::Acquire)
    }

    /// The living context with this handle.
    pub(crate) fn get(&self, handle: Context) -> CuResult<&'static Ctx> {
        let context = self.all.get(handle.0.addr()).ok_or(CuError::INVALID_CONTEXT)?;
        if context.is_alive() { Ok(context) } else { Err(CuError::CONTEXT_IS_DESTROYED) }
    }

    /// Every living context.
    pub(crate) fn living(&self) -> Vec<&'static Ctx> {
        self.all.live().into_iter().filter(|context| context.is_alive()).collect()
    }

    fn begin(&self, driver: &Driver, context: &'static Ctx, ordinal: usize, primary: bool, flags: u32) {
        context.ordinal.store(ordinal, Ordering::Relaxed);
        context.primary.store(primary, Ordering::Relaxed);
        context.flags.store(flags, Ordering::Relaxed);
        context.id.store(self.next_id.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        context.error.store(0, Ordering::Relaxed);
        context.peers.store(0, Ordering::Relaxed);
        let legacy = Stream::create(driver, context, Kind::Legacy, 0, 0);
        *crate::lock(&context.streams) = vec![legacy];
        context.legacy.store(std::ptr::from_ref(legacy).cast_mut(), Ordering::Release);
        context.life.fetch_add(1, Ordering::AcqRel);
        self.made.store(true, Ordering::Release);
    }

    fn create(&self, driver: &Driver, ordinal: usize, flags: u32) -> &'static Ctx {
        self.all.insert(|context| self.begin(driver, context, ordinal, false, flags))
    }

    fn retain_primary(&self, driver: &Driver, ordinal: usize) -> CuResult<&'static Ctx> {
        let mut primary = crate::lock(self.primaries.get(ordinal).ok_or(CuError::INVALID_DEVICE)?);
        let context = match primary.context {
            Some(context) => {
                if primary.retained == 0 {
                    self.begin(driver, context, ordinal, true, primary.flags);
                }
                context
            }
            None => self.all.insert(|context| self.begin(driver, context, ordinal, true, primary.flags)),
        };
        primary.context = Some(context);
        primary.retained += 1;
        Ok(context)
    }

    fn release_primary(&self, ordinal: usize, all: bool) -> CuResult {
        let mut primary = crate::lock(self.primaries.get(ordinal).ok_or(CuError::INVALID_DEVICE)?);
        if primary.retained == 0 {
            return if all { Ok(()) } else { Err(CuError::INVALID_CONTEXT) };
        }
        primary.retained = if all { 0 } else { primary.retained - 1 };
        if primary.retained == 0
            && let Some(context) = primary.context
        {
            context.end();
        }
        Ok(())
    }

    fn primary_state(&self, ordinal: usize) -> CuResult<(u32, bool)> {
        let primary = crate::lock(self.primaries.get(ordinal).ok_or(CuError::INVALID_DEVICE)?);
        Ok((primary.flags, primary.retained != 0))
    }

    fn set_primary_flags(&self, ordinal: usize, flags: u32) -> CuResult {
        let mut primary = crate::lock(self.primaries.get(ordinal).ok_or(CuError::INVALID_DEVICE)?);
        primary.flags = flags;
        if let Some(context) = primary.context {
            context.flags.store(flags, Ordering::Relaxed);
        }
        Ok(())
    }

    fn destroy(&self, context: &'static Ctx) -> CuResult {
        if context.primary.load(Ordering::Relaxed) || self.all.remove(address_of(context)).is_none() {
            return Err(CuError::INVALID_CONTEXT);
        }
        context.end();
        self.all.recycle(context);
        Ok(())
    }
}

impl Ctx {
    pub(crate) fn handle(&'static self) -> Context {
        Context(std::ptr::with_exposed_provenance_mut(address_of(self)))
    }

    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal.load(Ordering::Relaxed)
    }

    fn is_alive(&self) -> bool {
        self.life.load(Ordering::Acquire) % 2 == 1
    }

    /// Ordinals whose memory its kernels may access, its own included, as a bit set.
    pub(crate) fn reach(&self) -> u32 {
        self.peers.load(Ordering::Relaxed) | 1 << self.ordinal()
    }

    /// The error that its work has left, if any.
    pub(crate) fn check(&self) -> CuResult {
        result(self.error.load(Ordering::Acquire))
    }

    /// Ends the context: its work, then what it owns.
    fn end(&'static self) {
        // Kernels that wait for what will not come see this and end.
        self.life.fetch_add(1, Ordering::AcqRel);
        let Ok(driver) = driver() else { return };
        let streams = std::mem::take(&mut *crate::lock(&self.streams));
        crate::lock(&self.per_thread).clear();
        for stream in streams {
            stream.tail().wait();
            stream.end(driver);
        }
        driver.memory.free_all_of(self);
        self.leave_device(driver);
        self.stream_memory.store(0, Ordering::Relaxed);
    }

    /// Takes what streams need of the device, unless that was done before.
    pub(crate) fn take_stream_memory(&self, driver: &Driver) -> CuResult {
        let bytes = config().stream_memory;
        let streams = crate::lock(&self.streams);
        // Beside the default one.
        let has_one = streams.len() > 1;
        if has_one && self.stream_memory.load(Ordering::Relaxed) < bytes {
            driver.machine.charge(driver.physical(self.ordinal())?, bytes)?;
            self.stream_memory.store(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives the device back what streams take, for as long as the process is checkpointed.
    pub(crate) fn leave_device(&self, driver: &Driver) {
        if let Ok(device) = driver.physical(self.ordinal()) {
            driver.machine.discharge(device, self.stream_memory.load(Ordering::Relaxed));
        }
    }

    /// Takes it again.
    pub(crate) fn return_to_device(&self, driver: &Driver) -> CuResult {
        let bytes = self.stream_memory.load(Ordering::Relaxed);
        if bytes > 0 { driver.machine.charge(driver.physical(self.ordinal())?, bytes) } else { Ok(()) }
    }

    /// Changes when the context ends.
    pub(crate) fn life(&self) -> u32 {
        self.life.load(Ordering::Acquire)
    }

    /// A fault of its work: from here on every call gives this error, and no work runs.
    pub(crate) fn fail(&self, error: CuError) {
        let _ = self.error.compare_exchange(0, error.raw(), Ordering::AcqRel, Ordering::Relaxed);
    }

    /// All its streams, the default ones included.
    pub(crate) fn streams(&self) -> Vec<&'static Stream> {
        crate::lock(&self.streams).clone()
    }

    pub(crate) fn add_stream(&self, stream: &'static Stream) {
        crate::lock(&self.streams).push(stream);
    }

    pub(crate) fn remove_stream(&self, stream: &'static Stream) {
        crate::lock(&self.streams).retain(|other| !std::ptr::eq(*other, stream));
    }

    /// The default stream that all threads share.
    pub(crate) fn legacy(&self) -> &'static Stream {
        // SAFETY: stored by `begin` before anybody could reach the context; streams are never freed.
        unsafe { &*self.legacy.load(Ordering::Acquire) }
    }

    /// The default stream of the calling thread.
    pub(crate) fn per_thread(&'static self) -> CuResult<&'static Stream> {
        let driver = driver()?;
        let make = || {
            let stream = Stream::create(driver, self, Kind::PerThread, 0, 0);
            self.add_stream(stream);
            stream
        };
        Ok(crate::lock(&self.per_thread).entry(std::thread::current().id()).or_insert_with(make))
    }

    /// Waits until all work it has been given so far has completed.
    pub(crate) fn wait(&self) {
        for stream in self.streams() {
            stream.tail().wait();
        }
    }
}

/// The current context of the thread, whether or not its work has left an error.
pub(crate) fn current_unchecked() -> CuResult<&'static Ctx> {
    let driver = driver()?;
    let (address, life) = Stack::with(driver, Stack::top).ok_or(CuError::INVALID_CONTEXT)?;
    let context = driver.contexts.all.get(address).ok_or(CuError::CONTEXT_IS_DESTROYED)?;
    if context.life.load(Ordering::Acquire) != life {
        return Err(CuError::CONTEXT_IS_DESTROYED);
    }
    Ok(context)
}

/// The current context of the thread. An error that its work has left is the answer of every call that needs it.
pub(crate) fn current() -> CuResult<&'static Ctx> {
    let context = current_unchecked()?;
    context.check()?;
    Ok(context)
}
