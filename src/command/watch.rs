//! `nightshift watch`: follow a campaign or a run until it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use nightshift_protocol::api::{CampaignDetail, RunSummary};
use nightshift_protocol::budget::Resource;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::{CampaignId, RunId};

use super::logs;
use super::standstill::stands_still;
use crate::args::Named;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::follow::Outage;
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
    let mut told = None;
    let mut outage = Outage::default();
    loop {
        let answer = session.client.campaign(id).await;
        let Some(detail) = outage.answer(context, &session.client, answer).await? else { continue };
        let runs = &detail.runs;
        for run in runs {
            if seen.get(&run.id) != Some(run) {
                print(context, run)?;
                seen.insert(run.id.clone(), run.clone());
            }
        }
        let over = runs.iter().all(|run| run.status.is_final());
        tell_budget(context, &detail, &mut told);
        if over || stands_still(context, session, runs.iter()) || context.interrupt.is_cancelled() {
            return Ok(code(runs.iter(), context.interrupt.is_cancelled()));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_PAUSE) => {}
            () = context.interrupt.cancelled() => {}
        }
    }
}

/// Says once that a cap is reached: runs wait or end because of it.
fn tell_budget(context: &Context, detail: &CampaignDetail, told: &mut Option<Resource>) {
    let reached = detail.budget.iter().find(|line| line.is_exhausted_for(1)).map(|line| line.resource);
    if let Some(resource) = reached.filter(|resource| *told != Some(*resource)) {
        let budget = present::limits::capped(&detail.budget).unwrap_or_default();
        context.output.note(&format!("{} used up; budget: {budget}", present::limits::resource(resource)));
        *told = Some(resource);
    }
}

fn print(context: &Context, run: &RunSummary) -> Result<()> {
    if context.output.is_json() {
        return context.output.json(run);
    }
    let best = if run.digest.best_speedup.is_some() {
        let (over_reference, over_fastest) = (present::best_over_reference(run), present::best_over_fastest(run));
        format!(", best {over_reference} over the reference, {over_fastest} over the fastest baseline")
    } else {
        String::new()
    };
    let what = if run.status.is_final() { present::ending(run) } else { run.digest.activity.clone() };
    let attempts = present::count(run.digest.attempts, "attempt");
    // With how to open the gate that it waits at.
    let gates = present::gate_commands(run).map_or_else(String::new, |commands| format!(" ({commands})"));
    let line = format!("{}  {:20} {attempts}{best}: {what}{gates}", run.id.short(), run.digest.task);
    let line = printable(&line).replace('\n', " ");
    context.output.text(&context.output.paint(&line, present::run_tone(run)))
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
