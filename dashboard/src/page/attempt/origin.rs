//! The origin of an attempt: its parent, the requested change, and its tunable constants.

use leptos::prelude::*;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::plan::Subtask;
use nightshift_protocol::tune::{TuneReport, VariantOutcome};

use crate::chart::{Axis, Caption, IntervalMark, Unit, intervals, show};
use crate::format::words;
use crate::page::components::{Cell, artifact, facts, folded, milliseconds, sentences, table};

/// The section.
pub(super) fn section(detail: &RunDetail, attempt: &Attempt) -> AnyView {
    let link = |number: u32| Cell::Link(format!("./{number}"), format!("attempt {number}"));
    let version = detail.view.plans.iter().find(|plan| plan.version == attempt.plan_version);
    let place = usize::try_from(attempt.subtask).ok().and_then(|number| number.checked_sub(1));
    let subtask = version.zip(place).and_then(|(version, place)| version.plan.subtasks.get(place));
    let candidate = attempt.candidate.map(|candidate| {
        let group =
            candidate.group.map_or_else(String::new, |first| format!(", one prompt for all from attempt {first} on"));
        format!("{} of {} of its round{group}", candidate.number, candidate.of)
    });
    let sums = facts(&[
        ("Stage", words(attempt.stage.as_str()).into()),
        ("Derived from", attempt.parent.map_or_else(|| "nothing: it is the first".into(), link)),
        ("Plan", format!("version {}, subtask {}", attempt.plan_version, attempt.subtask).into()),
        ("Subtask", subtask.map(|subtask| subtask.title.clone()).into()),
        ("Candidate", candidate.into()),
    ]);
    let asked = attempt.modification.as_ref().map(|modification| {
        let asked = facts(&[
            ("Asked for", modification.text.clone().into()),
            ("To be made on", link(modification.from)),
            ("Advised by the diagnosis of", link(modification.diagnosed_on)),
            ("Expected gain", modification.expected_gain.map(|gain| show(gain, Unit::Times)).into()),
            ("Failed before in", modification.repeats.map_or_else(|| "".into(), link)),
            ("Asked for again because", modification.because.clone().into()),
        ]);
        view! { <h3>"The one change"</h3>{asked} }
    });
    let task = subtask.map(|subtask| folded("The subtask", subtask_facts(subtask)));
    view! { {sums}{asked}{task} }.into_any()
}

/// Everything that a plan says about a subtask.
pub(crate) fn subtask_facts(subtask: &Subtask) -> AnyView {
    let share = |share: f64| show(share, Unit::Share);
    let times = |times: f64| show(times, Unit::Times);
    let limits = subtask.limits.as_ref();
    let sums = facts(&[
        ("Title", subtask.title.clone().into()),
        ("Operators", subtask.scope.join(", ").into()),
        ("Fusion", subtask.fusion_boundary.clone().into()),
        ("Expected bottleneck", subtask.expected_bottleneck.clone().into()),
        ("Risk", subtask.risk.clone().into()),
        ("Target", subtask.target_speedup.map(times).into()),
        ("Share of the time", subtask.time_share.map(share).into()),
        ("Share known from", limits.map(|limits| limits.share_from.clone()).into()),
        ("Expected gain", subtask.expected_gain.map(times).into()),
        ("Whole program then", limits.and_then(|limits| limits.expected_speedup).map(times).into()),
        ("At most, by Amdahl", limits.and_then(|limits| limits.amdahl_speedup).map(times).into()),
        ("At most, by the roofline", limits.and_then(|limits| limits.roofline_speedup).map(times).into()),
        ("Which roof", limits.map(|limits| limits.roofline_by.clone()).into()),
        ("Target before the roofline held it down", limits.and_then(|limits| limits.wanted_target).map(times).into()),
    ]);
    let border = [("in", &subtask.contract.inputs), ("out", &subtask.contract.outputs)];
    let rows: Vec<Vec<Cell>> = border
        .into_iter()
        .flat_map(|(way, tensors)| tensors.iter().map(move |tensor| (way, tensor)))
        .map(|(way, tensor)| {
            vec![
                way.into(),
                Cell::Code(tensor.name.clone()),
                tensor.dtype.clone().into(),
                tensor.shape.join(" × ").into(),
                words(&tensor.layout).into(),
            ]
        })
        .collect();
    let border = table(&["", "Tensor", "Type", "Shape", "Layout"], &rows);
    let methods =
        (!subtask.methods.is_empty()).then(|| view! { <p>"Methods, best first:"</p>{sentences(&subtask.methods)} });
    view! { {sums}{border}{methods} }.into_any()
}

/// The search over its tunables; none when it has none.
pub(super) fn tuning(attempt: &Attempt) -> Option<AnyView> {
    if attempt.tunables.is_empty() && attempt.tuning.is_none() {
        return None;
    }
    let rows: Vec<Vec<Cell>> = attempt
        .tunables
        .iter()
        .map(|tunable| {
            let values = tunable.values.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
            let line = Cell::Link(format!("#L{}", tunable.line), format!("line {}", tunable.line));
            vec![Cell::Code(tunable.name.clone()), Cell::Number(tunable.value.to_string()), values.into(), line]
        })
        .collect();
    let declared = table(&["Tunable", "Value", "Of", "Where"], &rows);
    let searched = attempt.tuning.as_ref().map(searched);
    Some(view! { {declared}{searched} }.into_any())
}

fn searched(report: &TuneReport) -> AnyView {
    let sums = facts(&[
        ("Result", report.summary().into()),
        ("Variants there are", report.configurations.to_string().into()),
        ("Rounds of timing", report.rounds.to_string().into()),
        ("Ended because", report.end.describe().into()),
        ("Took", milliseconds(crate::chart::float_u64(report.wall_ms)).into()),
        ("The program as it was written", artifact(&report.declared)),
    ]);
    let class = |outcome: VariantOutcome| match outcome {
        VariantOutcome::Chosen | VariantOutcome::Kept => "kept",
        VariantOutcome::Slower | VariantOutcome::NotReached => "discarded",
        VariantOutcome::NotBuilt | VariantOutcome::Failed | VariantOutcome::Wrong => "failed",
    };
    let marks: Vec<IntervalMark> = report
        .variants
        .iter()
        .filter(|variant| variant.outcome != VariantOutcome::NotReached)
        .map(|variant| {
            let values = report.values_text(&variant.values);
            IntervalMark {
                name: variant.values.iter().map(i64::to_string).collect::<Vec<_>>().join(","),
                interval: variant.speedup.map(|speedup| (speedup.low, speedup.estimate, speedup.high)),
                class: class(variant.outcome),
                words: format!("{values}: {}", words(variant.outcome.as_str())),
                href: None,
            }
        })
        .collect();
    let caption =
        Caption::new("Variants", "Speedup over the baseline in the last round of each; what was not timed is a cross.");
    let drawn = intervals(&caption, "values", &Axis::log("speedup", Unit::Times), &marks, &[(1.0, "reference")]).view();
    let rows: Vec<Vec<Cell>> = report
        .variants
        .iter()
        .map(|variant| {
            vec![
                Cell::Code(report.values_text(&variant.values)),
                words(variant.outcome.as_str()).into(),
                Cell::Number(variant.rounds.to_string()),
                Cell::Number(variant.speedup.map_or_else(String::new, crate::format::speedup)),
                Cell::Quiet(variant.message.clone().unwrap_or_default()),
            ]
        })
        .collect();
    let all = folded("Every variant", table(&["Values", "Outcome", "Rounds", "Speedup", "Why"], &rows));
    view! { {sums}{drawn}{all} }.into_any()
}
