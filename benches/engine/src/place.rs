//! Where the store is: a folder for SQLite, or a database of a Postgres server.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use nightshift_store::{OpenOptions, PostgresOptions, SqlStore};
use sqlx::{Connection as _, SqliteConnection};

use crate::cost;

/// Which database, from the command line.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Place {
    /// A fresh, empty folder for SQLite
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// A fresh, empty database on a Postgres server that nothing else uses
    #[arg(long)]
    pub(crate) database_url: Option<String>,
}

/// What the result says of the database.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) store: String,
    pub(crate) durability: String,
}

impl Place {
    pub(crate) async fn open(&self) -> anyhow::Result<Arc<SqlStore>> {
        let store = match (&self.database_url, &self.dir) {
            (Some(url), _) => SqlStore::open_postgres(url, PostgresOptions::default()).await?,
            (None, Some(dir)) => SqlStore::open_sqlite(dir, OpenOptions::default()).await?,
            (None, None) => anyhow::bail!("name a folder or a database"),
        };
        Ok(Arc::new(store))
    }

    /// Lays the schema, so that it is in no figure.
    pub(crate) async fn prepare(&self) -> anyhow::Result<()> {
        Ok(self.open().await?.close().await?)
    }

    /// Whether the database is embedded in one process.
    pub(crate) fn is_embedded(&self) -> bool {
        self.database_url.is_none()
    }

    /// The same place, as arguments for a process of ours.
    pub(crate) fn arguments(&self) -> Vec<String> {
        match (&self.database_url, &self.dir) {
            (Some(url), _) => vec!["--database-url".to_owned(), url.clone()],
            (None, Some(dir)) => vec!["--dir".to_owned(), dir.display().to_string()],
            (None, None) => Vec::new(),
        }
    }

    /// What it is and how durable, as the database itself says. For SQLite, durability is a setting of each connection;
    /// that every one of them has it is tested in `store`.
    pub(crate) async fn describe(&self, store: &SqlStore) -> anyhow::Result<Description> {
        if let Some(url) = &self.database_url {
            let server = cost::server(url).await?;
            return Ok(Description { store: format!("Postgres {}", server.version), durability: server.durability });
        }
        let database = store.database().context("a store on SQLite has a file")?;
        let mut connection = SqliteConnection::connect(&format!("sqlite://{}?mode=ro", database.display())).await?;
        let version: String = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(&mut connection).await?;
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(Description {
            store: format!("SQLite {version}"),
            durability: format!("journal_mode={journal} synchronous=FULL"),
        })
    }

    /// The counters of the database, on Postgres; every connection of ours must be closed.
    pub(crate) async fn counters(&self) -> anyhow::Result<Option<cost::Counters>> {
        match &self.database_url {
            Some(url) => Ok(Some(cost::read(url).await?)),
            None => Ok(None),
        }
    }
}
