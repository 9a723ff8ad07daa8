//! `nightshift handover create`: pauses a campaign and writes it to a file for another machine.

use std::path::{Path, PathBuf};

use nightshift_client::Client;
use nightshift_protocol::api::HandoverState;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::handover::{HandoverError, UnpackedHandover};
use nightshift_protocol::id::CampaignId;
use serde_json::json;

use super::off_the_runtime;
use crate::args::HandoverCreate;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::{archive_file, handover_file, present, resolve};

pub(super) async fn run(context: &Context, args: HandoverCreate) -> Result<ExitCode> {
    if args.out.exists() && !args.force {
        return Err(Failure::new("usage.file_exists", format!("`{}` exists already", args.out.display()))
            .hint("choose another file, or give --force to replace it"));
    }
    let without = match args.since.clone() {
        None => Vec::new(),
        Some(result) => off_the_runtime(move || known_there(&result)).await?,
    };
    // Before the campaign is paused: most files that cannot be written are noticed here.
    let part = archive_file::part_of(&args.out);
    drop(archive_file::create(&part)?);
    let created = Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        let id = resolve::campaign(client, &args.campaign).await?;
        if !args.again {
            let handover = client.campaign(&id).await?.summary.handover;
            // A campaign that is already handed over is not paused: the call below refuses it.
            if handover.is_none_or(|handover| handover.state != HandoverState::Out) {
                context.output.note(&format!("pausing {}: steps in flight have {} s to end", id.short(), args.wait));
            }
            client.begin_handover(&id, args.wait).await.map_err(|error| {
                let failure = Failure::from(error);
                match failure.error.code.as_str() {
                    "campaign.handed_over" => failure.hint("add --again to write its file once more"),
                    _ => failure,
                }
            })?;
        }
        let written = write(context, client, &id, (&part, &args.out), without).await;
        written.map_err(|failure| {
            let short = id.short();
            let hint = format!(
                "when it is handed over, `nightshift handover create {short} --again --out FILE` writes the file, and \
                 `nightshift handover cancel {short}` takes the campaign back"
            );
            if failure.hint.is_some() { failure } else { failure.hint(hint) }
        })?;
        Ok(ExitCode::Ok)
    })
    .await;
    // It is renamed when it is whole.
    let _ = std::fs::remove_file(&part);
    created
}

async fn write(
    context: &Context,
    client: &Client,
    id: &CampaignId,
    (part, out): (&Path, &Path),
    without: Vec<ArtifactHash>,
) -> Result<()> {
    let size_bytes = archive_file::save(client.handover_file(id, without).await?, part).await?;
    let read: PathBuf = part.to_path_buf();
    let whole = off_the_runtime(move || authentic(&read)).await?;
    archive_file::keep(part, out)?;
    let (header, archive) = (&whole.header, &whole.archive);
    let output = context.output;
    if output.is_json() {
        return output.json(&json!({
            "file": out,
            "handover": header.handover,
            "campaign": header.campaign,
            "runs": header.runs,
            "rows": archive.manifest.rows,
            "artifacts": archive.manifest.artifacts,
            "left_out": header.left_out.len(),
            "bytes": size_bytes,
        }));
    }
    output.text(&format!(
        "{}: {} of {}, {}, {size_bytes} bytes",
        out.display(),
        header.handover,
        header.campaign,
        present::count(archive.artifacts.len(), "artifact")
    ))?;
    output.note(&format!(
        "carry it out there with `nightshift handover run {} --out RESULT`, and bring the result back with `nightshift \
         handover finish RESULT`; the file holds the key of the hand-over",
        out.file_name().unwrap_or_default().to_string_lossy()
    ));
    Ok(())
}

/// Reads the file once more from the disk.
fn authentic(path: &Path) -> Result<UnpackedHandover> {
    let whole = handover_file::read(path, |_| Ok(()))?;
    let key = whole.header.key.clone().ok_or(HandoverError::Tampered)?;
    whole.authenticate(&key)?;
    Ok(whole)
}

/// Artifacts that the machine has which wrote this result.
fn known_there(result: &Path) -> Result<Vec<ArtifactHash>> {
    let result = handover_file::read(result, |_| Ok(()))?;
    let mut known = result.header.left_out;
    known.extend(result.archive.artifacts);
    Ok(known)
}
