//! An object store in memory that fails, waits or forgets on request.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::Semaphore;

/// The object store. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct FaultyObjects(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kept: InMemory,
    /// Number of writes until all writes fail.
    writes_left: AtomicUsize,
    fails_to_delete: AtomicBool,
    /// One permit for each write that may return; writes are done before they wait.
    written: Semaphore,
    /// One permit for each deletion that may begin.
    deletions: Semaphore,
    /// Objects that were written.
    names: Mutex<HashSet<String>>,
}

impl FaultyObjects {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            kept: InMemory::new(),
            writes_left: AtomicUsize::new(usize::MAX),
            fails_to_delete: AtomicBool::new(false),
            written: Semaphore::new(Semaphore::MAX_PERMITS / 2),
            deletions: Semaphore::new(Semaphore::MAX_PERMITS / 2),
            names: Mutex::default(),
        }))
    }

    /// Lets so many writes succeed.
    pub(crate) fn allow_writes(&self, count: usize) {
        self.0.writes_left.store(count, Ordering::SeqCst);
    }

    pub(crate) fn set_fails_to_delete(&self, fails: bool) {
        self.0.fails_to_delete.store(fails, Ordering::SeqCst);
    }

    /// Lets each write wait after it is done.
    pub(crate) fn hold_writes(&self) {
        self.0.written.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn release_writes(&self) {
        self.0.written.add_permits(1_000);
    }

    /// Lets each deletion wait before it begins.
    pub(crate) fn hold_deletions(&self) {
        self.0.deletions.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn release_deletions(&self) {
        self.0.deletions.add_permits(1_000);
    }

    /// Returns the number of objects that were ever written.
    pub(crate) fn written(&self) -> usize {
        self.0.names.lock().unwrap().len()
    }

    /// Returns the names of the objects.
    pub(crate) async fn names(&self) -> Vec<Path> {
        self.0.kept.list(None).map_ok(|meta| meta.location).try_collect().await.unwrap()
    }

    /// Deletes an object, as an operator or another program does.
    pub(crate) async fn lose(&self, name: &Path) {
        self.0.kept.delete(name).await.unwrap();
    }

    /// Replaces the bytes of an object.
    pub(crate) async fn replace(&self, name: &Path, bytes: &[u8]) {
        self.0.kept.put(name, bytes.to_vec().into()).await.unwrap();
    }
}

fn failure() -> Error {
    Error::Generic { store: "test", source: "the connection was reset".into() }
}

impl fmt::Display for FaultyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty objects")
    }
}

#[async_trait]
impl ObjectStore for FaultyObjects {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let counted = self.0.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        counted.map_err(|_| failure())?;
        let result = self.0.kept.put_opts(location, payload, options).await;
        self.0.names.lock().unwrap().insert(location.to_string());
        self.0.written.acquire().await.unwrap().forget();
        result
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.kept.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.kept.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.0);
        locations
            .then(move |location| {
                let inner = Arc::clone(&inner);
                async move {
                    inner.deletions.acquire().await.unwrap().forget();
                    if inner.fails_to_delete.load(Ordering::SeqCst) {
                        return Err(failure());
                    }
                    let location = location?;
                    inner.kept.delete(&location).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.kept.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.kept.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.kept.copy_opts(from, to, options).await
    }
}
