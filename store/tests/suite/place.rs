//! The location of a test's store: a folder, or a database of the tests' server.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use nightshift_engine::store::StoreError;
use nightshift_store::{ARTIFACT_FOLDER, ArtifactOptions, Objects, OpenOptions, PostgresOptions, SqlStore};
use nightshift_testbed::postgres::{Cluster, Database, Settings, URL_VARIABLE};
use tempfile::TempDir;

/// Kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// Location of a store.
pub(crate) enum Place {
    Folder(TempDir),
    /// A database, and the folder of its objects.
    Database(Database, TempDir),
}

impl Place {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => Self::Folder(tempfile::tempdir().unwrap()),
            Kind::Postgres => Self::Database(cluster().create_database().unwrap(), tempfile::tempdir().unwrap()),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Folder(_) => Kind::Sqlite,
            Self::Database(..) => Kind::Postgres,
        }
    }

    /// Returns the folder of the objects.
    pub(crate) fn objects(&self) -> PathBuf {
        match self {
            Self::Folder(folder) | Self::Database(_, folder) => folder.path().join(ARTIFACT_FOLDER),
        }
    }

    pub(crate) async fn try_open(&self) -> Result<SqlStore, StoreError> {
        let objects = Some(Objects::folder(&self.objects()).unwrap());
        self.try_open_with(ArtifactOptions { objects, ..ArtifactOptions::default() }).await
    }

    pub(crate) async fn try_open_with(&self, artifacts: ArtifactOptions) -> Result<SqlStore, StoreError> {
        match self {
            Self::Folder(folder) => {
                SqlStore::open_sqlite(folder.path(), OpenOptions { artifacts, ..OpenOptions::default() }).await
            }
            Self::Database(database, _) => {
                SqlStore::open_postgres(&database.url, PostgresOptions { artifacts, ..few_connections() }).await
            }
        }
    }

    pub(crate) async fn open(&self) -> Arc<SqlStore> {
        // A child process of another test holds the inherited lock of a folder, too, until it executes its program.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            match self.try_open().await {
                Err(StoreError::Locked(_)) if std::time::Instant::now() < deadline => {
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
                opened => return Arc::new(opened.unwrap()),
            }
        }
    }
}

/// Returns the server of these tests. It needs no durability; tests that crash a server have one of their own.
#[expect(clippy::disallowed_methods, reason = "a server that is there already is named in the environment")]
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| match std::env::var(URL_VARIABLE) {
        Ok(url) if !url.is_empty() => Cluster::connect(&url).unwrap(),
        _ => Cluster::start(&Settings { fsync: false, ..Settings::default() }).unwrap(),
    })
}

/// Many stores of many tests share one server.
pub(crate) fn few_connections() -> PostgresOptions {
    PostgresOptions { connections: 4, ..PostgresOptions::default() }
}
