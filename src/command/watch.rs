//! `nightshift watch`: follow a campaign or a run until it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use nightshift_client::Client;
use nightshift_protocol::api::RunSummary;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;

use super::logs;
use crate::args::Named;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::output::printable;
use crate::present;
use crate::resolve::{self, Target};

/// Time between two looks at a campaign.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

pub(super) async fn run(context: &Context, args: Named) -> Result<ExitCode> {
    let session = Session::open(context, Purpose::Ask).await?;
    let watched = watch(context, &session, &args.id).await;
    let closed = session.close().await;
    let code = watched?;
    closed?;
    Ok(code)
}

async fn watch(context: &Context, session: &Session, id: &str) -> Result<ExitCode> {
    match resolve::any(&session.client, id).await? {
        Target::Run(id) => watch_run(context, session, &id).await,
        Target::Campaign(id) => watch_campaign(context, session, &id).await,
    }
}

async fn watch_run(context: &Context, session: &Session, id: &RunId) -> Result<ExitCode> {
    let status = logs::follow(context, session, id).await?;
    let summary = session.client.run(id).await?.summary;
    if status.is_final() {
        context.output.note(&format!("{}: {}", summary.digest.task, printable(&present::ending(&summary))));
    }
    Ok(code([&summary].into_iter(), context.interrupt.is_cancelled()))
}

/// One line for each change of a run.
async fn watch_campaign(context: &Context, session: &Session, id: &CampaignId) -> Result<ExitCode> {
    let mut seen: BTreeMap<RunId, RunSummary> = BTreeMap::new();
    loop {
        let runs = look(&session.client, id).await?;
        for run in &runs {
            if seen.get(&run.id) != Some(run) {
                print(context, run)?;
                seen.insert(run.id.clone(), run.clone());
            }
        }
        let over = runs.iter().all(|run| run.status.is_final());
        if over || stands_still(context, session, runs.iter()) || context.interrupt.is_cancelled() {
            return Ok(code(runs.iter(), context.interrupt.is_cancelled()));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_PAUSE) => {}
            () = context.interrupt.cancelled() => {}
        }
    }
}

async fn look(client: &Client, id: &CampaignId) -> Result<Vec<RunSummary>> {
    Ok(client.campaign(id).await?.runs)
}

fn print(context: &Context, run: &RunSummary) -> Result<()> {
    if context.output.is_json() {
        return context.output.json(run);
    }
    let best =
        run.digest.best_speedup.map_or_else(String::new, |speedup| format!(", best {}", present::interval(speedup)));
    let what = if run.status.is_final() { present::ending(run) } else { run.digest.activity.clone() };
    let attempts = present::count(usize::try_from(run.digest.attempts).unwrap_or(usize::MAX), "attempt");
    let line = format!("{}  {:20} {attempts}{best}: {what}", run.id.short(), run.digest.task);
    let line = printable(&line).replace('\n', " ");
    context.output.text(&context.output.paint(&line, present::run_tone(run)))
}

/// Whether nobody will ever move what is watched; says so.
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
        context.output.note("what is left is paused: `nightshift resume ID` goes on");
        return true;
    }
    false
}

/// 0 when everything ended with a correct candidate, 130 after a signal with work left, else 7.
fn code<'a>(mut runs: impl Iterator<Item = &'a RunSummary> + Clone, interrupted: bool) -> ExitCode {
    let over = runs.clone().all(|run| run.status.is_final());
    if !over && interrupted {
        ExitCode::Interrupted
    } else if runs.all(present::succeeded) {
        ExitCode::Ok
    } else {
        ExitCode::Incomplete
    }
}
