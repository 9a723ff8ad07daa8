//! Why prompts cannot be used.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nightshift_protocol::step::StepFailure;

/// Longest rendered prompt, in bytes, system and user part each.
pub const MAX_PROMPT_BYTES: usize = 1024 * 1024;

/// The templates cannot be used, or a prompt cannot be made from them.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The user's folder, or a file of it, cannot be read.
    #[error("the prompt templates cannot be read: {path}: {why}", path = path.display())]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        why: String,
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
    /// A path that cannot be read, in the words of the system where there are no better ones.
    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let why = match error.kind() {
            ErrorKind::NotFound => "it does not exist".to_owned(),
            ErrorKind::NotADirectory => "it is no folder".to_owned(),
            ErrorKind::InvalidData => "it is no UTF-8 text".to_owned(),
            _ => error.to_string(),
        };
        Self::Unreadable { path: path.to_owned(), why }
    }

    /// Stable code, documented in `docs/reference/errors.md`.
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
