//! The tasks of a campaign with their times and speedups, sorted and filtered by the address.

use std::cmp::Ordering;

use leptos::prelude::*;
use nightshift_protocol::api::{RunSummary, TableName};
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::run::RunStatus;

use super::outcome::Outcome;
use crate::address::Address;
use crate::chart::{Unit, show};
use crate::format::{when, words};
use crate::page::components::stacked;
use crate::page::files;
use crate::page::run::stopped;
use crate::table::{self, Column, Sorting};

const COLUMNS: [Column; 11] = [
    Column::text("task", "Task"),
    Column::text("status", "Status"),
    Column::number("reference", "Reference"),
    Column::number("best", "Best"),
    Column::number("baseline", "Fastest baseline"),
    Column::number("speedup", "Over the reference"),
    Column::number("fastest", "Over the fastest"),
    Column::number("roofline", "Roofline"),
    Column::number("attempts", "Attempts"),
    Column::text("activity", "Now, or why it ended"),
    Column::moment("finished", "Ended"),
];
const AS_ASKED: Sorting = Sorting { key: "task", descending: false };

type Row<'a> = (&'a RunSummary, &'a Outcome);

/// The table; `outcomes` are those of the runs, in their order.
pub(super) fn runs(
    address: &Address,
    campaign: &CampaignId,
    runs: &[RunSummary],
    outcomes: &[Outcome],
) -> impl IntoView + use<> {
    let wanted = address.get("status").and_then(RunStatus::parse);
    let sorting = Sorting::of(address, &COLUMNS, AS_ASKED);
    let mut found: Vec<Row<'_>> =
        runs.iter().zip(outcomes).filter(|(run, _)| wanted.is_none_or(|status| run.status == status)).collect();
    found.sort_by(|a, b| compare(sorting, *a, *b));
    let shown = found.len();
    let is_computed = outcomes.iter().any(|outcome| outcome.is_computed && outcome.best_ns.is_some());
    let computed = is_computed.then(|| {
        view! { <p class="quiet">"≈: computed from the speedup and the time of the fastest baseline. The page of the attempt has the measured times."</p> }
    });
    let rows = found.into_iter().map(row).collect::<Vec<_>>();
    let mut choices = vec![("", format!("All {}", runs.len()))];
    choices.extend(RunStatus::ALL.into_iter().filter_map(|status| {
        let number = runs.iter().filter(|run| run.status == status).count();
        (number > 0).then(|| (status.as_str(), format!("{} {number}", words(status.as_str()))))
    }));
    let mut table = vec![("campaign", campaign.as_str())];
    table.extend(wanted.map(|status| ("status", status.as_str())));
    let none = (shown == 0).then(|| view! { <p class="empty">"No run of this campaign has this status now."</p> });
    view! {
        <h2 id="runs">"Tasks"</h2>
        {(choices.len() > 2).then(|| table::chips(address, "status", "Runs by status", &choices))}
        <div class="scroll" tabindex="0">
            <table class="list tasks">{table::head(address, &COLUMNS, sorting)}<tbody>{rows}</tbody></table>
        </div>
        {none}{computed}
        {files::links("Runs", TableName::Runs, table)}
        {files::links("Attempts", TableName::Attempts, [("campaign", campaign.as_str())])}
    }
}

fn row((run, outcome): Row<'_>) -> impl IntoView + use<> {
    let href = format!("/runs/{}", run.id);
    let best = run.digest.best_speedup.map_or_else(|| "none yet".into_any(), stacked);
    let time = |ns: Option<f64>| {
        let about = if outcome.is_computed { "≈ " } else { "" };
        ns.map(|ns| format!("{about}{}", show(ns, Unit::Nanoseconds)))
    };
    let fastest = outcome.fastest.map(|fastest| {
        // The time of the reference has its own column.
        let time = (fastest.kind != BaselineKind::Reference).then(|| show(fastest.median_ns, Unit::Nanoseconds));
        view! { {time}<span class="range">{fastest.label_with_limits()}</span> }
    });
    let unconfirmed = (run.digest.best_speedup.is_some() && !run.digest.best_confirmed)
        .then(|| view! { <span class="tag">"not confirmed"</span> });
    let policy = run.digest.precision.filter(|policy| !policy.is_default());
    let policy = policy.map(|policy| view! { <span class="tag" title="Precision policy">{policy.as_str()}</span> });
    view! {
        <tr data-row="" data-key=run.id.to_string()>
            <th scope="row"><a href=href title=run.digest.task.clone()>{run.digest.task.clone()}</a>" "{policy}</th>
            <td><span class=format!("tag {}", run.status.as_str())>{words(run.status.as_str())}</span></td>
            <td class="number">{time(outcome.reference_ns)}</td>
            <td class="number">{time(outcome.best_ns)}</td>
            <td class="number">{fastest}</td>
            <td class="number">{best}" "{unconfirmed}</td>
            <td class="number">{outcome.over_fastest.map(stacked)}</td>
            <td class="number">{outcome.roofline_share.map(|share| show(share, Unit::Share))}</td>
            <td class="number">{run.digest.attempts}</td>
            <td class="quiet">{activity(run)}</td>
            <td>{run.finished_at.map(when)}</td>
        </tr>
    }
}

/// Why it failed, why it ended, or what it does.
fn activity(run: &RunSummary) -> String {
    match (&run.failure, &run.digest.stop_reason) {
        (Some(failure), _) => failure.message.clone(),
        (None, Some(reason)) => stopped(reason),
        (None, None) => run.digest.activity.clone(),
    }
}

fn compare(sorting: Sorting, (a, of_a): Row<'_>, (b, of_b): Row<'_>) -> Ordering {
    let best = |run: &RunSummary| run.digest.best_speedup.map(|interval| interval.estimate);
    let by = |value: fn(&Outcome) -> Option<f64>| sorting.numbers(value(of_a), value(of_b));
    let order = match sorting.key {
        "reference" => by(|outcome| outcome.reference_ns),
        "best" => by(|outcome| outcome.best_ns),
        "baseline" => by(|outcome| Some(outcome.fastest?.median_ns)),
        "fastest" => by(|outcome| Some(outcome.over_fastest?.estimate)),
        "roofline" => by(|outcome| outcome.roofline_share),
        "speedup" => sorting.numbers(best(a), best(b)),
        "status" => sorting.directed(a.status.as_str().cmp(b.status.as_str())),
        "attempts" => sorting.directed(a.digest.attempts.cmp(&b.digest.attempts)),
        "activity" => sorting.directed(activity(a).cmp(&activity(b))),
        "finished" => sorting.directed(a.finished_at.cmp(&b.finished_at)),
        _ => Ordering::Equal,
    };
    order.then_with(|| sorting.directed(a.digest.task.cmp(&b.digest.task)))
}
