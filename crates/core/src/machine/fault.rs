//! Faults of a machine.

use crate::FileError;

/// A fault at a field, before its line is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub field: String,
    pub message: String,
}

impl Fault {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault { field: field.into(), message: message.into() }
    }

    pub fn within(self, file: &str, text: &str) -> FileError {
        FileError::at(file, text, self.field, self.message)
    }
}
