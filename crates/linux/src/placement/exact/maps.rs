//! A process's memory map.

use std::fs;
use std::io;
use std::ops::Range;

use crate::sys::trace::Tid;

/// Its ranges of private anonymous memory, except for the stack.
pub fn anonymous(pid: Tid) -> io::Result<Vec<Range<u64>>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(maps.lines().filter_map(area).filter(Area::is_anonymous).map(|area| area.range).collect())
}

/// Its vDSO (vdso(7)).
pub fn vdso(pid: Tid) -> io::Result<Range<u64>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let found = maps.lines().filter_map(area).find(|area| area.name == "[vdso]");
    found.map(|area| area.range).ok_or_else(|| io::Error::other("the program has no vDSO"))
}

/// A line of /proc/PID/maps (proc_pid_maps(5)).
struct Area<'a> {
    range: Range<u64>,
    private: bool,
    inode: &'a str,
    name: &'a str,
}

impl Area<'_> {
    fn is_anonymous(&self) -> bool {
        let named = !["", "[heap]"].contains(&self.name) && !self.name.starts_with("[anon:");
        self.private && self.inode == "0" && !named
    }
}

fn area(line: &str) -> Option<Area<'_>> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let private = words.next()?.ends_with('p');
    let (inode, name) = (words.nth(2)?, words.next().unwrap_or_default().trim());
    Some(Area { range: number(start)?..number(end)?, private, inode, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_files_and_kernel_areas_are_not_anonymous() {
        let anonymous = |line: &str| area(line).expect("an area").is_anonymous();
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
