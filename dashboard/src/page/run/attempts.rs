//! The attempts of a run: their tree, their speedups, and the list from which some can be compared.

use leptos::prelude::*;
use nightshift_protocol::api::{RunDetail, TableName};
use nightshift_protocol::attempt::{Attempt, AttemptOutcome, TimedAttempt};
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::measurement::Interval;

use crate::chart::{Axis, Caption, IntervalMark, Node, Series, Unit, intervals, lineage, lines, show};
use crate::format::{speedup, words};
use crate::page::attempt::{NOT_FINISHED, fastest_baseline, outcome_of, speedup_over_fastest};
use crate::page::files;
use crate::picks::{MAX_COMPARED, Picks};

/// Maximum number of attempts in the list.
const MAX_LISTED: usize = 500;

/// The section.
pub(super) fn section(detail: &RunDetail) -> AnyView {
    if detail.view.attempts.is_empty() {
        return view! { <p class="empty">"There is no attempt yet. The first one follows the plan."</p> }.into_any();
    }
    let file = files::links("Attempts", TableName::Attempts, [("run", detail.summary.id.as_str()), ("order", "asc")]);
    let bests = new_bests(detail);
    view! { {tree(detail, &bests)}{speedups(detail, &bests)}{best_so_far(detail, &bests)}{list(detail)}{file} }
        .into_any()
}

/// Returns the numbers of the attempts that became the best of the run, by the rule of a campaign's results.
fn new_bests(detail: &RunDetail) -> Vec<u32> {
    let right = detail.view.attempts.iter().filter(|attempt| attempt.outcome.is_correct());
    let timed = right.filter_map(|attempt| {
        let speedup = attempt.speedup()?.estimate;
        Some(TimedAttempt { number: attempt.number, speedup, is_confirmed: attempt.confirmation.is_some() })
    });
    nightshift_protocol::attempt::new_bests(&timed.collect::<Vec<_>>(), detail.view.best_attempt)
}

/// Returns the class of an attempt in charts.
fn class(detail: &RunDetail, attempt: &Attempt, bests: &[u32]) -> &'static str {
    let estimate = |attempt: &Attempt| attempt.speedup().map(|speedup| speedup.estimate);
    let best = detail.view.attempts.iter().find(|other| detail.view.best_attempt == Some(other.number));
    match attempt.outcome {
        AttemptOutcome::Pending => "pending",
        AttemptOutcome::CorrectFaster | AttemptOutcome::CorrectNotFaster => {
            if bests.contains(&attempt.number) {
                "kept"
            } else if estimate(attempt) > best.and_then(estimate) {
                "unconfirmed"
            } else {
                "discarded"
            }
        }
        _ => "failed",
    }
}

const KINDS: [(&str, &str); 5] = [
    ("kept", "new best of the run"),
    ("unconfirmed", "right, not confirmed as the best"),
    ("discarded", "right, not better"),
    ("failed", "failed"),
    ("pending", "in progress"),
];

fn href(detail: &RunDetail, number: u32) -> String {
    format!("/runs/{}/attempts/{number}", detail.summary.id)
}

/// As `/compare` and the address name an attempt.
fn name(detail: &RunDetail, number: u32) -> String {
    format!("{}/{number}", detail.summary.id)
}

fn said(detail: &RunDetail, attempt: &Attempt) -> String {
    let fast = attempt.speedup().map_or_else(String::new, |interval| format!(", {}", speedup(interval)));
    let over_fastest = speedup_over_fastest(detail, attempt).map_or_else(String::new, |interval| {
        format!(", {} over the fastest baseline", show(interval.estimate, Unit::Times))
    });
    format!("attempt {}: {}{fast}{over_fastest}", attempt.number, outcome_of(detail, attempt))
}

fn tree(detail: &RunDetail, bests: &[u32]) -> AnyView {
    let nodes: Vec<Node> = detail
        .view
        .attempts
        .iter()
        .map(|attempt| Node {
            number: attempt.number,
            parent: attempt.parent,
            class: class(detail, attempt, bests),
            label: attempt
                .speedup()
                .map_or_else(|| words(attempt.stage.as_str()), |interval| show(interval.estimate, Unit::Times)),
            words: said(detail, attempt),
            href: href(detail, attempt.number),
        })
        .collect();
    let caption = Caption::new(
        "Lineage",
        "Each attempt beside the one that it was derived from; the way to the best one is thick.",
    );
    let mut there: Vec<_> =
        KINDS.into_iter().filter(|(class, _)| nodes.iter().any(|node| node.class == *class)).collect();
    if detail.summary.status.is_final() {
        there.iter_mut().filter(|(class, _)| *class == "pending").for_each(|(_, name)| *name = NOT_FINISHED);
    }
    lineage(&caption, &nodes, detail.view.best_attempt, &there).view()
}

fn speedups(detail: &RunDetail, bests: &[u32]) -> AnyView {
    let marks: Vec<IntervalMark> = detail
        .view
        .attempts
        .iter()
        .map(|attempt| IntervalMark {
            name: attempt.number.to_string(),
            interval: attempt.speedup().map(|interval| (interval.low, interval.estimate, interval.high)),
            class: class(detail, attempt, bests),
            words: said(detail, attempt),
            href: Some(href(detail, attempt.number)),
        })
        .collect();
    let mut levels = vec![(1.0, "reference")];
    let is_comparable = detail.view.prepared.as_ref().is_some_and(|prepared| {
        detail.view.attempts.iter().filter_map(Attempt::published).all(|published| prepared.is_comparable(published))
    });
    let faster = fastest_baseline(detail).filter(|fastest| is_comparable && fastest.kind != BaselineKind::Reference);
    let mut about = "Over the reference, with its interval; a cross is an attempt that was not timed.".to_owned();
    if let Some(fastest) = faster {
        levels.push((fastest.speedup.estimate, "fastest baseline"));
        about.push_str(" What is above the line of the fastest baseline is faster than it.");
    }
    let caption = Caption::new("Speedup of each attempt", about);
    intervals(&caption, "attempt", &Axis::log("speedup over the reference", Unit::Times), &marks, &levels).view()
}

fn best_so_far(detail: &RunDetail, bests: &[u32]) -> AnyView {
    let over_fastest = highest_so_far(detail, bests, |attempt| speedup_over_fastest(detail, attempt));
    let over_reference = highest_so_far(detail, bests, Attempt::speedup);
    if over_reference.len() < 2 {
        return ().into_any();
    }
    let mut series = vec![
        Series { name: "over the reference".to_owned(), class: "series-1", points: over_reference, steps: true },
        Series {
            name: "over the fastest baseline".to_owned(),
            class: "series-2 dashed",
            points: over_fastest,
            steps: true,
        },
    ];
    series.retain(|series| !series.points.is_empty());
    let caption = Caption::new("Best so far", "The published speedup of the best program after each attempt.");
    let x = Axis::linear("attempt", Unit::Count);
    lines(&caption, &x, &Axis::log("speedup", Unit::Times), &series, Some((1.0, "as fast as the baseline"))).view()
}

/// Returns the speedup of the best program after each attempt with right results, from the first best one on.
fn highest_so_far(
    detail: &RunDetail,
    bests: &[u32],
    speedup: impl Fn(&Attempt) -> Option<Interval>,
) -> Vec<(f64, f64)> {
    let right = detail.view.attempts.iter().filter(|attempt| attempt.outcome.is_correct());
    let mut best = None;
    right
        .filter_map(|attempt| {
            if bests.contains(&attempt.number) {
                best = speedup(attempt).map(|interval| interval.estimate);
            }
            Some((f64::from(attempt.number), best?))
        })
        .collect()
}

/// The list; its boxes choose what is compared, without any script. What is chosen stands in the address of the page, which
/// is known once the page is rendered.
fn list(detail: &RunDetail) -> AnyView {
    let attempts = &detail.view.attempts;
    let left_out = attempts.len().saturating_sub(MAX_LISTED);
    let listed: Vec<String> =
        attempts.iter().rev().take(MAX_LISTED).map(|attempt| name(detail, attempt.number)).collect();
    let rows = attempts.iter().rev().take(MAX_LISTED).map(|attempt| row(detail, attempt)).collect::<Vec<_>>();
    let left_out = (left_out > 0).then(|| view! { <p class="quiet">{left_out}" older attempts are not listed."</p> });
    view! {
        <form method="get" action="/compare" data-compare=MAX_COMPARED.to_string()>
            <div class="scroll" tabindex="0">
                <table class="attempts-of-run">
                    <thead>
                        <tr>
                            <th><span class="aside">"Choose"</span></th><th class="number">"No."</th><th>"Stage"</th>
                            <th class="number">"From"</th><th>"Outcome"</th><th>"Over the reference"</th>
                            <th>"Over the fastest"</th><th class="number">"Gain"</th>
                            <th class="number">"Reward"</th><th>"Change"</th><th>"Then"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
            {left_out}
            <p class="look">
                <button type="submit">"Compare the chosen ones"</button>
                {move || Picks::of_page().link_to_others()}
            </p>
            <p class="said" role="status"></p>
            {move || Picks::of_page().elsewhere(&listed)}
        </form>
    }
    .into_any()
}

fn row(detail: &RunDetail, attempt: &Attempt) -> AnyView {
    let number = attempt.number;
    let outcome = attempt.outcome.as_str();
    let is_best = detail.view.best_attempt == Some(number);
    let is_confirmed = attempt.confirmation.is_some() && attempt.outcome.is_correct();
    let shown = attempt.speedup().map_or_else(|| "–".to_owned(), speedup);
    let over_fastest = speedup_over_fastest(detail, attempt).map_or_else(|| "–".to_owned(), speedup);
    let gain = attempt.gain.map_or_else(|| "–".to_owned(), |gain| show(gain.measured, Unit::Times));
    let reward = attempt.reward.as_ref().map_or_else(|| "–".to_owned(), |reward| crate::format::reward(reward.reward));
    let change = attempt.modification.as_ref().map(|modification| modification.text.clone());
    let route = attempt.route.as_ref().map(|route| format!("{}: {}", words(route.route.as_str()), route.reason));
    let chosen = name(detail, number);
    let (key, picked) = (chosen.clone(), chosen.clone());
    view! {
        <tr data-row="" data-key=key>
            <td>
                <input
                    type="checkbox"
                    name="a"
                    value=chosen
                    checked=move || Picks::of_page().has(&picked)
                    aria-label=format!("choose attempt {number}")
                />
            </td>
            <td class="number"><a href=href(detail, number)>{number}</a></td>
            <td>{words(attempt.stage.as_str())}</td>
            <td class="number">{attempt.parent.map(|parent| view! { <a href=href(detail, parent)>{parent}</a> })}</td>
            <td><span class=format!("tag {outcome}")>{outcome_of(detail, attempt)}</span></td>
            <td>
                <span class="measured">{shown}</span>" "
                {is_best.then(|| view! { <span class="tag completed">"best"</span> })}
                {is_confirmed.then(|| view! { <span class="tag">"confirmed"</span> })}
            </td>
            <td><span class="measured">{over_fastest}</span></td>
            <td class="number">{gain}</td>
            <td class="number">{reward}</td>
            <td class="quiet">{change}</td>
            <td class="quiet">{route}</td>
        </tr>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::baseline::Baseline;
    use nightshift_protocol::measurement::Measurement;

    use super::*;
    use crate::address::Address;
    use crate::page::sample::Sample;
    use crate::picks;

    #[test]
    fn charts_and_list_have_both_baselines() {
        let mut detail = Sample::read().detail;
        let exactly = |estimate| Interval { estimate, low: estimate, high: estimate };
        let measured = detail.view.attempts.iter().find_map(|attempt| attempt.published().cloned());
        let Some((prepared, measured)) = detail.view.prepared.as_mut().zip(measured) else {
            panic!("nothing is timed")
        };
        let measurement = Some(Box::new(Measurement { speedup: exactly(2.0), ..measured }));
        prepared.baselines = vec![Baseline { kind: BaselineKind::Compile, measurement, reason: None, is_fault: false }];
        let best = detail.view.attempts.iter().filter_map(Attempt::speedup).map(|speedup| speedup.estimate);
        let bests = new_bests(&detail);
        let half = show(best.fold(0.0, f64::max) / 2.0, Unit::Times);
        let drawn = Owner::new().with(|| view! { {speedups(&detail, &bests)}{best_so_far(&detail, &bests)} }.to_html());
        for part in [">fastest baseline</text>", ">over the reference<", ">over the fastest baseline<"] {
            assert!(drawn.contains(part), "{part} in {drawn}");
        }
        assert!(drawn.contains(&format!(", {half} over the fastest baseline")), "{half} in {drawn}");
        let best = detail.view.attempts.iter().find(|attempt| attempt.published().is_some());
        let baselines =
            crate::page::attempt::baseline_table(&detail, best, "This attempt over it").map(RenderHtml::to_html);
        assert!(baselines.is_some_and(|html| html.contains("derived from both intervals")), "and how is said");
        let listed = Owner::new().with(|| list(&detail).to_html());
        assert!(listed.contains("Over the fastest") && listed.contains(&half), "{half} in {listed}");
        for gpu in detail.view.prepared.iter_mut().flat_map(|prepared| &mut prepared.machine.gpus) {
            gpu.name = "NVIDIA B200".to_owned();
        }
        let best = detail.view.attempts.iter().find(|attempt| attempt.published().is_some());
        let elsewhere = crate::page::attempt::baseline_table(&detail, best, "This attempt over it");
        let drawn = Owner::new()
            .with(|| view! { {elsewhere}{speedups(&detail, &bests)}{best_so_far(&detail, &bests)} }.to_html());
        assert!(drawn.contains("The baselines were measured on NVIDIA B200, the program on NVIDIA H200"), "{drawn}");
        let absent = [
            ">fastest baseline</text>",
            ">over the fastest baseline<",
            &half,
            "derived from both intervals",
            "the line of the fastest baseline",
        ];
        assert_eq!(absent.map(|part| drawn.contains(part)), [false; 5], "{half} in {drawn}");
    }

    #[test]
    fn an_attempt_is_a_new_best_only_if_it_was_accepted_as_the_best() {
        let mut detail = Sample::read().detail;
        let Some(best) = detail.view.attempts.pop().filter(|best| detail.view.best_attempt == Some(best.number)) else {
            panic!("the last attempt is the best one")
        };
        let measured = |number, first: f64, confirmed: Option<f64>| {
            let mut attempt = Attempt { number, ..best.clone() };
            let exactly = |estimate| Interval { estimate, low: estimate, high: estimate };
            attempt.confirmation = attempt.confirmation.filter(|_| confirmed.is_some());
            for (measurement, estimate) in
                [(&mut attempt.measurement, Some(first)), (&mut attempt.confirmation, confirmed)]
            {
                if let (Some(measurement), Some(estimate)) = (measurement, estimate) {
                    measurement.speedup = exactly(estimate);
                }
            }
            attempt
        };
        let further = [
            measured(4, 2.0, Some(2.0)),
            measured(5, 2.2, Some(1.5)),
            measured(6, 2.3, None),
            measured(7, 1.9, Some(2.1)),
        ];
        detail.view.attempts.extend(further);
        let bests = new_bests(&detail);
        let classes: Vec<&str> = detail.view.attempts.iter().map(|attempt| class(&detail, attempt, &bests)).collect();
        assert_eq!(classes, ["kept", "failed", "kept", "kept", "discarded", "unconfirmed", "unconfirmed"]);
        let drawn = highest_so_far(&detail, &bests, Attempt::speedup);
        assert_eq!(
            drawn[2..],
            [(4.0, 2.0), (5.0, 2.0), (6.0, 2.0), (7.0, 2.0)],
            "it ends at the best program's speedup"
        );
    }

    #[test]
    fn the_address_says_which_boxes_are_ticked_and_what_else_is_compared() {
        let detail = Sample::read().detail;
        let other = format!("run_{}/7", "0".repeat(32));
        let chosen = name(&detail, 2);
        let html = |address: &Address| {
            Owner::new().with(|| {
                provide_context(Picks::of(address).with_others());
                list(&detail).to_html()
            })
        };
        let is_ticked = |input: &&str| input.split('>').next().is_some_and(|tag| tag.contains(" checked"));
        let ticked = |html: &str| html.split("<input").skip(1).filter(is_ticked).count();
        let none = html(&Address::parse("/runs/x"));
        assert!(ticked(&none) == 0 && !none.contains("type=\"hidden\""), "{none}");
        let some = html(&Address::parse("/runs/x").with(picks::NAME, Some(&format!("{chosen},{other}"))));
        assert_eq!(ticked(&some), 1, "{some}");
        assert!(some.contains(&format!("value=\"{other}\"")) && some.contains("href=\"/attempts?pick="), "{some}");
    }
}
