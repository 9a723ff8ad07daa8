//! Scratch folders: one for each life of a worker, in it one for each step; what an earlier life left is removed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nightshift_sandbox::access::temporary_folder;
use tempfile::{NamedTempFile, TempDir};

const LOCK_SUFFIX: &str = ".lock";
const LIFE_PREFIX: &str = "life-";
/// Tries to begin a life while another process cleans up.
const MAX_TRIES: u32 = 8;

/// The folder of one life of a worker. Removed with everything in it when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    /// Locked as long as the worker lives: the system lets go of it however the worker ends.
    lock: NamedTempFile,
}

impl Scratch {
    /// Begins a life below `root`, which is created; removes what dead ones left, and leaves living ones alone.
    pub fn open(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        // The jail wants paths that are free of links.
        let root = root.canonicalize()?;
        remove_leftovers(&root);
        for _ in 0..MAX_TRIES {
            let lock = tempfile::Builder::new().prefix(LIFE_PREFIX).suffix(LOCK_SUFFIX).tempfile_in(&root)?;
            // Between its creation and this line another process may have taken it for a leftover.
            if lock.as_file().try_lock().is_err() || !lock.path().exists() {
                continue;
            }
            let folder = life_folder(lock.path());
            std::fs::create_dir(&folder)?;
            return Ok(Self { folder, lock });
        }
        Err(io::Error::other("another process keeps removing the scratch folder"))
    }

    /// A folder for one step, removed when it is dropped.
    pub fn step_folder(&self) -> io::Result<TempDir> {
        temporary_folder(&self.folder, "step-")
    }

    /// The folder of this life.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(error = %error, lock = %self.lock.path().display(), "a scratch folder could not be removed");
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
