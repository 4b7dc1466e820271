//! `--shard I/N`: a part of a sweep's runs.

use std::str::FromStr;

/// Part `number` of `of`; from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

/// Most parts.
const SHARDS_MAX: usize = 100_000;

impl Default for Shard {
    /// The whole.
    fn default() -> Shard {
        Shard { number: 1, of: 1 }
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers = text.split_once('/').map(|(number, of)| (number.parse().ok(), of.parse().ok()));
        match numbers {
            Some((Some(number), Some(of))) if (1..=of).contains(&number) && of <= SHARDS_MAX => {
                Ok(Shard { number, of })
            }
            _ => Err("expected I/N, I from 1 to N, such as 3/8".to_owned()),
        }
    }
}

impl Shard {
    /// Whether a run is of this part.
    pub fn has(self, run: usize) -> bool {
        run % self.of == self.number - 1
    }

    /// Whether there are others.
    pub fn is_part(self) -> bool {
        self.of > 1
    }

    /// What stands in the name of its file; empty for the whole.
    pub fn suffix(self) -> String {
        match self.of {
            1 => String::new(),
            of => format!(".{}-of-{of}", self.number),
        }
    }

    /// Whether a text is the suffix of some part.
    pub fn is_suffix(text: &str) -> bool {
        let number_of = text.strip_prefix('.').and_then(|numbers| numbers.split_once("-of-"));
        text.is_empty()
            || number_of.is_some_and(|(number, of)| format!("{number}/{of}").parse::<Shard>().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_each_run_once() {
        let shards: Vec<Shard> = (1..=3).map(|number| format!("{number}/3").parse().unwrap()).collect();
        for run in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.has(run)).count(), 1, "run {run}");
        }
        assert!((0..10).all(|run| Shard::default().has(run)));
    }

    #[test]
    fn invalid_shards_are_refused() {
        for text in ["0/3", "4/3", "3", "1/", "/2", "1/0", "-1/2", "1/100001", "1/2/3"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn suffixes_are_recognised() {
        assert!(Shard::is_suffix(&"2/8".parse::<Shard>().unwrap().suffix()));
        assert!(Shard::is_suffix(&Shard::default().suffix()));
        assert!(!Shard::is_suffix(".9-of-8") && !Shard::is_suffix(".old"));
    }
}
