//! `nightshift handover finish` and `nightshift handover cancel`: the campaign is here again.

use std::io::Read;
use std::path::{Path, PathBuf};

use nightshift_protocol::error::ExitCode;
use nightshift_protocol::handover::Direction;
use nightshift_protocol::run::RunStatus;

use super::super::control;
use super::off_the_runtime;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::{handover_file, present, resolve};

/// Largest file that is sent, in bytes: it is held in memory meanwhile.
const MAX_RESULT_BYTES: u64 = 1024 * 1024 * 1024;

pub(super) async fn run(context: &Context, file: PathBuf) -> Result<ExitCode> {
    // Before a server is asked or started: most files that are refused are refused here.
    let bytes = off_the_runtime(move || examined(&file)).await?;
    Session::with(context, Purpose::Ask, async |session| {
        let finished = session.client.finish_handover(bytes).await?;
        let output = context.output;
        if output.is_json() {
            output.json(&finished)?;
        } else {
            let (id, campaign) = (&finished.handover.id, &finished.handover.campaign);
            let done = if finished.repeated { "was finished before, nothing was changed" } else { "is finished" };
            let open = finished.runs.iter().filter(|(_, status)| !status.is_final()).count();
            let all = present::count(finished.runs.len(), "run");
            output.text(&format!("{id}  {done}; {campaign} has {all}, {open} of them not over"))?;
        }
        let statuses: Vec<RunStatus> = finished.runs.iter().map(|(_, status)| *status).collect();
        control::note_that_nothing_moves(context, session, &statuses);
        Ok(ExitCode::Ok)
    })
    .await
}

pub(super) async fn cancel(context: &Context, campaign: &str) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let id = resolve::campaign(&session.client, campaign).await?;
        let cancelled = session.client.cancel_handover(&id).await?;
        if context.output.is_json() {
            context.output.json(&cancelled)?;
        } else {
            context.output.text(&format!("{}  cancelled: {id} goes on here", cancelled.id))?;
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// The bytes of a result that is whole.
fn examined(file: &Path) -> Result<Vec<u8>> {
    let result = handover_file::read(file, |_| Ok(()))?;
    // Whether its states can be read is said by the server, which may be another release.
    result.header.examine(Direction::Back, u32::MAX)?;
    let unread = |error: std::io::Error| {
        Failure::new("archive.not_read", format!("the file `{}` cannot be read: {error}", file.display()))
    };
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(unread)?;
    let read_bytes = opened.take(MAX_RESULT_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
    if u64::try_from(read_bytes).unwrap_or(u64::MAX) > MAX_RESULT_BYTES {
        let message = format!("`{}` has more than {} MiB", file.display(), MAX_RESULT_BYTES >> 20);
        return Err(Failure::new("archive.too_large", message)
            .hint("send it to POST /api/v1/handovers/finish, which takes it as a stream"));
    }
    Ok(bytes)
}
