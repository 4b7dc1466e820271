//! A report's page.

use plotly::Plot;

use super::chart::{Chart, plain};
use crate::output::{Cell, Document, Table};

const PAGE: &str = include_str!("page.html");

/// Maximum number of columns on a page, key columns included.
const COLUMNS: usize = 14;

/// Content of a report.
pub struct Page<'a> {
    /// The command and the machine.
    pub title: String,
    /// The machine in a sentence.
    pub summary: &'a str,
    /// The result.
    pub result: Finding,
    /// All figures.
    pub document: &'a Document,
    /// Sections with charts.
    pub sections: Vec<String>,
}

/// A result, first on the page.
#[derive(Default)]
pub struct Finding {
    /// Sentences. Notes of the document among them are not shown again.
    pub sentences: Vec<String>,
    /// The table that they are about.
    pub table: Option<Table>,
}

impl Page<'_> {
    /// The page, which needs no network.
    pub fn html(&self) -> String {
        let Page { title, summary, result, document, sections } = self;
        let fact = |(key, cell): &(&str, Cell)| format!("<li>{key} <b>{}</b></li>", escaped(&cell.display()));
        let command: Vec<String> = std::env::args().map(|word| quoted(&word)).collect();
        let parts = [
            ("{{title}}", escaped(title)),
            ("{{summary}}", escaped(summary)),
            ("{{facts}}", document.about.iter().map(fact).collect()),
            ("{{verdict}}", verdict(result, &document.notes)),
            ("{{charts}}", sections.concat()),
            (
                "{{tables}}",
                document.tables.iter().filter(|table| !table.rows.is_empty()).map(table).collect(),
            ),
            ("{{command}}", escaped(&command.join(" "))),
            ("{{library}}", library()),
        ];
        parts.iter().fold(PAGE.to_owned(), |page, (place, text)| page.replace(place, text))
    }
}

/// First line of every report.
pub fn first_line() -> &'static str {
    PAGE.lines().next().unwrap_or_default()
}

/// The result, then the notes that are not part of it.
fn verdict(result: &Finding, notes: &[String]) -> String {
    let Finding { sentences, table: about } = result;
    let result: String =
        sentences.iter().map(|text| paragraph(text)).chain(about.iter().map(table)).collect();
    let notes = notes.iter().filter(|note| !sentences.contains(note)).map(|note| paragraph(note));
    result + &notes.collect::<String>()
}

fn paragraph(text: &str) -> String {
    format!("<p>{}</p>", escaped(text))
}

/// Small charts under one heading, with a key of their colours.
pub fn grid(title: &str, key: &str, charts: &[Chart]) -> String {
    grid_of("grid", title, key, charts)
}

/// As [`grid`], two charts in a row, below a text, if there is one.
pub fn wide_grid(title: &str, text: Option<&str>, charts: &[Chart]) -> String {
    grid_of("grid wide", title, &text.map(paragraph).unwrap_or_default(), charts)
}

/// As [`grid`], four charts in a row.
pub fn narrow_grid(title: &str, key: &str, charts: &[Chart]) -> String {
    grid_of("grid narrow", title, key, charts)
}

fn grid_of(class: &str, title: &str, key: &str, charts: &[Chart]) -> String {
    let charts: String = charts.iter().map(small).collect();
    format!("<section><h2>{title}</h2>{key}<div class=\"{class}\">{charts}</div></section>")
}

/// What the colours of a section's charts mean.
pub fn key<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let entry = |(name, colour): (&str, &str)| {
        format!("<li><i style=\"background:{colour}\"></i>{}</li>", escaped(name))
    };
    format!("<ul class=\"key\">{}</ul>", entries.map(entry).collect::<String>())
}

/// A single chart.
pub fn section(chart: &Chart) -> String {
    keyed_section("", chart)
}

/// As [`section`], with a key of the colours.
pub fn keyed_section(key: &str, chart: &Chart) -> String {
    let Chart { title, height, .. } = chart;
    format!(
        "<section><h2>{}</h2>{key}<div style=\"height:{height}px\">{}</div></section>",
        escaped(title),
        chart.html()
    )
}

/// A table and sentences, without a chart.
pub fn text_section(title: &str, about: &Table, sentences: &[String]) -> String {
    let paragraphs: String = sentences.iter().map(|text| format!("<p>{}</p>", escaped(text))).collect();
    format!("<section><h2>{}</h2>{}{paragraphs}</section>", escaped(title), table(about))
}

fn small(chart: &Chart) -> String {
    let Chart { title, height, .. } = chart;
    format!("<div><h3>{}</h3><div style=\"height:{height}px\">{}</div></div>", escaped(title), chart.html())
}

/// A table, split into several if it has too many columns for the page.
fn table(table: &Table) -> String {
    let columns: Vec<usize> = (table.keys..table.columns.len()).collect();
    columns.chunks(COLUMNS.saturating_sub(table.keys).max(1)).map(|part| part_of(table, part)).collect()
}

/// A table of the key columns and some of the others.
fn part_of(table: &Table, columns: &[usize]) -> String {
    let shown = || (0..table.keys).chain(columns.iter().copied());
    let classes: Vec<&str> = (0..table.columns.len()).map(|column| class(table, column)).collect();
    let element = |name: &str, column: usize, text: &str| {
        format!("<{name}{}>{}</{name}>", classes[column], escaped(text))
    };
    let head: String = shown().map(|column| element("th", column, &table.columns[column].title)).collect();
    let row = |row: &Vec<Cell>| {
        let cells = shown().map(|column| element("td", column, &row[column].display()));
        format!("<tr>{}</tr>", cells.collect::<String>())
    };
    let body: String = table.rows.iter().map(row).collect();
    format!("<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")
}

/// How a column's heading and cells are aligned and wrapped.
fn class(table: &Table, column: usize) -> &'static str {
    match table.rows.iter().all(|row| row[column].is_number()) {
        true => " class=\"number\"",
        false if column < table.keys => " class=\"key\"",
        false => "",
    }
}

/// The chart library's script, without the formula typesetting bundled with it.
fn library() -> String {
    let sources = Plot::offline_js_sources();
    let end = sources.find("</script>").map_or(sources.len(), |at| at + "</script>".len());
    sources[..end].to_owned()
}

fn escaped(text: &str) -> String {
    plain(text).replace('"', "&quot;")
}

/// A shell-quoted word.
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
    fn chart_library_is_one_complete_script() {
        let library = library();
        assert!(library.starts_with("<script") && library.ends_with("</script>"));
        assert!(library.contains("plotly.js v") && library.len() > 1 << 20);
        assert_eq!(library.matches("<script").count(), 1, "a second script came along");
    }

    #[test]
    fn result_is_first_and_its_notes_are_not_repeated() {
        let notes = ["Two.", "One."].map(str::to_owned);
        let result = Finding { sentences: vec!["One.".to_owned()], table: None };
        assert_eq!(verdict(&result, &notes), "<p>One.</p><p>Two.</p>");
        assert_eq!(verdict(&Finding::default(), &notes), "<p>Two.</p><p>One.</p>");
    }

    #[test]
    fn headings_are_aligned_as_their_columns() {
        let mut all = Table::new("runs", &[("policy", "policy"), ("time_ms", "time, ms"), ("why", "why")]);
        all.rows.push(vec![Cell::text("bw-local"), Cell::Whole(3), Cell::text("none")]);
        let html = table(&all);
        for part in ["<th class=\"key\">", "<td class=\"key\">", "<th class=\"number\">", "<th>why"] {
            assert!(html.contains(part), "{html}");
        }
    }

    #[test]
    fn command_line_is_quoted_and_html_escaped() {
        assert_eq!(quoted("stream:threads=4"), "stream:threads=4");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(escaped("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
