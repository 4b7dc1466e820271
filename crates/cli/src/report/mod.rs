//! Reports: one HTML file each, which needs no network.

mod chart;
mod lab;
mod simulated;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use plotly::Plot;
use tempfile::NamedTempFile;

use crate::answer::{Answer, Cell, Table};
use crate::failure::Failure;
use chart::Chart;

pub use lab::{Shown, page as of_lab};
pub use simulated::page as of_simulation;

const PAGE: &str = include_str!("page.html");

/// Columns of figures that a page has room for, beside those that tell what a row is about.
const COLUMNS: usize = 12;

/// The option of commands that can write one.
#[derive(Debug, clap::Args)]
pub struct ReportFile {
    /// Write a report with charts, one HTML file that needs no network
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
}

impl ReportFile {
    /// Begins the report, if one is wanted.
    pub fn draft(&self) -> Result<Option<Draft<'_>>, Failure> {
        self.report.as_deref().map(Draft::create).transpose()
    }
}

/// A report that is to be written. A file that is there already is replaced only if it is a page or empty, and only once the new
/// one is whole.
pub struct Draft<'a> {
    path: &'a Path,
    file: NamedTempFile,
}

impl<'a> Draft<'a> {
    /// Begins it, so that a report that cannot be written is refused before anything runs.
    fn create(path: &'a Path) -> Result<Draft<'a>, Failure> {
        let unwritable = |error: io::Error| Failure::unwritable(path.display(), &error);
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(unwritable(io::Error::other("it is there already, and no regular file")));
        }
        if path.exists() && !is_page(path).map_err(unwritable)? {
            return Err(unwritable(io::Error::other("it is there already, and no report")));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file =
            tempfile::Builder::new().permissions(permissions()).tempfile_in(folder).map_err(unwritable)?;
        Ok(Draft { path, file })
    }

    /// Writes it.
    pub fn write(mut self, page: &Page) -> Result<(), Failure> {
        let written = self.file.write_all(page.html().as_bytes());
        written
            .and_then(|()| Ok(self.file.persist(self.path)?))
            .map_err(|error| Failure::unwritable(self.path.display(), &error))?;
        Ok(())
    }
}

/// Whether a file begins as a report does, or holds nothing.
fn is_page(path: &Path) -> io::Result<bool> {
    let start = PAGE.lines().next().unwrap_or_default();
    let mut found = Vec::new();
    File::open(path)?.take(start.len() as u64).read_to_end(&mut found)?;
    Ok(found.is_empty() || found.eq_ignore_ascii_case(start.as_bytes()))
}

/// As of any file that a program makes; the user's mask is taken off.
fn permissions() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o666)
}

/// What a report shows.
pub struct Page<'a> {
    /// What was run, and where.
    pub title: String,
    /// The machine in a sentence.
    pub summary: &'a str,
    /// All figures.
    pub answer: &'a Answer,
    /// Sections with charts.
    pub sections: Vec<String>,
}

impl Page<'_> {
    fn html(&self) -> String {
        let Page { title, summary, answer, sections } = self;
        let fact = |(key, cell): &(&str, Cell)| format!("<li>{key} <b>{}</b></li>", escaped(&cell.shown()));
        let command: Vec<String> = std::env::args().map(|word| quoted(&word)).collect();
        let parts = [
            ("{{title}}", escaped(title)),
            ("{{summary}}", escaped(summary)),
            ("{{facts}}", answer.about.iter().map(fact).collect()),
            ("{{verdict}}", answer.notes.iter().map(|note| format!("<p>{}</p>", escaped(note))).collect()),
            ("{{charts}}", sections.concat()),
            ("{{tables}}", answer.tables.iter().map(table).collect()),
            ("{{command}}", escaped(&command.join(" "))),
            ("{{library}}", library()),
        ];
        parts.iter().fold(PAGE.to_owned(), |page, (place, text)| page.replace(place, text))
    }
}

/// Small charts under one heading.
fn grid(title: &str, wide: &str, charts: &[Chart]) -> String {
    let charts: String = charts.iter().map(small).collect();
    format!("<section><h2>{title}</h2><div class=\"grid {wide}\">{charts}</div></section>")
}

/// A chart of its own.
fn section(chart: &Chart) -> String {
    let Chart { title, height, .. } = chart;
    format!(
        "<section><h2>{}</h2><div style=\"height:{height}px\">{}</div></section>",
        escaped(title),
        chart.html()
    )
}

fn small(chart: &Chart) -> String {
    let Chart { title, height, .. } = chart;
    format!("<div><h3>{}</h3><div style=\"height:{height}px\">{}</div></div>", escaped(title), chart.html())
}

/// A table, in several below each other if it has more columns than the page has room for.
fn table(table: &Table) -> String {
    let columns: Vec<usize> = (table.keys..table.columns.len()).collect();
    columns.chunks(COLUMNS).map(|part| part_of(table, part)).collect()
}

/// The columns that tell what a row is about, and some others.
fn part_of(table: &Table, columns: &[usize]) -> String {
    let shown = || (0..table.keys).chain(columns.iter().copied());
    let head: String =
        shown().map(|column| format!("<th>{}</th>", escaped(&table.columns[column].title))).collect();
    let cell = |cell: &Cell| {
        let class = if cell.is_number() { " class=\"number\"" } else { "" };
        format!("<td{class}>{}</td>", escaped(&cell.shown()))
    };
    let row = |row: &Vec<Cell>| {
        format!("<tr>{}</tr>", shown().map(|column| cell(&row[column])).collect::<String>())
    };
    let body: String = table.rows.iter().map(row).collect();
    format!("<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")
}

/// The chart library's script alone: the typesetting of formulas that comes with it is not used.
fn library() -> String {
    let sources = Plot::offline_js_sources();
    let end = sources.find("</script>").map_or(sources.len(), |at| at + "</script>".len());
    sources[..end].to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=:,./+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_library_is_whole_and_alone() {
        let library = library();
        assert!(library.starts_with("<script") && library.ends_with("</script>"));
        assert!(library.contains("plotly.js v") && library.len() > 1 << 20);
        assert_eq!(library.matches("<script").count(), 1, "a second script came along");
    }

    #[test]
    fn words_survive_the_shell_and_the_page() {
        assert_eq!(quoted("stream:threads=4"), "stream:threads=4");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(escaped("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
