//! `nightshift export`: a campaign as one archive that `import` rebuilds, or as JSON to read.

mod archive;
mod beside;
mod kernelbench;
mod program;
mod readable;
mod rollouts;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nightshift_protocol::error::ExitCode;

use crate::args::{Export, ExportCommand, ExportFormat};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::resolve::{self, Target};

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

/// The file could not be written.
pub(super) fn not_written(out: &Path, error: &std::io::Error) -> Failure {
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
    fn a_missing_folder_a_full_disk_and_a_folder_of_somebody_else_ask_for_different_things() {
        assert!(what_to_do(ErrorKind::NotFound).contains("make the folder first"));
        assert!(what_to_do(ErrorKind::StorageFull).contains("free some space"));
        assert!(what_to_do(ErrorKind::PermissionDenied).contains("writable"));
    }
}
