//! What came of a verb, and how it is shown.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::check::Finding;
use crate::lifecycle::{Left, Tally};
use crate::pid::Pid;
use crate::report::{chain, counted, fates, print_line, print_object, seconds, stages};

/// The exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Done.
    Done,
    /// Failed, and everything runs as before.
    Failed,
    /// Wrong usage.
    Usage,
    /// Failed, and something needs the command that is named.
    Unfinished,
    /// Refused, nothing was touched.
    Refused,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unfinished => 3,
            Self::Refused => 4,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Unfinished => "unfinished",
            Self::Refused => "refused",
        }
    }
}

/// What came of a verb.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The verb.
    pub verb: &'static str,
    /// The exit code.
    pub exit: Exit,
    /// What was done, or what went wrong; empty where the output before says it all.
    pub sentence: String,
    /// The processes it was about.
    pub pids: Vec<Pid>,
    /// What is in the way, or worth knowing.
    pub findings: Vec<Finding>,
    /// Processes that do not run as before.
    pub left: Vec<Left>,
    /// The command that finishes the job.
    pub next: Option<String>,
    /// What was measured, and the time of the whole.
    pub tally: Option<(Tally, Duration)>,
    /// Numbers for programs, beside the sentence: an object.
    pub numbers: Option<Value>,
}

impl Outcome {
    /// An outcome with a sentence and nothing else.
    pub fn new(verb: &'static str, exit: Exit, sentence: impl Into<String>) -> Self {
        Self {
            verb,
            exit,
            sentence: sentence.into(),
            pids: Vec::new(),
            findings: Vec::new(),
            left: Vec::new(),
            next: None,
            tally: None,
            numbers: None,
        }
    }

    /// A failure before anything was touched.
    pub fn failed(verb: &'static str, error: &dyn std::error::Error) -> Self {
        Self::new(verb, Exit::Failed, chain(error))
    }

    /// A refusal.
    pub fn refused(verb: &'static str, findings: Vec<Finding>) -> Self {
        let blockers = findings.iter().filter(|finding| finding.blocks()).count();
        let things = counted(blockers, "thing is", "things are");
        let sentence = format!("refused, nothing was touched: {things} in the way");
        Self { findings, ..Self::new(verb, Exit::Refused, sentence) }
    }

    /// With the processes it was about.
    pub fn about(self, pids: impl IntoIterator<Item = Pid>) -> Self {
        Self { pids: pids.into_iter().collect(), ..self }
    }

    /// With numbers for programs.
    pub(super) fn counting(self, numbers: Value) -> Self {
        Self { numbers: Some(numbers), ..self }
    }

    /// Shows it: to people the good on standard output and the rest on standard error, to programs a summary.
    pub fn show(&self, json: bool) {
        if json {
            for finding in &self.findings {
                print_object(&with_event("finding", json!(finding)));
            }
            print_object(&self.summary());
            return;
        }
        let text = self.text();
        if text.is_empty() {
        } else if self.exit == Exit::Done {
            print_line(&text);
        } else {
            use std::io::Write;
            // Nobody is left to tell.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// The outcome for people.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        for finding in &self.findings {
            let severity = if finding.blocks() { "blocker" } else { "warning" };
            lines.push(format!("{severity}: {finding}"));
        }
        if let Some((tally, total)) = &self.tally {
            lines.push(stages(tally, *total));
        }
        for left in &self.left {
            let reason = left.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            let Left { pid, driver, phase, .. } = left;
            lines.push(format!("process {pid}: phase {phase}, driver state {driver}{reason}"));
        }
        if !self.sentence.is_empty() {
            let prefix = if self.exit == Exit::Done { "" } else { "nvsnap-gpu-suspend: " };
            lines.push(format!("{prefix}{}", self.sentence));
        }
        if let Some(next) = &self.next {
            let purpose = if self.exit == Exit::Done { "to bring them back" } else { "to finish" };
            lines.push(format!("{purpose}: {next}"));
        }
        lines.join("\n")
    }

    fn summary(&self) -> Value {
        let left: Vec<Value> = self
            .left
            .iter()
            .map(|left| {
                json!({
                    "pid": left.pid,
                    "phase": left.phase,
                    "driver": left.driver,
                    "reason": left.reason,
                })
            })
            .collect();
        let mut summary = json!({
            "event": "summary",
            "verb": self.verb,
            "outcome": self.exit.name(),
            "exit": self.exit.code(),
            "message": self.sentence,
            "pids": self.pids,
            "left": left,
            "next": self.next,
        });
        if let (Some((tally, total)), Some(object)) = (&self.tally, summary.as_object_mut()) {
            let mut times: Map<String, Value> = tally
                .stages
                .iter()
                .map(|(stage, took)| (stage.name().into(), json!(seconds(*took))))
                .collect();
            times.insert("total".into(), json!(seconds(*total)));
            let bytes: Map<String, Value> =
                tally.bytes.iter().map(|(stage, moved)| (stage.name().into(), fates(moved))).collect();
            object.insert("seconds".into(), times.into());
            object.insert("bytes".into(), bytes.into());
            object.insert("steps".into(), json!(tally.steps));
        }
        if let (Some(numbers), Some(object)) = (&self.numbers, summary.as_object_mut()) {
            object.insert("counts".into(), numbers.clone());
        }
        summary
    }
}

/// An object as an event.
pub(super) fn with_event(name: &str, mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("event".into(), json!(name));
    }
    object
}
