//! What a program does beside computing: the checkpoint API on others, exec in place, calls at exit.

use std::os::unix::process::CommandExt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cuda_sys::{CheckpointLockArgs, ProcessState};

use super::words::Words;
use super::{Answer, Session, Trouble};
use crate::driver;

pub(super) fn obey(session: &Arc<Session>, verb: &str, words: &mut Words<'_>) -> Option<Answer> {
    Some(match verb {
        "echo" => Ok(words.remainder()),
        "lock" => lock(words),
        "checkpoint" => checkpoint(words),
        "restore" => restore(words),
        "unlock" => unlock(words),
        "state" => state(words),
        "exec" => exec(),
        "at-exit" => at_exit(session, words),
        "at-thread-exit" => at_thread_exit(session, words),
        "close-stderr" => close_stderr(),
        _ => return None,
    })
}

/// `lock PID MILLISECONDS`
fn lock(words: &mut Words<'_>) -> Answer {
    let pid = words.parse()?;
    let mut args = CheckpointLockArgs { timeout_ms: words.parse()?, ..CheckpointLockArgs::default() };
    // SAFETY: arguments that live through the call.
    unsafe { driver::cuCheckpointProcessLock(pid, &raw mut args) }?;
    Ok(String::new())
}

/// `checkpoint PID`
fn checkpoint(words: &mut Words<'_>) -> Answer {
    // SAFETY: null stands for the defaults.
    unsafe { driver::cuCheckpointProcessCheckpoint(words.parse()?, std::ptr::null_mut()) }?;
    Ok(String::new())
}

/// `restore PID`
fn restore(words: &mut Words<'_>) -> Answer {
    // SAFETY: null stands for the defaults.
    unsafe { driver::cuCheckpointProcessRestore(words.parse()?, std::ptr::null_mut()) }?;
    Ok(String::new())
}

/// `unlock PID`
fn unlock(words: &mut Words<'_>) -> Answer {
    // SAFETY: null stands for the defaults.
    unsafe { driver::cuCheckpointProcessUnlock(words.parse()?, std::ptr::null_mut()) }?;
    Ok(String::new())
}

/// `state PID`: the number of the state.
fn state(words: &mut Words<'_>) -> Answer {
    let mut state = ProcessState::RUNNING;
    // SAFETY: a place for the state.
    unsafe { driver::cuCheckpointProcessGetState(words.parse()?, &raw mut state) }?;
    Ok(state.0.to_string())
}

/// Set where this program has executed itself.
pub(super) const AGAIN: &str = "WORKER_AGAIN";

/// `exec`: this program again in the same process. The answer comes from the new image.
fn exec() -> Answer {
    let own = std::env::current_exe()?;
    let error = std::process::Command::new(own).args(std::env::args_os().skip(1)).env(AGAIN, "1").exec();
    Err(Trouble::Usage(format!("exec failed: {error}")))
}

/// Where the answers of lines go that run when nobody reads any more, and the lines that wait for that moment.
#[derive(Debug)]
struct Last {
    session: Arc<Session>,
    lines: Mutex<Vec<String>>,
    answers: std::fs::File,
}

static LAST: OnceLock<Last> = OnceLock::new();

fn last(session: &Arc<Session>) -> Result<&'static Last, Trouble> {
    if let Some(last) = LAST.get() {
        return Ok(last);
    }
    let folder = std::env::var("WORKER_SOCKETS").map_err(|error| error.to_string())?;
    let name = std::env::var("WORKER_NAME").map_err(|error| error.to_string())?;
    let answers = std::fs::File::create(format!("{folder}/{name}.last"))?;
    let last = Last { session: Arc::clone(session), lines: Mutex::default(), answers };
    Ok(LAST.get_or_init(|| last))
}

/// `at-exit LINE`: runs it from a handler of the C library, after `main` has returned; the answer goes to `NAME.last`.
fn at_exit(session: &Arc<Session>, words: &mut Words<'_>) -> Answer {
    extern "C" fn run() {
        let Some(last) = LAST.get() else { return };
        let lines = std::mem::take(&mut *last.lines.lock().unwrap_or_else(PoisonError::into_inner));
        lines.iter().for_each(|line| say(last, line));
    }
    let last = last(session)?;
    last.lines.lock().unwrap_or_else(PoisonError::into_inner).push(words.remainder());
    // SAFETY: the handler needs nothing but statics, which live until the process is gone.
    unsafe { libc::atexit(run) };
    Ok(String::new())
}

/// `at-thread-exit LINE`: runs it from a destructor of this thread's storage; the answer goes to `NAME.last`.
fn at_thread_exit(session: &Arc<Session>, words: &mut Words<'_>) -> Answer {
    struct Line(String);
    impl Drop for Line {
        fn drop(&mut self) {
            if let Some(last) = LAST.get() {
                say(last, &self.0);
            }
        }
    }
    thread_local!(static LINE: std::cell::RefCell<Option<Line>> = const { std::cell::RefCell::new(None) });
    last(session)?;
    LINE.with(|line| line.replace(Some(Line(words.remainder()))));
    Ok(String::new())
}

fn say(last: &Last, line: &str) {
    use std::io::Write;
    let answer = last.session.answer(line);
    let mut file = &last.answers;
    // The harness reads the file and misses what is not there.
    let _ = writeln!(file, "{answer}");
}

/// `close-stderr`
fn close_stderr() -> Answer {
    // SAFETY: nothing of this program writes there any more.
    let result = unsafe { libc::close(2) };
    if result == 0 { Ok(String::new()) } else { Err(std::io::Error::last_os_error().into()) }
}
