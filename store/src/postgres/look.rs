//! Inspects a database without changing it: whether it answers, belongs to Nightshift, and has the tables of this
//! release.

use std::str::FromStr;
use std::time::Duration;

use nightshift_engine::store::StoreError;
use sqlx::migrate::MigrateError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use super::open::{MIGRATIONS_TABLE, OUR_TABLE, describe, tables, unconfigured};
use crate::failure::postgres::foreign;
use crate::failure::{Failure, Place};

/// Result of an inspection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostgresLook {
    /// Whether it has no tables yet.
    pub is_new: bool,
    /// Missing migrations of this release, in their order: `1 first tables`.
    pub missing: Vec<String>,
}

/// Inspects the database at `url`, waiting at most `answer_ms` milliseconds for an answer. Changes nothing.
pub async fn look_at_postgres(url: &str, answer_ms: u64) -> Result<PostgresLook, StoreError> {
    let connect = PgConnectOptions::from_str(url).map_err(|error| {
        Failure::Database(unconfigured(error)).into_store_error(&Place::Server("(none)".to_owned()))
    })?;
    let server = describe(&connect);
    let place = Place::Server(server.clone());
    let connect = connect.application_name("nightshift").disable_statement_logging();
    let mut connection = tokio::time::timeout(Duration::from_millis(answer_ms), connect.connect())
        .await
        .map_err(|_| Failure::Database(sqlx::Error::PoolTimedOut).into_store_error(&place))?
        .map_err(|error| Failure::from(error).into_store_error(&place))?;
    let looked = look(&mut connection, &server).await.map_err(|failure| failure.into_store_error(&place));
    // Nothing was written, so an error while closing does not matter.
    let _ = connection.close().await;
    looked
}

async fn look(connection: &mut PgConnection, server: &str) -> Result<PostgresLook, Failure> {
    let tables = tables(connection).await?;
    let is_new = tables.iter().all(|table| table == MIGRATIONS_TABLE);
    if !is_new && !tables.iter().any(|table| table == OUR_TABLE) {
        let shown: Vec<&str> = tables.iter().take(3).map(String::as_str).collect();
        return Err(Failure::Answer(foreign(server, &shown.join(", "))));
    }
    let applied = if tables.iter().any(|table| table == MIGRATIONS_TABLE) {
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version")
            .fetch_all(connection)
            .await?
    } else {
        Vec::new()
    };
    Ok(PostgresLook { is_new, missing: missing(&applied)? })
}

/// Returns the missing migrations. An unknown or different migration in the database is of another release, and an
/// error.
fn missing(applied: &[(i64, Vec<u8>)]) -> Result<Vec<String>, MigrateError> {
    let ours = sqlx::migrate!("../migrations/postgres");
    for (version, checksum) in applied {
        match ours.iter().find(|migration| migration.version == *version) {
            None => return Err(MigrateError::VersionMissing(*version)),
            Some(migration) if *migration.checksum != **checksum => {
                return Err(MigrateError::VersionMismatch(*version));
            }
            Some(_) => {}
        }
    }
    Ok(ours
        .iter()
        .filter(|migration| applied.iter().all(|(version, _)| *version != migration.version))
        .map(|migration| format!("{} {}", migration.version, migration.description))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_migrations_are_named_and_unknown_ones_are_refused() {
        let all: Vec<(i64, Vec<u8>)> = sqlx::migrate!("../migrations/postgres")
            .iter()
            .map(|migration| (migration.version, migration.checksum.to_vec()))
            .collect();
        assert!(missing(&all).is_ok_and(|missing| missing.is_empty()));
        assert!(missing(&[]).is_ok_and(|missing| missing.len() == all.len() && missing[0].contains("first tables")));
        let newer = [all.clone(), vec![(9_999, vec![1])]].concat();
        assert!(matches!(missing(&newer), Err(MigrateError::VersionMissing(9_999))));
        let other = [(all[0].0, vec![1])];
        assert!(matches!(missing(&other), Err(MigrateError::VersionMismatch(_))));
    }
}
