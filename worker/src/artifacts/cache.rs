//! A local cache in front of another store.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use tempfile::NamedTempFile;

use super::{ArtifactError, ArtifactStore, Transfer};

/// Maximum size of the cache in bytes; the least recently used files are removed first.
pub const MAX_CACHE_BYTES: u64 = 2 << 30;

/// Prefix of the names of unfinished files.
const UNFINISHED: &str = "writing-";
/// Age after which an unfinished file is removed, because its writer was killed.
const ABANDONED_AFTER: Duration = Duration::from_hours(1);

/// A local cache in front of another store. Callers never get its paths, because files may be removed at any time.
pub struct ArtifactCache {
    folder: PathBuf,
    max_bytes: u64,
    behind: Box<dyn ArtifactStore>,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    files: HashMap<ArtifactHash, Use>,
    total_bytes: u64,
    clock: u64,
}

struct Use {
    size_bytes: u64,
    last: u64,
}

impl std::fmt::Debug for ArtifactCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArtifactCache").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl ArtifactCache {
    /// Opens or creates the folder. Its files count as used in the order of their age.
    pub fn open(folder: &Path, max_bytes: u64, behind: Box<dyn ArtifactStore>) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        // The file system's time, because this crate reads no clock.
        let now = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?.as_file().metadata()?.modified()?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder)?.filter_map(Result::ok) {
            let Ok(data) = entry.metadata() else { continue };
            let Ok(modified) = data.modified() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Ok(hash) = name.parse::<ArtifactHash>() {
                found.push((modified, hash, data.len()));
            } else if name.starts_with(UNFINISHED)
                && now.duration_since(modified).is_ok_and(|age| age > ABANDONED_AFTER)
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        found.sort();
        let mut index = Index::default();
        for (_, hash, size_bytes) in found {
            index.touch(hash, size_bytes);
        }
        let cache = Self { folder: folder.to_path_buf(), max_bytes, behind, index: Mutex::new(index) };
        cache.prune();
        Ok(cache)
    }

    /// Returns the bytes of an artifact, from the cache if they are present and undamaged.
    pub fn get(&self, hash: &ArtifactHash, transfer: &Transfer<'_>) -> Result<Vec<u8>, ArtifactError> {
        let mut bytes = Vec::new();
        let failed = |source| self.io(hash, source);
        self.open_verified(hash, transfer)?.read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// Writes an artifact to a file, a piece at a time.
    pub fn copy_to(&self, hash: &ArtifactHash, path: &Path, transfer: &Transfer<'_>) -> Result<(), ArtifactError> {
        let mut from = self.open_verified(hash, transfer)?;
        let copied = File::create(path).and_then(|mut file| io::copy(&mut from, &mut file));
        copied.map(drop).map_err(|source| ArtifactError::Io { path: path.to_path_buf(), source })
    }

    /// Stores an artifact in the cache and in the other store.
    pub fn put(&self, bytes: &[u8], transfer: &Transfer<'_>) -> Result<ArtifactHash, ArtifactError> {
        if bytes.len() > MAX_ARTIFACT_BYTES {
            return Err(ArtifactError::TooLarge { size_bytes: bytes.len() });
        }
        let hash = self.behind.put(bytes, transfer)?;
        if ArtifactHash::of(bytes) != hash {
            return Err(ArtifactError::Damaged { hash });
        }
        let failed = |source| self.io(&hash, source);
        let mut file = self.unfinished().map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        self.keep(&hash, file)?;
        Ok(hash)
    }

    /// Opens the file of an artifact at its first byte. Fetches it if it is missing or damaged. It stays readable after the
    /// cache removes it.
    fn open_verified(&self, hash: &ArtifactHash, transfer: &Transfer<'_>) -> Result<File, ArtifactError> {
        if let Ok(mut file) = File::open(self.folder.join(hash.as_str())) {
            if let Ok(size_bytes) = verified_size(&mut file, hash) {
                self.index().touch(hash.clone(), size_bytes);
                return Ok(file);
            }
            tracing::warn!(artifact.hash = %hash, "a cached artifact is damaged and is fetched again");
            self.forget(hash);
        }
        let failed = |source| self.io(hash, source);
        let mut file = self.unfinished().map_err(failed)?;
        self.behind.fetch(hash, file.as_file_mut(), transfer)?;
        verified_size(file.as_file_mut(), hash)?;
        self.keep(hash, file)
    }

    fn unfinished(&self) -> io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)
    }

    /// Writes the file atomically.
    fn keep(&self, hash: &ArtifactHash, file: NamedTempFile) -> Result<File, ArtifactError> {
        let path = self.folder.join(hash.as_str());
        let keep = || -> io::Result<(File, u64)> {
            let file = file.persist(&path).map_err(|error| error.error)?;
            let size_bytes = file.metadata()?.len();
            Ok((file, size_bytes))
        };
        let (file, size_bytes) = keep().map_err(|source| self.io(hash, source))?;
        self.index().touch(hash.clone(), size_bytes);
        self.prune();
        Ok(file)
    }

    fn io(&self, hash: &ArtifactHash, source: io::Error) -> ArtifactError {
        ArtifactError::Io { path: self.folder.join(hash.as_str()), source }
    }

    fn forget(&self, hash: &ArtifactHash) {
        self.index().remove(hash);
        let _ = std::fs::remove_file(self.folder.join(hash.as_str()));
    }

    fn prune(&self) {
        loop {
            // A separate statement, so that the lock is released before `forget` takes it.
            let oldest = self.index().oldest_beyond(self.max_bytes);
            let Some(oldest) = oldest else { return };
            self.forget(&oldest);
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // The index only decides what is removed, so it stays usable after a panic.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of a file whose bytes have this hash; it stands at its first byte afterwards.
fn verified_size(file: &mut File, hash: &ArtifactHash) -> Result<u64, ArtifactError> {
    let damaged = |_| ArtifactError::Damaged { hash: hash.clone() };
    let mut hasher = blake3::Hasher::new();
    file.rewind().map_err(damaged)?;
    hasher.update_reader(&mut *file).map_err(damaged)?;
    file.rewind().map_err(damaged)?;
    if hasher.finalize().to_hex().as_str() == hash.as_str() {
        Ok(hasher.count())
    } else {
        Err(ArtifactError::Damaged { hash: hash.clone() })
    }
}

impl Index {
    fn touch(&mut self, hash: ArtifactHash, size_bytes: u64) {
        self.clock += 1;
        self.remove(&hash);
        self.total_bytes += size_bytes;
        self.files.insert(hash, Use { size_bytes, last: self.clock });
    }

    fn remove(&mut self, hash: &ArtifactHash) {
        if let Some(used) = self.files.remove(hash) {
            self.total_bytes = self.total_bytes.saturating_sub(used.size_bytes);
        }
    }

    /// The file that was not used for the longest time, when all together are too large. The last one stays.
    fn oldest_beyond(&self, max_bytes: u64) -> Option<ArtifactHash> {
        if self.total_bytes <= max_bytes || self.files.len() <= 1 {
            return None;
        }
        self.files.iter().min_by_key(|(_, used)| used.last).map(|(hash, _)| hash.clone())
    }
}

/// A store in memory.
#[cfg(test)]
#[derive(Debug, Clone, Default)]
struct InMemory(std::sync::Arc<Mutex<HashMap<ArtifactHash, Vec<u8>>>>);

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
impl ArtifactStore for InMemory {
    fn fetch(&self, hash: &ArtifactHash, into: &mut File, _: &Transfer<'_>) -> Result<(), ArtifactError> {
        let bytes = self.0.lock().unwrap().get(hash).cloned().ok_or_else(|| ArtifactError::Server {
            code: "artifact.not_found".to_owned(),
            message: format!("there is no artifact {hash}"),
            transient: false,
        })?;
        into.write_all(&bytes).unwrap();
        Ok(())
    }

    fn put(&self, bytes: &[u8], _: &Transfer<'_>) -> Result<ArtifactHash, ArtifactError> {
        let hash = ArtifactHash::of(bytes);
        self.0.lock().unwrap().insert(hash.clone(), bytes.to_vec());
        Ok(hash)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::step::StepFailure;

    use super::*;
    use nightshift_sandbox::process::CancelFlag;

    /// A cache used for a step that is never cancelled.
    struct Cache(ArtifactCache, CancelFlag);

    impl Cache {
        fn get(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ArtifactError> {
            self.0.get(hash, &Transfer { cancel: &self.1, traceparent: None })
        }

        fn put(&self, bytes: &[u8]) -> Result<ArtifactHash, ArtifactError> {
            self.0.put(bytes, &Transfer { cancel: &self.1, traceparent: None })
        }
    }

    fn at_server(server: &InMemory, bytes: &[u8]) -> ArtifactHash {
        let hash = ArtifactHash::of(bytes);
        server.0.lock().unwrap().insert(hash.clone(), bytes.to_vec());
        hash
    }

    fn cache(folder: &Path, max_bytes: u64, behind: &InMemory) -> Cache {
        let cache = ArtifactCache::open(folder, max_bytes, Box::new(behind.clone())).unwrap();
        Cache(cache, CancelFlag::default())
    }

    #[test]
    fn what_was_fetched_once_is_there_without_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let server = InMemory::default();
        let hash = at_server(&server, b"library");
        assert_eq!(cache(folder.path(), 100, &server).get(&hash).unwrap(), b"library");
        server.0.lock().unwrap().clear();
        assert_eq!(cache(folder.path(), 100, &server).get(&hash).unwrap(), b"library");
    }

    #[test]
    fn a_damaged_file_is_fetched_again() {
        let folder = tempfile::tempdir().unwrap();
        let server = InMemory::default();
        let cache = cache(folder.path(), 100, &server);
        let hash = cache.put(b"library").unwrap();
        std::fs::write(folder.path().join(hash.as_str()), b"broken").unwrap();
        assert_eq!(cache.get(&hash).unwrap(), b"library");
        assert_eq!(std::fs::read(folder.path().join(hash.as_str())).unwrap(), b"library");
    }

    #[test]
    fn a_store_that_gives_other_bytes_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let server = InMemory::default();
        let hash = ArtifactHash::of(b"asked");
        server.0.lock().unwrap().insert(hash.clone(), b"given".to_vec());
        let error = cache(folder.path(), 100, &server).get(&hash).unwrap_err();
        assert_eq!(StepFailure::from(error).code, "artifact.damaged");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn beyond_its_size_the_folder_loses_what_was_not_used_for_the_longest_time() {
        let folder = tempfile::tempdir().unwrap();
        let server = InMemory::default();
        let cache = cache(folder.path(), 10, &server);
        let first = cache.put(b"1111").unwrap();
        let second = cache.put(b"2222").unwrap();
        cache.get(&first).unwrap();
        let third = cache.put(b"3333").unwrap();
        let there = |hash: &ArtifactHash| folder.path().join(hash.as_str()).exists();
        assert_eq!((there(&first), there(&second), there(&third)), (true, false, true));
        assert_eq!(cache.get(&second).unwrap(), b"2222", "the server still has it");
    }

    #[test]
    fn only_files_whose_writer_is_long_gone_are_removed_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let abandoned = std::fs::File::create(folder.path().join("writing-abandoned")).unwrap();
        abandoned.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        std::fs::write(folder.path().join("writing-now"), b"half").unwrap();
        std::fs::write(folder.path().join("notes"), b"not ours").unwrap();
        let _cache = cache(folder.path(), 10, &InMemory::default());
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["notes", "writing-now"]);
    }

    #[test]
    fn a_missing_artifact_is_a_fatal_failure() {
        let folder = tempfile::tempdir().unwrap();
        let error = cache(folder.path(), 10, &InMemory::default()).get(&ArtifactHash::of(b"x")).unwrap_err();
        let failure = StepFailure::from(error);
        assert_eq!(failure.code, "artifact.not_found");
        assert_eq!(failure.class, nightshift_protocol::step::FailureClass::Fatal);
    }
}
