//! What is wrong with a task, and where.

/// Why a task cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place(file, *line, *column))]
pub struct TaskError {
    code: &'static str,
    file: String,
    line: Option<u32>,
    column: Option<u32>,
    message: String,
}

impl TaskError {
    /// An error about a whole file or folder.
    #[must_use]
    pub(super) fn new(code: &'static str, file: &str, message: String) -> Self {
        Self { code, file: file.to_owned(), line: None, column: None, message }
    }

    /// An error at a place in a file.
    #[must_use]
    pub(super) fn at(code: &'static str, file: &str, (line, column): (u32, u32), message: String) -> Self {
        Self { code, file: file.to_owned(), line: Some(line), column: Some(column), message }
    }

    /// Stable code, for example `task.malformed`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The file, as the caller named it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Line, from 1.
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        self.line
    }

    /// Column in characters, from 1.
    #[must_use]
    pub fn column(&self) -> Option<u32> {
        self.column
    }

    /// What is wrong and what to do, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

fn place(file: &str, line: Option<u32>, column: Option<u32>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!("{file}:{line}:{column}: "),
        _ => format!("{file}: "),
    }
}
