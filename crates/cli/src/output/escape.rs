//! Makes untrusted text safe for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes control characters and those that change the writing direction, in Rust's syntax: `\u{1b}`. Keeps
/// line ends and tabs.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            write!(safe, "\\u{{{:x}}}", u32::from(c)).expect("a string takes all");
        } else {
            safe.push(c);
        }
    }
    safe.into()
}

/// As [`escaped`], but also escapes line ends and tabs.
pub fn escaped_line(text: &str) -> Cow<'_, str> {
    match escaped(text) {
        safe if safe.contains(['\n', '\t']) => safe.replace('\n', "\\n").replace('\t', "\\t").into(),
        safe => safe,
    }
}

fn is_unsafe(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && c != '\n' && c != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_escaped_and_others_stay() {
        assert_eq!(escaped("plain \u{e9}\n\tnext"), "plain \u{e9}\n\tnext");
        assert_eq!(escaped("\u{1b}[2J\r\u{7f}\u{9b}1m"), "\\u{1b}[2J\\u{d}\\u{7f}\\u{9b}1m");
        assert_eq!(escaped("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(escaped_line("a\nb\tc"), "a\\nb\\tc");
    }
}
