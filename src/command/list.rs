//! `nightshift list`: campaigns, runs or workers.

use nightshift_protocol::api::{CampaignSummary, Page, RunSummary, WorkerView};
use nightshift_protocol::error::ExitCode;

use crate::args::{List, Noun};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Tone, printable};
use crate::present::{self, NONE};
use crate::resolve;

pub(super) async fn run(context: &Context, args: List) -> Result<ExitCode> {
    if args.noun != Noun::Runs && (args.campaign.is_some() || args.status.is_some()) {
        return Err(Failure::new("usage.invalid", "--campaign and --status belong to `nightshift list runs`"));
    }
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        match args.noun {
            Noun::Campaigns => campaigns(context, &client.campaigns(Some(args.limit), args.before.as_deref()).await?)?,
            Noun::Runs => {
                let campaign = match &args.campaign {
                    Some(text) => Some(resolve::campaign(client, text).await?),
                    None => None,
                };
                let before = args.before.as_deref();
                runs(context, &client.runs(campaign.as_ref(), args.status, Some(args.limit), before).await?)?;
            }
            Noun::Workers => workers(context, &client.workers().await?)?,
        }
        Ok(ExitCode::Ok)
    })
    .await
}

fn campaigns(context: &Context, page: &Page<CampaignSummary>) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(page);
    }
    let mut table =
        output.table(&["campaign", "name", "model", "created", "runs", "unfinished", "completed", "failed"]);
    for campaign in &page.items {
        let failed = campaign.runs.failed + campaign.runs.cancelled;
        table.add_row([
            output.cell(campaign.id.short(), Tone::Plain),
            output.cell(printable(&campaign.name), Tone::Plain),
            output.cell(printable(&campaign.model), Tone::Plain),
            output.cell(present::minute(campaign.created_at), Tone::Plain),
            output.cell(campaign.runs.total(), Tone::Plain),
            output.cell(campaign.runs.unfinished(), Tone::Plain),
            output.cell(campaign.runs.completed, Tone::Plain),
            output.cell(failed, if failed > 0 { Tone::Bad } else { Tone::Plain }),
        ]);
    }
    output.text(&table.to_string())?;
    end_of_page(context, page.items.is_empty(), "campaigns", page.next.as_deref());
    Ok(())
}

fn runs(context: &Context, page: &Page<RunSummary>) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(page);
    }
    let mut table = output.table(&["run", "task", "model", "created", "status", "attempts", "best speedup"]);
    for run in &page.items {
        let best = run.digest.best_speedup.map_or_else(|| NONE.to_owned(), present::interval);
        table.add_row([
            output.cell(run.id.short(), Tone::Plain),
            output.cell(printable(&run.digest.task), Tone::Plain),
            output.cell(printable(&run.digest.model), Tone::Plain),
            output.cell(present::minute(run.created_at), Tone::Plain),
            output.cell(printable(present::status(run)), present::run_tone(run)),
            output.cell(run.digest.attempts, Tone::Plain),
            output.cell(best, Tone::Plain),
        ]);
    }
    output.text(&table.to_string())?;
    end_of_page(context, page.items.is_empty(), "runs", page.next.as_deref());
    Ok(())
}

fn workers(context: &Context, workers: &[WorkerView]) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(workers);
    }
    let mut table =
        output.table(&["worker", "name", "last seen", "leases", "targets", "machine", "compiler", "isolates"]);
    for worker in workers {
        let machine = &worker.offers.machine;
        let targets: Vec<&str> = worker.offers.targets.iter().map(|target| target.as_str()).collect();
        let compiler = machine.cpp_toolchain.as_ref().map_or(NONE, |toolchain| toolchain.version.as_str());
        // What carries out the agents' steps runs no programs.
        let runs_programs = !targets.is_empty();
        let isolated = match (machine.sandbox.isolates_files, machine.sandbox.isolates_network) {
            _ if !runs_programs => NONE,
            (true, true) => "files, network",
            (true, false) => "files only",
            (false, true) => "network only",
            (false, false) => "nothing",
        };
        table.add_row([
            output.cell(worker.id.short(), Tone::Plain),
            output.cell(printable(&worker.name), Tone::Plain),
            output.cell(present::minute(worker.last_seen_at), Tone::Plain),
            output.cell(worker.leases, Tone::Plain),
            output.cell(targets.join(", "), Tone::Plain),
            output.cell(printable(&format!("{}, {} cores", machine.processor, machine.cores)), Tone::Plain),
            output.cell(printable(compiler), Tone::Plain),
            output.cell(
                isolated,
                if runs_programs && !machine.sandbox.is_sufficient() { Tone::Caution } else { Tone::Plain },
            ),
        ]);
    }
    output.text(&table.to_string())?;
    end_of_page(context, workers.is_empty(), "workers", None);
    Ok(())
}

fn end_of_page(context: &Context, empty: bool, noun: &str, next: Option<&str>) {
    if empty {
        context.output.note(&format!("there are no {noun}"));
    }
    if let Some(next) = next {
        context.output.note(&format!("more: --before {next}"));
    }
}
