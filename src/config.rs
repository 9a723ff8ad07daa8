//! The configuration: defaults, then the file, then `NIGHTSHIFT_*` variables, then flags; the later one wins.

mod load;
mod show;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use secrecy::SecretString;
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
    /// The server.
    pub(crate) server: ServerSection,
    /// The local worker.
    pub(crate) worker: WorkerSection,
    /// Model endpoints by name, added to the built-in ones.
    #[serde(default)]
    pub(crate) models: BTreeMap<String, serde_json::Value>,
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
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
}
