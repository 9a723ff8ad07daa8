//! `nightshift handover finish` takes a result in, `nightshift handover cancel` ends a hand-over without one.

use std::path::{Path, PathBuf};

use nightshift_protocol::error::ExitCode;
use nightshift_protocol::handover::Direction;
use nightshift_protocol::run::RunStatus;

use super::super::standstill::note_that_nothing_moves;
use super::off_the_runtime;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::{archive_file, handover_file, present, resolve};

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
        note_that_nothing_moves(context, session, &statuses);
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
    archive_file::in_memory(file, "POST /api/v1/handovers/finish")
}
