//! What Postgres itself counts.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sqlx::{Connection as _, PgConnection, Row as _};

/// How long the backends of closed connections may take to end.
const BACKENDS_END_WITHIN: Duration = Duration::from_secs(10);

/// The counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counters {
    wal_bytes: u64,
    commits: u64,
}

/// What was written and committed between two moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wal_bytes: u64,
    pub(crate) commits: u64,
}

impl Counters {
    pub(crate) fn until(self, later: Self) -> anyhow::Result<Cost> {
        let between = |from: u64, to: u64| {
            to.checked_sub(from).context("the counters ran backwards: something else uses the server")
        };
        Ok(Cost {
            wal_bytes: between(self.wal_bytes, later.wal_bytes)?,
            commits: between(self.commits, later.commits)?,
        })
    }
}

/// Version and durability of the server.
pub(crate) struct ServerFacts {
    pub(crate) version: String,
    pub(crate) durability: String,
}

/// Asks the server what it is.
pub(crate) async fn server(url: &str) -> anyhow::Result<ServerFacts> {
    let mut connection = PgConnection::connect(url).await?;
    let row = sqlx::query(
        "SELECT split_part(current_setting('server_version'), ' ', 1) AS version, \
                (SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings \
                  WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')) AS durability",
    )
    .fetch_one(&mut connection)
    .await?;
    let facts = ServerFacts { version: row.try_get("version")?, durability: row.try_get("durability")? };
    connection.close().await?;
    Ok(facts)
}

/// Reads the counters when every other connection to the database has ended: a backend hands in its share of the
/// statistics at the latest then.
pub(crate) async fn read(url: &str) -> anyhow::Result<Counters> {
    let mut connection = PgConnection::connect(url).await?;
    let deadline = Instant::now() + BACKENDS_END_WITHIN;
    loop {
        let others: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )
        .fetch_one(&mut connection)
        .await?;
        if others == 0 {
            break;
        }
        ensure!(Instant::now() < deadline, "something else uses the database: give this measurement one of its own");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let row = sqlx::query(
        "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS wal_bytes, \
                (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS commits",
    )
    .fetch_one(&mut connection)
    .await?;
    let counters = Counters {
        wal_bytes: u64::try_from(row.try_get::<i64, _>("wal_bytes")?)?,
        commits: u64::try_from(row.try_get::<i64, _>("commits")?)?,
    };
    connection.close().await?;
    Ok(counters)
}
