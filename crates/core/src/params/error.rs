/// Why parameters are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// Text that is not of the form `KEY=VALUE`.
    #[error("'{0}' is not a parameter: expected KEY=VALUE, several separated by commas")]
    NotKeyValue(String),
    /// A parameter given more than once.
    #[error("parameter '{0}' is given twice")]
    Repeated(String),
    /// No parameter has this name.
    #[error("unknown parameter '{key}'; {}", known_text(.known))]
    Unknown {
        /// The name given.
        key: String,
        /// Names of all parameters.
        known: Vec<&'static str>,
    },
    /// A value of another kind than the parameter's, or out of its range.
    #[error("invalid value '{value}' for parameter '{key}': expected {expected}")]
    Value {
        /// The parameter.
        key: &'static str,
        /// The value given.
        value: String,
        /// The values allowed, in words.
        expected: String,
    },
}

fn known_text(known: &[&str]) -> String {
    match known {
        [] => "there are none".to_owned(),
        known => format!("known: {}", known.join(", ")),
    }
}
