//! All campaigns, newest first.

use leptos::prelude::*;
use nightshift_protocol::api::CampaignSummary;

use crate::format::moment;
use crate::shell::{Live, Page, Section, model_label};

/// The list.
pub(crate) fn page(campaigns: &[CampaignSummary], has_more: bool) -> Page {
    let live = campaigns.iter().any(|campaign| campaign.runs.unfinished() > 0);
    let rows = campaigns.iter().map(row).collect::<Vec<_>>();
    let empty = campaigns.is_empty().then(|| {
        view! {
            <p class="empty">
                "No campaign yet. Start one with "<code>"nightshift demo"</code>" or "
                <code>"nightshift run TASK --model PROVIDER/NAME"</code>"."
            </p>
        }
    });
    let more = has_more.then(|| {
        view! { <p class="quiet">"Older campaigns are listed by "<code>"nightshift list campaigns"</code>"."</p> }
    });
    Page::new(
        "Campaigns",
        view! {
            <h1>"Campaigns"</h1>
            {empty}
            <div class="scroll">
                <table>
                    <thead>
                        <tr>
                            <th>"Campaign"</th><th>"Replies"</th><th class="number">"Running"</th>
                            <th class="number">"Completed"</th><th class="number">"Failed"</th><th>"Created"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
            {more}
        },
    )
    .section(Section::Campaigns)
    .live(if live { Live::Everything } else { Live::Still })
}

fn row(campaign: &CampaignSummary) -> impl IntoView + use<> {
    let href = format!("/campaigns/{}", campaign.id);
    let counts = campaign.runs;
    view! {
        <tr>
            <td><a href=href>{campaign.name.clone()}</a>" "<span class="quiet">{campaign.id.short().to_owned()}</span></td>
            <td>{model_label(&campaign.model, campaign.scripted)}</td>
            <td class="number">{counts.unfinished()}</td>
            <td class="number">{counts.completed}</td>
            <td class="number">{counts.failed + counts.cancelled}</td>
            <td class="quiet">{moment(campaign.created_at)}</td>
        </tr>
    }
}
