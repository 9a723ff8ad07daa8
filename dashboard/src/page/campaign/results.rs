//! The result of a campaign: a forest plot by task, geometric means, and `fast_p`, over both baselines.

use std::cmp::Ordering;

use leptos::prelude::*;
use nightshift_protocol::api::FAST_P_THRESHOLDS;
use nightshift_protocol::speedups::Speedups;

use super::outcome::{Outcome, over_fastest, over_reference};
use crate::chart::{Caption, Curve, ForestRow, Unit, fast_p, forest, show};
use crate::format::{counted, percent};
use crate::page::models::FAST_P_NAMES;

/// The name of each column of speedups, as it stands in every table and chart.
const OVER: [&str; 2] = ["over the reference", "over the fastest baseline"];

/// Tasks from which the forest plot is as tall as the summary with the curves of `fast_p` below it.
const TALL_PLOT: usize = 12;

/// Returns whether the curves of `fast_p` stand beside the forest plot, and not with the other charts.
pub(super) fn has_tall_plot(outcomes: &[Outcome]) -> bool {
    outcomes.len() >= TALL_PLOT
}

/// The plots and the summary.
pub(super) fn results(outcomes: &[Outcome]) -> impl IntoView + use<> {
    let (reference, fastest) = (over_reference(outcomes), over_fastest(outcomes));
    view! {
        <h2 id="results">"Results"</h2>
        <div class="charts pair">
            {plot(outcomes, &reference)}
            <div>{summary(outcomes, &reference, &fastest)}{has_tall_plot(outcomes).then(|| curves(outcomes))}</div>
        </div>
    }
}

/// The curves of `fast_p` over both baselines.
pub(super) fn curves(outcomes: &[Outcome]) -> AnyView {
    let (reference, fastest) = (over_reference(outcomes), over_fastest(outcomes));
    let curves = [
        Curve { name: OVER[0], class: "series-1", steps: reference.steps(), tasks: reference.tasks },
        Curve { name: OVER[1], class: "series-2 dashed", steps: fastest.steps(), tasks: fastest.tasks },
    ];
    let caption = Caption::new(
        "Share of tasks by speedup (fast_p)",
        "Tasks whose best program is correct and more than p times as fast as the baseline.",
    );
    fast_p(&caption, &curves).view()
}

/// The forest plot, the fastest task first.
fn plot(outcomes: &[Outcome], reference: &Speedups) -> AnyView {
    let mut sorted: Vec<&Outcome> = outcomes.iter().collect();
    sorted.sort_by(|a, b| slowest_last(a, b).then_with(|| a.task.cmp(&b.task)));
    let rows: Vec<ForestRow> = sorted.into_iter().map(row).collect();
    let mut about = "Best attempt of each task over its reference, with the interval.".to_owned();
    // Where times are computed, rooflines are not known.
    if outcomes.iter().any(|outcome| outcome.is_computed && outcome.over_reference.is_some()) {
        about.push_str(" Rooflines are on the pages of the attempts.");
    }
    let mean = reference.geometric_mean().map(|mean| ("Geometric mean", mean));
    forest(&Caption::new("Speedup by task", about), "speedup over the reference", &rows, mean).view()
}

fn slowest_last(a: &Outcome, b: &Outcome) -> Ordering {
    let estimate = |outcome: &Outcome| outcome.over_reference.map_or(0.0, |speedup| speedup.estimate);
    estimate(b).total_cmp(&estimate(a))
}

fn row(outcome: &Outcome) -> ForestRow {
    let href = match outcome.best {
        Some(number) => format!("/runs/{}/attempts/{number}", outcome.run),
        None => format!("/runs/{}", outcome.run),
    };
    let named = outcome.baselines.iter().map(|baseline| (baseline.kind.label().to_owned(), baseline.speedup));
    ForestRow {
        name: outcome.task.clone(),
        href: Some(href),
        interval: outcome.over_reference.map(|speedup| (speedup.low, speedup.estimate, speedup.high)),
        baselines: named.collect(),
        roofline: outcome.roofline(),
    }
}

/// Geometric means and `fast_p`, over both baselines.
fn summary(outcomes: &[Outcome], reference: &Speedups, fastest: &Speedups) -> AnyView {
    let both = [reference, fastest];
    let cells = |value: &dyn Fn(&Speedups) -> String| {
        both.iter().map(|speedups| view! { <td class="number">{value(speedups)}</td> }).collect::<Vec<_>>()
    };
    let heads = OVER
        .map(|over| view! { <th scope="col" class="number">{capitalized(over)}</th> })
        .into_iter()
        .collect::<Vec<_>>();
    let fast = FAST_P_THRESHOLDS
        .iter()
        .zip(FAST_P_NAMES)
        .map(|(p, name)| {
            let shares = cells(&|speedups| percent(speedups.fast_p(*p)));
            view! { <tr><th scope="row">{name}</th>{shares}</tr> }
        })
        .collect::<Vec<_>>();
    let means =
        cells(&|speedups| speedups.geometric_mean().map_or_else(|| "–".to_owned(), |mean| show(mean, Unit::Times)));
    let tasks = cells(&|speedups| format!("{} of {}", speedups.solved(), speedups.tasks));
    let number =
        |left_out: fn(&&Outcome) -> bool| u64::try_from(outcomes.iter().filter(left_out).count()).unwrap_or(u64::MAX);
    let unprepared = number(|outcome| outcome.is_unprepared);
    let unrecorded = number(|outcome| outcome.fastest.is_none() && !outcome.is_unprepared);
    let unprepared = (unprepared > 0).then(|| {
        let are = if unprepared == 1 { "is" } else { "are" };
        view! { <p class="quiet">{format!("{} {are} not prepared yet.", counted(unprepared, "task", "tasks"))}</p> }
    });
    let unrecorded = (unrecorded > 0).then(|| {
        let tasks = counted(unrecorded, "task", "tasks");
        view! { <p class="quiet">{format!("The fastest baseline of {tasks} is not recorded.")}</p> }
    });
    view! {
        <div class="scroll" tabindex="0">
            <table class="summary">
                <thead><tr><th scope="col">"Campaign"</th>{heads}</tr></thead>
                <tbody>
                    <tr><th scope="row">"Geometric mean of speedups"</th>{means}</tr>
                    {fast}
                    <tr><th scope="row">"Tasks with a best program"</th>{tasks}</tr>
                </tbody>
            </table>
        </div>
        {unprepared}{unrecorded}
    }
    .into_any()
}

fn capitalized(words: &str) -> String {
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::outcome;
    use super::*;

    fn html(outcomes: &[Outcome]) -> String {
        Owner::new().with(|| results(outcomes).to_html())
    }

    #[test]
    fn a_campaign_begins_with_its_tasks_and_their_means_over_both_baselines() {
        let shown = html(&[outcome("slow", Some(2.0), Some(2.0)), outcome("fast", Some(8.0), Some(2.0))]);
        let place = |words: &str| shown.find(words).unwrap_or(usize::MAX);
        assert!(place("fast: 8.00×") < place("slow: 2.00×"), "the fastest task stands first");
        for part in [
            "torch.compile 2.00×",
            "roofline 16.00×",
            "<td class=\"number\">4.00×</td>",
            "<td class=\"number\">2.00×</td>",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("is not recorded"));
        assert!(shown.contains(">fast₁.₅<") && !shown.contains("fast at p"), "as on every page: {shown}");
        let outcomes = [outcome("slow", Some(2.0), Some(2.0)), outcome("fast", Some(8.0), Some(2.0))];
        let drawn = Owner::new().with(|| curves(&outcomes).to_html());
        assert!(drawn.contains("class=\"line series-2 dashed\""), "a line under it can be seen: {drawn}");
        assert!(drawn.contains("over the fastest baseline is 50 %, of 2 tasks."), "{drawn}");
    }

    #[test]
    fn what_is_not_known_over_the_fastest_baseline_is_counted() {
        let shown = html(&[outcome("a", Some(2.0), None), outcome("b", None, None)]);
        assert!(shown.contains("The fastest baseline of 2 tasks is not recorded."), "solved or not: {shown}");
    }

    #[test]
    fn a_task_that_is_being_prepared_is_no_gap() {
        let mut run = crate::page::sample::Sample::read().detail.summary;
        (run.digest.fastest_baseline, run.digest.best_attempt) = (None, None);
        run.status = nightshift_protocol::run::RunStatus::Running;
        run.digest.attempts = 0;
        let shown = html(&[Outcome::of(&run, None)]);
        assert!(shown.contains("1 task is not prepared yet.") && !shown.contains("is not recorded"), "{shown}");
        run.digest.attempts = 1;
        let shown = html(&[Outcome::of(&run, None)]);
        assert!(shown.contains("is not recorded"), "its other baselines failed: {shown}");
    }

    #[test]
    fn a_campaign_that_has_just_begun_has_nothing_to_draw() {
        let shown = html(&[outcome("a", None, None)]);
        assert!(shown.contains("There is no best program yet."), "{shown}");
    }
}
