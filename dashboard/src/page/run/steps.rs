//! The steps of a run: who did what when.

use leptos::prelude::*;
use nightshift_protocol::api::{RunDetail, StepView, TableName};
use nightshift_protocol::machine::Executor;
use nightshift_protocol::step::StepKind;
use nightshift_protocol::time::TimestampMs;

use crate::chart::{Caption, Task, float_u64, waterfall};
use crate::format::{moment, words};
use crate::page::components::{Cell, folded, milliseconds as duration, table};
use crate::page::files;

const KINDS: [(&str, &str); 5] = [
    ("step-agent", "agents"),
    ("step-build", "prepare and build"),
    ("step-check", "check and sanitize"),
    ("step-measure", "tune and measure"),
    ("step-profile", "profile"),
];

/// The section.
pub(super) fn section(detail: &RunDetail, steps: &[StepView]) -> AnyView {
    if steps.is_empty() {
        let said = if detail.summary.status.is_final() {
            "No step of this run is kept."
        } else {
            "No step was scheduled yet."
        };
        return view! { <p class="empty">{said}</p> }.into_any();
    }
    let last = steps.iter().filter_map(|step| step.finished_at.or(step.started_at)).max();
    let tasks: Vec<Task> = steps
        .iter()
        .filter_map(|step| {
            let began = step.started_at?;
            // What is still being carried out is drawn up to the latest moment that is known.
            let ended = step.finished_at.or(last).unwrap_or(began);
            Some(Task {
                lane: lane(step),
                name: step.key.clone(),
                class: class(step.kind),
                wanted_ms: milliseconds(step.scheduled_at.0),
                begin_ms: milliseconds(began.0),
                end_ms: milliseconds(ended.0.max(began.0)),
                href: attempt_of(&step.key).map(|number| format!("/runs/{}/attempts/{number}", detail.summary.id)),
            })
        })
        .collect();
    let caption = Caption::new(
        "Steps by worker",
        "Bars are the last try of each step; thin lines before them are the time that it waited.",
    );
    let drawn = waterfall(&caption, &KINDS, &tasks).view();
    let rows: Vec<Vec<Cell>> = steps.iter().rev().map(row).collect();
    let head = ["Step", "Kind", "Status", "Tries", "Worker", "Scheduled", "Waited", "Took", "Waits for"];
    let all = folded(format!("Every step ({})", steps.len()), table(&head, &rows));
    let run = detail.summary.id.as_str();
    let as_files = [("Steps", TableName::Steps), ("Log", TableName::Events)];
    let as_files = as_files.map(|(name, table)| files::links(name, table, [("run", run)]));
    let as_files = as_files.into_iter().collect::<Vec<_>>();
    view! { {drawn}{all}{as_files} }.into_any()
}

/// Who carried it out: what they are, and the end of their id, by which people tell them apart.
fn lane(step: &StepView) -> String {
    let who = if step.kind.executor() == Executor::Agent { "server" } else { "worker" };
    let id = step.worker.as_ref().map(ToString::to_string).unwrap_or_default();
    let end = id.get(id.len().saturating_sub(6)..).unwrap_or_default();
    if end.is_empty() { who.to_owned() } else { format!("{who} …{end}") }
}

fn class(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Plan | StepKind::Replan | StepKind::WriteCode | StepKind::Diagnose | StepKind::Judge => "step-agent",
        StepKind::PrepareTask | StepKind::Build => "step-build",
        StepKind::Check | StepKind::Sanitize => "step-check",
        StepKind::Tune | StepKind::Measure => "step-measure",
        StepKind::Profile => "step-profile",
    }
}

/// The attempt in a step's key, `subtask1/attempt3/build`.
fn attempt_of(key: &str) -> Option<u32> {
    key.split('/').find_map(|part| part.strip_prefix("attempt"))?.parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "moments in milliseconds are far below 2^52")]
fn milliseconds(moment_ms: i64) -> f64 {
    moment_ms as f64
}

fn row(step: &StepView) -> Vec<Cell> {
    let between = |from: Option<TimestampMs>, to: Option<TimestampMs>| {
        Cell::Number(from.zip(to).map_or_else(String::new, |(from, to)| duration(float_u64(to.since_ms(from)))))
    };
    let why = step.waiting_for.clone().or_else(|| step.failure.as_ref().map(|failure| failure.message.clone()));
    vec![
        Cell::Code(step.key.clone()),
        words(step.kind.as_str()).into(),
        Cell::Tag(step.status.as_str().to_owned(), words(step.status.as_str())),
        Cell::Number(step.tries.to_string()),
        step.worker.as_ref().map(ToString::to_string).into(),
        Cell::Quiet(moment(step.scheduled_at)),
        between(Some(step.scheduled_at), step.started_at),
        between(step.started_at, step.finished_at),
        Cell::Quiet(why.unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::attempt_of;

    #[test]
    fn a_steps_key_names_its_attempt() {
        assert_eq!(attempt_of("subtask1/attempt12/build"), Some(12));
        assert_eq!(attempt_of("prepare_task"), None);
        assert_eq!(attempt_of("attemptx/build"), None);
    }
}
