//! Something that is in the way, or worth knowing.

use serde::Serialize;

use crate::pid::Pid;

/// Whether it is in the way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It is in the way: nothing is begun.
    Blocker,
    /// It is worth knowing.
    Warning,
}

/// Something that is in the way, or worth knowing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Finding {
    /// Whether it is in the way.
    pub severity: Severity,
    /// A word for programs.
    pub kind: &'static str,
    /// The process, where there is one.
    pub pid: Option<Pid>,
    /// The object: an allocation, a file, a GPU.
    pub object: Option<String>,
    /// A sentence that says what is the matter.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl Finding {
    /// Something that is in the way.
    pub fn blocker(kind: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (message, remedy) = (message.into(), remedy.into());
        Self { severity: Severity::Blocker, kind, pid: None, object: None, message, remedy }
    }

    /// Something worth knowing.
    pub fn warning(kind: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::blocker(kind, message, remedy) }
    }

    /// With the process it is about.
    pub fn of(self, pid: Pid) -> Self {
        Self { pid: Some(pid), ..self }
    }

    /// With the object it is about.
    pub fn on(self, object: impl Into<String>) -> Self {
        Self { object: Some(object.into()), ..self }
    }

    /// Whether it is in the way.
    pub fn blocks(&self) -> bool {
        self.severity == Severity::Blocker
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        if !self.remedy.is_empty() {
            write!(f, ": {}", self.remedy)?;
        }
        Ok(())
    }
}

/// All blockers as one text, or `None` where nothing is in the way.
pub fn refusal(findings: &[Finding]) -> Option<String> {
    let blockers: Vec<String> =
        findings.iter().filter(|finding| finding.blocks()).map(ToString::to_string).collect();
    (!blockers.is_empty()).then(|| blockers.join("; "))
}
