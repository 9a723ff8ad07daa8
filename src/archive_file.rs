//! Files that are written as a whole or not at all, and archives that are read line by line.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nightshift_client::Download;
use nightshift_protocol::archive::{ArchiveError, MAX_ARCHIVE_LINE_BYTES};
use tokio::io::AsyncWriteExt;
use zstd::stream::read::Decoder;

use crate::failure::{Failure, Result};

/// Suffix of the file name until the file is complete.
const PART: &str = "part";
/// Permissions of the files: only the owner may read prompts, sources, replies and keys.
const OWNER_ONLY: u32 = 0o600;
/// Largest file that is read into memory, in bytes.
const MAX_IN_MEMORY_BYTES: u64 = 1024 * 1024 * 1024;

impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// The name of a file until it is whole.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(PART);
    path.with_file_name(name)
}

/// Makes a file that only its owner can read. An earlier one is removed: its permissions may be others.
pub(crate) fn create(path: &Path) -> Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(not_written(path, &error)),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(OWNER_ONLY);
    options.open(path).map_err(|error| not_written(path, &error))
}

/// Gives a whole file its name.
pub(crate) fn keep(part: &Path, path: &Path) -> Result<()> {
    std::fs::rename(part, path).map_err(|error| not_written(path, &error))
}

/// Writes a download to a file. Returns its size in bytes.
pub(crate) async fn save(mut download: Download, part: &Path) -> Result<u64> {
    let failed = |error: std::io::Error| not_written(part, &error);
    let mut file = tokio::fs::File::from_std(create(part)?);
    let mut size_bytes = 0_u64;
    while let Some(bytes) = download.next().await? {
        file.write_all(&bytes).await.map_err(failed)?;
        size_bytes = size_bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }
    file.sync_all().await.map_err(failed)?;
    Ok(size_bytes)
}

/// Opens a file to read it.
pub(crate) fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| not_read(path, &error))
}

fn not_read(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new("archive.not_read", format!("the file `{}` cannot be read: {error}", path.display()))
}

/// Decompresses an archive and passes each line to `accept`.
pub(crate) fn read_lines(file: impl Read, mut accept: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let unreadable = |error: std::io::Error| {
        Failure::from(ArchiveError::Unreadable(format!("it is not compressed with zstd, or damaged: {error}")))
    };
    let mut lines = BufReader::new(Decoder::new(file).map_err(unreadable)?);
    let mut line = Vec::new();
    let most = u64::try_from(MAX_ARCHIVE_LINE_BYTES).unwrap_or(u64::MAX);
    loop {
        line.clear();
        match (&mut lines).take(most.saturating_add(1)).read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) if line.len() > MAX_ARCHIVE_LINE_BYTES => {
                return Err(ArchiveError::TooLarge("one of its lines is too long".to_owned()).into());
            }
            Ok(_) => accept(&line)?,
            // The compressed stream stops in the middle.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(ArchiveError::Cut.into()),
            Err(error) => return Err(unreadable(error)),
        }
    }
}

/// Reads a file into memory. `route` is where the server takes a larger one.
pub(crate) fn in_memory(path: &Path, route: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = open(path)?.take(MAX_IN_MEMORY_BYTES + 1).read_to_end(&mut bytes);
    let size = size.map_err(|error| not_read(path, &error))?;
    if u64::try_from(size).unwrap_or(u64::MAX) > MAX_IN_MEMORY_BYTES {
        let message = format!("`{}` has more than {} MiB", path.display(), MAX_IN_MEMORY_BYTES >> 20);
        return Err(
            Failure::new("archive.too_large", message).hint(format!("send it to {route}, which takes it as a stream"))
        );
    }
    Ok(bytes)
}

/// The file could not be written.
pub(crate) fn not_written(out: &Path, error: &std::io::Error) -> Failure {
    Failure::new("archive.not_written", format!("the file `{}` cannot be written: {error}", out.display()))
        .hint(what_to_do(error.kind()))
}

fn what_to_do(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "make the folder first, or name another file with --out",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space, or name a file on another disk with --out"
        }
        _ => "make the folder writable, or name a file in another folder with --out",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_a_full_disk_and_a_forbidden_folder_have_different_hints() {
        assert!(what_to_do(ErrorKind::NotFound).contains("make the folder first"));
        assert!(what_to_do(ErrorKind::StorageFull).contains("free some space"));
        assert!(what_to_do(ErrorKind::PermissionDenied).contains("writable"));
    }
}
