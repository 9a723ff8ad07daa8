//! Charts of a campaign's progress and of the distribution of its speedups.

use std::collections::HashMap;
use std::fmt::Write as _;

use leptos::prelude::*;
use nightshift_protocol::api::{BestAt, CampaignDetail, CampaignResults, ResultLine, ResultMark, RunSummary};
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::id::RunId;
use nightshift_protocol::target_baseline::TargetBaseline;
use nightshift_protocol::time::TimestampMs;

use super::outcome::Outcome;
use super::results::{curves, has_tall_plot};
use crate::address::Address;
use crate::chart::{
    Axis, Caption, Dots, Group, SERIES_CLASSES, Series, Unit, float_u64, histogram, lines, scatter, show,
    since_beginning,
};
use crate::failure::PageError;
use crate::format::{count, counted, words};
use crate::page::attempt::NOT_FINISHED;
use crate::page::components::on_page_only;
use crate::table;

/// The part of the address that names the baseline of the charts; without it they are over the fastest one.
const BASELINE: &str = "baseline";

/// Returns the baseline of the charts: the one of the address, or the reference where no fastest baseline is known.
fn baseline_of(address: &Address, results: &CampaignResults) -> TargetBaseline {
    let is_asked = address.get(BASELINE) == Some(TargetBaseline::Reference.as_str());
    if is_asked || results.timed_over_fastest == 0 { TargetBaseline::Reference } else { TargetBaseline::Fastest }
}

fn name_of(baseline: TargetBaseline) -> &'static str {
    match baseline {
        TargetBaseline::Fastest => "fastest baseline",
        TargetBaseline::Reference => "reference",
    }
}

/// Returns the axis of speedups over this baseline.
fn speedup_axis(baseline: TargetBaseline) -> Axis {
    let label = match baseline {
        TargetBaseline::Fastest => "speedup over the fastest baseline",
        TargetBaseline::Reference => "speedup over the reference",
    };
    Axis::log(label, Unit::Times)
}

/// Links that choose the baseline of the charts, where the fastest one is known.
fn baselines(address: &Address, results: &CampaignResults) -> Option<AnyView> {
    let choices = [
        ("", "Over the fastest baseline".to_owned()),
        (TargetBaseline::Reference.as_str(), "Over the reference".to_owned()),
    ];
    (results.timed_over_fastest > 0)
        .then(|| on_page_only(table::chips(address, BASELINE, "Baseline of the charts", &choices).into_any()))
}

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
    let baseline = baseline_of(address, results);
    view! {
        <h2 id="attempts">"Progress and distributions"</h2>
        {by_outcome(&all, detail, results)}
        {baselines(address, results)}
        <div class="charts">
            {best_so_far(detail, results, baseline, now)}
            <div id="every-attempt">{attempts(address, &detail.runs, results, baseline)}</div>
            {(!has_tall_plot(outcomes)).then(|| curves(outcomes))}
            {distribution(results, baseline)}
        </div>
        {on_page_only(zoom(address, results))}
    }
}

/// How many attempts came to what, each with a link to them.
fn by_outcome(all: &Address, detail: &CampaignDetail, results: &CampaignResults) -> impl IntoView + use<> {
    let is_over = detail.summary.runs.unfinished() == 0;
    let entries = results
        .outcomes
        .iter()
        .map(|facet| {
            let href = all.with("outcome", Some(&facet.value)).href();
            let is_left = is_over && facet.value == AttemptOutcome::Pending.as_str();
            let name = if is_left { NOT_FINISHED.to_owned() } else { words(&facet.value) };
            view! { <li><a href=href>{format!("{name} {}", count(facet.count))}</a></li> }
        })
        .collect::<Vec<_>>();
    let whole = format!("All {}", counted(results.attempts, "attempt", "attempts"));
    (results.attempts > 0).then(|| {
        view! { <ul class="chips" aria-label="Attempts by outcome"><li><a href=all.href()>{whole}</a></li>{entries}</ul> }
    })
}

fn distribution(results: &CampaignResults, baseline: TargetBaseline) -> AnyView {
    let (speedups, timed) = match baseline {
        TargetBaseline::Fastest => (&results.speedups_over_fastest, results.timed_over_fastest),
        TargetBaseline::Reference => (&results.speedups, results.timed),
    };
    let name = name_of(baseline);
    let mut about = format!("All attempts with right results, by their speedup over the {name}.");
    if is_part(speedups.len(), timed) {
        about = format!(
            "Attempts with right results, by their speedup over the {name}: {} of {}, taken evenly from the slowest to the fastest.",
            count(as_count(speedups.len())),
            count(timed)
        );
    }
    about.push_str(&left_out(results.timed - timed));
    let group = Group { name: "attempts".to_owned(), class: "series-1", values: speedups.clone(), ..Group::default() };
    histogram(&Caption::new("Speedups", about), &speedup_axis(baseline), &[group]).view()
}

/// Says how many timed attempts a chart cannot show.
fn left_out(attempts: u64) -> String {
    if attempts == 0 {
        return String::new();
    }
    format!(" The fastest baseline of {} is not recorded.", counted(attempts, "attempt", "attempts"))
}

/// The best of each run so far, over time, and the best of all of them.
fn best_so_far(
    detail: &CampaignDetail,
    results: &CampaignResults,
    baseline: TargetBaseline,
    now: TimestampMs,
) -> AnyView {
    let began = detail.summary.created_at;
    let ends = detail.runs.iter().filter_map(|run| run.finished_at).chain(results.lines.iter().map(|line| line.until));
    // A best stays the best while the campaign goes on without it.
    let end = if detail.summary.runs.unfinished() > 0 { now } else { ends.max().unwrap_or(began) };
    let (unit_ms, label) = since_beginning(end.since_ms(began));
    let passed = |at: TimestampMs| float_u64(at.since_ms(began)) / unit_ms;
    let line = |name: String, class, bests: &[BestAt]| {
        let points = bests.iter().filter_map(|best| Some((passed(best.at), best_speedup(best, baseline)?)));
        let mut points: Vec<(f64, f64)> = points.collect();
        points.extend(points.last().map(|(_, best)| (passed(end), *best)));
        Series { name, class, points, steps: true }
    };
    let is_some = is_part(results.lines.len(), results.timed_runs);
    let mut series = Vec::new();
    if results.lines.len() > 1 {
        let name = if is_some { "the best of these" } else { "the best of the campaign" };
        series.push(line(name.to_owned(), "series-all", &best_of_all(&results.lines, baseline)));
    }
    series
        .extend(results.lines.iter().zip(SERIES_CLASSES).map(|(one, class)| line(one.task.clone(), class, &one.bests)));
    let name = name_of(baseline);
    let mut about =
        format!("Speedup of the fastest right program of each run over the {name}, by the time since the beginning.");
    if is_some {
        about = format!(
            "Speedup of the fastest right program over the {name}, by the time since the beginning, of the {} fastest of {} runs.",
            results.lines.len(),
            count(results.timed_runs)
        );
    }
    if results.lines.iter().any(|line| is_part(line.bests.len(), line.grew)) {
        about.push_str(" Lines with many steps are drawn with some of them.");
    }
    let x = Axis::linear(label, Unit::Plain).beginning_at_zero();
    let caption = Caption::new("Best so far", about);
    lines(&caption, &x, &speedup_axis(baseline), &series, Some((1.0, name))).view()
}

/// What was the best of all these runs, and when.
fn best_of_all(lines: &[ResultLine], baseline: TargetBaseline) -> Vec<BestAt> {
    let mut all: Vec<BestAt> = lines.iter().flat_map(|line| line.bests.iter().copied()).collect();
    all.sort_by_key(|best| best.at);
    let mut highest = f64::NEG_INFINITY;
    all.retain(|best| {
        let Some(speedup) = best_speedup(best, baseline) else { return false };
        let is_better = speedup > highest;
        highest = highest.max(speedup);
        is_better
    });
    all
}

fn best_speedup(best: &BestAt, baseline: TargetBaseline) -> Option<f64> {
    match baseline {
        TargetBaseline::Fastest => best.speedup_over_fastest,
        TargetBaseline::Reference => Some(best.speedup),
    }
}

/// Every attempt: kept, right but not confirmed as the best, right but not better, or failed.
fn attempts(address: &Address, runs: &[RunSummary], results: &CampaignResults, baseline: TargetBaseline) -> AnyView {
    let (drawn, all) = (results.marks.len(), results.marks_of);
    let is_zoomed = is_zoomed(address);
    let name = |name: &str, number: u64| {
        if is_part(drawn, all) && !is_zoomed { format!("{name}, of {}", count(number)) } else { name.to_owned() }
    };
    let dots = |name: String, class| Dots { name, class, ..Dots::default() };
    let mut kinds = [
        dots(name("new best of its run", results.kept), "kept"),
        // The results count both kinds of right ones together.
        dots("right, not confirmed as the best".to_owned(), "unconfirmed"),
        dots("right, not better".to_owned(), "discarded"),
        dots(name("failed, at the lower edge", results.failed), "failed"),
    ];
    let bests = runs.iter().filter_map(|run| Some((&run.id, run.digest.best_speedup?.estimate))).collect();
    for mark in &results.marks {
        let speedup = match baseline {
            TargetBaseline::Fastest => mark.speedup_over_fastest,
            TargetBaseline::Reference => mark.speedup,
        };
        let kind = match (speedup, mark.kept) {
            (Some(_), true) => 0,
            (Some(_), false) if is_unconfirmed(mark, &bests) => 1,
            (Some(_), false) => 2,
            (None, _) if is_over(mark) => 3,
            (None, _) => continue,
        };
        let times = |speedup: Option<f64>, over: &str| {
            speedup.map_or_else(String::new, |speedup| format!(", {} over the {over}", show(speedup, Unit::Times)))
        };
        let text = format!(
            "{}, attempt {}: {}{}{}",
            mark.task,
            mark.number,
            words(mark.outcome.as_str()),
            times(mark.speedup, name_of(TargetBaseline::Reference)),
            times(mark.speedup_over_fastest, name_of(TargetBaseline::Fastest))
        );
        kinds[kind].points.push((float_u64(mark.place), speedup, text));
        kinds[kind].hrefs.push(format!("/runs/{}/attempts/{}", mark.run, mark.number));
    }
    let over = name_of(baseline);
    let mut about = format!("Speedup over the {over}, by what became of it, run after run.");
    if is_part(drawn, all) {
        let _ = write!(
            about,
            " {} of {} attempts are drawn, taken evenly; new bests come first.",
            count(as_count(drawn)),
            count(all)
        );
    }
    if is_zoomed {
        let _ = write!(about, " A part of {}.", counted(results.attempts, "attempt", "attempts"));
    }
    let x = Axis::linear("attempts of the campaign", Unit::Count);
    let caption = Caption::new("Every attempt", about);
    scatter(&caption, &x, &speedup_axis(baseline), &kinds, Some((1.0, over))).view()
}

/// Returns whether an attempt was measured as faster than the best one of its run, and is not the best itself.
fn is_unconfirmed(mark: &ResultMark, bests: &HashMap<&RunId, f64>) -> bool {
    let best = bests.get(&mark.run);
    best.is_none_or(|best| mark.speedup.is_some_and(|speedup| speedup > *best))
}

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
    use serde_json::json;

    use super::*;

    #[test]
    fn the_best_of_all_runs_only_grows() {
        let best = |at, speedup| BestAt { at: TimestampMs(at), number: 1, speedup, speedup_over_fastest: None };
        let line = |bests: Vec<BestAt>| ResultLine {
            run: format!("run_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error:?}")),
            task: "softmax".to_owned(),
            grew: as_count(bests.len()),
            until: TimestampMs(9),
            bests,
        };
        let lines = [line(vec![best(1, 1.5), best(5, 3.0)]), line(vec![best(2, 1.2), best(4, 2.0), best(8, 2.5)])];
        let all: Vec<(i64, f64)> =
            best_of_all(&lines, TargetBaseline::Reference).iter().map(|best| (best.at.0, best.speedup)).collect();
        assert_eq!(all, [(1, 1.5), (4, 2.0), (5, 3.0)]);
        assert!(best_of_all(&lines, TargetBaseline::Fastest).is_empty(), "no fastest baseline is known");
    }

    #[test]
    fn charts_are_over_the_fastest_baseline_unless_the_address_asks_for_the_reference() {
        let mark = |place: u64, over_fastest: Option<f64>| {
            json!({"place": place, "run": format!("run_{}", "0".repeat(32)), "task": "softmax", "number": place,
                "outcome": "correct_faster", "speedup": 4.0, "speedup_over_fastest": over_fastest, "kept": true})
        };
        let results = |over_fastest: Vec<f64>| -> CampaignResults {
            let value = json!({"attempts": 2, "outcomes": [], "kept": 2, "discarded": 0, "failed": 0, "pending": 0,
                "marks": [mark(1, over_fastest.first().copied()), mark(2, None)], "marks_of": 2, "lines": [],
                "timed_runs": 1, "speedups": [4.0, 4.0], "timed": 2, "timed_over_fastest": over_fastest.len(),
                "speedups_over_fastest": over_fastest, "fast_p": [], "models": [], "devices": []});
            serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}"))
        };
        let html = |address: &str, results: &CampaignResults| {
            let address = Address::parse(address);
            let baseline = baseline_of(&address, results);
            let (dots, bars) = (attempts(&address, &[], results, baseline), distribution(results, baseline));
            Owner::new().with(|| view! { {baselines(&address, results)}{dots}{bars} }.to_html())
        };
        let known = results(vec![1.25]);
        let over_fastest = html("/campaigns/x", &known);
        for part in [
            "speedup over the fastest baseline",
            "4.00× over the reference, 1.25× over the fastest baseline",
            "new best of its run (1)",
            "The fastest baseline of 1 attempt is not recorded.",
            "href=\"/campaigns/x?baseline=reference\"",
        ] {
            assert!(over_fastest.contains(part), "{part} in {over_fastest}");
        }
        let over_reference = html("/campaigns/x?baseline=reference", &known);
        assert!(over_reference.contains("new best of its run (2)"), "{over_reference}");
        assert!(!over_reference.contains("speedup over the fastest baseline"), "{over_reference}");
        let mut failing = results(Vec::new());
        for mark in &mut failing.marks {
            (mark.outcome, mark.speedup, mark.kept) = (AttemptOutcome::CompileFailed, None, false);
        }
        let failing = html("/campaigns/x", &failing);
        assert!(failing.contains("failed, at the lower edge (2)") && !failing.contains("0.10×"), "{failing}");
        let unknown = html("/campaigns/x", &results(Vec::new()));
        assert!(unknown.contains("speedup over the reference") && !unknown.contains("baseline=reference"));
    }
}
