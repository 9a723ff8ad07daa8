//! Artifacts, addressed by their hash: rows, uploads in parts, and what is to be read.

use nightshift_engine::store::{ArtifactProgress, StoreError};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::time::TimestampMs;

use super::piece::{self, NewPiece, Piece};
use crate::connection::{Connection, Sql};
use crate::failure::Failure;
use crate::number::{from_stored, to_stored};
use crate::row::Row;
use crate::sql::locked;
use crate::transaction::Transaction;
use crate::value::values;

/// Minimum age at which an artifact is renewed, in milliseconds. Each renewal is a write.
const RENEWED_AFTER_MS: u64 = 10 * 60 * 1_000;

macro_rules! find {
    () => {
        "SELECT a.id, a.size_bytes, a.stored_bytes, a.complete, a.created_at_ms FROM artifact a WHERE a.hash = $1"
    };
}
/// Finds an artifact.
const FIND: &str = find!();
/// Finds an artifact, to change it.
const FIND_TO_CHANGE: Sql = locked!(find!(), "a");

/// Completely stored artifacts with a chunk that belongs into the object store.
pub(crate) const TO_MOVE: &str = "SELECT a.id, a.hash, a.size_bytes FROM artifact a \
     WHERE a.hash > $1 AND a.complete = 1 AND a.size_bytes > $2 \
       AND EXISTS (SELECT 1 FROM artifact_chunk c WHERE c.artifact_id = a.id AND length(c.bytes) > $2) \
     ORDER BY a.hash LIMIT $3";

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) id: i64,
    pub(crate) progress: ArtifactProgress,
    created_at: i64,
}

/// A range of an artifact and the pieces that contain it.
pub(crate) struct Reading {
    /// First byte.
    pub(crate) begin: u64,
    /// End of the range, exclusive.
    pub(crate) end: u64,
    /// In the order of their offsets. Two may overlap.
    pub(crate) pieces: Vec<Piece>,
}

/// A part of an upload.
pub(crate) struct Part {
    pub(crate) hash: ArtifactHash,
    /// Size of the whole artifact in bytes.
    pub(crate) size_bytes: u64,
    pub(crate) offset: u64,
    pub(crate) piece: NewPiece,
    /// For the last part: the row whose pieces were hashed, if there were some, and whether the hash was right.
    pub(crate) verified: Option<(Option<Head>, bool)>,
    /// Key of an object of the complete artifact that was found to be lost.
    pub(crate) lost: Option<i64>,
}

/// An artifact whose bytes are in a piece, or which is stored already.
pub(crate) struct Whole {
    pub(crate) hash: ArtifactHash,
    /// None if it is stored already.
    pub(crate) piece: Option<NewPiece>,
    /// Key of an object of the complete artifact that was found to be lost.
    pub(crate) lost: Option<i64>,
}

/// An artifact to be moved into the object store.
pub(crate) struct ToMove {
    pub(crate) id: i64,
    pub(crate) hash: ArtifactHash,
    pub(crate) size_bytes: u64,
}

/// Refuses bytes that do not match the hash.
pub(crate) fn check(hash: &ArtifactHash, bytes: &[u8]) -> Result<(), StoreError> {
    if ArtifactHash::of(bytes) == *hash { Ok(()) } else { Err(wrong_hash(hash)) }
}

/// Refuses an artifact that is too large.
pub(crate) fn check_size(size_bytes: u64, limit_bytes: u64) -> Result<(), StoreError> {
    if size_bytes <= limit_bytes {
        return Ok(());
    }
    let message = format!("an artifact has at most {limit_bytes} bytes, this one {size_bytes}");
    Err(StoreError::Refused { code: "artifact.too_large", message })
}

fn wrong_hash(hash: &ArtifactHash) -> StoreError {
    let message = format!("these bytes are not those of artifact {hash}: read them again, and send all of them");
    StoreError::Refused { code: "artifact.wrong_hash", message }
}

/// Returns the error for an upload that another one overtook.
pub(crate) fn wrong_offset(hash: &ArtifactHash, stored: u64, offset: u64) -> StoreError {
    let message = format!("artifact {hash} goes on at byte {stored}, not at {offset}: send the rest from there");
    StoreError::Refused { code: "artifact.wrong_offset", message }
}

/// Stores a whole artifact, and replaces an incomplete upload.
pub(crate) async fn put(connection: &mut Connection, whole: &Whole, at: TimestampMs) -> Result<(), Failure> {
    let Whole { hash, piece, lost } = whole;
    let size = piece.as_ref().map_or(0, NewPiece::size_bytes);
    let head = begin(connection, hash, size, *lost, at).await?;
    if head.progress.complete {
        piece::release(connection, piece.as_ref().and_then(NewPiece::object)).await?;
        return Ok(());
    }
    let Some(piece) = piece else {
        let message = format!("artifact {hash} was deleted at the same time: store it again");
        return Err(Failure::refused("artifact.upload_disturbed", message));
    };
    piece::take_away(connection, vec![head.id]).await?;
    piece::add(connection, head.id, 0, piece).await?;
    let sql = "UPDATE artifact SET size_bytes = $2, stored_bytes = $2, complete = 1 WHERE id = $1";
    connection.execute(sql, values![head.id, to_stored(size)]).await?;
    Ok(())
}

/// Refuses a part that does not continue the upload.
pub(crate) fn examine(part: &Part, progress: ArtifactProgress) -> Result<(), StoreError> {
    let Part { hash, size_bytes, offset, piece, .. } = part;
    if progress.stored_bytes != *offset {
        return Err(wrong_offset(hash, progress.stored_bytes, *offset));
    }
    let size = if progress.stored_bytes == 0 { *size_bytes } else { progress.size_bytes };
    if size != *size_bytes || offset.saturating_add(piece.size_bytes()) > size {
        let message = format!("artifact {hash} has {size} bytes: all parts have to say the same");
        return Err(StoreError::Refused { code: "artifact.wrong_size", message });
    }
    Ok(())
}

/// Appends a part. The outer error rolls everything back. With the inner error, the deletion of wrong parts is
/// committed.
pub(crate) async fn append(
    transaction: &mut Transaction<'_>,
    part: &Part,
    at: TimestampMs,
) -> Result<Result<ArtifactProgress, StoreError>, Failure> {
    let Part { hash, size_bytes, offset, piece, verified, lost } = part;
    let connection = &mut *transaction.connection;
    let before = connection.fetch_optional(FIND_TO_CHANGE, values![hash.as_str()]).await?;
    let before = before.as_ref().map(head).transpose()?;
    let head = begin(connection, hash, *size_bytes, *lost, at).await?;
    if head.progress.complete {
        piece::release(connection, piece.object()).await?;
        return Ok(Ok(head.progress));
    }
    examine(part, head.progress)?;
    let stored = offset.saturating_add(piece.size_bytes());
    let complete = stored == *size_bytes;
    if complete {
        let (seen, is_right) = verified.ok_or_else(|| wrong_offset(hash, head.progress.stored_bytes, *offset))?;
        if *offset > 0 && seen != before {
            // Another upload replaced the parts that were hashed.
            return Err(wrong_offset(hash, head.progress.stored_bytes, *offset).into());
        }
        if !is_right {
            piece::release(connection, piece.object()).await?;
            piece::take_away(connection, vec![head.id]).await?;
            connection.execute("DELETE FROM artifact WHERE id = $1", values![head.id]).await?;
            return Ok(Err(wrong_hash(hash)));
        }
    }
    piece::add(connection, head.id, *offset, piece).await?;
    let sql = "UPDATE artifact SET size_bytes = $2, stored_bytes = $3, complete = $4 WHERE id = $1";
    connection.execute(sql, values![head.id, to_stored(*size_bytes), to_stored(stored), complete]).await?;
    Ok(Ok(ArtifactProgress { size_bytes: *size_bytes, stored_bytes: stored, complete }))
}

/// Returns whether a complete artifact is old enough to be renewed.
pub(crate) async fn is_old(connection: &mut Connection, hash: &ArtifactHash, at: TimestampMs) -> Result<bool, Failure> {
    let sql = "SELECT 1 FROM artifact WHERE hash = $1 AND complete = 1 AND created_at_ms < $2";
    let before = at.minus_ms(RENEWED_AFTER_MS);
    Ok(connection.fetch_optional(sql, values![hash.as_str(), before.0]).await?.is_some())
}

/// Finds an artifact, complete or not.
pub(crate) async fn find(connection: &mut Connection, hash: &ArtifactHash) -> Result<Option<Head>, Failure> {
    connection.fetch_optional(FIND, values![hash.as_str()]).await?.as_ref().map(head).transpose()
}

pub(crate) async fn progress(
    connection: &mut Connection,
    hash: &ArtifactHash,
) -> Result<Option<ArtifactProgress>, Failure> {
    Ok(find(connection, hash).await?.map(|head| head.progress))
}

/// Finds a part of a complete artifact.
pub(crate) async fn read(
    connection: &mut Connection,
    hash: &ArtifactHash,
    offset: u64,
    length: u64,
) -> Result<Reading, Failure> {
    let head = find(connection, hash).await?.filter(|head| head.progress.complete);
    let head = head.ok_or_else(|| Failure::not_found("artifact", hash.as_str()))?;
    let end = offset.saturating_add(length).min(head.progress.size_bytes);
    part(connection, head.id, (offset, end)).await
}

/// Finds a part of an artifact, complete or not.
pub(crate) async fn part(connection: &mut Connection, id: i64, range: (u64, u64)) -> Result<Reading, Failure> {
    Ok(Reading { begin: range.0, end: range.1, pieces: piece::in_range(connection, id, range).await? })
}

/// Renews a complete artifact. Returns whether it exists.
///
/// A caller that stores it again or asks for it is about to reference it. Renewal protects it from pruning until then.
pub(crate) async fn renew(connection: &mut Connection, hash: &ArtifactHash, at: TimestampMs) -> Result<bool, Failure> {
    let sql = "UPDATE artifact SET created_at_ms = CASE WHEN created_at_ms < $2 THEN $2 ELSE created_at_ms END \
                WHERE hash = $1 AND complete = 1";
    Ok(connection.execute(sql, values![hash.as_str(), at.0]).await? > 0)
}

/// Returns artifacts with a larger hash than `after` that have chunks of more than `max_piece_bytes`.
pub(crate) async fn to_move(
    connection: &mut Connection,
    after: &str,
    max_piece_bytes: usize,
    limit: u32,
) -> Result<Vec<ToMove>, Failure> {
    let most = i64::try_from(max_piece_bytes).unwrap_or(i64::MAX);
    let rows = connection.fetch_all(TO_MOVE, values![after, most, limit]).await?;
    rows.iter()
        .map(|row| {
            let hash = super::public_id(row.str(1)?, "an artifact's hash")?;
            Ok(ToMove { id: row.i64(0)?, hash, size_bytes: from_stored(row.i64(2)?) })
        })
        .collect()
}

/// Replaces the pieces of an artifact by objects with the same bytes. Returns whether the artifact was still there in
/// chunks.
pub(crate) async fn replace(
    connection: &mut Connection,
    moved: &ToMove,
    objects: &[(u64, NewPiece)],
) -> Result<bool, Failure> {
    let before = connection.fetch_optional(FIND_TO_CHANGE, values![moved.hash.as_str()]).await?;
    let before = before.as_ref().map(head).transpose()?;
    let sql = "SELECT 1 FROM artifact_chunk WHERE artifact_id = $1 LIMIT 1";
    let is_there = before.is_some_and(|head| head.id == moved.id && head.progress.complete)
        && connection.fetch_optional(sql, values![moved.id]).await?.is_some();
    if !is_there {
        return Ok(false);
    }
    piece::take_away(connection, vec![moved.id]).await?;
    for (offset, object) in objects {
        piece::add(connection, moved.id, *offset, object).await?;
    }
    Ok(true)
}

/// Creates or renews the row of an artifact. The row stays locked against deletion. A complete artifact that still has the
/// lost object begins again, without pieces.
async fn begin(
    connection: &mut Connection,
    hash: &ArtifactHash,
    size_bytes: u64,
    lost: Option<i64>,
    at: TimestampMs,
) -> Result<Head, Failure> {
    let sql = "INSERT INTO artifact (hash, size_bytes, stored_bytes, complete, created_at_ms) VALUES ($1, $2, 0, 0, $3) \
               ON CONFLICT (hash) DO UPDATE SET created_at_ms = CASE WHEN artifact.created_at_ms < excluded.created_at_ms \
                   THEN excluded.created_at_ms ELSE artifact.created_at_ms END \
               RETURNING id, size_bytes, stored_bytes, complete, created_at_ms";
    let mut head = head(&connection.fetch_one(sql, values![hash.as_str(), to_stored(size_bytes), at.0]).await?)?;
    if let Some(lost) = lost.filter(|_| head.progress.complete)
        // Another upload may have replaced it in between.
        && piece::has_object(connection, head.id, lost).await?
    {
        piece::take_away(connection, vec![head.id]).await?;
        let sql = "UPDATE artifact SET stored_bytes = 0, complete = 0 WHERE id = $1";
        connection.execute(sql, values![head.id]).await?;
        head.progress = ArtifactProgress { stored_bytes: 0, complete: false, ..head.progress };
    }
    Ok(head)
}

fn head(row: &Row) -> Result<Head, Failure> {
    Ok(Head {
        id: row.i64(0)?,
        progress: ArtifactProgress {
            size_bytes: from_stored(row.i64(1)?),
            stored_bytes: from_stored(row.i64(2)?),
            complete: row.flag(3)?,
        },
        created_at: row.i64(4)?,
    })
}
