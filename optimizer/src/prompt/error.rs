//! Why prompts cannot be used.

use std::path::PathBuf;

use nightshift_protocol::step::StepFailure;

use super::library::MAX_PROMPT_BYTES;

/// The templates cannot be used, or a prompt cannot be made from them.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// A file of the user's folder cannot be read.
    #[error("the prompt template {path} cannot be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file that replaces nothing: most likely a slip of the pen.
    #[error("the prompt template {path} replaces none: known are {known}", path = path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The names that can be replaced.
        known: String,
    },
    /// A template is wrong, or does not fit its values.
    #[error("the prompt template `{name}` cannot be rendered: {detail}")]
    Template {
        /// The template.
        name: String,
        /// The cause with its line.
        detail: String,
    },
    /// The result is longer than the limit.
    #[error("the prompt from `{name}` has {bytes} bytes; at most {MAX_PROMPT_BYTES} are sent")]
    TooLarge {
        /// The template.
        name: String,
        /// Its size.
        bytes: usize,
    },
}

impl PromptError {
    /// Stable code, documented in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "config.prompt_unreadable",
            Self::Unknown { .. } => "config.prompt_unknown",
            Self::Template { .. } => "config.prompt_template",
            Self::TooLarge { .. } => "task.prompt_too_large",
        }
    }
}

impl From<PromptError> for StepFailure {
    fn from(error: PromptError) -> Self {
        Self::fatal(error.code(), error.to_string())
    }
}
