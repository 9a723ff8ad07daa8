//! `nightshift show`: a campaign, a run, or one attempt of a run.

use std::collections::BTreeMap;

use nightshift_protocol::api::{CampaignDetail, CampaignSummary, RunDetail};
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::cost;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::plan_difference::PlanDifference;
use nightshift_protocol::score::AttemptScore;
use nightshift_protocol::step::PreparedTask;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Named;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::output::{Tone, printable};
use crate::present::{self, NONE};
use crate::resolve::{self, Target};

/// Messages of a compiler, findings and cases that are shown.
const MAX_SHOWN: usize = 10;

pub(super) async fn run(context: &Context, args: Named) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let client = &session.client;
        if let Some((run, number)) = split_attempt(&args.id) {
            let id = resolve::run(client, run).await?;
            let detail = client.run(&id).await?;
            let Some(found) = detail.view.attempts.iter().find(|attempt| attempt.number == number) else {
                return Err(Failure::new("attempt.not_found", format!("the run {id} has no attempt {number}"))
                    .hint(format!("it has {} attempts so far", detail.view.attempts.len())));
            };
            let source = match &found.source {
                // What is shown besides is true without it, so an artifact that is gone only goes missing.
                Some(hash) if !context.output.is_json() => client.get_artifact(hash).await.ok(),
                _ => None,
            };
            // An older server keeps none.
            let later = match client.run_scores(&id).await {
                Ok(scores) => scores.scores,
                Err(error) if error.code() == "request.no_such_call" => Vec::new(),
                Err(error) => return Err(error.into()),
            };
            attempt(context, (found, detail.view.prepared.as_ref()), &later, source.as_deref())?;
        } else if args.id.contains('/') {
            return Err(Failure::new("usage.invalid", format!("`{}` names no attempt", args.id))
                .hint("an attempt is RUN/NUMBER, for example 3f9c2a10/2"));
        } else {
            match resolve::any(client, &args.id).await? {
                Target::Campaign(id) => campaign(context, &client.campaign(&id).await?)?,
                Target::Run(id) => {
                    let detail = client.run(&id).await?;
                    let mut of_campaign = Vec::new();
                    if !context.output.is_json() {
                        let campaign = client.campaign(&detail.summary.campaign).await?;
                        of_campaign.extend(handover_line(&campaign.summary));
                        of_campaign.extend(limit_lines(&campaign));
                    }
                    run_detail(context, &detail, &of_campaign)?;
                }
            }
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// `RUN/3`.
pub(super) fn split_attempt(text: &str) -> Option<(&str, u32)> {
    let (run, number) = text.rsplit_once('/')?;
    Some((run, number.parse().ok()?))
}

/// Says that a campaign is handed over: its runs wait on another machine.
fn handover_line(summary: &CampaignSummary) -> Option<String> {
    let handover = summary.handover.as_ref()?;
    Some(format!("hand-over: {} since {}, by {}", handover.id, present::moment(handover.created_at), handover.by))
}

fn campaign(context: &Context, detail: &CampaignDetail) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(detail);
    }
    let summary = &detail.summary;
    output.text(&printable(&format!("{}  {}", summary.id, summary.name)))?;
    let scripted = if summary.scripted { " (replies written beforehand)" } else { "" };
    output.text(&printable(&format!("model: {}{scripted}", summary.model)))?;
    output.text(&format!("created: {}", present::moment(summary.created_at)))?;
    for line in handover_line(summary).into_iter().chain(limit_lines(detail)) {
        output.text(&printable(&line))?;
    }
    let mut table = output.table(&[
        "run",
        "task",
        "state",
        "attempts",
        "best over the reference [95% interval]",
        "over the fastest baseline",
        "confirmed",
    ]);
    for run in &detail.runs {
        let status = present::status(run);
        table.add_row([
            output.cell(run.id.short(), Tone::Plain),
            output.cell(printable(&run.digest.task), Tone::Plain),
            output.cell(printable(status), present::run_tone(run)),
            output.cell(run.digest.attempts, Tone::Plain),
            output.cell(present::best_over_reference(run), Tone::Plain),
            output.cell(present::best_over_fastest(run), Tone::Plain),
            output.cell(if run.digest.best_confirmed { "yes" } else { NONE }, Tone::Plain),
        ]);
    }
    output.text(&table.to_string())?;
    for line in present::summary_over_baselines(&detail.runs.iter().collect::<Vec<_>>()) {
        output.text(&line)?;
    }
    for run in &detail.runs {
        if let Some(reason) = present::reason(run) {
            output.text(&printable(&format!("{}: {reason}", run.digest.task)))?;
        }
        if let Some(commands) = present::gate_commands(run) {
            output.text(&printable(&format!("{} waits for a person: {commands}", run.digest.task)))?;
        }
    }
    Ok(())
}

/// What a campaign may use, when it works, and where it stands beside others; only what is not as usual.
fn limit_lines(detail: &CampaignDetail) -> Vec<String> {
    let summary = &detail.summary;
    let mut lines = Vec::new();
    lines.extend(present::limits::capped(&detail.budget).map(|budget| format!("budget: {budget}")));
    if summary.schedule.is_some() {
        lines.push(format!("works: {}", present::limits::schedule(summary.schedule.as_ref())));
    }
    if summary.priority != 0 || summary.weight != 1 {
        lines.push(format!("priority: {}, weight: {}", summary.priority, summary.weight));
    }
    let spec = &detail.spec;
    if !spec.gates.is_empty() {
        let gates: Vec<&str> = spec.gates.iter().map(|gate| gate.as_str()).collect();
        lines.push(format!("gates: {}", gates.join(", ")));
    }
    if !spec.labels.is_empty() {
        let labels: Vec<String> = spec.labels.iter().cloned().map(String::from).collect();
        lines.push(format!("machines with: {}", labels.join(", ")));
    }
    lines
}

fn run_detail(context: &Context, detail: &RunDetail, of_campaign: &[String]) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        return output.json(detail);
    }
    let summary = &detail.summary;
    output.text(&printable(&format!("{}  {}", summary.id, summary.digest.task)))?;
    output.text(&output.paint(&printable(&present::ending(summary)), present::run_tone(summary)))?;
    let scripted = if summary.digest.scripted { " (replies written beforehand)" } else { "" };
    output.text(&printable(&format!("campaign: {}\nmodel: {}{scripted}", summary.campaign, summary.digest.model)))?;
    for line in of_campaign {
        output.text(&printable(&format!("campaign's {line}")))?;
    }
    if summary.priority != 0 {
        output.text(&format!("priority: {}", summary.priority))?;
    }
    if let Some(owner) = &summary.owner {
        output.text(&printable(&format!("decided by: {owner}")))?;
    }
    if let Some(commands) = present::gate_commands(summary) {
        output.text(&printable(&format!("waits for a person: {commands}")))?;
    }
    if let Some(prepared) = &detail.view.prepared {
        let machine = &prepared.machine;
        output.text(&printable(&format!(
            "reference when it was prepared: {} on {}, {} cores\nsandbox: {}",
            present::nanoseconds(prepared.baseline_median_ns),
            machine.processor,
            machine.cores,
            machine.sandbox.summary(),
        )))?;
        for baseline in &prepared.baselines {
            output.text(&printable(&present::baseline(baseline)))?;
        }
        let fastest = prepared.fastest_baseline();
        let fastest = fastest.as_ref().map_or_else(|| "not measured".to_owned(), present::fastest_baseline);
        output.text(&printable(&format!("fastest baseline: {fastest}")))?;
        for warning in &prepared.warnings {
            output.text(&printable(&format!("warning: {}: {}", warning.code, warning.message)))?;
        }
    }
    // An older server does not compare them.
    let differences = PlanDifference::of_versions(&detail.view.plans);
    for (index, plan) in detail.view.plans.iter().enumerate() {
        let reason = plan.reason.as_ref().map_or_else(String::new, |reason| format!(" (because {reason})"));
        output.text(&printable(&format!("\nplan {}{reason}: {}", plan.version, plan.plan.summary)))?;
        for (index, subtask) in plan.plan.subtasks.iter().enumerate() {
            let scope = subtask.scope.join(", ");
            let limits = subtask.limits.as_ref().map_or_else(String::new, present::plan_limits);
            output.text(&printable(&format!("  {}. {} [{scope}]{limits}", index + 1, subtask.title)))?;
        }
        if let Some(difference) = index.checked_sub(1).and_then(|before| differences.get(before)) {
            output.text(&format!("  against plan {}:", difference.from))?;
            for line in difference.lines() {
                output.text(&printable(&format!("    {line}")))?;
            }
        }
    }
    if !detail.view.attempts.is_empty() {
        output.text("")?;
        output.text(&attempts(context, detail))?;
        for line in present::change::gains(&detail.view.attempts) {
            output.text(&printable(&line))?;
        }
    }
    if !summary.digest.scripted {
        output.text(&format!("cost: {}", present::cost(std::iter::once(&detail.view))))?;
        for line in present::cost::lines(&detail.cost) {
            output.text(&printable(&format!("  {line}")))?;
        }
    }
    for step in &detail.open_steps {
        let why = step.waiting_for.as_deref().unwrap_or("in work");
        output.text(&printable(&format!("open: {} ({}): {why}", step.key, step.status.as_str())))?;
    }
    Ok(())
}

/// What the API gives, with what is computed from it.
#[derive(Serialize)]
struct With<'a, T> {
    #[serde(flatten)]
    shown: &'a T,
    #[serde(flatten)]
    more: BTreeMap<&'static str, Value>,
}

fn attempts(context: &Context, detail: &RunDetail) -> String {
    let output = context.output;
    // Where nothing is faster than the reference, both speedups are the same.
    let prepared = detail.view.prepared.as_ref();
    let fastest = prepared.and_then(PreparedTask::fastest_baseline);
    let fastest = fastest.filter(|fastest| fastest.kind != BaselineKind::Reference);
    let mut columns = vec!["attempt", "plan", "subtask", "stage", "parent", "outcome", "speedup", "reward", "then"];
    if fastest.is_some() {
        columns.insert(7, "over the fastest baseline");
    }
    let mut table = output.table(&columns);
    for attempt in &detail.view.attempts {
        let best = if detail.view.best_attempt == Some(attempt.number) { " (best)" } else { "" };
        let then = attempt
            .route
            .as_ref()
            .map_or_else(|| NONE.to_owned(), |decision| format!("{}: {}", decision.route.as_str(), decision.reason));
        let mut cells = vec![
            output.cell(format!("{}{best}", attempt.number), Tone::Plain),
            output.cell(attempt.plan_version, Tone::Plain),
            output.cell(attempt.subtask, Tone::Plain),
            output.cell(attempt.stage.as_str(), Tone::Plain),
            output.cell(attempt.parent.map_or_else(|| NONE.to_owned(), |parent| parent.to_string()), Tone::Plain),
            output.cell(attempt.outcome.as_str(), present::outcome_tone(attempt.outcome)),
            output.cell(attempt.speedup().map_or_else(|| NONE.to_owned(), present::interval), Tone::Plain),
            output.cell(
                attempt.reward.as_ref().map_or_else(|| NONE.to_owned(), |reward| format!("{:.3}", reward.reward)),
                Tone::Plain,
            ),
            output.cell(printable(&then), Tone::Plain),
        ];
        if fastest.is_some() {
            let over = attempt.published().and_then(|measured| prepared?.over_fastest(measured));
            cells.insert(7, output.cell(over.map_or_else(|| NONE.to_owned(), present::interval), Tone::Plain));
        }
        table.add_row(cells);
    }
    table.to_string()
}

fn attempt(
    context: &Context,
    (attempt, prepared): (&Attempt, Option<&PreparedTask>),
    later: &[AttemptScore],
    source: Option<&[u8]>,
) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        let later: Vec<&AttemptScore> = later.iter().filter(|score| score.attempt == attempt.number).collect();
        let cost = cost::by_role(&attempt.calls);
        let more = BTreeMap::from([("later_scores", json!(later)), ("cost", json!(cost))]);
        return output.json(&With { shown: attempt, more });
    }
    for line in attempt_lines(attempt, prepared, later) {
        output.text(&printable(&line))?;
    }
    match (source, &attempt.source) {
        (Some(source), _) => output.text(&format!("\n--- source\n{}", printable(&String::from_utf8_lossy(source)))),
        (None, Some(_)) => output.text("the source is not stored any more"),
        (None, None) => Ok(()),
    }
}

fn attempt_lines(attempt: &Attempt, prepared: Option<&PreparedTask>, later: &[AttemptScore]) -> Vec<String> {
    let mut lines = vec![
        format!("attempt {}: {}", attempt.number, attempt.outcome.as_str()),
        format!(
            "stage: {}, plan {}, subtask {}, parent {}",
            attempt.stage.as_str(),
            attempt.plan_version,
            attempt.subtask,
            attempt.parent.map_or_else(|| "none".to_owned(), |parent| parent.to_string()),
        ),
    ];
    lines.extend(present::change::asked(attempt));
    let verdict = &attempt.verdict;
    lines.push(format!(
        "compiled: {}, numerically correct: {}, contract compliant: {}, fast: {}, share of time in own code: {}",
        present::answer(verdict.compiled),
        present::answer(verdict.numerically_correct),
        present::answer(verdict.contract_compliant),
        present::answer(verdict.fast),
        verdict.custom_kernel_time_share.map_or_else(|| "unknown".to_owned(), |share| format!("{:.0}%", share * 100.0)),
    ));
    lines.extend(present::change::fixed(attempt));
    if let Some(source) = &attempt.source {
        lines.push(format!("source: {source}"));
    }
    if let Some(tuning) = &attempt.tuning {
        lines.push(format!("tuned: {}", tuning.summary()));
        lines.extend(tuning.lines().into_iter().map(|line| format!("  {line}")));
    }
    if let Some(build) = &attempt.build {
        lines.push(format!("compiler: {} {}", build.toolchain.version, build.toolchain.flags.join(" ")));
        for message in build.messages.iter().take(MAX_SHOWN) {
            lines.push(format!("  {}:{}:{}: {}", message.file, message.line, message.column, message.message));
        }
    }
    if let Some(check) = &attempt.check {
        lines.push(format!("check: {}", check.end.describe()));
        if let Some(said) = check.last_words() {
            lines.push(format!("  it printed: {said} (`--json` has all of it, in `check.printed`)"));
        }
        for case in check.cases.iter().filter(|case| !case.passed).take(MAX_SHOWN) {
            lines.push(format!(
                "  wrong: shape {}, inputs {}: {} of {} elements",
                case.shape, case.inputs, case.wrong_elements, case.elements
            ));
        }
    }
    for (name, measured) in [("measured", &attempt.measurement), ("confirmed", &attempt.confirmation)] {
        if let Some(measured) = measured {
            lines.push(format!(
                "{name}: {} at {:.0}% confidence; baseline {}, candidate {}, {} samples{}; sandbox: {}",
                present::interval(measured.speedup),
                measured.confidence * 100.0,
                present::nanoseconds(measured.baseline_median_ns),
                present::nanoseconds(measured.candidate_median_ns),
                measured.candidate_samples_ns.len(),
                present::calls_per_sample(measured),
                measured.sandbox.summary(),
            ));
        }
    }
    if let (Some((prepared, fastest)), Some(measured)) =
        (prepared.and_then(|prepared| Some((prepared, prepared.fastest_baseline()?))), attempt.published())
    {
        let label = fastest.label_with_limits();
        let known = prepared.over_fastest(measured).map(|over| format!("{} ({label})", present::interval(over)));
        let otherwise =
            || format!("unknown ({label} was measured {})", prepared.difference(measured).unwrap_or_default());
        lines.push(format!("over the fastest baseline: {}", known.unwrap_or_else(otherwise)));
    }
    if let Some(profile) = &attempt.profile {
        lines.push(format!("profile: {}, bound by {}", profile.tier, present::bound(profile)));
        lines.extend(profile.missing.iter().map(|missing| format!("  missing: {missing}")));
    }
    lines.extend(present::gpu::lines(attempt));
    for finding in attempt.findings.iter().take(MAX_SHOWN) {
        let line = finding.line.map_or_else(String::new, |line| format!(" (line {line})"));
        lines.push(format!("finding: {}: {}{line}", finding.code, finding.message));
    }
    lines.extend(present::change::said(attempt));
    lines.extend(present::score::lines(attempt, later));
    if let Some(first) = attempt.calls.first() {
        let from = if first.scripted { "scripted, written beforehand" } else { first.model.as_str() };
        lines.push(format!(
            "replies: {from}, {}; cost: {}",
            present::count(attempt.calls.len(), "call"),
            present::price(attempt.calls.iter())
        ));
        if !first.scripted {
            lines.extend(
                present::cost::lines(&cost::by_role(&attempt.calls)).into_iter().map(|line| format!("  {line}")),
            );
        }
    }
    if let Some(decision) = &attempt.route {
        lines.push(format!("then: {}: {}", decision.route.as_str(), decision.reason));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_named_by_run_and_number() {
        assert_eq!(split_attempt("beef/3"), Some(("beef", 3)));
        assert_eq!(split_attempt("beef"), None);
        assert_eq!(split_attempt("beef/x"), None);
    }
}
