//! Which kernel thread of DAMON a daemon of memtide has started: one that was killed must not leave it taken for good.

use std::path::Path;
use std::{fs, io};

use procfs::process::Process;

/// The daemon and the kernel's thread, each by its number and when it started.
const FILE: &str = "/run/memtide/damon";

/// Notes that this process has started the kernel's thread of that number.
///
/// # Errors
/// The system's, if that cannot be written down.
pub fn note(thread: i32) -> io::Result<()> {
    let known = |pid| identity(pid).ok_or_else(|| io::Error::other(format!("there is no process {pid}")));
    let daemon = known(rustix::process::getpid().as_raw_nonzero().get())?;
    let text = format!("{daemon}\n{}\n", known(thread)?);
    let file = Path::new(FILE);
    fs::create_dir_all(file.parent().expect("a folder")).and_then(|()| fs::write(file, text))
}

/// Whether the kernel's thread of that number was started by a daemon that lives no more.
pub fn is(thread: i32) -> bool {
    fs::read_to_string(FILE).is_ok_and(|text| holds(&text, thread, identity))
}

fn holds(text: &str, thread: i32, identity: impl Fn(i32) -> Option<String>) -> bool {
    let Some((daemon, known)) = text.trim_end().split_once('\n') else { return false };
    let pid = daemon.split(' ').next().and_then(|pid| pid.parse().ok());
    let lives = pid.is_none_or(|pid| identity(pid).as_deref() == Some(daemon));
    !lives && identity(thread).as_deref() == Some(known)
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
            ("x\n9 90\n", false),
            ("5 50", false),
            ("", false),
        ] {
            assert_eq!(holds(text, 9, alive), expected, "{text:?}");
        }
        assert!(identity(1).is_some());
    }
}
