//! The declaration of a parameter.

use std::fmt;

use super::Value;
use crate::machine::check_name;

/// The maximum weight of Linux's weighted interleave.
pub const WEIGHT_MAX: u32 = 255;

/// A parameter of a policy or workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, the `KEY` of `KEY=VALUE`.
    pub name: &'static str,
    /// Unit of its value; empty if none.
    pub unit: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// The values allowed and the default.
    pub kind: Kind,
}

/// The values that a parameter takes, and its default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Integers from `min` to `max`.
    Integer {
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
        /// The default.
        default: u64,
    },
    /// Numbers from `min` to `max`.
    Number {
        /// The smallest value.
        min: f64,
        /// The largest value.
        max: f64,
        /// The default.
        default: f64,
    },
    /// One of these words; the first is the default.
    Word(&'static [&'static str]),
    /// A weight for each tier, fastest first, from 1 to [`WEIGHT_MAX`] each, joined by `:`. The default
    /// depends on the machine; its value is [`Value::Weights`] without any.
    Weights {
        /// The default, in words.
        default: &'static str,
    },
    /// Names of a machine's memory nodes, each once, joined by `:`. The default depends on the machine; its
    /// value is [`Value::Nodes`] without any.
    Nodes {
        /// The default, in words.
        default: &'static str,
    },
}

impl Parameter {
    /// An integer parameter; its `range` is the smallest value, the default and the largest value.
    pub const fn integer(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        range: [u64; 3],
    ) -> Parameter {
        let [min, default, max] = range;
        Parameter { name, unit, help, kind: Kind::Integer { min, max, default } }
    }

    /// A parameter that is any number; its `range` is the smallest value, the default and the largest value.
    pub const fn number(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        range: [f64; 3],
    ) -> Parameter {
        let [min, default, max] = range;
        Parameter { name, unit, help, kind: Kind::Number { min, max, default } }
    }

    /// A parameter that is one of some words, the first by default.
    pub const fn word(name: &'static str, help: &'static str, words: &'static [&'static str]) -> Parameter {
        Parameter { name, unit: "", help, kind: Kind::Word(words) }
    }

    /// The values allowed, in words.
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Integer { min, max, .. } => format!("an integer from {min} to {max}"),
            Kind::Number { min, max, .. } => format!("a number from {min} to {max}"),
            Kind::Word(words) => format!("one of {}", words.join(", ")),
            Kind::Weights { .. } => {
                format!("an integer from 1 to {WEIGHT_MAX} for each tier, fastest first, joined by ':'")
            }
            Kind::Nodes { .. } => "names of memory nodes, each once, joined by ':'".to_owned(),
        }
    }

    /// The default, in words.
    pub fn default(&self) -> String {
        match self.kind {
            Kind::Weights { default } | Kind::Nodes { default } => default.to_owned(),
            _ => self.default_value().to_string(),
        }
    }

    /// The default.
    pub fn default_value(&self) -> Value {
        match self.kind {
            Kind::Integer { default, .. } => Value::Integer(default),
            Kind::Number { default, .. } => Value::Number(default),
            Kind::Word(words) => Value::Word(words[0]),
            Kind::Weights { .. } => Value::Weights(Vec::new()),
            Kind::Nodes { .. } => Value::Nodes(Vec::new()),
        }
    }

    /// The value of a text, if allowed.
    pub fn parse(&self, text: &str) -> Option<Value> {
        match self.kind {
            Kind::Integer { min, max, .. } => {
                text.parse().ok().filter(|value| (min..=max).contains(value)).map(Value::Integer)
            }
            Kind::Number { min, max, .. } => {
                text.parse().ok().filter(|value| (min..=max).contains(value)).map(Value::Number)
            }
            Kind::Word(words) => words.iter().find(|&&word| word == text).map(|&word| Value::Word(word)),
            Kind::Weights { .. } => {
                let weight = |part: &str| part.parse().ok().filter(|value| (1..=WEIGHT_MAX).contains(value));
                text.split(':').map(weight).collect::<Option<_>>().map(Value::Weights)
            }
            Kind::Nodes { .. } => nodes(text).map(Value::Nodes),
        }
    }
}

/// Distinct names joined by `:`.
fn nodes(text: &str) -> Option<Vec<String>> {
    let names: Vec<&str> = text.split(':').collect();
    let distinct = names.iter().enumerate().all(|(at, name)| !names[..at].contains(name));
    let named = names.iter().all(|name| check_name(name).is_ok());
    (distinct && named).then(|| names.into_iter().map(str::to_owned).collect())
}

impl fmt::Display for Parameter {
    /// Name, unit, help, range and default in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" ({})", self.unit) };
        write!(f, "{}{unit}: {}; {}, by default {}", self.name, self.help, self.range(), self.default())
    }
}
