//! The same lock between processes: files that the system locks, and frees when a process ends.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nightshift_sandbox::process::{CancelFlag, ProcessError};
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

/// Why a file is not locked.
enum NotLocked {
    /// The work was cancelled, or it waited long enough.
    GivenUp,
    /// The file system cannot lock it.
    Failed(std::io::Error),
}

impl From<std::io::Error> for NotLocked {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error)
    }
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

    fn pass(&self, alone: bool, gives_up: &dyn Fn() -> bool) -> Result<File, NotLocked> {
        let (first, second) = (open_lock_file(&self.first)?, open_lock_file(&self.second)?);
        wait_for(&first, &self.first, FlockOperation::NonBlockingLockExclusive, gives_up)?;
        let shared = FlockOperation::NonBlockingLockShared;
        let operation = if alone { FlockOperation::NonBlockingLockExclusive } else { shared };
        wait_for(&second, &self.second, operation, gives_up)?;
        Ok(second)
    }
}

impl LockFiles {
    pub(super) fn open(folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Self { computing: Turnstile::new(folder, "computing")?, driver: Turnstile::new(folder, "driver")? })
    }

    /// Waits until no other process uses the device in a mode that conflicts with this one. Those of this process that do so have
    /// ended. Fails only when the work is cancelled.
    pub(super) fn lock(&self, mode: DeviceMode, cancel: &CancelFlag) -> Result<Locked, ProcessError> {
        let gives_up: &dyn Fn() -> bool = &|| cancel.is_cancelled();
        let locked = match mode {
            DeviceMode::Work | DeviceMode::Tool => self.computing.pass(false, gives_up).map(|file| vec![file]),
            DeviceMode::Driver => self.driver.pass(false, gives_up).map(|file| vec![file]),
            DeviceMode::Exclusive => self.computing.pass(true, gives_up).map(|file| vec![file]),
            DeviceMode::Isolated => {
                self.computing.pass(true, gives_up).and_then(|file| Ok(vec![file, self.driver.pass(true, gives_up)?]))
            }
        };
        match locked {
            Ok(files) => Ok(Locked { _files: files }),
            Err(NotLocked::GivenUp) => Err(ProcessError::Cancelled),
            Err(NotLocked::Failed(error)) => {
                tracing::warn!(%error, "the device cannot be kept from other processes of this kind");
                Ok(Locked::default())
            }
        }
    }
}

/// Waits until a process may begin on the device whose locks lie in `folder`, as [`DeviceMode::Driver`] does, for at most this time.
/// Confirmations wait until the returned file is closed. Returns nothing when the time is over or files cannot be locked.
#[must_use]
pub fn lock_driver_within(folder: &Path, limit: Duration) -> Option<File> {
    let until = Instant::now() + limit;
    LockFiles::open(folder).ok()?.driver.pass(false, &|| Instant::now() >= until).ok()
}

fn wait_for(file: &File, path: &Path, operation: FlockOperation, gives_up: &dyn Fn() -> bool) -> Result<(), NotLocked> {
    let (started, mut told) = (Instant::now(), false);
    loop {
        if try_lock(file, operation)? {
            return Ok(());
        }
        if gives_up() {
            return Err(NotLocked::GivenUp);
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

    use nightshift_sandbox::process::{CancelFlag, ProcessError};

    use crate::lock::{DeviceLock, DeviceMode, holds_guard};

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
            let held = one.lock(first, &CancelFlag::default());
            let (entered, has_entered) = channel();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let _guard = other.lock(second, &CancelFlag::default());
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
            let _held = one.lock(first, &CancelFlag::default());
            drop(other.lock(second, &CancelFlag::default()));
        }
    }

    #[test]
    fn a_cancelled_process_waits_for_no_other_process_and_holds_nothing() {
        for mode in [DeviceMode::Work, DeviceMode::Isolated] {
            let (_folder, one, other) = two();
            let held = one.lock(DeviceMode::Isolated, &CancelFlag::default());
            let cancel = CancelFlag::default();
            let ended = std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    let ended = other.lock(mode, &cancel).map(|_| ());
                    (ended, holds_guard())
                });
                // It waits at either file, or is about to.
                while other.state().active.is_empty() {
                    std::thread::yield_now();
                }
                cancel.cancel();
                waiting.join().unwrap()
            });
            assert!(matches!(ended, (Err(ProcessError::Cancelled), false)), "{mode:?}: {ended:?}");
            drop(held);
            // What it held at the turnstile is free again.
            drop(other.lock(DeviceMode::Isolated, &CancelFlag::default()).unwrap());
            drop(one.lock(DeviceMode::Isolated, &CancelFlag::default()).unwrap());
        }
    }
}
