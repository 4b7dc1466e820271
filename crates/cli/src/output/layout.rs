//! Layout of tables and paragraphs within the terminal's width.

use std::os::fd::AsFd;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

use super::cell::Cell;
use super::table::Table;

/// Blanks between two columns.
const GAP: u16 = 2;

/// Width below which words are not wrapped for a table to fit.
const WORDS: usize = 16;

/// Width of a stream: `COLUMNS`, or the terminal's width; `None` (unlimited) if not a terminal.
pub fn width_of(stream: impl AsFd) -> Option<usize> {
    let columns =
        std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).filter(|&columns| columns > 0);
    columns.or_else(|| terminal_size::terminal_size_of(stream).map(|(width, _)| width.0.into()))
}

/// A table, split into several blocks if wider than `width`. Every block starts with the key columns.
pub fn table(table: &Table, width: Option<usize>) -> String {
    if table.vertical {
        return table.rows.iter().map(|row| vertical(table, row, width)).collect::<Vec<_>>().join("\n");
    }
    let blocks = blocks(table, width.unwrap_or(usize::MAX));
    blocks.iter().map(|columns| block(table, columns, width)).collect::<Vec<_>>().join("\n")
}

/// A paragraph, wrapped between words, but never in a command between backquotes. Lines indented by four
/// spaces stay unchanged.
pub fn paragraph(text: &str, width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX);
    text.lines()
        .map(|line| if line.starts_with("    ") { line.to_owned() + "\n" } else { wrapped(line, width) })
        .collect()
}

fn wrapped(line: &str, width: usize) -> String {
    let (mut text, mut used) = (String::new(), 0);
    for word in words(line) {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            text.push('\n');
            used = 0;
        }
        if used > 0 {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += length;
    }
    text + "\n"
}

/// Unbreakable units: words, and text between backquotes with adjoining characters.
fn words(line: &str) -> Vec<&str> {
    let (mut found, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        quoted ^= c == '`';
        if c == ' ' && !quoted {
            found.push(&line[start..at]);
            start = at + 1;
        }
    }
    found.push(&line[start..]);
    found.retain(|word| !word.is_empty());
    found
}

fn empty(width: Option<usize>) -> comfy_table::Table {
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(presets::NOTHING);
    match width.and_then(|width| u16::try_from(width).ok()) {
        Some(width) => drawn.set_width(width).set_content_arrangement(ContentArrangement::Dynamic),
        None => drawn.set_content_arrangement(ContentArrangement::Disabled),
    };
    drawn
}

/// Non-breaking space.
const JOINT: char = '\u{a0}';

/// A cell's text with each command between backquotes joined to one word.
fn joined(text: &str) -> String {
    if !text.contains('`') {
        return text.to_owned();
    }
    words(text)
        .iter()
        .map(|word| word.replace(' ', JOINT.encode_utf8(&mut [0; 4])))
        .collect::<Vec<_>>()
        .join(" ")
}

fn trimmed(drawn: &comfy_table::Table) -> String {
    drawn.lines().map(|line| line.replace(JOINT, " ").trim_end().to_owned() + "\n").collect()
}

/// Width of a column if nothing is wrapped.
fn full_width(table: &Table, column: usize) -> usize {
    let cells = table.rows.iter().map(|row| row[column].display().chars().count());
    cells.chain([table.columns[column].title.chars().count()]).max().unwrap_or(0)
}

/// Minimum width of a column without breaking words.
fn longest_word(table: &Table, column: usize) -> usize {
    let longest = |text: &str| words(text).iter().map(|word| word.chars().count()).max().unwrap_or(0);
    let cells = table.rows.iter().map(|row| longest(&row[column].display()));
    cells.chain([longest(&table.columns[column].title)]).max().unwrap_or(0)
}

fn is_figures(table: &Table, column: usize) -> bool {
    !table.rows.is_empty() && table.rows.iter().all(|row| row[column].is_number())
}

/// The columns of each block.
fn blocks(table: &Table, width: usize) -> Vec<Vec<usize>> {
    let least = |column: usize| match full_width(table, column) {
        full if column < table.keys || is_figures(table, column) => full,
        full => full.min(longest_word(table, column).max(WORDS)),
    };
    let keys: Vec<usize> = (0..table.keys).collect();
    let of_keys: usize = keys.iter().map(|&key| least(key) + usize::from(GAP)).sum();
    let (mut blocks, mut used) = (vec![keys.clone()], of_keys);
    for column in table.keys..table.columns.len() {
        let block = blocks.last_mut().expect("there is always one");
        if used + least(column) > width && block.len() > keys.len() {
            blocks.push(keys.iter().copied().chain([column]).collect());
            used = of_keys;
        } else {
            block.push(column);
        }
        used += least(column) + usize::from(GAP);
    }
    blocks
}

fn block(table: &Table, columns: &[usize], width: Option<usize>) -> String {
    let full = columns.iter().map(|&column| full_width(table, column) + usize::from(GAP)).sum::<usize>();
    // The last column needs no gap.
    let width = width.map(|width| width + usize::from(GAP)).filter(|&width| full > width);
    let mut drawn = empty(width);
    drawn.set_header(columns.iter().map(|&column| &table.columns[column].title));
    for row in &table.rows {
        drawn.add_row(columns.iter().map(|&column| joined(&row[column].display())));
    }
    for (at, &index) in columns.iter().enumerate() {
        let column = drawn.column_mut(at).expect("a column of this table");
        column.set_padding((0, GAP));
        let figures = is_figures(table, index);
        if figures {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let whole = index < table.keys && width.is_some_and(|width| full_width(table, index) < width / 2);
        if width.is_some() && (figures || whole) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        } else if let Some(least) = width.and_then(|_| u16::try_from(longest_word(table, index)).ok()) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least + GAP)));
        }
    }
    trimmed(&drawn)
}

/// A row as one line per nonblank cell.
fn vertical(table: &Table, row: &[Cell], width: Option<usize>) -> String {
    let lines = table.columns.iter().zip(row).filter(|(_, cell)| !cell.is_blank());
    let lines: Vec<[String; 2]> =
        lines.map(|(column, cell)| [column.title.clone(), joined(&cell.display())]).collect();
    let longest =
        lines.iter().flat_map(|line| words(&line[1])).map(|word| word.chars().count()).max().unwrap_or(0);
    let widest = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let (titles, full) = (widest(0), widest(0) + usize::from(GAP) + widest(1));
    let mut drawn = empty(width.filter(|&width| full > width));
    drawn.add_rows(lines);
    for column in drawn.column_iter_mut() {
        column.set_padding((0, 0));
    }
    if let Some(column) = drawn.column_mut(0).filter(|_| titles > 0) {
        column.set_padding((0, GAP)).set_constraint(ColumnConstraint::ContentWidth);
    }
    if let (Some(column), Ok(least)) = (drawn.column_mut(1), u16::try_from(longest)) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
    }
    trimmed(&drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide() -> Table {
        let mut table = Table::new("rows", &[("name", "name"), ("text", "what it is"), ("n", "a number")]);
        table.column("m", "another number");
        let words = "words that may stand in several lines below each other";
        for n in [1, 20_000] {
            table.rows.push(vec![Cell::text("row"), Cell::text(words), Cell::Whole(n), Cell::Whole(n)]);
        }
        table
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn table_that_fits_is_one_block() {
        assert_eq!(table(&wide(), None).lines().count(), 3);
        let whole = widest(&table(&wide(), None));
        assert_eq!(table(&wide(), Some(whole)), table(&wide(), None));
        assert_ne!(table(&wide(), Some(whole - 1)), table(&wide(), None));
    }

    #[test]
    fn wide_table_keeps_to_the_width_and_loses_nothing() {
        for width in [40, 48, 60, 80] {
            let text = table(&wide(), Some(width));
            assert!(widest(&text) <= width, "{width}:\n{text}");
            let words: Vec<&str> = text.split_whitespace().collect();
            for word in ["another", "several", "20000"] {
                assert!(words.contains(&word), "{width}: {word}\n{text}");
            }
            assert_eq!(words.iter().filter(|&&word| word == "20000").count(), 2, "{width}:\n{text}");
        }
        let blocks = table(&wide(), Some(40));
        assert_eq!(blocks.matches("name").count(), 2, "each block says what its rows are about:\n{blocks}");
    }

    #[test]
    fn vertical_row_has_a_line_per_nonblank_column() {
        let mut wide = wide();
        wide.rows = vec![vec![Cell::text("row"), Cell::text("words in lines"), Cell::Absent, Cell::Whole(7)]];
        let wide = wide.vertical();
        let whole = "name            row\nwhat it is      words in lines\nanother number  7\n";
        assert_eq!(table(&wide, None), whole);
        let narrow = table(&wide, Some(24));
        assert!(widest(&narrow) <= 24 && narrow.contains("another number  7\n"), "{narrow}");
    }

    #[test]
    fn paragraph_breaks_between_words() {
        let text = "one two three four";
        assert_eq!(paragraph(text, Some(9)), "one two\nthree\nfour\n");
        assert_eq!(paragraph(text, Some(18)), "one two three four\n");
        assert_eq!(paragraph(text, None), "one two three four\n");
    }

    #[test]
    fn commands_and_words_are_never_broken() {
        let text = "first run `memtide measure -o json > measured.json`, then go on";
        assert_eq!(
            paragraph(text, Some(20)),
            "first run\n`memtide measure -o json > measured.json`,\nthen go on\n"
        );
        let long = "a\n    memtide topo -o machine --measured measured.json > host.toml";
        assert_eq!(paragraph(long, Some(20)), format!("{long}\n"));
        let mut table = Table::new("rows", &[("name", "name"), ("text", "text"), ("more", "more")]);
        let path = "`echo off > /sys/kernel/mm/damon/state`";
        table.rows.push(vec![
            Cell::text("row"),
            Cell::text(format!("see {path} there")),
            Cell::text("some words more"),
        ]);
        for width in [30, 40, 60] {
            let drawn = super::table(&table, Some(width));
            assert!(drawn.contains(path), "{width}:\n{drawn}");
        }
    }
}
