//! A run with its whole log: every step with input and output, decided by the workflow that carries runs out.

use std::collections::{BTreeMap, VecDeque};

use nightshift_engine::event::Event;
use nightshift_engine::workflow::{Command, StepOrder, Workflow as _, WorkflowState as _};
use nightshift_optimizer::strategy::StrategyWorkflow;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::machine::DeviceUse;
use nightshift_protocol::time::TimestampMs;
use nightshift_server::AttemptSpan;
use serde_json::{Value, json};
use uuid::Uuid;

use super::material::{Maker, reward};
use super::run::{Ended, MadeRun, PlannedAttempt, finish, plan_attempt, process_end, unreadable};
use crate::failure::Result;

/// Steps of one run: more are a loop.
const MAX_STEPS: usize = 2_000;

/// A step that is over.
pub(super) struct MadeStep {
    pub(super) id: StepId,
    pub(super) order: StepOrder,
    pub(super) scheduled_seq: u64,
    pub(super) output_seq: u64,
    pub(super) scheduled_at: TimestampMs,
    pub(super) finished_at: TimestampMs,
}

/// A run with its log.
pub(super) struct CompleteRun {
    pub(super) run: MadeRun,
    pub(super) events: Vec<(TimestampMs, Event)>,
    pub(super) steps: Vec<MadeStep>,
}

pub(super) fn make(maker: &mut Maker<'_>, id: RunId, input: RunInput, created_at: TimestampMs) -> Result<CompleteRun> {
    let workflow = StrategyWorkflow;
    let created = Event::RunCreated { input: serde_json::to_value(&input).map_err(|error| unreadable(&error))? };
    let mut state = workflow.apply(None, &created).map_err(|error| unreadable(&error))?;
    let mut events = vec![(created_at, created)];
    let mut steps: Vec<MadeStep> = Vec::new();
    let mut open: VecDeque<(StepOrder, u64, TimestampMs)> = VecDeque::new();
    let mut fates: BTreeMap<u32, PlannedAttempt> = BTreeMap::new();
    let mut at = created_at;
    while steps.len() < MAX_STEPS {
        let mut result = None;
        for command in workflow.decide(&state).map_err(|error| unreadable(&error))? {
            match command {
                Command::Schedule(order) => {
                    let mut known =
                        steps.iter().map(|step| &step.order.key).chain(open.iter().map(|(order, ..)| &order.key));
                    if known.any(|key| *key == order.key) {
                        continue;
                    }
                    let event = Event::StepScheduled { key: order.key.clone() };
                    state = workflow.apply(Some(state), &event).map_err(|error| unreadable(&error))?;
                    events.push((at, event));
                    open.push_back((order, seq(&events), at));
                }
                Command::Await { .. } => {}
                Command::Complete { result: ended } => result = Some(ended),
            }
        }
        if let Some(result) = result {
            events.push((at, Event::RunCompleted { result }));
            break;
        }
        let Some((order, scheduled_seq, scheduled_at)) = open.pop_front() else { break };
        at = at.plus_ms(500 + maker.dice.below(20_000));
        let output = output(maker, &order, &mut fates);
        let event = Event::StepCompleted { key: order.key.clone(), output };
        state = workflow.apply(Some(state), &event).map_err(|error| unreadable(&error))?;
        events.push((at, event));
        let id = StepId::from_uuid(Uuid::from_u128(maker.dice.wide()));
        steps.push(MadeStep { id, order, scheduled_seq, output_seq: seq(&events), scheduled_at, finished_at: at });
    }
    let mut spans: BTreeMap<u32, AttemptSpan> = BTreeMap::new();
    for step in &steps {
        if let Some(number) = attempt_of(&step.order.key) {
            let span =
                spans.entry(number).or_insert(AttemptSpan { began: step.scheduled_at, ended: None, device_ms: 0 });
            span.ended = Some(step.finished_at);
            if step.order.needs.device != DeviceUse::None {
                span.device_ms += step.finished_at.since_ms(step.scheduled_at);
            }
        }
    }
    let state = state.document().map_err(|error| unreadable(&error))?;
    let run = finish(maker, id, input, Ended { state, created_at, finished_at: at, spans })?;
    Ok(CompleteRun { run, events, steps })
}

fn seq(events: &[(TimestampMs, Event)]) -> u64 {
    u64::try_from(events.len()).unwrap_or(u64::MAX)
}

/// From a key like `subtask1/attempt3/build`.
fn attempt_of(key: &str) -> Option<u32> {
    key.split('/').nth(1)?.strip_prefix("attempt")?.parse().ok()
}

/// What a step gives back.
fn output(maker: &mut Maker<'_>, order: &StepOrder, fates: &mut BTreeMap<u32, PlannedAttempt>) -> Value {
    let number = attempt_of(&order.key).unwrap_or(0);
    let planned = fates.entry(number).or_insert_with(|| plan_attempt(maker, number.max(1)));
    let PlannedAttempt { outcome, variant, speedup } = *planned;
    match order.kind.as_str() {
        "prepare_task" => json!({ "step": "task_prepared", "prepared": maker.prepared() }),
        "plan" | "replan" => json!({ "step": "planned", "plan": maker.plan(), "calls": maker.calls("planner", 0) }),
        "write_code" if outcome == "no_code" => json!({
            "step": "no_code", "code": "reply.no_code", "message": "the reply held no block of code",
            "calls": maker.calls("coder", variant),
        }),
        "write_code" => {
            let findings = if outcome == "not_compliant" {
                json!([{ "code": "forbidden_call", "severity": "violation", "line": 12,
                         "message": "it calls cudaDeviceReset, which no program has an honest use for" }])
            } else {
                json!([])
            };
            json!({ "step": "code_written", "source": maker.source(variant), "findings": findings,
                    "calls": maker.calls("coder", variant) })
        }
        "build" => json!({ "step": "built", "report": maker.build(outcome != "compile_failed") }),
        "check" => {
            json!({ "step": "checked", "report": maker.check(outcome == "correct", &process_end(outcome)) })
        }
        "sanitize" => json!({ "step": "sanitized", "report": { "tools": [], "findings": [] } }),
        "measure" => {
            let factor = if order.key.ends_with("/confirm") { 0.995 } else { 1.0 };
            json!({ "step": "measured", "measurement": maker.measurement(speedup * factor), "findings": [] })
        }
        "profile" => json!({ "step": "profiled", "profile": maker.full_profile(speedup) }),
        "diagnose" => json!({ "step": "diagnosed", "diagnosis": maker.diagnosis(), "unavailable": null,
                              "calls": maker.calls("verifier", variant) }),
        _ => {
            let (rubric, total) = maker.rubric(number == 1);
            json!({ "step": "judged", "rubric": rubric, "reward": reward(speedup, total), "calls": maker.calls("judge", variant) })
        }
    }
}
