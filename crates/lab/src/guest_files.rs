//! The guest's initial file system: its program, its agent and the agent's task.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use memtide_lab_protocol::agent::{Program, TASK_FILE, Task};

use crate::archive::Archive;
use crate::error::LabError;
use crate::host_files::{add, add_all, add_libraries, find, refused, why_not_executable};
use crate::libraries::{Kind, kind};
use crate::options::GuestFile;
use crate::spec::{GuestSpec, ProgramSpec};
use crate::{cxl, shared};

/// `PATH` in the guest.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// sleep, sed, ls and other common programs in one file.
pub const BUSYBOX: &str = "busybox";

/// The last folder of [`PATH`].
const COMMON_PROGRAMS: &str = "/bin";

/// Configuration files for libraries, with content.
const SYSTEM_FILES: [(&str, &str); 3] = [
    ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ("/etc/group", "root:x:0:\n"),
    ("/etc/hostname", "lab\n"),
];

/// Library folders of glibc's loader.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The guest's files and its task.
pub fn archive(guest: &GuestSpec) -> Result<Archive, LabError> {
    let GuestSpec { program, setting, layout, agent, .. } = guest;
    let folder = env::current_dir().map_err(LabError::file(Path::new("."), "find the current folder"))?;
    let Some(name) = program.command.first() else {
        return Err(LabError::NoProgram);
    };
    let program_name = || name.to_string_lossy().into_owned();
    let host = find(name).ok_or_else(|| LabError::NoSuchProgram { program: program_name() })?;
    let file = folder.join(&host);
    if let Some(what) = why_not_executable(&file)? {
        return Err(LabError::NotExecutable { program: program_name(), what });
    }
    let mut archive = Archive::default();
    add(&mut archive, &file, &file, 0)?;
    for GuestFile { host, guest } in &program.files {
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
    add_common_programs(&mut archive)?;
    let preparation = setting.damo.as_ref().map(|damo| damo.add_to(&mut archive)).transpose()?;
    setting.memtide.iter().try_for_each(|memtide| memtide.add_to(&mut archive))?;
    let arguments = program.command.iter().map(text).collect::<Result<_, _>>()?;
    let own = Program { file, arguments, environment: environment(program, &archive), folder };
    let task = Task {
        writes: [guest.writes.as_slice(), &setting.writes].concat(),
        shared: shared::devices(layout),
        expanders: cxl::expanders(layout),
        policy: setting.policy,
        preparation,
        tmpfs_bind: setting.memtide.as_ref().and_then(|memtide| memtide.tmpfs_bind(layout)),
        companion: setting.memtide.as_ref().and_then(|memtide| memtide.companion(&own.environment)),
        fragment_memory: guest.fragment_memory,
        program: match &setting.memtide {
            Some(memtide) => memtide.place(own),
            None => own,
        },
        region: program.region,
        interactive: program.interactive,
    };
    archive.text(Path::new(TASK_FILE), task.to_json());
    Ok(archive)
}

/// Adds a static busybox, if this system has one, under its applets' names, in the last folder of `PATH`: any
/// other program of the same name takes precedence.
fn add_common_programs(archive: &mut Archive) -> Result<(), LabError> {
    let Some(busybox) = find(OsStr::new(BUSYBOX)) else { return Ok(()) };
    if !matches!(kind(&busybox)?, Kind::Elf { dynamic: false, .. }) {
        return Ok(());
    }
    let Ok(listed) = Command::new(&busybox).arg("--list").stdin(Stdio::null()).output() else {
        return Ok(());
    };
    archive.host(&busybox, &busybox);
    for name in String::from_utf8_lossy(&listed.stdout).lines().filter(|name| !name.contains('/')) {
        let place = Path::new(COMMON_PROGRAMS).join(name);
        if !name.is_empty() && !archive.has(&place) {
            archive.link(&place, &busybox);
        }
    }
    Ok(())
}

/// The program's environment: only what it needs of the host's, since any other part would change the guest's
/// time.
fn environment(program: &ProgramSpec, archive: &Archive) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = [("PATH", PATH), ("HOME", "/root"), ("LANG", "C.UTF-8")]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
    if program.interactive {
        all.push(("TERM".into(), env::var("TERM").unwrap_or_else(|_| "vt100".into())));
    }
    let library_path = env::var(LIBRARY_PATH).ok();
    let used = library_path.filter(|value| env::split_paths(value).any(|dir| archive.has_libraries(&dir)));
    all.extend(used.map(|value| (LIBRARY_PATH.into(), value)));
    all.extend(program.environment.iter().cloned());
    all
}

fn text(word: &OsString) -> Result<String, LabError> {
    word.to_str()
        .map(str::to_owned)
        .ok_or_else(|| refused(word, "is not UTF-8, as the guest's task requires"))
}
