//! Events for programs: one JSON object per line.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::Moved;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Event, Reporter};

/// What went wrong when something was printed.
static UNPRINTED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a line on standard output. Whatever comes of it, the work goes on; see [`unprinted`].
pub fn print_line(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush())
        // Somebody who has stopped reading has stopped caring.
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        UNPRINTED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Why something that was to be printed was not, if so.
pub fn unprinted() -> Option<io::Error> {
    UNPRINTED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Prints an object as a line.
pub fn print_object(object: &impl Serialize) {
    if let Ok(line) = serde_json::to_string(object) {
        print_line(&line);
    }
}

/// Seconds, to the microsecond.
pub fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Bytes by fate.
pub fn fates(moved: &Moved) -> Value {
    json!({
        "objects": moved.objects,
        "moved": moved.moved,
        "zero": moved.zero,
        "deduplicated": moved.deduplicated,
    })
}

/// Prints every event.
#[derive(Clone, Copy, Debug)]
pub struct Json;

impl Reporter for Json {
    fn report(&self, event: &Event<'_>) {
        print_object(&object(event));
    }
}

fn object(event: &Event<'_>) -> Value {
    match event {
        Event::Begin { stage, pids } => json!({ "event": "begin", "stage": stage, "pids": pids }),
        Event::Moving { pid, bytes, total } => {
            json!({ "event": "moving", "pid": pid, "bytes": bytes, "total": total })
        }
        Event::Chunks { bytes, total, rate, left } => json!({
            "event": "chunks",
            "bytes": bytes,
            "total": total,
            "rate": rate,
            "seconds_left": left.map(seconds),
        }),
        Event::Done { stage, pid, took, bytes } => json!({
            "event": "done",
            "stage": stage,
            "pid": pid,
            "seconds": seconds(*took),
            "bytes": bytes.as_ref().map(fates),
        }),
        Event::Failed { stage, pid, error } => {
            json!({ "event": "failed", "stage": stage, "pid": pid, "error": error })
        }
        Event::Stepped { pid } => json!({ "event": "stepped", "pid": pid }),
        Event::End { stage, took } => {
            json!({ "event": "end", "stage": stage, "seconds": seconds(*took) })
        }
        Event::Undoing { reason } => json!({ "event": "undoing", "reason": reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pid::Pid;
    use crate::report::Stage;

    #[test]
    fn an_event_is_one_object_with_its_name_in_it() {
        let moved = Moved { objects: 2, moved: 10, zero: 5, deduplicated: 0 };
        let pid = Pid::new(7).unwrap();
        let took = Duration::from_micros(1_500_000);
        let done = Event::Done { stage: Stage::Release, pid, took, bytes: Some(moved) };
        assert_eq!(
            object(&done),
            json!({
                "event": "done",
                "stage": "release",
                "pid": 7,
                "seconds": 1.5,
                "bytes": { "objects": 2, "moved": 10, "zero": 5, "deduplicated": 0 },
            })
        );
    }
}
