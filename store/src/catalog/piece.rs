//! Pieces of artifacts: chunks in the database, and objects that the table names.

use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::time::TimestampMs;

use crate::connection::Connection;
use crate::failure::Failure;
use crate::number::{from_stored, to_stored};
use crate::objects::object_name;
use crate::row::Row;
use crate::sql::any_of;
use crate::value::values;

/// Maximum length of a chunk, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;

/// Selects the chunks of a range.
pub(crate) const CHUNKS: &str = "SELECT offset_bytes, bytes FROM artifact_chunk \
     WHERE artifact_id = $1 AND offset_bytes > $2 AND offset_bytes < $3 ORDER BY offset_bytes";

/// Selects the objects of a range.
pub(crate) const OBJECTS: &str = "SELECT id, hash, offset_bytes, size_bytes FROM artifact_object \
     WHERE artifact_id = $1 AND offset_bytes < $3 AND offset_bytes + size_bytes > $2 ORDER BY offset_bytes";

/// Selects objects to delete.
pub(crate) const TO_DELETE: &str = "SELECT id, hash, offset_bytes, size_bytes FROM artifact_object \
     WHERE artifact_id IS NULL AND state = 'deleting' ORDER BY at_ms LIMIT $1";

/// A stored piece.
pub(crate) struct Piece {
    /// Its place in the artifact.
    pub(crate) offset: u64,
    /// Its bytes.
    pub(crate) content: Content,
}

/// The bytes of a stored piece.
pub(crate) enum Content {
    /// In the database.
    Chunk(Vec<u8>),
    /// In the object store.
    Object {
        /// Its size in bytes.
        size_bytes: u64,
        /// Name of the object.
        name: String,
    },
}

/// A piece that is about to become part of an artifact.
pub(crate) enum NewPiece {
    /// Bytes for the database.
    Chunk(Vec<u8>),
    /// An object that is written.
    Object {
        /// Key of its row.
        id: i64,
        /// Its size in bytes.
        size_bytes: u64,
    },
}

/// An object without an artifact.
pub(crate) struct LooseObject {
    /// Key of its row.
    pub(crate) id: i64,
    /// Its name.
    pub(crate) name: String,
}

impl Piece {
    /// Returns the length in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        match &self.content {
            Content::Chunk(bytes) => length(bytes),
            Content::Object { size_bytes, .. } => *size_bytes,
        }
    }
}

impl NewPiece {
    /// Returns the length in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        match self {
            Self::Chunk(bytes) => length(bytes),
            Self::Object { size_bytes, .. } => *size_bytes,
        }
    }

    /// Returns the key of its object's row; none for bytes of the database.
    pub(crate) fn object(&self) -> Option<i64> {
        match self {
            Self::Chunk(_) => None,
            Self::Object { id, .. } => Some(*id),
        }
    }
}

/// Returns the length of bytes.
pub(crate) fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Returns the pieces that overlap with the range from `offset` up to `end`, exclusive.
///
/// Chunks are read first: an artifact that is moved in between has its bytes twice, and never lacks them.
pub(crate) async fn in_range(
    connection: &mut Connection,
    artifact_id: i64,
    (offset, end): (u64, u64),
) -> Result<Vec<Piece>, Failure> {
    if end <= offset {
        return Ok(Vec::new());
    }
    let chunk_bytes = i64::try_from(CHUNK_BYTES).unwrap_or(i64::MAX);
    let (begin, end) = (to_stored(offset), to_stored(end));
    let chunks = connection.fetch_all(CHUNKS, values![artifact_id, begin.saturating_sub(chunk_bytes), end]).await?;
    let objects = connection.fetch_all(OBJECTS, values![artifact_id, begin, end]).await?;
    let mut pieces = Vec::with_capacity(chunks.len() + objects.len());
    for row in chunks {
        pieces.push(Piece { offset: from_stored(row.i64(0)?), content: Content::Chunk(row.bytes(1)?) });
    }
    for row in objects {
        let LooseObject { name, .. } = loose(&row)?;
        let content = Content::Object { size_bytes: from_stored(row.i64(3)?), name };
        pieces.push(Piece { offset: from_stored(row.i64(2)?), content });
    }
    pieces.sort_by_key(|piece| piece.offset);
    Ok(pieces)
}

/// Returns all objects of an artifact and their sizes in bytes.
pub(crate) async fn objects_of(
    connection: &mut Connection,
    artifact_id: i64,
) -> Result<Vec<(LooseObject, u64)>, Failure> {
    let rows = connection.fetch_all(OBJECTS, values![artifact_id, 0_i64, i64::MAX]).await?;
    with_sizes(&rows)
}

/// Returns whether an artifact has this object.
pub(crate) async fn has_object(connection: &mut Connection, artifact_id: i64, id: i64) -> Result<bool, Failure> {
    let sql = "SELECT 1 FROM artifact_object WHERE id = $1 AND artifact_id = $2";
    Ok(connection.fetch_optional(sql, values![id, artifact_id]).await?.is_some())
}

/// Registers an object that is about to be written.
pub(crate) async fn register(
    connection: &mut Connection,
    hash: &ArtifactHash,
    (offset, size_bytes): (u64, u64),
    at: TimestampMs,
) -> Result<LooseObject, Failure> {
    let sql = "INSERT INTO artifact_object (hash, offset_bytes, size_bytes, state, at_ms) \
               VALUES ($1, $2, $3, 'writing', $4) RETURNING id";
    let offset = to_stored(offset);
    let row = connection.fetch_one(sql, values![hash.as_str(), offset, to_stored(size_bytes), at.0]).await?;
    let id = row.i64(0)?;
    Ok(LooseObject { id, name: object_name(hash.as_str(), offset, id) })
}

/// Makes a new piece part of an artifact.
pub(crate) async fn add(
    connection: &mut Connection,
    artifact_id: i64,
    offset: u64,
    piece: &NewPiece,
) -> Result<(), Failure> {
    match piece {
        NewPiece::Chunk(bytes) => {
            let mut at = to_stored(offset);
            for chunk in bytes.chunks(CHUNK_BYTES) {
                let sql = "INSERT INTO artifact_chunk (artifact_id, offset_bytes, bytes) VALUES ($1, $2, $3)";
                connection.execute(sql, values![artifact_id, at, chunk.to_vec()]).await?;
                at = at.saturating_add(i64::try_from(chunk.len()).unwrap_or(i64::MAX));
            }
            Ok(())
        }
        NewPiece::Object { id, .. } => {
            let sql =
                "UPDATE artifact_object SET state = 'stored', artifact_id = $2 WHERE id = $1 AND state = 'writing'";
            if connection.execute(sql, values![*id, artifact_id]).await? == 1 {
                return Ok(());
            }
            // The collection took it for one whose writer died.
            let message = "the bytes took too long to arrive, and were deleted: upload them again";
            Err(Failure::refused("artifact.upload_disturbed", message))
        }
    }
}

/// Gives up objects that no artifact will hold.
pub(crate) async fn release(connection: &mut Connection, ids: impl IntoIterator<Item = i64>) -> Result<(), Failure> {
    let ids: Vec<i64> = ids.into_iter().collect();
    if ids.is_empty() {
        return Ok(());
    }
    let sql = any_of!("UPDATE artifact_object SET state = 'deleting' WHERE state = 'writing' AND id", "$1", "");
    connection.execute(sql, values![ids]).await?;
    Ok(())
}

/// Takes all pieces away from artifacts. Their objects are deleted after the transaction. Returns the number of deleted
/// rows.
pub(crate) async fn take_away(connection: &mut Connection, artifact_ids: Vec<i64>) -> Result<u64, Failure> {
    let objects =
        any_of!("UPDATE artifact_object SET state = 'deleting', artifact_id = NULL WHERE artifact_id", "$1", "");
    connection.execute(objects, values![artifact_ids.clone()]).await?;
    connection.execute(any_of!("DELETE FROM artifact_chunk WHERE artifact_id", "$1", ""), values![artifact_ids]).await
}

/// Marks objects whose writers died: they were begun before `before`, and no artifact has them. From then on, none can
/// get them.
pub(crate) async fn mark_abandoned(connection: &mut Connection, before: TimestampMs) -> Result<(), Failure> {
    let sql = "UPDATE artifact_object SET state = 'deleting' \
               WHERE artifact_id IS NULL AND state = 'writing' AND at_ms < $1";
    connection.execute(sql, values![before.0]).await?;
    Ok(())
}

/// Returns objects to delete.
pub(crate) async fn to_delete(connection: &mut Connection, limit: u32) -> Result<Vec<LooseObject>, Failure> {
    connection.fetch_all(TO_DELETE, values![limit]).await?.iter().map(loose).collect()
}

/// Forgets deleted objects.
pub(crate) async fn forget(connection: &mut Connection, ids: Vec<i64>) -> Result<(), Failure> {
    let sql = any_of!("DELETE FROM artifact_object WHERE state = 'deleting' AND id", "$1", "");
    connection.execute(sql, values![ids]).await?;
    Ok(())
}

/// Returns whether an object is to be deleted.
pub(crate) async fn are_to_delete(connection: &mut Connection, before: TimestampMs) -> Result<bool, Failure> {
    let sql = "SELECT 1 FROM artifact_object \
               WHERE artifact_id IS NULL AND (state = 'deleting' OR (state = 'writing' AND at_ms < $1)) LIMIT 1";
    Ok(connection.fetch_optional(sql, values![before.0]).await?.is_some())
}

/// Returns the newest stored objects and their sizes in bytes.
pub(crate) async fn newest(connection: &mut Connection, limit: u32) -> Result<Vec<(LooseObject, u64)>, Failure> {
    let sql = "SELECT id, hash, offset_bytes, size_bytes FROM artifact_object \
               WHERE state = 'stored' ORDER BY id DESC LIMIT $1";
    let rows = connection.fetch_all(sql, values![limit]).await?;
    with_sizes(&rows)
}

/// Returns stored objects of other artifacts and their sizes in bytes: those written before this one of the artifact, the
/// newest first, or else the first one written after it.
pub(crate) async fn neighbours(
    connection: &mut Connection,
    artifact_id: i64,
    id: i64,
    limit: u32,
) -> Result<Vec<(LooseObject, u64)>, Failure> {
    const BEFORE: &str = "SELECT id, hash, offset_bytes, size_bytes FROM artifact_object \
         WHERE state = 'stored' AND artifact_id <> $1 AND id < $2 ORDER BY id DESC LIMIT $3";
    const AFTER: &str = "SELECT id, hash, offset_bytes, size_bytes FROM artifact_object \
         WHERE state = 'stored' AND artifact_id <> $1 AND id > $2 ORDER BY id LIMIT 1";
    let mut rows = connection.fetch_all(BEFORE, values![artifact_id, id, limit]).await?;
    if rows.is_empty() {
        rows = connection.fetch_all(AFTER, values![artifact_id, id]).await?;
    }
    with_sizes(&rows)
}

/// Lets other objects be deleted before these, which could not be.
pub(crate) async fn postpone(connection: &mut Connection, ids: Vec<i64>) -> Result<(), Failure> {
    let sql = any_of!("UPDATE artifact_object SET at_ms = at_ms + 3600000 WHERE state = 'deleting' AND id", "$1", "");
    connection.execute(sql, values![ids]).await?;
    Ok(())
}

/// Returns stored objects after this key, for checks.
pub(crate) async fn stored_after(
    connection: &mut Connection,
    after: i64,
    limit: u32,
) -> Result<Vec<(LooseObject, u64)>, Failure> {
    let sql = "SELECT id, hash, offset_bytes, size_bytes FROM artifact_object \
               WHERE state = 'stored' AND id > $1 ORDER BY id LIMIT $2";
    let rows = connection.fetch_all(sql, values![after, limit]).await?;
    with_sizes(&rows)
}

/// Returns objects with their sizes.
fn with_sizes(rows: &[Row]) -> Result<Vec<(LooseObject, u64)>, Failure> {
    rows.iter().map(|row| Ok((loose(row)?, from_stored(row.i64(3)?)))).collect()
}

fn loose(row: &Row) -> Result<LooseObject, Failure> {
    let id = row.i64(0)?;
    Ok(LooseObject { id, name: object_name(row.str(1)?, row.i64(2)?, id) })
}
