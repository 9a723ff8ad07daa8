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
    /// Folder of templates that replace those of the same name.
    pub(crate) prompts: Option<PathBuf>,
    /// The database.
    #[serde(default)]
    pub(crate) database: DatabaseSection,
    /// Where artifacts are stored.
    #[serde(default)]
    pub(crate) artifacts: ArtifactSection,
    /// The server.
    pub(crate) server: ServerSection,
    /// The local worker.
    pub(crate) worker: WorkerSection,
    /// What prompts are given beside a run's own history.
    #[serde(default)]
    pub(crate) knowledge: KnowledgeSection,
    /// Requests that agents outside of Nightshift answer.
    #[serde(default)]
    pub(crate) external: ExternalSection,
    /// Model endpoints by name, added to the built-in ones.
    #[serde(default)]
    pub(crate) models: BTreeMap<String, serde_json::Value>,
    /// Models and parameters of single roles: `planner`, `coder`, `verifier`, `judge`.
    #[serde(default)]
    pub(crate) roles: BTreeMap<String, RoleSection>,
}

/// A role.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoleSection {
    /// Its models, separated by commas: the first one is asked first.
    pub(crate) model: Option<String>,
    /// Sampling temperature.
    pub(crate) temperature: Option<f32>,
    /// Limit of a reply in tokens.
    pub(crate) max_output_tokens: Option<u32>,
}

/// Requests that agents outside of Nightshift answer.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExternalSection {
    /// Seconds in which a request has to be answered; a day without it.
    pub(crate) deadline_s: Option<u32>,
}

/// What prompts are given beside a run's own history.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnowledgeSection {
    /// Folder with notes and documents of one's own, searched beside those that ship with the program.
    pub(crate) folder: Option<PathBuf>,
}

/// The database.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatabaseSection {
    /// `postgres://…`; without it, SQLite in the data folder. May hold a password.
    #[serde(default, deserialize_with = "database_url")]
    pub(crate) url: Option<SecretString>,
}

/// Where artifacts are stored.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactSection {
    /// `file:///folder`, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; without it, the folder
    /// `artifacts` of the data folder, and the database itself where that is Postgres.
    pub(crate) url: Option<String>,
    /// Maximum size of an artifact in bytes; 4 GiB without it.
    pub(crate) max_bytes: Option<u64>,
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
    /// Whether everyone on this machine may read on a loopback address; without it, where no other people use the machine.
    pub(crate) open_reads: Option<bool>,
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
    /// The CUDA compiler, or the folder of its toolkit; searched for without it.
    pub(crate) nvcc: Option<String>,
    /// What CUDA programs are built for, for example `sm_90a`; the GPU's architecture without it.
    pub(crate) cuda_arch: Option<String>,
    /// The Python that runs models of `PyTorch`; the first one of the search path that has it without it.
    pub(crate) python: Option<PathBuf>,
    /// The cache of Hugging Face that models of `PyTorch` may read; none without it.
    pub(crate) hf_home: Option<PathBuf>,
    /// Folder of build results; `$XDG_CACHE_HOME/nightshift` without it.
    pub(crate) cache_dir: Option<PathBuf>,
    /// Labels that steps may ask for, separated by commas.
    pub(crate) labels: Option<String>,
    /// GPUs that it may use, by number or name, separated by commas; all of them without it.
    pub(crate) devices: Option<String>,
    /// Processes that may hold a context on the GPUs at once; as many as their memory is good for without it.
    pub(crate) gpu_contexts: Option<u32>,
    /// Whether it profiles with the tools that it finds; it does without it.
    pub(crate) profilers: Option<bool>,
    /// Seconds that the worker goes on with what it holds after it was asked to end.
    pub(crate) drain_timeout_s: Option<u64>,
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
}
