//! Parameters of policies: what they are called, what they may be, and what was given.

use std::fmt;

/// A parameter of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// What it is called in `NAME=VALUE`.
    pub name: &'static str,
    /// Unit of its value; empty if it has none.
    pub unit: &'static str,
    /// What it may be and what it is by default.
    pub kind: Kind,
    /// What it does, in one line.
    pub help: &'static str,
}

/// What a parameter may be and what it is by default.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number.
    Whole {
        /// Least.
        min: u32,
        /// Largest.
        max: u32,
        /// By default.
        default: u32,
    },
    /// A number.
    Real {
        /// Least.
        min: f64,
        /// Largest.
        max: f64,
        /// By default.
        default: f64,
    },
    /// One of some words; the first by default.
    Word(&'static [&'static str]),
    /// A weight for each tier, fastest first, 1 to 255 each (what a node may have in
    /// Linux), joined by `:`.
    Weights {
        /// In words.
        default: &'static str,
    },
}

/// The largest weight of a node that Linux's weighted interleave takes.
pub(crate) const WEIGHT_MAX: u32 = 255;

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Whole(u32),
    Real(f64),
    Word(&'static str),
    Weights(Vec<u32>),
}

/// Values for all parameters of a policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Values(Vec<(&'static str, Value)>);

impl Parameter {
    /// What is allowed, in words.
    pub fn range(&self) -> String {
        match self.kind {
            Kind::Whole { min, max, .. } => format!("a whole number from {min} to {max}"),
            Kind::Real { min, max, .. } => format!("a number from {min} to {max}"),
            Kind::Word(words) => words.join(" or "),
            Kind::Weights { .. } => {
                format!("a whole number from 1 to {WEIGHT_MAX} for each tier, fastest first, joined by `:`")
            }
        }
    }

    /// The default, in words.
    pub fn default(&self) -> String {
        match self.kind {
            Kind::Whole { default, .. } => default.to_string(),
            Kind::Real { default, .. } => default.to_string(),
            Kind::Word(words) => words[0].to_owned(),
            Kind::Weights { default } => default.to_owned(),
        }
    }

    fn value(&self, text: &str) -> Option<Value> {
        match self.kind {
            Kind::Whole { min, max, .. } => {
                text.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Whole)
            }
            Kind::Real { min, max, .. } => {
                text.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Real)
            }
            Kind::Word(words) => words.iter().find(|&&word| word == text).map(|&word| Value::Word(word)),
            Kind::Weights { .. } => {
                let weight = |part: &str| part.parse().ok().filter(|v| (1..=WEIGHT_MAX).contains(v));
                text.split(':').map(weight).collect::<Option<_>>().map(Value::Weights)
            }
        }
    }

    fn default_value(&self) -> Value {
        match self.kind {
            Kind::Whole { default, .. } => Value::Whole(default),
            Kind::Real { default, .. } => Value::Real(default),
            Kind::Word(words) => Value::Word(words[0]),
            Kind::Weights { .. } => Value::Weights(Vec::new()),
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" ({})", self.unit) };
        write!(f, "{}{unit}: {}; {}, by default {}", self.name, self.help, self.range(), self.default())
    }
}

impl Values {
    /// Reads `NAME=VALUE` parts, defaults for what is not named.
    ///
    /// # Errors
    /// In words, with what is allowed.
    pub(crate) fn parse(parameters: &'static [Parameter], parts: &[String]) -> Result<Values, String> {
        let mut given: Vec<(&'static str, Value)> = Vec::new();
        for part in parts {
            let (name, text) = part.split_once('=').ok_or_else(|| format!("`{part}` is not NAME=VALUE"))?;
            let parameter =
                parameters.iter().find(|p| p.name == name).ok_or_else(|| unknown(parameters, name))?;
            if given.iter().any(|(other, _)| *other == name) {
                return Err(format!("`{name}` is given twice"));
            }
            let value = parameter
                .value(text)
                .ok_or_else(|| format!("`{name}={text}`: must be {}", parameter.range()))?;
            given.push((parameter.name, value));
        }
        let missing: Vec<_> =
            parameters.iter().filter(|p| given.iter().all(|(name, _)| *name != p.name)).collect();
        given.extend(missing.into_iter().map(|p| (p.name, p.default_value())));
        Ok(Values(given))
    }

    pub(crate) fn whole(&self, name: &str) -> u32 {
        match self.get(name) {
            Value::Whole(value) => *value,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(crate) fn real(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Real(value) => *value,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(crate) fn word(&self, name: &str) -> &'static str {
        match self.get(name) {
            Value::Word(value) => value,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// Empty by default.
    pub(crate) fn weights(&self, name: &str) -> &[u32] {
        match self.get(name) {
            Value::Weights(value) => value,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn get(&self, name: &str) -> &Value {
        let found = self.0.iter().find(|(known, _)| *known == name);
        &found.expect("a policy asks for its own parameters only").1
    }
}

fn unknown(parameters: &[Parameter], name: &str) -> String {
    let known: Vec<&str> = parameters.iter().map(|p| p.name).collect();
    match known.as_slice() {
        [] => format!("it has no parameter `{name}`, nor any other"),
        known => format!("it has no parameter `{name}`; known are {}", known.join(", ")),
    }
}
