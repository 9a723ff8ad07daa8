//! What came out, drawn.

use leptos::prelude::*;
use nightshift_protocol::api::CampaignDetail;
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::time::TimestampMs;

use super::marks::{Mark, Marks};
use crate::address::Address;
use crate::chart::{Axis, Caption, Dots, Group, Series, Unit, fast_p, float, histogram, lines, scatter};
use crate::format::{count, words};

const HOUR_MS: f64 = 3_600_000.0;
/// Most runs that have a line of their own.
const MAX_LINES: usize = 8;
/// Classes of lines, in their order.
const LINE_CLASSES: [&str; MAX_LINES] =
    ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7", "series-8"];

pub(super) fn charts(detail: &CampaignDetail, marks: &Marks) -> impl IntoView + use<> {
    let drawn = u64::try_from(marks.marks.len()).unwrap_or(u64::MAX);
    let left_out = (drawn < marks.total).then(|| {
        let text = format!("The newest {} of {} attempts are drawn.", count(drawn), count(marks.total));
        let all = Address::parse("/attempts").with("campaign", Some(detail.summary.id.as_str())).href();
        view! { <p class="notice">{text}" "<a href=all>"All of them"</a></p> }
    });
    view! {
        <h2 id="results">"Results"</h2>
        {left_out}
        <div class="charts">
            {best_so_far(detail, marks)}
            {attempts(marks)}
            {curve(detail)}
            {distribution(marks)}
        </div>
    }
}

fn curve(detail: &CampaignDetail) -> AnyView {
    let speedups: Vec<Option<f64>> = detail
        .runs
        .iter()
        .map(|run| run.digest.best_attempt.and(run.digest.best_speedup).map(|interval| interval.estimate))
        .collect();
    let caption = Caption::new(
        "Share of tasks by speedup (fast_p)",
        "Tasks with a right program that is more than p times as fast as the baseline.",
    );
    fast_p(&caption, &speedups).view()
}

fn distribution(marks: &Marks) -> AnyView {
    let values: Vec<f64> = marks.marks.iter().filter_map(|mark| mark.speedup).collect();
    let caption = Caption::new("Speedups", "All attempts with right results, by their speedup.");
    let group = Group { name: "attempts".to_owned(), class: "series-1", values, mark: None };
    histogram(&caption, &Axis::log("speedup", Unit::Times), &[group]).view()
}

/// The best of each run so far, over time.
#[expect(clippy::cast_precision_loss, reason = "hours of a campaign have few digits")]
fn best_so_far(detail: &CampaignDetail, marks: &Marks) -> AnyView {
    let hours = |at: TimestampMs| at.since_ms(detail.summary.created_at) as f64 / HOUR_MS;
    let mut series: Vec<Series> = Vec::new();
    for of_run in marks.marks.chunk_by(|a, b| a.run == b.run) {
        let (Some(first), Some(last)) = (of_run.first(), of_run.last()) else { continue };
        let kept = of_run.iter().filter(|mark| mark.kept);
        let mut points: Vec<(f64, f64)> = kept.filter_map(|mark| Some((hours(mark.at), mark.speedup?))).collect();
        // The line goes on to where the run is now.
        points.extend(points.last().map(|(_, best)| (hours(last.at), *best)));
        if let Some(class) = LINE_CLASSES.get(series.len()).filter(|_| !points.is_empty()) {
            series.push(Series { name: first.task.clone(), class, points, steps: true });
        }
    }
    let caption =
        Caption::new("Best so far", "The fastest right program of each run, over the time since the beginning.");
    let x = Axis::linear("hours since the beginning", Unit::Plain);
    lines(&caption, &x, &Axis::log("speedup", Unit::Times), &series, Some((1.0, "baseline"))).view()
}

/// Every attempt: kept, right but not better, or failed.
fn attempts(marks: &Marks) -> AnyView {
    let (mut kept, mut discarded, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for (order, mark) in marks.marks.iter().enumerate() {
        let at = float(order + 1);
        let text = format!("{}, attempt {}: {}", mark.task, mark.number, words(mark.outcome.as_str()));
        match (mark.speedup, mark.kept) {
            (Some(speedup), true) => kept.push((at, speedup, text)),
            (Some(speedup), false) => discarded.push((at, speedup, text)),
            // What has no speedup stands on a line of its own, well below the baseline.
            (None, _) if is_over(mark) => failed.push((at, FAILED_AT, text)),
            (None, _) => {}
        }
    }
    let kinds = [
        Dots { name: "new best of its run".to_owned(), class: "kept", points: kept },
        Dots { name: "right, not better".to_owned(), class: "discarded", points: discarded },
        Dots { name: "failed, at the lower edge".to_owned(), class: "failed", points: failed },
    ];
    let caption = Caption::new("Every attempt", "By what became of it, run after run.");
    let x = Axis::linear("attempts of the campaign", Unit::Count);
    scatter(&caption, &x, &Axis::log("speedup", Unit::Times), &kinds, Some((1.0, "baseline"))).view()
}

/// Where attempts without a speedup are drawn.
const FAILED_AT: f64 = 0.1;

fn is_over(mark: &Mark) -> bool {
    mark.outcome != AttemptOutcome::Pending && !mark.outcome.is_correct()
}
