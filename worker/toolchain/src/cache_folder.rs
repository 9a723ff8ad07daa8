//! A local folder of results, one folder for each key, which workers share.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A folder that was begun this long ago will not be finished: its writer was killed.
const ABANDONED_AFTER: Duration = Duration::from_hours(1);

const UNFINISHED: &str = "unfinished-";

/// A folder of entries. Each appears whole or not at all.
#[derive(Debug)]
pub struct CacheFolder {
    folder: PathBuf,
}

impl CacheFolder {
    /// Opens or creates the folder, and removes abandoned entries and the oldest ones beyond the limit.
    pub fn open(folder: &Path, max_entries: usize) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        // The folder's own idea of now: the clock is not ours to read.
        let now = tempfile::tempfile_in(folder)?.metadata()?.modified()?;
        let mut entries: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(folder)?.filter_map(Result::ok) {
            let Ok(modified) = entry.metadata().and_then(|data| data.modified()) else { continue };
            if !entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                entries.push((modified, entry.path()));
            } else if now.duration_since(modified).is_ok_and(|age| age > ABANDONED_AFTER) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        entries.sort();
        let surplus = entries.len().saturating_sub(max_entries);
        for (_, path) in entries.into_iter().take(surplus) {
            let _ = std::fs::remove_dir_all(path);
        }
        Ok(Self { folder: folder.to_path_buf() })
    }

    /// Returns the folder of an entry, which may not exist.
    #[must_use]
    pub fn entry(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    /// Stores an entry with the files that `write` puts into its folder. If two writers store the same entry, the first one wins.
    pub fn put(&self, key: &str, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(&self.folder)?;
        write(unfinished.path())?;
        let entry = self.entry(key);
        match std::fs::rename(unfinished.path(), &entry) {
            Err(_) if entry.is_dir() => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_starts_removes_what_was_abandoned_and_not_what_another_one_is_writing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheFolder::open(folder.path(), 10).unwrap();
        let abandoned = folder.path().join(format!("{UNFINISHED}old"));
        std::fs::create_dir(&abandoned).unwrap();
        std::fs::File::open(&abandoned).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let write = |unfinished: &Path| {
            CacheFolder::open(folder.path(), 10)?;
            std::fs::write(unfinished.join("file"), "text")
        };
        cache.put("k", write).unwrap();
        assert_eq!(std::fs::read(cache.entry("k").join("file")).unwrap(), b"text");
        assert!(!abandoned.exists());
    }
}
