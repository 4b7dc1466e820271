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
                let ends = |id: &&String| id.split_once('/').is_some_and(|(_, figure)| figure == name);
                let figures: Vec<&str> = all.iter().filter(ends).map(String::as_str).collect();
                if !figures.is_empty() {
                    return Err(format!(
                        "there is no experiment '{name}'; did you mean {}?",
                        figures.join(" or ")
                    ));
                }
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

#[cfg(test)]
mod tests {
    use memtide_core::machine::bundled::machine;

    use super::*;

    fn all() -> Vec<Experiment> {
        select(&[]).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_bundled_experiment_parses_and_names_what_exists() {
        for experiment in all() {
            let plan = &experiment.plan;
            let variants = plan.variants.iter().filter_map(|variant| variant.machine.as_deref());
            for name in [plan.machine.as_str()].into_iter().chain(variants) {
                machine(name).unwrap_or_else(|| panic!("{}: no machine '{name}'", experiment.id)).unwrap();
            }
            for named in &plan.policies {
                memtide_policies::parse(&named.policy)
                    .unwrap_or_else(|error| panic!("{}: {error}", experiment.id));
            }
        }
    }

    /// What runs get is the plan: without any claim it is the same.
    #[test]
    fn plans_do_not_depend_on_what_papers_report() {
        for experiment in all() {
            let text = text(&experiment.id).expect("a bundled experiment");
            let mut stripped: toml::Table = text.parse().expect("TOML");
            for claims in ["number", "shape", "figure", "finding"] {
                stripped.remove(claims);
            }
            let plan = stripped.remove("plan").expect("a plan").try_into();
            assert_eq!(plan, Ok(experiment.plan), "{}", experiment.id);
            assert_eq!(stripped.keys().collect::<Vec<_>>(), ["source", "title"], "{}", experiment.id);
        }
    }

    #[test]
    fn names_select_papers_and_experiments_once_and_in_order() {
        let ids = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            select(&names).unwrap().into_iter().map(|experiment| experiment.id).collect()
        };
        assert_eq!(ids(&["bmpm/fig-5.9", "bmpm/fig-5.9"]), ["bmpm/fig-5.9"]);
        let bmpm = ids(&["bmpm"]);
        assert_eq!(bmpm.first().map(String::as_str), Some("bmpm/table-4.3"), "tables first");
        assert!(ids(&[]).len() > bmpm.len());
        let unknown = select(&["bmpm/fig-5.99".to_owned()]).unwrap_err();
        assert!(unknown.contains("bmpm/fig-5.9"), "{unknown}");
    }

    #[test]
    fn figures_are_ordered_by_number() {
        let mut ids = ["p/fig-5.10", "p/fig-5.9", "p/table-7", "p/fig-12"];
        ids.sort_unstable_by_key(|id| order(id));
        assert_eq!(ids, ["p/table-7", "p/fig-5.9", "p/fig-5.10", "p/fig-12"]);
    }
}
