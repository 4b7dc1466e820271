//! Host files copied into the guest, with their libraries and interpreters.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::archive::Archive;
use crate::error::LabError;
use crate::libraries::{Kind, kind, libraries};

/// Nesting limit of script interpreters, as in Linux.
const DEEPEST: usize = 4;

/// Why a file cannot be executed; `None` if it is an executable or a script.
pub fn why_not_executable(path: &Path) -> Result<Option<&'static str>, LabError> {
    let found = fs::metadata(path).map_err(LabError::file(path, "find it"))?;
    if !found.is_file() {
        return Ok(Some("not a regular file"));
    }
    if matches!(kind(path)?, Kind::Data) {
        return Ok(Some("is neither an executable nor a script that starts with #!"));
    }
    let executable = found.permissions().mode() & 0o111 != 0;
    Ok((!executable).then_some("permission to execute it is missing; chmod +x gives it"))
}

/// Adds a host file with its dependencies.
pub fn add(archive: &mut Archive, guest: &Path, host: &Path, depth: usize) -> Result<(), LabError> {
    if archive.has(guest) || depth > DEEPEST {
        return Ok(());
    }
    archive.host(guest, host);
    add_libraries(archive, host, depth)
}

/// Adds a file's libraries or interpreters.
pub fn add_libraries(archive: &mut Archive, host: &Path, depth: usize) -> Result<(), LabError> {
    let add_program = |archive: &mut Archive, name: &str| {
        let missing = || refused(host.as_os_str(), format!("is a script for {name}, which is not there"));
        let path = find(OsStr::new(name)).ok_or_else(missing)?;
        add(archive, &path, &path, depth + 1)
    };
    match kind(host)? {
        Kind::Elf { dynamic: true, loader } => {
            for library in libraries(host, loader.as_deref())? {
                archive.host(&library, &library);
            }
            Ok(())
        }
        Kind::Script(words) => {
            for name in interpreters(&words) {
                add_program(archive, name)?;
            }
            Ok(())
        }
        Kind::Elf { dynamic: false, .. } | Kind::Data => Ok(()),
    }
}

/// Programs in a script's shebang: the interpreter, and the one that `env` looks up.
fn interpreters(words: &[String]) -> impl Iterator<Item = &str> {
    let looked_up = words.first().filter(|first| first.ends_with("/env")).and_then(|_| {
        words[1..]
            .iter()
            .flat_map(|rest| rest.split_whitespace())
            .find(|word| !word.starts_with('-') && !word.contains('='))
    });
    words.first().map(String::as_str).into_iter().chain(looked_up)
}

/// Adds a file, or a folder recursively. Symbolic links in it stay links.
pub fn add_all(archive: &mut Archive, guest: &Path, host: &Path) -> Result<(), LabError> {
    let unreadable = || LabError::file(host, "read it for the guest");
    let kind = fs::metadata(host).map_err(unreadable())?.file_type();
    if kind.is_file() {
        return add(archive, guest, host, 0);
    }
    if !kind.is_dir() {
        return Err(refused(host.as_os_str(), "is neither a regular file nor a folder"));
    }
    archive.folder(guest);
    let mut entries =
        fs::read_dir(host).map_err(unreadable())?.collect::<io::Result<Vec<_>>>().map_err(unreadable())?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (host, guest) = (entry.path(), guest.join(entry.file_name()));
        let kind = entry.file_type().map_err(unreadable())?;
        if kind.is_symlink() {
            archive.link(&guest, &fs::read_link(&host).map_err(unreadable())?);
        } else if kind.is_dir() || kind.is_file() {
            add_all(archive, &guest, &host)?;
        }
    }
    Ok(())
}

/// Looks up a program in `PATH`.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Why a program or file cannot be put into the guest.
pub fn refused(program: &OsStr, what: impl Into<String>) -> LabError {
    LabError::Program { program: program.to_string_lossy().into_owned(), what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_shebang_adds_the_program_it_names() {
        let of = |line: &[&str]| -> Vec<String> {
            let words: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
            interpreters(&words).map(str::to_owned).collect()
        };
        assert_eq!(of(&["/bin/sh", "-e"]), ["/bin/sh"]);
        assert_eq!(of(&["/usr/bin/env", "python3"]), ["/usr/bin/env", "python3"]);
        assert_eq!(of(&["/usr/bin/env", "-S A=1 perl -w"]), ["/usr/bin/env", "perl"]);
    }
}
