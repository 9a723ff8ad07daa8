//! Finding the tools.

use std::path::{Path, PathBuf};

use crate::toolchain::Run;

/// A tool that was found and answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// Its program.
    pub path: PathBuf,
    /// Its version, for example `2025.3.2`.
    pub version: String,
}

/// A tool that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingTool {
    /// Why not.
    pub reason: String,
    /// What an operator does to get it.
    pub remedy: String,
}

/// The tools of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profilers {
    /// Nsight Systems.
    pub nsys: Result<Tool, MissingTool>,
    /// Nsight Compute.
    pub ncu: Result<Tool, MissingTool>,
    /// The sanitizers.
    pub compute_sanitizer: Result<Tool, MissingTool>,
}

impl Profilers {
    /// Looks for the tools in these folders and where their installers put them, and asks each for its version. Starts
    /// processes; `scratch` is an existing folder.
    #[must_use]
    pub fn find(search_path: &[PathBuf], scratch: &Path, run: &Run<'_>) -> Self {
        let _ = (search_path, scratch, run);
        let missing = || Err(MissingTool { reason: "it was not looked for".to_owned(), remedy: String::new() });
        Self { nsys: missing(), ncu: missing(), compute_sanitizer: missing() }
    }
}
