//! Violations of promises that the storm found.

use std::fmt;

use serde::Serialize;

/// A promise that was not kept.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Violation {
    rule: &'static str,
    pub(super) told: String,
}

impl Violation {
    pub(super) fn new(rule: &'static str, told: impl Into<String>) -> Self {
        Self { rule, told: told.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.rule, self.told)
    }
}
