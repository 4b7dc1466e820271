//! This user's privileges.

use super::{Finding, Use, text};
use crate::placement::status;

/// Capability numbers (linux/capability.h).
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const SYS_NICE: u32 = 23;
const PERFMON: u32 = 38;

/// Effective capabilities, one bit each.
#[derive(Clone, Copy, Debug)]
struct Capabilities(u64);

impl Capabilities {
    fn has(self, any: &[u32]) -> bool {
        any.iter().any(|&number| self.0 >> number & 1 == 1)
    }
}

/// Checks the user and its capabilities.
pub fn examine() -> Vec<Finding> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let held = status(me, "CapEff").and_then(|bits| u64::from_str_radix(&bits, 16).ok());
    let held = Capabilities(held.unwrap_or(0));
    let paranoid = text("/proc/sys/kernel/perf_event_paranoid").ok();
    vec![
        user(rustix::process::geteuid().as_raw()),
        nice(held),
        ptrace(held),
        perf(held, paranoid.and_then(|level| level.parse().ok())),
    ]
}

fn user(uid: u32) -> Finding {
    let subject = "user";
    match uid {
        0 => Finding::good(subject, "root", "DAMON, weights and tracing are accessible"),
        _ => {
            Finding::note(subject, format!("number {uid}, not root"), "DAMON, weights and tracing need root")
                .remedy("sudo memtide doctor")
        }
    }
}

fn nice(held: Capabilities) -> Finding {
    let subject = "CAP_SYS_NICE";
    if held.has(&[SYS_NICE]) {
        return Finding::good(subject, "held", "pages of all users' processes can be moved");
    }
    Finding::warning(subject, "not held", "only pages of this user's own processes can be moved")
        .remedy("be root; in a container: --cap-add SYS_NICE")
}

fn ptrace(held: Capabilities) -> Finding {
    let subject = "CAP_SYS_PTRACE";
    if held.has(&[SYS_PTRACE]) {
        return Finding::good(subject, "held", "other users' processes can be inspected");
    }
    Finding::warning(subject, "not held", "locations and sizes of other users' pages are hidden")
        .remedy("be root; in a container: --cap-add SYS_PTRACE")
}

fn perf(held: Capabilities, paranoid: Option<i32>) -> Finding {
    let subject = "CAP_PERFMON";
    let level = paranoid.map_or("not there".to_owned(), |level| level.to_string());
    let found = |held: &str| format!("{held}; kernel.perf_event_paranoid: {level}");
    if held.has(&[PERFMON, SYS_ADMIN]) {
        Finding::good(subject, found("held"), "system calls can be traced")
    } else if paranoid.is_some_and(|level| level < 0) {
        Finding::good(subject, found("not held, not needed"), "system calls can be traced")
    } else {
        let means = "no placement by page fault: system calls cannot be traced";
        Finding::missing(subject, found("not held"), means, &[Use::Exact])
            .remedy("be root; in a container: --cap-add PERFMON")
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn capabilities_are_parsed_from_bits() {
        let held = Capabilities(1 << 23);
        assert!(held.has(&[SYS_NICE]) && held.has(&[PERFMON, SYS_NICE]) && !held.has(&[PERFMON, SYS_ADMIN]));
        assert_eq!([nice(held).state, ptrace(held).state], [State::Good, State::Warning]);
    }

    #[test]
    fn tracepoints_need_capability_or_permissive_setting() {
        let none = Capabilities(0);
        assert_eq!(perf(none, Some(3)).stops, [Use::Exact]);
        assert_eq!(perf(none, None).stops, [Use::Exact]);
        assert_eq!(perf(none, Some(-1)).state, State::Good);
        assert_eq!(perf(Capabilities(1 << PERFMON), Some(3)).state, State::Good);
        assert_eq!(perf(Capabilities(1 << SYS_ADMIN), Some(3)).state, State::Good);
    }

    #[test]
    fn user_other_than_root_is_reported() {
        assert_eq!([user(0).state, user(1000).state], [State::Good, State::Note]);
    }
}
