//! The guest's file systems.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountFlags, mount as mount_at};

const MOUNTS: [(&str, &str); 5] = [
    ("devtmpfs", "/dev"),
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
];

/// File systems for kernel tools; optional.
const TRACING: (&str, &str) = ("tracefs", "/sys/kernel/tracing");

const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// Mounts the file systems that programs expect on Linux.
pub fn mount() -> io::Result<()> {
    for (kind, place) in MOUNTS {
        fs::create_dir_all(place)?;
        mount_at(kind, place, kind, MountFlags::empty(), None)
            .map_err(|error| io::Error::other(format!("{place} cannot be mounted: {error}")))?;
    }
    if Path::new(TRACING.1).exists() {
        mount_at(TRACING.0, TRACING.1, TRACING.0, MountFlags::empty(), None)?;
    }
    for (target, link) in LINKS {
        if !Path::new(link).exists() {
            symlink(target, link)?;
        }
    }
    fs::create_dir_all("/tmp")
}
