//! Checked values of parameters.

use std::fmt;

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Kind::Integer`](super::Kind::Integer).
    Integer(u64),
    /// Of [`Kind::Number`](super::Kind::Number).
    Number(f64),
    /// Of [`Kind::Word`](super::Kind::Word).
    Word(&'static str),
    /// Of [`Kind::Weights`](super::Kind::Weights); empty for the default.
    Weights(Vec<u32>),
    /// Of [`Kind::Nodes`](super::Kind::Nodes); empty for the default.
    Nodes(Vec<String>),
}

impl fmt::Display for Value {
    /// As [`Parameter::parse`](super::Parameter::parse) reads it; nothing for the default of weights and
    /// nodes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(value) => value.fmt(f),
            Value::Number(value) => value.fmt(f),
            Value::Word(value) => value.fmt(f),
            Value::Weights(weights) => {
                f.write_str(&weights.iter().map(u32::to_string).collect::<Vec<_>>().join(":"))
            }
            Value::Nodes(names) => f.write_str(&names.join(":")),
        }
    }
}

/// The values of all parameters of a policy or workload.
///
/// Its methods panic if no parameter of that name and kind is declared: a bug, not a user's error.
#[derive(Clone, Debug, PartialEq)]
pub struct Values(pub(super) Vec<(&'static str, Value)>);

impl Values {
    /// The value of an integer parameter.
    ///
    /// # Panics
    /// If no integer parameter has this name.
    pub fn u64(&self, name: &str) -> u64 {
        match self.get(name) {
            Value::Integer(value) => *value,
            other => unreachable!("parameter {name} is {other:?}"),
        }
    }

    /// The value of an integer parameter whose range is within `u32`.
    ///
    /// # Panics
    /// If no integer parameter has this name, or the value exceeds `u32`.
    pub fn u32(&self, name: &str) -> u32 {
        u32::try_from(self.u64(name)).unwrap_or_else(|_| panic!("parameter {name} exceeds u32"))
    }

    /// The value of a number parameter.
    ///
    /// # Panics
    /// If no number parameter has this name.
    pub fn f64(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Number(value) => *value,
            other => unreachable!("parameter {name} is {other:?}"),
        }
    }

    /// The value of a word parameter.
    ///
    /// # Panics
    /// If no word parameter has this name.
    pub fn word(&self, name: &str) -> &'static str {
        match self.get(name) {
            Value::Word(value) => value,
            other => unreachable!("parameter {name} is {other:?}"),
        }
    }

    /// The value of a weights parameter, empty for the default.
    ///
    /// # Panics
    /// If no weights parameter has this name.
    pub fn weights(&self, name: &str) -> &[u32] {
        match self.get(name) {
            Value::Weights(value) => value,
            other => unreachable!("parameter {name} is {other:?}"),
        }
    }

    /// The value of a nodes parameter, empty for the default.
    ///
    /// # Panics
    /// If no nodes parameter has this name.
    pub fn nodes(&self, name: &str) -> &[String] {
        match self.get(name) {
            Value::Nodes(value) => value,
            other => unreachable!("parameter {name} is {other:?}"),
        }
    }

    /// The value of a parameter of any kind.
    ///
    /// # Panics
    /// If no parameter has this name.
    pub fn get(&self, name: &str) -> &Value {
        let found = self.0.iter().find(|(known, _)| *known == name);
        &found.unwrap_or_else(|| panic!("parameter {name} is not declared")).1
    }
}
