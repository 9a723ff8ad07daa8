//! The comparison page: facts of several attempts side by side, and the difference of two sources.

mod facts;
mod look;

use std::sync::Arc;

use axum::extract::Query;
use axum::response::Response;
use futures::future::join_all;
use leptos::prelude::*;
use nightshift_client::Client;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::id::RunId;

use self::facts::{Fact, all, best};
use self::look::{Look, Place};
use super::attempt::{Pairs, Stored, text};
use super::components::{Section as Part, layouts, sections};
use crate::chart::{Axis, Caption, IntervalMark, Unit, intervals};
use crate::failure::PageError;
use crate::format::{counted, speedup};
use crate::markup::Markup;
use crate::picks::MAX_COMPARED;
use crate::shell::{Page, Section};
use crate::source::{Diff, Language, diff_view, highlighted};
use crate::visitor::Visitor;

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
        let place = self.place();
        format!("/runs/{}/attempts/{}", place.run, place.number)
    }

    fn place(&self) -> Place {
        let number = self.attempt().map_or(0, |attempt| attempt.number);
        Place { run: self.detail.summary.id.clone(), number }
    }
}

/// The requested attempts that exist, and messages about those that do not.
struct Found {
    compared: Vec<Compared>,
    missing: Vec<String>,
}

/// `GET /compare?a=RUN/NUMBER&a=RUN/NUMBER`.
pub(crate) async fn show(visitor: Visitor, Query(query): Pairs) -> Response {
    let page = async {
        let asked = Look::of(&query);
        let found = load(&visitor.client, &asked).await?;
        // A missing attempt is reported once and removed from the addresses of this page.
        let look = Look { wanted: found.compared.iter().map(Compared::place).collect(), ..asked };
        let source = |one: &Compared| one.attempt().and_then(|attempt| attempt.source.clone());
        let wanted = pair(&look, &found.compared).map(|(first, second)| [source(first), source(second)]);
        let sources = wanted.iter().flatten().map(|hash| text(&visitor.client, hash.as_ref()));
        let sources = join_all(sources).await;
        Ok(page(&look, &found, &sources))
    };
    visitor.answer(page.await)
}

/// Reads the existing attempts. Fails only when none exists.
async fn load(client: &Client, look: &Look) -> Result<Found, PageError> {
    let mut runs: Vec<RunId> = Vec::new();
    for place in &look.wanted {
        if !runs.contains(&place.run) {
            runs.push(place.run.clone());
        }
    }
    let (mut details, mut refused) = (Vec::new(), Vec::new());
    for (run, detail) in runs.iter().zip(join_all(runs.iter().map(|run| client.run(run))).await) {
        match detail {
            Ok(detail) => details.push(Arc::new(detail)),
            Err(error) if error.status() == Some(403) => refused.push((run, error)),
            Err(error) if error.status() == Some(404) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut missing: Vec<String> = look.unreadable.iter().map(|text| format!("{text} is not RUN/NUMBER.")).collect();
    let mut compared = Vec::new();
    for place in &look.wanted {
        let detail = details.iter().find(|detail| detail.summary.id == place.run);
        let at = detail.and_then(|detail| Some((detail, position(detail, place.number)?)));
        if let Some((detail, at)) = at {
            compared.push(Compared { detail: Arc::clone(detail), place: at });
        } else if let Some((_, error)) = refused.iter().find(|(run, _)| **run == place.run) {
            missing.push(format!("{place} cannot be shown: {error}."));
        } else {
            missing.push(format!("{place} does not exist."));
        }
    }
    match (compared.is_empty(), refused.into_iter().next()) {
        (true, Some((_, error))) => Err(error.into()),
        (true, None) if !missing.is_empty() => {
            let asked = look.wanted.iter().map(Place::to_string).chain(look.unreadable.iter().cloned());
            Err(PageError::not_found(&asked.collect::<Vec<_>>().join(" or ")))
        }
        _ => Ok(Found { compared, missing }),
    }
}

fn position(detail: &RunDetail, number: u32) -> Option<usize> {
    detail.view.attempts.iter().position(|attempt| attempt.number == number)
}

/// Returns the two attempts whose sources are compared: those of the address, else the first two.
fn pair<'a>(look: &Look, compared: &'a [Compared]) -> Option<(&'a Compared, &'a Compared)> {
    let named = |wanted: Option<&Place>| compared.iter().find(|one| wanted == Some(&one.place()));
    let first = named(look.from.as_ref()).or_else(|| compared.first())?;
    let second = named(look.to.as_ref()).or_else(|| compared.iter().find(|one| one.place() != first.place()))?;
    Some((first, second))
}

fn page(look: &Look, found: &Found, sources: &[Stored]) -> Page {
    let compared = &found.compared;
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
        let left_out = (look.left_out > 0)
            .then(|| view! { <p class="notice">{format!("{} more were chosen: at most {MAX_COMPARED} are compared.", look.left_out)}</p> });
        let missing = found.missing.iter().map(|words| view! { <p class="notice bad">{words.clone()}</p> });
        let missing = missing.collect::<Vec<_>>();
        let many = counted(u64::try_from(compared.len()).unwrap_or(u64::MAX), "attempt", "attempts");
        let body = sections(parts);
        view! { <h1>"Compare "{many}</h1>{missing}{left_out}{body} }.into_any()
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
    intervals(&caption, "attempt", &Axis::log("speedup", Unit::Times), &marks, &[(1.0, "reference")]).view()
}

fn table(look: &Look, compared: &[Compared]) -> AnyView {
    let columns: Vec<Vec<Fact>> =
        compared.iter().map(|one| one.attempt().map(|attempt| all(&one.detail, attempt)).unwrap_or_default()).collect();
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = Markup::new();
    let (mut equal, mut has_best) = (0_u64, false);
    let is_comparable = is_comparable(compared);
    out.tag("div").with("class", "scroll").with("tabindex", "0").around(|out| {
        out.tag("table").with("class", "compare").around(|out| {
            out.tag("thead").around(|out| {
                out.tag("tr").around(|out| {
                    out.tag("th").with("scope", "col").text("Fact");
                    for (index, one) in compared.iter().enumerate() {
                        let head = out.tag("th").with("scope", "col");
                        head.around(|out| {
                            out.tag("a").with("href", &one.href()).text(&one.name());
                            if compared.len() > 1 {
                                moves(out, look, one, index);
                            }
                        });
                    }
                });
            });
            out.tag("tbody").around(|out| {
                for index in 0..rows {
                    let cells: Vec<&Fact> = columns.iter().filter_map(|column| column.get(index)).collect();
                    let Some(first) = cells.first() else { continue };
                    let differs = cells.iter().any(|cell| cell.value != first.value);
                    if cells.iter().all(|cell| cell.value.is_empty()) {
                        continue;
                    }
                    equal += u64::from(!differs);
                    if look.differences_only && !differs {
                        continue;
                    }
                    out.tag("tr").with("class", if differs { "differs" } else { "equal" }).around(|out| {
                        out.tag("th").with("scope", "row").text(first.name);
                        let top = if is_comparable { best(&cells) } else { None };
                        has_best |= top.is_some();
                        for cell in &cells {
                            let words: String = cell.value.chars().take(600).collect();
                            if top.is_some() && cell.rank == top {
                                out.tag("td").with("class", "top").around(|out| out.tag("strong").text(&words));
                            } else {
                                out.tag("td").text(&words);
                            }
                        }
                    });
                }
            });
        });
    });
    let other = Look { differences_only: !look.differences_only, ..look.clone() };
    let words = if look.differences_only { "Show equal facts too" } else { "Show differences only" };
    let shown = out.block("table");
    let marks = match (is_comparable, has_best) {
        (true, true) => "rows that differ are marked, their best value is bold.",
        (true, false) => "rows that differ are marked.",
        (false, _) => {
            "rows that differ are marked. No value is the best one: tasks, devices or precision policies differ."
        }
    };
    view! {
        <p class="look"><a class="button" href=format!("{}#facts", other.href())>{words}</a></p>
        <p class="quiet">
            {counted(equal, "fact is", "facts are")}" the same in all of them; "{marks}
        </p>
        {shown}
    }
    .into_any()
}

/// Returns whether the attempts are of one task, and the timed ones of one kind of device and one precision policy. Otherwise
/// a better value does not make a better program.
fn is_comparable(compared: &[Compared]) -> bool {
    let tasks = compared.iter().map(|one| one.detail.summary.digest.task.as_str());
    let timed = compared.iter().filter_map(|one| one.attempt()?.published());
    let ways = timed.map(|published| (published.machine.device_name(), published.precision));
    is_one(tasks) && is_one(ways)
}

fn is_one<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    let first = values.next();
    values.all(|value| first.as_ref() == Some(&value))
}

/// The ways of a column: further to the left, and away.
fn moves(out: &mut Markup, look: &Look, one: &Compared, index: usize) {
    let (place, name) = (one.place(), one.name());
    out.tag("span").with("class", "moves look").around(|out| {
        if index > 0 {
            let href = format!("{}#facts", look.moved_left(&place).href());
            let link = out.tag("a").with("href", &href).with("title", "Move to the left");
            link.with("aria-label", &format!("Move {name} to the left")).text("←");
        }
        let href = format!("{}#facts", look.without(&place).href());
        let link = out.tag("a").with("href", &href).with("title", "Remove");
        link.with("aria-label", &format!("Remove {name}")).text("×");
    });
}

/// Renders the form that selects the two sources, if there are more than two.
fn choice(look: &Look, compared: &[Compared], (first, second): (&Compared, &Compared)) -> Option<AnyView> {
    let options = |current: &Compared| {
        let current = current.place();
        let option = |one: &Compared| {
            let (name, place) = (one.name(), one.place());
            let is_current = place == current;
            view! { <option value=place.to_string() selected=is_current>{name}</option> }
        };
        compared.iter().map(option).collect::<Vec<_>>()
    };
    let kept = look.pairs().into_iter().map(|(name, value)| view! { <input type="hidden" name=name value=value /> });
    let kept = kept.collect::<Vec<_>>();
    (compared.len() > 2).then(|| {
        view! {
            <form method="get" action="#source" class="filters look">
                {kept}
                <label>"From"<select name="from">{options(first)}</select></label>
                <label>"To"<select name="to">{options(second)}</select></label>
                <button type="submit">"Show what differs"</button>
            </form>
        }
        .into_any()
    })
}

fn source(look: &Look, compared: &[Compared], sources: &[Stored]) -> AnyView {
    let Some((first, second)) = pair(look, compared) else {
        return view! { <p class="empty">"Two attempts with a source are needed to show what differs."</p> }.into_any();
    };
    let choice = choice(look, compared, (first, second));
    let [Stored::Here(old), Stored::Here(new)] = sources else {
        let without = "One of the two has no source that could be shown.";
        return view! { {choice}<p class="empty">{without}</p> }.into_any();
    };
    let lines = |text: &str| highlighted(text, Language::of_program(text));
    let diff = Diff::of(lines(old), lines(new));
    let names = (first.name(), second.name());
    let words = if diff.is_same() {
        format!("The sources of {} and {} are the same.", names.0, names.1)
    } else {
        format!("From {} to {}: {} lines added, {} removed.", names.0, names.1, diff.added, diff.removed)
    };
    let layouts = layouts(look.view, |view| format!("{}#source", Look { view, ..look.clone() }.href()));
    let shown = diff_view(&diff, look.view).block("differences");
    view! { {choice}{layouts}<p>{words}</p>{shown} }.into_any()
}

#[cfg(test)]
mod tests {
    use crate::source::DiffView;
    use nightshift_protocol::measurement::Measurement;
    use nightshift_protocol::task::PrecisionPolicy;

    use super::*;
    use crate::page::sample::Sample;

    fn compared(numbers: &[u32]) -> Vec<Compared> {
        let detail = Arc::new(Sample::read().detail);
        let place = |number: &u32| detail.view.attempts.iter().position(|attempt| attempt.number == *number);
        let one = |number: &u32| Some(Compared { detail: Arc::clone(&detail), place: place(number)? });
        numbers.iter().filter_map(one).collect()
    }

    fn html(look: &Look, compared: Vec<Compared>, sources: &[Stored]) -> String {
        crate::report::with_links(page(look, &Found { compared, missing: Vec::new() }, sources))
    }

    #[test]
    fn what_differs_is_marked_and_what_does_not_can_be_left_out() {
        let sources = [Stored::Here("int a;\n".to_owned()), Stored::Here("int b;\n".to_owned())];
        let mut look = Look { view: DiffView::Split, ..Look::default() };
        let all = html(&look, compared(&[3, 4]), &sources);
        assert!(all.contains("class=\"differs\"") && all.contains("class=\"equal\"") && all.contains("diff split"));
        assert!(all.contains("<td class=\"top\"><strong>1.53×"), "the faster one is marked");
        assert!(all.contains("their best value is bold"), "{all}");
        let equal = all.matches("<tr class=\"equal\"").count();
        assert!(all.contains(&format!("{equal} facts are")), "those that are shown are counted: {equal} in {all}");
        let same = html(&look, compared(&[3, 3]), &sources);
        assert!(!same.contains("best value is bold") && !same.contains("class=\"top\""), "{same}");
        look.differences_only = true;
        let short = html(&look, compared(&[3, 4]), &sources);
        assert!(short.contains("class=\"differs\"") && !short.contains("class=\"equal\""));
    }

    #[test]
    fn errors_are_compared_where_a_limit_was_recorded() {
        let mut both = compared(&[3, 4]);
        for (one, error) in both.iter_mut().zip([0.125, 0.25]) {
            let cases = Arc::make_mut(&mut one.detail).view.attempts.iter_mut().flat_map(|attempt| &mut attempt.check);
            for (number, case) in cases.flat_map(|check| &mut check.cases).enumerate() {
                case.worst.iter_mut().for_each(|worst| worst.normalized_error = Some(error * 3.0));
                if number.is_multiple_of(2) {
                    case.worst.iter_mut().for_each(|worst| worst.normalized_error = Some(error));
                    case.allowed_error = Some(0.5);
                }
            }
        }
        let html = html(&Look::default(), both, &[]);
        let row = html.split("Share of the allowed error").nth(1).and_then(|rest| rest.split("</tr>").next());
        let row = row.unwrap_or_default();
        assert!(row.contains("class=\"top\"><strong>25 %") && row.contains("50 %") && !row.contains("75"), "{row}");
    }

    #[test]
    fn attempts_of_several_devices_or_precision_policies_have_no_best() {
        let shown = |change: fn(&mut Measurement)| {
            let mut other = Sample::read().detail;
            let attempts = other.view.attempts.iter_mut();
            attempts
                .flat_map(|attempt| [&mut attempt.measurement, &mut attempt.confirmation])
                .flatten()
                .for_each(change);
            let mut compared = compared(&[3, 4]);
            compared[1].detail = Arc::new(other);
            html(&Look::default(), compared, &[])
        };
        let device = shown(|measured| measured.machine.gpus.iter_mut().for_each(|gpu| gpu.name = "B200".to_owned()));
        let policy = shown(|measured| measured.precision = PrecisionPolicy::Tf32);
        for html in [device, policy] {
            assert!(html.contains("No value is the best one") && !html.contains("class=\"top\""), "{html}");
        }
        assert!(shown(|_| ()).contains("class=\"top\""), "the same device and policy");
    }

    #[test]
    fn nothing_chosen_says_how_to_choose() {
        let look = Look::default();
        assert!(html(&look, Vec::new(), &[]).contains("Nothing is chosen yet"));
        let one = html(&look, compared(&[1]), &[]);
        assert!(one.contains("Two attempts with a source are needed") && one.contains("1 attempt<"));
    }

    #[test]
    fn one_that_does_not_exist_is_named_beside_the_others() {
        let found = Found { compared: compared(&[3]), missing: vec!["run_x/9 does not exist.".to_owned()] };
        let html = crate::report::with_links(page(&Look::default(), &found, &[]));
        assert!(html.contains("run_x/9 does not exist.") && html.contains("1 attempt<"));
    }

    #[test]
    fn the_address_says_whose_sources_are_held_against_each_other() {
        let compared = compared(&[1, 3, 4]);
        let numbers = |look: &Look| pair(look, &compared).map(|(a, b)| (a.place().number, b.place().number));
        let place = |number: usize| compared.get(number).map(Compared::place);
        assert_eq!(numbers(&Look::default()), Some((1, 3)));
        assert_eq!(numbers(&Look { from: place(2), ..Look::default() }), Some((4, 1)));
        assert_eq!(numbers(&Look { from: place(1), to: place(2), ..Look::default() }), Some((3, 4)));
        let all = html(&Look::default(), self::compared(&[1, 3, 4]), &[]);
        assert!(all.contains("name=\"from\"") && all.contains("aria-label=\"Remove "), "{all}");
    }
}
