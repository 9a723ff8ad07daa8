//! What can go wrong with a cluster, and what to do about it.

use std::fmt;
use std::path::PathBuf;

/// Why there is no cluster, or why it did not do what it was asked for. Shown in full by `{:?}` too, so that a test's
/// `unwrap` tells what to do.
#[derive(thiserror::Error)]
pub enum PostgresError {
    /// No installation of PostgreSQL was found.
    #[error(
        "PostgreSQL's programs (initdb, pg_ctl, postgres, psql) are neither on PATH nor in /usr/lib/postgresql/*/bin \
         nor in /usr/local/pgsql/bin: install them (`apt-get install --no-install-recommends postgresql`, or \
         `cargo xtask test --install`), or name a running server in NIGHTSHIFT_TEST_POSTGRES_URL"
    )]
    Missing,
    /// PostgreSQL refuses to run as root, and there is no other account to run it.
    #[error(
        "PostgreSQL refuses to run as root, and /etc/passwd has neither an account `postgres` nor `nobody`: run the \
         tests as another user, or add one of these accounts"
    )]
    NoAccount,
    /// The cluster's folder could not be made.
    #[error("cannot prepare {}: choose another folder for temporary files with TMPDIR", path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// No port of the loopback address could be had.
    #[error("no free port on 127.0.0.1 after {tries} tries: end other servers on this machine")]
    NoPort {
        /// How many were tried.
        tries: u32,
    },
    /// A program did not start.
    #[error("cannot run {}", program.display())]
    CannotRun {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {output}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said, and the end of the server's log where there is one.
        output: String,
    },
    /// The server answered something else than what was asked for.
    #[error("{asked} was answered with {answer:?}")]
    Answer {
        /// What was asked for.
        asked: &'static str,
        /// The answer.
        answer: String,
    },
    /// A server that was there before the tests cannot be stopped by them.
    #[error(
        "the server that NIGHTSHIFT_TEST_POSTGRES_URL names is not ours to stop or crash: start a private one with \
         Cluster::start, or unset the variable"
    )]
    NotOurs,
    /// The address of an existing server has a form that we cannot use.
    #[error("NIGHTSHIFT_TEST_POSTGRES_URL must look like postgres://user@host:5432/postgres")]
    Url,
}

impl fmt::Debug for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
