//! Fetches damo and a Python for it into memtide's cache, separate from the system's.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::apt::{Apt, run};
use crate::cache::damo::{PYTHON, VERSION, place};
use crate::error::{LabError, Remedy};

/// damo's wheel on PyPI, in the tested version.
const WHEEL_SHA256: &str = "17bb9be2223d39d960a86a45f4cde4c87848691749425e52858158f40ea2bee7";

/// Debian's package whose dependency names the release of Python.
const STANDARD_LIBRARY: &str = "libpython3-stdlib";

/// Modules that need further libraries; damo does not use them.
const EXTENSIONS: &str = "lib-dynload";

/// Fetches damo from PyPI and Python from Debian; nothing is installed.
pub fn fetch(apt: &mut Apt, cache: &Path) -> Result<String, LabError> {
    let passing = tempfile::tempdir_in(cache).map_err(LabError::file(cache, "make a folder in it"))?;
    let folder = passing.path().join("damo");
    download_damo(passing.path(), &folder)?;
    let release = download_python(apt, passing.path(), &folder)?;
    compile(&folder)?;
    let place = place(cache);
    fs::rename(&folder, &place).map_err(LabError::file(&place, "move damo there"))?;
    Ok(format!("damo {VERSION} with {release}"))
}

/// pip checks the wheel's hash.
fn download_damo(passing: &Path, folder: &Path) -> Result<(), LabError> {
    let wanted = passing.join("requirements");
    fs::write(&wanted, format!("damo=={VERSION} --hash=sha256:{WHEEL_SHA256}\n"))
        .map_err(LabError::file(&wanted, "write it"))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]);
    pip.args([
        "--retries=1",
        "--no-deps",
        "--no-compile",
        "--only-binary=:all:",
        "--require-hashes",
        "--target",
    ]);
    run(pip.arg(folder).arg("-r").arg(&wanted)).map(|_| ()).map_err(|error| LabError::Missing {
        what: format!("damo {VERSION} is not available from PyPI: {error}"),
        remedy: Remedy::SetupWithPip,
    })
}

/// Copies an interpreter and its standard library next to damo; returns the release, such as `python3.11`.
fn download_python(apt: &mut Apt, passing: &Path, folder: &Path) -> Result<String, LabError> {
    apt.update("a Python for damo is missing")?;
    let release = apt.depends(STANDARD_LIBRARY)?.iter().find_map(|name| release_of(name).map(str::to_owned));
    let release = release.ok_or_else(|| LabError::Missing {
        what: format!("no package {STANDARD_LIBRARY} is in {}", apt.suites()),
        remedy: Remedy::OtherSuite,
    })?;
    let unpacked = passing.join("unpacked");
    for package in
        [format!("{release}-minimal"), format!("lib{release}-minimal"), format!("lib{release}-stdlib")]
    {
        let archive = apt.download(&package, passing)?;
        run(Command::new("dpkg").arg("-x").arg(&archive).arg(&unpacked))?;
    }
    let usr = unpacked.join("usr");
    let interpreter = folder.join(PYTHON);
    let moves = [
        (usr.join("bin").join(&release), interpreter),
        (usr.join("lib").join(&release), folder.join("lib").join(&release)),
    ];
    for (from, to) in moves {
        let parent = to.parent().expect("it is in a folder");
        let moved = fs::create_dir_all(parent).and_then(|()| fs::rename(&from, &to));
        moved.map_err(LabError::file(&to, "move Python there"))?;
    }
    let extensions = folder.join("lib").join(&release).join(EXTENSIONS);
    fs::remove_dir_all(&extensions).map_err(LabError::file(&extensions, "remove it"))?;
    Ok(release)
}

fn release_of(library: &str) -> Option<&str> {
    library.strip_prefix("lib")?.strip_suffix("-stdlib")
}

/// Compiles all modules, valid for any file time in the guest; also tests that the interpreter runs.
fn compile(folder: &Path) -> Result<(), LabError> {
    let mut python = Command::new(folder.join(PYTHON));
    python.env_clear().env("PYTHONHOME", folder).current_dir(folder);
    python.args(["-s", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "lib", "damo"]);
    run(&mut python).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_release_comes_from_standard_library() {
        assert_eq!(release_of("libpython3.11-stdlib"), Some("python3.11"));
        assert_eq!(release_of("python3-minimal"), None);
        assert_eq!(release_of("libc6"), None);
    }
}
