//! All campaigns: what is going on, and what came out.

use std::cmp::Ordering;

use axum::response::Response;
use leptos::prelude::*;
use nightshift_protocol::api::{CampaignSummary, RunCounts, TableName};

use crate::address::Address;
use crate::format::{count, counted, when};
use crate::meter;
use crate::page::files;
use crate::shell::{Live, Page, Section, model_label};
use crate::table::{self, Column, Sorting};
use crate::visitor::Visitor;

const COLUMNS: [Column; 6] = [
    Column::text("name", "Campaign"),
    Column::text("model", "Replies"),
    Column::number("progress", "Progress"),
    Column::number("running", "Running"),
    Column::number("failed", "Failed"),
    Column::moment("created", "Created"),
];
const NEWEST_FIRST: Sorting = Sorting { key: "created", descending: true };
/// Shows whether the filter is about runs that go on.
const SHOWN: &str = "show";

/// Campaigns of one page.
const PER_PAGE: u32 = 100;

/// `GET /`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = async {
        let address = Address::parse(&visitor.address);
        let found = visitor.client.campaigns(Some(PER_PAGE), address.get("before")).await?;
        Ok(page(&address, &found.items, found.next.as_deref()))
    };
    visitor.answer(page.await)
}

/// The list. `next` is the cursor of older ones.
fn page(address: &Address, campaigns: &[CampaignSummary], next: Option<&str>) -> Page {
    let live = campaigns.iter().any(|campaign| campaign.runs.unfinished() > 0);
    let sorting = Sorting::of(address, &COLUMNS, NEWEST_FIRST);
    let mut found: Vec<&CampaignSummary> = campaigns.iter().filter(|campaign| fits(address, campaign)).collect();
    found.sort_by(|a, b| sorting.directed(compare(sorting.key, a, b)));
    let content = if campaigns.is_empty() && address.get("before").is_none() {
        nothing_yet().into_any()
    } else {
        let rows = found.iter().map(|campaign| row(campaign)).collect::<Vec<_>>();
        let none = rows.is_empty().then(|| {
            view! { <p class="empty">"No campaign of this page fits the filter. "<a href="/">"Show all"</a></p> }
        });
        view! {
            {filters(address, campaigns)}
            <div class="scroll" tabindex="0">
                <table class="list">{table::head(address, &COLUMNS, sorting)}<tbody>{rows}</tbody></table>
            </div>
            {none}
            {pages(address, campaigns.len(), next)}
            {files::links("Campaigns", TableName::Campaigns, files::kept(address, &["q", SHOWN]))}
        }
        .into_any()
    };
    Page::new("Campaigns", view! { <h1>"Campaigns"</h1>{content} })
        .section(Section::Campaigns)
        .live(if live || campaigns.is_empty() { Live::Everything } else { Live::Still })
}

fn nothing_yet() -> impl IntoView {
    view! {
        <section class="empty">
            <h2>"No campaign yet"</h2>
            <p>"Watch one from beginning to end, without a GPU and without a model: "<code>"nightshift demo"</code></p>
            <p>"Or make a task of your own faster: "<code>"nightshift run TASK --model PROVIDER/NAME"</code></p>
        </section>
    }
}

fn filters(address: &Address, campaigns: &[CampaignSummary]) -> impl IntoView + use<> {
    let of = |shown: &str| campaigns.iter().filter(|campaign| is_shown(shown, &campaign.runs)).count();
    let choices =
        [("", "All", of("")), ("unfinished", "Going on", of("unfinished")), ("failed", "With failures", of("failed"))];
    let choices = choices.map(|(value, label, number)| (value, format!("{label} {number}")));
    let kept = ["show", "sort", "order"].into_iter().filter_map(|name| Some((name, address.get(name)?.to_owned())));
    let kept = kept.map(|(name, value)| view! { <input type="hidden" name=name value=value /> }).collect::<Vec<_>>();
    view! {
        <form class="filters" method="get" action="/" role="search">
            {kept}
            <label>
                "Name or model"
                <input type="search" name="q" data-search="" value=address.get("q").unwrap_or_default().to_owned() />
            </label>
            <button>"Filter"</button>
            {table::chips(address, SHOWN, "Which campaigns", &choices)}
        </form>
    }
}

fn row(campaign: &CampaignSummary) -> impl IntoView + use<> {
    let href = format!("/campaigns/{}", campaign.id);
    let runs = campaign.runs;
    let over = runs.total() - runs.unfinished();
    let failed_class = if runs.failed > 0 { "number problem" } else { "number" };
    view! {
        <tr data-row="" data-key=campaign.id.to_string()>
            <th scope="row">
                <a href=href>{campaign.name.clone()}</a>" "
                <span class="quiet">{campaign.id.short().to_owned()}</span>
            </th>
            <td>{model_label(&campaign.model, campaign.scripted)}</td>
            <td class="number progress">
                {format!("{} of {}", count(over), count(runs.total()))}
                {meter::meter(over, 0, runs.total(), "runs that are over")}
            </td>
            <td class="number">{count(runs.unfinished())}</td>
            <td class=failed_class>{count(runs.failed)}</td>
            <td>{when(campaign.created_at)}</td>
        </tr>
    }
}

fn pages(address: &Address, shown: usize, next: Option<&str>) -> impl IntoView + use<> {
    let first = address.get("before").is_some().then(|| address.with("before", None).href());
    let older = next.map(|cursor| address.with("before", Some(cursor)).href());
    let is_part = first.is_some() || older.is_some();
    let shown = counted(u64::try_from(shown).unwrap_or(u64::MAX), "campaign", "campaigns");
    let words = if is_part { format!("{shown} on this page") } else { shown };
    view! {
        <nav class="pages" aria-label="Pages">
            <span class="quiet">{words}</span>
            {first.map(|href| view! { <a href=href>"Newest"</a> })}
            {older.map(|href| view! { <a rel="next" href=href>"Older"</a> })}
        </nav>
    }
}

fn fits(address: &Address, campaign: &CampaignSummary) -> bool {
    let text = address.get("q").unwrap_or_default().to_lowercase();
    let has_text = [campaign.name.as_str(), campaign.model.as_str(), campaign.id.as_str()]
        .iter()
        .any(|part| part.to_lowercase().contains(&text));
    has_text && is_shown(address.get(SHOWN).unwrap_or_default(), &campaign.runs)
}

fn is_shown(shown: &str, runs: &RunCounts) -> bool {
    match shown {
        "unfinished" => runs.unfinished() > 0,
        "failed" => runs.failed > 0,
        _ => true,
    }
}

fn compare(key: &str, a: &CampaignSummary, b: &CampaignSummary) -> Ordering {
    // As a fraction without rounding: a / b < c / d where a * d < c * b.
    let share = |runs: &RunCounts| (runs.total() - runs.unfinished(), runs.total().max(1));
    match key {
        "name" => a.name.cmp(&b.name),
        "model" => a.model.cmp(&b.model),
        "progress" => {
            let ((a_over, a_all), (b_over, b_all)) = (share(&a.runs), share(&b.runs));
            a_over.saturating_mul(b_all).cmp(&b_over.saturating_mul(a_all))
        }
        "running" => a.runs.unfinished().cmp(&b.runs.unfinished()),
        "failed" => a.runs.failed.cmp(&b.runs.failed),
        _ => a.created_at.cmp(&b.created_at),
    }
}
