//! `memtide repro`.

mod cache;
mod list;
mod markdown;
mod runs;
mod tables;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use memtide_experiments::{Experiment, Judged, select};

use self::cache::Cache;
use crate::failure::Failure;
use crate::options::Common;
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
    /// Papers or experiments, such as bmpm or bdm/fig-7 [default: all]
    #[arg(value_name = "NAME")]
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
    /// Runs of the same memtide with the same machine, programs and policy are not repeated.
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
    let experiments = select(names).map_err(Failure::Usage)?;
    let draft = file.draft()?;
    let markdown = markdown.as_deref().map(markdown::Draft::create).transpose()?;
    let cache = Cache::open(cache.as_deref())?;
    let results = runs::run(&experiments, &cache, common.seed, !full_scale_only)?;
    let judge = |(experiment, (results, half)): (Experiment, runs::Both)| {
        let judged = experiment.judge(results, half).map_err(|error| Failure::Run(error.to_string()))?;
        Ok((experiment, judged))
    };
    let done: Vec<Done> = experiments.into_iter().zip(results).map(judge).collect::<Result<_, _>>()?;
    let document = tables::document(&done, common.seed);
    if let Some(draft) = draft {
        draft.write(&report::of_reproduction(&done, tables::counts(&done), &document))?;
    }
    if let Some(draft) = markdown {
        draft.write(&done)?;
    }
    document.print(common.output)
}
