//! The mappings of a process: /proc/PID/maps (proc_pid_maps(5)) and smaps.
//!
//! Names of files are those of other users: any bytes, in any form. A line that is not of the kernel's form
//! is skipped.

use std::fs;
use std::io;
use std::ops::Range;

use memtide_core::PAGE_BYTES;
use rustix::process::Pid;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping<'t> {
    /// Its addresses, in bytes.
    pub addresses: Range<u64>,
    /// `rwx` and `p` (private) or `s` (shared); `-` for what is missing.
    permissions: &'t str,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Numbers of the file's device and inode. The inode is 0 if there is no file.
    pub file: (&'t str, u64),
    /// The file's path, or a name in brackets; empty for other anonymous memory.
    pub name: &'t str,
}

impl<'t> Mapping<'t> {
    /// That of a line of the kernel's file; `None` if it is not of its form.
    pub fn of(line: &'t str) -> Option<Mapping<'t>> {
        let mut words = line.splitn(6, ' ');
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = words.next()?.split_once('-')?;
        let addresses = number(start)?..number(end)?;
        let permissions = words.next().filter(|text| text.len() == 4)?;
        let offset = number(words.next()?)?;
        let file = (words.next()?, words.next()?.parse().ok()?);
        let name = words.next().unwrap_or_default().trim_start();
        Some(Mapping { addresses, permissions, offset, file, name })
    }

    /// Its base pages.
    pub fn pages(&self) -> Range<u64> {
        self.addresses.start / PAGE_BYTES..self.addresses.end / PAGE_BYTES
    }

    /// Whether what one process writes there is written for all that map it.
    pub fn is_shared(&self) -> bool {
        self.permissions.ends_with('s')
    }

    /// Whether it can be written.
    pub fn is_writable(&self) -> bool {
        self.permissions.contains('w')
    }

    /// Whether it can be accessed at all.
    pub fn is_accessible(&self) -> bool {
        !self.permissions.starts_with("---")
    }

    /// Whether it maps a file; memory shared without one has a file of the kernel's.
    pub fn has_file(&self) -> bool {
        self.file.1 != 0
    }

    /// Whether it is the kernel's own: the vDSO and its data.
    pub fn is_of_kernel(&self) -> bool {
        !self.has_file() && (self.name.starts_with("[vv") || matches!(self.name, "[vdso]" | "[vsyscall]"))
    }
}

/// The text of a process's file in /proc, with replacement characters for bytes that are not UTF-8.
fn text(pid: Pid, file: &str) -> io::Result<String> {
    let bytes = fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero()))?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// What `see` makes of each of a process's mappings, by address.
///
/// # Errors
/// If there is no such process, or it may not be inspected.
pub fn read<R>(pid: Pid, see: impl FnMut(Mapping<'_>) -> Option<R>) -> io::Result<Vec<R>> {
    Ok(text(pid, "maps")?.lines().filter_map(Mapping::of).filter_map(see).collect())
}

/// Bytes of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In memory.
    pub resident: u64,
    /// Those of which were referenced since their bits were cleared.
    pub referenced: u64,
}

/// Addresses and use of a process's mappings, by address.
///
/// # Errors
/// If there is no such process, or it may not be inspected.
pub fn usages(pid: Pid) -> io::Result<Vec<(Range<u64>, Usage)>> {
    Ok(usages_of(&text(pid, "smaps")?))
}

fn usages_of(text: &str) -> Vec<(Range<u64>, Usage)> {
    let mut all: Vec<(Range<u64>, Usage)> = Vec::new();
    for line in text.lines() {
        let figure = |name| {
            let kib: u64 = line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kib * 1024)
        };
        if let Some(mapping) = Mapping::of(line) {
            all.push((mapping.addresses, Usage::default()));
        } else if let Some((_, usage)) = all.last_mut() {
            usage.resident = figure("Rss:").unwrap_or(usage.resident);
            usage.referenced = figure("Referenced:").unwrap_or(usage.referenced);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn line_of_the_kernel_is_read() {
        let line = "7f0000001000-7f0000003000 rw-s 00002000 00:01 1037       /dev/zero (deleted)";
        let mapping = Mapping::of(line).expect("a mapping");
        assert_eq!((mapping.pages(), mapping.offset), (0x7_f000_0001..0x7_f000_0003, 0x2000));
        assert_eq!((mapping.file, mapping.name), (("00:01", 1037), "/dev/zero (deleted)"));
        assert!(mapping.is_shared() && mapping.is_writable() && mapping.has_file());
        let kinds = |line| {
            let mapping = Mapping::of(line).expect("a mapping");
            [mapping.is_accessible(), mapping.is_writable(), mapping.has_file(), mapping.is_of_kernel()]
        };
        assert_eq!(kinds("1000-2000 ---p 00000000 00:00 0"), [false; 4]);
        assert_eq!(kinds("1000-2000 r-xp 00000000 08:02 17 /a file"), [true, false, true, false]);
        assert_eq!(kinds("1000-2000 r-xp 00000000 00:00 0    [vdso]"), [true, false, false, true]);
        assert_eq!(kinds("1000-2000 r--p 00000000 00:00 0    [vvar_vclock]"), [true, false, false, true]);
        assert_eq!(kinds("1000-2000 r--p 00000000 00:00 9    [vdso]"), [true, false, true, false]);
    }

    #[test]
    fn own_memory_is_found_with_its_use() {
        let memory = vec![1u8; 8 << 20];
        let address = memory.as_ptr() as u64;
        let me = rustix::process::getpid();
        let is_of =
            |mapping: Mapping<'_>| mapping.addresses.contains(&address).then(|| mapping.is_writable());
        assert_eq!(read(me, is_of).expect("own mappings"), [true]);
        let usages = usages(me).expect("own mappings");
        let (_, usage) = usages.iter().find(|(addresses, _)| addresses.contains(&address)).expect("it");
        assert!(usage.resident >= 8 << 20 && usage.referenced <= usage.resident, "{usage:?}");
        assert_eq!(memory.len(), 8 << 20);
    }

    #[test]
    fn use_follows_the_line_of_its_mapping() {
        let text = "1000-3000 rw-p 00000000 00:00 0\nSize: 8 kB\nRss:     8 kB\nReferenced:  4 kB\n\
            3000-4000 r--p 00000000 08:02 5 /SYSV\nRss: 0 kB\nVmFlags: rd\nRss: x kB\n";
        let used = |resident, referenced| Usage { resident, referenced };
        assert_eq!(usages_of(text), [(0x1000..0x3000, used(8192, 4096)), (0x3000..0x4000, used(0, 0))]);
    }

    proptest! {
        /// Above all names that other programs take for the kernel's.
        #[test]
        fn any_line_is_read_or_skipped(
            name in "(/SYSV|\\[stack:|\\[)?\\PC{0,12}",
            line in "\\PC{0,60}",
        ) {
            let named = format!("1000-2000 rw-s 00000000 00:01 7 {name}");
            let mapping = Mapping::of(&named).expect("a mapping");
            prop_assert_eq!(mapping.name, name.trim_start());
            let _ = Mapping::of(&line);
            let _ = usages_of(&format!("{named}\n{line}\nRss:{line}\n"));
        }
    }
}
