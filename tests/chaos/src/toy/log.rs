//! What every process writes down about the steps that it carries out: one line when something begins and one when it
//! ends. The lines outlive a killed process: they are with the kernel as soon as they are written.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// A step begins.
    Begin,
    /// It has a result.
    Done,
    /// It failed, as it was to.
    Failed,
    /// It was told to stop.
    Stopped,
    /// A model is asked.
    CallAsked,
    /// Its answer is committed.
    CallCommitted,
}

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Line {
    /// By the machine's monotonic clock, which all processes share.
    pub(crate) at_us: i64,
    pub(crate) process: u32,
    pub(crate) what: What,
    pub(crate) run: String,
    pub(crate) key: String,
    /// The lease's epoch; agents do not know theirs.
    pub(crate) epoch: Option<u64>,
    pub(crate) device: Option<u32>,
    pub(crate) exclusive: bool,
    /// When a model is asked: when the last look for a committed answer began, by the same clock.
    #[serde(default)]
    pub(crate) looked_us: Option<i64>,
}

/// The machine's monotonic clock, in microseconds.
pub(crate) fn now_us() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// A process's log.
#[derive(Clone)]
pub(crate) struct Log(Arc<File>);

impl Log {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(path);
        Ok(Self(Arc::new(file.with_context(|| format!("cannot write {}", path.display()))?)))
    }

    /// Writes a line as a whole.
    pub(crate) fn write(&self, mut line: Line) -> std::io::Result<()> {
        line.at_us = now_us();
        line.process = std::process::id();
        let mut text = serde_json::to_vec(&line).map_err(std::io::Error::other)?;
        text.push(b'\n');
        (&*self.0).write_all(&text)
    }
}

/// Every line of every log in the folder, in the order of time. A last line that was cut by a kill counts as unwritten.
pub(crate) fn read_folder(folder: &Path) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = std::fs::read_to_string(&path)?;
            for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let line: Line =
                    serde_json::from_str(line).with_context(|| format!("a line of {}: {line}", path.display()))?;
                lines.push(line);
            }
        }
    }
    lines.sort_by_key(|line| line.at_us);
    Ok(lines)
}
