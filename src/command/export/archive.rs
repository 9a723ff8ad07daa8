//! The archive: taken as the server sends it, and read once more from the disk before it gets its name.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use nightshift_client::Client;
use nightshift_protocol::archive::{ArchiveError, ArchiveReader, MAX_ARCHIVE_LINE_BYTES, Manifest};
use nightshift_protocol::id::CampaignId;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use zstd::stream::read::Decoder;

use super::not_written;
use crate::context::Context;
use crate::failure::{Failure, Result};

/// What the name of a file ends with until it is whole.
const PART: &str = "part";
/// Permissions of the file.
const OWNER_ONLY: u32 = 0o600;

pub(super) async fn export(context: &Context, client: &Client, id: &CampaignId, out: &Path) -> Result<()> {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(PART);
    let part = out.with_file_name(name);
    let whole = match download(client, id, &part).await {
        Ok(bytes) => examine_beside(&part).await.map(|manifest| (manifest, bytes)),
        Err(failure) => Err(failure),
    };
    let renamed = whole.and_then(|whole| {
        std::fs::rename(&part, out).map_err(|error| not_written(out, &error))?;
        Ok(whole)
    });
    let (manifest, bytes) = match renamed {
        Ok(whole) => whole,
        Err(failure) => {
            // It may never have come into being; the failure is what counts.
            let _ = std::fs::remove_file(&part);
            return Err(failure);
        }
    };
    let output = context.output;
    if output.is_json() {
        return output.json(&json!({
            "file": out,
            "format": "archive",
            "campaign": manifest.campaign,
            "rows": manifest.rows,
            "artifacts": manifest.artifacts,
            "bytes": bytes,
        }));
    }
    output.text(&format!(
        "{}: {} rows, {} artifacts, {bytes} bytes; `nightshift import` rebuilds the campaign",
        out.display(),
        manifest.rows,
        manifest.artifacts
    ))
}

/// Writes what comes to the file; gives its size.
async fn download(client: &Client, id: &CampaignId, part: &Path) -> Result<u64> {
    let failed = |error: std::io::Error| not_written(part, &error);
    let mut download = client.campaign_archive(id).await?;
    let mut options = tokio::fs::OpenOptions::new();
    // Prompts, sources and replies are for whoever asked for them, not for everybody on this machine.
    options.write(true).create(true).truncate(true).mode(OWNER_ONLY);
    let mut file = options.open(part).await.map_err(failed)?;
    let mut size_bytes = 0_u64;
    while let Some(bytes) = download.next().await? {
        file.write_all(&bytes).await.map_err(failed)?;
        size_bytes = size_bytes.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }
    file.sync_all().await.map_err(failed)?;
    Ok(size_bytes)
}

async fn examine_beside(part: &Path) -> Result<Manifest> {
    let part: PathBuf = part.to_path_buf();
    let examined = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::open(&part).map_err(|error| not_written(&part, &error))?;
        examine(file)
    });
    examined
        .await
        .map_err(|error| Failure::new("internal.archive", format!("reading the archive broke down: {error}")))?
}

/// Reads an archive to its last line; gives its first. One that was cut, changed or written by another release fails.
pub(in crate::command) fn examine(file: impl Read) -> Result<Manifest> {
    let unreadable = |error: std::io::Error| refused(&ArchiveError::Unreadable(error.to_string()));
    let mut lines = BufReader::new(Decoder::new(file).map_err(unreadable)?);
    let mut reader = ArchiveReader::default();
    let mut line = Vec::new();
    let most = u64::try_from(MAX_ARCHIVE_LINE_BYTES).unwrap_or(u64::MAX);
    loop {
        line.clear();
        let read = (&mut lines).take(most.saturating_add(1)).read_until(b'\n', &mut line);
        match read {
            Ok(0) => break,
            Ok(_) if line.len() > MAX_ARCHIVE_LINE_BYTES => {
                return Err(refused(&ArchiveError::TooLarge("one of its lines is too long".to_owned())));
            }
            Ok(_) => drop(reader.accept(&line).map_err(|error| refused(&error))?),
            // The compressed stream stops in the middle.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(refused(&ArchiveError::Cut));
            }
            Err(error) => return Err(unreadable(error)),
        }
    }
    Ok(reader.finish().map_err(|error| refused(&error))?.manifest)
}

fn refused(error: &ArchiveError) -> Failure {
    Failure::new(error.code(), error.to_string())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_archive_is_refused() {
        assert_eq!(examine(&b"{\"format\":\"nightshift-archive\"}"[..]).unwrap_err().error.code, "archive.unreadable");
        let text = zstd::encode_all(&b"{\"format\":\"tar\"}\n"[..], 1).unwrap();
        assert_eq!(examine(&text[..]).unwrap_err().error.code, "archive.unreadable");
    }

    #[test]
    fn a_stream_that_stops_was_cut() {
        let whole = zstd::encode_all(&b""[..], 1).unwrap();
        assert_eq!(examine(&whole[..]).unwrap_err().error.code, "archive.cut");
        let line = vec![b'x'; 100_000];
        let cut = zstd::encode_all(&line[..], 1).unwrap();
        let code = examine(&cut[..cut.len() - 4]).unwrap_err().error.code;
        assert!(matches!(code.as_str(), "archive.cut" | "archive.unreadable"), "{code}");
    }
}
