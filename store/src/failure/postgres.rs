//! Converts errors of Postgres.

use nightshift_engine::store::StoreError;

/// Converts an error of Postgres into an error for the caller that names the server and says what to do. It never
/// contains the password.
pub(crate) fn into_store_error(error: &sqlx::Error, server: &str) -> StoreError {
    match error {
        sqlx::Error::Database(inner) => {
            state_error(inner.code().as_deref().unwrap_or_default(), &error.to_string(), server)
        }
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::BeginFailed => StoreError::Unreachable(format!(
            "Postgres at {server} does not answer ({error}). Check that it runs and that host and port of DATABASE_URL \
             are right"
        )),
        sqlx::Error::Tls(_) => StoreError::Unreachable(format!(
            "no secure connection to Postgres at {server} ({error}). Check `sslmode` and `sslrootcert` in DATABASE_URL"
        )),
        sqlx::Error::Configuration(_) => StoreError::Unusable(format!(
            "DATABASE_URL cannot be used ({error}). It looks like postgres://user:password@host:5432/database"
        )),
        sqlx::Error::PoolTimedOut => StoreError::Unreachable(format!(
            "no connection to Postgres at {server} in time: it is down, overloaded, or all its connections are in use. \
             Check that it runs, and try again"
        )),
        sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => StoreError::Other("the store is closed".to_owned()),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::Decode(_) => {
            StoreError::Corrupt(format!(
                "a row of {server} cannot be read ({error}): it is damaged, or another program changed it. Nothing was \
                 changed"
            ))
        }
        _ => StoreError::Other(format!("{error} ({server})")),
    }
}

/// Converts by SQLSTATE.
fn state_error(state: &str, error: &str, server: &str) -> StoreError {
    match state {
        "28P01" | "28000" => StoreError::Unreachable(format!(
            "Postgres at {server} refuses the login ({error}). Check user and password in DATABASE_URL, and the \
             server's pg_hba.conf"
        )),
        "3D000" => StoreError::Unreachable(format!(
            "Postgres at {server} has no such database ({error}). Create it, for example with `createdb`, or correct \
             the last part of DATABASE_URL"
        )),
        "42501" => StoreError::ReadOnly(format!(
            "Postgres at {server} does not allow it ({error}). The user of DATABASE_URL needs the right to create and \
             change tables in its schema: make it the owner of the database"
        )),
        "25006" => StoreError::ReadOnly(format!(
            "Postgres at {server} only reads ({error}). It is a standby, or set to read only: point DATABASE_URL to \
             the primary"
        )),
        "53100" | "53200" => StoreError::Full(format!(
            "Postgres at {server} has no space left ({error}). Free some space there and try again; what was \
             acknowledged is safe"
        )),
        "53300" => StoreError::Unreachable(format!(
            "Postgres at {server} has too many connections ({error}). Raise its `max_connections`, or run fewer servers"
        )),
        "57P01" | "57P02" | "57P03" | "57P05" => {
            StoreError::Unreachable(format!("Postgres at {server} is going down or coming up ({error}). Try again"))
        }
        "XX001" | "XX002" => StoreError::Corrupt(format!(
            "the database at {server} is damaged ({error}). Stop the servers and restore a backup"
        )),
        state if state.starts_with("08") => {
            StoreError::Unreachable(format!("the connection to Postgres at {server} broke ({error}). Try again"))
        }
        state => StoreError::Other(format!("{error} (Postgres code {state}, {server})")),
    }
}

/// Returns the error for a database with tables of another program.
pub(crate) fn foreign(server: &str, tables: &str) -> StoreError {
    StoreError::Unusable(format!(
        "the database at {server} belongs to another program (it has the tables {tables}). It was left as it is. \
         Create an empty database for Nightshift and name it in DATABASE_URL"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(state: &str) -> &'static str {
        state_error(state, "x", "db:5432").code()
    }

    #[test]
    fn states_of_postgres_get_the_code_of_what_to_do() {
        assert_eq!(told("28P01"), "store.unreachable");
        assert_eq!(told("3D000"), "store.unreachable");
        assert_eq!(told("08006"), "store.unreachable");
        assert_eq!(told("57P03"), "store.unreachable");
        assert_eq!(told("53100"), "store.full");
        assert_eq!(told("25006"), "store.read_only");
        assert_eq!(told("42501"), "store.read_only");
        assert_eq!(told("XX001"), "store.corrupt");
        assert_eq!(told("23505"), "store.failed");
    }
}
