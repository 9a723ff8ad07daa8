//! The configuration: defaults, then the file, then `NIGHTSHIFT_*` variables, then flags; the later one wins.

mod load;
mod show;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

pub(crate) use load::{Flags, Loaded, closest, load};

/// The whole configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Folder of the database and of `server.json`.
    pub(crate) data_dir: PathBuf,
    /// Filter of the log on standard error.
    pub(crate) log: String,
    /// A price table that is added to the built-in one.
    pub(crate) prices: Option<PathBuf>,
    /// The database.
    #[serde(default)]
    pub(crate) database: DatabaseSection,
    /// The server.
    pub(crate) server: ServerSection,
    /// The local worker.
    pub(crate) worker: WorkerSection,
    /// Model endpoints by name, added to the built-in ones.
    #[serde(default)]
    pub(crate) models: BTreeMap<String, serde_json::Value>,
}

/// The database.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatabaseSection {
    /// `postgres://…`; without it, SQLite in the data folder. May hold a password.
    #[serde(default, deserialize_with = "database_url")]
    pub(crate) url: Option<SecretString>,
}

/// How an address of Postgres begins.
const POSTGRES_SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// Refuses the address of another kind of database, which would be looked for as a host of Postgres. It is not repeated:
/// it may hold a password.
fn database_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    let url = Option::<String>::deserialize(deserializer)?;
    match url {
        Some(url) if !POSTGRES_SCHEMES.iter().any(|scheme| url.starts_with(scheme)) => Err(D::Error::custom(
            "expected postgres://USER:PASSWORD@HOST:5432/DATABASE; without it, SQLite in the data folder is used",
        )),
        url => Ok(url.map(SecretString::from)),
    }
}

/// The server: the one to be started, or the one to be spoken to.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSection {
    /// Where `serve` listens.
    pub(crate) bind: SocketAddr,
    /// The server to be used instead of a local one.
    pub(crate) url: Option<String>,
    /// Its token; for `serve`, the token that clients have to give.
    #[serde(default, deserialize_with = "secret")]
    pub(crate) token: Option<SecretString>,
    /// For `serve`, the token that workers have to give.
    #[serde(default, deserialize_with = "secret")]
    pub(crate) worker_token: Option<SecretString>,
    /// Name for people, in lists of replicas; the host's without it.
    pub(crate) name: Option<String>,
    /// Days that finished campaigns are kept; for good without it.
    pub(crate) retention_days: Option<u32>,
    /// Where spans are sent (OTLP over HTTP).
    pub(crate) otlp_endpoint: Option<String>,
}

/// The local worker.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerSection {
    /// Its name for people; the host's without it.
    pub(crate) name: Option<String>,
    /// Builds at once; the number of cores without it.
    pub(crate) cpu_slots: Option<u32>,
    /// The C++ compiler; searched for without it.
    pub(crate) cpp_compiler: Option<String>,
    /// Folder of build results; `$XDG_CACHE_HOME/nightshift` without it.
    pub(crate) cache_dir: Option<PathBuf>,
    /// Labels that steps may ask for, separated by commas.
    pub(crate) labels: Option<String>,
    /// Seconds that the worker goes on with what it holds after it was asked to end.
    pub(crate) drain_timeout_s: Option<u64>,
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
}
