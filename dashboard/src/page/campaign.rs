//! The page of a campaign: results by task, attempts, and used budgets.

mod board;
mod charts;
mod outcome;
mod results;
mod runs;
mod usage;

use axum::response::Response;
use futures::future::{join, try_join3};
use leptos::prelude::*;
use nightshift_protocol::api::{CampaignDetail, CampaignResults, HandoverDetail, RunSummary, precision_policies};
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::target_baseline::TargetBaseline;
use nightshift_protocol::time::TimestampMs;

use self::outcome::{Outcome, over_fastest, over_reference};
use crate::actions;
use crate::address::Address;
use crate::answer::Path;
use crate::chart::Unit;
use crate::failure::PageError;
use crate::format::{count, counted, milliseconds, speedup, when, words};
use crate::meter;
use crate::page::components::on_page_only;
use crate::page::requests::{self, Waiting};
use crate::page::short_id::{self, Kind};
use crate::report;
use crate::shell::{Live, Page, Section, model_label};
use crate::team;
use crate::visitor::Visitor;
use crate::who::Who;

/// `GET /campaigns/{id}`.
pub(crate) async fn show(visitor: Visitor, Path(id): Path<String>) -> Response {
    if let Some(whole) = short_id::redirect(&visitor, Kind::Campaign, &id).await {
        return whole;
    }
    let page = Box::pin(team::below(&visitor, read(&visitor, &id), &id)).await;
    visitor.answer(page)
}

/// The page of a campaign as one file.
pub(crate) async fn show_report(visitor: Visitor, Path(id): Path<String>) -> Response {
    match read(&visitor, &id).await {
        Ok(page) => report::answer(&visitor.client, page).await,
        Err(error) => visitor.answer(Err(error)),
    }
}

async fn read(visitor: &Visitor, id: &str) -> Result<Page, PageError> {
    let id: CampaignId = id.parse().map_err(|_| PageError::not_found("This campaign"))?;
    let address = Address::parse(&visitor.address);
    let places = charts::places(&address)?;
    let client = &visitor.client;
    let (detail, results, health) =
        try_join3(client.campaign(&id), client.campaign_results(&id, places), client.health()).await?;
    let asked = async {
        if detail.summary.runs.unfinished() == 0 {
            return Waiting::default();
        }
        requests::waiting(client, Some(&id), None).await
    };
    let (outcomes, asked) = join(outcome::read(client, &detail), asked).await;
    Ok(page(&address, &detail, &results, (&outcomes, &asked), health.now, &visitor.who))
}

/// The page, as it is at `now`.
fn page(
    address: &Address,
    detail: &CampaignDetail,
    results: &CampaignResults,
    (outcomes, asked): (&[Outcome], &Waiting),
    now: TimestampMs,
    who: &Who,
) -> Page {
    let summary = &detail.summary;
    // A failed run may be tried again.
    let may_change = summary.runs.unfinished() > 0 || summary.runs.failed > 0;
    let live = if may_change { Live::Campaign(summary.id.to_string()) } else { Live::Still };
    let offers = view! {
        <button type="button" class="plain needs-script" data-copy="campaign-id">"Copy"</button>
        " · "<a href=format!("/campaigns/{}/report.html", summary.id)>"Report as one file"</a>
    };
    Page::new(
        summary.name.clone(),
        view! {
            <div class="head">
                <h1>{summary.name.clone()}</h1>
                <span class="quiet">"Created "{when(summary.created_at)}</span>
            </div>
            <p class="quiet">
                <code id="campaign-id">{summary.id.to_string()}</code>" "
                {on_page_only(offers.into_any())}
                " · strategy "{detail.spec.strategy.clone()}" · replies "
                {model_label(&summary.model, summary.scripted)}
            </p>
            {handed_over(summary.handover.as_ref())}
            {on_page_only(actions::of_campaign(who, summary).into_any())}
            {awaiting(&detail.runs)}
            {requests::section(asked).map(on_page_only)}
            {cards(detail, results, outcomes, now).into_any()}
            {results::results(outcomes).into_any()}
            {mixed_policies(&detail.runs)}
            {runs::runs(address, &summary.id, &detail.runs, outcomes).into_any()}
            {charts::charts(address, detail, results, outcomes, now).into_any()}
            {usage::usage(detail, now).into_any()}
            {board::board(results).into_any()}
            {board::devices(summary.id.as_str(), results, &detail.budget).into_any()}
            {asked_for(detail).into_any()}
        },
    )
    .section(Section::Campaigns)
    .list()
    .crumb("Campaigns", "/")
    .live(live)
}

/// Explains that the campaign is handed over and paused here.
fn handed_over(handover: Option<&HandoverDetail>) -> Option<impl IntoView + use<>> {
    let handover = handover?;
    let by = handover.by.clone();
    let finish = "nightshift handover finish FILE";
    Some(view! {
        <p class="notice">
            <strong>"Handed over"</strong>" to another machine by "{by}" "{when(handover.created_at)}
            ". It goes on here after "<code>{finish}</code>"."
        </p>
    })
}

/// Lists the runs that wait for an approval.
fn awaiting(runs: &[RunSummary]) -> Option<impl IntoView + use<>> {
    let waiting: Vec<_> = runs
        .iter()
        .filter(|run| !run.awaits.is_empty())
        .map(|run| {
            let href = format!("/runs/{}", run.id);
            view! { <li><a href=href>{run.digest.task.clone()}</a>": "{run.awaits.join(", ")}</li> }
        })
        .collect();
    (!waiting.is_empty()).then(|| {
        view! { <section class="notice"><strong>"Waiting for approval"</strong><ul>{waiting}</ul></section> }
    })
}

/// Says that the means and shares of a campaign mix tasks of several precision policies, where they do.
fn mixed_policies(runs: &[RunSummary]) -> Option<AnyView> {
    let policies = precision_policies(runs);
    let named = policies.join(", ");
    (policies.len() > 1).then(|| {
        view! {
            <p class="notice">
                "These results mix tasks of several precision policies: "{named}". Compare only tasks of the same policy."
            </p>
        }
        .into_any()
    })
}

fn card(label: &'static str, figure: String, beside: impl IntoView + 'static) -> impl IntoView {
    view! {
        <div class="card">
            <p class="label">{label}</p>
            <p class="figure">{figure}</p>
            <div class="beside">{beside}</div>
        </div>
    }
}

fn cards(
    detail: &CampaignDetail,
    results: &CampaignResults,
    outcomes: &[Outcome],
    now: TimestampMs,
) -> impl IntoView + use<> {
    let counts = detail.summary.runs;
    let over = counts.total() - counts.unfinished();
    let statuses = [
        (counts.running, "running"),
        (counts.paused, "paused"),
        (counts.cancelling, "being cancelled"),
        (counts.completed, "completed"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
    ];
    let statuses: Vec<String> =
        statuses.iter().filter(|(n, _)| *n > 0).map(|(n, name)| format!("{} {name}", count(*n))).collect();
    let progress = view! { {meter::meter(over, 0, counts.total(), "runs that are over")}{statuses.join(", ")} };
    let best = detail
        .runs
        .iter()
        .filter_map(|run| Some((run, run.digest.best_speedup?)))
        .max_by(|(_, a), (_, b)| a.estimate.total_cmp(&b.estimate));
    let (best_figure, best_beside) = best.map_or_else(
        || match results.timed {
            0 => ("none yet".to_owned(), "no attempt was timed".to_owned()),
            timed => ("none yet".to_owned(), format!("{} timed, none confirmed yet", count(timed))),
        },
        |(run, interval)| {
            let confirmed = if run.digest.best_confirmed { "" } else { ", not confirmed" };
            (format!("{:.2}×", interval.estimate), format!("{}: {}{confirmed}", run.digest.task, speedup(interval)))
        },
    );
    let (reference, fastest) = (over_reference(outcomes), over_fastest(outcomes));
    let times = |mean: Option<f64>| mean.map_or_else(|| "–".to_owned(), |mean| crate::chart::show(mean, Unit::Times));
    let over_fastest = format!("over the reference; {} over the fastest baseline", times(fastest.geometric_mean()));
    let attempts: u64 = detail.runs.iter().map(|run| u64::from(run.digest.attempts)).sum();
    let solved = detail.runs.iter().filter(|run| run.digest.best_attempt.is_some()).count();
    let (time_label, time, time_beside) = time_left(detail, now);
    view! {
        <div class="cards">
            {card("Geometric mean speedup", times(reference.geometric_mean()), over_fastest)}
            {card("Runs finished", format!("{} of {}", count(over), count(counts.total())), progress)}
            {card("Best over the reference", best_figure, best_beside)}
            {card("Attempts", count(attempts), format!("{solved} of {} with a best program", counted(counts.total(), "task", "tasks")))}
            {card(time_label, time, time_beside)}
        </div>
    }
}

/// How long it took, or how long it will take at the pace so far.
fn time_left(detail: &CampaignDetail, now: TimestampMs) -> (&'static str, String, String) {
    let counts = detail.summary.runs;
    let began = detail.summary.created_at;
    let (unfinished, over) = (counts.unfinished(), counts.total() - counts.unfinished());
    if unfinished == 0 {
        let end = detail.runs.iter().filter_map(|run| run.finished_at).max().unwrap_or(began);
        return ("Took", milliseconds(end.since_ms(began)), "from creation to the end of the last run".to_owned());
    }
    if unfinished == counts.paused {
        return ("Time left", "paused".to_owned(), format!("{} not over", counted(unfinished, "run", "runs")));
    }
    let passed_ms = now.since_ms(began);
    if over == 0 {
        return ("Time left", "not known".to_owned(), format!("no run is over after {}", milliseconds(passed_ms)));
    }
    let left_ms = passed_ms / over.max(1) * unfinished;
    (
        "Time left",
        format!("about {}", milliseconds(left_ms)),
        format!("at the pace so far, after {}", milliseconds(passed_ms)),
    )
}

/// The specification of the campaign.
fn asked_for(detail: &CampaignDetail) -> impl IntoView + use<> {
    let spec = &detail.spec;
    let goal = &spec.goal;
    let number = |value: Option<u32>| value.map(|value| value.to_string());
    let list = |names: Vec<String>| (!names.is_empty()).then(|| names.join(", "));
    let facts: Vec<(&'static str, Option<String>)> = vec![
        ("Strategy", Some(spec.strategy.clone())),
        ("Target speedup", goal.target_speedup.map(|target| target_of(target, goal.target_baseline))),
        ("Most attempts per run", number(goal.max_attempts)),
        ("Most new plans per run", number(goal.max_replans)),
        ("Most fix turns per attempt", number(goal.max_fix_turns)),
        ("Most turns of the agent session", number(goal.max_turns)),
        ("Candidates of a round", number(goal.candidates_per_round)),
        ("Precision policy", list(precision_policies(&detail.runs))),
        ("Least gain", goal.min_gain.map(|gain| format!("{:.1} %", gain * 100.0))),
        ("Window", spec.schedule.as_ref().map(|schedule| format!("{} {}", schedule.window, schedule.time_zone))),
        ("Priority", Some(detail.summary.priority.to_string())),
        ("Weight", Some(detail.summary.weight.to_string())),
        ("Waits for a person at", list(spec.gates.iter().map(|gate| words(gate.as_str())).collect())),
        ("Machines with the labels", list(spec.labels.iter().map(|label| label.as_str().to_owned()).collect())),
        ("Notes", Some(if spec.knowledge.notes { "given" } else { "not given" }.to_owned())),
        ("Lessons of other runs", Some(if spec.knowledge.lessons { "given" } else { "not given" }.to_owned())),
    ];
    let entries = facts
        .into_iter()
        .filter_map(|(name, value)| Some(view! { <dt>{name}</dt><dd>{value?}</dd> }))
        .collect::<Vec<_>>();
    view! { <details><summary>"Specification"</summary><dl>{entries}</dl></details> }
}
/// A target with the baseline that it is meant over.
fn target_of(target: f64, baseline: Option<TargetBaseline>) -> String {
    match baseline.unwrap_or_default() {
        TargetBaseline::Fastest => format!("{target}× over the fastest baseline"),
        TargetBaseline::Reference => format!("{target}× over the reference"),
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::run::RunStatus;
    use nightshift_protocol::task::PrecisionPolicy;
    use serde_json::json;

    use super::*;
    use crate::page::sample::Sample;

    /// The page of a campaign with a run that has this status and no best attempt.
    fn begun(status: RunStatus, results: &serde_json::Value) -> String {
        let mut run = Sample::read().detail.summary;
        (run.status, run.finished_at) = (status, None);
        (run.digest.best_attempt, run.digest.best_speedup, run.digest.best_times) = (None, None, None);
        let number = |is: RunStatus| u64::from(status == is);
        let value = json!({
            "summary": {"id": format!("cmp_{}", "0".repeat(32)), "name": "Night", "model": "lab/a", "scripted": false,
                "created_at": 0, "runs": {"running": number(RunStatus::Running), "paused": number(RunStatus::Paused),
                "cancelling": 0, "completed": 0, "failed": 0, "cancelled": number(RunStatus::Cancelled)}},
            "spec": {"schema": 1, "name": "Night", "model": {"provider": "scripted"}, "strategy": "stitch", "goal": {}, "tasks": []},
            "runs": [],
            "budget": [{"resource": "attempts", "cap": 9, "used": 1, "reserved": 0}],
        });
        let mut detail: CampaignDetail = serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}"));
        let outcomes = [Outcome::of(&run, None)];
        detail.runs.push(run);
        let results = serde_json::from_value(results.clone()).unwrap_or_else(|error| panic!("{error}"));
        let read = (&outcomes[..], &Waiting::default());
        let address = Address::parse("/campaigns/x");
        report::with_links(page(&address, &detail, &results, read, TimestampMs(60_000), &Who::default()))
    }

    /// Results with an attempt that is right, and one that has no result.
    fn one_timed() -> serde_json::Value {
        let run = Sample::read().detail.summary.id;
        let mark = json!({"place": 1, "run": run, "task": "softmax", "number": 1, "outcome": "correct_faster",
            "speedup": 3.0, "kept": false});
        json!({"attempts": 2, "kept": 0, "discarded": 1, "failed": 0, "pending": 1, "marks": [mark], "marks_of": 1,
            "outcomes": [{"value": "correct_faster", "count": 1}, {"value": "pending", "count": 1}], "lines": [],
            "timed_runs": 0, "speedups": [3.0], "timed": 1, "fast_p": [], "models": [], "devices": []})
    }

    #[test]
    fn right_programs_are_told_of_before_one_is_confirmed() {
        let html = begun(RunStatus::Running, &one_timed());
        for part in ["1 timed, none confirmed yet", "right, not confirmed as the best (1)", "with a best program"] {
            assert!(html.contains(part), "{part} in {html}");
        }
        for denied in ["no attempt was timed", "with a right program", "right, not better (1)", "Nothing was measured"]
        {
            assert!(!html.contains(denied), "{denied} in {html}");
        }
    }

    #[test]
    fn attempts_without_a_result_do_not_count_against_the_limit() {
        let html = begun(RunStatus::Running, &one_timed());
        assert!(html.contains(">Attempts that count against the limit<"), "{html}");
    }

    #[test]
    fn a_campaign_that_is_over_or_paused_has_no_time_left_and_waits_for_nothing() {
        let paused = begun(RunStatus::Paused, &one_timed());
        assert!(
            paused.contains(">paused</p>") && paused.contains("pending 1") && !paused.contains("after 1 min"),
            "{paused}"
        );
        let over = begun(RunStatus::Cancelled, &one_timed());
        assert!(over.contains("not finished 1") && !over.contains("pending 1"), "{over}");
    }

    #[test]
    fn a_campaign_of_several_precision_policies_says_so() {
        let run = |policy| {
            let mut run = Sample::read().detail.summary;
            run.digest.precision = policy;
            run
        };
        let html = |runs: &[RunSummary]| Owner::new().with(|| mixed_policies(runs).map(RenderHtml::to_html));
        let (reference, tf32) = (Some(PrecisionPolicy::Reference), Some(PrecisionPolicy::Tf32));
        let mixed = [run(reference), run(tf32), run(reference), run(None)];
        assert_eq!(precision_policies(&mixed), ["reference (2 tasks)", "tf32 (1 task)"]);
        assert!(html(&mixed).is_some_and(|html| html.contains("reference (2 tasks), tf32 (1 task)")));
        assert_eq!(
            (html(&[run(tf32), run(tf32)]), html(&[run(None)])),
            (None, None),
            "one policy is in the specification"
        );
        assert_eq!(precision_policies(&[run(tf32)]), ["tf32"]);
    }
}
