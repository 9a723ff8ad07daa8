//! Keys of creating requests.

use nightshift_engine::store::StoreError;
use sqlx::SqliteConnection;

use super::failure::Failure;

/// The campaign that this key created, if any; a conflict when it was another request.
pub(super) async fn find(connection: &mut SqliteConnection, key: &str, digest: &str) -> Result<Option<i64>, Failure> {
    let found: Option<(String, i64)> = sqlx::query_as("SELECT digest, campaign_id FROM idempotency WHERE key = ?1")
        .bind(key)
        .fetch_optional(connection)
        .await?;
    match found {
        None => Ok(None),
        Some((stored, campaign_id)) if stored == digest => Ok(Some(campaign_id)),
        Some(_) => Err(StoreError::IdempotencyConflict { key: key.to_owned() }.into()),
    }
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    key: &str,
    digest: &str,
    campaign_id: i64,
) -> Result<(), Failure> {
    sqlx::query("INSERT INTO idempotency (key, digest, campaign_id) VALUES (?1, ?2, ?3)")
        .bind(key)
        .bind(digest)
        .bind(campaign_id)
        .execute(connection)
        .await?;
    Ok(())
}
