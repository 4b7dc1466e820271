//! Guest kernels, as fetched by setup.

use std::fs;
use std::path::{Path, PathBuf};

/// The tested kernel: Debian's for virtual machines, which has all required drivers built in.
pub const PREFERRED: &str = "linux-image-6.12";
pub const FLAVOUR: &str = "-cloud-amd64";

/// The newest fetched kernel whose package name has this prefix.
pub fn fetched(cache: &Path, wanted: Option<&str>) -> Option<PathBuf> {
    let entries = fs::read_dir(cache.join("kernels")).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = newest(names, wanted.unwrap_or(PREFERRED))?;
    kernel_in(&cache.join("kernels").join(newest))
}

/// The kernel of an unpacked package: `boot/vmlinuz-RELEASE`, or `usr/lib/modules/RELEASE/vmlinuz` in newer
/// ones.
pub fn kernel_in(unpacked: &Path) -> Option<PathBuf> {
    let files = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let releases = files(&unpacked.join("usr/lib/modules"));
    let mut all =
        files(&unpacked.join("boot")).into_iter().chain(releases.iter().flat_map(|release| files(release)));
    all.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")))
}

/// The package with the highest version in its name, of those for virtual machines or of exactly this name.
pub fn newest(names: impl Iterator<Item = String>, wanted: &str) -> Option<String> {
    let fits = |name: &String| name == wanted || name.starts_with(wanted) && name.ends_with(FLAVOUR);
    names.filter(fits).max_by_key(|name| numbers(name))
}

fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_kernel_by_version_of_same_flavour() {
        let names = [
            "linux-image-6.12.9+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.200+deb12-cloud-amd64-unsigned",
            "linux-image-6.12.201+deb12-amd64",
            "linux-image-7.0.1-cloud-amd64",
        ];
        let of = |wanted| newest(names.iter().map(|&name| name.to_owned()), wanted);
        assert_eq!(of(PREFERRED).as_deref(), Some("linux-image-6.12.117+deb12-cloud-amd64"));
        assert_eq!(of("linux-image-7").as_deref(), Some("linux-image-7.0.1-cloud-amd64"));
        assert_eq!(
            of("linux-image-6.12.201+deb12-amd64").as_deref(),
            Some("linux-image-6.12.201+deb12-amd64")
        );
        assert_eq!(of("linux-image-8"), None);
    }
}
