//! A profiling tool of the machine.

use std::path::PathBuf;

/// A tool that was found and answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Its program.
    pub path: PathBuf,
    /// Its version, for example `2025.3.2`.
    pub version: String,
    /// Folders that it needs to read beside the system's.
    pub folders: Vec<PathBuf>,
    /// Folders in which it finds libraries that the system does not have.
    pub library_path: Vec<PathBuf>,
}

/// A tool that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTool {
    /// Reason.
    pub reason: String,
    /// Remedy for an operator.
    pub remedy: String,
    /// True if the tool is installed and did not answer in time. A later search may succeed.
    pub did_not_answer: bool,
}
