//! The same lock between processes: files that the system locks, and frees when a process ends.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::DeviceMode;

/// Files of one device.
#[derive(Debug)]
pub(super) struct LockFiles {
    computing: Turnstile,
    driver: Turnstile,
}

/// What a guard holds; files that are closed are free.
#[derive(Debug, Default)]
pub(super) struct Locked {
    _files: Vec<File>,
}

/// Two files: whoever waits for the room holds the gate, so that those who come later wait behind it and nobody waits for ever.
#[derive(Debug)]
struct Turnstile {
    gate: PathBuf,
    room: PathBuf,
}

impl Turnstile {
    fn new(folder: &Path, name: &str) -> std::io::Result<Self> {
        let turnstile = Self { gate: folder.join(format!("{name}.gate")), room: folder.join(name) };
        open(&turnstile.gate)?;
        open(&turnstile.room)?;
        Ok(turnstile)
    }

    fn pass(&self, alone: bool) -> std::io::Result<File> {
        let (gate, room) = (open(&self.gate)?, open(&self.room)?);
        flock(&gate, FlockOperation::LockExclusive)?;
        flock(&room, if alone { FlockOperation::LockExclusive } else { FlockOperation::LockShared })?;
        Ok(room)
    }
}

impl LockFiles {
    pub(super) fn open(folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self { computing: Turnstile::new(folder, "computing")?, driver: Turnstile::new(folder, "driver")? })
    }

    /// Waits until no other process uses the device in a mode that conflicts with this one. Those of this process that do so have
    /// ended.
    pub(super) fn lock(&self, mode: DeviceMode) -> Locked {
        let locked = match mode {
            DeviceMode::Work | DeviceMode::Tool => self.computing.pass(false).map(|file| vec![file]),
            DeviceMode::Driver => self.driver.pass(false).map(|file| vec![file]),
            DeviceMode::Exclusive => self.computing.pass(true).map(|file| vec![file]),
            DeviceMode::Quiet => self.computing.pass(true).and_then(|file| Ok(vec![file, self.driver.pass(true)?])),
        };
        match locked {
            Ok(files) => Locked { _files: files },
            Err(error) => {
                tracing::warn!(%error, "the device cannot be kept from other processes of this kind");
                Locked::default()
            }
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use crate::lock::{DeviceLock, DeviceMode};

    /// Locks of two processes, as far as files are concerned.
    fn two() -> (tempfile::TempDir, DeviceLock, DeviceLock) {
        let folder = tempfile::tempdir().unwrap();
        let lock = || DeviceLock::between_processes(folder.path()).unwrap();
        let (one, other) = (lock(), lock());
        (folder, one, other)
    }

    #[test]
    fn a_confirmation_of_one_process_waits_for_another_process() {
        use DeviceMode::{Driver, Exclusive, Quiet, Tool, Work};
        for (first, second) in
            [(Work, Quiet), (Driver, Quiet), (Quiet, Work), (Quiet, Driver), (Exclusive, Tool), (Quiet, Quiet)]
        {
            let (_folder, one, other) = two();
            let held = one.lock(first);
            let (entered, has_entered) = channel();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let _guard = other.lock(second);
                    entered.send(()).ok();
                });
                assert!(has_entered.recv_timeout(Duration::from_millis(50)).is_err(), "{first:?} {second:?}");
                drop(held);
                assert!(has_entered.recv_timeout(Duration::from_secs(30)).is_ok(), "{first:?} {second:?}");
            });
        }
    }

    #[test]
    fn processes_work_and_start_side_by_side() {
        use DeviceMode::{Driver, Exclusive, Work};
        for (first, second) in [(Work, Work), (Work, Driver), (Exclusive, Driver), (Driver, Exclusive)] {
            let (_folder, one, other) = two();
            let _held = one.lock(first);
            drop(other.lock(second));
        }
    }
}
