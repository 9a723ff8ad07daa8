//! Attempts over all campaigns: filtered, sorted, counted and paged by the address.

use axum::response::Response;
use futures::future::try_join;
use leptos::prelude::*;
use nightshift_protocol::api::{AttemptPage, AttemptQuery, AttemptRow, Facet, Facets, SortOrder, TableName};
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::time::TimestampMs;

use crate::address::Address;
use crate::failure::PageError;
use crate::format::{count, counted, device, dollars, tokens, when, words};
use crate::island::PointCloud;
use crate::page::as_of::as_of;
use crate::page::components::{ALL_POLICIES, stacked};
use crate::page::files;
use crate::picks::{self, MAX_COMPARED, Picks};
use crate::shell::{Live, Page, Section, model_label};
use crate::table::{self, Column, Sorting};
use crate::visitor::Visitor;

const COLUMNS: [Column; 11] = [
    Column::plain("Compare"),
    Column::plain("Attempt"),
    Column::plain("Outcome"),
    Column::number("speedup", "Over the reference"),
    Column::number("speedup_over_fastest", "Over the fastest"),
    Column::number("reward", "Reward"),
    Column::plain("Model"),
    Column::number("tokens", "Tokens"),
    Column::number("cost", "Cost"),
    Column::plain("Device"),
    Column::moment("created", "Began"),
];
/// Default number of rows of a page.
const PER_PAGE: u32 = 50;
/// Names of choices that a form of filters hands on.
const FIELDS: [(&str, &str); 8] = [
    ("q", "Words: task, model, device, id"),
    ("task", "Task"),
    ("model", "Model"),
    ("tag", "Tag"),
    ("min_speedup", "Over the reference, at least"),
    ("max_speedup", "Over the reference, at most"),
    ("min_speedup_over_fastest", "Over the fastest baseline, at least"),
    ("max_speedup_over_fastest", "Over the fastest baseline, at most"),
];
/// Parameters that a form keeps in hidden fields.
const KEPT: [&str; 13] = [
    "campaign",
    "run",
    "strategy",
    "device",
    "outcome",
    "stage",
    "correct",
    "confirmed",
    "min_reward",
    "max_reward",
    "sort",
    "order",
    "limit",
];

/// `GET /attempts`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let address = Address::parse(&visitor.address);
    let mut query = asked(&address)?;
    query.limit = query.limit.or(Some(PER_PAGE));
    query.facets = true;
    let (found, health) = try_join(visitor.client.attempts(&query), visitor.client.health()).await?;
    Ok(page(&address, &query, &found, health.now))
}

/// Returns the query of the API, without the selection, which only the page uses.
fn asked(address: &Address) -> Result<AttemptQuery, PageError> {
    let address = address.with(picks::NAME, None);
    AttemptQuery::from_pairs(address.pairs()).map_err(|error| PageError::bad_query(&error.to_string()))
}

fn page(address: &Address, query: &AttemptQuery, found: &AttemptPage, now: TimestampMs) -> Page {
    let picks = Picks::of(address);
    let address = &picks.kept_in(address);
    let all = picks.kept_in(&Address::parse("/attempts")).href();
    let is_filtered = !query.filter.to_pairs().is_empty();
    let sorting = Sorting { key: query.sort.as_str(), descending: query.order == SortOrder::Desc };
    let rows = found.items.iter().map(|item| row(item, &picks)).collect::<Vec<_>>();
    let listed: Vec<String> = found.items.iter().map(name).collect();
    let content = if found.total == 0 && !is_filtered {
        view! {
            <section class="empty">
                <h2>"No attempt yet"</h2>
                <p>"Attempts appear here as soon as a campaign has written a program: "<code>"nightshift demo"</code></p>
            </section>
        }
        .into_any()
    } else {
        let none = found.items.is_empty().then(|| {
            view! { <p class="empty">"No attempt fits the filter. "<a href=all>"Show all"</a></p> }
        });
        let filter = address_query(query);
        view! {
            <PointCloud query=filter />
            <form id="compare" method="get" action="/compare" data-compare=MAX_COMPARED.to_string()>
                <button>"Compare the selected"</button>
                <p class="said" role="status"></p>
                {picks.elsewhere(&listed)}
            </form>
            <div class="scroll" tabindex="0">
                <table class="list">{table::head(address, &COLUMNS, sorting)}<tbody>{rows}</tbody></table>
            </div>
            {none}
            {pages(address, found)}
            {table_links(query)}
        }
        .into_any()
    };
    Page::new(
        "Attempts",
        view! {
            <div class="head">
                <h1>"Attempts"</h1>
                <span class="quiet">{counted(found.total, "attempt", "attempts")}{is_filtered.then_some(" fit the filter")}</span>
                {as_of(address, now)}
            </div>
            {filters(address, &picks)}
            {in_force(address, query, found.facets.as_ref())}
            {found.facets.as_ref().map(|facets| facet_chips(address, facets))}
            <p class="quiet">{ALL_POLICIES}</p>
            {content}
        },
    )
    .section(Section::Attempts)
    .list()
    .live(Live::Summed)
}

/// The filter as a query, for the picture: without order and page.
fn address_query(query: &AttemptQuery) -> String {
    let mut address = Address::parse("");
    for (name, value) in query.filter.to_pairs() {
        address = address.with(name, Some(&value));
    }
    address.href().trim_start_matches('?').to_owned()
}

/// All that fit, in the order of the page, as a file.
fn table_links(query: &AttemptQuery) -> AnyView {
    let mut pairs = query.filter.to_pairs();
    pairs.push(("sort", query.sort.as_str().to_owned()));
    pairs.push(("order", query.order.as_str().to_owned()));
    files::links("Attempts", TableName::Attempts, pairs.iter().map(|(name, value)| (*name, value.as_str())))
}

fn filters(address: &Address, picks: &Picks) -> impl IntoView + use<> {
    let field = |(name, label): (&'static str, &'static str)| {
        let value = address.get(name).unwrap_or_default().to_owned();
        let is_number = name.contains("speedup");
        let kind = if is_number { "number" } else { "search" };
        let step = is_number.then_some("any");
        let is_first = (name == "q").then_some("");
        view! { <label>{label}<input type=kind step=step name=name value=value data-search=is_first /></label> }
    };
    let fields = &FIELDS;
    let (words, further) = fields.split_at(1);
    // Active filters are never collapsed.
    let is_open = further.iter().any(|(name, _)| address.get(name).is_some());
    let words = words.iter().copied().map(field).collect::<Vec<_>>();
    let further = further.iter().copied().map(field).collect::<Vec<_>>();
    let kept = KEPT.into_iter().filter_map(|name| {
        let value = address.get(name)?.to_owned();
        Some(view! { <input type="hidden" name=name value=value /> })
    });
    let kept = kept.collect::<Vec<_>>();
    let all = picks.kept_in(&Address::parse("/attempts")).href();
    let is_filtered = address.href() != all;
    // There even when it is empty: the program of the page writes into it.
    let picked = picks.joined();
    view! {
        <form class="filters" method="get" action="/attempts" role="search">
            {words}
            <details class="further" open=is_open><summary>"More filters"</summary><div class="filters">{further}</div></details>
            {kept}
            <input type="hidden" name=picks::NAME value=picked />
            <button>"Filter"</button>
            {is_filtered.then(|| view! { <a href=all>"Show all"</a> })}
        </form>
    }
}

/// Filters that no field and no choice of the page shows, each with the way to be rid of it.
fn in_force(address: &Address, query: &AttemptQuery, facets: Option<&Facets>) -> Option<AnyView> {
    let unseen = unseen(query, facets);
    if unseen.is_empty() {
        return None;
    }
    let chips = unseen.into_iter().map(|(name, value)| {
        let href = address.with(name, None).with("before", None).href();
        let text = format!("{}: {}", words(name), short(query, name).unwrap_or_else(|| value.clone()));
        let spoken = format!("{text}: take this filter away");
        view! { <li><a href=href title=value aria-label=spoken>{text}" ✕"</a></li> }
    });
    let chips = chips.collect::<Vec<_>>();
    Some(view! { <ul class="chips" aria-label="Further filters in force">{chips}</ul> }.into_any())
}

fn unseen(query: &AttemptQuery, facets: Option<&Facets>) -> Vec<(&'static str, String)> {
    let is_choice = |name: &str, value: &str| {
        let choices = match name {
            "outcome" => facets.map(|facets| &facets.outcome),
            "stage" => facets.map(|facets| &facets.stage),
            _ => None,
        };
        choices.is_some_and(|choices| choices.iter().any(|facet| facet.value == value))
    };
    let mut pairs = query.filter.to_pairs();
    pairs.retain(|(name, value)| FIELDS.iter().all(|(field, _)| field != name) && !is_choice(name, value));
    pairs
}

/// Ids as people read them.
fn short(query: &AttemptQuery, name: &str) -> Option<String> {
    match name {
        "campaign" => query.filter.campaign.as_ref().map(|id| id.short().to_owned()),
        "run" => query.filter.run.as_ref().map(|id| id.short().to_owned()),
        _ => None,
    }
}

fn facet_chips(address: &Address, facets: &Facets) -> impl IntoView + use<> {
    let of = |name: &'static str, label: &'static str, facets: &[Facet]| {
        let all: u64 = facets.iter().map(|facet| facet.count).sum();
        let mut choices = vec![("", format!("All {}", count(all)))];
        choices.extend(
            facets
                .iter()
                .map(|facet| (facet.value.as_str(), format!("{} {}", words(&facet.value), count(facet.count)))),
        );
        (facets.len() > 1 || address.get(name).is_some()).then(|| table::chips(address, name, label, &choices))
    };
    view! {
        {of("outcome", "Attempts by outcome", &facets.outcome)}
        {of("stage", "Attempts by stage", &facets.stage)}
        {of("model", "Attempts by model", &facets.model)}
    }
}

/// As `/compare` and the address name an attempt.
fn name(row: &AttemptRow) -> String {
    format!("{}/{}", row.run, row.number)
}

fn row(row: &AttemptRow, picks: &Picks) -> impl IntoView + use<> {
    let name = name(row);
    let is_picked = picks.has(&name);
    let key = name.clone();
    let href = format!("/runs/{}/attempts/{}", row.run, row.number);
    let label = format!("Select {}, attempt {}", row.task, row.number);
    let dash = || "–".to_owned();
    let scripted = row.model == "scripted";
    let cost = row.cost_usd.map_or_else(|| "not known".to_owned(), |cost| dollars(cost, scripted));
    let speedup = |speedup: Option<Interval>| speedup.map_or_else(|| dash().into_any(), stacked);
    let marks = view! {
        {row.best.then(|| view! { <span class="tag completed">"best"</span> })}" "
        {row.confirmed.then(|| view! { <span class="tag">"confirmed"</span> })}
    };
    // Narrow screens have no room for the columns of the outcome, so it follows the name.
    let fast = row.speedup.map_or_else(String::new, |speedup| format!(" {:.2}×", speedup.estimate));
    let over_fastest = row
        .speedup_over_fastest
        .map(|speedup| view! { <span class="range">{format!("{:.2}× over the fastest", speedup.estimate)}</span> });
    let in_short = view! {
        <span class="in-short" aria-hidden="true">
            <span class=format!("tag {}", row.outcome.as_str())>{words(row.outcome.as_str())}</span>
            {fast}{over_fastest}
        </span>
    };
    view! {
        <tr data-row="" data-key=key>
            <td><input type="checkbox" form="compare" name="a" value=name checked=is_picked aria-label=label /></td>
            <th scope="row">
                <a href=href>{row.task.clone()}" "{row.number}</a>" "
                <span class="quiet">{words(row.stage.as_str())}</span>
                {in_short}
            </th>
            <td><span class=format!("tag {}", row.outcome.as_str())>{words(row.outcome.as_str())}</span>" "{marks}</td>
            <td class="number">{speedup(row.speedup)}</td>
            <td class="number">{speedup(row.speedup_over_fastest)}</td>
            <td class="number">{row.reward.map_or_else(dash, crate::format::reward)}</td>
            <td>{model_label(&row.model, scripted)}" "<span class="quiet">{row.strategy.clone()}</span></td>
            <td class="number">{tokens(Some(row.tokens), scripted)}</td>
            <td class="number">{cost}</td>
            <td class="device" title=row.device.clone()>{row.device.as_deref().map_or_else(dash, device)}</td>
            <td>{when(row.created_at)}</td>
        </tr>
    }
}

fn pages(address: &Address, found: &AttemptPage) -> impl IntoView + use<> {
    let first = address.get("before").is_some().then(|| address.with("before", None).href());
    let next = found.next.as_deref().map(|cursor| address.with("before", Some(cursor)).href());
    let shown = format!("{} of {} on this page", found.items.len(), count(found.total));
    view! {
        <nav class="pages" aria-label="Pages">
            <span class="quiet">{shown}</span>
            {first.map(|href| view! { <a href=href>"First page"</a> })}
            {next.map(|href| view! { <a rel="next" href=href>"Next page"</a> })}
        </nav>
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::attempt::{AttemptOutcome, Stage};
    use nightshift_protocol::task::Target;

    use super::*;

    fn query(address: &Address) -> AttemptQuery {
        asked(address).unwrap_or_else(|error| panic!("{}", error.message))
    }

    #[test]
    fn what_is_chosen_is_no_filter_and_stays_in_every_link() {
        let chosen = format!("run_{}/1", "0".repeat(32));
        let address = Address::parse("/attempts?q=softmax&sort=speedup").with(picks::NAME, Some(&chosen));
        let found = AttemptPage { items: Vec::new(), total: 0, next: Some("later".to_owned()), facets: None };
        assert_eq!(query(&address).filter.to_pairs(), [("q", "softmax".to_owned())]);
        let html =
            Owner::new().with(|| page(&address, &query(&address), &found, TimestampMs(0)).into_parts().1.to_html());
        assert!(html.contains(&format!("name=\"a\" value=\"{chosen}\"")), "{html}");
        assert!(html.contains(&format!("name=\"pick\" value=\"{chosen}\"")), "{html}");
        let links = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let lost: Vec<&str> = links.filter(|href| href.starts_with("/attempts") && !href.contains("pick=")).collect();
        assert_eq!(lost, ["/attempts?q=softmax&amp;sort=speedup"], "only the link that chooses none");
    }

    #[test]
    fn speedups_over_both_baselines_can_be_filtered() {
        let address = Address::parse("/attempts?min_speedup_over_fastest=1.25");
        let found = AttemptPage { items: Vec::new(), total: 0, next: None, facets: None };
        let query = query(&address);
        assert_eq!(query.filter.min_speedup_over_fastest, Some(1.25));
        let html = Owner::new().with(|| page(&address, &query, &found, TimestampMs(0)).into_parts().1.to_html());
        assert!(html.contains("step=\"any\" name=\"min_speedup_over_fastest\" value=\"1.25\""), "{html}");
        assert!(html.contains("<details open class=\"further\""), "a filter in force is not folded away: {html}");
        assert!(!html.contains("Further filters in force"), "the field shows it: {html}");
    }

    #[test]
    fn each_attempt_has_its_speedup_over_both_baselines() {
        let row = |over_fastest: Option<Interval>| AttemptRow {
            run: format!("run_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error:?}")),
            campaign: format!("cmp_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error:?}")),
            number: 1,
            task: "softmax".to_owned(),
            target: Target::Cuda,
            strategy: "stitch".to_owned(),
            model: "lab/a".to_owned(),
            stage: Stage::Draft,
            parent: None,
            outcome: AttemptOutcome::CorrectFaster,
            best: true,
            confirmed: true,
            speedup: Some(Interval { estimate: 3.0, low: 2.9, high: 3.1 }),
            speedup_over_fastest: over_fastest,
            candidate_median_ns: None,
            reward: None,
            rubric_total: None,
            bound: None,
            issue: None,
            tokens: 0,
            cost_usd: None,
            device: None,
            source: None,
            created_at: TimestampMs(0),
            finished_at: None,
        };
        let html = |row: AttemptRow| {
            let address = Address::parse("/attempts?sort=speedup_over_fastest");
            let found = AttemptPage { items: vec![row], total: 1, next: None, facets: None };
            Owner::new().with(|| page(&address, &query(&address), &found, TimestampMs(0)).into_parts().1.to_html())
        };
        let known = html(row(Some(Interval { estimate: 1.25, low: 1.2, high: 1.3 })));
        for said in
            ["aria-sort=\"descending\"", "Over the fastest", "2.90 to 3.10", "1.20 to 1.30", "1.25× over the fastest"]
        {
            assert!(known.contains(said), "{said}: {known}");
        }
        let unknown = html(row(None));
        assert!(!unknown.contains("over the fastest"), "a baseline that is not known gives no speedup: {unknown}");
    }

    #[test]
    fn filters_without_a_field_are_shown_kept_and_can_be_taken_away() {
        let campaign = format!("cmp_{}", "0".repeat(32));
        let address = Address::parse("/attempts?q=a&device=H200&min_reward=0.5&outcome=correct_faster&before=x");
        let address = address.with("campaign", Some(&campaign));
        let html = |address: &Address| {
            let list = in_force(address, &query(address), None);
            Owner::new().with(|| list.map(RenderHtml::to_html).unwrap_or_default())
        };
        let shown = html(&address);
        assert_eq!(shown.matches("<li>").count(), 4, "{shown}");
        let rest = "/attempts?q=a&amp;min_reward=0.5&amp;outcome=correct_faster";
        assert!(shown.contains("device: H200") && shown.contains(rest) && !shown.contains("before"), "{shown}");
        assert_eq!(html(&Address::parse("/attempts?q=a&task=gemm")), "");
        let kept = |name: &str| KEPT.contains(&name) || FIELDS.iter().any(|(field, _)| *field == name);
        assert!(query(&address).filter.to_pairs().iter().all(|(name, _)| kept(name)));
    }
}
