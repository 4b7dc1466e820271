//! Parameters as written by a user: split and printed, but not checked.

use std::fmt;
use std::str::FromStr;

use super::{ParamError, Parameter, Values};

/// Splits `NAME[:PARAMETERS]`.
pub fn split_name(text: &str) -> (&str, &str) {
    let (name, params) = text.split_once(':').unwrap_or((text, ""));
    (name.trim(), params)
}

/// Splits a list of items at its commas. A piece `KEY=VALUE`, with no `:` before its `=`, continues the
/// parameters of the item before it: `stream,gups:threads=4,page=2MiB` has two items.
pub fn split_list(text: &str) -> Vec<&str> {
    split_list_unless(text, |_| false)
}

/// As [`split_list`], but a piece `KEY=VALUE` for which `is_item` returns true is an item.
pub fn split_list_unless(text: &str, is_item: impl Fn(&str) -> bool) -> Vec<&str> {
    let mut items = Vec::new();
    let (mut start, mut at) = (0, 0);
    for piece in text.split(',') {
        if at > 0 && (!continues(piece) || is_item(piece)) {
            items.push(&text[start..at - 1]);
            start = at;
        }
        at += piece.len() + 1;
    }
    items.push(&text[start..]);
    items
}

/// Whether a piece of a list is `KEY=VALUE`, which is not an item by itself.
fn continues(piece: &str) -> bool {
    piece.split_once('=').is_some_and(|(key, _)| !key.contains(':'))
}

/// Parameters as written, in order, each key once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// No parameters: every one has its default.
    pub fn new() -> Params {
        Params::default()
    }

    /// Adds a parameter.
    ///
    /// # Errors
    /// If it was set before, or key or value cannot be written in the grammar.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) -> Result<(), ParamError> {
        let text = format!("{key}={value}");
        match <[_; 1]>::try_from(parts(&text)?) {
            Ok([(key, value)]) => self.push(key, value),
            Err(_) => Err(ParamError::NotKeyValue(text)),
        }
    }

    /// The values of declared parameters: those given, and the defaults of the others.
    ///
    /// # Errors
    /// If a parameter is not declared, or its value is not allowed.
    pub fn values(&self, declared: &[Parameter]) -> Result<Values, ParamError> {
        let mut values: Vec<_> = declared.iter().map(|p| (p.name, p.default_value())).collect();
        for (key, text) in &self.0 {
            let at = declared.iter().position(|parameter| parameter.name == key).ok_or_else(|| {
                let known = declared.iter().map(|parameter| parameter.name).collect();
                ParamError::Unknown { key: key.clone(), known }
            })?;
            let parameter = &declared[at];
            values[at].1 = parameter.parse(text).ok_or_else(|| ParamError::Value {
                key: parameter.name,
                value: text.clone(),
                expected: parameter.range(),
            })?;
        }
        Ok(Values(values))
    }

    /// Removes parameters with these keys and returns them, as `(key, value)`.
    pub fn split_off(&mut self, keys: &[&str]) -> Vec<(String, String)> {
        self.0.extract_if(.., |(key, _)| keys.contains(&key.as_str())).collect()
    }

    fn push(&mut self, key: String, value: String) -> Result<(), ParamError> {
        if self.0.iter().any(|(given, _)| *given == key) {
            return Err(ParamError::Repeated(key));
        }
        self.0.push((key, value));
        Ok(())
    }
}

impl FromStr for Params {
    type Err = ParamError;

    fn from_str(text: &str) -> Result<Params, ParamError> {
        let mut params = Params::new();
        parts(text)?.into_iter().try_for_each(|(key, value)| params.push(key, value))?;
        Ok(params)
    }
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, value)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

/// The keys and values of `KEY=VALUE[,KEY=VALUE..]`, in which `:` may stand for `,`.
fn parts(text: &str) -> Result<Vec<(String, String)>, ParamError> {
    let mut parts: Vec<(&str, String)> = Vec::new();
    for group in text.split(',') {
        for (at, piece) in group.split(':').enumerate() {
            match (piece.split_once('='), parts.last_mut()) {
                (Some((key, value)), _) => parts.push((key, value.to_owned())),
                (None, Some((_, value))) if at > 0 => {
                    value.push(':');
                    value.push_str(piece);
                }
                (None, _) if piece.trim().is_empty() => {}
                (None, _) => return Err(ParamError::NotKeyValue(piece.trim().to_owned())),
            }
        }
    }
    Ok(parts.into_iter().map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect())
}
