//! Fetches kernels for the guest.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::apt::{Apt, run};
use crate::cache::kernels::{FLAVOUR, PREFERRED, kernel_in, newest};
use crate::error::{LabError, Remedy};

/// Fetches and unpacks the newest matching package; installs nothing.
pub fn fetch(apt: &mut Apt, cache: &Path, wanted: Option<&str>) -> Result<String, LabError> {
    let wanted = wanted.unwrap_or(PREFERRED);
    apt.update(&format!("the guest's kernel {wanted} is missing"))?;
    let package = newest(apt.names(wanted)?.into_iter(), wanted).ok_or_else(|| LabError::Missing {
        what: format!("no package '{wanted}*{FLAVOUR}' is in {}", apt.suites()),
        remedy: Remedy::OtherPackageOrSuite,
    })?;
    let kernels = cache.join("kernels");
    fs::create_dir_all(&kernels).map_err(LabError::file(&kernels, "make it"))?;
    let passing = tempfile::tempdir_in(cache).map_err(LabError::file(cache, "make a folder in it"))?;
    let unpacked = passing.path().join("unpacked");
    for part in parts(apt, &package)? {
        let archive = apt.download(&part, passing.path())?;
        run(Command::new("dpkg").arg("-x").arg(&archive).arg(&unpacked))?;
    }
    if kernel_in(&unpacked).is_none() {
        return Err(LabError::Missing {
            what: format!("package {package} has no kernel in it"),
            remedy: Remedy::OtherKernel,
        });
    }
    let place = kernels.join(&package);
    if place.exists() {
        fs::remove_dir_all(&place).map_err(LabError::file(&place, "replace it"))?;
    }
    fs::rename(&unpacked, &place).map_err(LabError::file(&place, "move the kernel there"))?;
    Ok(package)
}

/// The package and its dependencies of the same release: newer releases split kernel and modules.
fn parts(apt: &Apt, package: &str) -> Result<Vec<String>, LabError> {
    let release = package.trim_start_matches("linux-image-");
    let mut parts = apt.depends(package)?;
    parts.retain(|part| part.starts_with("linux-") && part.ends_with(release));
    parts.push(package.to_owned());
    Ok(parts)
}
