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

/// File systems for kernel tools and settings; optional.
const OF_KERNEL: [(&str, &str); 2] = [("tracefs", "/sys/kernel/tracing"), ("debugfs", "/sys/kernel/debug")];

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
    for (kind, place) in OF_KERNEL.into_iter().filter(|(_, place)| Path::new(place).exists()) {
        mount_at(kind, place, kind, MountFlags::empty(), None)?;
    }
    for (target, link) in LINKS {
        if !Path::new(link).exists() {
            symlink(target, link)?;
        }
    }
    fs::create_dir_all("/tmp")
}
