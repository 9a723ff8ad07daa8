//! Failures of steps.

use serde::{Deserialize, Serialize};

use crate::attempt_memory::is_zero;
use crate::model_call::ModelCallSummary;

/// What the engine does after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Another try may succeed.
    Retriable,
    /// No try can succeed.
    Fatal,
}

/// Why a step could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{message}")]
pub struct StepFailure {
    /// What the engine does after it.
    pub class: FailureClass,
    /// Stable code, documented in `docs/reference/errors.md`.
    pub code: String,
    /// What is wrong and what to do.
    pub message: String,
    /// Do not try again sooner than this many milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Number of tries so far whose reply was lost or unreadable after the model may have written it. A provider may charge for each.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub charged_tries: u32,
    /// Model calls of the step that were answered and committed all the same: they have their price.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ModelCallSummary>,
}

impl StepFailure {
    /// A failure that another try may heal.
    pub fn retriable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FailureClass::Retriable, code.into(), message.into())
    }

    /// A failure that no try can heal.
    pub fn fatal(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FailureClass::Fatal, code.into(), message.into())
    }

    /// Adds the charged tries of the step's failure before.
    #[must_use]
    pub fn after(self, earlier: Option<&Self>) -> Self {
        let charged_tries = self.charged_tries.saturating_add(earlier.map_or(0, |earlier| earlier.charged_tries));
        Self { charged_tries, ..self }
    }

    fn new(class: FailureClass, code: String, message: String) -> Self {
        Self { class, code, message, retry_after_ms: None, charged_tries: 0, calls: Vec::new() }
    }
}
