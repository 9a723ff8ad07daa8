//! The plans of a run: the one in force, and what each version does differently from the one before it.

use leptos::prelude::*;
use nightshift_protocol::api::{Retrieval, RunDetail};
use nightshift_protocol::plan::PlanVersion;
use nightshift_protocol::plan_difference::{Change, PlanDifference, SubtaskChange};

use crate::format::words;
use crate::page::attempt::subtask_facts;
use crate::page::components::{Cell, folded, sentences, table};
use crate::page::retrieved;

/// The section.
pub(super) fn section(detail: &RunDetail, retrievals: &[Retrieval]) -> AnyView {
    let Some((newest, older)) = detail.view.plans.split_last() else {
        return view! { <p class="empty">"There is no plan yet. The Planner makes one from the reference and its profile."</p> }.into_any();
    };
    let changes = detail.plan_differences.iter().rev().map(difference).collect::<Vec<_>>();
    let older = older
        .iter()
        .rev()
        .map(|version| folded(format!("Version {}: {}", version.version, version.plan.summary), plan(version)))
        .collect::<Vec<_>>();
    let title = format!("Version {}, in force", newest.version);
    let changes = (!changes.is_empty()).then(|| view! { <h3>"Changes between versions"</h3>{changes} });
    let older = (!older.is_empty()).then(|| view! { <h3>"Earlier versions"</h3>{older} });
    let given = retrieved::given(retrievals, true);
    view! { <h3>{title}</h3>{plan(newest)}{changes}{older}{given} }.into_any()
}

fn plan(version: &PlanVersion) -> AnyView {
    let reason = version.reason.as_ref().map(|reason| view! { <p class="quiet">{format!("Made anew: {reason}")}</p> });
    let subtasks = version
        .plan
        .subtasks
        .iter()
        .enumerate()
        .map(|(index, subtask)| {
            let scope = subtask.scope.join(", ");
            let scope = if scope.is_empty() { scope } else { format!(" ({scope})") };
            folded(format!("{}. {}{scope}", index + 1, subtask.title), subtask_facts(subtask))
        })
        .collect::<Vec<_>>();
    let risks = (!version.plan.correctness_risks.is_empty())
        .then(|| view! { <p>"Correctness risks:"</p>{sentences(&version.plan.correctness_risks)} });
    view! { <p>{version.plan.summary.clone()}</p>{reason}{subtasks}{risks} }.into_any()
}

fn difference(difference: &PlanDifference) -> AnyView {
    let mut rows: Vec<Vec<Cell>> = difference.changes.iter().map(|change| row("the plan".to_owned(), change)).collect();
    for subtask in &difference.subtasks {
        match subtask {
            SubtaskChange::Added { number, title } => {
                rows.push(vec![
                    format!("subtask {number}").into(),
                    Cell::Tag("good".to_owned(), "new".to_owned()),
                    "".into(),
                    title.clone().into(),
                ]);
            }
            SubtaskChange::Removed { number, title } => {
                rows.push(vec![
                    format!("subtask {number} before").into(),
                    Cell::Tag("problem".to_owned(), "gone".to_owned()),
                    title.clone().into(),
                    "".into(),
                ]);
            }
            SubtaskChange::Changed { before, after, title, changes } => {
                if before != after {
                    let place = |number: &usize| Cell::from(format!("subtask {number}"));
                    rows.push(vec![title.clone().into(), "place".into(), place(before), place(after)]);
                }
                rows.extend(changes.iter().map(|change| row(format!("subtask {after}: {title}"), change)));
            }
        }
    }
    let title = format!("From version {} to {}", difference.from, difference.to);
    let shown = if rows.is_empty() {
        view! { <p class="quiet">"There are no differences."</p> }.into_any()
    } else {
        table(&["Of", "What", "Before", "After"], &rows)
    };
    view! { <h4>{title}</h4>{shown} }.into_any()
}

fn row(of: String, change: &Change) -> Vec<Cell> {
    vec![of.into(), words(&change.field).into(), change.before.clone().into(), change.after.clone().into()]
}
