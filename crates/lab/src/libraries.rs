//! Runtime dependencies of a file: its loader and libraries, or a script's interpreter.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::elf::{EM_X86_64, FileHeader64, PT_DYNAMIC, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};

use crate::error::LabError;

/// Loader for a library without a program, as on Debian and most distributions.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Maximum length of a shebang line, as in Linux.
const SCRIPT_LINE: usize = 256;

/// Kind of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// An ELF executable or library.
    Elf {
        /// Whether it is dynamically linked.
        dynamic: bool,
        /// Its loader, if any.
        loader: Option<PathBuf>,
    },
    /// A script, with the words of its shebang.
    Script(Vec<String>),
    /// Neither.
    Data,
}

/// Detects a file's kind.
pub fn kind(path: &Path) -> Result<Kind, LabError> {
    let fail = || LabError::file(path, "read it for the guest");
    let mut file = File::open(path).map_err(fail())?;
    let mut start = Vec::new();
    file.by_ref().take(SCRIPT_LINE as u64).read_to_end(&mut start).map_err(fail())?;
    if start.starts_with(b"#!") {
        let text = String::from_utf8_lossy(&start[2..]).into_owned();
        let line = text.lines().next().unwrap_or_default().trim();
        let words = line.splitn(2, char::is_whitespace).map(|word| word.trim().to_owned());
        return Ok(Kind::Script(words.filter(|word| !word.is_empty()).collect()));
    }
    if !start.starts_with(b"\x7fELF") {
        return Ok(Kind::Data);
    }
    elf(file).map_err(|what| refused(path, what))
}

fn elf(file: File) -> Result<Kind, String> {
    let data = ReadCache::new(file);
    let damaged = |error| format!("is a damaged executable ({error})");
    let header =
        FileHeader64::<Endianness>::parse(&data).map_err(|_| "is not a 64-bit executable".to_owned())?;
    let endian = header.endian().map_err(damaged)?;
    if header.e_machine(endian) != EM_X86_64 {
        return Err("is not an x86-64 executable".to_owned());
    }
    let (mut dynamic, mut loader) = (false, None);
    for segment in header.program_headers(endian, &data).map_err(damaged)? {
        match segment.p_type(endian) {
            PT_DYNAMIC => dynamic = true,
            PT_INTERP => {
                let name = segment.interpreter(endian, &data).map_err(damaged)?.unwrap_or_default();
                loader = Some(PathBuf::from(String::from_utf8_lossy(name).into_owned()));
            }
            _ => {}
        }
    }
    Ok(Kind::Elf { dynamic, loader })
}

/// The libraries of an executable or library, as resolved by its loader, including the loader. The file
/// itself is not run.
pub fn libraries(path: &Path, loader: Option<&Path>) -> Result<Vec<PathBuf>, LabError> {
    let loader = loader.unwrap_or(Path::new(LOADER));
    let output = Command::new(loader).arg("--list").arg(path).stdin(Stdio::null()).output();
    let output = output.map_err(LabError::file(loader, "run it, to find libraries"))?;
    let mut found = vec![loader.to_owned()];
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match library(line) {
            Some(Ok(library)) if !found.contains(&library) => found.push(library),
            Some(Err(name)) => {
                let what = format!("needs the library {name}, which was not found; set LD_LIBRARY_PATH");
                return Err(refused(path, what));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// A line of the loader's list: `NAME => PATH (ADDRESS)`, `PATH (ADDRESS)`, `NAME => not found`, or the
/// kernel's own.
fn library(line: &str) -> Option<Result<PathBuf, String>> {
    let line = line.trim();
    let (name, place) = line.split_once(" => ").unwrap_or((line, line));
    if place == "not found" {
        return Some(Err(name.to_owned()));
    }
    let (path, _) = place.rsplit_once(" (")?;
    path.starts_with('/').then(|| Ok(path.into()))
}

fn refused(path: &Path, what: String) -> LabError {
    LabError::Program { program: path.display().to_string(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_list_is_parsed_without_vdso() {
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007ffc)"), None);
        assert_eq!(library("\tstatically linked"), None);
        assert_eq!(library("\tlibc.so.6 => /lib/libc.so.6 (0x7f)"), Some(Ok("/lib/libc.so.6".into())));
        assert_eq!(library("\t/lib64/ld.so (0x7f)"), Some(Ok("/lib64/ld.so".into())));
        assert_eq!(library("\tlibx.so => not found"), Some(Err("libx.so".into())));
    }

    #[test]
    fn scripts_and_executables_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "#! /usr/bin/env -S a b\nrest").unwrap();
        assert_eq!(kind(&path).unwrap(), Kind::Script(vec!["/usr/bin/env".into(), "-S a b".into()]));
        std::fs::write(&path, "words").unwrap();
        assert_eq!(kind(&path).unwrap(), Kind::Data);
        std::fs::write(&path, b"\x7fELF\x02").unwrap();
        assert!(kind(&path).unwrap_err().to_string().contains("executable"));
        let own = std::env::current_exe().unwrap();
        let Kind::Elf { dynamic: true, loader: Some(loader) } = kind(&own).unwrap() else {
            panic!("this test's own")
        };
        let libraries = libraries(&own, Some(&loader)).unwrap();
        assert!(libraries.iter().any(|path| path.ends_with("libc.so.6")), "{libraries:?}");
    }
}
