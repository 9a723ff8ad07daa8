//! Full-text search over sources, replies, diagnoses, errors and findings.

use axum::response::Response;
use leptos::prelude::*;
use nightshift_protocol::api::{MAX_COUNTED_HITS, SearchHit, SearchKind, SearchPage, SearchQuery};

use crate::address::Address;
use crate::failure::PageError;
use crate::format::{count, counted, when, words};
use crate::shell::{Page, Section};
use crate::table;
use crate::visitor::Visitor;

/// The state of the search page.
enum Found {
    /// No query yet.
    Nothing,
    /// The question cannot be answered: why.
    NotUnderstood(String),
    /// An answer.
    Page(SearchPage),
}

/// `GET /search`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let address = Address::parse(&visitor.address);
    let found = match SearchQuery::from_pairs(address.pairs()) {
        _ if address.get("q").is_none() => Found::Nothing,
        Ok(query) => Found::Page(visitor.client.search(&query).await?),
        Err(error) => Found::NotUnderstood(error.to_string()),
    };
    Ok(page(&address, &found))
}

fn page(address: &Address, found: &Found) -> Page {
    let kinds: Vec<(&str, String)> = std::iter::once(("", "Everything".to_owned()))
        .chain(SearchKind::ALL.into_iter().map(|kind| (kind.as_str(), words(kind.as_str()))))
        .collect();
    let kept = ["kind", "campaign", "run"].into_iter().filter_map(|name| Some((name, address.get(name)?.to_owned())));
    let kept = kept.map(|(name, value)| view! { <input type="hidden" name=name value=value /> }).collect::<Vec<_>>();
    let value = address.get("q").unwrap_or_default().to_owned();
    let task = address.get("task").unwrap_or_default().to_owned();
    let limits = [("campaign", "campaign"), ("run", "run")].into_iter().filter_map(|(name, noun)| {
        let id = address.get(name)?.to_owned();
        let href = address.with(name, None).with("before", None).href();
        Some(view! { <p>"Only in the "{noun}" "<code>{id}</code>" "<a href=href>"everywhere"</a></p> })
    });
    let limits = limits.collect::<Vec<_>>();
    let content = match found {
        Found::Nothing => view! {
            <section class="empty">
                <h2>"Everything that was written"</h2>
                <p>"Sources, replies of models, diagnoses, errors of compilers and programs, findings."</p>
                <p>
                    "All words have to be there. "<code>"\"bank conflict\""</code>" finds words that follow each other, "
                    <code>"cp_async*"</code>" every word that begins so."
                </p>
            </section>
        }
        .into_any(),
        Found::NotUnderstood(why) => view! { <p class="notice bad">{why.clone()}</p> }.into_any(),
        Found::Page(page) if page.items.is_empty() => {
            view! { <p class="empty">"Nothing was found. Fewer words, or a "<code>"*"</code>" at the end of one, find more."</p> }
                .into_any()
        }
        Found::Page(page) => {
            let hits = page.items.iter().map(hit).collect::<Vec<_>>();
            let next = page.next.as_deref().map(|cursor| address.with("before", Some(cursor)).href());
            let shown = summary(u64::try_from(hits.len()).unwrap_or(u64::MAX), page.total);
            view! {
                <p class="quiet">{shown}</p>
                <ol class="hits">{hits}</ol>
                <nav class="pages" aria-label="Pages">{next.map(|href| view! { <a rel="next" href=href>"Older"</a> })}</nav>
            }
            .into_any()
        }
    };
    Page::new(
        "Search",
        view! {
            <h1>"Search"</h1>
            <form class="filters" method="get" action="/search" role="search">
                <label>"Words"<input type="search" name="q" value=value data-search="" maxlength="200" size="40" /></label>
                <label>"Task"<input type="search" name="task" value=task maxlength="200" /></label>
                {kept}
                <button class="strong">"Search"</button>
            </form>
            {table::chips(address, "kind", "Kind of text", &kinds)}
            {limits}
            {content}
        },
    )
    .section(Section::Search)
    .list()
}

/// How many there are, and how many of them are shown.
fn summary(shown: u64, total: u64) -> String {
    let all = counted(total, "text", "texts");
    let all = if total >= MAX_COUNTED_HITS { format!("{all} or more") } else { all };
    if shown < total { format!("{all}, {} on this page, the latest first", count(shown)) } else { all }
}

fn hit(hit: &SearchHit) -> impl IntoView + use<> {
    let (place, href) = match hit.attempt {
        Some(number) => {
            // Of what was found only the source has its lines on the page.
            let line =
                if hit.kind == SearchKind::Source { format!("?tab=source#L{}", hit.line) } else { String::new() };
            (format!("{}, attempt {number}", hit.task), format!("/runs/{}/attempts/{number}{line}", hit.run))
        }
        None => (hit.task.clone(), format!("/runs/{}", hit.run)),
    };
    let at_line = format!("line {}", hit.line);
    view! {
        <li data-row="">
            <div class="head">
                <span><a href=href>{place}</a>" "<span class="tag">{words(hit.kind.as_str())}</span>" "<span class="quiet">{at_line}</span></span>
                {when(hit.at)}
            </div>
            <pre>{marked(&hit.excerpt, &hit.matches)}</pre>
        </li>
    }
}

/// Renders the excerpt with its matches marked. Invalid offsets are ignored.
fn marked(text: &str, matches: &[(u32, u32)]) -> Vec<AnyView> {
    let mut parts = Vec::new();
    let mut at = 0_usize;
    for (begin, end) in matches {
        let (Ok(begin), Ok(end)) = (usize::try_from(*begin), usize::try_from(*end)) else { continue };
        let (Some(before), Some(found)) = (text.get(at..begin), text.get(begin..end)) else { continue };
        parts.push(before.to_owned().into_any());
        let found = found.to_owned();
        parts.push(view! { <mark>{found}</mark> }.into_any());
        at = end;
    }
    parts.push(text.get(at..).unwrap_or_default().to_owned().into_any());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(text: &str, matches: &[(u32, u32)]) -> String {
        marked(text, matches).to_html()
    }

    #[test]
    fn a_hit_in_a_source_leads_to_its_line() {
        let of = |kind| SearchHit {
            kind,
            run: format!("run_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error:?}")),
            campaign: format!("cmp_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error:?}")),
            task: "softmax".to_owned(),
            attempt: Some(3),
            at: nightshift_protocol::time::TimestampMs(0),
            line: 17,
            excerpt: "softmax".to_owned(),
            matches: Vec::new(),
        };
        let shown = |kind| hit(&of(kind)).to_html();
        assert!(shown(SearchKind::Source).contains("/attempts/3?tab=source#L17\""));
        assert!(shown(SearchKind::Reply).contains("/attempts/3\""));
    }

    #[test]
    fn how_many_there_are_is_said_and_what_was_not_counted_too() {
        assert_eq!(summary(1, 1), "1 text");
        assert_eq!(summary(20, 21), "21 texts, 20 on this page, the latest first");
        assert!(summary(20, MAX_COUNTED_HITS).contains("or more"));
    }

    #[test]
    fn matches_are_marked_and_everything_is_text() {
        let shown = html("a <b>softmax</b>", &[(5, 12)]);
        assert!(shown.contains("<mark>softmax</mark>") && shown.contains("&lt;b&gt;"), "{shown}");
    }

    #[test]
    fn offsets_that_do_not_fit_are_left_out() {
        for wrong in [(3, 2), (1, 99), (1, 2)] {
            let shown = html("äöü", &[wrong]);
            assert!(!shown.contains("<mark>") && shown.contains("äöü"), "{wrong:?}: {shown}");
        }
        assert!(html("abcd", &[(0, 2), (1, 3)]).contains("<mark>ab</mark>"));
    }
}
