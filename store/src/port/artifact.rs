//! Artifacts, in the database and the object store.

use async_trait::async_trait;
use bytes::Bytes;
use nightshift_engine::store::{ArtifactProgress, ArtifactStore, MovedArtifacts, StoreError};
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use nightshift_protocol::time::TimestampMs;

use crate::catalog::artifact::{self, Head, Part, Reading, Whole};
use crate::catalog::piece::{self, Content, NewPiece, length};
use crate::store::SqlStore;

/// Bytes that are read at a time.
const READ_BYTES: u64 = 4 * 1024 * 1024;
/// Number of tries to read pieces that change at the same time.
const MAX_READS: u32 = 4;

#[async_trait]
impl ArtifactStore for SqlStore {
    async fn put_artifact(&self, hash: &ArtifactHash, bytes: &[u8], at: TimestampMs) -> Result<(), StoreError> {
        artifact::check_size(length(bytes), self.artifacts.max_artifact_bytes)?;
        artifact::check(hash, bytes)?;
        let head = read!(self, |connection| artifact::find(connection, hash))?;
        let lost = self.find_lost(head).await?;
        if lost.is_none() && head.is_some_and(|head| head.progress.complete) {
            let same = hash.clone();
            // It may be deleted in between.
            if transaction!(self, |tx, same, at| artifact::renew(tx.connection, same, *at))? {
                return Ok(());
            }
        }
        let piece = Some(self.new_piece(hash, 0, bytes, at).await?);
        let loose = piece.as_ref().and_then(NewPiece::object);
        let whole = Whole { hash: hash.clone(), piece, lost };
        let stored = transaction!(self, |tx, whole, at| artifact::put(tx.connection, whole, *at));
        self.give_up_unless(stored, loose.as_slice()).await
    }

    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StoreError> {
        let head = read!(self, |connection| artifact::find(connection, hash))?;
        if let Some(head) = head.filter(|head| head.progress.complete) {
            artifact::check_size(head.progress.size_bytes, length_limit())?;
        }
        let bytes = self.read_artifact(hash, 0, u64::MAX).await?;
        if ArtifactHash::of(&bytes) == *hash {
            Ok(bytes)
        } else {
            Err(self.damaged(hash, "its bytes have another hash"))
        }
    }

    async fn artifact_progress(&self, hash: &ArtifactHash) -> Result<Option<ArtifactProgress>, StoreError> {
        read!(self, |connection| artifact::progress(connection, hash))
    }

    async fn renew_artifact(
        &self,
        hash: &ArtifactHash,
        at: TimestampMs,
    ) -> Result<Option<ArtifactProgress>, StoreError> {
        let head = self.renew_row(hash, at).await?;
        let lost = self.find_lost(head).await?;
        Ok(head.filter(|_| lost.is_none()).map(|head| head.progress))
    }

    async fn append_artifact(
        &self,
        hash: &ArtifactHash,
        size_bytes: u64,
        offset: u64,
        bytes: &[u8],
        at: TimestampMs,
    ) -> Result<ArtifactProgress, StoreError> {
        artifact::check_size(size_bytes, self.artifacts.max_artifact_bytes)?;
        let seen = read!(self, |connection| artifact::find(connection, hash))?;
        // Only the first part of an upload looks for the objects of a complete artifact.
        let lost = self.find_lost(seen.filter(|_| offset == 0)).await?;
        let seen = seen.filter(|_| lost.is_none());
        let progress =
            seen.map_or(ArtifactProgress { size_bytes, stored_bytes: 0, complete: false }, |head| head.progress);
        let piece = NewPiece::Chunk(Vec::new());
        let mut is_whole = true;
        let mut part = Part { hash: hash.clone(), size_bytes, offset, piece, verified: None, lost };
        if !progress.complete {
            // Refuse it before its bytes are written.
            part.piece = NewPiece::Chunk(bytes.to_vec());
            artifact::examine(&part, progress)?;
            if offset.saturating_add(length(bytes)) == size_bytes {
                let found = self.hash_of(seen, offset, bytes).await?;
                is_whole = found.is_some();
                part.verified = Some((seen, found.as_ref() == Some(hash)));
            }
            part.piece = self.new_piece(hash, offset, bytes, at).await?;
        }
        let loose = part.piece.object();
        let appended = transaction!(self, |tx, part, at| artifact::append(tx, part, *at));
        match self.give_up_unless(appended, loose.as_slice()).await? {
            // The client is not to blame for parts that were stored and are gone.
            Err(StoreError::Refused { .. }) if !is_whole => {
                let message = format!("stored parts of {hash} are missing, and all were deleted: upload it again");
                Err(StoreError::Refused { code: "artifact.upload_disturbed", message })
            }
            appended => appended,
        }
    }

    async fn read_artifact(&self, hash: &ArtifactHash, offset: u64, length: u64) -> Result<Vec<u8>, StoreError> {
        for _ in 0..MAX_READS {
            let reading = read!(self, |connection| artifact::read(connection, hash, offset, length))?;
            if let Some(bytes) = self.bytes_of(&reading).await? {
                return Ok(bytes);
            }
        }
        Err(self.damaged(hash, "some of its bytes are missing"))
    }

    async fn move_artifacts(&self, after: Option<ArtifactHash>, at: TimestampMs) -> Result<MovedArtifacts, StoreError> {
        self.move_some_artifacts(after, at).await
    }
}

impl SqlStore {
    /// Returns the key of an object of a complete artifact that is missing or has another size; none for every other
    /// artifact.
    ///
    /// - `Unusable`: objects of other artifacts are missing, too, so that this is not their place.
    pub(super) async fn find_lost(&self, head: Option<Head>) -> Result<Option<i64>, StoreError> {
        let Some(head) = head.filter(|head| head.progress.complete) else { return Ok(None) };
        let objects = read!(self, |connection| piece::objects_of(connection, head.id))?;
        let Some(lost) = self.missing_of(objects).await?.into_iter().min() else { return Ok(None) };
        self.check_is_lost(head.id, lost).await?;
        Ok(Some(lost))
    }

    /// Renews an old artifact. Returns its row, also if its objects are missing.
    pub(super) async fn renew_row(&self, hash: &ArtifactHash, at: TimestampMs) -> Result<Option<Head>, StoreError> {
        if read!(self, |connection| artifact::is_old(connection, hash, at))? {
            let hash = hash.clone();
            transaction!(self, |tx, hash, at| artifact::renew(tx.connection, hash, *at))?;
        }
        read!(self, |connection| artifact::find(connection, hash))
    }

    /// Computes the hash of the stored parts up to `offset` followed by `last`; none if a part is missing.
    async fn hash_of(
        &self,
        stored: Option<Head>,
        offset: u64,
        last: &[u8],
    ) -> Result<Option<ArtifactHash>, StoreError> {
        let mut hasher = blake3::Hasher::new();
        let mut begin = 0;
        while let Some(head) = stored.filter(|_| begin < offset) {
            let end = begin.saturating_add(READ_BYTES).min(offset);
            let reading = read!(self, |connection| artifact::part(connection, head.id, (begin, end)))?;
            // Parts may also be deleted in between; the transaction then finds another row.
            let Some(bytes) = self.bytes_of(&reading).await? else { return Ok(None) };
            hasher.update(&bytes);
            begin = end;
        }
        hasher.update(last);
        let hash = hasher.finalize().to_hex().as_str().parse();
        hash.map(Some).map_err(|error| StoreError::Other(format!("{error}")))
    }

    /// Returns the bytes of a range; none if a piece was moved or deleted in between.
    pub(crate) async fn bytes_of(&self, reading: &Reading) -> Result<Option<Vec<u8>>, StoreError> {
        let Reading { begin, end, pieces } = reading;
        let mut bytes = Vec::new();
        let mut at = *begin;
        for piece in pieces {
            let piece_end = piece.offset.saturating_add(piece.size_bytes());
            if at >= *end || piece_end <= at {
                continue;
            }
            if piece.offset > at {
                return Ok(None);
            }
            let (from, to) = (at - piece.offset, piece_end.min(*end) - piece.offset);
            match &piece.content {
                Content::Chunk(chunk) => {
                    let range = usize::try_from(from).unwrap_or(usize::MAX)..usize::try_from(to).unwrap_or(usize::MAX);
                    bytes.extend_from_slice(chunk.get(range).unwrap_or_default());
                }
                Content::Object { name, .. } => match self.objects()?.read(name, from..to).await? {
                    Some(read) if length(&read) == to - from => bytes.extend_from_slice(&read),
                    _ => return Ok(None),
                },
            }
            at = piece.offset + to;
        }
        Ok((at >= *end).then_some(bytes))
    }

    /// Prepares bytes to become a piece of an artifact, and writes its object if it has one.
    pub(crate) async fn new_piece(
        &self,
        hash: &ArtifactHash,
        offset: u64,
        bytes: &[u8],
        at: TimestampMs,
    ) -> Result<NewPiece, StoreError> {
        if !self.belongs_outside(bytes.len()) {
            return Ok(NewPiece::Chunk(bytes.to_vec()));
        }
        let (hash, size_bytes) = (hash.clone(), length(bytes));
        let object = transaction!(self, |tx, hash, offset, size_bytes, at| piece::register(
            tx.connection,
            hash,
            (*offset, *size_bytes),
            *at
        ))?;
        // After an error the object may still arrive. Its row stays, and the collection deletes it when it is old.
        self.objects()?.write(&object.name, Bytes::copy_from_slice(bytes)).await?;
        Ok(NewPiece::Object { id: object.id, size_bytes })
    }

    pub(crate) fn belongs_outside(&self, bytes: usize) -> bool {
        self.artifacts.objects.is_some() && bytes > self.artifacts.max_piece_bytes
    }

    /// Gives up objects after an error, so that the next collection deletes them.
    pub(crate) async fn give_up_unless<T>(&self, result: Result<T, StoreError>, ids: &[i64]) -> Result<T, StoreError> {
        if result.is_err() && !ids.is_empty() {
            let ids = ids.to_vec();
            if let Err(error) = transaction!(self, |tx, ids| piece::release(tx.connection, ids.clone())) {
                tracing::debug!(error = %error, "an object without an artifact stays until it is old enough to be deleted");
            }
        }
        result
    }

    pub(crate) fn damaged(&self, hash: &ArtifactHash, reason: &str) -> StoreError {
        let place = self.artifacts.objects.as_ref().map_or("the database", |objects| objects.place());
        StoreError::Corrupt(format!(
            "artifact {hash} is damaged: {reason}. Look into {place}: every server of a database must use the same \
             artifacts.url, and a backup consists of the database and the objects"
        ))
    }
}

fn length_limit() -> u64 {
    u64::try_from(MAX_ARTIFACT_BYTES).unwrap_or(u64::MAX)
}
