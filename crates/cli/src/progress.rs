//! A progress bar with the time left.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::{self, print_to_stderr};

const STEPS: u64 = 10_000;
const QUIET: Duration = Duration::from_secs(1);

/// Time between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(60);

/// Maximum width of the bar, in columns.
const BAR: usize = 32;

/// Progress of several concurrent parts on standard error: on a terminal a bar after the first second,
/// otherwise a line a minute.
pub struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    started: Instant,
    state: Mutex<State>,
}

struct State {
    /// Progress of each part, from 0 to 1.
    parts: Vec<f64>,
    /// When the last line was printed.
    printed: Instant,
}

impl Progress {
    /// For `parts` parts, without progress yet.
    pub fn new(message: &str, parts: usize) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template(&template(message, output::width_of(stderr())));
        bar.set_style(style.expect("a template without mistakes").progress_chars("=> "));
        bar.set_message(message.to_owned());
        let started = Instant::now();
        let state = Mutex::new(State { parts: vec![0.0; parts], printed: started });
        Progress { bar, is_terminal: stderr().is_terminal(), started, state }
    }

    /// Sets a part's progress, from 0 to 1.
    pub fn set(&self, part: usize, share: f64) {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.parts[part] = share;
        let all = state.parts.iter().sum::<f64>() / state.parts.len() as f64;
        if !self.is_terminal {
            if state.printed.elapsed() >= LINES {
                state.printed = Instant::now();
                print_to_stderr(&line(&self.bar.message(), all, self.started.elapsed()));
            }
            return;
        }
        if self.bar.is_hidden() && self.started.elapsed() > QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position((all * STEPS as f64) as u64);
    }
}

/// A line with the time left, as far as progress is even.
fn line(message: &str, share: f64, elapsed: Duration) -> String {
    let percent = (share * 100.0).floor();
    if percent < 1.0 {
        return format!("memtide: {message}: 0 %\n");
    }
    let left = elapsed.mul_f64((1.0 / share - 1.0).max(0.0));
    format!("memtide: {message}: {percent} %, {} left\n", HumanDuration(left))
}

/// One line of the terminal: longer lines cannot be overwritten.
fn template(message: &str, columns: Option<usize>) -> String {
    let rest = message.len() + " [] 100 %, 59m left".len();
    match columns.map_or(BAR, |columns| columns.saturating_sub(rest + 1).min(BAR)) {
        0..4 => "{percent:>3} %, {eta} left".to_owned(),
        bar => format!("{{msg}} [{{bar:{bar}}}] {{percent:>3}} %, {{eta}} left"),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_the_time_left() {
        let after = |share| line("simulating", share, Duration::from_secs(60));
        assert_eq!(after(0.25), "memtide: simulating: 25 %, 3 minutes left\n");
        assert_eq!(after(0.009), "memtide: simulating: 0 %\n");
        assert_eq!(after(1.000001), "memtide: simulating: 100 %, 0 seconds left\n");
    }

    #[test]
    fn progress_fits_the_terminals_width() {
        let bar = |columns: usize| {
            let template = template("simulating", Some(columns));
            let width = template.split("{bar:").nth(1).and_then(|rest| rest.split('}').next());
            width.map(|width| width.parse::<usize>().expect("a width"))
        };
        assert_eq!([bar(200), bar(80), bar(40), bar(20)], [Some(32), Some(32), Some(10), None]);
    }
}
