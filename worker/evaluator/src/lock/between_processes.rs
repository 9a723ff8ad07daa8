//! The same lock between processes: files that the system locks, and frees when a process ends.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::DeviceMode;

/// Files of one device.
#[derive(Debug)]
pub(super) struct LockFiles {
    computing: Turnstile,
    driver: Turnstile,
}

/// Locked files of a guard; closing a file releases its lock.
#[derive(Debug, Default)]
pub(super) struct Locked {
    _files: Vec<File>,
}

/// Two files: a process that waits for the second one holds the first one, so that later processes wait behind it and none of them
/// waits for ever.
#[derive(Debug)]
struct Turnstile {
    first: PathBuf,
    second: PathBuf,
}

/// A waiting process tries a file again after the first time, and logs a warning after the second one.
const POLL: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(10);

impl Turnstile {
    fn new(folder: &Path, name: &str) -> std::io::Result<Self> {
        let turnstile = Self { first: folder.join(format!("{name}.next")), second: folder.join(name) };
        open_lock_file(&turnstile.first)?;
        open_lock_file(&turnstile.second)?;
        Ok(turnstile)
    }

    fn pass(&self, alone: bool) -> std::io::Result<File> {
        let (first, second) = (open_lock_file(&self.first)?, open_lock_file(&self.second)?);
        wait_for(&first, &self.first, FlockOperation::NonBlockingLockExclusive)?;
        let shared = FlockOperation::NonBlockingLockShared;
        wait_for(&second, &self.second, if alone { FlockOperation::NonBlockingLockExclusive } else { shared })?;
        Ok(second)
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
            DeviceMode::Isolated => self.computing.pass(true).and_then(|file| Ok(vec![file, self.driver.pass(true)?])),
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

fn wait_for(file: &File, path: &Path, operation: FlockOperation) -> std::io::Result<()> {
    let (started, mut told) = (Instant::now(), false);
    loop {
        if try_lock(file, operation)? {
            return Ok(());
        }
        std::thread::sleep(POLL);
        if !told && started.elapsed() > PATIENCE {
            told = true;
            tracing::warn!(file = %path.display(), "waiting for another process that judges programs on this device");
        }
    }
}

/// Locks a file exclusively unless another process holds its lock. Returns whether it did.
pub fn try_lock_file(file: &File) -> std::io::Result<bool> {
    try_lock(file, FlockOperation::NonBlockingLockExclusive)
}

fn try_lock(file: &File, operation: FlockOperation) -> std::io::Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file that processes of one user lock.
pub fn open_lock_file(path: &Path) -> std::io::Result<File> {
    // Other users cannot hold the lock.
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path)
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
        use DeviceMode::{Driver, Exclusive, Isolated, Tool, Work};
        for (first, second) in [
            (Work, Isolated),
            (Driver, Isolated),
            (Isolated, Work),
            (Isolated, Driver),
            (Exclusive, Tool),
            (Isolated, Isolated),
        ] {
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
