//! A database for one test.

use std::fmt;

use super::PostgresError;
use super::psql::Psql;

/// A fresh, empty database. One of a private cluster goes with the cluster; one of a server that was there before is
/// dropped with this value.
pub struct Database {
    /// Where it is: `postgres://user@host:port/name`.
    pub url: String,
    name: String,
    admin: Psql,
}

impl Database {
    /// Creates a database. Text sorts by its bytes, on every server alike.
    pub(super) fn create(admin: &Psql, name: String) -> Result<Self, PostgresError> {
        // No client connects to `template0`, so that many tests can copy it at the same time.
        admin.run(&format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"))?;
        Ok(Self { url: admin.with_database(&name)?.url, name, admin: admin.clone() })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends all connections to this database and leaves those of other tests alone; how many there were.
    pub fn kill_backends(&self) -> Result<u32, PostgresError> {
        self.admin.number(
            "how many connections were ended",
            &format!(
                "SELECT count(*) FILTER (WHERE ended) FROM (SELECT pg_terminate_backend(pid) AS ended \
                 FROM pg_stat_activity WHERE datname = '{}') AS backends",
                self.name
            ),
        )
    }

    /// Drops the database now and ends its connections. For tests that create many.
    pub fn remove(self) -> Result<(), PostgresError> {
        self.drop_now()
    }

    fn drop_now(&self) -> Result<(), PostgresError> {
        self.admin.run(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).map(drop)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !self.admin.is_private
            && let Err(error) = self.drop_now()
        {
            eprintln!("cannot drop the database {}: {error}", self.name);
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the address: that of an existing server may hold a password.
        f.debug_struct("Database").field("name", &self.name).finish_non_exhaustive()
    }
}
