//! The guest's initial file system: a cpio archive that the kernel unpacks into memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use cpio::newc::{self, ModeFileType};

use crate::error::LabError;
use crate::guest_clock::START_SECONDS;

/// Files of the guest by their absolute path.
#[derive(Debug, Default)]
pub struct Archive {
    entries: BTreeMap<PathBuf, Entry>,
}

const WRITE: &str = "write the guest's file system to it";

#[derive(Clone, Debug)]
enum Entry {
    Folder,
    Host(PathBuf),
    Text(Vec<u8>),
    Link(PathBuf),
}

impl Archive {
    /// Adds a file of the host.
    pub fn host(&mut self, guest: &Path, host: &Path) {
        self.add(guest, Entry::Host(host.to_owned()));
    }

    /// Adds a text.
    pub fn text(&mut self, guest: &Path, text: impl Into<Vec<u8>>) {
        self.add(guest, Entry::Text(text.into()));
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, guest: &Path, target: &Path) {
        self.add(guest, Entry::Link(target.to_owned()));
    }

    /// Adds a folder.
    pub fn folder(&mut self, guest: &Path) {
        self.add(guest, Entry::Folder);
    }

    /// Whether the archive contains this file.
    pub fn has(&self, guest: &Path) -> bool {
        self.entries.contains_key(&clean(guest))
    }

    /// Whether a folder has shared libraries, by their names.
    pub fn has_libraries(&self, folder: &Path) -> bool {
        let is_library =
            |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
        self.entries.keys().any(|path| path.parent() == Some(&clean(folder)) && is_library(path))
    }

    fn add(&mut self, guest: &Path, entry: Entry) {
        let guest = clean(guest);
        for folder in guest.ancestors().skip(1).filter(|path| *path != Path::new("/")) {
            self.entries.entry(folder.to_owned()).or_insert(Entry::Folder);
        }
        if guest != Path::new("/") && !(matches!(entry, Entry::Folder) && self.entries.contains_key(&guest)) {
            self.entries.insert(guest, entry);
        }
    }

    /// Writes the archive; returns its size in bytes.
    pub fn write(&self, to: &Path) -> Result<u64, LabError> {
        let fail = || LabError::file(to, WRITE);
        let writer = BufWriter::new(File::create(to).map_err(fail())?);
        self.write_to(writer, to)?.flush().map_err(fail())?;
        Ok(fs::metadata(to).map_err(fail())?.len())
    }

    /// Writes the archive; errors name it `to`.
    pub fn write_to<W: Write>(&self, mut writer: W, to: &Path) -> Result<W, LabError> {
        for (number, (guest, entry)) in (1..).zip(&self.entries) {
            writer = self.entry(writer, number, guest, entry, to)?;
        }
        newc::trailer(writer).map_err(LabError::file(to, WRITE))
    }

    fn entry<W: Write>(
        &self,
        writer: W,
        number: u32,
        guest: &Path,
        entry: &Entry,
        to: &Path,
    ) -> Result<W, LabError> {
        let fail = || LabError::file(to, WRITE);
        let name = guest.strip_prefix("/").unwrap_or(guest).to_string_lossy();
        let header = newc::Builder::new(&name).ino(number).mtime(START_SECONDS);
        let (header, content) = match entry {
            Entry::Folder => (header.mode(0o755).set_mode_file_type(ModeFileType::Directory), Vec::new()),
            Entry::Text(text) => (header.mode(0o644).set_mode_file_type(ModeFileType::Regular), text.clone()),
            Entry::Link(target) => {
                let target = target.as_os_str().as_encoded_bytes().to_vec();
                (header.mode(0o777).set_mode_file_type(ModeFileType::Symlink), target)
            }
            Entry::Host(host) => return copy(writer, header, host, to),
        };
        let size = content.len() as u32;
        let mut entry = header.write(writer, size);
        entry.write_all(&content).and_then(|()| entry.finish()).map_err(fail())
    }
}

fn copy<W: Write>(writer: W, header: newc::Builder, host: &Path, to: &Path) -> Result<W, LabError> {
    let fail = || LabError::file(host, "read it for the guest");
    let file = File::open(host).map_err(fail())?;
    let metadata = file.metadata().map_err(fail())?;
    let too_large = |_| LabError::Program {
        program: host.display().to_string(),
        what: format!("has {} bytes; the guest takes files of less than 4 GiB", metadata.len()),
    };
    let size = u32::try_from(metadata.len()).map_err(too_large)?;
    let mode = metadata.permissions().mode() & 0o777;
    let mut entry = header.mode(mode).set_mode_file_type(ModeFileType::Regular).write(writer, size);
    let mut file = file.take(u64::from(size));
    let copied = io::copy(&mut file, &mut entry).map_err(LabError::file(to, WRITE))?;
    let rest = file.into_inner().read(&mut [0]).map_err(fail())?;
    if copied < u64::from(size) || rest > 0 {
        return Err(fail()(io::Error::other("its size is not what it contains; give a copy of it")));
    }
    entry.finish().map_err(LabError::file(to, WRITE))
}

/// The path without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::Normal(name) => clean.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_reads_back_with_parent_folders_first() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().join("host");
        fs::write(&host, vec![7; 70_001]).unwrap();
        fs::set_permissions(&host, fs::Permissions::from_mode(0o751)).unwrap();
        let mut archive = Archive::default();
        archive.host(Path::new("/a/../b/c/file"), &host);
        archive.text(Path::new("/b/text"), "words");
        archive.link(Path::new("/b/link"), Path::new("c/file"));
        archive.folder(Path::new("/b"));
        let to = folder.path().join("archive");
        let bytes = archive.write(&to).unwrap();
        assert_eq!(bytes, fs::metadata(&to).unwrap().len());

        let mut rest = File::open(&to).unwrap();
        let mut found = Vec::new();
        loop {
            let reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut content = Vec::new();
            rest = reader.to_writer(&mut content).unwrap();
            found.push((name, mode, content));
        }
        let expected = [
            ("b", 0o040_755, Vec::new()),
            ("b/c", 0o040_755, Vec::new()),
            ("b/c/file", 0o100_751, vec![7; 70_001]),
            ("b/link", 0o120_777, b"c/file".to_vec()),
            ("b/text", 0o100_644, b"words".to_vec()),
        ];
        let expected: Vec<_> = expected.map(|(name, mode, content)| (name.to_owned(), mode, content)).into();
        assert_eq!(found, expected);
    }
}
