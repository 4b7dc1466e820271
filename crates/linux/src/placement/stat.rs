//! Fields of /proc/PID/stat and /proc/PID/status.

use std::fs;

/// A field by its number in proc_pid_stat(5), from 3 on.
pub fn field(stat: &str, number: usize) -> Option<u64> {
    // The second field is the program's name, which may contain any character.
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_whitespace().nth(number - 3)?.parse().ok()
}

/// A field of a thread's status by its name in proc_pid_status(5).
pub fn status(tid: i32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let mut fields = status.lines().filter_map(|line| line.split_once(':'));
    fields.find(|field| field.0 == name).map(|field| field.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_may_look_like_fields() {
        let stat = "7 (a) R 1 2) S 4 5 6";
        assert_eq!([3, 4, 6, 7].map(|number| field(stat, number)), [None, Some(4), Some(6), None]);
        assert_eq!(field("", 4), None);
    }

    #[test]
    fn this_process_has_a_status() {
        let me = std::process::id() as i32;
        assert_eq!(status(me, "Pid"), Some(me.to_string()));
        assert_eq!(status(me, "Pi"), None);
    }
}
