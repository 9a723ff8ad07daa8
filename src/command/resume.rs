//! `nightshift resume`: continue everything that is unfinished, or what is named or chosen, until it has ended.

use std::collections::BTreeSet;

use nightshift_client::Client;
use nightshift_protocol::api::{BulkAction, ControlAction};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::run::RunStatus;
use serde_json::json;

use super::bulk;
use super::run::{OWN_ADDRESS, after, note_paused};
use crate::args::Resume;
use crate::compose::Unfinished;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::Result;
use crate::follow;
use crate::resolve::{self, Target};
use crate::results;

/// Rows of a page.
const PAGE_ROWS: u32 = 500;
/// Pages of unfinished runs that are looked at.
const MAX_PAGES: u32 = 200;

pub(super) async fn run(context: &Context, args: Resume) -> Result<ExitCode> {
    if args.filters.dry_run {
        return bulk::run(context, &args.filters, BulkAction::Resume).await;
    }
    // The server of this command pauses what is not named: a wrong id has to end the command before.
    let named = if args.id.is_some() || args.filters.campaign.is_some() {
        Session::with(context, Purpose::Ask, async |session| resolve_named(&session.client, &args).await).await?
    } else {
        None
    };
    let asks_for_some = args.id.is_some() || (args.filters.chooses() && !args.filters.all);
    let unfinished = if asks_for_some { Unfinished::Pause { except: None } } else { Unfinished::GoOn };
    let session = Session::open(context, Purpose::Drive { bind: OWN_ADDRESS, unfinished }).await?;
    let done = tokio::select! {
        done = with_session(context, &session, args, named) => done,
        failure = session.own_failed() => Err(failure),
    };
    if done.is_err() {
        note_paused(context, &session, &[]);
    }
    let closed = session.close().await;
    let code = done?;
    closed?;
    Ok(code)
}

/// Returns the existing campaign or run that the command names, by its id or by `--campaign`.
async fn resolve_named(client: &Client, args: &Resume) -> Result<Option<Target>> {
    let target = match (&args.id, &args.filters.campaign) {
        (Some(text), _) => resolve::any(client, text).await?,
        (None, Some(text)) => Target::Campaign(resolve::campaign(client, text).await?),
        (None, None) => return Ok(None),
    };
    // A whole id is resolved without a query.
    match &target {
        Target::Campaign(id) => drop(client.campaign(id).await?),
        Target::Run(id) => drop(client.run(id).await?),
    }
    Ok(Some(target))
}

async fn with_session(context: &Context, session: &Session, args: Resume, named: Option<Target>) -> Result<ExitCode> {
    let client = &session.client;
    let campaigns: Vec<CampaignId> = match named.filter(|_| args.id.is_some()) {
        Some(Target::Campaign(id)) => {
            client.control_campaign(&id, ControlAction::Resume).await?;
            vec![id]
        }
        Some(Target::Run(id)) => {
            client.control_run(&id, ControlAction::Resume).await?;
            vec![client.run(&id).await?.summary.campaign]
        }
        None if args.filters.chooses() => {
            let done = bulk::act(context, session, &args.filters, BulkAction::Resume).await?;
            bulk::tell_refused(context, &done);
            let chosen: BTreeSet<RunId> = done.done.into_iter().map(|(run, _)| run).collect();
            in_motion(client, |run| chosen.contains(run)).await?.into_iter().collect()
        }
        // Paused runs stay paused unless the command names or selects them.
        None => {
            let paused = client.runs(None, Some(RunStatus::Paused), Some(1), None).await?;
            if !paused.items.is_empty() {
                context.output.note("paused runs stay paused: `nightshift resume --all` goes on with them, too");
            }
            in_motion(client, |_| true).await?.into_iter().collect()
        }
    };
    note_paused(context, session, &campaigns);
    if campaigns.is_empty() {
        context.output.note("there is nothing to continue");
        if context.output.is_json() {
            context.output.json(&json!({ "campaigns": [], "runs": [], "succeeded": true }))?;
        }
        return Ok(ExitCode::Ok);
    }
    context.output.note(&format!("pages: {}", session.address()));
    let followed = follow::campaigns(context, client, &campaigns).await?;
    let code = results::show(context, client, &followed).await?;
    after(context, session, followed.until, args.exit).await?;
    Ok(code)
}

/// Campaigns with runs that are in motion and fit.
async fn in_motion(client: &Client, fits: impl Fn(&RunId) -> bool) -> Result<BTreeSet<CampaignId>> {
    let mut campaigns = BTreeSet::new();
    for status in [RunStatus::Running, RunStatus::Cancelling] {
        let mut before: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = client.runs(None, Some(status), Some(PAGE_ROWS), before.as_deref()).await?;
            campaigns.extend(page.items.into_iter().filter(|run| fits(&run.id)).map(|run| run.campaign));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
    }
    Ok(campaigns)
}
