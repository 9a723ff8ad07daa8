//! One run: its log, its steps and its result.

use std::collections::BTreeMap;

use nightshift_engine::event::{Event, EventRecord};
use nightshift_protocol::run::{RunStatus, StepStatus};
use serde_json::{Value, json};

use super::Run;
use crate::storm::violation::Violation;
use crate::toy::{Name, expected_sum, keys};

/// Returns whether a run ended with its sum, and not because its campaign could not afford it.
pub(super) fn has_sum(event: &EventRecord) -> bool {
    matches!(&event.event, Event::RunCompleted { result } if !result["sum"].is_null())
}

pub(super) fn check(run: &Run, violations: &mut Vec<Violation>) {
    let id = &run.record.id;
    let mut wrong = |rule: &'static str, told: String| violations.push(Violation::new(rule, format!("{id}: {told}")));
    let name = run.record.digest["task"].as_str().unwrap_or_default();
    let Ok(name) = name.parse::<Name>() else { return wrong("every run ends", format!("its name is `{name}`")) };

    for (event, expected) in run.events.iter().zip(1..) {
        if event.seq != expected {
            wrong("logs have no gaps", format!("event {expected} is {}", event.seq));
            break;
        }
    }
    if run.record.last_seq != run.events.len() as u64 {
        wrong("logs have no gaps", format!("{} events, and the last is {}", run.events.len(), run.record.last_seq));
    }

    let mut completed: BTreeMap<&str, u32> = BTreeMap::new();
    for event in &run.events {
        if let Event::StepCompleted { key, .. } = &event.event {
            *completed.entry(key).or_default() += 1;
        }
    }
    for (key, times) in completed.iter().filter(|(_, times)| **times != 1) {
        wrong("a step is committed once", format!("`{key}` was completed {times} times"));
    }
    for step in &run.steps {
        let in_log = completed.contains_key(step.key.as_str());
        if in_log != (step.status == StepStatus::Completed) {
            wrong("a step is committed once", format!("`{}` is {:?}, in the log: {in_log}", step.key, step.status));
        }
        if !step.status.is_final() {
            wrong("every run ends", format!("`{}` is still {:?}", step.key, step.status));
        }
    }

    let last = run.events.iter().rev().find(|event| !matches!(event.event, Event::SignalReceived { .. }));
    let result: Option<&Value> = match last.map(|event| &event.event) {
        Some(Event::RunCompleted { result }) => Some(result),
        _ => None,
    };
    match run.record.status {
        RunStatus::Completed => {
            let is_right = result.is_some_and(|result| {
                *result == json!({ "sum": expected_sum(&name) }) || result["exhausted"].is_string()
            });
            if !is_right {
                wrong("every result is right", format!("{result:?} instead of the sum {}", expected_sum(&name)));
            }
            let all = keys(&name).iter().flatten().all(|key| completed.contains_key(key));
            if result.is_some_and(|result| result["exhausted"].is_null()) && !all {
                wrong("no step is lost", format!("only {:?} were completed", completed.keys()));
            }
        }
        RunStatus::Cancelled => {
            if !run.events.iter().any(|event| matches!(event.event, Event::RunCancelRequested { .. })) {
                wrong("every result is right", "it is cancelled without a request".to_owned());
            }
        }
        status => wrong("every run ends", format!("it is {}", status.as_str())),
    }
}
