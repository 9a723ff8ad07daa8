//! Several attempts beside each other: their facts, and what differs between the first two sources.

mod facts;

use std::sync::Arc;

use axum::extract::Query;
use axum::response::Response;
use futures::future::join_all;
use leptos::prelude::*;
use nightshift_client::Client;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::id::RunId;

use self::facts::{Fact, all};
use super::attempt::{Pairs, Stored, text};
use super::failure::PageError;
use super::parts::{Section as Part, sections};
use crate::chart::{Axis, Caption, IntervalMark, Unit, intervals};
use crate::format::{counted, speedup};
use crate::markup::{Markup, visible};
use crate::shell::{Page, Section};
use crate::source::{Diff, DiffView, Language, diff_view, highlighted};
use crate::visitor::Visitor;

/// Most attempts that are compared.
const MAX_COMPARED: usize = 12;

/// How attempts are compared: all of it stands in the address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    wanted: Vec<(RunId, u32)>,
    left_out: usize,
    differences_only: bool,
    view: DiffView,
}

impl Look {
    fn of(query: &[(String, String)]) -> Result<Self, PageError> {
        let value = |name: &str| query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let mut wanted = Vec::new();
        for (_, place) in query.iter().filter(|(name, _)| name == "a") {
            let parsed = place
                .split_once('/')
                .and_then(|(run, number)| Some((run.parse::<RunId>().ok()?, number.parse::<u32>().ok()?)));
            let parsed = parsed.ok_or_else(|| PageError::not_found("One of these attempts"))?;
            if !wanted.contains(&parsed) {
                wanted.push(parsed);
            }
        }
        let left_out = wanted.len().saturating_sub(MAX_COMPARED);
        wanted.truncate(MAX_COMPARED);
        Ok(Self {
            wanted,
            left_out,
            differences_only: value("only") == Some("differences"),
            view: DiffView::parse(value("view")),
        })
    }

    fn href(&self) -> String {
        let mut pairs: Vec<String> = self.wanted.iter().map(|(run, number)| format!("a={run}/{number}")).collect();
        if self.differences_only {
            pairs.push("only=differences".to_owned());
        }
        if self.view != DiffView::default() {
            pairs.push(format!("view={}", self.view.as_str()));
        }
        format!("?{}", pairs.join("&"))
    }
}

/// One of those that are compared.
struct Compared {
    detail: Arc<RunDetail>,
    place: usize,
}

impl Compared {
    fn attempt(&self) -> Option<&Attempt> {
        self.detail.view.attempts.get(self.place)
    }

    fn name(&self) -> String {
        let number = self.attempt().map_or(0, |attempt| attempt.number);
        format!("{}, attempt {number}", self.detail.summary.digest.task)
    }

    fn href(&self) -> String {
        let number = self.attempt().map_or(0, |attempt| attempt.number);
        format!("/runs/{}/attempts/{number}", self.detail.summary.id)
    }
}

/// `GET /compare?a=RUN/NUMBER&a=RUN/NUMBER`.
pub(crate) async fn show(visitor: Visitor, Query(query): Pairs) -> Response {
    let page = async {
        let look = Look::of(&query)?;
        let compared = load(&visitor.client, &look).await?;
        let sources = join_all(
            compared
                .iter()
                .take(2)
                .map(|one| text(&visitor.client, one.attempt().and_then(|attempt| attempt.source.as_ref()))),
        );
        Ok(page(&look, &compared, &sources.await))
    };
    visitor.answer(page.await)
}

async fn load(client: &Client, look: &Look) -> Result<Vec<Compared>, PageError> {
    let mut runs: Vec<RunId> = Vec::new();
    for (run, _) in &look.wanted {
        if !runs.contains(run) {
            runs.push(run.clone());
        }
    }
    let mut details = Vec::new();
    for detail in join_all(runs.iter().map(|run| client.run(run))).await {
        details.push(Arc::new(detail?));
    }
    let found = |(run, number): &(RunId, u32)| {
        let detail = details.iter().find(|detail| detail.summary.id == *run)?;
        let place = detail.view.attempts.iter().position(|attempt| attempt.number == *number)?;
        Some(Compared { detail: Arc::clone(detail), place })
    };
    look.wanted.iter().map(|one| found(one).ok_or_else(|| PageError::not_found("One of these attempts"))).collect()
}

fn page(look: &Look, compared: &[Compared], sources: &[Stored]) -> Page {
    let content = if compared.is_empty() {
        view! {
            <section class="blank">
                <h1>"Compare"</h1>
                <p>"Nothing is chosen yet. On the page of a run, choose attempts with the boxes of its list (or x), then press \
                    “Compare the chosen ones” (or c)."</p>
            </section>
        }
        .into_any()
    } else {
        let parts = vec![
            Part { id: "speedups", title: "Speedups", content: speedups(compared) },
            Part { id: "facts", title: "Facts", content: table(look, compared) },
            Part { id: "source", title: "Source", content: source(look, compared, sources) },
        ];
        let number = counted(u64::try_from(compared.len()).unwrap_or(u64::MAX), "attempt", "attempts");
        let left_out = (look.left_out > 0)
            .then(|| view! { <p class="notice">{format!("{} more were chosen: at most {MAX_COMPARED} are compared.", look.left_out)}</p> });
        let body = sections(parts);
        view! { <h1>"Compare "{number}</h1>{left_out}{body} }.into_any()
    };
    Page::new("Compare", content).section(Section::Compare).list()
}

fn speedups(compared: &[Compared]) -> AnyView {
    let marks: Vec<IntervalMark> = compared
        .iter()
        .map(|one| {
            let interval = one.attempt().and_then(Attempt::speedup);
            let number = one.attempt().map_or(0, |attempt| attempt.number);
            IntervalMark {
                name: number.to_string(),
                interval: interval.map(|interval| (interval.low, interval.estimate, interval.high)),
                class: "kept",
                words: format!("{}: {}", one.name(), interval.map_or_else(|| "not timed".to_owned(), speedup)),
                href: Some(one.href()),
            }
        })
        .collect();
    let caption = Caption::new("Speedups", "Published, each over its own baseline, with its interval.");
    intervals(&caption, "attempt", &Axis::log("speedup", Unit::Times), &marks, Some((1.0, "baseline"))).view()
}

fn table(look: &Look, compared: &[Compared]) -> AnyView {
    let columns: Vec<Vec<Fact>> =
        compared.iter().map(|one| one.attempt().map(|attempt| all(&one.detail, attempt)).unwrap_or_default()).collect();
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = Markup::new();
    let mut equal = 0_usize;
    out.tag("div").with("class", "scroll").with("tabindex", "0").around(|out| {
        out.tag("table").with("class", "compare").around(|out| {
            out.tag("thead").around(|out| {
                out.tag("tr").around(|out| {
                    out.tag("th").with("scope", "col").text("Fact");
                    for one in compared {
                        out.tag("th")
                            .with("scope", "col")
                            .around(|out| out.tag("a").with("href", &one.href()).text(&one.name()));
                    }
                });
            });
            out.tag("tbody").around(|out| {
                for index in 0..rows {
                    let cells: Vec<&Fact> = columns.iter().filter_map(|column| column.get(index)).collect();
                    let Some(first) = cells.first() else { continue };
                    let differs = cells.iter().any(|cell| cell.value != first.value);
                    if !differs {
                        equal += 1;
                    }
                    if cells.iter().all(|cell| cell.value.is_empty()) || (look.differences_only && !differs) {
                        continue;
                    }
                    out.tag("tr").with("class", if differs { "differs" } else { "equal" }).around(|out| {
                        out.tag("th").with("scope", "row").text(first.name);
                        for cell in &cells {
                            out.tag("td").text(&cell.value.chars().take(600).collect::<String>());
                        }
                    });
                }
            });
        });
    });
    let other = Look { differences_only: !look.differences_only, ..look.clone() };
    let words = if look.differences_only { "Show equal facts too" } else { "Show differences only" };
    let shown = out.block("table");
    let same = counted(u64::try_from(equal).unwrap_or(u64::MAX), "fact is", "facts are");
    view! {
        <p class="look"><a class="button" href=format!("{}#facts", other.href())>{words}</a></p>
        <p class="quiet">{same}" the same in all of them; rows that differ are marked."</p>
        {shown}
    }
    .into_any()
}

fn source(look: &Look, compared: &[Compared], sources: &[Stored]) -> AnyView {
    let ([first, second, ..], [Stored::Here(old), Stored::Here(new)]) = (compared, sources) else {
        return view! { <p class="empty">"Two attempts with a source are needed to show what differs."</p> }.into_any();
    };
    let lines = |text: &str| highlighted(text, Language::of_program(text));
    let diff = Diff::of(lines(old), lines(new));
    let names = (visible(&first.name()).into_owned(), visible(&second.name()).into_owned());
    let words = if diff.is_same() {
        format!("The sources of {} and {} are the same.", names.0, names.1)
    } else {
        format!("From {} to {}: {} lines added, {} removed.", names.0, names.1, diff.added, diff.removed)
    };
    let layouts = [(DiffView::Inline, "One below the other"), (DiffView::Split, "Side by side")]
        .map(|(view, words)| {
            let href = format!("{}#source", Look { view, ..look.clone() }.href());
            view! { <li><a href=href aria-current=(look.view == view).then_some("true")>{words}</a></li> }
        })
        .into_iter()
        .collect::<Vec<_>>();
    let shown = diff_view(&diff, look.view).block("differences");
    view! { <ul class="chips look">{layouts}</ul><p>{words}</p>{shown} }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::sample::Sample;

    fn pairs(query: &str) -> Vec<(String, String)> {
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn an_address_says_what_is_compared_and_reads_back() {
        let run = format!("run_{}", "0".repeat(32));
        let query = format!("a={run}/1&a={run}/2&only=differences&view=split");
        let look = Look::of(&pairs(&query)).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(look.href(), format!("?{query}"));
        assert!(Look::of(&pairs("a=../../etc/passwd")).is_err());
        let many: Vec<String> = (1..=20).map(|number| format!("a={run}/{number}")).collect();
        let look = Look::of(&pairs(&many.join("&"))).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!((look.wanted.len(), look.left_out), (MAX_COMPARED, 8));
    }

    fn compared(numbers: &[u32]) -> Vec<Compared> {
        let detail = Arc::new(Sample::read().detail);
        let place = |number: &u32| detail.view.attempts.iter().position(|attempt| attempt.number == *number);
        let one = |number: &u32| Some(Compared { detail: Arc::clone(&detail), place: place(number)? });
        numbers.iter().filter_map(one).collect()
    }

    fn html(look: &Look, compared: &[Compared], sources: &[Stored]) -> String {
        crate::report::html(page(look, compared, sources), None)
    }

    #[test]
    fn what_differs_is_marked_and_what_does_not_can_be_left_out() {
        let compared = compared(&[3, 4]);
        let sources = [Stored::Here("int a;\n".to_owned()), Stored::Here("int b;\n".to_owned())];
        let mut look = Look { wanted: Vec::new(), left_out: 0, differences_only: false, view: DiffView::Split };
        let all = html(&look, &compared, &sources);
        assert!(all.contains("class=\"differs\"") && all.contains("class=\"equal\"") && all.contains("diff split"));
        look.differences_only = true;
        let some = html(&look, &compared, &sources);
        assert!(some.contains("class=\"differs\"") && !some.contains("class=\"equal\""));
    }

    #[test]
    fn nothing_chosen_says_how_to_choose() {
        let look = Look { wanted: Vec::new(), left_out: 0, differences_only: false, view: DiffView::Inline };
        assert!(html(&look, &[], &[]).contains("Nothing is chosen yet"));
        assert!(html(&look, &compared(&[1]), &[Stored::Never]).contains("Two attempts with a source are needed"));
    }
}
