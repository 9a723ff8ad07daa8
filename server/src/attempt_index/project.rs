//! Derives the listed attempts from the state of a run. Pure.

use std::collections::BTreeMap;

use nightshift_engine::store::StepRecord;
use nightshift_protocol::api::RunView;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::machine::{DeviceUse, MachineFacts, Needs};
use nightshift_protocol::models::AgentRole;
use nightshift_protocol::prepared::PreparedTask;
use nightshift_protocol::rubric::JudgeOpinion;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::IndexedAttempt;

/// The format of the index. Increment it after changing the output of this file or of `texts.rs`: all runs are written
/// again then.
pub const FORM: u32 = 4;
/// Maximum length of an issue, in characters.
const MAX_ISSUE_CHARS: usize = 300;
/// Maximum length of a device name, in characters.
const MAX_DEVICE_CHARS: usize = 120;

/// Time span of an attempt's steps.
#[derive(Debug, Clone, Copy)]
pub struct AttemptSpan {
    /// Scheduling time of the first step.
    pub began: TimestampMs,
    /// End of the last step; none while a step is open.
    pub ended: Option<TimestampMs>,
    /// Total duration of the steps that need a device, in milliseconds.
    pub device_ms: u64,
}

/// Facts about a run that its rows depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunFacts<'r> {
    /// Label of the model, for attempts without a call.
    pub(super) model: &'r str,
    pub(super) prepared: Option<&'r PreparedTask>,
    pub(super) best_attempt: Option<u32>,
    /// Creation time of the run, for attempts whose steps are unknown.
    pub(super) created_at: TimestampMs,
    pub(super) is_over: bool,
}

/// Returns all attempts of a run for the index.
///
/// `spans` are by the number of the attempt. `created_at` is the creation time of the run, for attempts whose steps are
/// unknown.
#[must_use]
pub fn indexed_attempts(
    view: &RunView,
    input: &RunInput,
    spans: &BTreeMap<u32, AttemptSpan>,
    created_at: TimestampMs,
    is_over: bool,
) -> Vec<IndexedAttempt> {
    let facts = RunFacts {
        model: &input.model.label(),
        prepared: view.prepared.as_ref(),
        best_attempt: view.best_attempt,
        created_at,
        is_over,
    };
    rows(&view.attempts, &facts, spans)
}

/// Returns attempts of a run for the index.
pub(super) fn rows(
    attempts: &[Attempt],
    run: &RunFacts<'_>,
    spans: &BTreeMap<u32, AttemptSpan>,
) -> Vec<IndexedAttempt> {
    attempts
        .iter()
        .map(|attempt| {
            let span = spans.get(&attempt.number);
            let (tokens, cost_microusd) = used(attempt);
            let measured = attempt.published();
            IndexedAttempt {
                number: attempt.number,
                stage: attempt.stage,
                parent: attempt.parent,
                outcome: attempt.outcome,
                is_best: run.best_attempt == Some(attempt.number),
                is_confirmed: attempt.confirmation.is_some(),
                speedup: attempt.speedup(),
                speedup_over_fastest: run.prepared.and_then(|prepared| prepared.over_fastest(measured?)),
                candidate_median_ns: measured.map(|measured| measured.candidate_median_ns),
                reward: attempt.reward.as_ref().map(|reward| reward.reward),
                rubric_total: attempt.rubric.as_ref().and_then(|rubric| match &rubric.judge {
                    JudgeOpinion::Rated { scores, .. } => Some(scores.total()),
                    JudgeOpinion::JudgeUnavailable { .. } => None,
                }),
                bound: attempt.diagnosis.as_ref().map(|diagnosis| diagnosis.bound),
                issue: issue(attempt).map(|issue| one_line(issue, MAX_ISSUE_CHARS)),
                tokens,
                cost_microusd,
                model: author(attempt).unwrap_or(run.model).to_owned(),
                device: measured.map(|measured| device(&measured.machine)),
                device_ms: span.map_or(0, |span| span.device_ms),
                source: attempt.source.clone(),
                created_at: span.map_or(run.created_at, |span| span.began),
                // An attempt has finished when all data about it is known. A finished run gets no more data.
                finished_at: span
                    .and_then(|span| span.ended)
                    .filter(|_| attempt.reward.is_some() || attempt.route.is_some() || run.is_over),
            }
        })
        .collect()
}

/// Returns the spans by the number of the attempt, from keys like `subtask1/attempt3/build`.
pub(super) fn spans(steps: &[StepRecord]) -> BTreeMap<u32, AttemptSpan> {
    let mut spans: BTreeMap<u32, AttemptSpan> = BTreeMap::new();
    for step in steps {
        let number = step.key.split('/').nth(1).and_then(|part| part.strip_prefix("attempt")?.parse().ok());
        let Some(number) = number else { continue };
        let ended = if step.status.is_final() { step.finished_at } else { None };
        let device_ms = device_ms(step);
        spans
            .entry(number)
            .and_modify(|span| {
                span.began = span.began.min(step.scheduled_at);
                span.ended = span.ended.zip(ended).map(|(one, other)| one.max(other));
                span.device_ms = span.device_ms.saturating_add(device_ms);
            })
            .or_insert(AttemptSpan { began: step.scheduled_at, ended, device_ms });
    }
    spans
}

/// Returns the duration of the last try of a step that needs a device.
fn device_ms(step: &StepRecord) -> u64 {
    let is_on_a_device = Needs::parse_route(&step.route).is_ok_and(|needs| needs.device != DeviceUse::None);
    let span = step.started_at.zip(step.finished_at).filter(|_| is_on_a_device && step.status.is_final());
    span.map_or(0, |(began, ended)| ended.since_ms(began))
}

/// Returns tokens and price of the attempt's model calls. An unknown value counts as zero tokens, and makes the price
/// unknown.
fn used(attempt: &Attempt) -> (u64, Option<u64>) {
    let mut tokens: u64 = 0;
    let mut cost: Option<u64> = Some(0);
    for call in &attempt.calls {
        tokens = tokens.saturating_add(call.input_tokens.unwrap_or(0)).saturating_add(call.output_tokens.unwrap_or(0));
        let price = if call.scripted { Some(call.price_microusd.unwrap_or(0)) } else { call.price_microusd };
        cost = cost.zip(price).map(|(sum, price)| sum.saturating_add(price));
    }
    (tokens, cost)
}

/// Returns the model of the attempt. In old records without roles, the author's call is the first.
fn author(attempt: &Attempt) -> Option<&str> {
    let of_coder = attempt.calls.iter().find(|call| call.role == Some(AgentRole::Coder));
    of_coder.or_else(|| attempt.calls.first()).map(|call| call.model.as_str())
}

/// Returns the GPU of the measurements, or the processor.
fn device(machine: &MachineFacts) -> String {
    one_line(machine.device_name(), MAX_DEVICE_CHARS)
}

fn issue(attempt: &Attempt) -> Option<&str> {
    let of_diagnosis = attempt.diagnosis.as_ref().map(|diagnosis| diagnosis.critical_issue.as_str());
    of_diagnosis.or_else(|| attempt.correction.as_ref().map(|correction| correction.critical_issue.as_str()))
}

/// Returns the text as one line without terminal control characters, cut to a maximum length.
fn one_line(text: &str, max_chars: usize) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_engine::event::Event;
    use nightshift_engine::retry::RetryPolicy;
    use nightshift_engine::workflow::{Workflow as _, WorkflowState as _};
    use nightshift_optimizer::strategy::{StrategyWorkflow, view};
    use nightshift_protocol::baseline::{Baseline, BaselineKind};
    use nightshift_protocol::id::{RunId, StepId};
    use nightshift_protocol::measurement::{Interval, Measurement};
    use nightshift_protocol::run::StepStatus;
    use serde_json::Value;
    use uuid::Uuid;

    use super::*;

    fn step(key: &str, scheduled_at: i64, finished_at: Option<i64>) -> StepRecord {
        StepRecord {
            id: StepId::from_uuid(Uuid::nil()),
            run: RunId::from_uuid(Uuid::nil()),
            key: key.to_owned(),
            kind: "build".to_owned(),
            route: String::new(),
            status: if finished_at.is_some() { StepStatus::Completed } else { StepStatus::Scheduled },
            epoch: 0,
            tries: 0,
            retry: RetryPolicy { max_tries: 1, first_delay_ms: 0, max_delay_ms: 0 },
            timeout_ms: 0,
            worker: None,
            input: Value::Null,
            output: None,
            failure: None,
            scheduled_at: TimestampMs(scheduled_at),
            started_at: None,
            finished_at: finished_at.map(TimestampMs),
            not_before: None,
            blocked_on: None,
            device: None,
            reserve: Vec::new(),
        }
    }

    /// Returns the folded state of a run that an earlier release recorded.
    fn recorded() -> (RunView, RunInput) {
        let text = include_str!("../../../optimizer/tests/corpus/history/repaired_to_the_target.json");
        let recorded: Value = serde_json::from_str(text).unwrap();
        let events: Vec<Event> = serde_json::from_value(recorded["events"].clone()).unwrap();
        let Some(Event::RunCreated { input }) = events.first() else { unreachable!("a log begins with its run") };
        let input = serde_json::from_value(input.clone()).unwrap();
        let mut state = None;
        for event in &events {
            state = Some(StrategyWorkflow.apply(state, event).unwrap());
        }
        (view(&state.unwrap().document().unwrap()).unwrap(), input)
    }

    #[test]
    fn a_recorded_run_becomes_rows_that_say_the_same() {
        let (view, input) = recorded();
        assert!(view.attempts.len() > 1);
        let steps: Vec<StepRecord> = (1..=view.attempts.len())
            .flat_map(|number| {
                let at = i64::try_from(number).unwrap() * 100;
                [
                    step(&format!("subtask1/attempt{number}/write_code"), at, Some(at + 10)),
                    step(&format!("subtask1/attempt{number}/build"), at + 10, Some(at + 30)),
                ]
            })
            .collect();
        let rows = indexed_attempts(&view, &input, &spans(&steps), TimestampMs(1), true);
        assert_eq!(rows.len(), view.attempts.len());
        for (row, attempt) in rows.iter().zip(&view.attempts) {
            assert_eq!(
                (row.number, row.stage, row.parent, row.outcome),
                (attempt.number, attempt.stage, attempt.parent, attempt.outcome)
            );
            assert_eq!((row.speedup, &row.source), (attempt.speedup(), &attempt.source));
            assert_eq!(row.reward, attempt.reward.as_ref().map(|reward| reward.reward));
            let at = i64::from(attempt.number) * 100;
            assert_eq!((row.created_at, row.finished_at), (TimestampMs(at), Some(TimestampMs(at + 30))));
            assert_eq!(row.model, "scripted");
        }
        let best: Vec<u32> = rows.iter().filter(|row| row.is_best).map(|row| row.number).collect();
        assert_eq!(best, view.best_attempt.into_iter().collect::<Vec<_>>());
        let best = rows.iter().find(|row| row.is_best).unwrap();
        assert!(best.is_confirmed && best.device.as_deref() == Some("a processor"), "{best:?}");
    }

    #[test]
    fn speedups_over_the_fastest_baseline_are_there_where_that_baseline_is_known() {
        let (mut view, input) = recorded();
        let rows = |view: &RunView| indexed_attempts(view, &input, &BTreeMap::new(), TimestampMs(1), true);
        let over = |row: &IndexedAttempt| row.speedup_over_fastest.map(|speedup| speedup.estimate);
        let best = view.best_attempt.unwrap();
        let of_best = |view: &RunView| rows(view).into_iter().find(|row| row.number == best).unwrap();
        assert_eq!(over(&of_best(&view)), of_best(&view).speedup.map(|speedup| speedup.estimate), "no other baseline");
        let measured = view.attempts.iter().find_map(Attempt::published).unwrap().clone();
        let twice = Measurement { speedup: Interval { estimate: 2.0, low: 1.9, high: 2.1 }, ..measured };
        let library =
            |measurement| Baseline { kind: BaselineKind::Library, measurement, reason: None, is_fault: false };
        view.prepared.as_mut().unwrap().baselines = vec![library(Some(Box::new(twice)))];
        let row = of_best(&view);
        let (over_fastest, over_reference) = (row.speedup_over_fastest.unwrap(), row.speedup.unwrap());
        assert!((over_fastest.estimate * 2.0 - over_reference.estimate).abs() < 1e-9, "{over_fastest:?}");
        assert!(over_fastest.low < over_fastest.estimate && over_fastest.estimate < over_fastest.high);
        assert!(rows(&view).iter().all(|row| row.speedup.is_some() == row.speedup_over_fastest.is_some()));
        view.prepared.as_mut().unwrap().baselines = vec![library(None)];
        assert_eq!(over(&of_best(&view)), None, "the other baseline was not measured");
        view.prepared = None;
        assert_eq!(over(&of_best(&view)), None, "the task is not prepared");
    }

    #[test]
    fn an_attempt_with_an_open_step_is_not_finished() {
        let (view, input) = recorded();
        let steps = [step("subtask1/attempt1/write_code", 5, Some(6)), step("subtask1/attempt1/build", 6, None)];
        let rows = indexed_attempts(&view, &input, &spans(&steps), TimestampMs(1), false);
        assert_eq!((rows[0].created_at, rows[0].finished_at), (TimestampMs(5), None));
        assert_eq!((rows[1].created_at, rows[1].finished_at), (TimestampMs(1), None), "its steps are unknown");
    }

    #[test]
    fn an_issue_is_one_short_line() {
        assert_eq!(one_line("a\n\tb\u{1b}[31m c\u{202e}", 40), "a b [31m c\u{202e}");
        assert_eq!(one_line(&"é".repeat(500), MAX_ISSUE_CHARS).chars().count(), MAX_ISSUE_CHARS + 1);
    }

    #[test]
    fn steps_that_need_a_device_count_for_as_long_as_they_were_carried_out() {
        let on = |route: &str, key: &str, began: i64, ended: Option<i64>| StepRecord {
            route: route.to_owned(),
            started_at: Some(TimestampMs(began)),
            ..step(key, 0, ended)
        };
        let steps = [
            on("worker/cuda/none", "subtask1/attempt1/build", 0, Some(900)),
            on("worker/cuda/shared", "subtask1/attempt1/check", 1_000, Some(1_250)),
            on("worker/cuda/exclusive", "subtask1/attempt1/measure", 1_300, Some(1_800)),
            on("worker/cuda/exclusive", "subtask1/attempt2/measure", 1_900, None),
        ];
        let spans = spans(&steps);
        assert_eq!((spans[&1].device_ms, spans[&2].device_ms), (750, 0));
    }
}
