//! What this system can do for memtide, and what stands in the way. It reads; all that it tries touches this process alone.
//!
//! Each file looks at one thing: what it reads, and, apart from that, what it makes of it.

mod exact;
mod limits;
mod monitoring;
mod nodes;
mod placement;
mod privileges;
mod settings;

use std::fs;
use std::io;

/// What memtide does on a real system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// `topo` and `measure`.
    Measure,
    /// `run` with a placement that one of Linux's older memory policies carries out.
    Policies,
    /// `run` with a plain ratio.
    Weights,
    /// `run` with any other placement, or `--exact`.
    Exact,
    /// `run` and `daemon` with a policy that uses latencies or bandwidths, by the firmware's figures.
    Figures,
    /// The same by the figures of a machine file.
    MachineFile,
    /// `daemon`.
    Daemon,
}

impl Use {
    /// All, in order.
    pub const ALL: [Use; 7] =
        [Use::Measure, Use::Policies, Use::Weights, Use::Exact, Use::Figures, Use::MachineFile, Use::Daemon];

    /// The command, and what of it.
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

    /// What does the same with more time or work.
    pub fn instead(self) -> Option<Use> {
        match self {
            Use::Weights => Some(Use::Exact),
            Use::Figures => Some(Use::MachineFile),
            _ => None,
        }
    }
}

/// How good what was found is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As memtide would have it.
    Good,
    /// Not there, or set otherwise, and no harm, or told by the way.
    Note,
    /// Things go on, but not as well, or not as told.
    Warning,
    /// Something does not work because of it.
    Missing,
}

impl State {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Note => "note",
            State::Warning => "warning",
            State::Missing => "missing",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, such as `kernel.numa_balancing`.
    pub subject: &'static str,
    /// What was found.
    pub found: String,
    /// How good that is.
    pub state: State,
    /// What that means for memtide.
    pub means: String,
    /// How to have it otherwise: a command, where there is one.
    pub mend: Option<String>,
    /// What does not work because of it.
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
        Finding { subject, found, state, means, mend: None, stops: Vec::new() }
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

    fn mend(self, how: impl Into<String>) -> Finding {
        Finding { mend: Some(how.into()), ..self }
    }
}

/// Looks at everything.
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

/// With what stands in for what is missing only where that works.
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

/// What keeps memtide from a use.
pub fn obstacles(findings: &[Finding], wanted: Use) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.stops.contains(&wanted)).collect()
}

/// Whether a use works here, or else what can be used instead.
pub fn works(findings: &[Finding], wanted: Use) -> bool {
    let works_here = |wanted| obstacles(findings, wanted).is_empty();
    works_here(wanted) || wanted.instead().is_some_and(works_here)
}

/// A file's text, without the white space around it.
fn text(file: &str) -> io::Result<String> {
    Ok(fs::read_to_string(file)?.trim().to_owned())
}

/// Why something cannot be had, for people.
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
    fn what_is_missing_stops_something_and_nothing_else_does() {
        for finding in examine() {
            assert_eq!(finding.state == State::Missing, !finding.stops.is_empty(), "{finding:?}");
            assert!(!finding.found.is_empty() && !finding.means.is_empty(), "{finding:?}");
        }
    }

    #[test]
    fn what_does_not_work_itself_stands_in_for_nothing() {
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
