//! Scratch folders: one for each worker process, with a subfolder for each step. Leftovers of ended processes are removed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nightshift_sandbox::access::temporary_folder;
use tempfile::{NamedTempFile, TempDir};

const LOCK_SUFFIX: &str = ".lock";
const LIFE_PREFIX: &str = "life-";
/// Maximum number of tries to create the folder while another process cleans up.
const MAX_TRIES: u32 = 8;

/// The scratch folder of a worker process. Dropping it removes the folder.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    /// Locked while the worker lives. The system releases the lock however the worker ends.
    lock: NamedTempFile,
}

impl Scratch {
    /// Creates a folder below `root`, and removes folders of ended processes.
    pub fn open(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        // The jail requires paths without links.
        let root = root.canonicalize()?;
        remove_leftovers(&root);
        for _ in 0..MAX_TRIES {
            let lock = tempfile::Builder::new().prefix(LIFE_PREFIX).suffix(LOCK_SUFFIX).tempfile_in(&root)?;
            // Another process may have removed the new folder as a leftover before it was locked.
            if lock.as_file().try_lock().is_err() || !lock.path().exists() {
                continue;
            }
            let folder = life_folder(lock.path());
            std::fs::create_dir(&folder)?;
            return Ok(Self { folder, lock });
        }
        Err(io::Error::other("another process keeps removing the scratch folder"))
    }

    /// Creates a folder for one step. Dropping it removes the folder.
    pub fn step_folder(&self) -> io::Result<TempDir> {
        temporary_folder(&self.folder, "step-")
    }

    /// Returns the folder of this process.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(error = %error, lock = %self.lock.path().display(), "a scratch folder could not be removed");
            // The next worker finds the folder by this file, and tries again.
            self.lock.disable_cleanup(true);
        }
    }
}

fn life_folder(lock: &Path) -> PathBuf {
    lock.with_extension("")
}

fn remove_leftovers(root: &Path) {
    let Ok(entries) = std::fs::read_dir(root) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !(name.starts_with(LIFE_PREFIX) && name.ends_with(LOCK_SUFFIX)) {
            continue;
        }
        // A held lock means that its process is alive.
        let Ok(lock) = File::open(&path) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        let folder = life_folder(&path);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(error = %error, folder = %folder.display(), "a leftover could not be removed");
            }
            _ => {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_life_cleans_up_after_itself() {
        let root = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(root.path()).unwrap();
        let step = scratch.step_folder().unwrap();
        std::fs::write(step.path().join("file"), "x").unwrap();
        drop(scratch);
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_removed_is_left_to_the_next_life() {
        let root = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(root.path()).unwrap();
        let folder = scratch.folder().to_path_buf();
        // What is not a folder cannot be removed as one.
        std::fs::remove_dir(&folder).unwrap();
        std::fs::write(&folder, "").unwrap();
        drop(scratch);
        assert!(folder.exists() && folder.with_extension("lock").exists());
        std::fs::remove_file(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        remove_leftovers(root.path());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_life_left_is_removed_and_a_living_one_is_not_touched() {
        let root = tempfile::tempdir().unwrap();
        let dead = root.path().join("life-dead");
        std::fs::create_dir_all(dead.join("step-1")).unwrap();
        std::fs::write(root.path().join("life-dead.lock"), "").unwrap();
        let foreign = root.path().join("notes");
        std::fs::write(&foreign, "mine").unwrap();

        let first = Scratch::open(root.path()).unwrap();
        let second = Scratch::open(root.path()).unwrap();
        assert!(!dead.exists());
        assert!(first.folder().exists() && second.folder().exists());
        assert!(foreign.exists());
    }
}
