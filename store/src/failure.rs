//! Internal failures, and their conversion into errors that name the database and say what to do.

pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::path::{Path, PathBuf};

use nightshift_engine::store::StoreError;
use nightshift_protocol::run::IllegalTransition;
use sqlx::migrate::MigrateError;

/// SQLSTATE of transactions that Postgres aborted because of concurrency: serialization failure and deadlock.
const REDO: [&str; 2] = ["40001", "40P01"];

/// The database, as messages name it.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// The path of the file.
    File(PathBuf),
    /// Host, port, database and user, without the password.
    Server(String),
}

/// A failure that does not know its database yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An error of a database driver.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An error of the SQLite connection that writes.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// An error of a migration.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// A stored row that this release cannot read.
    #[error("{what} cannot be read: {message}")]
    Unreadable {
        /// Name of the row.
        what: String,
        /// The reason.
        message: String,
    },
    /// A value that cannot be written as JSON.
    #[error("cannot be written as JSON: {0}")]
    Unwritable(#[from] serde_json::Error),
    /// A complete error for the caller.
    #[error(transparent)]
    Answer(#[from] StoreError),
}

impl From<IllegalTransition> for Failure {
    fn from(illegal: IllegalTransition) -> Self {
        Self::Answer(illegal.into())
    }
}

impl Failure {
    /// Returns the error for a missing object.
    pub(crate) fn not_found(noun: &'static str, id: impl Into<String>) -> Self {
        Self::Answer(StoreError::NotFound { noun, id: id.into() })
    }

    /// Returns the error for a request that conflicts with the stored state.
    pub(crate) fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self::Answer(StoreError::Refused { code, message: message.into() })
    }

    /// Returns the error for a cursor that no page has.
    pub(crate) fn not_a_cursor() -> Self {
        Self::refused("request.invalid_query", "`before` must be the `next` of the page before")
    }

    /// Returns the error for an unreadable row.
    pub(crate) fn unreadable(what: impl Into<String>, message: &dyn std::fmt::Display) -> Self {
        Self::Unreadable { what: what.into(), message: message.to_string() }
    }

    /// Returns whether the same transaction may succeed at once, because it lost against a concurrent one.
    pub(crate) fn asks_for_redo(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error))
            if error.code().is_some_and(|code| REDO.contains(&code.as_ref())))
    }

    /// Returns whether the connection broke, so that another connection may succeed.
    pub(crate) fn is_of_the_connection(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Io(_) | sqlx::Error::Protocol(_)) => true,
            Self::Database(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| code.starts_with("08") || code.starts_with("57P0"))
            }
            _ => false,
        }
    }

    /// Converts the failure into an error for the caller.
    pub(crate) fn into_store_error(self, place: &Place) -> StoreError {
        match (self, place) {
            (Self::Answer(error), _) => error,
            (Self::Unwritable(error), _) => StoreError::Other(format!("a value cannot be written as JSON: {error}")),
            (failure @ Self::Unreadable { .. }, place) => StoreError::Corrupt(format!(
                "{failure}. The database {} may be damaged, or written by another release. Nothing was changed",
                place.name()
            )),
            (Self::Database(error), Place::File(database)) => sqlite::into_store_error(&error, database),
            (Self::Sqlite(error), Place::File(database)) => sqlite::writer_error(&error, database),
            (Self::Sqlite(error), Place::Server(server)) => StoreError::Other(format!("{error} ({server})")),
            (Self::Database(error), Place::Server(server)) => postgres::into_store_error(&error, server),
            (Self::Migrate(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)), place) => {
                Self::Database(error).into_store_error(place)
            }
            (Self::Migrate(error), place) => migration_error(&error, &place.name()),
        }
    }
}

impl Place {
    /// Creates the place of a file.
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

fn migration_error(error: &MigrateError, place: &str) -> StoreError {
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
            let error = Failure::from(MigrateError::VersionMissing(99)).into_store_error(&place);
            assert_eq!(error.code(), "store.too_new");
            assert!(error.to_string().contains("99"), "{error}");
        }
    }
}
