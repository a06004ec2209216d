//! Threads in somebody else's process: named, detached, with a stack of known size, and with every signal blocked,
//! so that the program's handlers never run on them.

use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Start {
    name: &'static CStr,
    body: Box<dyn FnOnce() + Send>,
}

/// The stack that is tried when the C library says that the one asked for is too small: it has to hold the
/// thread-local data of every library in the process as well.
const ROOMY_STACK: usize = 8 << 20;

/// Starts a detached thread. `name` has at most 15 bytes.
pub fn spawn(name: &'static CStr, stack: usize, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut start = Box::new(Start { name, body: Box::new(body) });
    for stack in [stack, ROOMY_STACK] {
        match create(start, stack) {
            Ok(()) => return Ok(()),
            Err((libc::EINVAL, back)) => start = back,
            Err((error, _)) => return Err(io::Error::from_raw_os_error(error)),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// Gives the start back where no thread has taken it.
fn create(start: Box<Start>, stack: usize) -> Result<(), (i32, Box<Start>)> {
    let attributes = match Attributes::new(stack) {
        Ok(attributes) => attributes,
        Err(error) => return Err((error, start)),
    };
    let start = Box::into_raw(start);
    let blocked = SignalsBlocked::new();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: initialised attributes; `run` takes over the box that it is given.
    let error =
        unsafe { libc::pthread_create(thread.as_mut_ptr(), &raw const attributes.0, run, start.cast()) };
    drop(blocked);
    if error == 0 {
        return Ok(());
    }
    // SAFETY: no thread was made, so the box is still ours.
    Err((error, unsafe { Box::from_raw(start) }))
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: `create` gave us this box, once.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: no arguments.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: a living thread and a C string; a name that is too long is refused, which does no harm.
    unsafe { libc::pthread_setname_np(thread, start.name.as_ptr()) };
    let _listed = super::own::list();
    // Bodies catch what they run; this is the last line before C, where unwinding is not allowed.
    drop(catch_unwind(AssertUnwindSafe(start.body)));
    core::ptr::null_mut()
}

struct Attributes(libc::pthread_attr_t);

impl Attributes {
    fn new(stack: usize) -> Result<Self, i32> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: initialises the structure.
        let error = unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        if error != 0 {
            return Err(error);
        }
        // SAFETY: just initialised.
        let mut attributes = Self(unsafe { attributes.assume_init() });
        // SAFETY: initialised attributes.
        let sized = unsafe { libc::pthread_attr_setstacksize(&raw mut attributes.0, stack) };
        // SAFETY: as above; the constant is a valid state, so this cannot fail.
        unsafe { libc::pthread_attr_setdetachstate(&raw mut attributes.0, libc::PTHREAD_CREATE_DETACHED) };
        if sized == 0 { Ok(attributes) } else { Err(sized) }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised attributes, destroyed once.
        unsafe { libc::pthread_attr_destroy(&raw mut self.0) };
    }
}

/// Blocks every signal of the calling thread, so that a new thread begins that way; puts the mask back on drop.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: fills the whole set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `all` is filled; `before` is written whole. It cannot fail with a valid `how`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: written by the call above.
        Self(unsafe { before.assume_init() })
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the mask that was found.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, core::ptr::null_mut()) };
    }
}
