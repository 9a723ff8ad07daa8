//! One run: plans, attempts and steps.

use leptos::prelude::*;
use nightshift_protocol::api::{RunDetail, StepView};
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::plan::PlanVersion;

use crate::actions;
use crate::format::{moment, nanoseconds, speedup};
use crate::shell::{Live, Page, Section, model_label};

/// The page.
pub(crate) fn page(detail: &RunDetail, steps: &[StepView]) -> Page {
    let summary = &detail.summary;
    let run = summary.id.to_string();
    let baseline = detail.view.prepared.as_ref().map(|prepared| {
        let facts = format!(
            "Reference: {} per call, built by {} on {} ({} cores). Isolation: {}.",
            nanoseconds(prepared.baseline_median_ns),
            prepared.reference.toolchain.version,
            prepared.machine.processor,
            prepared.machine.cores,
            prepared.machine.sandbox.summary()
        );
        view! { <p>{facts}</p> }
    });
    let best = detail.view.best_attempt;
    let attempts =
        detail.view.attempts.iter().map(|a| attempt_row(&run, a, best == Some(a.number))).collect::<Vec<_>>();
    let plans = detail.view.plans.iter().map(plan).collect::<Vec<_>>();
    let step_rows = steps.iter().map(step_row).collect::<Vec<_>>();
    let failure = summary.failure.as_ref().map(|failure| {
        view! { <p class="problem">{failure.message.clone()}" "<code>{failure.code.clone()}</code></p> }
    });
    let ending =
        summary.digest.stop_reason.as_ref().map(|reason| format!(" · ended: {}", reason.as_str().replace('_', " ")));
    let live = if summary.status.is_final() { Live::Still } else { Live::Run(run.clone()) };
    Page::new(
        summary.digest.task.clone(),
        view! {
            <h1>{summary.digest.task.clone()}</h1>
            <p class="quiet">
                {run.clone()}" · "<span class=format!("tag {}", summary.status.as_str())>{summary.status.as_str()}</span>
                {ending}" · replies: "{model_label(&summary.digest.model, summary.digest.scripted)}
            </p>
            {actions::of_run(summary)}
            {failure}
            {baseline}
            <h2>"Attempts"</h2>
            <div class="scroll">
                <table>
                    <thead>
                        <tr>
                            <th class="number">"No."</th><th>"Stage"</th><th>"From"</th><th>"Outcome"</th><th>"Speedup"</th>
                            <th class="number">"Reward"</th><th>"Then"</th>
                        </tr>
                    </thead>
                    <tbody>{attempts}</tbody>
                </table>
            </div>
            <h2>"Plans"</h2>
            {plans}
            <h2>"Steps"</h2>
            <div class="scroll">
                <table>
                    <thead>
                        <tr>
                            <th>"Step"</th><th>"Status"</th><th class="number">"Tries"</th><th>"Scheduled"</th>
                            <th class="number">"Took"</th><th>"Waits for"</th>
                        </tr>
                    </thead>
                    <tbody>{step_rows}</tbody>
                </table>
            </div>
        },
    )
    .section(Section::Campaigns)
    .crumb("Campaigns", "/")
    .crumb("Campaign", format!("/campaigns/{}", summary.campaign))
    .live(live)
}

fn attempt_row(run: &str, attempt: &Attempt, is_best: bool) -> impl IntoView + use<> {
    let href = format!("/runs/{run}/attempts/{}", attempt.number);
    let shown = attempt.speedup().map_or_else(|| "–".to_owned(), speedup);
    let reward = attempt.reward.as_ref().map_or_else(|| "–".to_owned(), |reward| format!("{:.2}", reward.reward));
    let route = attempt.route.as_ref().map(|route| format!("{}: {}", route.route.as_str(), route.reason));
    let marks = view! {
        {is_best.then(|| view! { <span class="tag completed">"best"</span> })}
        {(attempt.confirmation.is_some() && attempt.outcome.is_correct()).then(|| view! { <span class="tag">"confirmed"</span> })}
    };
    view! {
        <tr>
            <td class="number"><a href=href>{attempt.number}</a></td>
            <td>{attempt.stage.as_str()}</td>
            <td class="number">{attempt.parent.map(|n| n.to_string())}</td>
            <td><span class=format!("tag {}", attempt.outcome.as_str())>{attempt.outcome.as_str().replace('_', " ")}</span></td>
            <td>{shown}" "{marks}</td>
            <td class="number">{reward}</td>
            <td class="quiet">{route}</td>
        </tr>
    }
}

fn plan(version: &PlanVersion) -> impl IntoView + use<> {
    let subtasks = version
        .plan
        .subtasks
        .iter()
        .map(|subtask| {
            view! {
                <li>
                    <strong>{subtask.title.clone()}</strong>" ("{subtask.scope.join(", ")}"). "
                    {subtask.fusion_boundary.clone()}
                </li>
            }
        })
        .collect::<Vec<_>>();
    let reason = version.reason.as_ref().map(|reason| format!(" Made anew: {reason}"));
    view! {
        <section>
            <h3>"Version "{version.version}</h3>
            <p>{version.plan.summary.clone()}<span class="quiet">{reason}</span></p>
            <ol>{subtasks}</ol>
        </section>
    }
}

fn step_row(step: &StepView) -> impl IntoView + use<> {
    let took = match (step.started_at, step.finished_at) {
        (Some(begin), Some(end)) => format!("{} ms", end.since_ms(begin)),
        _ => "–".to_owned(),
    };
    let waits = step.waiting_for.clone().or_else(|| step.failure.as_ref().map(|failure| failure.message.clone()));
    view! {
        <tr>
            <td><code>{step.key.clone()}</code></td>
            <td><span class=format!("tag {}", step.status.as_str())>{step.status.as_str()}</span></td>
            <td class="number">{step.tries}</td>
            <td class="quiet">{moment(step.scheduled_at)}</td>
            <td class="number">{took}</td>
            <td class="quiet">{waits}</td>
        </tr>
    }
}
