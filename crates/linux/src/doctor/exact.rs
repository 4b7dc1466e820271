//! Exact placement: userfaultfd, kernel tracing, ptrace.

use std::fs;
use std::io::{self, ErrorKind};

use super::{Finding, Use, text, why};
use crate::placement::TRACEPOINT;
use crate::sys::userfaultfd;

const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Checks each, and opens a userfaultfd.
pub fn examine() -> Vec<Finding> {
    vec![
        architecture(std::env::consts::ARCH),
        faults(userfaultfd::check_permission()),
        tracing(fs::read_to_string(TRACEPOINT).map(drop)),
        ptrace(text(YAMA).ok().as_deref()),
    ]
}

fn architecture(name: &str) -> Finding {
    let subject = "architecture";
    match name {
        "x86_64" => Finding::good(subject, name, "programs can be placed by page fault"),
        _ => {
            let means = "no placement by page fault: it injects system calls, on x86-64 only";
            Finding::missing(subject, name, means, &[Use::Exact])
        }
    }
}

fn faults(tried: io::Result<()>) -> Finding {
    let subject = "userfaultfd";
    let Err(error) = tried else {
        return Finding::good(
            subject,
            "for faults of programs, and of the kernel on their behalf",
            "pages can be placed as they are touched",
        );
    };
    let means = "no placement by page fault";
    let missing = |found: String| Finding::missing(subject, found, means, &[Use::Exact]);
    match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            missing("this kernel has none".to_owned()).remedy("a kernel with CONFIG_USERFAULTFD")
        }
        Some(libc::EPERM) => missing("not for the kernel's faults on a program's behalf".to_owned()).remedy(
            "be root, or: sysctl vm.unprivileged_userfaultfd=1; in a container: --cap-add SYS_PTRACE, and a \
             seccomp filter that permits it",
        ),
        _ => missing(why(&error)),
    }
}

fn tracing(tracepoint: io::Result<()>) -> Finding {
    let subject = "tracing of system calls";
    let missing = |found: &str| {
        Finding::missing(
            subject,
            found,
            "no placement by page fault: new mappings are not seen",
            &[Use::Exact],
        )
    };
    match tracepoint.map_err(|error| error.kind()) {
        Ok(()) => Finding::good(subject, "raw_syscalls:sys_exit is there", "new mappings are seen"),
        Err(ErrorKind::PermissionDenied) => missing("not allowed").remedy("be root"),
        Err(_) => missing("raw_syscalls:sys_exit is not there")
            .remedy("mount -t tracefs tracefs /sys/kernel/tracing; a kernel with CONFIG_FTRACE_SYSCALLS"),
    }
}

fn ptrace(scope: Option<&str>) -> Finding {
    let subject = "kernel.yama.ptrace_scope";
    match scope {
        Some("3") => {
            let means = "tracing of programs is forbidden: no placement by page fault, until the next boot";
            Finding::missing(subject, "3", means, &[Use::Exact]).remedy("reboot with a value of 2 or less")
        }
        Some(scope) => Finding::good(subject, scope, "programs that memtide starts can be traced"),
        None => Finding::good(subject, "not there", "programs that memtide starts can be traced"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn each_reason_has_its_remedy() {
        let error = |number| Err(io::Error::from_raw_os_error(number));
        for (found, remedy) in [
            (faults(error(libc::ENOSYS)), "CONFIG_USERFAULTFD"),
            (faults(error(libc::EPERM)), "unprivileged_userfaultfd=1"),
            (tracing(error(libc::EACCES)), "root"),
            (tracing(error(libc::ENOENT)), "mount -t tracefs"),
            (ptrace(Some("3")), "boot"),
        ] {
            assert!(found.stops == [Use::Exact] && found.state == State::Missing, "{found:?}");
            assert!(found.remedy.as_deref().is_some_and(|how| how.contains(remedy)), "{found:?}");
        }
        assert_eq!(architecture("aarch64").stops, [Use::Exact]);
    }

    #[test]
    fn working_parts_are_good() {
        let found =
            [faults(Ok(())), tracing(Ok(())), ptrace(Some("2")), ptrace(None), architecture("x86_64")];
        assert!(found.iter().all(|finding| finding.state == State::Good), "{found:?}");
    }
}
