//! Converts errors of SQLite and of the file system.

use std::io;
use std::path::Path;

use nightshift_engine::store::StoreError;

/// Primary result codes of SQLite that are handled individually.
mod code {
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const READ_ONLY: i32 = 8;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANNOT_OPEN: i32 = 14;
    pub(super) const NOT_A_DATABASE: i32 = 26;
    /// Extended code: the file of the shared memory could not be made as large as needed, which only a full disk explains.
    pub(super) const SHARED_MEMORY_SIZE: i32 = 4874;
}

/// Converts an error of the file system into an error for the caller.
pub(crate) fn io_error(error: &io::Error, path: &Path, doing: &str) -> StoreError {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            read_only(&path, &format!("{doing}: {error}"))
        }
        // Creating a folder returns `AlreadyExists` if a file has its name.
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => {
            unusable(&path, &format!("{doing}: {error}"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => full(&path, &format!("{doing}: {error}")),
        _ => StoreError::Other(format!("{doing} {path}: {error}")),
    }
}

/// Returns the error for a file that is damaged or not a Nightshift database.
pub(crate) fn corrupt(database: &Path, finding: &str) -> StoreError {
    StoreError::Corrupt(format!(
        "{path} is damaged or not a database of Nightshift ({finding}). It was left as it is. Move it and the files \
         beside it that begin with its name (`-wal`, `-shm`) to another folder, then restore a backup, or start again \
         with a new database; `sqlite3 FILE .recover` can often save most of a damaged one",
        path = database.display()
    ))
}

/// Converts an error of SQLite into an error for the caller that names the file and says what to do.
pub(crate) fn into_store_error(error: &sqlx::Error, database: &Path) -> StoreError {
    let path = database.display();
    match error {
        sqlx::Error::Database(inner) => {
            let extended = inner.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or_default();
            code_error(extended, error, database)
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => corrupt(database, &error.to_string()),
        sqlx::Error::Io(inner) => io_error(inner, database, "cannot use"),
        sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => StoreError::Other("the store is closed".to_owned()),
        sqlx::Error::PoolTimedOut => {
            StoreError::Other(format!("every reader of {path} was busy for too long: try again"))
        }
        _ => StoreError::Other(format!("{error} ({path})")),
    }
}

/// Like [`into_store_error`], for the connection that writes.
pub(crate) fn writer_error(error: &rusqlite::Error, database: &Path) -> StoreError {
    match error.sqlite_error() {
        Some(code) => code_error(code.extended_code, error, database),
        None => StoreError::Other(format!("{error} ({})", database.display())),
    }
}

fn code_error(extended: i32, error: &dyn std::fmt::Display, database: &Path) -> StoreError {
    let path = database.display();
    if extended == code::SHARED_MEMORY_SIZE {
        return full(&path, &error.to_string());
    }
    match extended & 0xff {
        code::BUSY | code::LOCKED => StoreError::Locked(format!(
            "{path} is locked by another program ({error}). End that program, for example a `sqlite3` shell \
             or a backup, and try again"
        )),
        code::READ_ONLY => read_only(&path, &error.to_string()),
        code::FULL => full(&path, &error.to_string()),
        code::CORRUPT | code::NOT_A_DATABASE => corrupt(database, &error.to_string()),
        code::CANNOT_OPEN => StoreError::Other(format!("{path} cannot be opened: {error}")),
        _ => StoreError::Other(format!("{error} (SQLite code {extended}, {path})")),
    }
}

/// Returns the error for a path that is not a data folder with a database.
pub(crate) fn unusable(path: &dyn std::fmt::Display, detail: &str) -> StoreError {
    StoreError::Unusable(format!(
        "{path} cannot be used ({detail}). The data folder has to be a folder, and `nightshift.db` in it a file or \
         nothing: move what is in the way, or choose another data folder"
    ))
}

fn read_only(path: &dyn std::fmt::Display, detail: &str) -> StoreError {
    StoreError::ReadOnly(format!(
        "{path} cannot be written ({detail}). Give this user permission to write the folder and the files in it, or \
         choose another data folder"
    ))
}

fn full(path: &dyn std::fmt::Display, detail: &str) -> StoreError {
    StoreError::Full(format!(
        "no space is left for {path} ({detail}). Free some space and try again; what was acknowledged is safe"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: io::ErrorKind) -> &'static str {
        io_error(&io::Error::from(kind), Path::new("/data/nightshift.db"), "cannot create").code()
    }

    #[test]
    fn errors_of_the_file_system_get_the_code_of_what_to_do() {
        assert_eq!(told(io::ErrorKind::PermissionDenied), "store.read_only");
        assert_eq!(told(io::ErrorKind::ReadOnlyFilesystem), "store.read_only");
        assert_eq!(told(io::ErrorKind::StorageFull), "store.full");
        assert_eq!(told(io::ErrorKind::QuotaExceeded), "store.full");
        assert_eq!(told(io::ErrorKind::NotADirectory), "store.unusable");
        assert_eq!(told(io::ErrorKind::AlreadyExists), "store.unusable");
        assert_eq!(told(io::ErrorKind::TimedOut), "store.failed");
    }

    #[test]
    fn a_full_disk_is_named_also_where_only_the_shared_memory_finds_no_space() {
        let said = |extended| code_error(extended, &"disk I/O error", Path::new("/data/nightshift.db")).code();
        // SQLITE_FULL, SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_READ
        assert_eq!([13, 4874, 266].map(said), ["store.full", "store.full", "store.failed"]);
    }
}
