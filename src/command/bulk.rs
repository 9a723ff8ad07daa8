//! What `pause`, `resume`, `cancel` and `retry` share: one action on every run that fits a filter.

use std::collections::BTreeSet;

use nightshift_client::Client;
use nightshift_protocol::api::{Bulk, BulkAction, BulkDone, RunFilter};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;

use super::standstill::note_that_nothing_moves;
use crate::args::Filters;
use crate::confirm::confirm;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::printable;
use crate::present;
use crate::random::random_text;
use crate::resolve;

/// Calls that one command makes: far more than any fleet has runs.
const MAX_CALLS: u32 = 10_000;

/// The whole command: finds the runs, asks, acts, reports.
pub(super) async fn run(context: &Context, filters: &Filters, action: BulkAction) -> Result<ExitCode> {
    check(filters, &action)?;
    Session::with(context, Purpose::Ask, async |session| {
        let done = act(context, session, filters, action).await?;
        report(context, session, &done, filters.dry_run)?;
        Ok(exit_code(&done))
    })
    .await
}

/// Refuses a command that says neither which run nor which runs.
fn check(filters: &Filters, action: &BulkAction) -> Result<()> {
    if filters.chooses() {
        return Ok(());
    }
    let verb = verb(action);
    Err(Failure::new("usage.invalid", format!("`nightshift {verb}` has to be told which runs")).hint(
        "name a campaign or a run, or choose with --campaign, --status, --task, --older-than; --all means all of them",
    ))
}

/// Acts on the runs that fit, after asking when they are several. With `--dry-run`, only says which they are.
pub(super) async fn act(
    context: &Context,
    session: &Session,
    filters: &Filters,
    action: BulkAction,
) -> Result<BulkDone> {
    let client = &session.client;
    let filter = filter(client, filters, session.health.now).await?;
    let mut bulk = Bulk { filter, action, dry_run: true };
    let key = random_text()?;
    let meant = client.bulk(&bulk, &key).await?;
    if filters.dry_run || meant.done.is_empty() {
        return Ok(meant);
    }
    if meant.done.len() > 1 || meant.more {
        let more = if meant.more { "at least " } else { "" };
        let what = format!("{} {more}{}", verb(&bulk.action), present::count(meant.done.len(), "run"));
        confirm(context, &what, filters.yes).await?;
    }
    bulk.dry_run = false;
    let mut all = BulkDone { done: Vec::new(), refused: Vec::new(), more: false };
    let mut refused: BTreeSet<RunId> = BTreeSet::new();
    for _ in 0..MAX_CALLS {
        let part = client.bulk(&bulk, &key).await?;
        // Runs that refuse fit again at the next call: where nothing else is left, calling again changes nothing.
        let moved = !part.done.is_empty();
        all.done.extend(part.done);
        all.refused.extend(part.refused.into_iter().filter(|(run, ..)| refused.insert(run.clone())));
        all.more = part.more;
        if !(part.more && moved) {
            break;
        }
    }
    Ok(all)
}

async fn filter(client: &Client, filters: &Filters, now: TimestampMs) -> Result<RunFilter> {
    let campaign = match &filters.campaign {
        Some(text) => Some(resolve::campaign(client, text).await?),
        None => None,
    };
    // By the server's clock, which stamped the runs.
    let created_before =
        filters.older_than.map(|ms| TimestampMs(now.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX))));
    Ok(RunFilter { campaign, status: filters.status, task: filters.task.clone(), created_before })
}

fn report(context: &Context, session: &Session, done: &BulkDone, dry_run: bool) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        output.json(done)?;
    } else {
        for (run, status) in &done.done {
            output.text(&format!("{run}  {}", status.as_str()))?;
        }
    }
    tell_refused(context, done);
    if done.done.is_empty() && done.refused.is_empty() {
        output.note("no run fits");
    }
    if done.more {
        output.note("there are more: the same command again goes on with them");
    }
    if dry_run {
        output.note("nothing was done (--dry-run)");
        return Ok(());
    }
    let statuses: Vec<RunStatus> = done.done.iter().map(|(_, status)| *status).collect();
    note_that_nothing_moves(context, session, &statuses);
    Ok(())
}

/// Says which runs refused, and why.
pub(super) fn tell_refused(context: &Context, done: &BulkDone) {
    for (run, code, message) in &done.refused {
        context.output.note(&printable(&format!("{run}  refused: {code}: {message}")));
    }
}

/// 7 when a run refused, else 0.
fn exit_code(done: &BulkDone) -> ExitCode {
    if done.refused.is_empty() { ExitCode::Ok } else { ExitCode::Incomplete }
}

fn verb(action: &BulkAction) -> &'static str {
    match action {
        BulkAction::Pause => "pause",
        BulkAction::Resume => "resume",
        BulkAction::Cancel => "cancel",
        BulkAction::Retry => "retry",
        BulkAction::Prioritize { .. } => "prioritize",
        BulkAction::Signal { .. } => "signal",
    }
}
