//! The archive: taken as the server sends it, and read once more from the disk before it gets its name.

use std::io::Read;
use std::path::{Path, PathBuf};

use nightshift_client::Client;
use nightshift_protocol::archive::{ArchiveReader, Manifest};
use nightshift_protocol::id::CampaignId;
use serde_json::json;

use crate::archive_file;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::present;

pub(super) async fn export(context: &Context, client: &Client, id: &CampaignId, out: &Path) -> Result<()> {
    let part = archive_file::part_of(out);
    let saved = async { archive_file::save(client.campaign_archive(id).await?, &part).await };
    let whole = match saved.await {
        Ok(bytes) => examine_beside(&part).await.map(|manifest| (manifest, bytes)),
        Err(failure) => Err(failure),
    };
    let renamed = whole.and_then(|whole| {
        archive_file::keep(&part, out)?;
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
        "{}: {}, {}, {bytes} bytes; `nightshift import` rebuilds the campaign",
        out.display(),
        present::count(manifest.rows, "row"),
        present::count(manifest.artifacts, "artifact")
    ))
}

async fn examine_beside(part: &Path) -> Result<Manifest> {
    let part: PathBuf = part.to_path_buf();
    let examined = tokio::task::spawn_blocking(move || examine(archive_file::open(&part)?));
    examined
        .await
        .map_err(|error| Failure::new("internal.archive", format!("reading the archive broke down: {error}")))?
}

/// Reads an archive to its last line. Returns its first. One that was cut, changed or written by another release fails.
pub(in crate::command) fn examine(file: impl Read) -> Result<Manifest> {
    let mut reader = ArchiveReader::default();
    archive_file::read_lines(file, |line| {
        reader.accept(line)?;
        Ok(())
    })?;
    Ok(reader.finish()?.manifest)
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
