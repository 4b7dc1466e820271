//! Errors about a machine's fields.

use crate::FileError;

/// An error at a field, before its line is known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FieldError {
    pub field: String,
    pub message: String,
}

impl FieldError {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> FieldError {
        FieldError { field: field.into(), message: message.into() }
    }

    pub fn within(self, file: &str, text: &str) -> FileError {
        FileError::at(file, text, self.field, self.message)
    }
}
