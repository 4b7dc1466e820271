//! Which kernel thread of DAMON a daemon of memtide has started: one that was killed must not leave it taken for good.

use std::path::Path;
use std::{fs, io};

use procfs::process::Process;

/// The daemon and the kernel's thread, each by its number and when it started.
const FILE: &str = "/run/memtide/damon";

/// In a thread's place: one that starts now.
const COMING: &str = "coming";

/// Notes that this process has started the kernel's thread of that number, or is about to start one.
///
/// # Errors
/// The system's, if that cannot be written down.
pub fn note(thread: Option<i32>) -> io::Result<()> {
    let known = |pid| identity(pid).ok_or_else(|| io::Error::other(format!("there is no process {pid}")));
    let daemon = known(rustix::process::getpid().as_raw_nonzero().get())?;
    let thread = thread.map_or_else(|| Ok(COMING.to_owned()), known)?;
    let file = Path::new(FILE);
    fs::create_dir_all(file.parent().expect("a folder"))
        .and_then(|()| fs::write(file, format!("{daemon}\n{thread}\n")))
}

/// Whether the kernel's thread of that number was started by a daemon that lives no more.
pub fn is(thread: i32) -> bool {
    fs::read_to_string(FILE).is_ok_and(|text| holds(&text, thread, identity))
}

/// The daemon that lives and has started the kernel's thread of that number.
pub fn owner(thread: i32) -> Option<i32> {
    let text = fs::read_to_string(FILE).ok()?;
    let (daemon, known) = text.trim_end().split_once('\n')?;
    let pid = daemon.split(' ').next()?.parse().ok()?;
    let both = [identity(pid), identity(thread)];
    (both == [Some(daemon.to_owned()), Some(known.to_owned())]).then_some(pid)
}

fn holds(text: &str, thread: i32, identity: impl Fn(i32) -> Option<String>) -> bool {
    let Some((daemon, known)) = text.trim_end().split_once('\n') else { return false };
    let pid = daemon.split(' ').next().and_then(|pid| pid.parse().ok());
    let lives = pid.is_none_or(|pid| identity(pid).as_deref() == Some(daemon));
    let started = |identity: &str| identity.split(' ').nth(1)?.parse::<u64>().ok();
    let is_known = |thread: &str| thread == known || (known == COMING && started(thread) >= started(daemon));
    !lives && identity(thread).is_some_and(|thread| is_known(&thread))
}

fn identity(pid: i32) -> Option<String> {
    let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
    Some(format!("{pid} {}", stat.starttime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_of_a_dead_daemon_is_left_over() {
        let alive =
            |pid| [(7, "7 70"), (9, "9 90")].iter().find(|(p, _)| *p == pid).map(|(_, id)| (*id).to_owned());
        for (text, expected) in [
            ("5 50\n9 90\n", true),
            ("7 60\n9 90\n", true),
            ("7 70\n9 90\n", false),
            ("5 50\n9 80\n", false),
            ("5 50\n7 70\n", false),
            ("5 50\ncoming\n", true),
            ("5 95\ncoming\n", false),
            ("7 70\ncoming\n", false),
            ("x\n9 90\n", false),
            ("5 50", false),
            ("", false),
        ] {
            assert_eq!(holds(text, 9, alive), expected, "{text:?}");
        }
        assert!(identity(1).is_some());
    }
}
