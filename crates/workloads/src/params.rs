//! Parameters of workloads: what there are, what was given, what holds.

use std::fmt;
use std::str::FromStr;

use memtide_core::PageSize;

use crate::{Info, WorkloadError};

/// A parameter of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, as in `name=value`.
    pub name: &'static str,
    /// The unit of its value; empty for a plain number or choice.
    pub unit: &'static str,
    /// What it is.
    pub help: &'static str,
    /// What values it takes, and the one it has if none is given.
    pub values: Values,
}

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Whole numbers from `min` to `max`.
    Whole {
        /// If none is given.
        default: u64,
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// Numbers from `min` to `max`.
    Number {
        /// If none is given.
        default: f64,
        /// The smallest.
        min: f64,
        /// The largest.
        max: f64,
    },
    /// One of a few words, the first of them if none is given.
    Choice(&'static [&'static str]),
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::Whole { min, max, .. } => write!(f, "a whole number from {min} to {max}"),
            Values::Number { min, max, .. } => write!(f, "a number from {min} to {max}"),
            Values::Choice(of) => write!(f, "one of {}", of.join(", ")),
        }
    }
}

impl Values {
    /// The value if none is given.
    pub fn default(&self) -> Value {
        match *self {
            Values::Whole { default, .. } => Value::Whole(default),
            Values::Number { default, .. } => Value::Number(default),
            Values::Choice(of) => Value::Word(of[0]),
        }
    }

    fn parse(&self, text: &str) -> Option<Value> {
        match *self {
            Values::Whole { min, max, .. } => {
                text.parse().ok().filter(|value| (min..=max).contains(value)).map(Value::Whole)
            }
            Values::Number { min, max, .. } => {
                text.parse().ok().filter(|value| (min..=max).contains(value)).map(Value::Number)
            }
            Values::Choice(of) => of.iter().find(|word| **word == text).map(|word| Value::Word(word)),
        }
    }
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// A number.
    Number(f64),
    /// One of a few words.
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Whole(value) => value.fmt(f),
            Value::Number(value) => value.fmt(f),
            Value::Word(value) => value.fmt(f),
        }
    }
}

impl Parameter {
    /// A whole number; its `range` is the smallest, the default and the largest.
    pub const fn whole(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        range: [u64; 3],
    ) -> Parameter {
        let [min, default, max] = range;
        Parameter { name, unit, help, values: Values::Whole { default, min, max } }
    }

    /// A number; its `range` is the smallest, the default and the largest.
    pub const fn number(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        range: [f64; 3],
    ) -> Parameter {
        let [min, default, max] = range;
        Parameter { name, unit, help, values: Values::Number { default, min, max } }
    }

    /// `threads`.
    pub const fn threads(default: u64) -> Parameter {
        Parameter::whole("threads", "", "threads that share the work", [1, default, 1024])
    }

    /// `footprint_mib` of a workload whose data the host has to hold: 16 GiB at most, which keeps indices in 32 bits.
    pub const fn footprint_mib(default: u64) -> Parameter {
        Parameter::whole("footprint_mib", "MiB", "size of all arrays together", [1, default, 16 << 10])
    }

    /// `footprint_mib` of a workload whose data nobody looks at, so that the host need not hold it.
    pub const fn nominal_footprint_mib(default: u64) -> Parameter {
        Parameter::whole("footprint_mib", "MiB", "size of the memory accessed", [1, default, 1 << 20])
    }

    /// `iterations`.
    pub const fn iterations(default: u64) -> Parameter {
        Parameter::whole("iterations", "", "how often the computation is done", [1, default, 100_000])
    }

    /// `operations`.
    pub const fn operations(default: u64) -> Parameter {
        Parameter::whole("operations", "", "operations of all threads together", [1, default, 1 << 40])
    }

    /// `page`.
    pub const PAGE: Parameter = Parameter {
        name: "page",
        unit: "",
        help: "size of the arrays' pages",
        values: Values::Choice(&["4KiB", "2MiB"]),
    };
}

/// Parameters as a user gives them: `key=value`, several separated by commas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// None: every parameter has its default.
    pub fn new() -> Params {
        Params::default()
    }

    /// Adds a parameter.
    ///
    /// # Errors
    /// If it has been given before.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) -> Result<(), WorkloadError> {
        if self.0.iter().any(|(given, _)| given == key) {
            return Err(WorkloadError::Repeated(key.to_owned()));
        }
        self.0.push((key.to_owned(), value.to_string()));
        Ok(())
    }
}

impl FromStr for Params {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Params, WorkloadError> {
        let mut params = Params::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| WorkloadError::NotKeyValue(part.to_owned()))?;
            params.set(key.trim(), value.trim())?;
        }
        Ok(params)
    }
}

/// The values of all parameters of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    workload: &'static str,
    values: Vec<(&'static str, Value)>,
}

impl Settings {
    /// What was given, and the defaults of the rest.
    ///
    /// # Errors
    /// If a parameter does not exist or a value is not allowed.
    pub fn new(info: &Info, params: &Params) -> Result<Settings, WorkloadError> {
        let mut values: Vec<_> = info.parameters.iter().map(|p| (p.name, p.values.default())).collect();
        for (key, text) in &params.0 {
            let at = info.parameters.iter().position(|parameter| parameter.name == key).ok_or_else(|| {
                let known = info.parameters.iter().map(|parameter| parameter.name).collect();
                WorkloadError::UnknownParameter { workload: info.name, key: key.clone(), known }
            })?;
            let parameter = &info.parameters[at];
            values[at].1 = parameter.values.parse(text).ok_or_else(|| WorkloadError::BadValue {
                workload: info.name,
                key: parameter.name,
                value: text.clone(),
                allowed: parameter.values.to_string(),
            })?;
        }
        Ok(Settings { workload: info.name, values })
    }

    fn get(&self, name: &str) -> Value {
        let found = self.values.iter().find(|(key, _)| *key == name);
        found.unwrap_or_else(|| panic!("workload {} declares no parameter {name}", self.workload)).1
    }

    /// A whole number's value.
    ///
    /// # Panics
    /// This and the next two, if the workload declares no such parameter.
    pub fn whole(&self, name: &str) -> u64 {
        match self.get(name) {
            Value::Whole(value) => value,
            other => panic!("parameter {name} is {other:?}"),
        }
    }

    /// A whole number's value, as a size of something in memory.
    pub fn size(&self, name: &str) -> usize {
        self.whole(name) as usize
    }

    /// A number's value.
    pub fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Number(value) => value,
            other => panic!("parameter {name} is {other:?}"),
        }
    }

    /// The word chosen.
    pub fn word(&self, name: &str) -> &'static str {
        match self.get(name) {
            Value::Word(value) => value,
            other => panic!("parameter {name} is {other:?}"),
        }
    }

    /// `footprint_mib` in bytes.
    pub fn footprint_bytes(&self) -> usize {
        self.size("footprint_mib") << 20
    }

    /// `threads`.
    pub fn threads(&self) -> usize {
        self.size("threads")
    }

    /// `page`.
    pub fn page(&self) -> PageSize {
        if self.word("page") == "2MiB" { PageSize::Huge } else { PageSize::Base }
    }

    /// The error that these settings do not fit together.
    pub fn unfit(&self, problem: impl Into<String>) -> WorkloadError {
        WorkloadError::Unfit { workload: self.workload, problem: problem.into() }
    }
}
