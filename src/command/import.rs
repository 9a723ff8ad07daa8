//! `nightshift import`: store a campaign from the file that `export` wrote.

use std::path::Path;

use nightshift_protocol::archive::Manifest;
use nightshift_protocol::error::ExitCode;

use super::export::examine;
use crate::args::Import;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::present;

pub(super) async fn run(context: &Context, args: Import) -> Result<ExitCode> {
    let file = args.file.clone();
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
            output.note("runs that were not over are paused: `nightshift resume ID` goes on with them");
        }
        Ok(ExitCode::Ok)
    })
    .await
}

fn read(file: &Path) -> Result<(Manifest, Vec<u8>)> {
    let archive = std::fs::read(file).map_err(|error| {
        Failure::new("archive.not_read", format!("the file `{}` cannot be read: {error}", file.display()))
    })?;
    Ok((examine(archive.as_slice())?, archive))
}
