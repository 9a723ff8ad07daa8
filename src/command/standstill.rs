//! Notes about runs that do not move on.

use nightshift_protocol::api::RunSummary;
use nightshift_protocol::run::RunStatus;

use crate::connect::Session;
use crate::context::Context;

/// The note that tells how a user continues paused work.
pub(super) const PAUSED: &str =
    "what is left is paused: `nightshift resume ID` goes on, or `nightshift handover finish` if it is handed over";

/// Returns whether no server will carry out what is watched, and prints a note about it.
pub(super) fn stands_still<'a>(
    context: &Context,
    session: &Session,
    runs: impl Iterator<Item = &'a RunSummary>,
) -> bool {
    let mut open = runs.filter(|run| !run.status.is_final()).peekable();
    if open.peek().is_none() {
        return false;
    }
    if !session.drives() {
        context.output.note("nothing carries out runs at the moment: `nightshift resume` or `nightshift serve` does");
        return true;
    }
    if open.all(|run| run.status == RunStatus::Paused) {
        context.output.note(PAUSED);
        return true;
    }
    false
}

/// Prints a note when runs are active but no server carries them out.
pub(super) fn note_that_nothing_moves(context: &Context, session: &Session, statuses: &[RunStatus]) {
    let moves = |status: &RunStatus| matches!(status, RunStatus::Running | RunStatus::Cancelling);
    if !session.drives() && statuses.iter().any(moves) {
        context.output.note("nothing carries out runs at the moment: `nightshift resume` or `nightshift serve` does");
    }
}
