//! The bundled experiment files, included at compile time.

use include_dir::{Dir, include_dir};
use memtide_core::{FileError, suggest};

use crate::experiment::Experiment;

static FILES: Dir = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// The papers with experiments, in order.
pub fn papers() -> Vec<&'static str> {
    let mut papers: Vec<&str> = FILES.dirs().filter_map(|dir| dir.path().to_str()).collect();
    papers.sort_unstable();
    papers
}

/// Ids of the experiments of a paper, in order.
fn ids(paper: &str) -> Vec<String> {
    let files = FILES.get_dir(paper).into_iter().flat_map(Dir::files);
    let mut ids: Vec<String> =
        files.filter_map(|file| Some(file.path().to_str()?.strip_suffix(".toml")?.to_owned())).collect();
    ids.sort_unstable_by_key(|id| order(id));
    ids
}

/// Orders `fig-5.9` before `fig-5.10`, and tables before figures.
fn order(id: &str) -> (bool, String) {
    let digits =
        |number: &str| number.parse::<u32>().map_or(number.to_owned(), |number| format!("{number:04}"));
    let parts = id.split(['-', '.', '/']).map(digits);
    (!id.contains("/table"), parts.collect::<Vec<_>>().join("."))
}

/// The file of an experiment.
pub fn text(id: &str) -> Option<&'static str> {
    FILES.get_file(format!("{id}.toml"))?.contents_utf8()
}

/// The experiments that are named, by id or paper; all, without names.
///
/// # Errors
/// If a name is unknown, or a file is wrong: a bug in memtide.
pub fn select(names: &[String]) -> Result<Vec<Experiment>, String> {
    let papers = papers();
    let mut chosen: Vec<String> = match names.is_empty() {
        true => papers.iter().flat_map(|paper| ids(paper)).collect(),
        false => Vec::new(),
    };
    for name in names {
        let of: Vec<String> = match text(name) {
            Some(_) => vec![name.clone()],
            None if papers.contains(&name.as_str()) => ids(name),
            None => {
                let all: Vec<String> = papers.iter().flat_map(|paper| ids(paper)).collect();
                let known: Vec<&str> = papers.iter().copied().chain(all.iter().map(String::as_str)).collect();
                return Err(suggest::unknown("experiment", name, &known));
            }
        };
        chosen.extend(of.into_iter().filter(|id| !chosen.contains(id)).collect::<Vec<_>>());
    }
    let parse = |id: &String| parse(id).map_err(|error| error.to_string());
    chosen.iter().map(parse).collect()
}

fn parse(id: &str) -> Result<Experiment, FileError> {
    Experiment::parse(id, &format!("experiments/{id}.toml"), text(id).unwrap_or_default())
}
