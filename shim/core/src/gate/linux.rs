//! The machine the gate runs on: thread-local cells, `membarrier`, futexes, thread ids.

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

use super::machine::{Local, Machine, atomics};

thread_local! {
    // Plain cells, so that neither a destructor is registered nor anything initialised at first use.
    static LOCAL: Local = const { Local::new() };
}

atomics!(AtomicU32: u32, AtomicU64: u64);

/// The machine as Linux presents it.
#[derive(Debug)]
pub(super) struct Linux;

impl Machine for Linux {
    type U32 = AtomicU32;
    type U64 = AtomicU64;

    #[inline(always)]
    fn with_local<R>(f: impl FnOnce(&Local) -> R) -> R {
        LOCAL.with(f)
    }

    #[inline(always)]
    fn light_fence() {
        compiler_fence(Ordering::SeqCst);
    }

    fn full_fence() {
        fence(Ordering::SeqCst);
    }

    fn has_heavy_fence() -> bool {
        membarrier(libc::MEMBARRIER_CMD_QUERY)
            .is_ok_and(|supported| supported & libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED != 0)
    }

    fn heavy_fence() -> Result<(), i32> {
        match membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
            // Not registered: never asked for, or this is a fork, or came back from a checkpoint.
            Err(libc::EPERM) => {
                membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)?;
                membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)?;
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        Ok(())
    }

    fn wait(word: &AtomicU32, value: u32) {
        let _errno = KeepErrno::new();
        // SAFETY: the address is of a live atomic, the timeout may be null. A failure (the value has changed, a
        // signal came) is a reason to look again, as the caller does.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                value,
                ptr::null::<libc::timespec>(),
            );
        }
    }

    fn wake(word: &AtomicU32) {
        let _errno = KeepErrno::new();
        // SAFETY: the address is of a live atomic; waking nobody is no failure.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                libc::c_int::MAX,
            );
        }
    }

    fn thread() -> u32 {
        // SAFETY: takes nothing, cannot fail.
        let id = unsafe { libc::gettid() };
        u32::try_from(id).unwrap_or(0)
    }

    fn is_alive(thread: u32) -> bool {
        let _errno = KeepErrno::new();
        // SAFETY: takes nothing, cannot fail.
        let process = unsafe { libc::getpid() };
        // SAFETY: signal 0 is not sent; only whether it could be is answered.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) == 0 }
    }
}

/// Asks the kernel; its answer, or the error's number.
fn membarrier(command: libc::c_int) -> Result<libc::c_int, i32> {
    let _errno = KeepErrno::new();
    // SAFETY: the call takes numbers only.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    match libc::c_int::try_from(answer) {
        Ok(answer) if answer >= 0 => Ok(answer),
        _ => Err(errno()),
    }
}

fn errno() -> i32 {
    // SAFETY: takes nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is the calling thread's own errno, always valid.
    unsafe { place.read() }
}

/// Keeps the caller's `errno`: put back on drop.
struct KeepErrno(i32);

impl KeepErrno {
    fn new() -> Self {
        Self(errno())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: takes nothing.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: the address is the calling thread's own errno, always valid.
        unsafe { place.write(self.0) };
    }
}
