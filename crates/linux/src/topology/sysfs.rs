//! Reads sysfs: small files, any of which may be missing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::TopologyError;

/// Sysfs, or a copy of it.
pub struct Sysfs<'a>(pub &'a Path);

impl Sysfs<'_> {
    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// A file's text, trimmed; `None` if there is no such file.
    pub fn text(&self, file: &str) -> Result<Option<String>, TopologyError> {
        match fs::read_to_string(self.path(file)) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(self.fault(file, error.to_string())),
        }
    }

    /// A file's parsed value; `None` if there is no such file.
    pub fn value<T: FromStr>(&self, file: &str) -> Result<Option<T>, TopologyError> {
        self.read(file, |text| text.parse().ok())
    }

    /// The online CPUs; none if sysfs does not list them.
    pub fn online_cpus(&self) -> Result<Vec<u16>, TopologyError> {
        Ok(self.list("devices/system/cpu/online")?.unwrap_or_default())
    }

    /// The numbers of a list such as `0-3,7`; `None` if there is no such file.
    pub fn list(&self, file: &str) -> Result<Option<Vec<u16>>, TopologyError> {
        self.read(file, list)
    }

    /// A file's text parsed by `meaning`; `None` if there is no such file.
    pub fn read<T>(
        &self,
        file: &str,
        meaning: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, TopologyError> {
        let Some(text) = self.text(file)? else { return Ok(None) };
        let found = meaning(&text).ok_or_else(|| self.fault(file, format!("'{text}' is not understood")))?;
        Ok(Some(found))
    }

    /// The numbers N of the names `prefix`N in a directory, sorted.
    pub fn numbered<T: FromStr + Ord>(&self, folder: &str, prefix: &str) -> Result<Vec<T>, TopologyError> {
        let entries = match fs::read_dir(self.path(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.fault(folder, error.to_string())),
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok();
        let mut numbers: Vec<T> = entries.flatten().filter_map(name).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// An error about a file's content.
    pub fn fault(&self, file: &str, why: impl Into<String>) -> TopologyError {
        TopologyError::Unreadable { file: self.path(file), why: why.into() }
    }
}

/// Parses the kernel's lists, such as `0-3,7`.
pub fn list(text: &str) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_parsed() {
        assert_eq!(list("0-3,7"), Some(vec![0, 1, 2, 3, 7]));
        assert_eq!(list(""), Some(vec![]));
        assert_eq!(list("5"), Some(vec![5]));
        assert_eq!(list("1-x"), None);
        assert_eq!(list("0-4294967295"), None);
    }
}
