//! Ensures that only one process at a time writes a database.
//!
//! The operating system releases the file lock when the process ends, also after `kill -9`, so no stale lock remains.
//! The number in the file is for the message only.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use nightshift_engine::store::StoreError;

use crate::failure::sqlite::io_error;

/// Name of the lock file in the data folder.
pub const LOCK_FILE: &str = "nightshift.lock";
/// Maximum number of bytes read from the lock file for the message.
const MAX_PID_BYTES: u64 = 20;

/// The lock, held while the database may be written.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    /// The lock lives as long as the open file.
    _file: File,
}

impl ProcessLock {
    /// Takes the lock of this data folder. The error names the process that holds it.
    pub(crate) fn take(data_dir: &Path) -> Result<Self, StoreError> {
        let path = data_dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| io_error(&error, &path, "cannot open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(&path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(io_error(&error, &path, "cannot lock")),
        }
        write_pid(&mut file).map_err(|error| io_error(&error, &path, "cannot write"))?;
        Ok(Self { _file: file })
    }
}

fn write_pid(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn locked(path: &Path, file: &mut File) -> StoreError {
    let mut text = String::new();
    let pid = match file.take(MAX_PID_BYTES).read_to_string(&mut text) {
        Ok(_) => text.trim().parse::<u32>().ok(),
        Err(_) => None,
    };
    let who = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
    StoreError::Locked(format!(
        "{who} uses this data folder (it holds {path}). End it, talk to its server instead, or choose another data \
         folder",
        path = path.display()
    ))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_with_the_holder_and_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let held = ProcessLock::take(folder.path()).unwrap();
        let StoreError::Locked(message) = ProcessLock::take(folder.path()).unwrap_err() else { panic!("not locked") };
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        assert!(message.contains(LOCK_FILE), "{message}");
        drop(held);
        ProcessLock::take(folder.path()).unwrap();
    }

    #[test]
    fn a_lock_file_left_behind_by_a_dead_process_is_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LOCK_FILE), "4194304\n").unwrap();
        ProcessLock::take(folder.path()).unwrap();
    }
}
