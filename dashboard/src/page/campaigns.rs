//! The list of campaigns: active ones and results.

mod kept;

use axum::response::Response;
use futures::future::try_join3;
use leptos::prelude::*;
use nightshift_protocol::api::{
    CampaignPage, CampaignQuery, CampaignSort, CampaignState, CampaignSummary, SortOrder, TableName,
};
use nightshift_protocol::time::TimestampMs;

use self::kept::Kept;
use crate::address::Address;
use crate::failure::PageError;
use crate::form;
use crate::format::{count, counted, dollars, milliseconds, when};
use crate::meter;
use crate::page::components::times;
use crate::page::files;
use crate::shell::{Live, Page, Section, model_label};
use crate::table::{self, Column, Sorting};
use crate::visitor::Visitor;

const COLUMNS: [Column; 11] = [
    Column::text("name", "Campaign"),
    Column::plain("Target"),
    Column::text("model", "Replies"),
    Column::number("progress", "Progress"),
    Column::number("running", "Unfinished"),
    Column::number("failed", "Failed"),
    Column::number("speedup", "Best over the reference"),
    Column::number("speedup_over_fastest", "Over the fastest"),
    Column::number("cost", "Cost"),
    Column::number("duration", "Duration"),
    Column::moment("created", "Created"),
];
const NEWEST_FIRST: Sorting = Sorting { key: "created", descending: true };

/// Campaigns of one page.
const PER_PAGE: u32 = 100;

/// `GET /`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let address = Address::parse(&visitor.address);
    let sorting = Sorting::of(&address, &COLUMNS, NEWEST_FIRST);
    let query = query(&address, sorting)?;
    let client = &visitor.client;
    // Pinned objects are shown only above the unfiltered list.
    let kept = Kept::read(client, &address, !is_filtered(&address));
    let (found, kept, health) = try_join3(client.campaign_page(&query), kept, client.health()).await?;
    Ok(page(&address, sorting, &found, &kept, health.now))
}

/// Returns the query of the API.
fn query(address: &Address, sorting: Sorting) -> Result<CampaignQuery, PageError> {
    let asked = address.pairs().filter(|(name, value)| !value.is_empty() && !matches!(*name, "sort" | "order" | "tag"));
    let query = CampaignQuery::from_pairs(asked).map_err(|error| PageError::bad_query(&error.to_string()))?;
    let order = if sorting.descending { SortOrder::Desc } else { SortOrder::Asc };
    let sort = CampaignSort::parse(sorting.key).unwrap_or_default();
    Ok(CampaignQuery { sort, order, limit: Some(PER_PAGE), ..query })
}

fn is_filtered(address: &Address) -> bool {
    ["q", "name", "status", "before"].iter().any(|name| address.get(name).is_some())
}

fn page(address: &Address, sorting: Sorting, found: &CampaignPage, kept: &Kept, now: TimestampMs) -> Page {
    let content = if found.items.is_empty() && !is_filtered(address) {
        nothing_yet().into_any()
    } else {
        let rows = found.items.iter().map(|campaign| row(campaign, now)).collect::<Vec<_>>();
        let none = rows.is_empty().then(|| {
            view! { <p class="empty">"No campaign fits the filter. "<a href="/">"Show all"</a></p> }
        });
        view! {
            {kept::view(kept)}
            {filters(address, found)}
            <div class="scroll" tabindex="0">
                <table class="list campaigns">{table::head(address, &COLUMNS, sorting)}<tbody>{rows}</tbody></table>
            </div>
            {none}
            {pages(address, found)}
            {files::links("Campaigns", TableName::Campaigns, files::kept(address, &["q", "name", "status", "sort", "order"]))}
        }
        .into_any()
    };
    Page::new("Campaigns", view! { <h1>"Campaigns"</h1>{content} })
        .section(Section::Campaigns)
        .list()
        // Without active campaigns, a new one may begin, so the page stays live.
        .live(Live::Everything)
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

fn filters(address: &Address, found: &CampaignPage) -> impl IntoView + use<> {
    let of = |state: CampaignState| {
        found.by_status.iter().find(|facet| facet.value == state.as_str()).map_or(0, |facet| facet.count)
    };
    let states = [
        (CampaignState::Unfinished, "Active"),
        (CampaignState::Finished, "Finished"),
        (CampaignState::Failed, "With failures"),
        (CampaignState::Paused, "With paused runs"),
    ];
    let mut choices = vec![("", format!("All {}", count(found.any_status)))];
    choices.extend(states.map(|(state, label)| (state.as_str(), format!("{label} {}", count(of(state))))));
    let kept = form::kept(address, &["status", "name", "sort", "order"]);
    let only = address.get("name").map(|name| {
        let href = address.with("name", None).with("before", None).href();
        view! { <p>"Only campaigns with the name "<strong>{name.to_owned()}</strong>" "<a href=href>"any name"</a></p> }
    });
    view! {
        <form class="filters" method="get" action="/" role="search">
            {kept}
            <label>
                "Name, model or id"
                <input type="search" name="q" data-search="" value=address.get("q").unwrap_or_default().to_owned() />
            </label>
            <button>"Filter"</button>
            {table::chips(address, "status", "Which campaigns", &choices)}
        </form>
        {only}
    }
}

fn targets(campaign: &CampaignSummary) -> String {
    let names: Vec<&str> = campaign.targets.iter().map(|target| target.as_str()).collect();
    if names.is_empty() { "–".to_owned() } else { names.join(", ") }
}

/// Formats the cost of model calls; a lower bound if some prices are unknown. Replies from files cost nothing.
fn cost(campaign: &CampaignSummary) -> String {
    match campaign.cost_usd {
        _ if campaign.scripted => "–".to_owned(),
        None => "–".to_owned(),
        Some(cost) if campaign.unpriced_attempts == 0 => dollars(cost, false),
        Some(cost) if cost > 0.0 => format!("at least {}", dollars(cost, false)),
        Some(_) => "not known".to_owned(),
    }
}

/// Shows the geometric mean of a campaign and the number of runs that it is over, in a line of its own.
fn mean(mean: Option<f64>, solved: u64, runs: u64) -> Option<AnyView> {
    // An older server does not give the number.
    let of_runs = if solved == 0 { String::new() } else { format!(" ({solved} of {runs})") };
    mean.map(|mean| view! { <span class="range">{format!("mean {mean:.2}×{of_runs}")}</span> }.into_any())
}

fn row(campaign: &CampaignSummary, now: TimestampMs) -> impl IntoView + use<> {
    let end = campaign.ended_at.unwrap_or(now);
    let href = format!("/campaigns/{}", campaign.id);
    let runs = campaign.runs;
    let over = runs.total() - runs.unfinished();
    let failed_class = if runs.failed > 0 { "number problem" } else { "number" };
    view! {
        <tr data-row="" data-key=campaign.id.to_string()>
            <th scope="row">
                <a href=href title=campaign.name.clone()>{campaign.name.clone()}</a>" "
                <span class="quiet">{campaign.id.short().to_owned()}</span>
            </th>
            <td>{targets(campaign)}</td>
            <td>{model_label(&campaign.model, campaign.scripted)}</td>
            <td class="number progress">
                {format!("{} of {}", count(over), count(runs.total()))}
                {meter::meter(over, 0, runs.total(), "runs that are over")}
            </td>
            <td class="number">{count(runs.unfinished())}</td>
            <td class=failed_class>{count(runs.failed)}</td>
            <td class="number">{times(campaign.best_speedup)}{mean(campaign.geometric_mean, campaign.solved, runs.total())}</td>
            <td class="number">
                {times(campaign.best_speedup_over_fastest)}{mean(campaign.geometric_mean_over_fastest, campaign.solved_over_fastest, runs.total())}
            </td>
            <td class="number">{cost(campaign)}</td>
            <td class="number">{milliseconds(end.since_ms(campaign.created_at))}</td>
            <td>{when(campaign.created_at)}</td>
        </tr>
    }
}

fn pages(address: &Address, found: &CampaignPage) -> impl IntoView + use<> {
    let first = address.get("before").is_some().then(|| address.with("before", None).href());
    let further = found.next.as_deref().map(|cursor| address.with("before", Some(cursor)).href());
    let total = counted(found.total, "campaign", "campaigns");
    let shown = u64::try_from(found.items.len()).unwrap_or(u64::MAX);
    let words = if shown < found.total { format!("{} of {total} on this page", count(shown)) } else { total };
    view! {
        <nav class="pages" aria-label="Pages">
            <span class="quiet">{words}</span>
            {first.map(|href| view! { <a href=href>"First page"</a> })}
            {further.map(|href| view! { <a rel="next" href=href>"Next page"</a> })}
        </nav>
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::api::RunCounts;

    use super::*;
    use crate::style::SHEET;

    #[test]
    fn narrow_screens_leave_out_what_is_not_about_progress_failures_or_speedups() {
        let rule =
            SHEET.split(".campaigns :is(th, td):is(").nth(1).and_then(|rest| rest.split(") { display: none").next());
        let hidden =
            rule.unwrap_or_default().split(":nth-child(").filter_map(|part| part.split(')').next()?.parse().ok());
        let hidden: Vec<usize> = hidden.collect();
        let labels = hidden.iter().map(|number| COLUMNS[number - 1].label).collect::<Vec<_>>();
        assert_eq!(labels, ["Target", "Replies", "Unfinished"]);
    }

    #[test]
    fn a_list_on_which_all_is_over_still_follows_and_says_what_campaigns_came_to() {
        let campaign = CampaignSummary {
            id: format!("cmp_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error:?}")),
            name: "over".to_owned(),
            model: "scripted".to_owned(),
            scripted: true,
            created_at: TimestampMs(0),
            runs: RunCounts { completed: 1, ..RunCounts::default() },
            schedule: None,
            priority: 0,
            weight: 1,
            ended_at: Some(TimestampMs(1)),
            cost_usd: None,
            unpriced_attempts: 0,
            best_speedup: Some(3.0),
            best_speedup_over_fastest: Some(1.25),
            geometric_mean: Some(2.0),
            geometric_mean_over_fastest: Some(1.125),
            solved: 1,
            solved_over_fastest: 1,
            handover: None,
            targets: Vec::new(),
        };
        let found = CampaignPage { items: vec![campaign], next: None, total: 1, by_status: Vec::new(), any_status: 1 };
        let page = page(&Address::parse("/"), NEWEST_FIRST, &found, &Kept::default(), TimestampMs(2));
        assert!(format!("{page:?}").contains("live: Everything"), "{page:?}");
        let html = crate::report::with_links(page);
        for said in [
            "Best over the reference",
            "Unfinished",
            "Over the fastest",
            ">3.00×",
            "mean 2.00×",
            ">1.25×",
            "mean 1.12×",
        ] {
            assert!(html.contains(said), "{said}: {html}");
        }
    }
}
