//! Threads with names, each with a queue of lines.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::Session;
use super::words::Words;

/// The threads that lines have named so far.
#[derive(Debug, Default)]
pub(super) struct Threads {
    by_name: Mutex<HashMap<String, Named>>,
}

#[derive(Debug)]
struct Named {
    lines: Sender<String>,
    answers: Receiver<String>,
    /// The answer that `busy` has taken out already.
    early: Option<String>,
}

/// The answer to a line about threads: for `on` and `wait` the thread's own, as if the main thread had been asked.
pub(super) fn answer(session: &Arc<Session>, line: &str) -> Option<String> {
    let mut words = Words::of(line);
    let answer = match words.next()? {
        "on" => start(session, &mut words).and_then(|name| wait(session, &name)),
        "start" => start(session, &mut words).map(|_| "ok".to_owned()),
        "wait" => words.word().and_then(|name| wait(session, name)),
        "busy" => words.word().and_then(|name| busy(session, name)).map(|busy| format!("ok {busy}")),
        _ => return None,
    };
    Some(answer.unwrap_or_else(|text| format!("usage {text}")))
}

fn start(session: &Arc<Session>, words: &mut Words<'_>) -> Result<String, String> {
    let name = words.word()?.to_owned();
    let line = words.remainder();
    let mut threads = session.threads.by_name.lock().unwrap_or_else(PoisonError::into_inner);
    if !threads.contains_key(&name) {
        threads.insert(name.clone(), spawn(session, &name)?);
    }
    let thread = threads.get(&name).ok_or_else(|| format!("no thread {name}"))?;
    thread.lines.send(line).map_err(|error| error.to_string())?;
    Ok(name)
}

fn spawn(session: &Arc<Session>, name: &str) -> Result<Named, String> {
    let (lines, work) = channel::<String>();
    let (results, answers) = channel();
    let session = Arc::clone(session);
    let running = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        for line in work {
            if results.send(session.answer(&line)).is_err() {
                return;
            }
        }
    });
    running.map_err(|error| error.to_string())?;
    Ok(Named { lines, answers, early: None })
}

fn wait(session: &Arc<Session>, name: &str) -> Result<String, String> {
    let mut threads = session.threads.by_name.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = threads.get_mut(name).ok_or_else(|| format!("no thread {name}"))?;
    match thread.early.take() {
        Some(answer) => Ok(answer),
        None => thread.answers.recv().map_err(|error| error.to_string()),
    }
}

fn busy(session: &Arc<Session>, name: &str) -> Result<&'static str, String> {
    let mut threads = session.threads.by_name.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = threads.get_mut(name).ok_or_else(|| format!("no thread {name}"))?;
    if thread.early.is_none() {
        match thread.answers.try_recv() {
            Ok(answer) => thread.early = Some(answer),
            Err(TryRecvError::Empty) => return Ok("yes"),
            Err(error @ TryRecvError::Disconnected) => return Err(error.to_string()),
        }
    }
    Ok("no")
}
