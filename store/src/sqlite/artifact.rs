//! Blobs, addressed by their hash.

use nightshift_engine::store::StoreError;
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use sqlx::SqliteConnection;

use super::failure::Failure;

/// Refuses what is too large, and bytes that are not those of the hash.
pub(super) fn check(hash: &ArtifactHash, bytes: &[u8]) -> Result<(), StoreError> {
    if bytes.len() > MAX_ARTIFACT_BYTES {
        let message = format!("an artifact has at most {MAX_ARTIFACT_BYTES} bytes, this one {}", bytes.len());
        return Err(StoreError::Other(message));
    }
    if ArtifactHash::of(bytes) != *hash {
        return Err(StoreError::Other(format!("these bytes are not those of artifact {hash}")));
    }
    Ok(())
}

pub(super) async fn put(connection: &mut SqliteConnection, hash: &ArtifactHash, bytes: &[u8]) -> Result<(), Failure> {
    sqlx::query("INSERT INTO artifact (hash, bytes) VALUES (?1, ?2) ON CONFLICT (hash) DO NOTHING")
        .bind(hash.as_str())
        .bind(bytes)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn exists(connection: &mut SqliteConnection, hash: &ArtifactHash) -> Result<bool, Failure> {
    Ok(sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM artifact WHERE hash = ?1)")
        .bind(hash.as_str())
        .fetch_one(connection)
        .await?)
}

pub(super) async fn get(connection: &mut SqliteConnection, hash: &ArtifactHash) -> Result<Vec<u8>, Failure> {
    let bytes: Option<Vec<u8>> = sqlx::query_scalar("SELECT bytes FROM artifact WHERE hash = ?1")
        .bind(hash.as_str())
        .fetch_optional(connection)
        .await?;
    let bytes = bytes.ok_or_else(|| Failure::not_found("artifact", hash.as_str()))?;
    if ArtifactHash::of(&bytes) == *hash {
        Ok(bytes)
    } else {
        Err(Failure::unreadable(format!("artifact {hash}"), &"its bytes are not those that were stored"))
    }
}
