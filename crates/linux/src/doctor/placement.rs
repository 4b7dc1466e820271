//! Kernel placement and migration: memory policies, interleave weights, move_pages(2).

use std::io;
use std::path::Path;
use std::thread;

use memtide_core::NodeId;
use rustix::fs::{Access, access};

use super::{Finding, Use, why};
use crate::movers::nodes_of;
use crate::placement::Weights;
use crate::sys::{self, Mode};
use crate::topology::System;

const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave";

/// Remedy for containers, whose seccomp filter is the usual reason that the kernel refuses these calls.
const CONTAINER: &str = "in a container: --cap-add SYS_NICE, which its seccomp filter requires";

/// Tries each call on this process.
pub fn examine() -> Vec<Finding> {
    let nodes: Vec<NodeId> =
        System::read().map(|system| system.with_memory().map(|node| node.id).collect()).unwrap_or_default();
    let tried = |mode: Mode, nodes: Vec<NodeId>| {
        // A separate thread: the policy ends with it.
        let tried = thread::spawn(move || sys::set_memory_policy(mode, &nodes));
        tried.join().unwrap_or_else(|_| Err(io::Error::other("the attempt failed")))
    };
    let word = 0u64;
    let pid = rustix::process::getpid();
    let moves = nodes_of(pid, &[&raw const word as u64 >> 12]).map(drop);
    let mut found = vec![
        policies(tried(Mode::Local, Vec::new())),
        weights(tried(Mode::WeightedInterleave, nodes), writable(Path::new(WEIGHTS))),
        page_moves(moves),
    ];
    found.extend(Weights::has_leftover().then(weights_left));
    found
}

fn weights_left() -> Finding {
    let means = "programs under weighted interleave use that run's weights";
    Finding::warning("weights of weighted interleave", "left set by a killed run", means)
        .remedy("root's next memtide run or daemon restores them: sudo memtide run -- true")
}

/// Whether a weight can be set; missing if the directory is.
fn writable(folder: &Path) -> io::Result<()> {
    let name = folder.read_dir()?.flatten().map(|entry| entry.path());
    let file = name.into_iter().find(|path| path.to_string_lossy().contains("/node"));
    Ok(access(file.ok_or(io::ErrorKind::NotFound)?, Access::WRITE_OK)?)
}

fn policies(tried: io::Result<()>) -> Finding {
    let subject = "memory policies";
    match tried {
        Ok(()) => Finding::good(subject, "set_mempolicy works", "the kernel uses them"),
        Err(error) => Finding::missing(
            subject,
            format!("set_mempolicy: {}", why(&error)),
            "no `memtide run` and no `memtide measure`",
            &[Use::Measure, Use::Policies, Use::Weights, Use::Exact],
        )
        .remedy(CONTAINER),
    }
}

fn weights(mode: io::Result<()>, files: io::Result<()>) -> Finding {
    let subject = "weighted interleave";
    let means = "the kernel cannot place plain ratios";
    let missing = |found: String| Finding::missing(subject, found, means, &[Use::Weights]);
    match (mode, files) {
        (Ok(()), Ok(())) => {
            Finding::good(subject, "its weights can be set", "the kernel places plain ratios")
        }
        (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => {
            missing(format!("set_mempolicy: {}", why(&error))).remedy(CONTAINER)
        }
        (Err(_), _) => missing("this kernel has none".to_owned()).remedy("Linux 6.9 or later"),
        (Ok(()), Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            missing(format!("{WEIGHTS} is not there")).remedy("mount -t sysfs sysfs /sys, or CONFIG_SYSFS")
        }
        (Ok(()), Err(error)) => missing(format!("its weights cannot be set: {}", why(&error)))
            .remedy("be root (sudo memtide run ..); in a container, have /sys writable"),
    }
}

fn page_moves(tried: io::Result<()>) -> Finding {
    let subject = "move_pages";
    match tried {
        Ok(()) => Finding::good(subject, "works", "pages can be moved"),
        Err(error) => {
            let means = "no migration, and no page locations";
            let remedy = match error.raw_os_error() {
                Some(libc::ENOSYS) => "a kernel with CONFIG_NUMA and CONFIG_MIGRATION",
                _ => CONTAINER,
            };
            Finding::missing(subject, why(&error), means, &[Use::Daemon]).remedy(remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn error(number: i32) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(number))
    }

    #[test]
    fn container_filter_stops_policies_and_moves() {
        let found = policies(error(libc::EPERM));
        assert!(
            found.stops.contains(&Use::Policies) && found.remedy.is_some_and(|how| how.contains("SYS_NICE"))
        );
        let found = page_moves(error(libc::EPERM));
        assert!(found.stops == [Use::Daemon] && found.remedy.is_some_and(|how| how.contains("SYS_NICE")));
        assert_eq!(policies(Ok(())).state, State::Good);
    }

    #[test]
    fn weights_need_kernel_mode_and_permission() {
        assert_eq!(weights(Ok(()), Ok(())).state, State::Good);
        for (mode, files, remedy) in [
            (error(libc::EINVAL), error(libc::ENOENT), "6.9"),
            (error(libc::EPERM), Ok(()), "SYS_NICE"),
            (Ok(()), error(libc::EACCES), "root"),
            (Ok(()), error(libc::EROFS), "/sys writable"),
            (Ok(()), error(libc::ENOENT), "mount"),
        ] {
            let found = weights(mode, files);
            assert_eq!(found.stops, [Use::Weights]);
            assert!(found.remedy.as_deref().is_some_and(|how| how.contains(remedy)), "{found:?}");
        }
    }

    #[test]
    fn missing_weight_files_are_not_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let kind = || writable(folder.path()).map_err(|error| error.kind());
        assert_eq!(kind(), Err(io::ErrorKind::NotFound));
        std::fs::write(folder.path().join("node0"), "1").expect("a file");
        assert_eq!(kind(), Ok(()));
    }
}
