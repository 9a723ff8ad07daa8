//! The runs of a campaign, sorted and filtered by the address.

use std::cmp::Ordering;

use leptos::prelude::*;
use nightshift_protocol::api::{RunSummary, TableName};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::run::RunStatus;

use crate::address::Address;
use crate::format::{speedup, when, words};
use crate::page::files;
use crate::page::run::stopped;
use crate::table::{self, Column, Sorting};

const COLUMNS: [Column; 6] = [
    Column::text("task", "Task"),
    Column::text("status", "Status"),
    Column::number("speedup", "Best speedup"),
    Column::number("attempts", "Attempts"),
    Column::text("activity", "Now, or why it ended"),
    Column::moment("finished", "Ended"),
];
const AS_ASKED: Sorting = Sorting { key: "task", descending: false };

pub(super) fn runs(address: &Address, campaign: &CampaignId, runs: &[RunSummary]) -> impl IntoView + use<> {
    let wanted = address.get("status").and_then(RunStatus::parse);
    let sorting = Sorting::of(address, &COLUMNS, AS_ASKED);
    let mut found: Vec<&RunSummary> =
        runs.iter().filter(|run| wanted.is_none_or(|status| run.status == status)).collect();
    found.sort_by(|a, b| sorting.directed(compare(sorting.key, a, b)));
    let shown = found.len();
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
        <h2 id="runs">"Runs"</h2>
        {(choices.len() > 2).then(|| table::chips(address, "status", "Runs by status", &choices))}
        <div class="scroll" tabindex="0">
            <table class="list">{table::head(address, &COLUMNS, sorting)}<tbody>{rows}</tbody></table>
        </div>
        {none}
        {files::links("Runs", TableName::Runs, table)}
        {files::links("Attempts", TableName::Attempts, [("campaign", campaign.as_str())])}
    }
}

fn row(run: &RunSummary) -> impl IntoView + use<> {
    let href = format!("/runs/{}", run.id);
    let best = run.digest.best_speedup.map_or_else(|| "none yet".to_owned(), speedup);
    let unconfirmed = (run.digest.best_speedup.is_some() && !run.digest.best_confirmed)
        .then(|| view! { <span class="tag">"not confirmed"</span> });
    view! {
        <tr data-row="" data-key=run.id.to_string()>
            <th scope="row"><a href=href>{run.digest.task.clone()}</a></th>
            <td><span class=format!("tag {}", run.status.as_str())>{words(run.status.as_str())}</span></td>
            <td class="number">{best}" "{unconfirmed}</td>
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

fn compare(key: &str, a: &RunSummary, b: &RunSummary) -> Ordering {
    // What was not measured is slower than everything that was.
    let best = |run: &RunSummary| run.digest.best_speedup.map_or(0.0, |interval| interval.estimate);
    let order = match key {
        "status" => a.status.as_str().cmp(b.status.as_str()),
        "speedup" => best(a).total_cmp(&best(b)),
        "attempts" => a.digest.attempts.cmp(&b.digest.attempts),
        "activity" => activity(a).cmp(&activity(b)),
        "finished" => a.finished_at.cmp(&b.finished_at),
        _ => Ordering::Equal,
    };
    order.then_with(|| a.digest.task.cmp(&b.digest.task))
}
