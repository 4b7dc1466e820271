//! The daemon's configuration file.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memtide_core::epoch::Limits;
use memtide_core::policy::SensorRefused;
use memtide_core::{FileError, Time};
use memtide_linux::input;
use memtide_linux::machines;
use memtide_linux::processes::Process;
use memtide_linux::sensors::regions::Kind;
use memtide_policies::at_time_scale;
use serde::{Deserialize, Serialize};

use crate::control;
use crate::error::{DaemonError, Fault};
use crate::policy::parse_migration;

/// The daemon's settings; each key is optional.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Migration policy, with its parameters.
    pub policy: String,
    /// Machine file or bundled machine for the policy's figures; default: the firmware's figures.
    pub machine: Option<String>,
    /// How memory is monitored; default: the best monitor that works.
    pub monitor: Option<Kind>,
    /// Filter for the watched processes.
    pub watch: Filter,
    /// Minimum resident size of a watched process, in MiB.
    pub least_mib: u64,
    /// Maximum migration rate, in MB/s.
    pub max_rate_mbps: u64,
    /// How long a batch of moves may stall a process, in ms.
    pub stall_ms: u64,
    /// How long a page that moved may not move back, in s.
    pub cooldown_s: u64,
    /// Factor by which all times and limits per interval are divided, the policy's, too: to rehearse on a
    /// machine with a part of the memory.
    pub time_scale: u32,
    /// Log moves without making them.
    pub dry_run: bool,
    /// File in which decisions are recorded for `memtide replay`; default: none.
    pub journal: Option<PathBuf>,
    /// Maximum size of the journal's two files together, in MiB.
    pub journal_mib: u64,
    /// The control socket; by default `/run/memtide/memtide.sock` for root, else in the user's runtime
    /// directory.
    pub socket: Option<PathBuf>,
    /// The file that these settings are from; `None` for defaults.
    #[serde(skip)]
    source: Option<Source>,
}

/// Source of a daemon's configuration, at its start and again at each SIGHUP.
#[derive(Clone, Debug, Default)]
pub struct ConfigSource {
    /// The configuration file; `None` for defaults.
    pub file: Option<PathBuf>,
    /// Make no moves, whatever the file says.
    pub dry_run: bool,
}

impl ConfigSource {
    /// Reads the current configuration.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn read(&self) -> Result<Config, DaemonError> {
        let mut config = self.file.as_deref().map_or_else(|| Ok(Config::default()), Config::read)?;
        config.dry_run |= self.dry_run;
        Ok(config)
    }
}

/// Maximum configuration file size in bytes: a thousand times the usual.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Maximum of `time_scale`.
pub const TIME_SCALE_MAX: u32 = 100;

/// Minimum age of a watched process: most exit sooner, and to start watching one costs more than they do.
const LEAST_AGE: Duration = Duration::from_secs(3);

/// Time between two scans of all processes.
const SCAN_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum conditions per filter.
const CONDITIONS_MAX: usize = 1000;

/// The configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    file: PathBuf,
    text: String,
}

/// A condition on processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Filter {
    /// Any process.
    #[default]
    Every,
    /// The program's name, at most 15 bytes.
    Name(String),
    /// Process id.
    Pid(i32),
    /// The process's user.
    Uid(u32),
    /// The process's control group: this one or a descendant.
    Cgroup(String),
    /// All of these.
    All(Vec<Filter>),
    /// Any of these.
    Any(Vec<Filter>),
    /// Not this.
    Not(Box<Filter>),
}

impl Default for Config {
    fn default() -> Config {
        Config {
            policy: "relative-heat".to_owned(),
            machine: None,
            monitor: None,
            watch: Filter::Every,
            least_mib: 16,
            max_rate_mbps: 400,
            stall_ms: 20,
            cooldown_s: 10,
            time_scale: 1,
            dry_run: false,
            journal: None,
            journal_mib: 64,
            socket: None,
            source: None,
        }
    }
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// If the file cannot be read, or a key or its value is refused.
    pub fn read(file: &Path) -> Result<Config, DaemonError> {
        let name = file.display().to_string();
        let path = || file.to_owned();
        let bytes =
            read_at_most(file).map_err(|error| DaemonError::ConfigUnreadable { file: path(), error })?;
        let text = String::from_utf8(bytes).map_err(|_| DaemonError::ConfigNotText { file: path() })?;
        let config: Config = toml::from_str(&text).map_err(|error| refused(&name, &text, &error))?;
        let config = Config { source: Some(Source { file: file.to_owned(), text }), ..config };
        let config = config.beside(file.parent().unwrap_or(Path::new("")));
        config.check()?;
        config.at_time_scale()
    }

    /// The file that it was read from, if any.
    pub fn file(&self) -> Option<&Path> {
        self.source.as_ref().map(|source| source.file.as_path())
    }

    /// The error for a key's value, with the key's place.
    pub fn fault(&self, key: &str, fault: impl Into<Fault>) -> DaemonError {
        let place = match &self.source {
            Some(Source { file, text }) => {
                let error = FileError::at(&file.display().to_string(), text, key, "");
                format!("{}:{}: {key}", error.file, error.line)
            }
            None => key.to_owned(),
        };
        DaemonError::Key { place, fault: fault.into() }
    }

    /// The error for a required sensor that is refused: by the configured monitor, or by this system.
    pub fn refused_sensor(&self, why: &SensorRefused) -> DaemonError {
        let key = if self.monitor.is_some() { "monitor" } else { "policy" };
        self.fault(key, format!("memory cannot be watched: {why}"))
    }

    /// Resolves relative paths against the configuration's directory, whatever the working directory.
    fn beside(mut self, folder: &Path) -> Config {
        for path in [&mut self.journal, &mut self.socket].into_iter().flatten() {
            if !path.as_os_str().is_empty() {
                *path = folder.join(&*path);
            }
        }
        self.machine = self.machine.map(|machine| {
            let file = folder.join(&machine);
            let is_file = machines::is_path(&machine) || file.is_file();
            if is_file { file.display().to_string() } else { machine }
        });
        self
    }

    /// With the policy's parameters at the time scale.
    fn at_time_scale(self) -> Result<Config, DaemonError> {
        if self.time_scale == 1 {
            return Ok(self);
        }
        match at_time_scale(&self.policy, self.time_scale) {
            Ok(policy) => Ok(Config { policy, ..self }),
            Err(why) => {
                let why = format!("divided by {}: {why}", self.time_scale);
                Err(self.fault("time_scale", why))
            }
        }
    }

    fn check(&self) -> Result<(), DaemonError> {
        let within = |key: &str, value: u64, least: u64, most: u64| {
            let why = || format!("invalid value {value}: expected an integer from {least} to {most}");
            if (least..=most).contains(&value) { Ok(()) } else { Err(self.fault(key, why())) }
        };
        parse_migration(&self.policy).map_err(|why| self.fault("policy", why))?;
        let conditions = self.watch.conditions();
        if conditions > CONDITIONS_MAX {
            let why = format!("has {conditions} conditions; allowed are at most {CONDITIONS_MAX}");
            return Err(self.fault("watch", why));
        }
        self.watch.check("watch").map_err(|(key, why)| self.fault(&key, why))?;
        for (key, path) in [("journal", &self.journal), ("socket", &self.socket)] {
            match path {
                Some(path) if path.as_os_str().is_empty() => {
                    return Err(self.fault(key, "is empty; name a file"));
                }
                Some(path) if path.is_dir() => {
                    return Err(self.fault(key, format!("{} is a folder; name a file in it", path.display())));
                }
                Some(path) if !has_folder(path) => {
                    let folder = path.parent().unwrap_or(path).display();
                    return Err(self.fault(key, format!("there is no folder {folder}; make it first")));
                }
                _ => {}
            }
        }
        within("least_mib", self.least_mib, 0, 1 << 30)?;
        within("max_rate_mbps", self.max_rate_mbps, 1, 1_000_000)?;
        within("stall_ms", self.stall_ms, 1, 60_000)?;
        within("cooldown_s", self.cooldown_s, 0, 86_400)?;
        within("time_scale", self.time_scale.into(), 1, TIME_SCALE_MAX.into())?;
        within("journal_mib", self.journal_mib, 1, 1 << 20)
    }

    /// The control socket path.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(control::default_file)
    }

    /// The governor's limits.
    pub fn limits(&self) -> Limits {
        Limits {
            bytes_per_second: Some(self.max_rate_mbps * 1_000_000),
            cooldown: Time::from_ms(self.cooldown_s * 1000 / u64::from(self.time_scale)),
            ..Limits::default()
        }
    }

    /// The maximum stall of a process.
    pub fn stall(&self) -> Duration {
        Duration::from_millis(self.stall_ms)
    }

    /// Whether a process is watched.
    pub fn watches(&self, process: &Process) -> bool {
        let is_old = process.age() >= LEAST_AGE / self.time_scale;
        is_old && process.resident_pages >= self.least_mib << 8 && self.watch.holds(process)
    }

    /// Time between two scans of all processes.
    pub fn scan_interval(&self) -> Duration {
        SCAN_INTERVAL / self.time_scale
    }
}

/// A file's content, if within the size limit.
fn read_at_most(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input::open(file)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let what = format!("longer than {FILE_BYTES_MAX} bytes: not a configuration of the daemon");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Syntax of a condition.
const CONDITION: &str = "allowed is 'every', or one of name, pid, uid, cgroup, all, any and not, such as \
    { name = \"redis-server\" }; several go into all = [..] or any = [..]";

fn refused(name: &str, text: &str, error: &toml::de::Error) -> DaemonError {
    let error = FileError::of_toml(name, text, error);
    let hint = if error.field.starts_with("watch") { CONDITION } else { "" };
    DaemonError::ConfigRefused { error, hint }
}

/// Maximum length of a program name in Linux, in bytes.
const NAME_MAX: usize = 15;

impl Filter {
    /// Number of conditions in it, including itself.
    fn conditions(&self) -> usize {
        match self {
            Filter::All(filters) | Filter::Any(filters) => {
                1 + filters.iter().map(Filter::conditions).sum::<usize>()
            }
            Filter::Not(filter) => 1 + filter.conditions(),
            _ => 1,
        }
    }

    /// Refuses conditions that no process can meet, with the key and the reason.
    fn check(&self, key: &str) -> Result<(), (String, String)> {
        let within = |name: &str| format!("{key}.{name}");
        let each = |name: &str, filters: &[Filter]| {
            let key = within(name);
            let mut all = filters.iter().enumerate();
            all.try_for_each(|(number, filter)| filter.check(&format!("{key}[{number}]")))
        };
        let wrong = match self {
            Filter::Name(name) if name.is_empty() => ("name", "is empty".to_owned()),
            Filter::Name(name) if name.len() > NAME_MAX => {
                let kept = String::from_utf8_lossy(&name.as_bytes()[..NAME_MAX]).into_owned();
                ("name", format!("is '{name}'; Linux keeps {NAME_MAX} bytes of a program's name: '{kept}'"))
            }
            Filter::Pid(pid) if *pid < 1 => {
                ("pid", format!("invalid value {pid}: expected an integer from 1 to {}", i32::MAX))
            }
            Filter::Cgroup(group) if !group.starts_with('/') => {
                ("cgroup", format!("is '{group}'; a control group begins with /, as in /proc/PID/cgroup"))
            }
            Filter::All(filters) if filters.is_empty() => ("all", "has no condition".to_owned()),
            Filter::Any(filters) if filters.is_empty() => ("any", "has no condition".to_owned()),
            Filter::All(filters) => return each("all", filters),
            Filter::Any(filters) => return each("any", filters),
            Filter::Not(filter) => return filter.check(&within("not")),
            _ => return Ok(()),
        };
        Err((within(wrong.0), wrong.1))
    }

    /// Whether a process meets the condition.
    pub fn holds(&self, process: &Process) -> bool {
        match self {
            Filter::Every => true,
            Filter::Name(name) => *name == process.name,
            Filter::Pid(pid) => *pid == process.pid.as_raw_nonzero().get(),
            Filter::Uid(uid) => *uid == process.uid,
            Filter::Cgroup(group) => {
                let rest = process.cgroup.strip_prefix(group.trim_end_matches('/'));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Filter::All(all) => all.iter().all(|filter| filter.holds(process)),
            Filter::Any(any) => any.iter().any(|filter| filter.holds(process)),
            Filter::Not(filter) => !filter.holds(process),
        }
    }
}

/// Whether a file's folder exists; the default socket's is made when the daemon starts.
fn has_folder(file: &Path) -> bool {
    let folder = file.parent().unwrap_or(file);
    folder.as_os_str().is_empty() || folder.is_dir() || control::is_made(folder)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn process() -> Process {
        let mut me = memtide_linux::processes::one(rustix::process::getpid()).expect("this process");
        (me.name, me.uid, me.cgroup) = ("redis-server".to_owned(), 7, "/a/b".to_owned());
        me
    }

    fn holds(text: &str) -> bool {
        let config: Config = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        config.watch.holds(&process())
    }

    #[test]
    fn filters_match_by_their_conditions() {
        for (text, expected) in [
            ("", true),
            ("watch = 'every'", true),
            ("watch = { name = 'redis-server' }", true),
            ("watch.name = 'redis'", false),
            ("watch.uid = 7", true),
            ("watch.cgroup = '/a'", true),
            ("watch.cgroup = '/a/b/'", true),
            ("watch.cgroup = '/a/bc'", false),
            ("watch.cgroup = '/'", true),
            ("watch.not.uid = 7", false),
            ("watch.pid = 1", false),
            ("watch.all = [{ uid = 7 }, { not = { name = 'perl' } }]", true),
            ("watch.any = [{ uid = 8 }, { name = 'perl' }]", false),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn relative_paths_resolve_against_configuration_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let here = |name: &str| folder.path().join(name);
        fs::write(here("own.toml"), "").expect("a file");
        let text = "journal = 'journal'\nsocket = '/run/own.sock'\nmachine =";
        for (machine, expected) in [("own.toml", here("own.toml")), ("optane", "optane".into())] {
            fs::write(here("memtide.toml"), format!("{text} '{machine}'")).expect("a file");
            let config = Config::read(&here("memtide.toml")).expect("a configuration");
            assert_eq!(config.journal, Some(here("journal")));
            assert_eq!(config.socket, Some("/run/own.sock".into()));
            assert_eq!(config.machine.map(PathBuf::from), Some(expected));
        }
    }

    #[test]
    fn errors_include_their_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("memtide.toml");
        for (line, says) in [
            ("polcy = 'hot-cold'", "polcy: unknown field"),
            ("watch.user = 7", "watch.user: unknown variant"),
            ("monitor = 'perf'", "monitor: unknown variant"),
            (
                "watch.uid = 'root'",
                "watch.uid: invalid value \"root\": expected an integer from 0 to 4294967295",
            ),
            ("watch = { uid = 7, pid = 8 }", "watch: wanted exactly 1"),
            ("policy = 'hot-cold:warm=1'", "policy: policy 'hot-cold'"),
            ("policy = 'local+hot-cold'", "policy: 'local+hot-cold' has a placement"),
            ("stall_ms = 0", "stall_ms: invalid value 0: expected an integer from 1 to 60000"),
            ("watch.pid = 0", "watch.pid: invalid value 0: expected an integer from 1 to 2147483647"),
            ("watch.name = ''", "watch.name: is empty"),
            ("watch.name = 'chromium-browser'", "watch.name: is 'chromium-browser'; Linux keeps 15"),
            ("watch.cgroup = 'system.slice'", "watch.cgroup: is 'system.slice'; a control group begins"),
            ("watch.any = []", "watch.any: has no condition"),
            ("journal = ''", "journal: is empty"),
            ("socket = '/tmp'", "socket: /tmp is a folder"),
            ("socket = '/tmp/no/folder/s'", "socket: there is no folder /tmp/no/folder; make it first"),
            ("journal = '/nonexistent/j'", "journal: there is no folder /nonexistent; make it first"),
            (
                "watch.not.all = [{ uid = 7 }, { pid = -1 }]",
                "watch.not.all[1].pid: invalid value -1: expected",
            ),
        ] {
            fs::write(&file, format!("# memtide\nleast_mib = 1\n{line}\n")).expect("a file");
            let error = Config::read(&file).expect_err(line).to_string();
            let place = format!("{}:3: {says}", file.display());
            assert!(error.starts_with(&place), "{error} instead of {place}");
            let of_shape =
                ["watch.user", "watch.uid", "watch: wanted"].iter().any(|shape| says.starts_with(shape));
            assert_eq!(error.contains(CONDITION), of_shape, "{error}");
        }
        fs::write(&file, b"policy = '\xff'").expect("a file");
        assert!(Config::read(&file).is_err_and(|error| error.to_string().contains("UTF-8")));
    }

    #[test]
    fn oversized_configurations_are_refused_early() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("memtide.toml");
        let refused = |text: &str| {
            fs::write(&file, text).expect("a file");
            Config::read(&file).expect_err("a configuration that is too large").to_string()
        };
        let filters = |number: usize| format!("watch.any = [{}]", "{ uid = 7 },".repeat(number));
        let error = refused(&filters(3_000_000));
        assert!(error.contains("longer than 262144 bytes"), "{error}");
        let error = refused(&filters(1000));
        assert!(error.contains(":1: watch: has 1001 conditions; allowed are at most 1000"), "{error}");
        fs::write(&file, filters(999)).expect("a file");
        Config::read(&file).expect("a configuration");
        refused(&format!("watch.{}uid = 7", "not.".repeat(60_000)));
        refused(&format!("watch = {}'every'{}", "{ not = ".repeat(30_000), "}".repeat(30_000)));
    }

    #[test]
    fn refused_sensor_names_requesting_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("memtide.toml");
        let why = SensorRefused { sensor: "regions", why: "no monitor".to_owned() };
        for (line, key) in [("monitor = 'damon'", "monitor"), ("policy = 'hot-cold'", "policy")] {
            fs::write(&file, format!("least_mib = 1\n{line}\n")).expect("a file");
            let error = Config::read(&file).expect("a configuration").refused_sensor(&why);
            assert!(matches!(error, DaemonError::Key { .. }), "{error:?}");
            let says = "memory cannot be watched: the policy needs the sensor `regions`: no monitor";
            assert_eq!(error.to_string(), format!("{}:2: {key}: {says}", file.display()));
        }
    }

    #[test]
    fn invalid_default_has_no_line() {
        assert_eq!(Config::default().fault("machine", "is none").to_string(), "machine: is none");
    }
}
