//! Run files: programs that run together, when each starts, and which memory they offer for migration.
//!
//! A run file names no machine and no policy, so that the same mix runs on any machine, under any policy.

use std::path::{Path, PathBuf};

use memtide_core::params::{Params, split_name};
use memtide_core::policy::PRIORITY_MAX;
use memtide_core::{FileError, Mapping, Time, suggest};
use serde::Deserialize;

use crate::buffer::Buffer;
use crate::error::WorkloadError;
use crate::messages::{MESSAGE_PARAMETERS, Messages};
use crate::registry;

/// Latest start of a program, in simulated ms.
pub const START_MAX_MS: f64 = 1e9;

/// Ranges or names in a message.
const LISTED: usize = 12;

/// Programs that run together.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFile {
    file: String,
    text: String,
    programs: Vec<RunProgram>,
}

/// A program of a run file.
#[derive(Clone, Debug, PartialEq)]
pub struct RunProgram {
    /// Its name, unique in the file.
    pub name: String,
    /// What runs.
    pub source: RunSource,
    /// When it starts, from the start of the run.
    pub start: Time,
    /// Service level, from 1 to [`PRIORITY_MAX`]; `None` if it gives none and sends nothing.
    pub priority: Option<u8>,
    /// What it offers for migration, if it sends anything.
    pub messages: Option<Messages>,
}

/// What a program of a run file runs.
#[derive(Clone, Debug, PartialEq)]
pub enum RunSource {
    /// A workload, whose name and parameters exist.
    Workload {
        /// Its name.
        name: String,
        /// Its parameters.
        params: Params,
    },
    /// A trace; its path is relative to the current folder, not to the run file.
    Trace(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    program: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    workload: Option<String>,
    trace: Option<String>,
    #[serde(default)]
    start_ms: f64,
    priority: Option<i64>,
    #[serde(default)]
    send: Vec<String>,
    #[serde(default)]
    lock: Vec<String>,
}

/// A key of an entry (empty for the entry itself), and why it is refused.
type Refused = (String, String);

fn refused(key: impl Into<String>, message: impl Into<String>) -> Refused {
    (key.into(), message.into())
}

impl RunFile {
    /// Maximum size of a run file, in bytes.
    pub const FILE_BYTES_MAX: usize = 1 << 20;

    /// Parses a run file. `file` is its path, for messages and to find its traces.
    ///
    /// # Errors
    /// If it is too long or no TOML, or a key is unknown, missing or wrong: file, line, key and what is
    /// allowed.
    pub fn parse(file: &str, text: &str) -> Result<RunFile, FileError> {
        if text.len() > RunFile::FILE_BYTES_MAX {
            let message = format!("longer than {} bytes: not a run file", RunFile::FILE_BYTES_MAX);
            return Err(FileError { file: file.to_owned(), line: 1, field: String::new(), message });
        }
        let File { program: entries } =
            toml::from_str(text).map_err(|error| FileError::of_toml(file, text, &error))?;
        if entries.is_empty() {
            return Err(FileError::at(file, text, "program", "needs at least one [[program]]"));
        }
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        let mut programs: Vec<RunProgram> = Vec::with_capacity(entries.len());
        for (at, entry) in entries.into_iter().enumerate() {
            let program = match programs.iter().any(|other| other.name == entry.name) {
                true => Err(refused("name", format!("'{}' is used twice", entry.name))),
                false => entry.checked(folder),
            };
            programs.push(program.map_err(|why| at_program(file, text, at, why))?);
        }
        Ok(RunFile { file: file.to_owned(), text: text.to_owned(), programs })
    }

    /// The programs, at least one.
    pub fn programs(&self) -> &[RunProgram] {
        &self.programs
    }

    /// An error about a key of a program.
    pub fn error(&self, program: usize, key: &str, message: impl Into<String>) -> FileError {
        at_program(&self.file, &self.text, program, refused(key, message))
    }

    /// Checks that a program, which maps this memory, has everything that it sends.
    ///
    /// # Errors
    /// If a name or a range has no memory: place, and what the program has.
    pub fn check_buffers(&self, program: usize, mapped: &[Mapping]) -> Result<(), FileError> {
        let Some(messages) = &self.programs[program].messages else { return Ok(()) };
        let is_missing = |buffer: &Buffer| !mapped.iter().any(|mapping| buffer.covers(mapping));
        match messages.send.iter().enumerate().find(|(_, buffer)| is_missing(buffer)) {
            None => Ok(()),
            Some((at, buffer)) => {
                let message = match buffer {
                    Buffer::Named(name) | Buffer::Piece { array: name, .. } => without_array(name, mapped),
                    Buffer::Range { .. } => {
                        format!("the program maps nothing in this range; it maps {}", ranges(mapped))
                    }
                };
                Err(self.error(program, &format!("send[{at}]"), message))
            }
        }
    }
}

fn at_program(file: &str, text: &str, program: usize, (key, message): Refused) -> FileError {
    let dot = if key.is_empty() { "" } else { "." };
    FileError::at(file, text, format!("program[{program}]{dot}{key}"), message)
}

impl RunProgram {
    /// What it runs and sends, in the form of a workload with its parameters.
    pub fn description(&self) -> String {
        let run = match &self.source {
            RunSource::Workload { name, params } if params.to_string().is_empty() => format!("{name}:"),
            RunSource::Workload { name, params } => format!("{name}:{params}"),
            RunSource::Trace(path) => {
                format!("{}:", path.file_stem().unwrap_or_default().to_string_lossy())
            }
        };
        let joined =
            |buffers: &[Buffer]| buffers.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
        let priority = self.priority.map(|priority| format!("priority={priority}"));
        let lists =
            self.messages.iter().flat_map(|messages| [("send", &messages.send), ("lock", &messages.lock)]);
        let lists = lists.filter(|(_, buffers)| !buffers.is_empty());
        let more: Vec<String> = priority
            .into_iter()
            .chain(lists.map(|(key, buffers)| format!("{key}={}", joined(buffers))))
            .collect();
        let more = more.join(",");
        match (run.strip_suffix(':'), more.is_empty()) {
            (Some(bare), true) => bare.to_owned(),
            (Some(_), false) => run + &more,
            (None, true) => run,
            (None, false) => format!("{run},{more}"),
        }
    }
}

impl Entry {
    fn checked(self, folder: &Path) -> Result<RunProgram, Refused> {
        if self.name.trim().is_empty() {
            return Err(refused("name", "is empty"));
        }
        if !(0.0..=START_MAX_MS).contains(&self.start_ms) {
            let message = format!("invalid value {}: expected ms from 0 to {START_MAX_MS}", self.start_ms);
            return Err(refused("start_ms", message));
        }
        let given = self.priority.map(priority).transpose()?;
        let messages = messages(&self.send, &self.lock, given.unwrap_or(1))?;
        Ok(RunProgram {
            source: source(self.workload.as_deref(), self.trace.as_deref(), folder)?,
            name: self.name,
            start: Time::from_ns(self.start_ms * 1e6),
            priority: given.or(messages.as_ref().map(|messages| messages.priority)),
            messages,
        })
    }
}

fn priority(given: i64) -> Result<u8, Refused> {
    let level = u8::try_from(given).ok().filter(|level| (1..=PRIORITY_MAX).contains(level));
    level.ok_or_else(|| {
        let allowed = format!("expected an integer from 1 to {PRIORITY_MAX}");
        refused("priority", format!("invalid value {given}: {allowed}"))
    })
}

fn source(workload: Option<&str>, trace: Option<&str>, folder: &Path) -> Result<RunSource, Refused> {
    match (workload, trace) {
        (Some(text), None) => workload_of(text).map_err(|message| refused("workload", message)),
        (None, Some("")) => Err(refused("trace", "is empty: give a trace's path")),
        (None, Some(path)) => Ok(RunSource::Trace(folder.join(path))),
        (Some(_), Some(_)) => Err(refused("trace", "give 'workload' or 'trace', not both")),
        (None, None) => Err(refused("", "runs nothing: give 'workload' or 'trace'")),
    }
}

fn workload_of(text: &str) -> Result<RunSource, String> {
    let (name, params) = split_name(text);
    let params: Params = params.parse().map_err(|error| format!("workload '{name}': {error}"))?;
    if let Some((key, _)) = params.clone().split_off(&MESSAGE_PARAMETERS).first() {
        return Err(format!("has the parameter '{key}': give it as a key of the program"));
    }
    registry::check(name, &params).map_err(|error| match &error {
        WorkloadError::UnknownWorkload { name, known } => suggest::unknown("workload", name, known),
        other => other.to_string(),
    })?;
    Ok(RunSource::Workload { name: name.to_owned(), params })
}

fn messages(send: &[String], lock: &[String], priority: u8) -> Result<Option<Messages>, Refused> {
    let [send, lock] = [buffers("send", send)?, buffers("lock", lock)?];
    if let Some(at) = lock.iter().position(|buffer| !send.contains(buffer)) {
        return Err(refused(format!("lock[{at}]"), format!("'{}' is not in 'send'", lock[at])));
    }
    Ok((!send.is_empty()).then_some(Messages { priority, send, lock, settle: 0 }))
}

/// The buffers of a list: each page is in one at most, as far as the list shows.
fn buffers(key: &str, texts: &[String]) -> Result<Vec<Buffer>, Refused> {
    let mut buffers: Vec<Buffer> = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        let wrong = |message: String| refused(format!("{key}[{at}]"), message);
        let buffer = Buffer::parse(text).map_err(wrong)?;
        if let Some(other) = buffers.iter().find(|other| other.overlaps(&buffer)) {
            return Err(wrong(format!("'{buffer}' overlaps '{other}': list each page once")));
        }
        buffers.push(buffer);
    }
    Ok(buffers)
}

/// That a program has no array of this name, with those that it has.
fn without_array(name: &str, mapped: &[Mapping]) -> String {
    let mut known: Vec<&str> = Vec::new();
    for mapping in mapped.iter().filter(|mapping| !mapping.name.is_empty()) {
        if !known.contains(&mapping.name.as_str()) {
            known.push(&mapping.name);
        }
    }
    match known.is_empty() {
        true => {
            format!("'{name}': the program names no memory; give a range 0xSTART-0xEND of {}", ranges(mapped))
        }
        false => suggest::unknown("array", name, &known),
    }
}

/// Mapped memory, adjacent mappings as one.
fn ranges(mapped: &[Mapping]) -> String {
    let mut all: Vec<[u64; 2]> = Vec::new();
    let mut sorted: Vec<&Mapping> = mapped.iter().collect();
    sorted.sort_by_key(|mapping| mapping.start);
    for Mapping { start, bytes, .. } in sorted {
        let [start, end] = [start.0, start.0.saturating_add(*bytes)];
        match all.last_mut() {
            Some([_, last]) if *last >= start => *last = end.max(*last),
            _ => all.push([start, end]),
        }
    }
    let shown = all.iter().take(LISTED).map(|[start, end]| format!("{start:#x}-{end:#x}"));
    let more = all.len().saturating_sub(LISTED);
    let more = (more > 0).then(|| format!("and {more} more"));
    match all.is_empty() {
        true => "nothing".to_owned(),
        false => shown.chain(more).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use memtide_core::{PAGE_BYTES, PageSize, VirtAddr, Vpn};
    use proptest::prelude::*;

    use super::*;

    const MIX: &str = r#"
[[program]]
name = "batch"
workload = "stream:threads=1,footprint_mib=3"
send = ["a", "c"]
lock = ["c"]

[[program]]
name = "server"
trace = "traces/server.parquet"
start_ms = 2.5
priority = 5
send = ["0x10000-0x30000"]

[[program]]
name = "watch"
workload = "gups"
"#;

    fn error(text: &str) -> String {
        RunFile::parse("mix.toml", text).expect_err("it is refused").to_string()
    }

    #[test]
    fn programs_have_source_start_and_messages() {
        let mix = RunFile::parse("mixes/mix.toml", MIX).expect("a run file");
        let [batch, server, watch] = mix.programs() else { panic!("three programs") };
        assert_eq!(server.source, RunSource::Trace("mixes/traces/server.parquet".into()));
        assert_eq!([batch, server].map(|of| of.start), [Time::ZERO, Time::from_ns(2.5e6)]);
        assert_eq!([batch, server, watch].map(|of| of.priority), [Some(1), Some(5), None]);
        let range = Buffer::Range { start: Vpn(0x10), pages: 0x20 };
        let messages = Messages { priority: 5, send: vec![range], lock: Vec::new(), settle: 0 };
        assert_eq!(server.messages.as_ref(), Some(&messages));
        assert_eq!(watch.messages, None);
        let said = [batch, server, watch].map(RunProgram::description);
        assert_eq!(
            said,
            [
                "stream:threads=1,footprint_mib=3,priority=1,send=a+c,lock=c",
                "server:priority=5,send=0x10000-0x30000",
                "gups",
            ]
        );
    }

    #[test]
    fn mistakes_are_refused_with_line_key_and_what_is_allowed() {
        for (from, to, said) in [
            ("start_ms", "start", "mix.toml:11: program[1].start: unknown field `start`, expected one of"),
            (
                "[[program]]\nname = \"batch\"",
                "machine = \"pms\"\n[[program]]\nname = \"batch\"",
                "mix.toml:2: machine",
            ),
            ("name = \"watch\"\n", "", "mix.toml:15: program[2]: missing field `name`"),
            ("\"watch\"", "\"batch\"", "mix.toml:16: program[2].name: 'batch' is used twice"),
            ("\"watch\"", "\" \"", "mix.toml:16: program[2].name: is empty"),
            (
                "priority = 5",
                "priority = 6",
                "mix.toml:12: program[1].priority: invalid value 6: expected an integer from 1 to 5",
            ),
            ("priority = 5", "priority = 0", "invalid value 0: expected an integer from 1 to 5"),
            (
                "priority = 5",
                "priority = \"high\"",
                "mix.toml:12: program[1].priority: invalid value \"high\"",
            ),
            ("2.5", "-1.0", "mix.toml:11: program[1].start_ms: invalid value -1: expected ms from 0 to"),
            ("2.5", "nan", "program[1].start_ms: invalid value NaN"),
            ("workload = \"gups\"", "", "mix.toml:15: program[2]: runs nothing: give 'workload' or 'trace'"),
            (
                "workload = \"gups\"",
                "workload = \"gups\"\ntrace = \"t\"",
                "mix.toml:18: program[2].trace: give 'workload' or 'trace', not both",
            ),
            ("traces/server.parquet", "", "mix.toml:10: program[1].trace: is empty"),
            (
                "\"gups\"",
                "\"gusp\"",
                "mix.toml:17: program[2].workload: there is no workload 'gusp'; did you mean 'gups'?",
            ),
            ("\"gups\"", "\"gups:thread=1\"", "mix.toml:17: program[2].workload: workload 'gups'"),
            ("\"gups\"", "\"gups:threads\"", "KEY=VALUE"),
            (
                "\"gups\"",
                "\"gups:send=a\"",
                "mix.toml:17: program[2].workload: has the parameter 'send': give it as a key",
            ),
            ("[\"a\", \"c\"]", "\"a\"", "mix.toml:5: program[0].send: invalid value \"a\": expected a list"),
            ("[\"a\", \"c\"]", "[\"a\", \"\"]", "mix.toml:5: program[0].send[1]: a name is empty"),
            ("[\"a\", \"c\"]", "[\"c\", \"c\"]", "program[0].send[1]: 'c' overlaps 'c'"),
            ("lock = [\"c\"]", "lock = [\"b\"]", "mix.toml:6: program[0].lock[0]: 'b' is not in 'send'"),
            ("0x10000-0x30000", "0x10000-0x10000", "mix.toml:13: program[1].send[0]: invalid range"),
            ("0x10000-0x30000", "0x10001-0x30000", "expected 0xSTART-0xEND, multiples of 0x1000"),
            ("0x10000-0x30000", "0x10000-0xffffffffffff000", "up to 0x1000000000000"),
            (
                "0x10000-0x30000\"",
                "0x10000-0x30000\", \"0x20000-0x40000\"",
                "program[1].send[1]: '0x20000-0x40000' overlaps",
            ),
            ("[[program]]", "[[program", "mix.toml:2"),
        ] {
            let text = MIX.replacen(from, to, if from == "[[program]]" { 1 } else { usize::MAX });
            assert_ne!(text, MIX);
            let error = error(&text);
            assert!(error.contains(said), "{error}\ninstead of {said}");
        }
        assert_eq!(error(""), "mix.toml:1: missing field `program`");
        assert!(error("program = []").contains("program: needs at least one [[program]]"));
        assert!(error(&" ".repeat(RunFile::FILE_BYTES_MAX + 1)).contains("longer than 1048576 bytes"));
    }

    fn mapping(name: &str, start: u64, pages: u64) -> Mapping {
        let bytes = pages * PAGE_BYTES;
        Mapping { start: VirtAddr(start), bytes, page: PageSize::Base, name: name.to_owned() }
    }

    #[test]
    fn memory_that_a_program_lacks_is_refused_with_what_it_has() {
        let mix = RunFile::parse("mix.toml", MIX).expect("a run file");
        let check = |program: usize, mapped: &[Mapping]| {
            mix.check_buffers(program, mapped).map_err(|error| error.to_string())
        };
        let [a, b] = [mapping("a", 0, 1), mapping("b", 0x1000, 1)];
        assert_eq!(check(0, &[a.clone(), mapping("c", 0x3000, 1)]), Ok(()));
        assert_eq!(
            check(0, &[a.clone(), b.clone()]),
            Err("mix.toml:5: program[0].send[1]: there is no array 'c'; there are: a, b".to_owned())
        );
        let unnamed = check(0, &[mapping("", 0, 1)]).expect_err("no names");
        assert!(unnamed.contains("names no memory; give a range 0xSTART-0xEND of 0x0-0x1000"), "{unnamed}");
        assert_eq!(check(1, &[mapping("", 0x2f000, 1)]), Ok(()));
        let outside = check(1, &[b, a, mapping("", 0x30000, 1)]).expect_err("nothing there");
        assert_eq!(
            outside,
            "mix.toml:13: program[1].send[0]: the program maps nothing in this range; it maps 0x0-0x2000, \
             0x30000-0x31000"
        );
        assert_eq!(check(2, &[]), Ok(()));
    }

    /// Text near a run file: keys with values of all kinds, and what TOML has beside them.
    fn hostile() -> impl Strategy<Value = String> {
        let key = prop::sample::select(vec![
            "name", "workload", "trace", "start_ms", "priority", "send", "lock", "program", "x.y", "\"\"",
        ]);
        let value = prop_oneof![
            any::<i64>().prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| format!("{number:?}")),
            any::<String>().prop_map(|text| format!("{text:?}")),
            any::<(u64, u64)>().prop_map(|(start, end)| format!("[\"{start:#x}-{end:#x}\", \"0x\"]")),
            prop::sample::select(vec![
                "\"gups\"",
                "\"gups:threads=0\"",
                "\"stream:send=a\"",
                "['a']",
                "['a', 'a']",
                "[1]",
                "[[]]",
                "{ a = 1 }",
                "1979-05-27",
                "inf",
                "true",
                "5",
                "'n'",
                "'0x-0x'",
                "['0x1000-0x2000', '-']",
            ])
            .prop_map(str::to_owned),
        ];
        let line = prop_oneof![
            4 => (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
            1 => Just("[[program]]".to_owned()),
            1 => any::<String>(),
        ];
        prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
    }

    proptest! {
        #[test]
        fn hostile_text_is_refused_or_sound(text in hostile()) {
            let program = "[[program]]\nname='p'\nworkload='gups'\n";
            for before in ["", MIX, program] {
                let text = format!("{before}{text}");
                match RunFile::parse("dir/mix.toml", &text) {
                    Ok(mix) => for (at, program) in mix.programs().iter().enumerate() {
                        prop_assert!(program.priority.is_none_or(|level| (1..=5).contains(&level)));
                        prop_assert!(program.start <= Time::from_ns(START_MAX_MS * 1e6));
                        let _ = (program.description(), mix.check_buffers(at, &[]));
                    },
                    Err(error) => prop_assert!(error.to_string().starts_with("dir/mix.toml:")),
                }
            }
        }
    }
}
