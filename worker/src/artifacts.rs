//! Artifacts by hash: a local folder before the server, for the threads that carry out steps.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_client::{Client, ClientError};
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use nightshift_protocol::step::StepFailure;
use tokio::runtime::Handle;

/// Largest size of the local folder, in bytes: what was not used for the longest time is removed beyond it.
pub const MAX_CACHE_BYTES: u64 = 2 << 30;

/// How a file's name begins while it is being written.
const UNFINISHED: &str = "writing-";
/// A file that was begun this long ago will not be finished: its writer was killed.
const ABANDONED_AFTER: Duration = Duration::from_hours(1);

/// Where artifacts come from and go to. Blocks.
pub trait ArtifactStore: Send + Sync {
    /// The bytes of an artifact.
    fn get(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ArtifactError>;
    /// Stores an artifact. Repeating it is safe.
    fn put(&self, bytes: &[u8]) -> Result<ArtifactHash, ArtifactError>;
}

/// Why an artifact could not be had or stored.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The server could not give or take it.
    #[error("{message}")]
    Server {
        /// The server's code.
        code: String,
        /// What it said.
        message: String,
        /// Whether the same call may succeed later.
        transient: bool,
    },
    /// The bytes do not have the hash that they were asked for by.
    #[error("the artifact {} arrived damaged", hash.short())]
    Damaged {
        /// The hash.
        hash: ArtifactHash,
    },
    /// It is larger than an artifact may be.
    #[error("{size_bytes} bytes are more than an artifact may have ({MAX_ARTIFACT_BYTES})")]
    TooLarge {
        /// Its size.
        size_bytes: usize,
    },
    /// A local file could not be written.
    #[error("the artifact could not be written to {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl From<ClientError> for ArtifactError {
    fn from(error: ClientError) -> Self {
        Self::Server { code: error.code().to_owned(), message: error.to_string(), transient: error.is_transient() }
    }
}

impl From<ArtifactError> for StepFailure {
    fn from(error: ArtifactError) -> Self {
        let message = error.to_string();
        match error {
            ArtifactError::Server { code, transient: true, .. } => Self::retriable(code, message),
            ArtifactError::Server { code, .. } => Self::fatal(code, message),
            ArtifactError::Damaged { .. } => Self::retriable("artifact.damaged", message),
            ArtifactError::TooLarge { .. } => Self::fatal("artifact.too_large", message),
            ArtifactError::Io { source, .. } => Self::retriable("worker.disk", format!("{message}: {source}")),
        }
    }
}

/// The server's artifacts, from a thread that is not part of the runtime.
#[derive(Debug, Clone)]
pub struct ServerArtifacts {
    client: Client,
    runtime: Handle,
}

impl ServerArtifacts {
    /// Calls of this client are driven by that runtime.
    #[must_use]
    pub fn new(client: Client, runtime: Handle) -> Self {
        Self { client, runtime }
    }
}

impl ArtifactStore for ServerArtifacts {
    fn get(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ArtifactError> {
        Ok(self.runtime.block_on(self.client.get_artifact(hash))?)
    }

    fn put(&self, bytes: &[u8]) -> Result<ArtifactHash, ArtifactError> {
        Ok(self.runtime.block_on(self.client.put_artifact(bytes))?)
    }
}

/// A local folder before another store. Its files are never handed out, since they may be removed at any time.
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
    /// Opens the folder, which is created; its files count as used in the order of their age.
    pub fn open(folder: &Path, max_bytes: u64, behind: Box<dyn ArtifactStore>) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        // The folder's own idea of now: the clock is not ours to read.
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

    /// The bytes of an artifact, from the folder when they are there and undamaged.
    pub fn get(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ArtifactError> {
        let path = self.folder.join(hash.as_str());
        if let Ok(bytes) = std::fs::read(&path) {
            if ArtifactHash::of(&bytes) == *hash {
                self.index().touch(hash.clone(), bytes.len() as u64);
                return Ok(bytes);
            }
            tracing::warn!(artifact.hash = %hash, "a cached artifact is damaged and is fetched again");
            self.forget(hash);
        }
        let bytes = self.behind.get(hash)?;
        if ArtifactHash::of(&bytes) != *hash {
            return Err(ArtifactError::Damaged { hash: hash.clone() });
        }
        self.keep(hash, &bytes)?;
        Ok(bytes)
    }

    /// Writes an artifact to a file.
    pub fn copy_to(&self, hash: &ArtifactHash, path: &Path) -> Result<(), ArtifactError> {
        let bytes = self.get(hash)?;
        std::fs::write(path, bytes).map_err(|source| ArtifactError::Io { path: path.to_path_buf(), source })
    }

    /// Stores an artifact, in the folder and behind it.
    pub fn put(&self, bytes: &[u8]) -> Result<ArtifactHash, ArtifactError> {
        if bytes.len() > MAX_ARTIFACT_BYTES {
            return Err(ArtifactError::TooLarge { size_bytes: bytes.len() });
        }
        let hash = self.behind.put(bytes)?;
        if ArtifactHash::of(bytes) != hash {
            return Err(ArtifactError::Damaged { hash });
        }
        self.keep(&hash, bytes)?;
        Ok(hash)
    }

    /// The file appears whole or not at all.
    fn keep(&self, hash: &ArtifactHash, bytes: &[u8]) -> Result<(), ArtifactError> {
        let path = self.folder.join(hash.as_str());
        let write = || -> io::Result<()> {
            let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)?;
            file.write_all(bytes)?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(|source| ArtifactError::Io { path: path.clone(), source })?;
        self.index().touch(hash.clone(), bytes.len() as u64);
        self.prune();
        Ok(())
    }

    fn forget(&self, hash: &ArtifactHash) {
        self.index().remove(hash);
        let _ = std::fs::remove_file(self.folder.join(hash.as_str()));
    }

    fn prune(&self) {
        loop {
            // A statement of its own: the lock may not be held while `forget` takes it again.
            let oldest = self.index().oldest_beyond(self.max_bytes);
            let Some(oldest) = oldest else { return };
            self.forget(&oldest);
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // The index only steers what is removed; a panic of another thread leaves it usable.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
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
pub(crate) struct InMemory(pub(crate) std::sync::Arc<Mutex<HashMap<ArtifactHash, Vec<u8>>>>);

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
impl ArtifactStore for InMemory {
    fn get(&self, hash: &ArtifactHash) -> Result<Vec<u8>, ArtifactError> {
        self.0.lock().unwrap().get(hash).cloned().ok_or_else(|| ArtifactError::Server {
            code: "artifact.not_found".to_owned(),
            message: format!("there is no artifact {hash}"),
            transient: false,
        })
    }

    fn put(&self, bytes: &[u8]) -> Result<ArtifactHash, ArtifactError> {
        let hash = ArtifactHash::of(bytes);
        self.0.lock().unwrap().insert(hash.clone(), bytes.to_vec());
        Ok(hash)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn cache(folder: &Path, max_bytes: u64, behind: &InMemory) -> ArtifactCache {
        ArtifactCache::open(folder, max_bytes, Box::new(behind.clone())).unwrap()
    }

    #[test]
    fn what_was_fetched_once_is_there_without_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let server = InMemory::default();
        let hash = server.put(b"library").unwrap();
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
    fn an_artifact_that_nobody_has_is_a_fatal_failure() {
        let folder = tempfile::tempdir().unwrap();
        let error = cache(folder.path(), 10, &InMemory::default()).get(&ArtifactHash::of(b"x")).unwrap_err();
        let failure = StepFailure::from(error);
        assert_eq!(failure.code, "artifact.not_found");
        assert_eq!(failure.class, nightshift_protocol::step::FailureClass::Fatal);
    }
}
