//! Results beside the papers', as Markdown: docs/reproduction.md.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use memtide_experiments::{Experiment, Judged, Verdict};
use tempfile::NamedTempFile;

use super::{Done, tables};
use crate::failure::Failure;
use crate::output::{paragraph, temporary};

/// The file to be written. Replaces an existing file only if that is such a file or empty.
pub struct Draft<'a> {
    path: &'a Path,
    file: NamedTempFile,
}

impl<'a> Draft<'a> {
    /// Creates it, so that an unwritable one is refused before anything runs.
    pub fn create(path: &'a Path) -> Result<Draft<'a>, Failure> {
        let unwritable = |error: io::Error| Failure::unwritable(path.display(), &error);
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(unwritable(io::Error::other("it exists and is not a regular file")));
        }
        if path.exists() && !is_of_repro(path).map_err(unwritable)? {
            let why = "it exists and was not written by 'memtide repro --markdown'";
            return Err(unwritable(io::Error::other(why)));
        }
        Ok(Draft { path, file: temporary(path).map_err(unwritable)? })
    }

    /// Writes it; `names` are those of the command, none for all experiments.
    pub fn write(mut self, names: &[String], done: &[Done]) -> Result<(), Failure> {
        let written = self.file.write_all(text(names, done).as_bytes());
        let written = written.and_then(|()| self.file.persist(self.path).map(drop).map_err(io::Error::from));
        written.map_err(|error| Failure::unwritable(self.path.display(), &error))
    }
}

/// Whether a file was written here or is empty.
fn is_of_repro(path: &Path) -> io::Result<bool> {
    let mut found = Vec::new();
    File::open(path)?.take(HEADING.len() as u64).read_to_end(&mut found)?;
    Ok(found.is_empty() || found == HEADING.as_bytes())
}

const HEADING: &str = "# Reproduction of the papers' results\n";

/// Of all experiments, in the project's docs.
const ALL: &str = "\
```sh
memtide repro                       # all of this
memtide repro bmpm                  # a paper
memtide repro bdm/fig-7 --report bdm.html
```

`make repro` writes this file. How to read it, and how to add an experiment: [experiments.md](experiments.md).
";

fn introduction(names: &[String]) -> String {
    match names.is_empty() {
        true => format!("{HEADING}\n{ALL}"),
        false => format!("{HEADING}\n```sh\nmemtide repro {}\n```\n", names.join(" ")),
    }
}

fn text(names: &[String], done: &[Done]) -> String {
    let mut text = format!("{}\n{}\n", introduction(names), wrapped(&tables::counts(done).join(" ")));
    text += "\n| experiment | paper's figure or table | verdict |\n| --- | --- | --- |\n";
    for (experiment, judged) in done {
        let Experiment { id, title, .. } = experiment;
        let _ = writeln!(text, "| [{id}](#{}) | {} | {} |", anchor(id), cell(title), judged.verdict());
    }
    for (experiment, judged) in done {
        section(&mut text, experiment, judged);
    }
    text
}

fn section(text: &mut String, experiment: &Experiment, judged: &Judged) {
    let Experiment { id, title, source, plan, .. } = experiment;
    let about = wrapped(&format!("{title} ({source}); machine `{}`.", plan.machine));
    let _ = write!(text, "\n## {id}\n\n{about}\n");
    if !experiment.numbers.is_empty() {
        *text += "\n| number | paper | ours | half scale | deviation | kind | verdict |\n";
        *text += "| --- | --- | --- | --- | --- | --- | --- |\n";
    }
    for (number, result) in experiment.numbers.iter().zip(&judged.numbers) {
        let unit = if number.unit.is_empty() { String::new() } else { format!(" {}", number.unit) };
        let figure = |value: f64| format!("{}{unit}", tables::figure(number, value).display());
        let points = if number.unit == "%" { "points" } else { "%" };
        let half = result.half.map_or("-".to_owned(), figure);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {half} | {} of {} {points} | {} | {} |",
            cell(&number.what),
            figure(number.paper),
            figure(result.ours),
            signed(result.deviation),
            number.tolerance(),
            number.kind.name(),
            tables::verdict(number.impossible.is_some(), result.verdict),
        );
    }
    if !experiment.shapes.is_empty() {
        *text += "\n| statement | here | half scale | verdict |\n| --- | --- | --- | --- |\n";
    }
    for (shape, result) in experiment.shapes.iter().zip(&judged.shapes) {
        let word = |holds: bool| if holds { "yes" } else { "no" };
        let (holds, half) = (word(result.holds), result.half.map_or("-", word));
        let _ = writeln!(text, "| {} | {holds} | {half} | {} |", cell(&shape.statement), result.verdict);
    }
    for number in &experiment.numbers {
        if let Some(reason) = &number.impossible {
            let _ = write!(text, "\n{}\n", wrapped(&format!("*{}* cannot come out. {reason}", number.what)));
        }
    }
    if judged.verdict() != Verdict::Holds {
        let finding = experiment.finding.as_deref().unwrap_or("Why was not investigated yet.");
        let _ = write!(text, "\n{}\n", wrapped(finding));
    }
}

/// With its sign; zero is not negative.
fn signed(deviation: f64) -> String {
    let tenths = (deviation * 10.0).round() / 10.0;
    format!("{:+.1}", if tenths == 0.0 { 0.0 } else { tenths })
}

/// Text of a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    heading.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
}

/// Columns of a paragraph.
const WIDTH: usize = 110;

/// Paragraphs, which blank lines separate.
fn wrapped(text: &str) -> String {
    let wrap = |of: &str| {
        let words: Vec<&str> = of.split_whitespace().collect();
        paragraph(&words.join(" "), Some(WIDTH)).trim_end().to_owned()
    };
    text.split("\n\n").map(wrap).collect::<Vec<_>>().join("\n\n")
}
