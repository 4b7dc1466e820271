//! Recent errors.

use std::collections::VecDeque;

use memtide_core::Time;

/// Number of errors kept.
const MOST: usize = 8;

/// Errors, oldest first, each once, with the time of the last occurrence.
#[derive(Debug, Default)]
pub struct Troubles(VecDeque<(Time, String)>);

impl Troubles {
    /// Records an error; returns whether it is new.
    pub fn add(&mut self, now: Time, what: &str) -> bool {
        let known = self.0.iter().position(|(_, known)| known == what).and_then(|at| self.0.remove(at));
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((now, what.to_owned()));
        known.is_none()
    }

    /// Forgets errors with this prefix.
    pub fn forget(&mut self, begin: &str) {
        self.0.retain(|(_, what)| !what.starts_with(begin));
    }

    /// Each error with its time.
    pub fn iter(&self) -> impl Iterator<Item = (Time, &str)> {
        self.0.iter().map(|(time, what)| (*time, what.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_errors_are_kept_with_their_last_time() {
        let mut troubles = Troubles::default();
        for number in 0..10 {
            assert!(troubles.add(Time(number), &format!("trouble {number}")));
        }
        assert!(!troubles.add(Time(10), "trouble 5"));
        let kept: Vec<_> = troubles.iter().map(|(time, what)| format!("{} {what}", time.0)).collect();
        assert_eq!((kept.len(), kept[0].as_str(), kept[7].as_str()), (8, "2 trouble 2", "10 trouble 5"));
        troubles.forget("trouble 5");
        assert_eq!(troubles.iter().count(), 7);
        assert!(troubles.add(Time(11), "trouble 5"));
    }
}
