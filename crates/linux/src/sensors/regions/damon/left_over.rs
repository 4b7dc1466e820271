//! Records which DAMON kernel thread a daemon has started, so that a killed daemon does not leave DAMON in
//! use for good.

use std::path::Path;
use std::{fs, io};

use procfs::process::Process;

/// The daemon and the kernel thread, each by id and start time.
const FILE: &str = "/run/memtide/damon";

/// Placeholder for a thread that is about to start.
const STARTING: &str = "coming";

/// Records that this process has started this kernel thread, or is about to start one.
///
/// # Errors
/// The system's, if the record cannot be written.
pub fn record(thread: Option<i32>) -> io::Result<()> {
    let known = |pid| identity(pid).ok_or_else(|| io::Error::other(format!("there is no process {pid}")));
    let daemon = known(rustix::process::getpid().as_raw_nonzero().get())?;
    let thread = thread.map_or_else(|| Ok(STARTING.to_owned()), known)?;
    let file = Path::new(FILE);
    fs::create_dir_all(file.parent().expect("a folder"))
        .and_then(|()| replace(file, &format!("{daemon}\n{thread}\n")))
}

/// Replaces a file's text in one step: a daemon killed in the middle leaves the earlier text.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let next = file.with_extension("next");
    fs::write(&next, text)?;
    fs::rename(next, file)
}

/// Who started a DAMON kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// A running daemon, with its process id.
    Daemon(i32),
    /// A daemon that has died.
    Dead,
    /// Unknown.
    Unknown,
}

/// Who started this kernel thread.
pub fn starter(thread: i32) -> Starter {
    fs::read_to_string(FILE).ok().and_then(|text| parse(&text, thread, identity)).unwrap_or(Starter::Unknown)
}

fn parse(text: &str, thread: i32, identity: impl Fn(i32) -> Option<String>) -> Option<Starter> {
    let (daemon, known) = text.trim_end().split_once('\n')?;
    let (pid, started) = daemon.split_once(' ')?;
    let (pid, started): (i32, u64) = (pid.parse().ok()?, started.parse().ok()?);
    let thread = identity(thread)?;
    let comes_later = || thread.split_once(' ').and_then(|(_, later)| later.parse().ok()) >= Some(started);
    let is_its = thread == known || (known == STARTING && comes_later());
    let lives = identity(pid).as_deref() == Some(daemon);
    is_its.then_some(if lives { Starter::Daemon(pid) } else { Starter::Dead })
}

fn identity(pid: i32) -> Option<String> {
    let stat = Process::new(pid).and_then(|process| process.stat()).ok()?;
    Some(format!("{pid} {}", stat.starttime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_complete_at_any_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("damon");
        let records = ["5 50\ncoming\n", "5 50\n9 90\n"];
        replace(&file, records[0]).expect("a record");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..500).for_each(|round| replace(&file, records[round % 2]).expect("a record"));
            });
            while !writer.is_finished() {
                let text = fs::read_to_string(&file).expect("a record");
                assert!(records.contains(&text.as_str()), "{text:?}");
            }
        });
    }

    #[test]
    fn thread_belongs_to_its_starter_dead_or_alive() {
        let alive =
            |pid| [(7, "7 70"), (9, "9 90")].iter().find(|(p, _)| *p == pid).map(|(_, id)| (*id).to_owned());
        for (text, expected) in [
            ("5 50\n9 90\n", Some(Starter::Dead)),
            ("7 60\n9 90\n", Some(Starter::Dead)),
            ("7 70\n9 90\n", Some(Starter::Daemon(7))),
            ("5 50\n9 80\n", None),
            ("5 50\n7 70\n", None),
            ("5 50\ncoming\n", Some(Starter::Dead)),
            ("5 95\ncoming\n", None),
            ("7 70\ncoming\n", Some(Starter::Daemon(7))),
            ("x\n9 90\n", None),
            ("x 50\n9 90\n", None),
            ("5 50", None),
            ("", None),
        ] {
            assert_eq!(parse(text, 9, alive), expected, "{text:?}");
        }
        assert!(identity(1).is_some());
    }
}
