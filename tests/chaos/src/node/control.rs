//! What the orchestrator changes in a running process: a small file that is replaced as a whole and read again and again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often the file is read.
const INTERVAL: Duration = Duration::from_millis(10);

/// What a process is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Control {
    /// Whether every write into the store fails as on a full disk.
    pub(crate) full: bool,
}

impl Control {
    /// Replaces the control message.
    pub(crate) fn write(self, path: &Path) -> std::io::Result<()> {
        let next = path.with_extension("next");
        std::fs::write(&next, serde_json::to_vec(&self).map_err(std::io::Error::other)?)?;
        std::fs::rename(next, path)
    }

    fn read(path: &Path) -> std::io::Result<Self> {
        serde_json::from_slice(&std::fs::read(path)?).map_err(std::io::Error::other)
    }
}

/// Obeys the file from now on. What it says at the beginning is in force when this returns.
pub(super) fn obey(path: PathBuf, set_full: impl Fn(bool) + Send + 'static) -> std::io::Result<()> {
    set_full(Control::read(&path)?.full);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(INTERVAL);
            match Control::read(&path) {
                Ok(control) => set_full(control.full),
                // The orchestrator and its folder are gone; so is this process in a moment.
                Err(error) => tracing::debug!(error = %error, "the control connection is closed"),
            }
        }
    });
    Ok(())
}
