//! What can be downloaded, and the steps that made it.

use leptos::prelude::*;
use nightshift_protocol::api::{RunDetail, StepView};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::machine::Executor;

use super::material::Material;
use crate::chart::float_u64;
use crate::format::{moment, words};
use crate::page::components::{Cell, artifact_href, milliseconds, table};

/// The section.
pub(super) fn section(detail: &RunDetail, attempt: &Attempt, material: &Material) -> AnyView {
    let build = attempt.build.as_ref();
    let profile = attempt.profile.as_ref();
    let named: [(&str, Option<&ArtifactHash>); 8] = [
        ("Source", attempt.source.as_ref()),
        ("Source before tuning", attempt.tuning.as_ref().map(|report| &report.declared)),
        ("Library", build.and_then(|build| build.library.as_ref())),
        ("Compiler output", build.map(|build| &build.log)),
        ("Sanitizer output", attempt.sanitize.as_ref().and_then(|report| report.log.as_ref())),
        ("Trace as it was stored", profile.and_then(|profile| profile.trace.as_ref())),
        ("Task", Some(&detail.view.task)),
        ("Reference, built", detail.view.prepared.as_ref().map(|prepared| &prepared.reference_library)),
    ];
    let mut rows: Vec<Vec<Cell>> =
        named.into_iter().filter_map(|(name, hash)| Some(row(name.to_owned(), hash?))).collect();
    for call in &attempt.calls {
        let role = call.role.map_or("model", |role| role.as_str());
        rows.push(row(format!("Prompt of the {role}, turn {}", call.turn), &call.prompt));
        if let Some(reasoning) = &call.reasoning {
            rows.push(row(format!("Reasoning for the {role}, turn {}", call.turn), reasoning));
        }
        rows.push(row(format!("Reply to the {role}, turn {}", call.turn), &call.reply));
    }
    let artifacts = table(&["Artifact", "blake3"], &rows);
    let steps: Vec<Vec<Cell>> = material
        .steps
        .iter()
        .map(|step| {
            let took = step.started_at.zip(step.finished_at);
            let took = took.map(|(begin, end)| milliseconds(float_u64(end.since_ms(begin))));
            let why = step.waiting_for.clone().or_else(|| step.failure.as_ref().map(|failure| failure.message.clone()));
            vec![
                Cell::Code(step.key.clone()),
                Cell::Tag(step.status.as_str().to_owned(), words(step.status.as_str())),
                Cell::Number(step.tries.to_string()),
                who(step).into(),
                Cell::Quiet(moment(step.scheduled_at)),
                Cell::Number(took.unwrap_or_default()),
                Cell::Quiet(why.unwrap_or_default()),
            ]
        })
        .collect();
    let steps = (!steps.is_empty()).then(|| {
        let steps = table(&["Step", "Status", "Tries", "Worker", "Scheduled", "Took", "Waits for"], &steps);
        view! { <h3 id="steps">"Steps"</h3>{steps} }
    });
    view! { {artifacts}{steps} }.into_any()
}

/// Who carries it out, as far as that is known.
fn who(step: &StepView) -> String {
    match &step.worker {
        Some(worker) => worker.to_string(),
        None if step.kind.executor() == Executor::Agent => "server".to_owned(),
        None => "no worker yet".to_owned(),
    }
}

fn row(name: String, hash: &ArtifactHash) -> Vec<Cell> {
    vec![Cell::Link(artifact_href(hash), name), Cell::Code(hash.to_string())]
}
