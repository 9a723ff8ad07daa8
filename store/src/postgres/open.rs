//! Opens a database: connect, inspect before changing anything, migrate, create the pools.

use std::str::FromStr;
use std::time::Duration;

use nightshift_engine::store::StoreError;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use crate::failure::postgres::foreign;
use crate::failure::{Failure, Place};
use crate::objects::ArtifactOptions;

/// A table that every Nightshift database has since the first migration.
pub(super) const OUR_TABLE: &str = "campaign_clock";
/// The migrator's own table.
pub(super) const MIGRATIONS_TABLE: &str = "_sqlx_migrations";
/// Maximum idle time of an open transaction. An open transaction runs nothing but SQL, so an idle one belongs to a
/// stalled process that holds its locks. A server that takes over its runs waits at most this long.
const IDLE_IN_TRANSACTION_TIMEOUT: &str = "10s";
/// Prepared statements cached per connection.
const STATEMENT_CACHE: usize = 512;

/// Settings of the hot path, which finds every row by its key and plans each statement once. A plan made for a small
/// table would scan it after it has grown.
const OF_HOT_PATH: [(&str, &str); 5] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    // Literals of `literal.rs` depend on it.
    ("standard_conforming_strings", "on"),
];

/// Options for a Postgres server.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Connections for reads and rare writes, at least 1. The hot path and the notices have connections of their own.
    pub connections: u32,
    /// Timeout for a server or a free connection, in milliseconds.
    pub acquire_timeout_ms: u64,
    /// How artifacts are stored: in the database, unless it names an object store.
    pub artifacts: ArtifactOptions,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { connections: 8, acquire_timeout_ms: 10_000, artifacts: ArtifactOptions::default() }
    }
}

/// Result of opening.
pub(crate) struct Opened {
    pub(crate) pool: PgPool,
    /// The pool of the hot path, so that slow reads never block it.
    pub(crate) hot: PgPool,
    pub(crate) connect: PgConnectOptions,
    pub(crate) place: Place,
    /// Identifies this process among all others on the database.
    pub(crate) me: String,
}

pub(crate) async fn open(url: &str, options: &PostgresOptions, batchers: u32) -> Result<Opened, StoreError> {
    let connect = PgConnectOptions::from_str(url).map_err(|error| {
        Failure::Database(unconfigured(error)).into_store_error(&Place::Server("(none)".to_owned()))
    })?;
    let place = Place::Server(describe(&connect));
    let tell = |failure: Failure| failure.into_store_error(&place);
    let timeout = Duration::from_millis(options.acquire_timeout_ms);
    let connect = settings(connect);
    let connected = tokio::time::timeout(timeout, connect.connect()).await;
    let mut connection = connected
        .map_err(|_| tell(Failure::Database(sqlx::Error::PoolTimedOut)))?
        .map_err(|error| tell(error.into()))?;
    let prepared = prepare(&mut connection, &place).await;
    // Close it even after a failed migration, because that releases its lock.
    let closed = connection.close().await;
    let Prepared { durable, me } = prepared?;
    let connect = if durable { connect } else { connect.options([("synchronous_commit", "on")]) };
    closed.map_err(|error| tell(error.into()))?;
    let pool = |connections: u32, connect: &PgConnectOptions| {
        PgPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(timeout)
            // Every use detects a broken connection and takes another one.
            .test_before_acquire(false)
            .connect_lazy_with(connect.clone())
    };
    let hot = connect.clone().options(OF_HOT_PATH);
    Ok(Opened {
        pool: pool(options.connections, &connect),
        hot: pool(batchers, &hot),
        connect: connect.clone(),
        place,
        me,
    })
}

/// Returns the settings of every connection.
fn settings(connect: PgConnectOptions) -> PgConnectOptions {
    connect
        .application_name("nightshift")
        .statement_cache_capacity(STATEMENT_CACHE)
        .options([
            ("default_transaction_isolation", "read committed"),
            ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_TIMEOUT),
            // Statements are short: JIT compilation would cost more than it saves.
            ("jit", "off"),
        ])
        .disable_statement_logging()
}

/// Result of preparing the database.
struct Prepared {
    /// Whether commits are durable by default.
    durable: bool,
    me: String,
}

/// Refuses a database of another program, and migrates the schema.
async fn prepare(connection: &mut PgConnection, place: &Place) -> Result<Prepared, StoreError> {
    let tell = |failure: Failure| failure.into_store_error(place);
    let tables = tables(connection).await.map_err(tell)?;
    let ours = tables.is_empty() || tables.iter().any(|table| table == OUR_TABLE || table == MIGRATIONS_TABLE);
    let migrated_by_us =
        tables.iter().any(|table| table == OUR_TABLE) || tables.iter().all(|table| table == MIGRATIONS_TABLE);
    if !(ours && migrated_by_us) {
        let shown: Vec<&str> = tables.iter().take(3).map(String::as_str).collect();
        let Place::Server(server) = place else { return Err(foreign("Postgres", &shown.join(", "))) };
        return Err(foreign(server, &shown.join(", ")));
    }
    sqlx::migrate!("../migrations/postgres")
        .run_direct(None, connection, false)
        .await
        .map_err(|error| tell(error.into()))?;
    let fsync: String = setting(connection, "SHOW fsync").await.map_err(tell)?;
    if fsync == "off" {
        tracing::warn!(
            "Postgres runs with fsync off: what is acknowledged may be lost when its machine fails. Turn it on for \
             anything but tests"
        );
    }
    let durable = setting(connection, "SHOW synchronous_commit").await.map_err(tell)? != "off";
    let me = setting(connection, "SELECT gen_random_uuid()::text").await.map_err(tell)?;
    Ok(Prepared { durable, me })
}

pub(super) async fn tables(connection: &mut PgConnection) -> Result<Vec<String>, Failure> {
    let sql = "SELECT c.relname::text FROM pg_class c WHERE c.relkind IN ('r', 'p') \
                AND c.relnamespace = current_schema()::regnamespace ORDER BY c.relname";
    Ok(sqlx::query_scalar(sql).fetch_all(connection).await?)
}

async fn setting(connection: &mut PgConnection, show: &'static str) -> Result<String, Failure> {
    Ok(sqlx::query_scalar(show).fetch_one(connection).await?)
}

/// Never repeats the text of a wrong address, because it may contain a password.
pub(super) fn unconfigured(error: sqlx::Error) -> sqlx::Error {
    match error {
        sqlx::Error::Configuration(inner) => sqlx::Error::Configuration(inner),
        other => sqlx::Error::Configuration(Box::new(other)),
    }
}

/// Returns the server as messages name it, without the password.
pub(super) fn describe(connect: &PgConnectOptions) -> String {
    let at = connect.get_socket().map_or_else(
        || format!("{}:{}", connect.get_host(), connect.get_port()),
        |socket| socket.display().to_string(),
    );
    let database = connect.get_database().unwrap_or_else(|| connect.get_username());
    format!("{at}/{database} (user {})", connect.get_username())
}
