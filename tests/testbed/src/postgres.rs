//! A PostgreSQL cluster for tests.
//!
//! The first use in a test program starts a private server on a free port of the loopback address, with its data in a
//! folder for temporary files, as durable as one in production. It is stopped and removed when the program ends, also
//! when it panics or is killed. Each test takes a database of its own:
//!
//! ```
//! use nightshift_testbed::postgres::Cluster;
//!
//! let database = Cluster::shared().create_database().unwrap();
//! // let pool = sqlx::PgPool::connect(&database.url).await?;
//! assert!(database.url.starts_with("postgres://"));
//! ```
//!
//! A test that stops or crashes the server takes a cluster of its own, because the shared one serves the tests beside
//! it:
//!
//! ```
//! use nightshift_testbed::postgres::{Cluster, Settings};
//!
//! let cluster = Cluster::start(&Settings::default()).unwrap();
//! let database = cluster.create_database().unwrap();
//! cluster.stop_immediate().unwrap(); // as if the machine had crashed
//! cluster.resume().unwrap(); // recovers, on the same port: `database.url` stays true
//! assert_eq!(database.kill_backends().unwrap(), 0);
//! ```
//!
//! Where `NIGHTSHIFT_TEST_POSTGRES_URL` names a running server (with an account that may create databases), the shared
//! cluster is that server, and databases are dropped when their test ends. All calls block: they are for the beginning
//! of a test, or for `spawn_blocking`.
//!
//! A cluster takes about a second to make. Starting from a copy of a finished one would save half of it, for the price
//! of a cache that has to be kept true for each version of PostgreSQL: not worth it once per test program.

mod account;
mod database;
mod error;
mod guard;
mod port;
mod private;
mod programs;
mod psql;
mod settings;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use database::Database;
pub use error::PostgresError;
pub use settings::Settings;

use private::PrivateServer;
use psql::Psql;

/// Names a running server to use instead of a private one: an address with a database to connect to, whose account may
/// create databases.
pub const URL_VARIABLE: &str = "NIGHTSHIFT_TEST_POSTGRES_URL";

/// How much of a program's output an error shows.
const MAX_SHOWN_BYTES: usize = 4_000;

/// How long recovery may take.
const MAX_RECOVERY: Duration = Duration::from_mins(1);

/// A server for tests.
pub struct Cluster {
    /// `None` for a server that was there before.
    private: Option<PrivateServer>,
    admin: Psql,
    /// Sets the databases of this process apart from those of others on the same server.
    prefix: String,
    databases: AtomicU64,
}

impl Cluster {
    /// The one of this process, started by the first who asks.
    ///
    /// # Panics
    ///
    /// When there is none to be had: with the reason, and with what to install.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<Cluster, PostgresError>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| match existing_url() {
            Some(url) => Self::connect(&url),
            None => Self::start(&Settings::default()),
        });
        match shared {
            Ok(cluster) => cluster,
            Err(error) => panic!("no PostgreSQL for this test: {error:?}"),
        }
    }

    /// A private one; stopped and removed when it is dropped.
    pub fn start(settings: &Settings) -> Result<Self, PostgresError> {
        let programs = programs::folder().ok_or(PostgresError::Missing)?;
        let server = PrivateServer::start(&programs, settings)?;
        let admin = Psql { program: programs.join("psql"), url: server.url("postgres"), is_private: true };
        Ok(Self::new(Some(server), admin))
    }

    /// A server that is running already, asked through this address.
    pub fn connect(url: &str) -> Result<Self, PostgresError> {
        // The client alone may be installed where the server is elsewhere.
        let program = programs::folder().map_or_else(|| PathBuf::from("psql"), |programs| programs.join("psql"));
        let admin = Psql { program, url: url.to_owned(), is_private: false };
        admin.with_database("postgres")?;
        admin.run("SELECT 1")?;
        Ok(Self::new(None, admin))
    }

    fn new(private: Option<PrivateServer>, admin: Psql) -> Self {
        let prefix = format!("nightshift_test_{:016x}", random());
        Self { private, admin, prefix, databases: AtomicU64::new(0) }
    }

    /// A fresh, empty database, in UTF-8 and with text sorted by its bytes.
    pub fn create_database(&self) -> Result<Database, PostgresError> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        Database::create(&self.admin, format!("{}_{number}", self.prefix))
    }

    /// The address of a database of this server.
    pub fn url(&self, database: &str) -> Result<String, PostgresError> {
        Ok(self.admin.with_database(database)?.url)
    }

    /// Returns whether the server is our own: one that was there before is neither stopped nor crashed.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// The folder of a private cluster.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.private.as_ref().map(PrivateServer::folder)
    }

    /// Crashes the server: all connections break, nothing is written any more. It stays down until [`Self::resume`].
    pub fn stop_immediate(&self) -> Result<(), PostgresError> {
        self.ours()?.stop_immediate()
    }

    /// Starts the stopped server again, on the same port; it answers when this returns.
    pub fn resume(&self) -> Result<(), PostgresError> {
        self.ours()?.resume()
    }

    /// Crashes the server and starts it again.
    pub fn restart(&self) -> Result<(), PostgresError> {
        self.stop_immediate()?;
        self.resume()
    }

    /// Ends all connections to databases that this cluster created; how many there were. The server stays.
    pub fn kill_backends(&self) -> Result<u32, PostgresError> {
        self.admin.number(
            "how many connections were ended",
            &format!(
                "SELECT count(*) FILTER (WHERE ended) FROM (SELECT pg_terminate_backend(pid) AS ended \
                 FROM pg_stat_activity WHERE starts_with(datname, '{}_')) AS backends",
                self.prefix
            ),
        )
    }

    /// Kills the process of one connection with `SIGKILL`. The server then ends all connections and recovers. Returns
    /// `false` when no client was connected to a database that this cluster created.
    pub fn crash_backend(&self) -> Result<bool, PostgresError> {
        self.ours()?;
        let victim: i32 = self.admin.number(
            "a process to kill",
            &format!(
                "SELECT coalesce(min(pid), 0) FROM pg_stat_activity WHERE starts_with(datname, '{}_') \
                 AND backend_type = 'client backend'",
                self.prefix
            ),
        )?;
        let Some(victim) = rustix::process::Pid::from_raw(victim) else { return Ok(false) };
        // The process may have ended by itself meanwhile.
        Ok(rustix::process::kill_process(victim, rustix::process::Signal::KILL).is_ok())
    }

    /// Waits for as long as recovery may take until the server answers: after [`Self::crash_backend`], which does not
    /// tell.
    pub fn wait_until_it_answers(&self) -> Result<(), PostgresError> {
        let began = Instant::now();
        loop {
            match self.admin.run("SELECT 1") {
                Err(PostgresError::Failed { .. }) if began.elapsed() < MAX_RECOVERY => {}
                outcome => return outcome.map(drop),
            }
        }
    }

    fn ours(&self) -> Result<&PrivateServer, PostgresError> {
        self.private.as_ref().ok_or(PostgresError::NotOurs)
    }
}

/// Returns whether [`Cluster::shared`] can be had here, and if not, what to do.
pub fn is_available() -> Result<(), String> {
    let checked = match existing_url() {
        Some(url) => Cluster::connect(&url).map(drop),
        None => programs::folder().ok_or(PostgresError::Missing).and_then(|_| account::Account::find().map(drop)),
    };
    checked.map_err(|error| format!("{error:?}"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "how the tests run is told in the environment; nothing that ships is here"
)]
fn existing_url() -> Option<String> {
    std::env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty())
}

#[expect(clippy::disallowed_methods, reason = "PostgreSQL is programs; the ban is for the product")]
fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// A command that knows nothing of other servers, and speaks English.
fn clean_command(program: &Path) -> Command {
    let mut command = command(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    command.env("LC_ALL", "C");
    command
}

/// The end of a text, as far as an error shows it.
fn end_of(text: &str) -> &str {
    let text = text.trim();
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_SHOWN_BYTES));
    text.get(start..).unwrap_or_default()
}

/// A number that no other process has: names and ports must differ, nothing else hangs on it.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
