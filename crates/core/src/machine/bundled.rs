//! The bundled machine files, included at compile time.

use include_dir::{Dir, include_dir};

use super::Machine;
use crate::FileError;

static FILES: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../machines");

/// Names of the bundled machines, in order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = FILES.files().filter_map(|file| file.path().file_stem()?.to_str()).collect();
    names.sort_unstable();
    names
}

/// The file of a bundled machine; `None` if there is no machine of this name.
pub fn text(name: &str) -> Option<&'static str> {
    // Devices are in a folder below.
    let is_machine = !name.contains('/');
    FILES.get_file(format!("{name}.toml")).filter(|_| is_machine)?.contents_utf8()
}

/// A bundled machine; `None` if there is no machine of this name.
///
/// # Errors
/// As [`Machine::parse`], if the file is wrong: a bug in memtide.
pub fn machine(name: &str) -> Option<Result<Machine, FileError>> {
    text(name).map(|text| Machine::parse(&format!("{name}.toml"), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_machine_parses_and_has_the_name_of_its_file() {
        assert!(names().len() > 5);
        for name in names() {
            let machine = machine(name).expect("a bundled machine").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(machine.name, name);
        }
        assert!(text("no-such-machine").is_none() && text("devices/hbm3").is_none());
    }
}
