//! apt sources: the system's own entries, and copies of them for other suites.

use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/etc/apt";
const RELEASE: &str = "/etc/os-release";

/// Entries for memtide's apt configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct Sources {
    /// Files by name, with content.
    pub files: Vec<(String, String)>,
    /// Suites, in search order.
    pub suites: Vec<String>,
}

/// This system's entries for its release, and copies of them for its backports and a further suite.
pub fn of_system(further: Option<&str>) -> Result<Sources, String> {
    let release = fs::read_to_string(RELEASE).unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.map(|name| name.trim_matches('"')).filter(|name| !name.is_empty());
    let codename = codename.ok_or("cannot determine this system's Debian or Ubuntu release")?;
    // Pairs of a suite and the one whose entries are copied for it.
    let mut wanted: Vec<(String, String)> = ["", "-updates", "-security"]
        .map(|part| (format!("{codename}{part}"), format!("{codename}{part}")))
        .into();
    let others = [Some(format!("{codename}-backports")), further.map(str::to_owned)];
    wanted.extend(others.into_iter().flatten().map(|suite| (suite, codename.to_owned())));
    let texts: Vec<(bool, String)> = files()
        .into_iter()
        .filter_map(|path| Some((is_deb822(&path), fs::read_to_string(path).ok()?)))
        .collect();
    let mut files = Vec::new();
    let mut suites = Vec::new();
    for (suite, model) in wanted {
        for (deb822, extension) in [(true, "sources"), (false, "list")] {
            let of_kind = texts.iter().filter(|(kind, _)| *kind == deb822);
            let entries: String =
                of_kind.filter_map(|(_, text)| with_suite(text, deb822, &model, &suite)).collect();
            if !entries.is_empty() {
                files.push((format!("{suite}.{extension}"), entries));
                suites.push(suite.clone());
            }
        }
    }
    if files.is_empty() {
        return Err(format!("{FOLDER} has no source of packages for '{codename}'"));
    }
    Ok(Sources { files, suites })
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(FOLDER);
    let parts = fs::read_dir(folder.join("sources.list.d")).into_iter().flatten();
    let mut files: Vec<PathBuf> = parts.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.push(folder.join("sources.list"));
    files.sort();
    files
}

fn is_deb822(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sources")
}

/// A file's entries for the suite `model`, rewritten for another; `None` if it has none.
fn with_suite(text: &str, deb822: bool, model: &str, suite: &str) -> Option<String> {
    let entries: Vec<String> = if deb822 {
        text.split("\n\n").filter_map(|stanza| stanza_with(stanza, model, suite)).collect()
    } else {
        text.lines().filter_map(|line| line_with(line, model, suite)).collect()
    };
    (!entries.is_empty()).then(|| entries.concat())
}

fn stanza_with(stanza: &str, model: &str, suite: &str) -> Option<String> {
    let field = |line: &str, name: &str| line.to_ascii_lowercase().starts_with(name);
    let lines = || stanza.lines().filter(|line| !line.starts_with('#'));
    let of_model = |line: &str| field(line, "suites:") && line.split_whitespace().any(|word| word == model);
    let off = |line: &str| field(line, "enabled:") && line.to_ascii_lowercase().contains("no");
    if !lines().any(of_model) || lines().any(off) {
        return None;
    }
    let replaced = lines().map(|line| match line {
        line if field(line, "suites:") => format!("Suites: {suite}\n"),
        line if field(line, "types:") => "Types: deb\n".to_owned(),
        line => format!("{line}\n"),
    });
    Some(replaced.collect::<String>() + "\n")
}

/// `deb [OPTIONS] URI SUITE COMPONENTS`.
fn line_with(line: &str, model: &str, suite: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == model)?;
    if words.first() != Some(&"deb") {
        return None;
    }
    let mut words = words;
    words[at] = suite;
    Some(words.join(" ") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_release_entries_are_copied_to_another_suite() {
        let text = "Types: deb deb-src\n# a note\nURIs: http://mirror/debian\nSuites: stable stable-updates\n\
            Components: main\nSigned-By: /key.gpg\n\nTypes: deb\nURIs: http://other/x\nSuites: nodistro\n\
            Components: main\n\nTypes: deb\nURIs: http://off/debian\nSuites: stable\nComponents: main\n\
            Enabled: no\n";
        let expected = "Types: deb\nURIs: http://mirror/debian\nSuites: stable-backports\nComponents: main\n\
            Signed-By: /key.gpg\n\n";
        assert_eq!(with_suite(text, true, "stable", "stable-backports").as_deref(), Some(expected));
        let lines = "deb [signed-by=/key.gpg] http://mirror/debian stable main contrib\n\
            deb http://mirror/s stable-security main\n# deb http://mirror/debian stable main\n\
            deb-src http://mirror/debian stable main\n";
        let expected = "deb [signed-by=/key.gpg] http://mirror/debian stable-backports main contrib\n";
        assert_eq!(with_suite(lines, false, "stable", "stable-backports").as_deref(), Some(expected));
        assert_eq!(with_suite(lines, false, "testing", "testing-backports"), None);
    }
}
