//! One campaign with its runs.

use leptos::prelude::*;
use nightshift_protocol::api::{CampaignDetail, RunSummary};

use crate::actions;
use crate::format::speedup;
use crate::shell::{Live, Page, Section, model_label};

/// The page.
pub(crate) fn page(detail: &CampaignDetail) -> Page {
    let summary = &detail.summary;
    let rows = detail.runs.iter().map(row).collect::<Vec<_>>();
    let live = if summary.runs.unfinished() > 0 { Live::Campaign(summary.id.to_string()) } else { Live::Still };
    Page::new(
        summary.name.clone(),
        view! {
            <h1>{summary.name.clone()}</h1>
            <p class="quiet">
                {summary.id.to_string()}" · replies: "{model_label(&summary.model, summary.scripted)}" · strategy: "
                {detail.spec.strategy.clone()}
            </p>
            {actions::of_campaign(summary)}
            <div class="scroll">
                <table>
                    <thead>
                        <tr>
                            <th>"Task"</th><th>"Status"</th><th>"Best speedup"</th><th class="number">"Attempts"</th>
                            <th>"Now, or why it ended"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        },
    )
    .section(Section::Campaigns)
    .crumb("Campaigns", "/")
    .live(live)
}

fn row(run: &RunSummary) -> impl IntoView + use<> {
    let href = format!("/runs/{}", run.id);
    let best = run.digest.best_speedup.map_or_else(|| "none yet".to_owned(), speedup);
    let unconfirmed = (run.digest.best_speedup.is_some() && !run.digest.best_confirmed)
        .then(|| view! { <span class="tag">"not confirmed"</span> });
    let ending = match (&run.failure, &run.digest.stop_reason) {
        (Some(failure), _) => failure.message.clone(),
        (None, Some(reason)) => reason.as_str().replace('_', " "),
        (None, None) => run.digest.activity.clone(),
    };
    view! {
        <tr>
            <td><a href=href>{run.digest.task.clone()}</a></td>
            <td><span class=format!("tag {}", run.status.as_str())>{run.status.as_str()}</span></td>
            <td>{best}" "{unconfirmed}</td>
            <td class="number">{run.digest.attempts}</td>
            <td class="quiet">{ending}</td>
        </tr>
    }
}
