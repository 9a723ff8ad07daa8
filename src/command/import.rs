//! `nightshift import`: store a campaign from the file that `export` wrote, make tasks of models of `PyTorch`, or
//! read results in the layout of `KernelBench`.

mod kernelbench;
mod kernelbench_results;

use std::path::Path;

use nightshift_protocol::archive::Manifest;
use nightshift_protocol::error::ExitCode;

use super::export::examine;
use crate::args::{Import, ImportCommand};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::{archive_file, present};

pub(super) async fn run(context: &Context, args: Import) -> Result<ExitCode> {
    match args.command {
        Some(ImportCommand::Kernelbench(args)) => return kernelbench::run(context, args).await,
        Some(ImportCommand::KernelbenchResults(args)) => return kernelbench_results::run(context, args).await,
        None => {}
    }
    let Some(file) = args.file else {
        return Err(Failure::new("usage.invalid", "an import needs what to read")
            .hint("nightshift import FILE, or nightshift import kernelbench PATH_OR_URL"));
    };
    // Before a server is asked or started: most files that are refused are refused here.
    let (manifest, archive) = tokio::task::spawn_blocking(move || read(&file))
        .await
        .map_err(|error| Failure::new("internal.archive", format!("reading the archive broke down: {error}")))??;
    Session::with(context, Purpose::Ask, async |session| {
        let created = session.client.import_campaign(archive).await?;
        let output = context.output;
        if output.is_json() {
            output.json(&created)?;
        } else {
            let state = if created.existed { "was there already and stays as it is" } else { "imported" };
            let runs = present::count(created.runs.len(), "run");
            let at = present::moment(manifest.exported_at);
            output.text(&format!("{}  {state}: {runs}, as of {at}", created.campaign))?;
        }
        if !created.existed {
            let paused = session.client.campaign(&created.campaign).await?.summary.runs.paused;
            if paused > 0 {
                output.note(&format!(
                    "runs that were not over are paused ({paused}): `nightshift resume {}` goes on with them",
                    created.campaign.short()
                ));
            }
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// Takes the file into memory, where it stays until the server has it.
fn read(file: &Path) -> Result<(Manifest, Vec<u8>)> {
    let archive = archive_file::in_memory(file, "POST /api/v1/import, as docs/how-to/operations.md shows")?;
    Ok((examine(archive.as_slice())?, archive))
}
