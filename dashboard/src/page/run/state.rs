//! Where a run stands, what it waits for and why, what it cost, and what it is measured against.

use leptos::prelude::*;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::StopReason;
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::measurement::CostPart;
use nightshift_protocol::run::RunStatus;

use crate::actions;
use crate::chart::{Bar, Caption, Unit, bars, float_u64, significant};
use crate::format::{money, price, sentence, speedup, tokens, when, words};
use crate::page::attempt::{baseline_table, fastest_baseline, findings, speedup_over_fastest};
use crate::page::components::{Cell, artifact, facts, folded, machine, milliseconds, on_page_only, table};
use crate::page::resource::resource_name;
use crate::shell::model_label;
use crate::who::Who;

/// Name, status, and what can be done.
pub(super) fn head(detail: &RunDetail, who: &Who) -> AnyView {
    let summary = &detail.summary;
    let status = summary.status.as_str();
    let ending = summary.digest.stop_reason.as_ref().map(|reason| format!(" · ended: {}", stopped(reason)));
    let replies = model_label(&summary.digest.model, summary.digest.scripted);
    let best = summary.digest.best_speedup.zip(summary.digest.best_attempt).map(|(interval, number)| {
        let confirmed = if summary.digest.best_confirmed { "confirmed" } else { "not confirmed" };
        let href = format!("/runs/{}/attempts/{number}", summary.id);
        let fastest = summary.digest.fastest_baseline.or_else(|| fastest_baseline(detail));
        let attempt = detail.view.attempts.iter().find(|attempt| attempt.number == number);
        let over = summary
            .digest
            .best_speedup_over_fastest
            .or_else(|| speedup_over_fastest(detail, attempt?))
            .zip(fastest)
            .map(|(over, fastest)| {
                let derived = if fastest.kind == BaselineKind::Reference { "" } else { ", derived interval" };
                format!("; {} over the fastest baseline ({}{derived})", speedup(over), fastest.label_with_limits())
            });
        view! {
            <p>
                <strong class="figure">{speedup(interval)}</strong>
                " over the reference by "<a href=href>"attempt "{number}</a>", "{confirmed}{over}
            </p>
        }
    });
    let base = format!("/runs/{}", summary.id);
    let offers = view! {
        <div class="look">{actions::of_run(who, summary)}</div>
        <p class="buttons look">
            <a class="button" href=format!("{base}/trace.json")>"Steps for Perfetto"</a>
            <a class="button" href=format!("{base}/report.html")>"Report as one file"</a>
        </p>
    };
    view! {
        <h1>{summary.digest.task.clone()}</h1>
        <p class="quiet">
            {summary.id.to_string()}" · "<span class=format!("tag {status}")>{words(status)}</span>
            {ending}" · replies: "{replies}" · begun "{when(summary.created_at)}
        </p>
        {best}
        {on_page_only(offers.into_any())}
    }
    .into_any()
}

/// What it does or waits for.
pub(super) fn section(detail: &RunDetail) -> AnyView {
    let summary = &detail.summary;
    let failure = summary.failure.as_ref().map(|failure| {
        let message = sentence(failure.message.clone());
        view! { <p class="notice bad">{message}" "<code>{failure.code.clone()}</code></p> }
    });
    let gates = (!summary.awaits.is_empty()).then(|| {
        let gates = summary.awaits.iter().map(|gate| words(gate)).collect::<Vec<_>>().join(", ");
        view! { <p class="notice">"It waits for a person at: "{gates}</p> }
    });
    // What a run that is over did last is why it ended.
    let activity = (!summary.status.is_final()).then(|| summary.digest.activity.clone());
    let sums = facts(&[
        ("State", Cell::Text(explained(summary.status).to_owned())),
        ("Now", activity.into()),
        ("Ended because", detail.view.stop_reason.as_ref().map(stopped).into()),
        ("Attempts", summary.digest.attempts.to_string().into()),
        ("Priority", summary.priority.to_string().into()),
        ("Decided by server", summary.owner.as_ref().map(ToString::to_string).into()),
    ]);
    let rows: Vec<Vec<Cell>> = detail
        .open_steps
        .iter()
        .map(|step| {
            let why = step.waiting_for.clone().or_else(|| step.failure.as_ref().map(|failure| failure.message.clone()));
            let worker = step.worker.as_ref().map_or_else(|| "no worker yet".to_owned(), ToString::to_string);
            vec![
                Cell::Code(step.key.clone()),
                Cell::Tag(step.status.as_str().to_owned(), words(step.status.as_str())),
                worker.into(),
                Cell::Number(step.tries.to_string()),
                why.unwrap_or_else(|| "nothing: it is being carried out".to_owned()).into(),
            ]
        })
        .collect();
    let open = if rows.is_empty() && !summary.status.is_final() {
        view! { <p class="quiet">"No step is open: the server decides what comes next."</p> }.into_any()
    } else {
        table(&["Open step", "Status", "Who", "Tries", "Waits for"], &rows)
    };
    view! { {failure}{gates}{sums}{open} }.into_any()
}

fn explained(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Running => "in progress",
        RunStatus::Paused => "paused: no new step begins until the run is resumed",
        RunStatus::Cancelling => "being cancelled: what runs is stopped first",
        RunStatus::Completed => "completed: its strategy ended it",
        RunStatus::Failed => "failed: a step could not be carried out",
        RunStatus::Cancelled => "cancelled",
    }
}

/// Why a run ended, in words.
pub(crate) fn stopped(reason: &StopReason) -> String {
    match reason {
        StopReason::TargetReached => "the confirmed speedup reached the target".to_owned(),
        StopReason::AttemptBudget => "no attempts are left".to_owned(),
        StopReason::PlanDone => "every subtask is done".to_owned(),
        StopReason::Stagnated => "no gain, and no new plan is left".to_owned(),
        StopReason::VerifierStopped => "the Verifier sees nothing more to gain".to_owned(),
        StopReason::NearRoofline => "the best program is near the roofline".to_owned(),
        StopReason::AgentFinished => "the agent ended its session".to_owned(),
        StopReason::TurnBudget => "no turns of the agent session are left".to_owned(),
        StopReason::BudgetExhausted { resource } => {
            format!("the campaign's budget is used up: {}", resource_name(*resource).to_lowercase())
        }
        StopReason::GateRejected { gate, reason } => {
            format!("the gate {} stayed closed: {reason}", words(gate.as_str()))
        }
        StopReason::TaskRejected { code, message } => format!("{message} ({code})"),
    }
}

/// Renders the cost of the model calls by role. Returns `None` when the run made no call.
pub(super) fn cost(detail: &RunDetail) -> Option<AnyView> {
    if detail.cost.is_empty() {
        return None;
    }
    let role = |cost: &nightshift_protocol::cost::RoleCost| cost.role.map_or("not recorded", |role| role.as_str());
    let rows: Vec<Vec<Cell>> = detail
        .cost
        .iter()
        .map(|cost| {
            let models =
                cost.models.iter().map(|(model, calls)| format!("{model} ({calls})")).collect::<Vec<_>>().join(", ");
            let scripted = cost.models.keys().all(|model| model == "scripted");
            let unknown =
                |unknown: u32| if unknown == 0 { String::new() } else { format!(", {unknown} calls not known") };
            let part = |part: Option<u64>, what: &str| {
                part.map_or_else(String::new, |part| format!(", {} {what}", tokens(Some(part), false)))
            };
            vec![
                role(cost).into(),
                Cell::Number(cost.calls.to_string()),
                Cell::Number(format!(
                    "{}{}{}",
                    tokens(Some(cost.input_tokens), scripted),
                    part(cost.cached_input_tokens, "from the cache"),
                    unknown(cost.uncounted_calls)
                )),
                Cell::Number(format!(
                    "{}{}",
                    tokens(Some(cost.output_tokens), scripted),
                    part(cost.reasoning_tokens, "of reasoning")
                )),
                Cell::Number(format!("{}{}", price(cost.price_microusd, scripted), unknown(cost.unpriced_calls))),
                Cell::Number(cost.fallback_calls.to_string()),
                models.into(),
            ]
        })
        .collect();
    let rows = table(&["Role", "Calls", "Tokens in", "Tokens out", "Price", "Fallbacks", "Models"], &rows);
    let drawn: Vec<Bar> = detail
        .cost
        .iter()
        .map(|cost| {
            let tokens = float_u64(cost.input_tokens.saturating_add(cost.output_tokens));
            Bar {
                name: role(cost).to_owned(),
                value: tokens,
                class: "series-1",
                note: format!("tokens, {}", money(cost.price_microusd)),
            }
        })
        .collect();
    // Replies from files take no tokens: there is nothing to draw.
    let caption = Caption::new("Tokens by role", "Prompts and replies together, with what they cost.");
    let drawn = drawn.iter().any(|bar| bar.value > 0.0).then(|| bars(&caption, Unit::Count, &drawn).view());
    Some(view! { {drawn}{rows} }.into_any())
}

/// The reference that attempts are measured against; none before it was prepared.
pub(super) fn reference(detail: &RunDetail) -> Option<AnyView> {
    let prepared = detail.view.prepared.as_ref()?;
    let sums = facts(&[
        (
            "Its own error",
            format!("{} times what is tolerated", significant(prepared.reference_normalized_error)).into(),
        ),
        ("Preparing it took", prepared.cost.iter().map(part).collect::<Vec<_>>().join(", ").into()),
        ("Built by", prepared.reference.toolchain.version.clone().into()),
        ("Flags", Cell::Code(prepared.reference.toolchain.flags.join(" "))),
        ("Isolation", prepared.machine.sandbox.summary().into()),
        ("Task", artifact(&detail.view.task)),
        ("Library", artifact(&prepared.reference_library)),
        ("Library in double precision", artifact(&prepared.truth_library)),
        ("Profile", prepared.profile.as_ref().map(|profile| profile.tier.clone()).into()),
        (
            "Trace",
            prepared.profile.as_ref().and_then(|profile| profile.trace.as_ref()).map_or_else(|| "".into(), artifact),
        ),
    ]);
    let warnings = (!prepared.warnings.is_empty()).then(|| findings(&prepared.warnings, None));
    let bound = prepared
        .profile
        .as_ref()
        .and_then(|profile| profile.bound.as_ref())
        .map(|by| crate::page::attempt::bound(by, "Bound by "));
    let on = folded(format!("Machine: {}", prepared.machine.processor), machine(&prepared.machine));
    let best = detail.view.attempts.iter().find(|attempt| detail.view.best_attempt == Some(attempt.number));
    let baselines = baseline_table(detail, best, "Best attempt over it");
    Some(view! { {baselines}{sums}{bound}{warnings}{on} }.into_any())
}

/// What a part of a step took.
fn part(part: &CostPart) -> String {
    format!("{}: {}", part.name, milliseconds(part.ms))
}
