//! Asking a server.

use std::path::PathBuf;
use std::process::Stdio;

use super::{PostgresError, clean_command, command, end_of};

/// How long a connection may take.
const CONNECT_TIMEOUT_SECONDS: &str = "20";

/// Statements for one database of a server, each in a connection of its own.
#[derive(Clone)]
pub(super) struct Psql {
    pub(super) program: PathBuf,
    pub(super) url: String,
    /// Whether the variables that PostgreSQL's clients read are to be left out: they concern another server than ours.
    pub(super) is_private: bool,
}

impl Psql {
    /// Carries out these statements; the rows of the last one, a line each.
    pub(super) fn run(&self, sql: &str) -> Result<String, PostgresError> {
        let mut psql = if self.is_private { clean_command(&self.program) } else { command(&self.program) };
        psql.args(["-X", "-q", "-A", "-t", "-w", "-v", "ON_ERROR_STOP=1", "-d", &self.url, "-c", sql])
            .env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT_SECONDS)
            .stdin(Stdio::null());
        let output =
            psql.output().map_err(|source| PostgresError::CannotRun { program: self.program.clone(), source })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let output_text = end_of(&String::from_utf8_lossy(&output.stderr)).to_owned();
        Err(PostgresError::Failed { program: "psql".to_owned(), status: output.status, output: output_text })
    }

    /// One number.
    pub(super) fn number<N: std::str::FromStr>(&self, asked: &'static str, sql: &str) -> Result<N, PostgresError> {
        let answer = self.run(sql)?;
        answer.parse().map_err(|_| PostgresError::Answer { asked, answer })
    }

    /// The same server, another database.
    pub(super) fn with_database(&self, name: &str) -> Result<Self, PostgresError> {
        let url = replace_database(&self.url, name).ok_or(PostgresError::Url)?;
        Ok(Self { url, ..self.clone() })
    }
}

/// This address with another database: `scheme://authority/DATABASE?parameters`.
fn replace_database(url: &str, name: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !matches!(scheme, "postgres" | "postgresql") {
        return None;
    }
    let (place, parameters) = match rest.split_once('?') {
        Some((place, parameters)) => (place, format!("?{parameters}")),
        None => (rest, String::new()),
    };
    let authority = place.split_once('/').map_or(place, |(authority, _)| authority);
    (!authority.is_empty()).then(|| format!("{scheme}://{authority}/{name}{parameters}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_database_keeps_server_account_and_parameters() {
        let replaced = |url| replace_database(url, "other");
        assert_eq!(
            replaced("postgres://me:secret@host:5433/postgres?sslmode=require").as_deref(),
            Some("postgres://me:secret@host:5433/other?sslmode=require")
        );
        assert_eq!(replaced("postgresql://host").as_deref(), Some("postgresql://host/other"));
        assert_eq!(replaced("mysql://host/db"), None);
        assert_eq!(replaced("postgres:///db"), None);
        assert_eq!(replaced("host=/tmp dbname=db"), None);
    }
}
