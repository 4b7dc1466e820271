//! The system's settings of transparent huge pages.

use std::fs;

/// The chosen one of the words in a setting such as `always [madvise] never`.
pub fn chosen(setting: &str) -> Option<&str> {
    Some(setting.split_once('[')?.1.split_once(']')?.0)
}

/// Whether every program may have huge pages of 2 MiB, as far as it did not ask for none.
pub fn are_for_all() -> bool {
    let read = |name| fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    // Since Linux 6.8 each size has its own setting.
    let of_size = read("hugepages-2048kB/enabled").unwrap_or_else(|_| "[inherit]".to_owned());
    let is_for_all = |setting: &str| chosen(setting) == Some("always");
    match chosen(&of_size) {
        Some("inherit") => read("enabled").is_ok_and(|setting| is_for_all(&setting)),
        _ => is_for_all(&of_size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_word_is_in_brackets() {
        for (setting, expected) in [
            ("always [madvise] never\n", Some("madvise")),
            ("[always] inherit madvise never", Some("always")),
            ("", None),
            ("]always[", None),
        ] {
            assert_eq!(chosen(setting), expected, "{setting}");
        }
    }
}
