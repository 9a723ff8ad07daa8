//! The database's own counters.

use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection, Row as _};

use crate::BenchError;

/// How long the backends of a closed pool may take to end.
const BACKENDS_END_WITHIN: Duration = Duration::from_secs(10);

/// The counters and settings of the server at one moment.
pub(crate) struct Reading {
    pub(crate) wal_bytes: u64,
    pub(crate) commits: u64,
    pub(crate) version: String,
    pub(crate) durability: String,
}

/// Reads the counters over a connection of its own, once every other connection to the database has ended.
pub(crate) async fn read(database_url: &str) -> Result<Reading, BenchError> {
    let mut connection = PgConnection::connect(database_url).await?;
    let deadline = Instant::now() + BACKENDS_END_WITHIN;
    while others(&mut connection).await? > 0 {
        if Instant::now() > deadline {
            return Err(BenchError::BackendsRemain);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let row = sqlx::query(
        "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS wal_bytes,
                (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS commits,
                split_part(current_setting('server_version'), ' ', 1) AS version,
                (SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
                  WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes')) AS durability",
    )
    .fetch_one(&mut connection)
    .await?;
    let reading = Reading {
        wal_bytes: row.try_get::<i64, _>("wal_bytes")?.unsigned_abs(),
        commits: row.try_get::<i64, _>("commits")?.unsigned_abs(),
        version: row.try_get("version")?,
        durability: row.try_get("durability")?,
    };
    connection.close().await?;
    Ok(reading)
}

/// Client connections to this database besides our own.
async fn others(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity
          WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
    )
    .fetch_one(connection)
    .await
}
