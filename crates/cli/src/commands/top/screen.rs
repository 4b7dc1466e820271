//! The screen: a title, nodes, accesses over time, processes, moves.

use memtide_daemon::status::{NodeStatus, RecentMoves, Status, WatchedProcess};
use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table, Wrap};

use super::share;
use crate::tables::daemon::{served, why_nothing_moves};

/// Columns from which on moves are beside processes.
const WIDE: u16 = 150;

/// Columns of moves beside processes.
const MOVES_WIDTH: u16 = 78;

/// Columns of a bar.
const BAR: usize = 10;

/// Columns of nodes that a narrow screen leaves out, the first ones first: used, tier, in and out.
const DROPPED: [&[usize]; 3] = [&[4], &[1], &[5, 6]];

/// Minimum lines of moves.
const MOVES_LINES: u16 = 6;

/// Maximum moves in a text, and lines of it.
const TEXT_MOVES: usize = 20;
const TEXT_LINES_MAX: u16 = 400;

/// Lines of a narrow screen beside those of nodes, processes and moves.
const OTHER_LINES: usize = 11;

/// How processes are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By resident size.
    Resident,
    /// By pages moved.
    Moved,
    /// By share of accesses on slow memory.
    Slow,
}

impl Order {
    /// The next one.
    pub fn next(self) -> Order {
        match self {
            Order::Resident => Order::Moved,
            Order::Moved => Order::Slow,
            Order::Slow => Order::Resident,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Resident => "resident size",
            Order::Moved => "pages moved",
            Order::Slow => "accesses on slow memory",
        }
    }
}

/// What the screen shows.
pub struct Screen<'s> {
    /// The statuses until the one that is shown.
    pub shown: &'s [Status],
    /// Number of statuses after it.
    pub newer: usize,
    /// Whether the daemon runs.
    pub is_live: bool,
    /// Whether the user stopped it.
    pub is_stopped: bool,
    /// How processes are sorted.
    pub order: Order,
    /// Why there is no newer status.
    pub error: Option<&'s str>,
}

/// The screen as text, as high as it needs to be.
pub fn text(screen: &Screen<'_>, width: u16) -> String {
    let status = screen.status();
    let moves = (status.recent.len().min(TEXT_MOVES) + 2).max(usize::from(MOVES_LINES));
    let lines = status.nodes.len() + status.processes.len() + moves + OTHER_LINES;
    let height = rows(lines).min(TEXT_LINES_MAX);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory for a screen");
    terminal.draw(|frame| screen.draw(frame)).expect("memory for a screen");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    let mut lines: Vec<String> = (0..height).map(line).collect();
    // The last one is of keys.
    lines.pop();
    let empty = lines.iter().rev().take_while(|line| line.is_empty()).count();
    lines.truncate(lines.len() - empty);
    lines.join("\n") + "\n"
}

impl Screen<'_> {
    fn status(&self) -> &Status {
        self.shown.last().expect("at least one status")
    }

    /// Draws it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let nodes = rows(self.status().nodes.len()).saturating_add(1);
        let title_text = Paragraph::new(self.title()).wrap(Wrap { trim: true });
        let [title, node_rows, _, accesses, rest, keys] = Layout::vertical([
            Constraint::Length(self.title_lines(frame.area().width)),
            Constraint::Length(nodes),
            Constraint::Length(1),
            Constraint::Length(3),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(title_text, title);
        frame.render_widget(self.nodes(node_rows.width), node_rows);
        self.accesses(frame, accesses);
        let [processes, moves] = if rest.width >= WIDE {
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(MOVES_WIDTH)]).spacing(2).areas(rest)
        } else {
            let lines = rows(self.status().processes.len()).saturating_add(3);
            let most = rest.height.saturating_sub(MOVES_LINES).max(3);
            Layout::vertical([Constraint::Length(lines.min(most)), Constraint::Fill(1)]).areas(rest)
        };
        self.processes(frame, processes);
        self.moves(frame, moves);
        frame.render_widget(Paragraph::new(self.keys()), keys);
    }

    fn title(&self) -> Vec<Line<'_>> {
        let status = self.status();
        let mut first = vec![Span::from("memtide top").bold(), Span::from(format!("  {}", status.policy))];
        first.extend(status.monitor.as_ref().map(|monitor| Span::from(format!(", {monitor}"))));
        first.push(Span::from(format!(", epoch {}, {:.0} s", status.epochs, status.uptime_s)));
        let states =
            [(status.paused, "paused"), (status.dry_run, "dry run"), (self.is_stopped, "stopped here")];
        for (_, state) in states.into_iter().filter(|(holds, _)| *holds) {
            first.push(Span::styled(format!("  {state}"), Color::Yellow));
        }
        if self.newer > 0 {
            first.push(Span::from(format!("  {} newer", self.newer)));
        }
        let second = match self.error {
            Some(error) => Line::styled(error.to_owned(), Color::Red),
            None => Line::from(why_nothing_moves(status).unwrap_or_default()),
        };
        vec![Line::from(first), second]
    }

    /// Lines of the title: a long reason takes several.
    fn title_lines(&self, width: u16) -> u16 {
        let second = self.title()[1].width();
        1 + rows(second.div_ceil(usize::from(width).saturating_sub(8).max(1)).max(1)).min(4)
    }

    fn nodes(&self, width: u16) -> Table<'_> {
        let status = self.status();
        let head = [
            "node",
            "tier",
            "memory, MiB",
            "free, MiB",
            "used",
            "in, MB/s",
            "out, MB/s",
            "reads, MB/s",
            "writes, MB/s",
            "accesses, %",
        ];
        let has_traffic = status.nodes.iter().any(|node| node.traffic_mbps.is_some());
        let shown = |column: &usize| has_traffic || !(7..9).contains(column);
        let mut columns: Vec<usize> = (0..head.len()).filter(shown).collect();
        let name = status.nodes.iter().map(|node| node.name.len()).max().unwrap_or(4).clamp(4, 15);
        let width_of = |column: usize| match column {
            0 => rows(name),
            4 => rows(BAR),
            _ => rows(head[column].len()),
        };
        for dropped in DROPPED {
            if columns.iter().map(|&column| width_of(column) + 1).sum::<u16>() > width + 1 {
                columns.retain(|column| !dropped.contains(column));
            }
        }
        let widths: Vec<Constraint> =
            columns.iter().map(|&column| Constraint::Length(width_of(column))).collect();
        let rows = status.nodes.iter().map(|node| {
            let cells = self.node(node);
            Row::new(columns.iter().map(|&column| cells[column].clone()).collect::<Vec<_>>())
        });
        let titles = columns.iter().map(|&column| title_cell(head[column], column != 0 && column != 4));
        Table::new(rows, widths).header(Row::new(titles)).column_spacing(1)
    }

    fn node<'n>(&self, node: &NodeStatus) -> [Cell<'n>; 10] {
        let status = self.status();
        let (now_in, now_out) = share::moved(status, node);
        let before = self.shown.len().checked_sub(2).map(|at| &self.shown[at]);
        let rate = |now: u64, of: fn((u64, u64)) -> u64| {
            let before = before?;
            share::rate_mbps((before, of(share::moved(before, node))), (status, now))
        };
        let used = node.memory.map(|(all, free)| all.saturating_sub(free) as f64 / all.max(1) as f64);
        [
            Cell::from(node.name.clone()),
            number(Some(node.tier as f64), 0),
            number(node.memory.map(|(all, _)| all as f64), 0),
            number(node.memory.map(|(_, free)| free as f64), 0),
            Cell::from(used.map_or_else(String::new, bar)),
            number(rate(now_in, |(to, _)| to), 1),
            number(rate(now_out, |(_, from)| from), 1),
            number(node.traffic_mbps.map(|(reads, _)| reads), 0),
            number(node.traffic_mbps.map(|(_, writes)| writes), 0),
            number(node.accesses_percent, 1),
        ]
    }

    /// The share of accesses on the fastest tier over time.
    fn accesses(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(now) = served(self.status()) else {
            let why = self.status().sensors.iter().find(|(name, _)| name == "access-samples");
            let why = why.map_or("the policy requests none", |(_, answer)| answer.parts().1);
            let text = format!("accesses on the fastest tier: no samples ({why})");
            return frame.render_widget(Paragraph::new(text), area);
        };
        let [title, line] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        // Another run of the daemon begins where the time falls.
        let run = self.shown.windows(2).rposition(|pair| pair[1].uptime_s < pair[0].uptime_s);
        let first = self.shown.len().saturating_sub(usize::from(line.width)).max(run.map_or(0, |at| at + 1));
        let shown = &self.shown[first..];
        let seconds = self.status().uptime_s - shown[0].uptime_s;
        let text = format!("accesses on the fastest tier: {now:.1} %; the last {seconds:.0} s, 0 to 100 %:");
        frame.render_widget(Paragraph::new(text), title);
        let shares: Vec<u64> =
            shown.iter().map(|status| served(status).map_or(0, |percent| percent.round() as u64)).collect();
        let style = Style::new().fg(Color::Cyan);
        frame.render_widget(Sparkline::default().data(&shares).max(100).style(style), line);
    }

    fn processes(&self, frame: &mut Frame<'_>, area: Rect) {
        let status = self.status();
        let mut all: Vec<&WatchedProcess> = status.processes.iter().collect();
        let slow =
            |process: &WatchedProcess| share::fast_of(status, process).map_or(-1.0, |fast| 100.0 - fast);
        all.sort_by(|a, b| {
            let by = match self.order {
                Order::Resident => b.resident_mib.cmp(&a.resident_mib),
                Order::Moved => b.moved_pages.cmp(&a.moved_pages),
                Order::Slow => slow(b).total_cmp(&slow(a)),
            };
            by.then(a.pid.cmp(&b.pid))
        });
        let processes = if all.len() == 1 { "process" } else { "processes" };
        let title = format!("{} {processes}, by {} ", all.len(), self.order.name());
        let head = ["process", "name", "resident, MiB", "fast pages, %", "fast accesses, %", "moved, MB"];
        let widths = [8, 15, 13, 13, 16, 9].map(Constraint::Length);
        let rows = all.into_iter().map(|process| {
            Row::new([
                Cell::from(process.pid.to_string()),
                Cell::from(process.name.clone()),
                number(Some(process.resident_mib as f64), 0),
                number(share::pages_of(status, process), 1),
                number(share::fast_of(status, process), 1),
                number(Some(share::megabytes(process.moved_pages)), 1),
            ])
        });
        let titles = head.into_iter().enumerate().map(|(column, text)| title_cell(text, column > 1));
        let table = Table::new(rows, widths).header(Row::new(titles)).column_spacing(1);
        frame.render_widget(table.block(block(title)), area);
    }

    fn moves(&self, frame: &mut Frame<'_>, area: Rect) {
        let head = ["s ago", "process", "name", "from", "to", "pages", "reason", "not made"];
        let widths = [5, 7, 13, 8, 8, 7, 11, 12].map(Constraint::Length);
        let rows = self.status().recent.iter().map(|moves: &RecentMoves| {
            let row = Row::new([
                number(Some(moves.seconds_ago), 0),
                Cell::from(moves.pid.to_string()),
                Cell::from(moves.name.clone()),
                Cell::from(moves.from.clone()),
                Cell::from(moves.to.clone()),
                number(Some(moves.pages as f64), 0),
                Cell::from(moves.reason.clone()),
                Cell::from(moves.refused.clone().unwrap_or_default()),
            ]);
            if moves.refused.is_some() { row.style(Style::new().fg(Color::Yellow)) } else { row }
        });
        let titles = head.into_iter().enumerate().map(|(at, text)| title_cell(text, at == 0 || at == 5));
        let table = Table::new(rows, widths).header(Row::new(titles)).column_spacing(1);
        frame.render_widget(table.block(block("last moves, pages of 4 KiB ".to_owned())), area);
    }

    fn keys(&self) -> Line<'static> {
        let step = if self.is_live { "earlier, later" } else { "an epoch back, ahead" };
        let text = format!("q end  space stop, continue  ← → {step}  Home End  s sort");
        Line::from(text).dim()
    }
}

/// A number of rows or columns.
fn rows(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn block(title: String) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(title)
}

fn title_cell(text: &str, is_number: bool) -> Cell<'_> {
    let line = Line::from(text).bold();
    Cell::from(if is_number { line.right_aligned() } else { line })
}

fn number<'c>(value: Option<f64>, digits: usize) -> Cell<'c> {
    let text = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
    Cell::from(Line::from(text).right_aligned())
}

/// A bar of a share from 0 to 1.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    "█".repeat(full) + &"░".repeat(BAR - full)
}
