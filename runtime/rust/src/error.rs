//! What the runtime refuses.

use crate::Kind;
use std::fmt;

/// What was asked and what was got, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    message: String,
    hint: String,
}

/// What a call gives, or why it is refused.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Error {
            kind,
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// The kind of what was refused.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What was asked and what was got.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do; may be empty.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.hint.is_empty() {
            return Ok(());
        }
        write!(f, "\n  {}", self.hint)
    }
}

impl std::error::Error for Error {}
