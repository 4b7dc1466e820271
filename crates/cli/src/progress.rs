//! A progress bar with the time left.

use std::io::stderr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

const STEPS: u64 = 10_000;
const QUIET: Duration = Duration::from_secs(1);

/// Maximum width of the bar, in columns.
const BAR: usize = 32;

/// Progress of several concurrent parts, printed on standard error after the first second if that is a
/// terminal.
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    parts: Mutex<Vec<f64>>,
}

impl Progress {
    /// For `parts` parts, without progress yet.
    pub fn new(message: &str, parts: usize) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template(&template(message, output::width_of(stderr())));
        bar.set_style(style.expect("a template without mistakes").progress_chars("=> "));
        bar.set_message(message.to_owned());
        Progress { bar, started: Instant::now(), parts: Mutex::new(vec![0.0; parts]) }
    }

    /// Sets a part's progress, from 0 to 1.
    pub fn set(&self, part: usize, share: f64) {
        let mut parts = self.parts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        parts[part] = share;
        let all = parts.iter().sum::<f64>() / parts.len() as f64;
        if self.bar.is_hidden() && self.started.elapsed() > QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position((all * STEPS as f64) as u64);
    }
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
    fn progress_fits_the_terminals_width() {
        let bar = |columns: usize| {
            let template = template("simulating", Some(columns));
            let width = template.split("{bar:").nth(1).and_then(|rest| rest.split('}').next());
            width.map(|width| width.parse::<usize>().expect("a width"))
        };
        assert_eq!([bar(200), bar(80), bar(40), bar(20)], [Some(32), Some(32), Some(10), None]);
    }
}
