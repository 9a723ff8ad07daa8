//! `nightshift logs`: the log of a run, and everything that one of its steps left behind.

use nightshift_client::Client;
use nightshift_engine::event::Event;
use nightshift_protocol::api::{EventView, MAX_WAIT_MS, StepView};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::AgentTool;
use nightshift_protocol::error::ExitCode;
use nightshift_protocol::id::RunId;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepOutput;
use serde_json::{Value, json};

use super::standstill::stands_still;
use crate::args::Logs;
use crate::connect::{Purpose, Session};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::follow::Outage;
use crate::output::{Tone, printable};
use crate::present::{self, limits};
use crate::resolve;

/// Maximum number of characters of an event's facts in one line.
const MAX_LINE_CHARS: usize = 160;
/// Characters of a prompt's version that are shown, as `prompts check` shows them.
const VERSION_CHARS: usize = 12;
/// Pages of a log that one command reads.
const MAX_PAGES: u32 = 100_000;

pub(super) async fn run(context: &Context, args: Logs) -> Result<ExitCode> {
    Session::with(context, Purpose::Ask, async |session| {
        let run = resolve::run(&session.client, &args.id).await?;
        match &args.step {
            Some(key) => step(context, &session.client, &run, key).await?,
            None if args.follow => {
                follow(context, session, &run).await?;
            }
            None => {
                let mut after = 0;
                for _ in 0..MAX_PAGES {
                    let page = session.client.run_events(&run, after, 0).await?;
                    let Some(last) = page.events.last() else { break };
                    after = last.seq;
                    print_all(context, &page.events)?;
                }
            }
        }
        Ok(ExitCode::Ok)
    })
    .await
}

/// Prints events until the run ends, no server carries it out, or a signal arrives. Returns the status of the run.
pub(super) async fn follow(context: &Context, session: &Session, run: &RunId) -> Result<RunStatus> {
    let client = &session.client;
    let mut after = 0;
    // Everything that is there first; only then is it worth asking whether more can come.
    let mut wait_ms = 0;
    // One for each question, because an answer to one of them does not end the failures of the other.
    let (mut outage, mut outage_of_run) = (Outage::default(), Outage::default());
    loop {
        let answer = tokio::select! {
            answer = client.run_events(run, after, wait_ms) => answer,
            () = context.interrupt.cancelled() => return Ok(client.run(run).await?.summary.status),
        };
        let Some(page) = outage.answer(context, client, answer).await? else { continue };
        if let Some(last) = page.events.last() {
            after = last.seq;
            print_all(context, &page.events)?;
            continue;
        }
        if page.status.is_final() {
            return Ok(page.status);
        }
        let Some(detail) = outage_of_run.answer(context, client, client.run(run).await).await? else { continue };
        let summary = detail.summary;
        if stands_still(context, session, [&summary].into_iter()) {
            return Ok(summary.status);
        }
        wait_ms = MAX_WAIT_MS;
    }
}

fn print_all(context: &Context, events: &[EventView]) -> Result<()> {
    for event in events {
        if context.output.is_json() {
            context.output.json(event)?;
        } else {
            context.output.text(&line(context, event))?;
        }
    }
    Ok(())
}

fn line(context: &Context, event: &EventView) -> String {
    let tone = match event.kind.as_str() {
        "step_failed" | "run_failed" => Tone::Bad,
        "run_completed" => Tone::Good,
        "budget_exhausted"
        | "run_paused"
        | "step_retried"
        | "run_cancel_requested"
        | "run_cancelled"
        | "step_cancelled" => Tone::Caution,
        _ => Tone::Plain,
    };
    let key = event.step_key.as_deref().unwrap_or_default();
    let facts = facts(&event.body);
    let text = format!("{}  {:5}  {:20} {key}{facts}", present::moment(event.at), event.seq, event.kind);
    context.output.paint(&printable(&text).replace('\n', " "), tone)
}

/// What an event adds to its name, in a few words.
fn facts(body: &Value) -> String {
    let text = match serde_json::from_value::<Event>(body.clone()) {
        Ok(Event::StepFailed { failure, .. } | Event::RunFailed { failure }) => {
            format!("{}: {}", failure.code, failure.message)
        }
        Ok(Event::StepRetried { failure, at, .. }) => {
            format!("{}: {}; again at {}", failure.code, failure.message, present::moment(at))
        }
        Ok(Event::StepCompleted { output, .. }) => match serde_json::from_value::<StepOutput>(output) {
            Ok(output) => outcome(&output),
            Err(_) => String::new(),
        },
        Ok(Event::RunRetried { keys, by }) => asked(&keys.join(", "), by.as_deref()),
        Ok(Event::RunPaused { by } | Event::RunResumed { by } | Event::RunCancelRequested { by }) => {
            asked("", by.as_deref())
        }
        Ok(Event::SignalReceived { signal, by }) => asked(&told(&signal), by.as_deref()),
        Ok(Event::BudgetExhausted { resource, .. }) => {
            format!("the campaign cannot afford it: {} used up", limits::resource(resource))
        }
        _ => String::new(),
    };
    if text.is_empty() { text } else { format!(": {}", text.chars().take(MAX_LINE_CHARS).collect::<String>()) }
}

/// Who asked for it, before what it was.
fn asked(what: &str, by: Option<&str>) -> String {
    match (what, by) {
        (what, None) => what.to_owned(),
        ("", Some(by)) => format!("by {by}"),
        (what, Some(by)) => format!("by {by}: {what}"),
    }
}

fn told(signal: &Signal) -> String {
    match signal {
        Signal::Hint { text } => format!("hint: {text}"),
        Signal::Approved { gate } => format!("approved: {}", gate.as_str()),
        Signal::Rejected { gate, reason } => format!("rejected: {}, because {reason}", gate.as_str()),
    }
}

fn outcome(output: &StepOutput) -> String {
    match output {
        StepOutput::TaskPrepared { prepared } => {
            format!("the baseline takes {}", present::nanoseconds(prepared.baseline_median_ns))
        }
        StepOutput::TaskRejected { code, message, .. } | StepOutput::NoCode { code, message, .. } => {
            format!("{code}: {message}")
        }
        StepOutput::Planned { plan, .. } => {
            format!("{}: {}", present::count(plan.subtasks.len(), "subtask"), plan.summary)
        }
        StepOutput::CodeWritten { source, findings, .. } => {
            format!("source {}, {}", source.short(), present::count(findings.len(), "finding"))
        }
        StepOutput::TurnTaken { turn, .. } => {
            let said = turn.problem.as_ref().unwrap_or(&turn.note);
            format!("{}: {said}", turn.tool.map_or("no tool", AgentTool::as_str))
        }
        StepOutput::Built { report } => match (&report.library, report.messages.first()) {
            (Some(_), _) => {
                format!("built in {} ms{}", report.duration_ms, if report.cached { " (cached)" } else { "" })
            }
            (None, Some(message)) => format!("line {}: {}", message.line, message.message),
            (None, None) => report.end.describe(),
        },
        StepOutput::Checked { report } => {
            let wrong = report.cases.iter().filter(|case| !case.passed).count();
            format!("{}; {} of {} cases wrong", report.ending(), wrong, report.cases.len())
        }
        StepOutput::Sanitized { report } => present::sanitizer(report),
        StepOutput::Tuned { report, .. } => report.summary(),
        StepOutput::Measured { measurement, .. } => present::interval(measurement.speedup),
        StepOutput::MeasureFailed { end, .. } => end.describe(),
        StepOutput::Profiled { profile } => format!("{}, bound by {}", profile.tier, present::bound(profile)),
        StepOutput::Diagnosed { diagnosis: Some(diagnosis), .. } => {
            format!("{}: {}", diagnosis.route.as_str(), diagnosis.critical_issue)
        }
        StepOutput::Diagnosed { correction: Some(correction), .. } => {
            format!("{}; to mend: {}", correction.critical_issue, correction.minimal_fix)
        }
        StepOutput::Diagnosed { unavailable, .. } => unavailable.clone().unwrap_or_default(),
        StepOutput::Judged { reward, .. } => format!("reward {:.3}", reward.reward),
    }
}

/// One step with everything that it left behind.
async fn step(context: &Context, client: &Client, run: &RunId, key: &str) -> Result<()> {
    let steps = client.run_steps(run).await?;
    let Some(view) = steps.iter().find(|step| step.key == key) else {
        let keys: Vec<&str> = steps.iter().map(|step| step.key.as_str()).collect();
        return Err(Failure::new("step.not_found", format!("the run has no step `{key}`"))
            .hint(format!("its steps: {}", keys.join(", "))));
    };
    let output = output_of(client, run, key).await?;
    let parts = match (&output, &view.failure) {
        (Some(output), _) => parts(output),
        // What a model answered before the step failed says why.
        (None, Some(failure)) => texts_of(&failure.calls),
        (None, None) => Vec::new(),
    };
    let mut texts = Vec::new();
    for (name, hash) in parts {
        let bytes = client.get_artifact(&hash).await?;
        texts.push((name, hash, String::from_utf8_lossy(&bytes).into_owned()));
    }
    print_step(context, view, output.as_ref(), &texts)
}

fn print_step(
    context: &Context,
    view: &StepView,
    result: Option<&StepOutput>,
    texts: &[(String, ArtifactHash, String)],
) -> Result<()> {
    let output = context.output;
    if output.is_json() {
        let texts: Vec<Value> =
            texts.iter().map(|(name, hash, text)| json!({ "name": name, "artifact": hash, "text": text })).collect();
        return output.json(&json!({ "step": view, "output": result, "texts": texts }));
    }
    let status = output.paint(view.status.as_str(), present::step_tone(view.status));
    output.text(&format!("{}  {status}, begun {}", view.key, present::count(view.tries, "time")))?;
    if let Some(waiting) = &view.waiting_for {
        output.text(&format!("waits: {}", printable(waiting)))?;
    }
    if let Some(failure) = &view.failure {
        output.text(&printable(&format!("failure: {}: {}", failure.code, failure.message)))?;
    }
    if let Some(result) = result {
        output.text(&printable(&format!("result: {}", outcome(result))))?;
    }
    for (name, hash, text) in texts {
        output.text(&printable(&format!("\n--- {name} ({})", hash.short())))?;
        output.text(&printable(text))?;
    }
    Ok(())
}

async fn output_of(client: &Client, run: &RunId, key: &str) -> Result<Option<StepOutput>> {
    let mut after = 0;
    for _ in 0..MAX_PAGES {
        let page = client.run_events(run, after, 0).await?;
        let Some(last) = page.events.last() else { return Ok(None) };
        after = last.seq;
        for event in page.events.into_iter().filter(|event| event.step_key.as_deref() == Some(key)) {
            if let Ok(Event::StepCompleted { output, .. }) = serde_json::from_value(event.body) {
                return Ok(serde_json::from_value(output).ok());
            }
        }
    }
    Ok(None)
}

/// Texts that a step's result names.
fn parts(output: &StepOutput) -> Vec<(String, ArtifactHash)> {
    let mut parts = Vec::new();
    match output {
        StepOutput::TaskPrepared { prepared } => {
            parts.push(("compiler output".to_owned(), prepared.reference.log.clone()));
        }
        StepOutput::TaskRejected { log: Some(log), .. } => parts.push(("output".to_owned(), log.clone())),
        StepOutput::CodeWritten { source, .. } => parts.push(("source".to_owned(), source.clone())),
        StepOutput::Tuned { program: Some(program), .. } => {
            parts.push(("tuned source".to_owned(), program.source.clone()));
        }
        StepOutput::Built { report } => parts.push(("compiler output".to_owned(), report.log.clone())),
        _ => {}
    }
    parts.extend(texts_of(output.calls()));
    parts
}

fn texts_of(calls: &[ModelCallSummary]) -> Vec<(String, ArtifactHash)> {
    let mut texts = Vec::new();
    for call in calls {
        let version: String = call.prompt_version.chars().take(VERSION_CHARS).collect();
        texts.push((format!("prompt, turn {} (templates {version})", call.turn), call.prompt.clone()));
        if let Some(reasoning) = &call.reasoning {
            texts.push((format!("reasoning of {}, turn {}", call.model, call.turn), reasoning.clone()));
        }
        texts.push((format!("reply of {}, turn {}", call.model, call.turn), call.reply.clone()));
    }
    texts
}
