//! System calls that change mappings, or start or end threads and processes.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_long;
use memtide_recording::Record;

/// End of the heap from the last `brk`; 0 before the first.
static HEAP_END: AtomicU64 = AtomicU64::new(0);

const PAGE: u64 = 4096;

/// A system call: number and arguments.
#[derive(Clone, Copy, Default)]
pub struct Call {
    pub number: i64,
    pub arguments: [u64; 6],
}

/// What a thread does next.
pub enum Next {
    /// It continues.
    Same,
    /// It may execute another program.
    Exec,
    /// It, or its process, ends.
    End,
}

impl Call {
    /// What the thread is about to do.
    pub fn next(&self) -> Next {
        match c_long::from(self.number) {
            libc::SYS_exit | libc::SYS_exit_group => Next::End,
            libc::SYS_execve | libc::SYS_execveat => Next::Exec,
            _ => Next::Same,
        }
    }

    /// Whether this call, with return value `result`, returned in a new process.
    pub fn is_new_process(&self, result: i64) -> bool {
        result == 0 && self.starts_something()
    }

    fn starts_something(&self) -> bool {
        matches!(
            c_long::from(self.number),
            libc::SYS_clone | libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone3
        )
    }

    /// Effects of the call with this return value, in order.
    pub fn events(&self, result: i64) -> Vec<Record> {
        if (-4095..0).contains(&result) {
            return if matches!(self.next(), Next::Exec) { vec![Record::ExecFailed] } else { vec![] };
        }
        let result = result as u64;
        let [first, second, third, fourth, fifth, _] = self.arguments;
        match c_long::from(self.number) {
            libc::SYS_mmap => mapped(result, second, fourth, fifth),
            libc::SYS_munmap => vec![unmap(first, second)],
            libc::SYS_mremap => moved(first, second, result, third),
            libc::SYS_brk => heap(result),
            libc::SYS_madvise if drops(third) => {
                vec![unmap(first, second), map(first, second, "anonymous".to_owned())]
            }
            _ if self.starts_something() => vec![self.started(result as u32)],
            _ => vec![],
        }
    }

    fn started(&self, id: u32) -> Record {
        let flags = self.arguments[0];
        let same_memory = self.number == libc::SYS_clone
            && flags & libc::CLONE_VM as u64 != 0
            // QEMU emulates vfork as fork.
            && flags & libc::CLONE_VFORK as u64 == 0;
        if same_memory { Record::Spawn { tid: id } } else { Record::Fork { pid: id } }
    }
}

fn drops(advice: u64) -> bool {
    advice == libc::MADV_DONTNEED as u64
}

/// Length rounded up to whole pages, in bytes. The program may pass any length that QEMU does not check.
fn pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX / PAGE * PAGE)
}

fn map(start: u64, bytes: u64, name: String) -> Record {
    Record::Map { start, bytes: pages(bytes), name }
}

fn unmap(start: u64, bytes: u64) -> Record {
    Record::Unmap { start, bytes: pages(bytes) }
}

fn mapped(start: u64, bytes: u64, flags: u64, descriptor: u64) -> Vec<Record> {
    let has = |flag: i32| flags & flag as u64 != 0;
    let name = if has(libc::MAP_STACK) {
        "stack".to_owned()
    } else if has(libc::MAP_ANONYMOUS) {
        "anonymous".to_owned()
    } else {
        file_name(descriptor as i32)
    };
    let mut events = Vec::new();
    if has(libc::MAP_FIXED) {
        events.push(unmap(start, bytes));
    }
    events.push(map(start, bytes, name));
    events
}

fn file_name(descriptor: i32) -> String {
    let target = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap_or_default();
    target.file_name().map_or("file".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn moved(old: u64, old_bytes: u64, new: u64, new_bytes: u64) -> Vec<Record> {
    let (old_bytes, new_bytes) = (pages(old_bytes), pages(new_bytes));
    let name = || "anonymous".to_owned();
    if old != new {
        vec![unmap(old, old_bytes), map(new, new_bytes, name())]
    } else if new_bytes > old_bytes {
        vec![map(old.wrapping_add(old_bytes), new_bytes - old_bytes, name())]
    } else if new_bytes < old_bytes {
        vec![unmap(old.wrapping_add(new_bytes), old_bytes - new_bytes)]
    } else {
        vec![]
    }
}

fn heap(end: u64) -> Vec<Record> {
    let end = pages(end);
    match HEAP_END.swap(end, Ordering::Relaxed) {
        0 => vec![],
        old if end > old => vec![map(old, end - old, "heap".to_owned())],
        old if end < old => vec![unmap(end, old - end)],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: c_long, arguments: [u64; 6]) -> Call {
        Call { number, arguments }
    }

    #[test]
    fn fixed_mapping_replaces_old_mapping() {
        let flags = (libc::MAP_FIXED | libc::MAP_ANONYMOUS) as u64;
        let events = call(libc::SYS_mmap, [0x10000, 100, 0, flags, u64::MAX, 0]).events(0x10000);
        let name = "anonymous".to_owned();
        assert_eq!(
            events,
            [
                Record::Unmap { start: 0x10000, bytes: 4096 },
                Record::Map { start: 0x10000, bytes: 4096, name }
            ]
        );
    }

    #[test]
    fn failed_call_has_no_effect() {
        assert_eq!(call(libc::SYS_mmap, [0; 6]).events(-12), []);
        assert_eq!(call(libc::SYS_execve, [0; 6]).events(-2), [Record::ExecFailed]);
    }

    #[test]
    fn growing_in_place_maps_new_part() {
        let grown = call(libc::SYS_mremap, [0x10000, 4096, 8192, 0, 0, 0]).events(0x10000);
        assert_eq!(grown, [map(0x11000, 4096, "anonymous".to_owned())]);
    }

    #[test]
    fn threads_and_processes_are_distinguished() {
        let vm = libc::CLONE_VM as u64;
        let vfork = libc::CLONE_VFORK as u64;
        let start = |flags| call(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]).events(7);
        assert_eq!(start(vm), [Record::Spawn { tid: 7 }]);
        assert_eq!(start(0), [Record::Fork { pid: 7 }]);
        assert_eq!(start(vm | vfork), [Record::Fork { pid: 7 }]);
    }

    #[test]
    fn any_length_is_recorded_without_panic() {
        let advised = call(libc::SYS_madvise, [0x10000, u64::MAX, libc::MADV_DONTNEED as u64, 0, 0, 0]);
        assert_eq!(advised.events(0)[0], Record::Unmap { start: 0x10000, bytes: u64::MAX - 4095 });
        for [old, new] in [[u64::MAX, 1], [1, u64::MAX], [u64::MAX; 2]] {
            call(libc::SYS_mremap, [u64::MAX, old, new, 0, 0, 0]).events(-1_i64 << 13);
        }
    }
}
