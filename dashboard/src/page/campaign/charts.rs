//! Charts of a campaign's progress and of the distribution of its speedups.

use std::fmt::Write as _;

use leptos::prelude::*;
use nightshift_protocol::api::{BestAt, CampaignDetail, CampaignResults, ResultLine, ResultMark};
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::time::TimestampMs;

use super::outcome::Outcome;
use super::results::{curves, has_tall_plot};
use crate::address::Address;
use crate::chart::{Axis, Caption, Dots, Group, Series, Unit, float_u64, histogram, lines, scatter, since_beginning};
use crate::format::{count, counted, words};
use crate::page::failure::PageError;
use crate::page::parts::on_page_only;

/// Classes of lines, in their order.
const LINE_CLASSES: [&str; 8] =
    ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7", "series-8"];

/// The places of attempts that the address asks for: a part of the picture of all of them.
pub(super) fn places(address: &Address) -> Result<(Option<u64>, Option<u64>), PageError> {
    let place = |name: &str| match address.get(name) {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(place) => Ok(Some(place)),
            Err(_) => Err(PageError::bad_query(&format!("`{name}`: `{text}` is no number of an attempt"))),
        },
    };
    Ok((place("from")?, place("to")?))
}

/// Two fields that make the picture show a part, and the way back to the whole.
fn zoom(address: &Address, results: &CampaignResults) -> AnyView {
    if results.attempts < 2 {
        return ().into_any();
    }
    let fields = [("from", "From attempt", 1), ("to", "to", results.attempts)].map(|(name, label, usual)| {
        let value = address.get(name).map_or_else(|| usual.to_string(), str::to_owned);
        let most = results.attempts.to_string();
        view! { <label>{label}<input type="number" name=name min="1" max=most value=value required=true /></label> }
    });
    let kept = address.pairs().filter(|(name, _)| !matches!(*name, "from" | "to"));
    let kept = kept.map(|(name, value)| {
        view! { <input type="hidden" name=name.to_owned() value=value.to_owned() /> }
    });
    let kept = kept.collect::<Vec<_>>();
    let whole = address.with("from", None).with("to", None).href();
    let back = is_zoomed(address).then(|| view! { <a href=whole>"All attempts of the campaign"</a> });
    view! {
        <form class="filters" method="get" action="#every-attempt">
            <span class="quiet">"Every attempt, closer:"</span>
            {fields.into_iter().collect::<Vec<_>>()}
            {kept}
            <button>"Show"</button>
            {back}
        </form>
    }
    .into_any()
}

fn is_zoomed(address: &Address) -> bool {
    address.get("from").is_some() || address.get("to").is_some()
}

pub(super) fn charts(
    address: &Address,
    detail: &CampaignDetail,
    results: &CampaignResults,
    outcomes: &[Outcome],
    now: TimestampMs,
) -> impl IntoView + use<> {
    let all = Address::parse("/attempts").with("campaign", Some(detail.summary.id.as_str()));
    view! {
        <h2 id="attempts">"Progress and distributions"</h2>
        {by_outcome(&all, results)}
        <div class="charts">
            {best_so_far(detail, results, now)}
            <div id="every-attempt">{attempts(address, results)}</div>
            {(!has_tall_plot(outcomes)).then(|| curves(outcomes))}
            {distribution(results)}
        </div>
        {on_page_only(zoom(address, results))}
    }
}

/// How many attempts came to what, each with a link to them.
fn by_outcome(all: &Address, results: &CampaignResults) -> impl IntoView + use<> {
    let entries = results
        .outcomes
        .iter()
        .map(|facet| {
            let href = all.with("outcome", Some(&facet.value)).href();
            view! { <li><a href=href>{format!("{} {}", words(&facet.value), count(facet.count))}</a></li> }
        })
        .collect::<Vec<_>>();
    let whole = format!("All {}", counted(results.attempts, "attempt", "attempts"));
    (results.attempts > 0).then(|| {
        view! { <ul class="chips" aria-label="Attempts by outcome"><li><a href=all.href()>{whole}</a></li>{entries}</ul> }
    })
}

fn distribution(results: &CampaignResults) -> AnyView {
    let drawn = results.speedups.len();
    let mut about = "All attempts with right results, by their speedup.".to_owned();
    if is_part(drawn, results.timed) {
        about = format!(
            "Attempts with right results, by their speedup: {} of {}, taken evenly from the slowest to the fastest.",
            count(as_count(drawn)),
            count(results.timed)
        );
    }
    let group =
        Group { name: "attempts".to_owned(), class: "series-1", values: results.speedups.clone(), ..Group::default() };
    histogram(&Caption::new("Speedups", about), &Axis::log("speedup", Unit::Times), &[group]).view()
}

/// The best of each run so far, over time, and the best of all of them.
fn best_so_far(detail: &CampaignDetail, results: &CampaignResults, now: TimestampMs) -> AnyView {
    let began = detail.summary.created_at;
    let ends = detail.runs.iter().filter_map(|run| run.finished_at).chain(results.lines.iter().map(|line| line.until));
    // A best stays the best while the campaign goes on without it.
    let end = if detail.summary.runs.unfinished() > 0 { now } else { ends.max().unwrap_or(began) };
    let (unit_ms, label) = since_beginning(end.since_ms(began));
    let passed = |at: TimestampMs| float_u64(at.since_ms(began)) / unit_ms;
    let line = |name: String, class, bests: &[BestAt]| {
        let mut points: Vec<(f64, f64)> = bests.iter().map(|best| (passed(best.at), best.speedup)).collect();
        points.extend(points.last().map(|(_, best)| (passed(end), *best)));
        Series { name, class, points, steps: true }
    };
    let is_some = is_part(results.lines.len(), results.timed_runs);
    let mut series = Vec::new();
    if results.lines.len() > 1 {
        let name = if is_some { "the best of these" } else { "the best of the campaign" };
        series.push(line(name.to_owned(), "series-all", &best_of_all(&results.lines)));
    }
    series.extend(results.lines.iter().zip(LINE_CLASSES).map(|(one, class)| line(one.task.clone(), class, &one.bests)));
    let mut about = "The fastest right program of each run, over the time since the beginning.".to_owned();
    if is_some {
        about = format!(
            "The fastest right program over the time since the beginning, of the {} fastest of {} runs.",
            results.lines.len(),
            count(results.timed_runs)
        );
    }
    if results.lines.iter().any(|line| is_part(line.bests.len(), line.grew)) {
        about.push_str(" Lines with many steps are drawn with some of them.");
    }
    let x = Axis::linear(label, Unit::Plain).beginning_at_zero();
    let caption = Caption::new("Best so far", about);
    lines(&caption, &x, &Axis::log("speedup", Unit::Times), &series, Some((1.0, "reference"))).view()
}

/// What was the best of all these runs, and when.
fn best_of_all(lines: &[ResultLine]) -> Vec<BestAt> {
    let mut all: Vec<BestAt> = lines.iter().flat_map(|line| line.bests.iter().copied()).collect();
    all.sort_by_key(|best| best.at);
    let mut highest = f64::NEG_INFINITY;
    all.retain(|best| {
        let is_better = best.speedup > highest;
        highest = highest.max(best.speedup);
        is_better
    });
    all
}

/// Every attempt: kept, right but not better, or failed.
fn attempts(address: &Address, results: &CampaignResults) -> AnyView {
    let (drawn, all) = (results.marks.len(), results.marks_of);
    let is_zoomed = is_zoomed(address);
    let name = |name: &str, number: u64| {
        if is_part(drawn, all) && !is_zoomed { format!("{name}, of {}", count(number)) } else { name.to_owned() }
    };
    let dots = |name: String, class| Dots { name, class, ..Dots::default() };
    let mut kinds = [
        dots(name("new best of its run", results.kept), "kept"),
        dots(name("right, not better", results.discarded), "discarded"),
        dots(name("failed, at the lower edge", results.failed), "failed"),
    ];
    for mark in &results.marks {
        let (kind, speedup) = match (mark.speedup, mark.kept) {
            (Some(speedup), true) => (0, speedup),
            (Some(speedup), false) => (1, speedup),
            // What has no speedup stands on a line of its own, well below the baseline.
            (None, _) if is_over(mark) => (2, FAILED_AT),
            (None, _) => continue,
        };
        let text = format!("{}, attempt {}: {}", mark.task, mark.number, words(mark.outcome.as_str()));
        kinds[kind].points.push((float_u64(mark.place), speedup, text));
        kinds[kind].hrefs.push(format!("/runs/{}/attempts/{}", mark.run, mark.number));
    }
    let mut about = "By what became of it, run after run.".to_owned();
    if is_part(drawn, all) {
        about = format!(
            "By what became of it, run after run. {} of {} attempts are drawn, taken evenly; new bests come first.",
            count(as_count(drawn)),
            count(all)
        );
    }
    if is_zoomed {
        let _ = write!(about, " A part of {}.", counted(results.attempts, "attempt", "attempts"));
    }
    let x = Axis::linear("attempts of the campaign", Unit::Count);
    let caption = Caption::new("Every attempt", about);
    scatter(&caption, &x, &Axis::log("speedup", Unit::Times), &kinds, Some((1.0, "reference"))).view()
}

/// Where attempts without a speedup are drawn.
const FAILED_AT: f64 = 0.1;

fn is_over(mark: &ResultMark) -> bool {
    mark.outcome != AttemptOutcome::Pending && !mark.outcome.is_correct()
}

fn is_part(drawn: usize, all: u64) -> bool {
    as_count(drawn) < all
}

fn as_count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_all_runs_only_grows() {
        let best = |at, speedup| BestAt { at: TimestampMs(at), number: 1, speedup };
        let line = |bests: Vec<BestAt>| ResultLine {
            run: format!("run_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error:?}")),
            task: "softmax".to_owned(),
            grew: as_count(bests.len()),
            until: TimestampMs(9),
            bests,
        };
        let lines = [line(vec![best(1, 1.5), best(5, 3.0)]), line(vec![best(2, 1.2), best(4, 2.0), best(8, 2.5)])];
        let all: Vec<(i64, f64)> = best_of_all(&lines).iter().map(|best| (best.at.0, best.speedup)).collect();
        assert_eq!(all, [(1, 1.5), (4, 2.0), (5, 3.0)]);
    }
}
