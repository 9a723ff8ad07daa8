//! `nightshift export`: a campaign as one archive that `import` rebuilds, or as JSON to read.

mod archive;
mod beside;
mod kernelbench;
mod program;
mod readable;
mod rollouts;

use std::path::PathBuf;

use nightshift_protocol::error::ExitCode;

use crate::args::{Export, ExportCommand, ExportFormat};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::resolve::{self, Target};

pub(super) use crate::archive_file::not_written;
pub(super) use archive::examine;

pub(super) async fn run(context: &Context, args: Export) -> Result<ExitCode> {
    let Export { command, id, out, form, format, force } = args;
    match command {
        Some(ExportCommand::Rollouts(args)) => return rollouts::run(context, args).await,
        Some(ExportCommand::Kernelbench(args)) => return kernelbench::run(context, args).await,
        None => {}
    }
    let (Some(id), Some(out)) = (id, out) else {
        return Err(Failure::new("usage.invalid", "an export needs what to write and where")
            .hint("nightshift export ID --out FILE, or nightshift export rollouts --out DIR"));
    };
    let args = CampaignExport { id, out, format, force };
    if args.out.exists() && !args.force {
        return Err(Failure::new("usage.file_exists", format!("`{}` exists already", args.out.display()))
            .hint("choose another file, or give --force to replace it"));
    }
    if let Some(form) = form {
        program::run(context, &args.id, form, &args.out).await?;
        return Ok(ExitCode::Ok);
    }
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        match (args.format, resolve::any(client, &args.id).await?) {
            (ExportFormat::Json, target) => readable::export(context, client, &target, &args).await?,
            (ExportFormat::Archive, Target::Campaign(id)) => {
                archive::export(context, client, &id, &args.out).await?;
            }
            (ExportFormat::Archive, Target::Run(id)) => {
                let campaign = client.run(&id).await?.summary.campaign;
                return Err(Failure::new("usage.invalid", "an archive holds a whole campaign, and this is a run")
                    .hint(format!("export its campaign {}, or give --format json", campaign.short())));
            }
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// An export of a campaign or a run.
struct CampaignExport {
    id: String,
    out: PathBuf,
    format: ExportFormat,
    force: bool,
}
