//! `nightshift list`: campaigns, runs, attempts, workers or servers.

mod attempts;
mod tables;

use nightshift_protocol::api::{CampaignSummary, Page, RunSummary, ServerView, WorkerView};
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::machine::Offers;
use nightshift_protocol::task::Target;

use crate::args::{AttemptFlags, List, Noun};
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Tone, printable};
use crate::present::{self, NONE};
use crate::resolve;

pub(super) async fn run(context: &Context, args: List) -> Result<ExitCode> {
    refuse_foreign_flags(&args)?;
    let table = tables::wanted(&args)?;
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        if let Some(format) = table {
            tables::write(context, client, args, format).await?;
            return Ok(ExitCode::Ok);
        }
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
            Noun::Attempts => attempts::list(context, client, args).await?,
            Noun::Workers => workers(context, &client.workers().await?)?,
            Noun::Servers => servers(context, &client.servers().await?)?,
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// Flags that say nothing about what is listed.
fn refuse_foreign_flags(args: &List) -> Result<()> {
    let wrong = |message: &str| Err(Failure::new("usage.invalid", message));
    if args.noun != Noun::Runs && args.status.is_some() {
        return wrong("--status belongs to `nightshift list runs`");
    }
    if !matches!(args.noun, Noun::Runs | Noun::Attempts) && args.campaign.is_some() {
        return wrong("--campaign belongs to `nightshift list runs` and `nightshift list attempts`");
    }
    if args.noun != Noun::Attempts && args.attempts != AttemptFlags::default() {
        return wrong("filters and order of attempts belong to `nightshift list attempts`");
    }
    Ok(())
}

fn campaigns(context: &Context, page: &Page<CampaignSummary>) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(page);
    }
    let mut table = output.table(&[
        "campaign",
        "name",
        "model",
        "created",
        "runs",
        "open",
        "completed",
        "failed",
        "cancelled",
        "geometric mean",
        "over the fastest",
    ]);
    // Each mean names the number of its runs: a run may have no best program, or no known fastest baseline.
    let mean = |mean: Option<f64>, solved: u64, runs: u64| {
        let of_runs = |mean| match solved {
            // An older server does not give the number.
            0 => present::factor(mean),
            _ => format!("{} ({solved} of {runs})", present::factor(mean)),
        };
        output.cell(mean.map_or_else(|| NONE.to_owned(), of_runs), Tone::Plain)
    };
    for campaign in &page.items {
        let (failed, cancelled) = (campaign.runs.failed, campaign.runs.cancelled);
        table.add_row([
            output.cell(campaign.id.short(), Tone::Plain),
            output.cell(printable(&campaign.name), Tone::Plain),
            output.cell(printable(&campaign.model), Tone::Plain),
            output.cell(present::minute(campaign.created_at), Tone::Plain),
            output.cell(campaign.runs.total(), Tone::Plain),
            output.cell(campaign.runs.unfinished(), Tone::Plain),
            output.cell(campaign.runs.completed, Tone::Plain),
            output.cell(failed, if failed > 0 { Tone::Bad } else { Tone::Plain }),
            output.cell(cancelled, if cancelled > 0 { Tone::Caution } else { Tone::Plain }),
            mean(campaign.geometric_mean, campaign.solved, campaign.runs.total()),
            mean(campaign.geometric_mean_over_fastest, campaign.solved_over_fastest, campaign.runs.total()),
        ]);
    }
    output.text(&table.to_string())?;
    for campaign in page.items.iter().filter(|campaign| campaign.handover.is_some()) {
        output.note(&format!("{} is handed over to another machine", campaign.id.short()));
    }
    end_of_page(context, page.items.is_empty(), "campaigns", page.next.as_deref());
    Ok(())
}

fn runs(context: &Context, page: &Page<RunSummary>) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(page);
    }
    let mut table = output.table(&[
        "run",
        "task",
        "model",
        "created",
        "state",
        "attempts",
        "best over the reference",
        "over the fastest baseline",
    ]);
    for run in &page.items {
        table.add_row([
            output.cell(run.id.short(), Tone::Plain),
            output.cell(printable(&run.digest.task), Tone::Plain),
            output.cell(printable(&run.digest.model), Tone::Plain),
            output.cell(present::minute(run.created_at), Tone::Plain),
            output.cell(printable(present::status(run)), present::run_tone(run)),
            output.cell(run.digest.attempts, Tone::Plain),
            output.cell(present::best_over_reference(run), Tone::Plain),
            output.cell(present::best_over_fastest(run), Tone::Plain),
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
    let mut table = output.rows(&[
        "worker",
        "name and labels",
        "last seen",
        "steps",
        "devices",
        "machine and compiler",
        "isolates",
    ]);
    for worker in workers {
        let machine = &worker.offers.machine;
        // What carries out the agents' steps runs no programs.
        let runs_programs = !worker.offers.targets.is_empty();
        let isolated = match (machine.sandbox.isolates_files, machine.sandbox.isolates_network) {
            _ if !runs_programs => NONE,
            (true, true) => "files, network",
            (true, false) => "files only",
            (false, true) => "network only",
            (false, false) => "nothing",
        };
        let isolated = match machine.sandbox.root_reason() {
            Some(_) if runs_programs => format!("{isolated}; programs run as root"),
            _ => isolated.to_owned(),
        };
        let mut name = vec![worker.name.clone()];
        name.extend(worker.offers.labels.iter().cloned().map(String::from));
        let mut steps = vec![worker.leases.to_string()];
        // What was not heard of for long has most likely ended, drained or not.
        let state = if worker.silent { Some("silent") } else { worker.draining.then_some("draining") };
        steps.extend(state.map(str::to_owned));
        let mut facts = vec![format!("{}, {} cores", machine.processor, machine.cores)];
        facts.extend(machine.cpp_toolchain.as_ref().map(|toolchain| toolchain.version.clone()));
        facts.extend(machine.cuda_toolchain.as_ref().map(|toolchain| toolchain.version.clone()));
        facts.extend(
            machine.gpus.first().map(|gpu| format!("driver {} (CUDA {})", gpu.driver_version, gpu.cuda_driver_version)),
        );
        table.add_row([
            output.cell(worker.id.short(), Tone::Plain),
            output.cell(printable(&name.join("\n")), Tone::Plain),
            output.cell(present::minute(worker.last_seen_at), Tone::Plain),
            output.cell(steps.join("\n"), if state.is_some() { Tone::Caution } else { Tone::Plain }),
            output.cell(printable(&devices(&worker.offers).join("\n")), devices_tone(&worker.offers)),
            output.cell(printable(&facts.join("\n")), Tone::Plain),
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

/// Devices of one kind in one line: `cuda: 4 x NVIDIA H200`. A target without a device is one that it only builds for.
fn devices(offers: &Offers) -> Vec<String> {
    let mut kinds: Vec<(Target, &str, usize)> = Vec::new();
    for device in &offers.devices {
        match kinds.iter_mut().find(|(target, name, _)| (*target, *name) == (device.target, device.name.as_str())) {
            Some((.., number)) => *number += 1,
            None => kinds.push((device.target, &device.name, 1)),
        }
    }
    let mut lines: Vec<String> = kinds
        .iter()
        .map(|(target, name, number)| match number {
            1 => format!("{}: {name}", target.as_str()),
            number => format!("{}: {number} x {name}", target.as_str()),
        })
        .collect();
    let builds = offers.targets.iter().filter(|target| offers.devices.iter().all(|device| device.target != **target));
    lines.extend(builds.map(|target| format!("{}: builds only", target.as_str())));
    lines.extend(offers.devices.iter().filter_map(|device| {
        let quarantine = device.quarantine.as_ref()?;
        let name = device.uuid.as_deref().unwrap_or(&device.name);
        let since = quarantine.since.map(|at| format!(" since {}", present::minute(at))).unwrap_or_default();
        Some(format!("quarantined{since}: {name}, {} ({})", quarantine.reason, quarantine.code))
    }));
    if lines.is_empty() { vec![NONE.to_owned()] } else { lines }
}

fn devices_tone(offers: &Offers) -> Tone {
    let is_quarantined = offers.devices.iter().any(|device| device.quarantine.is_some());
    if is_quarantined { Tone::Bad } else { Tone::Plain }
}

fn servers(context: &Context, servers: &[ServerView]) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(servers);
    }
    let mut table = output.table(&["server", "name", "address", "version", "started", "state"]);
    for server in servers {
        let (state, tone) = if server.alive { ("alive", Tone::Good) } else { ("gone", Tone::Caution) };
        table.add_row([
            output.cell(server.id.short(), Tone::Plain),
            output.cell(printable(&server.name), Tone::Plain),
            output.cell(printable(&server.address), Tone::Plain),
            output.cell(printable(&server.version), Tone::Plain),
            output.cell(present::minute(server.started_at), Tone::Plain),
            output.cell(state, tone),
        ]);
    }
    output.text(&table.to_string())?;
    end_of_page(context, servers.is_empty(), "servers", None);
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
