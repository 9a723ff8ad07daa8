//! Where the bytes of artifacts live: a folder, S3, Google Cloud Storage or Azure, named by one URL.
//!
//! The design, in five sentences. An artifact is a sequence of pieces, one for each uploaded part; a piece of up to 4 KiB
//! stays in the database, a larger one is an object. Each object is written once, under a name that is never used again,
//! and a row in `artifact_object` names it from before it is written until after it is deleted. The object is written
//! first, and the transaction that makes it a piece of an artifact, together with the rows that reference the artifact,
//! comes after; so a crash in between leaves an object that no artifact has, which the collection finds in the table.
//! Pruning marks the rows in its transaction and deletes the objects after it; an upload at the same time writes objects
//! under other names, so it cannot lose them. Pieces that earlier releases stored in the database are read from there
//! until they are moved, artifact by artifact, and every read accepts both.

use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nightshift_engine::store::StoreError;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt as _, RetryConfig};
use url::Url;

/// Name of the folder of objects in a data folder.
pub const ARTIFACT_FOLDER: &str = "artifacts";
/// Default of [`ArtifactOptions::max_piece_bytes`]: a page of the database.
const MAX_PIECE_BYTES: usize = 4 * 1024;
/// Default of [`ArtifactOptions::max_artifact_bytes`]: 4 GiB.
pub const DEFAULT_MAX_ARTIFACT_BYTES: u64 = 4 << 30;
/// Maximum duration of one call, with its repetitions.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// Mode of a new folder. It contains sources and replies, so only its owner has access. The folders in it get the default
/// mode, so that a folder which a group shares stays shared.
const FOLDER_MODE: u32 = 0o700;

/// How artifacts are stored.
#[derive(Debug, Clone)]
pub struct ArtifactOptions {
    /// The object store. Without it, a database in a data folder uses the folder `artifacts` next to it, and a database of
    /// a Postgres server holds all bytes itself: only the operator can say which place all of its servers share.
    pub objects: Option<Objects>,
    /// Maximum size of a piece that stays in the database, in bytes: a row is cheaper than a small object.
    pub max_piece_bytes: usize,
    /// Maximum size of an artifact, in bytes. It limits what the holder of a token can fill the store with at once.
    pub max_artifact_bytes: u64,
}

impl Default for ArtifactOptions {
    fn default() -> Self {
        Self { objects: None, max_piece_bytes: MAX_PIECE_BYTES, max_artifact_bytes: DEFAULT_MAX_ARTIFACT_BYTES }
    }
}

/// An object store, or a part of one. Clones share it.
#[derive(Debug, Clone)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    /// The place, as messages name it. It contains no secret.
    place: String,
    /// The folder of a place on this machine.
    folder: Option<PathBuf>,
}

impl Objects {
    /// Opens the place that a URL names: `file:///folder`, `s3://bucket/prefix`, `gs://bucket/prefix` or
    /// `az://container/prefix`. Nothing is read or written yet, except that a missing folder is created.
    ///
    /// `settings` are names and values of environment variables with credentials and endpoints, such as
    /// `AWS_ACCESS_KEY_ID`, `GOOGLE_SERVICE_ACCOUNT` and `AZURE_STORAGE_ACCOUNT_NAME`; others are ignored.
    ///
    /// - `Unusable`: the URL is none of these, or a setting is wrong or missing.
    pub fn open(url: &str, settings: &[(String, String)]) -> Result<Self, StoreError> {
        let wrong = |reason: &dyn std::fmt::Display| {
            StoreError::Unusable(format!(
                "artifacts cannot be stored in `{}`: {reason}. Expected file:///FOLDER, s3://BUCKET/PREFIX, \
                 gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
                without_secrets(url)
            ))
        };
        let parsed = Url::parse(url).map_err(|error| wrong(&error))?;
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return Err(wrong(&"credentials belong into environment variables, not into the URL"));
        }
        macro_rules! cloud {
            ($builder:ty) => {
                settings
                    .iter()
                    .fold(<$builder>::new().with_client_options(patient()).with_url(url), |builder, (name, value)| {
                        match name.to_ascii_lowercase().parse() {
                            Ok(key) => builder.with_config(key, value),
                            Err(_) => builder,
                        }
                    })
                    .with_retry(retries())
                    .build()
                    .map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            };
        }
        let store = match parsed.scheme() {
            "file" => {
                let folder = parsed.to_file_path().map_err(|()| wrong(&"it names no folder of this machine"))?;
                return Self::folder(&folder);
            }
            "s3" => cloud!(AmazonS3Builder),
            "gs" => cloud!(GoogleCloudStorageBuilder),
            "az" => cloud!(MicrosoftAzureBuilder),
            _ => return Err(wrong(&"this scheme is unknown")),
        };
        let store = store.map_err(|error| wrong(&error))?;
        let prefix = Path::from_url_path(parsed.path()).map_err(|error| wrong(&error))?;
        Ok(Self::new(Arc::new(PrefixStore::new(store, prefix)), url.to_owned()))
    }

    /// Opens a folder of this machine, or creates it, with all folders in it: a write creates none, so that it cannot
    /// rely on an entry that another write created and did not sync yet. A folder that is full or not writable can be read.
    pub fn folder(folder: &FilePath) -> Result<Self, StoreError> {
        create_folder(std::fs::DirBuilder::new().mode(FOLDER_MODE), folder)?;
        for prefix in 0..=u8::MAX {
            match create_folder(&mut std::fs::DirBuilder::new(), &folder.join(format!("{prefix:02x}"))) {
                Err(StoreError::ReadOnly(_) | StoreError::Full(_)) => break,
                created => created?,
            }
        }
        sync_folder(folder)?;
        // The folder's own entry survives a loss of power, too.
        if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_folder(parent)?;
        }
        let store = LocalFileSystem::new_with_prefix(folder)
            .map_err(|error| StoreError::Unusable(format!("{}: {error}", folder.display())))?
            // What was acknowledged survives a loss of power.
            .with_fsync(true);
        Ok(Self { folder: Some(folder.to_owned()), ..Self::new(Arc::new(store), folder.display().to_string()) })
    }

    /// Wraps an object store, which messages call `place`.
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>, place: String) -> Self {
        Self { store, place, folder: None }
    }

    /// Returns the place, as messages name it.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns whether it is a folder of this machine, which other machines may not share.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.folder.is_some()
    }

    /// Writes, reads and deletes a small object, to find out whether the place works.
    pub async fn examine(&self) -> Result<(), StoreError> {
        const CONTENT: &[u8] = b"nightshift doctor";
        let name = format!("examined-by-{}", std::process::id());
        self.write(&name, Bytes::from_static(CONTENT)).await?;
        let read = self.read(&name, 0..CONTENT.len() as u64).await?;
        self.delete(&name).await?;
        if read.as_deref() == Some(CONTENT) {
            return Ok(());
        }
        Err(StoreError::Unusable(format!("{} returns other bytes than were written", self.place)))
    }

    /// Writes an object as a whole. When the call returns, the object is durable.
    pub(crate) async fn write(&self, name: &str, bytes: Bytes) -> Result<(), StoreError> {
        self.within(self.store.put(&Path::from(name), bytes.into())).await?.map_err(|error| self.failed(&error))?;
        Ok(())
    }

    /// Reads a range of an object. Returns none if the object does not exist.
    pub(crate) async fn read(&self, name: &str, range: Range<u64>) -> Result<Option<Bytes>, StoreError> {
        match self.within(self.store.get_range(&Path::from(name), range)).await? {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Returns the size of an object in bytes, or none if it does not exist.
    pub(crate) async fn size(&self, name: &str) -> Result<Option<u64>, StoreError> {
        match self.within(self.store.head(&Path::from(name))).await? {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Deletes an object, and the temporary file that a writer left which died. A missing object is a success.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), StoreError> {
        if let Some(folder) = &self.folder {
            // `object_store` writes to this file first. A name is written once, so there is no other one.
            let removed = tokio::fs::remove_file(folder.join(format!("{name}#1"))).await;
            if let Err(error) = removed
                && error.kind() != ErrorKind::NotFound
            {
                let failed = || StoreError::Unreachable(format!("the object store {} failed: {error}", self.place));
                return Err(failed_io(error.kind(), &self.place).unwrap_or_else(failed));
            }
        }
        match self.within(self.store.delete(&Path::from(name))).await? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn within<T>(&self, call: impl Future<Output = T>) -> Result<T, StoreError> {
        tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(|_| {
            let seconds = CALL_TIMEOUT.as_secs();
            StoreError::Unreachable(format!("the object store {} does not answer for {seconds} s", self.place))
        })
    }

    /// Converts an error into one that says what to do.
    fn failed(&self, error: &object_store::Error) -> StoreError {
        let place = &self.place;
        if let Some(failed) = io_kind(error).and_then(|kind| failed_io(kind, place)) {
            return failed;
        }
        match error {
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                StoreError::Unreachable(format!("the object store {place} refuses these credentials: {error}"))
            }
            error => StoreError::Unreachable(format!("the object store {place} failed: {error}")),
        }
    }
}

fn create_folder(builder: &mut std::fs::DirBuilder, folder: &FilePath) -> Result<(), StoreError> {
    builder.recursive(true).create(folder).map_err(|error| {
        let unusable = || StoreError::Unusable(format!("{} cannot be created: {error}", folder.display()));
        failed_io(error.kind(), &folder.display().to_string()).unwrap_or_else(unusable)
    })
}

fn sync_folder(folder: &FilePath) -> Result<(), StoreError> {
    let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| StoreError::Unusable(format!("{} cannot be synced: {error}", folder.display())))
}

/// Returns options of a client that waits for large objects on slow lines.
fn patient() -> ClientOptions {
    ClientOptions::new().with_timeout(CALL_TIMEOUT)
}

/// Returns how often a call is repeated. Callers repeat what failed, after longer times.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 3, retry_timeout: CALL_TIMEOUT / 2, ..RetryConfig::default() }
}

/// Returns the kind of the input or output error behind an error.
fn io_kind(error: &object_store::Error) -> Option<ErrorKind> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

/// Returns the error for a folder that is full or not writable.
fn failed_io(kind: ErrorKind, place: &str) -> Option<StoreError> {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Some(StoreError::Full(format!("no space is left in {place}: free some. Nothing stored was lost")))
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some(StoreError::ReadOnly(format!("{place} is not writable for this user: change its owner or mode")))
        }
        _ => None,
    }
}

/// Returns a URL without user, password and query.
fn without_secrets(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else { return "(not a URL)".to_owned() };
    // A URL that cannot have them has none.
    let _ = parsed.set_username("").and_then(|()| parsed.set_password(None));
    parsed.set_query(None);
    parsed.to_string()
}

/// Returns the name of the object of a piece.
pub(crate) fn object_name(hash: &str, offset: i64, id: i64) -> String {
    let folder = hash.get(..2).unwrap_or(hash);
    format!("{folder}/{hash}-{offset}-{id}")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_url_names_a_folder_or_one_of_three_services() {
        let folder = tempfile::tempdir().unwrap();
        let url = Url::from_file_path(folder.path().join("shared")).unwrap();
        let opened = Objects::open(url.as_str(), &[]).unwrap();
        assert!(opened.is_local() && folder.path().join("shared").is_dir());
        let settings: Vec<(String, String)> = [
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0"),
            ("GOOGLE_SKIP_SIGNATURE", "true"),
            ("PATH", "/usr/bin"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        for url in ["s3://bucket/prefix", "s3://bucket", "gs://bucket/a/b", "az://container/prefix"] {
            let opened = Objects::open(url, &settings).unwrap();
            assert!(!opened.is_local() && opened.place() == url, "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_without_their_secrets() {
        for url in ["memory:///", "http://host/x", "/folder", "s3://user:hunter2@bucket", "s3://bucket?key=hunter2"] {
            let error = Objects::open(url, &[]).unwrap_err();
            assert_eq!(error.code(), "store.unusable", "{url}");
            assert!(error.to_string().contains("s3://BUCKET/PREFIX"), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_folder_keeps_objects_and_forgets_deleted_ones() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::folder(&folder.path().join(ARTIFACT_FOLDER)).unwrap();
        objects.examine().await.unwrap();
        let name = object_name("abcdef", 0, 7);
        assert_eq!(objects.read(&name, 0..4).await.unwrap(), None);
        objects.write(&name, Bytes::from_static(b"bytes")).await.unwrap();
        assert_eq!(objects.read(&name, 1..3).await.unwrap().unwrap(), "yt");
        assert_eq!(objects.size(&name).await.unwrap(), Some(5));
        for _ in 0..2 {
            objects.delete(&name).await.unwrap();
        }
        assert_eq!(objects.size(&name).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_write_into_a_folder_creates_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::folder(folder.path()).unwrap();
        let folders =
            || std::fs::read_dir(folder.path()).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir());
        let before = folders().count();
        for seed in 0..64_u8 {
            let hash = blake3::hash(&[seed]).to_hex();
            objects.write(&object_name(hash.as_str(), 0, 1), Bytes::from_static(b"bytes")).await.unwrap();
        }
        assert_eq!(folders().count(), before);
    }

    #[test]
    fn only_a_new_root_is_closed_to_others() {
        let mode = |folder: &FilePath| std::fs::metadata(folder).unwrap().permissions().mode() & 0o777;
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        std::fs::create_dir(&plain).unwrap();
        std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o770)).unwrap();
        Objects::folder(&plain).unwrap();
        let new = folder.path().join("new");
        Objects::folder(&new).unwrap();
        assert_eq!((mode(&plain), mode(&new)), (0o770, 0o700));
        let usual = folder.path().join("usual");
        std::fs::create_dir(&usual).unwrap();
        assert_eq!(mode(&plain.join("ab")), mode(&usual));
    }

    #[tokio::test]
    async fn a_folder_that_is_full_or_not_writable_is_opened_and_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("ab")).unwrap();
        let name = object_name("abcdef", 0, 7);
        std::fs::write(folder.path().join(&name), b"bytes").unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
        let opened = Objects::folder(folder.path()).unwrap();
        let read = opened.read(&name, 0..5).await.unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(read.unwrap(), "bytes");
    }

    #[tokio::test]
    async fn the_temporary_file_of_a_writer_that_died_goes_with_its_object() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::folder(folder.path()).unwrap();
        let (left, other) = (object_name("abcdef", 0, 7), object_name("abcdef", 0, 8));
        std::fs::write(folder.path().join(format!("{left}#1")), b"half").unwrap();
        objects.write(&left, Bytes::from_static(b"bytes")).await.unwrap();
        objects.write(&other, Bytes::from_static(b"bytes")).await.unwrap();
        objects.delete(&left).await.unwrap();
        let files = std::fs::read_dir(folder.path().join("ab")).unwrap().count();
        assert_eq!(files, 1, "{other} only");
    }
}
