//! `claimed.json`: what another evaluation said of the programs in a task's folder.
//!
//! It stays beside the programs, so that what was claimed and what was found can be laid side by side.

use std::path::{Path, PathBuf};

use nightshift_protocol::artifact::ArtifactHash;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::results::text;
use crate::failure::{Failure, Result};

/// Name of the file, beside `task.toml`.
pub(crate) const CLAIMS_FILE: &str = "claimed.json";

/// Form of the file.
pub(crate) const CLAIMS_SCHEMA: u32 = 1;

/// Largest such file, in bytes.
const MAX_CLAIMS_BYTES: u64 = 64 << 20;

/// Maximum number of folders that are looked at.
const MAX_FOLDERS: usize = 20_000;

/// What was said of the programs of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// Form of the file.
    pub(crate) schema: u32,
    /// Name of the task.
    pub(crate) task: String,
    /// Name of the run that the programs come from.
    pub(crate) run: String,
    /// Level of the task.
    pub(crate) level: u32,
    /// Number of the task.
    pub(crate) problem: u32,
    /// Mean time of the reference in milliseconds, where a file of times was given.
    pub(crate) reference_ms: Option<f64>,
    /// The programs, in the order of their attempts.
    pub(crate) programs: Vec<Claimed>,
}

/// One program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claimed {
    /// Number of the attempt that it becomes.
    pub(crate) attempt: u32,
    /// Its number among the programs of its task.
    pub(crate) sample: u32,
    /// Its file.
    pub(crate) file: String,
    /// Hash of its text.
    pub(crate) source: ArtifactHash,
    /// What was said of it, word for word; none where nothing was.
    pub(crate) said: Option<Value>,
}

/// Returns whether a task's folder holds programs from another source.
pub(crate) fn has_programs_of_others(task: &Path) -> bool {
    let folder = if task.is_dir() { Some(task) } else { task.parent() };
    folder.is_some_and(|folder| folder.join(CLAIMS_FILE).exists())
}

/// The claims of a task's folder, or of every task's folder in it.
pub(crate) fn read(folder: &Path) -> Result<Vec<Claims>> {
    let shown = folder.display();
    let unread =
        |error: std::io::Error| Failure::new("results.not_found", format!("`{shown}` cannot be read: {error}"));
    let mut files: Vec<PathBuf> = vec![folder.join(CLAIMS_FILE)];
    for (number, entry) in std::fs::read_dir(folder).map_err(unread)?.enumerate() {
        if number >= MAX_FOLDERS {
            return Err(Failure::new("results.too_large", format!("`{shown}` has more than {MAX_FOLDERS} entries")));
        }
        files.push(entry.map_err(unread)?.path().join(CLAIMS_FILE));
    }
    files.retain(|file| file.is_file());
    files.sort();
    if files.is_empty() {
        let message = format!("`{shown}` holds no {CLAIMS_FILE}");
        return Err(Failure::new("results.not_found", message)
            .hint("name the folder that `nightshift import kernelbench-results --out` wrote"));
    }
    files.iter().map(|file| text::json(&text::read(file, MAX_CLAIMS_BYTES)?, file)).collect()
}
