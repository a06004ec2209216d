//! The worker: a program that does with the driver what it is told, one line at a time.
//!
//! A line is a verb and its words. The answer is `ok`, with what there is to say, or `error` with the driver's
//! number, or `usage` where the line makes no sense. Things have names that the lines choose: an allocation is a handle and,
//! once mapped, an address of the same name. Numbers take `K`, `M` and `G`.
//!
//! `each LINE; LINE; ...` is several lines at once, with as many answers. Lines run on the main thread, or on one with a name: `on T LINE` waits for the answer, `start T LINE` does not and
//! `wait T` brings it; `busy T` says whether it is still to come. So a call that a gate holds is seen to be held.

mod arrays;
mod bus;
mod capture;
mod devices;
mod events;
mod foreign;
mod load;
mod locked;
mod measure;
mod memory;
mod objects;
mod outside;
mod pointers;
mod pools;
mod raw;
mod share;
mod sync;
mod team;
mod threads;
mod unrest;
mod vmm;
mod watchdogs;
mod words;
mod work;

use std::io::{BufRead, Write};
use std::sync::Arc;

use cuda_sys::CuError;

use objects::Objects;
pub(crate) use share::{receive_fd, send_fd};
use threads::Threads;
use words::Words;

/// What a line came to when it did not succeed.
#[derive(Debug)]
enum Trouble {
    /// The driver refused.
    Driver(CuError),
    /// The line makes no sense, or the system refused.
    Usage(String),
}

impl From<CuError> for Trouble {
    fn from(error: CuError) -> Self {
        Self::Driver(error)
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self::Usage(text)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<rustix::io::Errno> for Trouble {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Usage(error.to_string())
    }
}

type Answer = Result<String, Trouble>;

/// What all threads of the worker share.
#[derive(Debug, Default)]
struct Session {
    objects: Objects,
    threads: Threads,
}

/// Reads lines until the input ends.
pub fn run() {
    let session = Arc::new(Session::default());
    if std::env::var_os(outside::AGAIN).is_some() {
        println!("ok");
    }
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let answer = session.answer(&line);
        let mut output = std::io::stdout().lock();
        if writeln!(output, "{answer}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

impl Session {
    /// Does what a line says; the answer is one line.
    fn answer(self: &Arc<Self>, line: &str) -> String {
        if let Some(lines) = line.strip_prefix("each ") {
            let answers: Vec<String> = lines.split(';').map(|line| self.answer(line.trim())).collect();
            return answers.join("; ");
        }
        if let Some(answer) = threads::answer(self, line) {
            return answer;
        }
        match self.obey(&mut Words::of(line)) {
            Ok(text) => format!("ok {text}").trim_end().to_owned(),
            Err(Trouble::Driver(error)) => {
                format!("error {} {}", error.raw(), error.name().unwrap_or("unnamed"))
            }
            Err(Trouble::Usage(text)) => format!("usage {text}"),
        }
    }

    fn obey(self: &Arc<Self>, words: &mut Words<'_>) -> Answer {
        let verb = words.word()?;
        for family in [outside::obey, load::obey] {
            if let Some(answer) = family(self, verb, words) {
                return answer;
            }
        }
        type Family = fn(&Session, &str, &mut Words<'_>) -> Option<Answer>;
        let families: &[Family] = &[
            vmm::obey,
            team::obey,
            devices::obey,
            arrays::obey,
            events::obey,
            foreign::obey,
            locked::obey,
            memory::obey,
            pointers::obey,
            pools::obey,
            work::obey,
            capture::obey,
            share::obey,
            measure::obey,
            raw::obey,
            sync::obey,
            bus::obey,
            unrest::obey,
            watchdogs::obey,
        ];
        for family in families {
            if let Some(answer) = family(self, verb, words) {
                return answer;
            }
        }
        Err(Trouble::Usage(format!("no verb is called {verb}")))
    }
}
