//! `server.json` in the data folder: how other commands find a running local server.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

const NAME: &str = "server.json";
const SCHEMA: u32 = 1;
/// More than this is no file of ours.
const MAX_BYTES: u64 = 64 * 1024;

/// A running local server.
#[derive(Clone)]
pub(crate) struct ServerFile {
    /// Its address, for example `http://127.0.0.1:7777`.
    pub(crate) address: String,
    /// Its process.
    pub(crate) pid: u32,
    /// The operator's token.
    pub(crate) token: SecretString,
    /// The workers' token.
    pub(crate) worker_token: SecretString,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    schema: u32,
    address: String,
    pid: u32,
    token: String,
    worker_token: String,
}

/// Where the file is.
pub(crate) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(NAME)
}

/// The server that the data folder knows, whether or not it still runs. A file that is not understood counts as none.
pub(crate) fn read(data_dir: &Path) -> Option<ServerFile> {
    let path = path(data_dir);
    if std::fs::metadata(&path).ok()?.len() > MAX_BYTES {
        return None;
    }
    let stored: Stored = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (stored.schema == SCHEMA).then(|| ServerFile {
        address: stored.address,
        pid: stored.pid,
        token: stored.token.into(),
        worker_token: stored.worker_token.into(),
    })
}

/// Makes a server known, readable by its owner alone.
pub(crate) fn write(data_dir: &Path, server: &ServerFile) -> Result<()> {
    let stored = Stored {
        schema: SCHEMA,
        address: server.address.clone(),
        pid: server.pid,
        token: server.token.expose_secret().to_owned(),
        worker_token: server.worker_token.expose_secret().to_owned(),
    };
    let path = path(data_dir);
    let beside = data_dir.join(format!("{NAME}.{}", server.pid));
    let failed = |error: std::io::Error| not_written(&path, &error);
    // With the data in Postgres, the folder may not exist yet.
    std::fs::create_dir_all(data_dir).map_err(failed)?;
    let text = serde_json::to_vec(&stored).map_err(|error| failed(error.into()))?;
    let _ = std::fs::remove_file(&beside);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).map_err(failed)?;
    file.write_all(&text).map_err(failed)?;
    drop(file);
    std::fs::rename(&beside, &path).map_err(failed)
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    let (code, hint) = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ("store.read_only", "make the folder writable, or use another --data-dir")
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ("store.full", "free some space, or use another --data-dir")
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
            ("store.unusable", "move what is in the way, or use another --data-dir")
        }
        _ => ("store.failed", "use another --data-dir"),
    };
    Failure::new(code, format!("`{}` cannot be written: {error}", path.display())).hint(hint)
}

/// Forgets a server, if the file is still its own.
pub(crate) fn remove(data_dir: &Path, pid: u32) {
    if read(data_dir).is_some_and(|server| server.pid == pid) {
        // A file that stays is harmless: its server does not answer.
        let _ = std::fs::remove_file(path(data_dir));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn server(pid: u32) -> ServerFile {
        ServerFile {
            address: "http://127.0.0.1:1".to_owned(),
            pid,
            token: "a".to_owned().into(),
            worker_token: "b".to_owned().into(),
        }
    }

    #[test]
    fn only_the_owner_can_read_the_tokens() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &server(7)).unwrap();
        let mode = std::fs::metadata(path(folder.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(read(folder.path()).unwrap().worker_token.expose_secret(), "b");
    }

    #[test]
    fn a_server_does_not_forget_its_successor() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &server(7)).unwrap();
        write(folder.path(), &server(8)).unwrap();
        remove(folder.path(), 7);
        assert_eq!(read(folder.path()).unwrap().pid, 8);
        remove(folder.path(), 8);
        assert!(read(folder.path()).is_none());
    }

    #[test]
    fn what_is_in_the_way_is_told_from_what_may_not_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(write(&file, &server(7)).unwrap_err().error.code, "store.unusable");
        std::fs::create_dir(path(folder.path())).unwrap();
        assert_eq!(write(folder.path(), &server(7)).unwrap_err().error.code, "store.unusable");
        let full = not_written(&file, &ErrorKind::StorageFull.into());
        assert_eq!(full.error.code, "store.full");
        assert_eq!(not_written(&file, &ErrorKind::PermissionDenied.into()).error.code, "store.read_only");
    }

    #[test]
    fn a_folder_that_is_missing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("not/yet");
        write(&inner, &server(7)).unwrap();
        assert_eq!(read(&inner).unwrap().pid, 7);
    }

    #[test]
    fn a_damaged_file_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(path(folder.path()), "{").unwrap();
        assert!(read(folder.path()).is_none());
    }
}
