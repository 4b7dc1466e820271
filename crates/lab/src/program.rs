//! The program in the guest: with all that it needs to run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use memtide_lab_protocol::agent::{Program, TASK_FILE, Task};

use crate::archive::Archive;
use crate::libraries::{Kind, kind, libraries};
use crate::{GuestFile, LabError, Layout, Options, cxl, shared};

/// Where the guest looks for programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Files that libraries look for, with what they say in the guest.
const SYSTEM_FILES: [(&str, &str); 3] = [
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ("/etc/group", "root:x:0:\n"),
    ("/etc/hostname", "lab\n"),
];

/// Where glibc's loader looks libraries up.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Scripts that start scripts that start scripts; Linux allows four.
const DEEPEST: usize = 4;

/// The guest's files and its task.
pub fn guest(options: &Options, layout: &Layout, agent: &Path) -> Result<Archive, LabError> {
    let folder = env::current_dir().map_err(LabError::file(Path::new("."), "find the current folder"))?;
    let Some(name) = options.command.first() else {
        return Err(refused(
            OsStr::new("nothing to run"),
            "name the program: memtide lab run -- PROGRAM ARGS",
        ));
    };
    let host = find(name).ok_or_else(|| refused(name, "no such program; give its path"))?;
    let file = folder.join(&host);
    let mut archive = Archive::default();
    add(&mut archive, &file, &file, 0)?;
    if !executable(&file)? {
        return Err(refused(name, "is neither an executable nor a script that starts with #!"));
    }
    for GuestFile { host, guest } in &options.files {
        add_all(&mut archive, &folder.join(guest), host)?;
    }
    archive.host(Path::new("/init"), agent);
    add_libraries(&mut archive, agent, 0)?;
    for (path, text) in SYSTEM_FILES {
        if !archive.has(Path::new(path)) {
            archive.text(Path::new(path), text);
        }
    }
    if Path::new(LOADER_CACHE).exists() {
        archive.host(Path::new(LOADER_CACHE), Path::new(LOADER_CACHE));
    }
    for place in [folder.as_path(), Path::new("/root"), Path::new("/tmp")] {
        archive.folder(place);
    }
    let preparation = options.damo.as_ref().map(|damo| damo.add_to(&mut archive)).transpose()?;
    options.live.iter().try_for_each(|live| live.add_to(&mut archive))?;
    let arguments = options.command.iter().map(text).collect::<Result<_, _>>()?;
    let program = Program { file, arguments, environment: environment(options), folder };
    let task = Task {
        writes: options.writes.clone(),
        shared: shared::devices(layout),
        expanders: cxl::expanders(layout),
        policy: options.policy,
        preparation,
        apart: options.live.as_ref().and_then(|live| live.apart(layout)),
        companion: options.live.as_ref().and_then(|live| live.companion(&program.environment)),
        disorder: options.disorder,
        program: match &options.live {
            Some(live) => live.place(program),
            None => program,
        },
        region: options.region,
        interactive: options.interactive,
    };
    archive.text(Path::new(TASK_FILE), task.to_json());
    Ok(archive)
}

fn environment(options: &Options) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = [("PATH", PATH), ("HOME", "/root"), ("LANG", "C.UTF-8")]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
    if options.interactive {
        all.push(("TERM".into(), env::var("TERM").unwrap_or_else(|_| "vt100".into())));
    }
    all.extend(env::var(LIBRARY_PATH).ok().map(|value| (LIBRARY_PATH.into(), value)));
    all.extend(options.environment.iter().cloned());
    all
}

fn text(word: &OsString) -> Result<String, LabError> {
    word.to_str()
        .map(str::to_owned)
        .ok_or_else(|| refused(word, "is no UTF-8 text, which the guest's task is written in"))
}

fn executable(path: &Path) -> Result<bool, LabError> {
    Ok(!matches!(kind(path)?, Kind::Data))
}

/// Adds a file of the host and what it needs to run.
pub fn add(archive: &mut Archive, guest: &Path, host: &Path, depth: usize) -> Result<(), LabError> {
    if archive.has(guest) || depth > DEEPEST {
        return Ok(());
    }
    archive.host(guest, host);
    add_libraries(archive, host, depth)
}

fn add_libraries(archive: &mut Archive, host: &Path, depth: usize) -> Result<(), LabError> {
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

/// What a script's first line starts: the interpreter, and what `env` is told to look up.
fn interpreters(words: &[String]) -> impl Iterator<Item = &str> {
    let looked_up = words.first().filter(|first| first.ends_with("/env")).and_then(|_| {
        words[1..]
            .iter()
            .flat_map(|rest| rest.split_whitespace())
            .find(|word| !word.starts_with('-') && !word.contains('='))
    });
    words.first().map(String::as_str).into_iter().chain(looked_up)
}

/// Adds a file, or a folder with all that is in it. Links in it stay links.
fn add_all(archive: &mut Archive, guest: &Path, host: &Path) -> Result<(), LabError> {
    let unreadable = || LabError::file(host, "read it for the guest");
    let kind = fs::metadata(host).map_err(unreadable())?.file_type();
    if kind.is_file() {
        return add(archive, guest, host, 0);
    }
    if !kind.is_dir() {
        return Err(refused(host.as_os_str(), "is neither a plain file nor a folder"));
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

/// Finds a program as a shell would.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

pub fn refused(program: &OsStr, what: impl Into<String>) -> LabError {
    LabError::Program { program: program.to_string_lossy().into_owned(), what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_brings_what_it_looks_up() {
        let of = |line: &[&str]| -> Vec<String> {
            let words: Vec<String> = line.iter().map(|&word| word.to_owned()).collect();
            interpreters(&words).map(str::to_owned).collect()
        };
        assert_eq!(of(&["/bin/sh", "-e"]), ["/bin/sh"]);
        assert_eq!(of(&["/usr/bin/env", "python3"]), ["/usr/bin/env", "python3"]);
        assert_eq!(of(&["/usr/bin/env", "-S A=1 perl -w"]), ["/usr/bin/env", "perl"]);
    }
}
