//! The result of campaigns: a table for people, one document for programs, and the exit code.

use std::collections::BTreeSet;

use nightshift_client::Client;
use nightshift_protocol::api::{RunDetail, RunSummary};
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::machine::SandboxReport;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::step::PreparedTask;
use serde_json::json;

use crate::context::Context;
use crate::failure::Result;
use crate::follow::{Followed, Until};
use crate::output::{Tone, printable};
use crate::present::{self, NONE};

/// Prints the result. Returns the exit code of the command.
pub(crate) async fn show(context: &Context, client: &Client, followed: &Followed) -> Result<ExitCode> {
    let mut details = Vec::new();
    for run in followed.runs() {
        details.push(client.run(&run.id).await?);
    }
    let output = context.output;
    if output.is_json() {
        let campaigns: Vec<_> = followed.campaigns.iter().map(|campaign| &campaign.summary).collect();
        output.json(&json!({
            "campaigns": campaigns,
            "runs": details,
            "succeeded": followed.runs().all(present::succeeded),
            "dashboard": client.address(),
        }))?;
    } else {
        table(context, followed, &details)?;
    }
    Ok(exit_code(followed))
}

/// 0 when every run ended with a correct candidate, 130 after a signal with work left, else 7.
pub(crate) fn exit_code(followed: &Followed) -> ExitCode {
    match followed.until {
        Until::Interrupted => ExitCode::Interrupted,
        Until::Ended if followed.runs().all(present::succeeded) => ExitCode::Ok,
        Until::Ended | Until::Paused => ExitCode::Incomplete,
    }
}

/// One row for each run, of several lines each, so that it fits a terminal of 80 columns; below it what went wrong,
/// and what the numbers rest on.
fn table(context: &Context, followed: &Followed, details: &[RunDetail]) -> Result<()> {
    let output = context.output;
    let mut table = output.rows(&[
        "task",
        "end and attempts",
        "speedup over the\nreference\n[95% interval]",
        "reference\nand best",
        "run",
    ]);
    for detail in details {
        let summary = &detail.summary;
        let tone = present::run_tone(summary);
        let mut ended = vec![present::ended(summary).to_owned()];
        ended.extend(present::outcomes(&detail.view.attempts));
        let measured = best(detail).and_then(nightshift_protocol::attempt::Attempt::published);
        let speedup = summary.digest.best_speedup.map_or_else(
            || NONE.to_owned(),
            |speedup| {
                let confirmed = if summary.digest.best_confirmed { "confirmed" } else { "not confirmed" };
                // One line each, so that a narrow terminal breaks neither.
                let mut lines = present::interval(speedup).replacen(' ', &format!(" {confirmed}\n"), 1);
                if let Some((over, fastest)) =
                    summary.digest.best_speedup_over_fastest.zip(summary.digest.fastest_baseline)
                    && fastest.kind != BaselineKind::Reference
                {
                    lines = format!("{lines}\n{}\nover {}", present::interval(over), fastest.kind.label());
                }
                if let Some(share) = mostly_libraries(detail) {
                    lines = format!("{lines}\n{:.0} % of its time\nin own kernels", share * 100.0);
                }
                if unverified(detail).is_some() {
                    lines.push_str("\nunverified");
                }
                lines
            },
        );
        let times = measured.map_or_else(
            || NONE.to_owned(),
            |m| {
                let (baseline, best) = (m.baseline_median_ns, m.candidate_median_ns);
                format!("{}\n{}", present::nanoseconds(baseline), present::nanoseconds(best))
            },
        );
        table.add_row([
            output.cell(printable(&summary.digest.task), Tone::Plain),
            output.cell(ended.join("\n"), tone),
            output.cell(speedup, tone),
            output.cell(times, Tone::Plain),
            output.cell(summary.id.short(), Tone::Plain),
        ]);
    }
    output.text(&table.to_string())?;
    let summaries: Vec<&RunSummary> = details.iter().map(|detail| &detail.summary).collect();
    for line in present::summary_over_baselines(&summaries) {
        output.text(&line)?;
    }
    for line in details.iter().flat_map(troubles).chain(evidence(details)) {
        output.text(&printable(&line))?;
    }
    for campaign in &followed.campaigns {
        output.text(&format!("campaign: {} ({})", campaign.summary.id, printable(&campaign.summary.name)))?;
    }
    Ok(())
}

/// The share of time that the best attempt of a run spends in kernels of its own, where libraries take most of it.
fn mostly_libraries(detail: &RunDetail) -> Option<f64> {
    best(detail)?.verdict.custom_kernel_time_share.filter(|share| *share < 0.5)
}

/// Returns the checks that the best attempt of a run lacks, because the machine has no sanitizer.
fn unverified(detail: &RunDetail) -> Option<String> {
    best(detail)?.sanitize.as_ref()?.unverified()
}

/// Why a run ended without a result and what can be done, and what its task was warned of.
pub(crate) fn troubles(detail: &RunDetail) -> Vec<String> {
    let summary = &detail.summary;
    let task = &summary.digest.task;
    let mut lines = Vec::new();
    if let Some(prepared) = &detail.view.prepared {
        for warning in &prepared.warnings {
            lines.push(format!("{task}: warning: {}: {}", warning.code, warning.message));
        }
    }
    lines.extend(unverified(detail).map(|said| format!("{task}: {said}")));
    if let Some(reason) = present::reason(summary) {
        lines.push(format!("{task}: {reason}"));
        let run = summary.id.short();
        lines.push(if summary.status == RunStatus::Failed {
            format!("  `nightshift logs {run}` shows what happened, `nightshift retry {run}` tries again")
        } else {
            format!("  `nightshift logs {run} --step prepare_task` shows the details")
        });
    }
    lines
}

fn best(detail: &RunDetail) -> Option<&Attempt> {
    let number = detail.view.best_attempt?;
    detail.view.attempts.iter().find(|attempt| attempt.number == number)
}

/// What the numbers rest on: machine, compiler, isolation, and where the replies came from.
pub(crate) fn evidence(details: &[RunDetail]) -> Vec<String> {
    let mut machines = BTreeSet::new();
    let mut sandboxes = BTreeSet::new();
    for prepared in details.iter().filter_map(|detail| detail.view.prepared.as_ref()) {
        machines.insert(machine(prepared));
    }
    for attempt in details.iter().flat_map(|detail| &detail.view.attempts) {
        for measurement in attempt.measurement.iter().chain(&attempt.confirmation) {
            sandboxes.insert(sandbox(&measurement.sandbox));
        }
    }
    let mut lines: Vec<String> = machines.into_iter().chain(sandboxes).collect();
    if details.iter().any(|detail| detail.summary.digest.scripted) {
        lines.push(
            "replies: scripted, that is written beforehand; compiling, checking, timing and scoring are real"
                .to_owned(),
        );
    }
    let live: BTreeSet<&str> = details
        .iter()
        .filter(|detail| !detail.summary.digest.scripted)
        .map(|detail| detail.summary.digest.model.as_str())
        .collect();
    if !live.is_empty() {
        lines.push(format!("replies: {}", live.into_iter().collect::<Vec<_>>().join(", ")));
        lines.push(format!("cost: {}", present::cost(details.iter().map(|detail| &detail.view))));
    }
    lines
}

/// The machine on which a task was prepared: its GPU where the task is for one.
fn machine(prepared: &PreparedTask) -> String {
    let machine = &prepared.machine;
    let is_for_gpu = prepared.reference.cuda.is_some();
    let gpu = machine.gpus.first().filter(|_| is_for_gpu).map_or_else(String::new, |gpu| {
        format!("{} (compute capability {}, driver {}), ", gpu.name, gpu.compute_capability, gpu.driver_version)
    });
    let toolchain = if is_for_gpu { Some(&prepared.reference.toolchain) } else { machine.cpp_toolchain.as_ref() };
    let compiler =
        toolchain.map_or_else(String::new, |found| format!("; {}, {}", found.version, found.flags.join(" ")));
    format!("machine: {gpu}{}, {} cores{compiler}", machine.processor, machine.cores)
}

fn sandbox(report: &SandboxReport) -> String {
    let gap = match (report.isolates_files, report.isolates_network) {
        (true, true) => "",
        (false, true) => "; files are NOT out of reach",
        (true, false) => "; the network is NOT out of reach",
        (false, false) => "; neither files nor the network are out of reach",
    };
    let root = if report.root_reason().is_some() { "; programs run as root" } else { "" };
    format!("sandbox in force: {}{gap}{root}", report.summary())
}
