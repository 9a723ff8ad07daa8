//! What can go wrong inside, and how it is told to the caller: what happened to which database, and what to do.

use std::path::{Path, PathBuf};

use nightshift_engine::store::StoreError;
use nightshift_protocol::run::IllegalTransition;
use sqlx::migrate::MigrateError;

use crate::{postgres, sqlite};

/// SQLSTATE of transactions that Postgres ended because of others: serialization failure and deadlock.
const REDO: [&str; 2] = ["40001", "40P01"];

/// Which database, as messages name it.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// The file.
    File(PathBuf),
    /// Host, port, database and user, without the password.
    Server(String),
}

/// A failure, before it is known which database it concerns.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Of the database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// Of SQLite, where it writes.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// Of the schema.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// A stored row that this release cannot read.
    #[error("{what} cannot be read: {message}")]
    Unreadable {
        /// Which.
        what: String,
        /// Why.
        message: String,
    },
    /// Something to be stored that cannot be written as JSON.
    #[error("cannot be written as JSON: {0}")]
    Unwritable(#[from] serde_json::Error),
    /// An answer that is already in the caller's words.
    #[error(transparent)]
    Answer(#[from] StoreError),
}

impl From<IllegalTransition> for Failure {
    fn from(illegal: IllegalTransition) -> Self {
        Self::Answer(illegal.into())
    }
}

impl Failure {
    /// It does not exist.
    pub(crate) fn not_found(noun: &'static str, id: impl Into<String>) -> Self {
        Self::Answer(StoreError::NotFound { noun, id: id.into() })
    }

    /// It cannot be done with what is stored.
    pub(crate) fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self::Answer(StoreError::Refused { code, message: message.into() })
    }

    /// A stored row that this release cannot read.
    pub(crate) fn unreadable(what: impl Into<String>, message: &dyn std::fmt::Display) -> Self {
        Self::Unreadable { what: what.into(), message: message.to_string() }
    }

    /// Whether the same transaction may succeed at once: it lost against another one.
    pub(crate) fn asks_for_redo(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error))
            if error.code().is_some_and(|code| REDO.contains(&code.as_ref())))
    }

    /// Whether the connection broke, so that another one may do what this one could not.
    pub(crate) fn is_of_the_connection(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Io(_) | sqlx::Error::Protocol(_)) => true,
            Self::Database(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| code.starts_with("08") || code.starts_with("57P0"))
            }
            _ => false,
        }
    }

    /// The failure in the caller's words.
    pub(crate) fn tell(self, place: &Place) -> StoreError {
        match (self, place) {
            (Self::Answer(error), _) => error,
            (Self::Unwritable(error), _) => StoreError::Other(format!("a value cannot be written as JSON: {error}")),
            (failure @ Self::Unreadable { .. }, place) => StoreError::Corrupt(format!(
                "{failure}. The database {} may be damaged, or written by another release. Nothing was changed",
                place.name()
            )),
            (Self::Database(error), Place::File(database)) => sqlite::failure::tell(&error, database),
            (Self::Sqlite(error), Place::File(database)) => sqlite::failure::tell_own(&error, database),
            (Self::Sqlite(error), Place::Server(server)) => StoreError::Other(format!("{error} ({server})")),
            (Self::Database(error), Place::Server(server)) => postgres::failure::tell(&error, server),
            (Self::Migrate(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)), place) => {
                Self::Database(error).tell(place)
            }
            (Self::Migrate(error), place) => tell_migration(&error, &place.name()),
        }
    }
}

impl Place {
    /// The file.
    pub(crate) fn file(path: &Path) -> Self {
        Self::File(path.to_owned())
    }

    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Server(server) => server.clone(),
        }
    }
}

fn tell_migration(error: &MigrateError, place: &str) -> StoreError {
    match error {
        MigrateError::VersionMissing(version) | MigrateError::VersionTooNew(version, _) => StoreError::TooNew(format!(
            "{place} was written by a newer release of Nightshift (schema {version}). Install that release or a later \
             one; nothing was changed"
        )),
        MigrateError::VersionMismatch(version) => StoreError::TooNew(format!(
            "{place} was written by another build of Nightshift (its schema {version} differs from ours). Use that \
             build, or another database; nothing was changed"
        )),
        error => StoreError::Other(format!("{error} ({place})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_is_missing_here_was_written_by_a_newer_release() {
        for place in [Place::file(Path::new("nightshift.db")), Place::Server("db:5432".to_owned())] {
            let error = Failure::from(MigrateError::VersionMissing(99)).tell(&place);
            assert_eq!(error.code(), "store.too_new");
            assert!(error.to_string().contains("99"), "{error}");
        }
    }
}
