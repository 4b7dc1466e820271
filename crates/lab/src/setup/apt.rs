//! Debian packages, with memtide's own apt configuration; the system's is not changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::sources::{self, Sources};
use crate::error::{LabError, Remedy};

/// apt with memtide's sources and cache.
pub struct Apt {
    folder: PathBuf,
    suite: Option<String>,
    sources: Option<Sources>,
}

impl Apt {
    /// Does not run apt yet.
    pub fn new(cache: &Path, suite: Option<&str>) -> Apt {
        Apt { folder: cache.join("apt"), suite: suite.map(str::to_owned), sources: None }
    }

    /// Updates the package lists, once. `why` is the reason in an error.
    pub fn update(&mut self, why: &str) -> Result<(), LabError> {
        if self.sources.is_some() {
            return Ok(());
        }
        let sources = sources::of_system(self.suite.as_deref()).map_err(|what| LabError::Missing {
            what: format!("{why}, and {what}"),
            remedy: Remedy::QemuAndKernel,
        })?;
        for folder in ["sources", "lists/partial", "archives/partial"] {
            let path = self.folder.join(folder);
            fs::create_dir_all(&path).map_err(LabError::file(&path, "make it"))?;
        }
        for (name, text) in &sources.files {
            let path = self.folder.join("sources").join(name);
            fs::write(&path, text).map_err(LabError::file(&path, "write it"))?;
        }
        run(self.command("apt-get").arg("update"))?;
        self.sources = Some(sources);
        Ok(())
    }

    /// The suites to search.
    pub fn suites(&self) -> String {
        self.sources.as_ref().map_or(String::new(), |sources| sources.suites.join(", "))
    }

    /// Installs a package from the first suite with this major version or later. Needs root.
    pub fn install(&mut self, package: &str, least: u32, why: &str) -> Result<String, LabError> {
        self.update(why)?;
        let versions = text(run(self.command("apt-cache").args(["madison", package]))?);
        let suites = self.sources.as_ref().map_or(&[][..], |sources| &sources.suites);
        let found = suites.iter().find_map(|suite| Some((suite, version_in(&versions, suite, least)?)));
        let Some((suite, version)) = found else {
            return Err(LabError::Missing {
                what: format!("{why}, and no {package} {least} or later is in {}", self.suites()),
                remedy: Remedy::OtherSuiteOrQemu,
            });
        };
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::Missing {
                what: format!("{why}, and only root may install {package} {version} from {suite}"),
                remedy: Remedy::SetupAsRoot,
            });
        }
        let mut command = self.command("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.args(["install", "-y", "--no-install-recommends", "-t", suite, package]);
        run(command.args(installed("qemu-user")))?;
        Ok(format!("{package} {version}"))
    }

    /// Package names with this prefix.
    pub fn names(&self, beginning: &str) -> Result<Vec<String>, LabError> {
        let output = run(self.command("apt-cache").args(["pkgnames", beginning]))?;
        Ok(text(output).lines().map(str::to_owned).collect())
    }

    /// Dependencies of a package.
    pub fn depends(&self, package: &str) -> Result<Vec<String>, LabError> {
        let output = run(self.command("apt-cache").args(["depends", "--important", package]))?;
        let lines = text(output);
        let names = lines.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// Downloads a package into a folder.
    pub fn download(&self, package: &str, folder: &Path) -> Result<PathBuf, LabError> {
        run(self.command("apt-get").args(["download", package]).current_dir(folder))?;
        let entries = fs::read_dir(folder).map_err(LabError::file(folder, "read it"))?;
        let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let beginning = format!("{package}_");
        let is_it = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&beginning))
        };
        files.find(is_it).ok_or_else(|| LabError::Missing {
            what: format!("apt-get download {package} downloaded no package"),
            remedy: Remedy::TryAgain,
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let places = [
            ("Dir::Etc::sourcelist", "/dev/null".into()),
            ("Dir::Etc::sourceparts", self.folder.join("sources")),
            ("Dir::State::lists", self.folder.join("lists")),
            ("Dir::Cache::archives", self.folder.join("archives")),
            ("Dir::Cache::pkgcache", self.folder.join("pkgcache.bin")),
            ("Dir::Cache::srcpkgcache", self.folder.join("srcpkgcache.bin")),
        ];
        for (name, place) in places {
            let place: PathBuf = place;
            command.arg("-o").arg(format!("{name}={}", place.display()));
        }
        command.args(["-q", "-o", "APT::Sandbox::User=root"]).env("LC_ALL", "C.UTF-8");
        command
    }
}

/// The newest version in a suite, from lines `PACKAGE | VERSION | URI SUITE/COMPONENT ARCHITECTURE Packages`.
fn version_in(madison: &str, suite: &str, least: u32) -> Option<String> {
    madison.lines().find_map(|line| {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, version, place] = fields[..] else { return None };
        let here = place.split_whitespace().any(|word| word.split('/').next() == Some(suite));
        let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
        let major: u32 = upstream.split('.').next()?.parse().ok()?;
        (here && major >= least).then(|| version.to_owned())
    })
}

/// Runs a command.
pub fn run(command: &mut Command) -> Result<Vec<u8>, LabError> {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let failed = |why: String| LabError::Command { command: line.clone(), why };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{}: {}", output.status, errors.trim())))
}

fn text(output: Vec<u8>) -> String {
    String::from_utf8_lossy(&output).into_owned()
}

/// A package pinned to its installed version, if any, so that apt does not upgrade it: Debian 12's qemu-user
/// loads the plugin of `memtide record`, that of its backports does not.
fn installed(package: &str) -> Option<String> {
    let query = Command::new("dpkg-query").args(["-W", "-f=${Package}=${Version}", package]).output().ok()?;
    Some(text(query.stdout)).filter(|known| query.status.success() && !known.ends_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suite_needs_requested_major_version() {
        let lines = " qemu-system-x86 | 1:10.0.2+ds-2~bpo12+1 | http://mirror/debian stable-backports/main \
            amd64 Packages\n qemu-system-x86 | 1:7.2+dfsg-7 | http://mirror/debian stable/main amd64 \
            Packages\n";
        assert_eq!(version_in(lines, "stable", 9), None);
        assert_eq!(version_in(lines, "stable", 7).as_deref(), Some("1:7.2+dfsg-7"));
        assert_eq!(version_in(lines, "stable-backports", 9).as_deref(), Some("1:10.0.2+ds-2~bpo12+1"));
    }
}
