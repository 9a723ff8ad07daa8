//! One campaign: its runs, as the rows of an archive and of the index.

use std::collections::BTreeSet;

use nightshift_engine::event::Event;
use nightshift_protocol::api::SearchKind;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::{CampaignId, RunId};
use nightshift_protocol::time::TimestampMs;
use nightshift_server::{ATTEMPT_INDEX_FORM, indexed_attempts};
use nightshift_store::{Document, DocumentKey, IndexedAttempt, IndexedRun};
use serde_json::{Value, json};
use uuid::Uuid;

use super::complete::{self, MadeStep};
use super::dice::Dice;
use super::material::{EPOCH_MS, MODELS, Maker, Model, Task, World};
use super::run::{self, MadeRun, unreadable};
use super::source::VARIANTS;
use crate::failure::Result;

/// Time between the beginnings of two campaigns.
const CAMPAIGN_EVERY_MS: u64 = 6 * 3_600_000;
/// Time between the beginnings of two runs of a campaign.
const RUN_EVERY_MS: u64 = 240_000;
/// One run of so many has texts that can be searched.
const SEARCHED_EVERY: u64 = 10;
const STRATEGIES: [&str; 4] = ["stitch", "beam", "forge", "group"];

/// Which campaign.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) number: u64,
    pub(super) of: u64,
    pub(super) runs: u64,
    /// How many of them have complete logs.
    pub(super) complete: u64,
}

/// A campaign to be stored.
pub(super) struct Generated {
    pub(super) rows: Vec<Value>,
    pub(super) artifacts: Vec<ArtifactHash>,
    pub(super) indexed: Vec<IndexedRun>,
    pub(super) at: TimestampMs,
}

pub(super) fn make(world: &World, plan: &Plan) -> Result<Generated> {
    let mut dice = Dice::new(plan.seed, plan.number.wrapping_add(1));
    let at = TimestampMs(EPOCH_MS).plus_ms(plan.number.saturating_mul(CAMPAIGN_EVERY_MS));
    let model = dice.pick(&MODELS).ok_or_else(|| unreadable(&"there are no models"))?;
    let strategy = STRATEGIES[dice.weighted(&[0.6, 0.2, 0.15, 0.05]).min(STRATEGIES.len() - 1)];
    let id = CampaignId::from_uuid(Uuid::from_u128(dated(at, &mut dice)));
    let first = dice.below(u64::try_from(world.tasks.len()).unwrap_or(1));
    let mut generated = Generated { rows: Vec::new(), artifacts: Vec::new(), indexed: Vec::new(), at };
    let mut tasks: Vec<Value> = Vec::new();
    let mut artifacts: BTreeSet<ArtifactHash> = BTreeSet::new();
    for number in 0..plan.runs {
        let place = usize::try_from(first + number).unwrap_or(0) % world.tasks.len();
        let task = &world.tasks[place];
        tasks.push(json!({ "name": format!("{}_{number}", task.name), "bundle": task.bundle }));
        let created_at = at.plus_ms(number * RUN_EVERY_MS);
        let mut dice = Dice::new(plan.seed ^ 0x5eed, plan.number.wrapping_mul(1_000_003).wrapping_add(number));
        let run = RunId::from_uuid(Uuid::from_u128(dated(created_at, &mut dice)));
        let mut maker = Maker::new(world, task, model, dice);
        let is_complete = number < plan.complete;
        let input = input(task, model, if is_complete { "stitch" } else { strategy }, is_complete)?;
        let rows = &mut generated.rows;
        let made = if is_complete {
            let complete = complete::make(&mut maker, run, input, created_at)?;
            run_row(rows, &id, &complete.run, complete.events.len())?;
            let mut last = created_at;
            for (seq, (at, event)) in (1..).zip(&complete.events) {
                last = last.max(*at);
                rows.push(event_row(&complete.run.id, seq, last, event)?);
            }
            for step in &complete.steps {
                step_rows(rows, &complete.run.id, step)?;
            }
            complete.run
        } else {
            let made = run::make(&mut maker, run, input, created_at)?;
            run_row(rows, &id, &made, 2)?;
            let input = serde_json::to_value(&made.input).map_err(|error| unreadable(&error))?;
            rows.push(event_row(&made.id, 1, made.created_at, &Event::RunCreated { input })?);
            let result = made.digest.clone();
            rows.push(event_row(&made.id, 2, made.finished_at, &Event::RunCompleted { result })?);
            made
        };
        artifacts.extend(made.artifacts.iter().cloned());
        for hash in &made.artifacts {
            rows.push(json!({ "table": "artifact_use", "run": made.id, "hash": hash }));
        }
        let last_seq = if is_complete {
            rows.iter().filter(|row| row["table"] == "event" && row["run"] == made.id.as_str()).count()
        } else {
            2
        };
        let is_searched = is_complete || number.is_multiple_of(SEARCHED_EVERY);
        generated.indexed.push(indexed(&made, task, folded(last_seq), is_searched));
    }
    let spec = json!({
        "schema": 1, "name": format!("night {} of {}", plan.number + 1, plan.of), "model": choice(model),
        "strategy": strategy, "goal": { "max_attempts": 20 }, "tasks": tasks,
    });
    generated.rows.insert(
        0,
        json!({
            "table": "campaign", "public_id": id, "name": spec["name"], "spec": spec.to_string(), "created_at_ms": at.0,
            "schedule": null, "priority": 0, "weight": 1,
        }),
    );
    generated.artifacts = artifacts.into_iter().collect();
    Ok(generated)
}

/// The last event says that the run is over: no decision folds it.
fn folded(events: usize) -> u64 {
    u64::try_from(events.saturating_sub(1)).unwrap_or(0)
}

/// An id of that moment: they are sorted by time, as those of real runs are.
fn dated(at: TimestampMs, dice: &mut Dice) -> u128 {
    let millis = u128::try_from(at.0).unwrap_or(0) & 0xffff_ffff_ffff;
    let random = dice.wide() & 0x0000_0000_0000_0fff_3fff_ffff_ffff_ffff;
    millis << 80 | 0x7000_8000_0000_0000_0000 | random
}

pub(super) fn choice(model: &Model) -> Value {
    json!({ "provider": "live", "endpoint": model.endpoint, "model": model.name })
}

pub(super) fn input(task: &Task, model: &Model, strategy: &str, is_complete: bool) -> Result<RunInput> {
    let goal = if is_complete { json!({ "max_attempts": 12 }) } else { json!({ "max_attempts": 20 }) };
    serde_json::from_value(json!({
        "schema": 1, "task_name": task.name, "task": task.bundle, "target": task.target.as_str(), "model": choice(model),
        "strategy": strategy, "goal": goal, "sandbox_required": true,
    }))
    .map_err(|error| unreadable(&error))
}

pub(super) fn run_row(rows: &mut Vec<Value>, campaign: &CampaignId, run: &MadeRun, events: usize) -> Result<()> {
    rows.push(json!({
        "table": "run", "public_id": run.id, "campaign": campaign, "status": "completed", "priority": 0,
        "revision": folded(events), "last_seq": events, "wake_seq": events, "folded_seq": folded(events),
        "digest": text(&run.digest)?, "awaits": null, "failure": null, "created_at_ms": run.created_at.0,
        "finished_at_ms": run.finished_at.0,
    }));
    rows.push(json!({ "table": "run_state", "run": run.id, "state": text(&run.state)? }));
    Ok(())
}

pub(super) fn event_row(run: &RunId, seq: usize, at: TimestampMs, event: &Event) -> Result<Value> {
    Ok(json!({ "table": "event", "run": run, "seq": seq, "at_ms": at.0, "kind": event.kind(), "body": text(event)? }))
}

fn step_rows(rows: &mut Vec<Value>, run: &RunId, step: &MadeStep) -> Result<()> {
    let order = &step.order;
    let route = order.needs.route();
    if !rows.iter().any(|row| row["table"] == "route" && row["needs"] == route.as_str()) {
        rows.push(json!({ "table": "route", "needs": route }));
    }
    rows.push(json!({
        "table": "step", "public_id": step.id, "run": run, "key": order.key, "kind": order.kind, "route": route,
        "status": "completed", "epoch": 1, "tries": 1, "max_tries": order.retry.max_tries,
        "first_delay_ms": order.retry.first_delay_ms, "max_delay_ms": order.retry.max_delay_ms,
        "timeout_ms": order.timeout_ms, "cost_ms": order.cost_ms, "reserve": null, "worker": null,
        "scheduled_seq": step.scheduled_seq, "output_seq": step.output_seq, "failure": null,
        "scheduled_at_ms": step.scheduled_at.0, "started_at_ms": step.scheduled_at.0,
        "finished_at_ms": step.finished_at.0,
    }));
    rows.push(json!({ "table": "step_input", "step": step.id, "input": text(&order.input)? }));
    Ok(())
}

fn text<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| unreadable(&error))
}

fn indexed(run: &MadeRun, task: &Task, seq: u64, is_searched: bool) -> IndexedRun {
    let attempts = indexed_attempts(&run.view, &run.input, &run.spans, run.created_at, true);
    let documents = if is_searched { documents(run, task, &attempts) } else { Vec::new() };
    IndexedRun {
        run: run.id.clone(),
        seq,
        form: ATTEMPT_INDEX_FORM,
        task: run.input.task_name.clone(),
        target: run.input.target,
        strategy: run.input.strategy.clone(),
        attempts,
        documents,
    }
}

fn documents(run: &MadeRun, task: &Task, attempts: &[IndexedAttempt]) -> Vec<Document> {
    let mut documents = Vec::new();
    for (attempt, row) in run.view.attempts.iter().zip(attempts) {
        let mut put = |kind: SearchKind, digest: &str, body: &str| {
            let key = DocumentKey { attempt: attempt.number, kind, part: 0, digest: digest.to_owned() };
            documents.push(Document { key, body: body.to_owned(), at: row.created_at });
        };
        let known = |texts: &[(ArtifactHash, String)], wanted: &ArtifactHash| {
            texts.iter().take(usize::try_from(VARIANTS).unwrap_or(0)).position(|(hash, _)| hash == wanted)
        };
        if let Some(source) = &attempt.source
            && let Some(place) = known(&task.sources, source)
        {
            put(SearchKind::Source, source.as_str(), &task.sources[place].1);
        }
        if let Some(call) = attempt.calls.first()
            && let Some(place) = known(&task.replies, &call.reply)
        {
            put(SearchKind::Reply, call.reply.as_str(), &task.replies[place].1);
        }
        if let Some(diagnosis) = &attempt.diagnosis {
            let body = format!("{}\n{}", diagnosis.critical_issue, diagnosis.modification);
            put(SearchKind::Diagnosis, ArtifactHash::of(body.as_bytes()).as_str(), &body);
        }
        let messages = attempt.build.iter().flat_map(|build| &build.messages);
        let body: Vec<String> =
            messages.map(|message| format!("{}:{}: {}", message.file, message.line, message.message)).collect();
        if !body.is_empty() {
            let body = body.join("\n");
            put(SearchKind::Error, ArtifactHash::of(body.as_bytes()).as_str(), &body);
        }
    }
    documents
}
