//! What the processes wrote down, against what the database says.

use std::collections::BTreeMap;

use nightshift_protocol::run::StepStatus;

use super::Books;
use crate::storm::violation::Violation;
use crate::toy::{Line, What};

pub(super) fn check(books: &Books, violations: &mut Vec<Violation>) {
    let mut by_step: BTreeMap<(&str, &str), Vec<&Line>> = BTreeMap::new();
    for line in &books.lines {
        by_step.entry((&line.run, &line.key)).or_default().push(line);
    }
    for ((run, key), lines) in &by_step {
        leases(run, key, lines, violations);
        calls(run, key, lines, violations);
    }
    for run in books.runs.values() {
        for step in run.steps.iter().filter(|step| step.status == StepStatus::Completed && step.key != "code") {
            let id = run.record.id.to_string();
            let lines = by_step.get(&(id.as_str(), step.key.as_str())).map(Vec::as_slice).unwrap_or_default();
            if !lines.iter().any(|line| line.what == What::Done && line.epoch == Some(step.epoch)) {
                let told = format!("{id} `{}` is completed under epoch {}, but no worker did it", step.key, step.epoch);
                violations.push(Violation::new("only the last lease commits", told));
            }
            if let Some(line) = lines.iter().find(|line| line.epoch > Some(step.epoch)) {
                let told =
                    format!("{id} `{}` was completed under epoch {} and leased again: {line:?}", step.key, step.epoch);
                violations.push(Violation::new("only the last lease commits", told));
            }
        }
    }
    devices(&books.lines, violations);
}

/// No lease was given twice.
fn leases(run: &str, key: &str, lines: &[&Line], violations: &mut Vec<Violation>) {
    let mut begun: BTreeMap<u64, u32> = BTreeMap::new();
    for epoch in lines.iter().filter(|line| line.what == What::Begin).filter_map(|line| line.epoch) {
        *begun.entry(epoch).or_default() += 1;
    }
    for (epoch, times) in begun.iter().filter(|(_, times)| **times > 1) {
        let told = format!("{run} `{key}` was begun {times} times under epoch {epoch}");
        violations.push(Violation::new("a lease has one holder", told));
    }
}

/// Checks that no answer is paid again that was committed before the last look for it. A try that lost its lease may
/// still commit between that look and the call; such calls are allowed.
fn calls(run: &str, key: &str, lines: &[&Line], violations: &mut Vec<Violation>) {
    let committed = lines.iter().find(|line| line.what == What::CallCommitted);
    let Some(committed) = committed else { return };
    if let Some(again) =
        lines.iter().find(|line| line.what == What::CallAsked && line.looked_us > Some(committed.at_us))
    {
        let told = format!("{run} `{key}`: the model was asked again: {committed:?}, {again:?}");
        violations.push(Violation::new("an answered call is not paid again", told));
    }
}

/// Who has a device alone has it alone. A process that was killed left no end: then its device went with it.
fn devices(lines: &[Line], violations: &mut Vec<Violation>) {
    let mut on: BTreeMap<(u32, u32), Vec<&Line>> = BTreeMap::new();
    for line in lines {
        let Some(device) = line.device else { continue };
        let there = on.entry((line.process, device)).or_default();
        if line.what != What::Begin {
            there.retain(|begun| (&begun.run, &begun.key, begun.epoch) != (&line.run, &line.key, line.epoch));
            continue;
        }
        if let Some(other) = there.iter().find(|other| other.exclusive || line.exclusive) {
            let told = format!("{line:?} began beside {other:?}");
            violations.push(Violation::new("an exclusive device has one user", told));
        }
        there.push(line);
    }
}

/// Longest time between two ends, in milliseconds.
pub(super) fn longest_pause_ms(lines: &[Line]) -> i64 {
    let ends: Vec<i64> = lines.iter().filter(|line| line.what == What::Done).map(|line| line.at_us).collect();
    ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default() / 1_000
}
