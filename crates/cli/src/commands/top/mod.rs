//! `memtide top`.

mod screen;
mod share;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Read, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueHint;
use memtide_daemon::control::Request;
use memtide_daemon::journal::statuses::statuses;
use memtide_daemon::status::Status;
use memtide_linux::input;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::screen::{Order, Screen};
use super::daemon::request_data;
use crate::failure::Failure;
use crate::{interrupt, output};

/// Time between two looks at the keyboard.
const POLL: Duration = Duration::from_millis(50);

/// Maximum number of statuses that are kept of a running daemon.
const KEPT_MAX: usize = 3600;

/// Width of text where the terminal's is not known.
const COLUMNS: u16 = 80;

/// Long help.
pub const ABOUT: &str = "\
Show a daemon's nodes, processes and moves as they change

Of a running daemon, or of a journal, epoch by epoch.

  q             end
  space         stop, continue
  left, right   a status back, ahead
  home, end     the first status, the last one
  s             sort processes by size, pages moved or slow accesses

Without a terminal, or with --once, one screen is printed as text.";

/// Its arguments.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Control socket [default: see `memtide daemon --help`]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "journal")]
    socket: Option<PathBuf>,
    /// Show a journal; with --once its last epoch
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    journal: Option<PathBuf>,
    /// Time between two statuses, in s
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// Print one screen as text
    #[arg(long)]
    once: bool,
    /// Width of that text, in columns [default: the terminal's, or 80]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(60..=1000))]
    width: Option<u16>,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("expected 0.1 to 3600 seconds".to_owned())
    }
}

/// Shows the screen until the user ends it.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut top = Top::new(arguments)?;
    if arguments.is_text() {
        let known = terminal_size::terminal_size().map(|(width, _)| width.0.max(60));
        let width = arguments.width.or(known).unwrap_or(COLUMNS);
        return output::print(&screen::text(&top.screen(), width));
    }
    interrupt::install()?;
    let mut terminal = ratatui::try_init().map_err(|error| Failure::Run(format!("terminal: {error}")))?;
    let ended = top.show(&mut terminal);
    ratatui::restore();
    ended
}

impl Arguments {
    fn is_text(&self) -> bool {
        self.once || !stdout().is_terminal()
    }
}

/// Where statuses come from.
enum Source {
    /// A running daemon, at this socket or the default one.
    Daemon(Option<PathBuf>),
    /// A journal, which is read.
    Journal,
}

/// What is shown.
struct Top {
    source: Source,
    interval: Duration,
    /// Oldest first, never empty.
    statuses: Vec<Status>,
    /// The one that is shown.
    at: usize,
    is_stopped: bool,
    order: Order,
    /// Why there is no newer one.
    error: Option<String>,
}

impl Top {
    fn new(arguments: &Arguments) -> Result<Top, Failure> {
        let (source, statuses) = match &arguments.journal {
            Some(file) => (Source::Journal, read(file)?),
            None => (Source::Daemon(arguments.socket.clone()), vec![ask(arguments.socket.as_deref())?]),
        };
        let at = if arguments.is_text() { statuses.len() - 1 } else { 0 };
        let interval = Duration::from_secs_f64(arguments.interval);
        let order = Order::Resident;
        Ok(Top { source, interval, statuses, at, is_stopped: false, order, error: None })
    }

    fn screen(&self) -> Screen<'_> {
        Screen {
            shown: &self.statuses[..=self.at],
            newer: self.statuses.len() - 1 - self.at,
            is_live: matches!(self.source, Source::Daemon(_)),
            is_stopped: self.is_stopped,
            order: self.order,
            error: self.error.as_deref(),
        }
    }

    fn show(&mut self, terminal: &mut DefaultTerminal) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::Run(format!("terminal: {error}"));
        let (mut due, mut is_new) = (Instant::now() + self.interval, true);
        loop {
            if is_new {
                terminal.draw(|frame| self.screen().draw(frame)).map_err(failed)?;
            }
            interrupt::check()?;
            is_new = event::poll(POLL).map_err(failed)?;
            if is_new && let Event::Key(key) = event::read().map_err(failed)? {
                match key.kind {
                    KeyEventKind::Press | KeyEventKind::Repeat if self.is_end(key) => return Ok(()),
                    _ => {}
                }
            }
            if Instant::now() >= due {
                due = Instant::now() + self.interval;
                self.advance();
                is_new = true;
            }
        }
    }

    /// Acts on a key; returns whether it ends the show.
    fn is_end(&mut self, key: KeyEvent) -> bool {
        let last = self.statuses.len() - 1;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char(' ') => self.is_stopped = !self.is_stopped,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Left => (self.at, self.is_stopped) = (self.at.saturating_sub(1), true),
            KeyCode::Right => (self.at, self.is_stopped) = ((self.at + 1).min(last), true),
            KeyCode::Home => (self.at, self.is_stopped) = (0, true),
            KeyCode::End => (self.at, self.is_stopped) = (last, false),
            _ => {}
        }
        false
    }

    /// Takes the next status, and shows it unless it is stopped.
    fn advance(&mut self) {
        if let Source::Daemon(socket) = &self.source {
            match ask(socket.as_deref()) {
                Ok(status) => {
                    self.statuses.push(status);
                    self.error = None;
                }
                Err(failure) => self.error = Some(failure.to_string()),
            }
            if self.statuses.len() > KEPT_MAX {
                self.statuses.remove(0);
                self.at = self.at.saturating_sub(1);
            }
        }
        if !self.is_stopped {
            let last = self.statuses.len() - 1;
            self.at = match self.source {
                Source::Daemon(_) => last,
                Source::Journal => (self.at + 1).min(last),
            };
        }
    }
}

fn ask(socket: Option<&Path>) -> Result<Status, Failure> {
    request_data(socket, &Request::Status)
}

fn read(file: &Path) -> Result<Vec<Status>, Failure> {
    let name = file.display().to_string();
    let mut bytes = Vec::new();
    input::open(file)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| Failure::unreadable(&name, &error))?;
    interrupt::interruptible(move || statuses(&bytes).map_err(|why| Failure::Input(format!("{name}: {why}"))))
}
