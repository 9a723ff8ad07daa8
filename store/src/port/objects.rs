//! The care of the object store: deletes objects without an artifact, moves artifacts of earlier releases, and checks.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use nightshift_engine::store::{ArtifactStore as _, MovedArtifacts, StoreError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::artifact::{self, ToMove};
use crate::catalog::piece::{self, LooseObject};
use crate::catalog::prune;
use crate::objects::Objects;
use crate::store::SqlStore;

/// Size of the pieces of a moved artifact, in bytes.
const MOVED_BYTES: u64 = 4 * 1024 * 1024;
/// Number of the newest objects that show whether this is the right object store.
const EXAMINED: u32 = 16;
/// Objects that are looked for at the same time.
const EXAMINED_AT_ONCE: usize = 8;
/// Artifacts that are looked up at a time in order to move them.
const MOVED_AT_ONCE: u32 = 16;
/// Objects that are deleted at the same time.
const DELETED_AT_ONCE: usize = 8;
/// Objects that are looked up at a time in order to check them.
const CHECKED_AT_ONCE: u32 = 1_000;
/// Maximum number of contradictions that a check returns.
const MAX_FOUND: usize = 20;

impl SqlStore {
    /// Returns the object store. Without one, an object that the database names cannot be reached.
    pub(crate) fn objects(&self) -> Result<&Objects, StoreError> {
        self.artifacts.objects.as_ref().ok_or_else(|| {
            StoreError::Unusable(
                "this database has artifacts in an object store: set artifacts.url (NIGHTSHIFT_ARTIFACTS__URL) to the one \
                 that its other servers use"
                    .to_owned(),
            )
        })
    }

    /// Returns the place of the objects, and whether it is a folder of this machine; none if the database has all bytes.
    #[must_use]
    pub fn artifact_place(&self) -> Option<(&str, bool)> {
        self.artifacts.objects.as_ref().map(|objects| (objects.place(), objects.is_local()))
    }

    /// Finds out whether the newest objects of this database are in this object store. Returns a sentence if none is: it is another place,
    /// or a folder that is not mounted.
    pub async fn examine_artifact_place(&self) -> Result<Option<String>, StoreError> {
        let (missing, of) = self.missing_of_newest().await?;
        if of == 0 || missing < of {
            return Ok(None);
        }
        Ok(Some(format!(
            "the newest artifacts of this database are not in {}: every server of a database must use the same artifacts.url, and a \
             folder has to be mounted before the start",
            self.objects()?.place()
        )))
    }

    /// Returns how many of the newest objects are missing, and how many were looked for.
    async fn missing_of_newest(&self) -> Result<(usize, usize), StoreError> {
        let newest = read!(self, |connection| piece::newest(connection, EXAMINED))?;
        let count = newest.len();
        Ok((self.missing_of(newest).await?.len(), count))
    }

    /// Returns the keys of those objects that are missing or have another size.
    pub(super) async fn missing_of(&self, objects: Vec<(LooseObject, u64)>) -> Result<Vec<i64>, StoreError> {
        let looked_for = stream::iter(objects).map(async |(LooseObject { id, name }, size_bytes)| {
            let is_there = self.objects()?.size(&name).await? == Some(size_bytes);
            Ok::<_, StoreError>((!is_there).then_some(id))
        });
        let missing: Vec<Option<i64>> = looked_for.buffer_unordered(EXAMINED_AT_ONCE).try_collect().await?;
        Ok(missing.into_iter().flatten().collect())
    }

    /// Refuses to take an object for lost when no object that was written before it is there either: the place is another
    /// one, or a folder that is not mounted. Objects that were written later say little: they may be below the mount point.
    pub(super) async fn check_is_lost(&self, artifact_id: i64, object_id: i64) -> Result<(), StoreError> {
        let others = read!(self, |connection| piece::neighbours(connection, artifact_id, object_id, EXAMINED))?;
        let count = others.len();
        if count == 0 || self.missing_of(others).await?.len() < count {
            return Ok(());
        }
        Err(StoreError::Unusable(format!(
            "this artifact and others of its time are not in {}, and nothing is stored in their place: every server of a \
             database must use the same artifacts.url, and a folder has to be mounted",
            self.objects()?.place()
        )))
    }

    /// Deletes objects of deleted artifacts, and objects that were begun before `before` and that no artifact has.
    pub(crate) async fn delete_objects(&self, before: TimestampMs, limit: u32) -> Result<u64, StoreError> {
        let Some(objects) = &self.artifacts.objects else { return Ok(0) };
        if !read!(self, |connection| piece::are_to_delete(connection, before))? {
            return Ok(0);
        }
        // The mark is committed before the first object is deleted: no upload can get a marked object.
        transaction!(self, |tx, before| piece::mark_abandoned(tx.connection, *before))?;
        let limit = limit.max(1);
        let loose = read!(self, |connection| piece::to_delete(connection, limit))?;
        let deleted: Vec<Result<i64, (i64, StoreError)>> = stream::iter(loose)
            .map(async |LooseObject { id, name }| objects.delete(&name).await.map(|()| id).map_err(|error| (id, error)))
            .buffer_unordered(DELETED_AT_ONCE)
            .collect()
            .await;
        let (mut ids, mut later, mut failed) = (Vec::new(), Vec::new(), None);
        for outcome in deleted {
            match outcome {
                Ok(id) => ids.push(id),
                Err((id, error)) => {
                    later.push(id);
                    failed = Some(error);
                }
            }
        }
        let count = u64::try_from(ids.len()).unwrap_or(u64::MAX);
        transaction!(self, |tx, ids| piece::forget(tx.connection, ids.clone()))?;
        if !later.is_empty() {
            // Objects that cannot be deleted do not keep the others waiting.
            transaction!(self, |tx, later| piece::postpone(tx.connection, later.clone()))?;
        }
        failed.map_or(Ok(count), Err)
    }

    /// Moves some artifacts with a larger hash than `after` from the database into the object store.
    pub(crate) async fn move_some_artifacts(
        &self,
        after: Option<ArtifactHash>,
        at: TimestampMs,
    ) -> Result<MovedArtifacts, StoreError> {
        let mut moved = MovedArtifacts::default();
        if self.artifacts.objects.is_none() {
            return Ok(moved);
        }
        // What is moved is deleted from the database: the place has to be the one that the other servers use.
        let (missing, of) = self.missing_of_newest().await?;
        if missing > 0 {
            return Err(StoreError::Unusable(format!(
                "{missing} of the {of} newest artifacts of this database are not in {}, and no others are moved there: every server of a \
                 database must use the same artifacts.url",
                self.objects()?.place()
            )));
        }
        let after = after.as_ref().map_or("", ArtifactHash::as_str);
        let most = self.artifacts.max_piece_bytes;
        let found = read!(self, |connection| artifact::to_move(connection, after, most, MOVED_AT_ONCE))?;
        for artifact in found {
            moved.last = Some(artifact.hash.clone());
            let size_bytes = artifact.size_bytes;
            let hash = artifact.hash.clone();
            let is_moved = match self.move_artifact(artifact, at).await {
                Err(StoreError::Corrupt(reason)) => {
                    tracing::error!(artifact.hash = %hash, reason, "an artifact in the database is damaged, and was not moved");
                    false
                }
                other => other?,
            };
            if is_moved {
                moved.artifacts += 1;
                moved.bytes += size_bytes;
            }
        }
        // On SQLite the space goes back at once, so that a move needs little more than it frees.
        while moved.artifacts > 0 && transaction!(self, |tx| prune::give_back(tx.connection))? {}
        Ok(moved)
    }

    /// Moves an artifact. A damaged one stays as it is.
    async fn move_artifact(&self, moved: ToMove, at: TimestampMs) -> Result<bool, StoreError> {
        let mut hasher = blake3::Hasher::new();
        let mut pieces = Vec::new();
        let mut ids = Vec::new();
        let mut offset = 0;
        while offset < moved.size_bytes {
            let end = offset.saturating_add(MOVED_BYTES).min(moved.size_bytes);
            let reading = read!(self, |connection| artifact::part(connection, moved.id, (offset, end)))?;
            let Some(bytes) = self.bytes_of(&reading).await? else { break };
            hasher.update(&bytes);
            let piece = self.new_piece(&moved.hash, offset, &bytes, at).await;
            let piece = self.give_up_unless(piece, &ids).await?;
            ids.extend(piece.object());
            pieces.push((offset, piece));
            offset = end;
        }
        let is_right = offset >= moved.size_bytes && hasher.finalize().to_hex().as_str() == moved.hash.as_str();
        let hash = moved.hash.clone();
        let replaced = if is_right {
            let replaced = transaction!(self, |tx, moved, pieces| artifact::replace(tx.connection, moved, pieces));
            self.give_up_unless(replaced, &ids).await?
        } else {
            false
        };
        if !replaced {
            // Another server moved it, or it was deleted, or it is damaged.
            transaction!(self, |tx, ids| piece::release(tx.connection, ids.clone()))?;
            if !is_right && self.get_artifact(&hash).await.is_err_and(|error| error.code() == "store.corrupt") {
                tracing::error!(artifact.hash = %hash, "an artifact in the database is damaged, and was not moved");
            }
        }
        Ok(replaced)
    }

    /// Finds objects that are missing or have another size, one sentence each.
    pub(crate) async fn find_missing_objects(&self) -> Result<Vec<String>, StoreError> {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let stored = read!(self, |connection| piece::stored_after(connection, after, CHECKED_AT_ONCE))?;
            let Some((last, _)) = stored.last() else { return Ok(found) };
            after = last.id;
            for (object, size_bytes) in stored {
                let actual = self.objects()?.size(&object.name).await?;
                if actual != Some(size_bytes) && found.len() < MAX_FOUND {
                    found
                        .push(format!("an object has all its bytes: not {} ({actual:?} of {size_bytes})", object.name));
                }
            }
        }
    }
}
