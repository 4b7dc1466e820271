//! The ranges of a process's memory map that placement by page fault needs.

use std::io;
use std::ops::Range;

use rustix::process::Pid;

use crate::mappings::{self, Mapping};
use crate::sys::trace::Tid;

/// Its ranges of private anonymous memory, except for the stack.
pub fn anonymous(pid: Tid) -> io::Result<Vec<Range<u64>>> {
    ranges(pid, is_anonymous)
}

/// Its vDSO (vdso(7)).
pub fn vdso(pid: Tid) -> io::Result<Range<u64>> {
    let found = ranges(pid, |mapping| mapping.is_of_kernel() && mapping.name == "[vdso]")?;
    found.into_iter().next().ok_or_else(|| io::Error::other("the program has no vDSO"))
}

fn ranges(pid: Tid, is_wanted: impl Fn(&Mapping<'_>) -> bool) -> io::Result<Vec<Range<u64>>> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    mappings::read(pid, |mapping| is_wanted(&mapping).then_some(mapping.addresses))
}

fn is_anonymous(mapping: &Mapping<'_>) -> bool {
    let is_unnamed = matches!(mapping.name, "" | "[heap]") || mapping.name.starts_with("[anon:");
    !mapping.is_shared() && !mapping.has_file() && is_unnamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_files_and_kernel_areas_are_not_anonymous() {
        let anonymous = |line: &str| is_anonymous(&Mapping::of(line).expect("a mapping"));
        assert!(anonymous("7f00-7fff rw-p 00000000 00:00 0 "));
        assert!(anonymous("7f00-7fff ---p 00000000 00:00 0"));
        assert!(anonymous("00c6b000-00c8c000 rw-p 00000000 00:00 0                    [heap]"));
        assert!(anonymous("c000000000-c000400000 rw-p 00000000 00:00 0       [anon: Go: heap]"));
        assert!(!anonymous("7ffd-7fff rw-p 00000000 00:00 0                  [stack]"));
        assert!(!anonymous("7ffd-7fff r-xp 00000000 00:00 0                  [vdso]"));
        assert!(!anonymous("7ffd-7fff rw-s 00000000 00:01 1                  /dev/zero (deleted)"));
        assert!(!anonymous("00400000-00452000 rw-p 00001000 08:02 173521     /usr/bin/a program"));
    }

    #[test]
    fn this_process_has_a_vdso_and_anonymous_memory() {
        let me = std::process::id() as Tid;
        let vdso = vdso(me).expect("a vDSO");
        let anonymous = anonymous(me).expect("ranges");
        assert!(!anonymous.is_empty() && !anonymous.iter().any(|range| range.contains(&vdso.start)));
    }
}
