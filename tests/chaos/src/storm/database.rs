//! The database under the fleet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use nightshift_testbed::postgres::{Cluster, Database as TestDatabase, PostgresError, Settings};

use super::Kind;

/// Connections that Postgres serves: few, so that they can be taken away.
const MAX_CONNECTIONS: u32 = 100;

/// A database of the storm's own.
pub(crate) enum Database {
    Sqlite { folder: PathBuf },
    Postgres { cluster: Arc<Cluster>, database: TestDatabase },
}

impl Database {
    pub(crate) async fn start(kind: Kind, folder: &Path) -> anyhow::Result<Self> {
        match kind {
            Kind::Sqlite => {
                let folder = folder.join("data");
                std::fs::create_dir_all(&folder)?;
                Ok(Self::Sqlite { folder })
            }
            Kind::Postgres => tokio::task::spawn_blocking(|| {
                let settings = Settings { max_connections: MAX_CONNECTIONS, ..Settings::default() };
                let cluster = Cluster::start(&settings)?;
                let database = cluster.create_database()?;
                Ok::<_, PostgresError>(Self::Postgres { cluster: Arc::new(cluster), database })
            })
            .await?
            .context("no PostgreSQL"),
        }
    }

    /// As nodes are told.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Sqlite { folder } => format!("sqlite:{}", folder.display()),
            Self::Postgres { database, .. } => database.url.clone(),
        }
    }

    /// The cluster, where there is one.
    pub(crate) fn cluster(&self) -> Option<Arc<Cluster>> {
        match self {
            Self::Sqlite { .. } => None,
            Self::Postgres { cluster, .. } => Some(cluster.clone()),
        }
    }

    /// Size of the largest file of the database, in bytes.
    pub(crate) fn largest_file_bytes(&self) -> u64 {
        let Self::Sqlite { folder } = self else { return 0 };
        let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).max().unwrap_or_default()
    }
}
