//! Blobs, addressed by their hash and stored in chunks.

use nightshift_engine::store::{ArtifactProgress, StoreError};
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use nightshift_protocol::time::TimestampMs;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::number::{from_stored, to_stored};
use crate::transaction::Transaction;
use crate::value::values;

/// Maximum length of a chunk, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;

/// Minimum age at which an artifact is renewed, in milliseconds. Each renewal is a write.
const RENEWED_AFTER_MS: u64 = 10 * 60 * 1_000;

/// Selects the chunks of a range.
pub(crate) const CHUNKS: &str = "SELECT offset_bytes, bytes FROM artifact_chunk \
     WHERE artifact_id = $1 AND offset_bytes > $2 AND offset_bytes < $3 ORDER BY offset_bytes";

/// A row of the table.
struct Head {
    id: i64,
    progress: ArtifactProgress,
}

/// Refuses bytes that are too large or do not match the hash.
pub(crate) fn check(hash: &ArtifactHash, bytes: &[u8]) -> Result<(), StoreError> {
    check_size(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
    if ArtifactHash::of(bytes) == *hash { Ok(()) } else { Err(wrong_hash(hash)) }
}

fn check_size(size_bytes: u64) -> Result<(), StoreError> {
    if usize::try_from(size_bytes).is_ok_and(|size| size <= MAX_ARTIFACT_BYTES) {
        return Ok(());
    }
    let message = format!("an artifact has at most {MAX_ARTIFACT_BYTES} bytes, this one {size_bytes}");
    Err(StoreError::Refused { code: "artifact.too_large", message })
}

fn wrong_hash(hash: &ArtifactHash) -> StoreError {
    let message = format!("these bytes are not those of artifact {hash}: read them again, and send all of them");
    StoreError::Refused { code: "artifact.wrong_hash", message }
}

/// Stores a whole blob, and replaces an incomplete upload.
pub(crate) async fn put(
    connection: &mut Connection,
    hash: &ArtifactHash,
    bytes: &[u8],
    at: TimestampMs,
) -> Result<(), Failure> {
    let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
    let head = begin(connection, hash, from_stored(size), at).await?;
    if head.progress.complete {
        return Ok(());
    }
    connection.execute("DELETE FROM artifact_chunk WHERE artifact_id = $1", values![head.id]).await?;
    append_chunks(connection, head.id, 0, bytes).await?;
    let sql = "UPDATE artifact SET size_bytes = $2, stored_bytes = $2, complete = 1 WHERE id = $1";
    connection.execute(sql, values![head.id, size]).await?;
    Ok(())
}

/// Appends a part. The outer error rolls everything back. With the inner error, the deletion of wrong parts is
/// committed.
pub(crate) async fn append(
    transaction: &mut Transaction<'_>,
    hash: &ArtifactHash,
    size_bytes: u64,
    offset: u64,
    bytes: &[u8],
    at: TimestampMs,
) -> Result<Result<ArtifactProgress, StoreError>, Failure> {
    check_size(size_bytes)?;
    let connection = &mut *transaction.connection;
    let mut head = begin(connection, hash, size_bytes, at).await?;
    if head.progress.complete {
        return Ok(Ok(head.progress));
    }
    if head.progress.stored_bytes == 0 && head.progress.size_bytes != size_bytes {
        let sql = "UPDATE artifact SET size_bytes = $2 WHERE id = $1";
        connection.execute(sql, values![head.id, to_stored(size_bytes)]).await?;
        head.progress.size_bytes = size_bytes;
    }
    if head.progress.stored_bytes != offset {
        let stored = head.progress.stored_bytes;
        let message = format!("artifact {hash} goes on at byte {stored}, not at {offset}: send the rest from there");
        return Err(Failure::refused("artifact.wrong_offset", message));
    }
    let stored = offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    if head.progress.size_bytes != size_bytes || stored > size_bytes {
        let message = format!("artifact {hash} has {} bytes: all parts have to say the same", head.progress.size_bytes);
        return Err(Failure::refused("artifact.wrong_size", message));
    }
    append_chunks(connection, head.id, offset, bytes).await?;
    let complete = stored == size_bytes;
    if complete && hash_of(connection, head.id, size_bytes).await? != *hash {
        connection.execute("DELETE FROM artifact_chunk WHERE artifact_id = $1", values![head.id]).await?;
        connection.execute("DELETE FROM artifact WHERE id = $1", values![head.id]).await?;
        return Ok(Err(wrong_hash(hash)));
    }
    let sql = "UPDATE artifact SET stored_bytes = $2, complete = $3 WHERE id = $1";
    connection.execute(sql, values![head.id, to_stored(stored), complete]).await?;
    Ok(Ok(ArtifactProgress { size_bytes, stored_bytes: stored, complete }))
}

/// Returns whether a complete artifact is old enough to be renewed.
pub(crate) async fn is_old(connection: &mut Connection, hash: &ArtifactHash, at: TimestampMs) -> Result<bool, Failure> {
    let sql = "SELECT 1 FROM artifact WHERE hash = $1 AND complete = 1 AND created_at_ms < $2";
    let before = at.minus_ms(RENEWED_AFTER_MS);
    Ok(connection.fetch_optional(sql, values![hash.as_str(), before.0]).await?.is_some())
}

pub(crate) async fn progress(
    connection: &mut Connection,
    hash: &ArtifactHash,
) -> Result<Option<ArtifactProgress>, Failure> {
    let sql = "SELECT a.id, a.size_bytes, a.stored_bytes, a.complete FROM artifact a WHERE a.hash = $1";
    let row = connection.fetch_optional(sql, values![hash.as_str()]).await?;
    Ok(row.as_ref().map(head).transpose()?.map(|head| head.progress))
}

pub(crate) async fn get(connection: &mut Connection, hash: &ArtifactHash) -> Result<Vec<u8>, Failure> {
    let bytes = read(connection, hash, 0, u64::MAX).await?;
    if ArtifactHash::of(&bytes) == *hash {
        Ok(bytes)
    } else {
        Err(Failure::unreadable(format!("artifact {hash}"), &"its bytes are not those that were stored"))
    }
}

/// Reads a part of a complete artifact.
pub(crate) async fn read(
    connection: &mut Connection,
    hash: &ArtifactHash,
    offset: u64,
    length: u64,
) -> Result<Vec<u8>, Failure> {
    let sql = "SELECT a.id, a.size_bytes, a.stored_bytes, a.complete FROM artifact a WHERE a.hash = $1";
    let row = connection.fetch_optional(sql, values![hash.as_str()]).await?;
    let head = row.as_ref().map(head).transpose()?.filter(|head| head.progress.complete);
    let head = head.ok_or_else(|| Failure::not_found("artifact", hash.as_str()))?;
    let end = offset.saturating_add(length).min(head.progress.size_bytes);
    part(connection, head.id, offset, end).await
}

/// Renews a complete artifact. Returns whether it exists.
///
/// A caller that stores it again or asks for it is about to reference it. Renewal protects it from pruning until then.
pub(crate) async fn renew(connection: &mut Connection, hash: &ArtifactHash, at: TimestampMs) -> Result<bool, Failure> {
    let sql = "UPDATE artifact SET created_at_ms = CASE WHEN created_at_ms < $2 THEN $2 ELSE created_at_ms END \
                WHERE hash = $1 AND complete = 1";
    Ok(connection.execute(sql, values![hash.as_str(), at.0]).await? > 0)
}

/// Creates or renews the row of an artifact. The row stays locked against deletion.
async fn begin(
    connection: &mut Connection,
    hash: &ArtifactHash,
    size_bytes: u64,
    at: TimestampMs,
) -> Result<Head, Failure> {
    let sql = "INSERT INTO artifact (hash, size_bytes, stored_bytes, complete, created_at_ms) VALUES ($1, $2, 0, 0, $3) \
               ON CONFLICT (hash) DO UPDATE SET created_at_ms = CASE WHEN artifact.created_at_ms < excluded.created_at_ms \
                   THEN excluded.created_at_ms ELSE artifact.created_at_ms END \
               RETURNING id, size_bytes, stored_bytes, complete";
    head(&connection.fetch_one(sql, values![hash.as_str(), to_stored(size_bytes), at.0]).await?)
}

fn head(row: &crate::row::Row) -> Result<Head, Failure> {
    Ok(Head {
        id: row.i64(0)?,
        progress: ArtifactProgress {
            size_bytes: from_stored(row.i64(1)?),
            stored_bytes: from_stored(row.i64(2)?),
            complete: row.flag(3)?,
        },
    })
}

async fn append_chunks(connection: &mut Connection, id: i64, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
    let mut at = to_stored(offset);
    for chunk in bytes.chunks(CHUNK_BYTES) {
        let sql = "INSERT INTO artifact_chunk (artifact_id, offset_bytes, bytes) VALUES ($1, $2, $3)";
        connection.execute(sql, values![id, at, chunk.to_vec()]).await?;
        at = at.saturating_add(i64::try_from(chunk.len()).unwrap_or(i64::MAX));
    }
    Ok(())
}

/// Returns the bytes from `offset` up to `end`, exclusive.
async fn part(connection: &mut Connection, id: i64, offset: u64, end: u64) -> Result<Vec<u8>, Failure> {
    if end <= offset {
        return Ok(Vec::new());
    }
    let chunk_bytes = i64::try_from(CHUNK_BYTES).unwrap_or(i64::MAX);
    let (begin, end) = (to_stored(offset), to_stored(end));
    let rows = connection.fetch_all(CHUNKS, values![id, begin.saturating_sub(chunk_bytes), end]).await?;
    let mut bytes = Vec::with_capacity(usize::try_from(end - begin).unwrap_or(0).min(MAX_ARTIFACT_BYTES));
    for row in rows {
        let (at, chunk) = (row.i64(0)?, row.bytes(1)?);
        let from = usize::try_from(begin - at).unwrap_or(0).min(chunk.len());
        let to = usize::try_from(end - at).unwrap_or(0).min(chunk.len());
        bytes.extend_from_slice(chunk.get(from..to).unwrap_or_default());
    }
    Ok(bytes)
}

/// Computes the hash of the stored bytes, chunk by chunk.
async fn hash_of(connection: &mut Connection, id: i64, size_bytes: u64) -> Result<ArtifactHash, Failure> {
    let mut hasher = blake3::Hasher::new();
    let mut offset = 0;
    let piece = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX) * 16;
    while offset < size_bytes {
        let end = offset.saturating_add(piece).min(size_bytes);
        hasher.update(&part(connection, id, offset, end).await?);
        offset = end;
    }
    super::public_id(hasher.finalize().to_hex().as_str(), "an artifact's hash")
}
