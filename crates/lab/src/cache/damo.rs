//! damo and its Python, as fetched by setup.

use std::path::{Path, PathBuf};

/// The tested version.
pub const VERSION: &str = "3.4.3";

/// Paths in the folder: the interpreter and damo's program.
pub const PYTHON: &str = "bin/python3";
pub const PROGRAM: &str = "damo/damo.py";

/// The folder; `None` if damo has not been fetched.
pub fn fetched(cache: &Path) -> Option<PathBuf> {
    Some(place(cache)).filter(|folder| folder.is_dir())
}

/// The folder.
pub fn place(cache: &Path) -> PathBuf {
    cache.join(format!("damo-{VERSION}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn unfetched_damo_is_none() {
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(fetched(cache.path()), None);
        fs::create_dir(place(cache.path())).unwrap();
        assert_eq!(fetched(cache.path()), Some(cache.path().join("damo-3.4.3")));
    }
}
