//! Checks what memtide can do on this system. Read-only: its trial calls affect this process alone.
//!
//! Each file checks one area, in two parts: reading the state, and turning it into findings.

mod exact;
mod limits;
mod monitoring;
mod nodes;
mod placement;
mod privileges;
mod settings;

use std::fs;
use std::io;

pub use settings::numa_balancing_warning;

/// What memtide does on a real system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// `topo` and `measure`.
    Measure,
    /// `run` with a placement that a memory policy from before Linux 6.9 implements.
    Policies,
    /// `run` with a plain ratio.
    Weights,
    /// `run` with any other placement, or `--exact`.
    Exact,
    /// `run` and `daemon` with a policy that uses latencies or bandwidths from the firmware.
    Figures,
    /// The same with the figures of a machine file.
    MachineFile,
    /// `daemon`.
    Daemon,
}

impl Use {
    /// All, in order.
    pub const ALL: [Use; 7] =
        [Use::Measure, Use::Policies, Use::Weights, Use::Exact, Use::Figures, Use::MachineFile, Use::Daemon];

    /// The command and its variant.
    pub fn name(self) -> &'static str {
        match self {
            Use::Measure => "topo, measure",
            Use::Policies => "run: local, fast-only, interleave",
            Use::Weights => "run: other plain ratios, by the kernel",
            Use::Exact => "run: all placements, by page fault (--exact)",
            Use::Figures => "run: bw-*, low-latency, hi-bandwidth without --machine",
            Use::MachineFile => "run: bw-*, low-latency, hi-bandwidth with --machine FILE",
            Use::Daemon => "daemon",
        }
    }

    /// The fallback with the same result at a higher cost.
    pub fn instead(self) -> Option<Use> {
        match self {
            Use::Weights => Some(Use::Exact),
            Use::Figures => Some(Use::MachineFile),
            _ => None,
        }
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As memtide needs it.
    Good,
    /// Missing or set otherwise without harm, or for information.
    Note,
    /// Works, but worse or with a limitation.
    Warning,
    /// Breaks a use.
    Missing,
}

impl State {
    /// Its name in the output.
    pub fn name(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Note => "note",
            State::Warning => "warning",
            State::Missing => "missing",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The subject, such as `kernel.numa_balancing`.
    pub subject: &'static str,
    /// The state found.
    pub found: String,
    /// Its severity.
    pub state: State,
    /// What it means for memtide.
    pub means: String,
    /// How to change it: a command, where one exists.
    pub remedy: Option<String>,
    /// The uses that it breaks.
    pub stops: Vec<Use>,
}

impl Finding {
    fn new(
        subject: &'static str,
        state: State,
        found: impl Into<String>,
        means: impl Into<String>,
    ) -> Finding {
        let (found, means) = (found.into(), means.into());
        Finding { subject, found, state, means, remedy: None, stops: Vec::new() }
    }

    fn good(subject: &'static str, found: impl Into<String>, means: impl Into<String>) -> Finding {
        Finding::new(subject, State::Good, found, means)
    }

    fn note(subject: &'static str, found: impl Into<String>, means: impl Into<String>) -> Finding {
        Finding::new(subject, State::Note, found, means)
    }

    fn warning(subject: &'static str, found: impl Into<String>, means: impl Into<String>) -> Finding {
        Finding::new(subject, State::Warning, found, means)
    }

    fn missing(
        subject: &'static str,
        found: impl Into<String>,
        means: impl Into<String>,
        stops: &[Use],
    ) -> Finding {
        Finding { stops: stops.to_vec(), ..Finding::new(subject, State::Missing, found, means) }
    }

    fn remedy(self, how: impl Into<String>) -> Finding {
        Finding { remedy: Some(how.into()), ..self }
    }
}

/// Runs all checks.
pub fn examine() -> Vec<Finding> {
    let found = [
        nodes::examine(),
        placement::examine(),
        exact::examine(),
        monitoring::examine(),
        privileges::examine(),
        settings::examine(),
        limits::examine(),
    ];
    consistent(found.concat())
}

/// Offers a fallback only where the fallback works.
fn consistent(mut findings: Vec<Finding>) -> Vec<Finding> {
    let exact = works(&findings, Use::Exact);
    for finding in findings.iter_mut().filter(|finding| finding.stops == [Use::Weights]) {
        finding.means = match exact {
            true => "plain ratios go fault by fault instead, which is slower",
            false => "no plain ratios: the kernel does not keep them, and fault by fault does not work here",
        }
        .to_owned();
    }
    findings
}

/// The findings that break a use.
pub fn obstacles(findings: &[Finding], wanted: Use) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.stops.contains(&wanted)).collect()
}

/// Whether a use works here, or its fallback.
pub fn works(findings: &[Finding], wanted: Use) -> bool {
    let works_here = |wanted| obstacles(findings, wanted).is_empty();
    works_here(wanted) || wanted.instead().is_some_and(works_here)
}

/// A file's text, trimmed.
fn text(file: &str) -> io::Result<String> {
    Ok(fs::read_to_string(file)?.trim().to_owned())
}

/// An error as a readable reason.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "not there".to_owned(),
        io::ErrorKind::PermissionDenied => "not allowed".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacle_stops_its_use_and_nothing_else_does() {
        for finding in examine() {
            assert_eq!(finding.state == State::Missing, !finding.stops.is_empty(), "{finding:?}");
            assert!(!finding.found.is_empty() && !finding.means.is_empty(), "{finding:?}");
        }
    }

    #[test]
    fn broken_fallback_is_not_offered() {
        let weights = Finding::missing("weighted interleave", "not allowed", "", &[Use::Weights]);
        let exact = Finding::missing("CAP_PERFMON", "not held", "no placement fault by fault", &[Use::Exact]);
        let [with, without] = [vec![weights.clone()], vec![weights, exact]].map(consistent);
        assert!(with[0].means.contains("fault by fault instead") && works(&with, Use::Weights));
        assert!(without[0].means.starts_with("no plain ratios") && !works(&without, Use::Weights));
        assert_eq!(without[1].means, "no placement fault by fault");
    }

    #[test]
    fn obstacles_are_those_of_the_use() {
        let finding = Finding::missing("a", "b", "c", &[Use::Exact]);
        let found = [finding.clone(), Finding::good("d", "e", "f")];
        assert_eq!(obstacles(&found, Use::Exact), [&finding]);
        assert!(obstacles(&found, Use::Daemon).is_empty());
    }
}
