//! One run: what its attempts came to, and its state as it is stored.

use std::collections::{BTreeMap, BTreeSet};

use nightshift_optimizer::strategy::view;
use nightshift_protocol::api::RunView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::RunId;
use nightshift_protocol::time::TimestampMs;
use nightshift_server::AttemptSpan;
use serde_json::{Value, json};

use super::ATTEMPTS_PER_RUN;
use super::material::{Maker, no_reward, outcome_weights, reward};
use super::source::VARIANTS;
use crate::failure::{Failure, Result};

/// A run that is over.
pub(super) struct MadeRun {
    pub(super) id: RunId,
    pub(super) input: RunInput,
    pub(super) view: RunView,
    pub(super) state: Value,
    pub(super) digest: Value,
    pub(super) created_at: TimestampMs,
    pub(super) finished_at: TimestampMs,
    /// When each attempt began and ended.
    pub(super) spans: BTreeMap<u32, AttemptSpan>,
    /// Everything that its records name.
    pub(super) artifacts: BTreeSet<ArtifactHash>,
}

/// What happens to an attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlannedAttempt {
    pub(super) outcome: &'static str,
    pub(super) variant: u32,
    /// The speedup, when it is right.
    pub(super) speedup: f64,
}

/// What happens to the next attempt: models become better with what they learn, up to what the task has to give.
pub(super) fn plan_attempt(maker: &mut Maker<'_>, number: u32) -> PlannedAttempt {
    let weights = outcome_weights(maker.model.skill);
    let values: Vec<f64> = weights.values().copied().collect();
    let outcome = weights.keys().nth(maker.dice.weighted(&values)).copied().unwrap_or("incorrect");
    let variant = u32::try_from(maker.dice.below(u64::from(VARIANTS))).unwrap_or(0);
    let learned = 1.0 - (-f64::from(number) * (0.06 + 0.12 * maker.model.skill)).exp();
    let speedup = (0.55 + maker.task.potential * learned) * maker.dice.between(0.7, 1.1);
    PlannedAttempt { outcome, variant, speedup }
}

/// How the process of such an attempt ended.
pub(super) fn process_end(outcome: &str) -> Value {
    match outcome {
        "crashed" => json!({ "kind": "crashed", "signal": 11, "signal_name": "SIGSEGV" }),
        "timed_out" => json!({ "kind": "timed_out", "limit_ms": 10_000 }),
        "memory_exceeded" => {
            json!({ "kind": "memory_exceeded", "limit_bytes": 8_589_934_592_u64, "peak_bytes": 8_700_000_000_u64 })
        }
        "runtime_failed" => {
            json!({ "kind": "device_fault", "error": "CUDA_ERROR_ILLEGAL_ADDRESS", "during": "a call of ns_run" })
        }
        _ => json!({ "kind": "finished" }),
    }
}

/// How a run ended, before it is what is stored.
pub(super) struct Ended {
    pub(super) state: Value,
    pub(super) created_at: TimestampMs,
    pub(super) finished_at: TimestampMs,
    pub(super) spans: BTreeMap<u32, AttemptSpan>,
}

/// A run whose log says no more than that it began and ended.
pub(super) fn make(maker: &mut Maker<'_>, id: RunId, input: RunInput, created_at: TimestampMs) -> Result<MadeRun> {
    let ended = ended(maker, &input, created_at);
    finish(maker, id, input, ended)
}

/// Everything that happens in such a run.
pub(super) fn ended(maker: &mut Maker<'_>, input: &RunInput, created_at: TimestampMs) -> Ended {
    let prepared = maker.prepared();
    let plan = maker.plan();
    let plan_calls = maker.calls("planner", 0);
    let mut attempts: Vec<Value> = Vec::new();
    let mut spans = BTreeMap::new();
    let mut at = created_at.plus_ms(60_000);
    let mut best: Option<(u32, f64)> = None;
    let mut last_right: Option<u32> = None;
    let mut begun_as = "draft";
    for number in (1..).take(usize::try_from(ATTEMPTS_PER_RUN).unwrap_or(usize::MAX)) {
        let planned = plan_attempt(maker, number);
        let beats = best.is_none_or(|(_, best)| planned.speedup > best);
        let parent =
            if begun_as == "optimize" { last_right } else { number.checked_sub(1).filter(|parent| *parent > 0) };
        let attempt = attempt(maker, number, begun_as, parent, &planned, beats);
        if planned.outcome == "correct" {
            last_right = Some(number);
            if beats {
                best = Some((number, planned.speedup));
            }
        }
        begun_as = match planned.outcome {
            "correct" => "optimize",
            "compile_failed" | "no_code" => "repair_compile",
            "not_compliant" => "repair_compliance",
            "incorrect" => "repair_correctness",
            _ => "repair_runtime",
        };
        attempts.push(attempt);
        let over = at.plus_ms(20_000 + maker.dice.below(70_000));
        spans.insert(number, AttemptSpan { began: at, ended: Some(over), device_ms: over.since_ms(at) / 3 });
        at = over;
    }
    let state = json!({
        "state": "stitch.1", "input": input, "prepared": prepared, "attempts": attempts,
        "plans": [{ "version": 1, "reason": null, "plan": plan, "calls": plan_calls }],
        "best_attempt": best.map(|(number, _)| number),
        "phase": { "phase": "ended", "reason": { "kind": "attempt_budget" } },
    });
    Ended { state, created_at, finished_at: at, spans }
}

/// The run, once its state stands.
pub(super) fn finish(maker: &Maker<'_>, id: RunId, input: RunInput, ended: Ended) -> Result<MadeRun> {
    use nightshift_engine::workflow::AnyWorkflow as _;
    let Ended { state, created_at, finished_at, spans } = ended;
    let workflow = nightshift_optimizer::strategy::StrategyWorkflow;
    let view = view(&state).map_err(|error| unreadable(&error))?;
    let digest = workflow.read(&state).and_then(|state| workflow.digest(&state)).map_err(|error| unreadable(&error))?;
    let world = maker.world;
    let mut artifacts =
        BTreeSet::from([&world.prompt, &world.log, &world.library, &world.trace, &maker.task.bundle].map(Clone::clone));
    artifacts.extend(view.calls().map(|call| call.reply.clone()));
    artifacts.extend(view.attempts.iter().filter_map(|attempt| attempt.source.clone()));
    Ok(MadeRun { id, input, view, state, digest, created_at, finished_at, spans, artifacts })
}

/// An attempt as the state holds it.
fn attempt(
    maker: &mut Maker<'_>,
    number: u32,
    stage: &str,
    parent: Option<u32>,
    planned: &PlannedAttempt,
    beats: bool,
) -> Value {
    let right = planned.outcome == "correct";
    let has_code = planned.outcome != "no_code";
    let runs = has_code && !matches!(planned.outcome, "compile_failed" | "not_compliant");
    let mut calls = maker.calls("coder", planned.variant);
    let finding = match planned.outcome {
        "no_code" => {
            json!([{ "code": "reply.no_code", "severity": "note", "message": "the reply held no block of code" }])
        }
        "not_compliant" => json!([{ "code": "forbidden_call", "severity": "violation", "line": 12,
                                    "message": "it calls cudaDeviceReset, which no program has an honest use for" }]),
        _ => json!([]),
    };
    let build = (has_code && planned.outcome != "not_compliant").then(|| maker.build(runs));
    let check = runs.then(|| maker.check(right, &process_end(planned.outcome)));
    let measurement = right.then(|| maker.measurement(planned.speedup));
    let confirmation = (right && beats).then(|| maker.measurement(planned.speedup * 0.995));
    let is_fast =
        measurement.iter().chain(&confirmation).all(|measured| measured["speedup"]["low"].as_f64() > Some(1.0));
    let (rubric, diagnosis, profile, rewarded) = if right {
        for role in ["verifier", "judge"] {
            let more = maker.calls(role, planned.variant);
            if let (Some(calls), Some(more)) = (calls.as_array_mut(), more.as_array()) {
                calls.extend(more.iter().cloned());
            }
        }
        let (rubric, total) = maker.rubric(stage == "draft");
        (rubric, maker.diagnosis(), maker.profile(), reward(planned.speedup, total))
    } else {
        (Value::Null, Value::Null, Value::Null, no_reward())
    };
    let outcome = match (right, is_fast) {
        (true, true) => "correct_faster",
        (true, false) => "correct_not_faster",
        _ => planned.outcome,
    };
    let answer = |yes: bool, no: bool| {
        if yes {
            "pass"
        } else if no {
            "fail"
        } else {
            "inconclusive"
        }
    };
    json!({
        "number": number, "plan_version": 1, "subtask": 1, "stage": stage, "parent": parent, "outcome": outcome,
        "source": has_code.then(|| maker.source(planned.variant).cloned()), "findings": finding, "build": build, "check": check,
        "verdict": {
            "compiled": answer(runs, build.is_some()),
            "numerically_correct": answer(right, planned.outcome == "incorrect"),
            "contract_compliant": answer(right, planned.outcome == "not_compliant"),
            "fast": answer(right && is_fast, false), "custom_kernel_time_share": right.then_some(0.97),
        },
        "measurement": measurement, "confirmation": confirmation, "profile": profile, "diagnosis": diagnosis,
        "rubric": rubric, "reward": rewarded, "calls": calls,
        "route": { "route": if right { "optimize" } else { "repair" }, "decided_by": "rule",
                   "reason": format!("attempt {number} came to: {}", outcome.replace('_', " ")) },
    })
}

pub(super) fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure::new("internal.json", format!("a generated run cannot be used: {error}"))
}
