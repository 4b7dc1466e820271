//! `memtide repro`.

mod cache;
mod list;
mod markdown;
mod runs;
mod tables;

use std::fs;
use std::path::{Component, Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use memtide_experiments::{Experiment, Judged, select};

use self::cache::Cache;
use crate::failure::Failure;
use crate::options::Common;
use crate::output::Format;
use crate::report::{self, ReportFile};

/// Its arguments.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    reproduce: Reproduce,
}

/// Its subcommand.
#[derive(Debug, Subcommand)]
enum Command {
    /// List the experiments
    List(Common),
}

/// Options of a reproduction.
#[derive(Debug, Args)]
struct Reproduce {
    /// Papers, experiments or files: bmpm, bdm/fig-7, my-figure.toml
    ///
    /// [default: all experiments]
    #[arg(value_name = "NAME", value_hint = ValueHint::FilePath)]
    names: Vec<String>,
    #[command(flatten)]
    common: Common,
    /// Skip the runs at half scale
    ///
    /// They show which results depend on the scale of the machine.
    #[arg(long)]
    full_scale_only: bool,
    /// Folder of finished runs [default: memtide/repro in the user's cache]
    ///
    /// Runs of the same model, machine, programs and policy are reused.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    cache: Option<PathBuf>,
    /// Write the results as Markdown
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    report: ReportFile,
}

/// An experiment and its results beside its claims.
type Done = (Experiment, Judged);

/// Lists experiments, or runs them and prints their results beside what the papers report.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Command::List(common)) = &arguments.command {
        return list::document()?.print(common.output);
    }
    let Reproduce { names, common, full_scale_only, cache, markdown, report: file } = &arguments.reproduce;
    let experiments = experiments(names)?;
    file.check_differs("--markdown", markdown.as_deref())?;
    let draft = file.draft()?;
    let markdown = markdown.as_deref().map(markdown::Draft::create).transpose()?;
    let cache = Cache::open(cache.as_deref())?;
    let results = runs::run(&experiments, &cache, common.seed, !full_scale_only)?;
    let (done, failed) = judged(experiments, results);
    let failed = match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(failed.join("\n"))),
    };
    if done.is_empty() {
        return failed;
    }
    let mut document = tables::document(&done, common.seed, common.output == Format::Table);
    if let Some(draft) = draft {
        draft.write(&report::of_reproduction(&done, tables::counts(&done), &document))?;
    }
    if let Some(draft) = markdown {
        draft.write(names, &done)?;
    }
    document.notes.extend(tables::findings(&done));
    document.print(common.output).and(failed)
}

/// Results beside the claims, and why some experiments cannot be judged.
fn judged(experiments: Vec<Experiment>, results: Vec<runs::Both>) -> (Vec<Done>, Vec<String>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for (experiment, (results, half)) in experiments.into_iter().zip(results) {
        match experiment.judge(results, half) {
            Ok(judged) => done.push((experiment, judged)),
            Err(error) => failed.push(error.to_string()),
        }
    }
    (done, failed)
}

/// The experiments that are named: files by their path, the others by paper or id.
fn experiments(names: &[String]) -> Result<Vec<Experiment>, Failure> {
    if names.is_empty() {
        return select(names).map_err(Failure::Run);
    }
    let mut chosen: Vec<Experiment> = Vec::new();
    for name in names {
        let of = match Path::new(name).extension() {
            Some(end) if end == "toml" => vec![read(name)?],
            _ if Path::new(name).is_file() => {
                return Err(Failure::Usage(format!("{name}: names of experiment files end in .toml")));
            }
            _ => select(std::slice::from_ref(name)).map_err(Failure::Usage)?,
        };
        let new = |new: &Experiment| chosen.iter().all(|old| old.id != new.id);
        let of: Vec<Experiment> = of.into_iter().filter(new).collect();
        chosen.extend(of);
    }
    Ok(chosen)
}

/// An experiment file.
fn read(path: &str) -> Result<Experiment, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::unreadable(path, &error))?;
    let parts = Path::new(path).components().filter(|part| *part != Component::CurDir);
    let id = parts.collect::<PathBuf>().with_extension("").to_string_lossy().into_owned();
    let mut experiment =
        Experiment::parse(&id, path, &text).map_err(|error| Failure::Input(error.to_string()))?;
    experiment.plan.find_machine_files(Path::new(path).parent().unwrap_or(Path::new("")));
    Ok(experiment)
}
