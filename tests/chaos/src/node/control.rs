//! What the orchestrator changes in a running process: a small file that is replaced as a whole and read again and again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use nightshift_engine::clock::Clock;
use nightshift_protocol::time::TimestampMs;
use nightshift_server::SystemClock;
use serde::{Deserialize, Serialize};

/// How often the file is read.
const INTERVAL: Duration = Duration::from_millis(10);

/// What a process is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Control {
    /// How far the process's clock is ahead of the machine's, in milliseconds.
    pub(crate) clock_offset_ms: i64,
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

/// A clock that another process can set.
#[derive(Debug, Default)]
pub(super) struct JumpingClock(AtomicI64);

impl Clock for JumpingClock {
    fn now(&self) -> TimestampMs {
        TimestampMs(SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }
}

/// Obeys the file from now on. What it says at the beginning is in force when this returns.
pub(super) fn obey(
    path: PathBuf,
    clock: Arc<JumpingClock>,
    set_full: impl Fn(bool) + Send + 'static,
) -> std::io::Result<()> {
    let apply = move |control: Control| {
        clock.0.store(control.clock_offset_ms, Ordering::SeqCst);
        set_full(control.full);
    };
    apply(Control::read(&path)?);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(INTERVAL);
            match Control::read(&path) {
                Ok(control) => apply(control),
                // The orchestrator and its folder are gone; so is this process in a moment.
                Err(error) => tracing::debug!(error = %error, "the control connection is closed"),
            }
        }
    });
    Ok(())
}
