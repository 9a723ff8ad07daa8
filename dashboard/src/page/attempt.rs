//! One attempt: the five answers and what they rest on, the source, the times, the profile, the talk with the models.

mod artifacts;
mod build;
mod checks;
mod counters;
mod judgement;
mod look;
mod material;
mod origin;
mod profile;
mod program;
mod talk;
mod timing;
mod verdict;

use axum::extract::Query;
use axum::response::Response;
use futures::future::join;
use leptos::prelude::*;
use nightshift_client::Client;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::id::RunId;

use self::look::Look;
use self::material::Material;
pub(crate) use self::material::{Stored, text};
pub(crate) use self::origin::subtask_facts;
pub(crate) use self::profile::bound;
pub(crate) use self::verdict::{findings, worst_error};
use super::campaign_name::campaign_name;
use super::failure::{PageError, Path};
use super::parts::{Section as Part, on_page_only, sections, words};
use super::short_id::{self, Kind};
use crate::format::speedup;
use crate::markup::visible;
use crate::shell::{Live, Page, Section, model_label};
use crate::trace::{of_steps, well_formed};
use crate::visitor::Visitor;
use crate::{download, report, team};

/// What a query says, in its order.
pub(crate) type Pairs = Query<Vec<(String, String)>>;

/// `GET /runs/{id}/attempts/{number}`.
pub(crate) async fn show(visitor: Visitor, Path((id, number)): Path<(String, u32)>, Query(query): Pairs) -> Response {
    if let Some(whole) = short_id::redirect(&visitor, Kind::Run, &id).await {
        return whole;
    }
    let look = Look::of(&query);
    let page = Box::pin(load(&visitor.client, &id, number, &look));
    let page = team::below(&visitor, page, &format!("{id}/{number}")).await;
    visitor.answer(page)
}

/// `GET /runs/{id}/attempts/{number}/report.html`: the page as one file.
pub(crate) async fn show_report(
    visitor: Visitor,
    Path((id, number)): Path<(String, u32)>,
    Query(query): Pairs,
) -> Response {
    match Box::pin(load(&visitor.client, &id, number, &Look::of(&query).whole())).await {
        Ok(page) => report::answer(&visitor.client, page).await,
        Err(error) => visitor.answer(Err(error)),
    }
}

/// `GET /runs/{id}/attempts/{number}/trace.json`: what Perfetto and Chrome open.
pub(crate) async fn show_trace(visitor: Visitor, Path((id, number)): Path<(String, u32)>) -> Response {
    match trace(&visitor.client, &id, number).await {
        Ok(bytes) => download::json(&format!("attempt-{number}-trace.json"), bytes),
        Err(error) => visitor.answer(Err(error)),
    }
}

async fn found(client: &Client, id: &str, number: u32) -> Result<(RunDetail, usize), PageError> {
    let id: RunId = id.parse().map_err(|_| PageError::not_found("This run"))?;
    let detail = client.run(&id).await?;
    let place = detail.view.attempts.iter().position(|attempt| attempt.number == number);
    let place = place.ok_or_else(|| PageError::not_found("This attempt"))?;
    Ok((detail, place))
}

async fn load(client: &Client, id: &str, number: u32, look: &Look) -> Result<Page, PageError> {
    let (detail, place) = found(client, id, number).await?;
    let Some(attempt) = detail.view.attempts.get(place) else { return Err(PageError::not_found("This attempt")) };
    let campaign = campaign_name(client, &detail.summary.campaign);
    let (campaign, material) = Box::pin(join(campaign, Material::load(client, &detail, attempt, look))).await;
    Ok(page(&detail, attempt, &material, look, &campaign))
}

/// The device's trace; where there is none, that of the attempt's steps, which says so.
async fn trace(client: &Client, id: &str, number: u32) -> Result<Vec<u8>, PageError> {
    let (detail, place) = found(client, id, number).await?;
    let Some(attempt) = detail.view.attempts.get(place) else { return Err(PageError::not_found("This attempt")) };
    let run = &detail.summary.id;
    let mut about =
        vec![("run", run.to_string()), ("attempt", number.to_string()), ("task", detail.summary.digest.task.clone())];
    let why = match attempt.profile.as_ref().and_then(|profile| profile.trace.as_ref()) {
        None => "no trace of a device was kept".to_owned(),
        Some(hash) => {
            let bytes = client.get_artifact(hash).await?;
            let tiers = attempt.profile.iter().flat_map(|profile| &profile.tiers).filter(|tier| tier.used);
            let tools = tiers.map(|tier| format!("{} {}", tier.tool, tier.version.as_deref().unwrap_or_default()));
            about.push(("tools", tools.collect::<Vec<_>>().join(", ")));
            match well_formed(&bytes, &about) {
                Ok(trace) => return Ok(trace),
                Err(error) => error.to_string(),
            }
        }
    };
    let steps = client.run_steps(run).await?;
    let ours = format!("/attempt{number}/");
    about.push(("shows", format!("the steps of the attempt: {why}")));
    Ok(of_steps(&steps.iter().filter(|step| step.key.contains(&ours)).collect::<Vec<_>>(), &about))
}

/// The page.
fn page(detail: &RunDetail, attempt: &Attempt, material: &Material, look: &Look, campaign_name: &str) -> Page {
    let task = visible(&detail.summary.digest.task).into_owned();
    let (campaign, run) = (&detail.summary.campaign, &detail.summary.id);
    let live = if detail.summary.status.is_final() { Live::Still } else { Live::Run(run.to_string()) };
    let body = sections(parts(detail, attempt, material, look));
    let top = head(detail, attempt);
    // Attempts of other runs of the task have the same number: the run tells them apart.
    let title = format!("{task}, attempt {} of run {}", attempt.number, run.short());
    Page::new(title, view! { {top}{body} })
        .section(Section::Campaigns)
        .crumb("Campaigns", "/")
        .crumb(visible(campaign_name), format!("/campaigns/{campaign}"))
        .crumb(task, format!("/runs/{run}"))
        .live(live)
}

fn parts(detail: &RunDetail, attempt: &Attempt, material: &Material, look: &Look) -> Vec<Part> {
    let roof = attempt
        .profile
        .as_ref()
        .filter(|profile| counters::has_roof(profile))
        .and_then(|_| counters::roof(detail, attempt));
    let all = [
        ("verdict", "Verdict", Some(verdict::section(attempt))),
        ("diagnosis", "Diagnosis", judgement::diagnosis(attempt)),
        ("origin", "Why it was written", Some(origin::section(detail, attempt))),
        ("source", "Source", Some(program::section(detail, attempt, material, look))),
        ("timing", "Timing", timing::section(attempt)),
        ("checks", "Checks", checks::section(attempt, material)),
        ("build", "Build", build::section(attempt, material)),
        ("tuning", "Tuning", origin::tuning(attempt)),
        ("profile", "Profile", profile::section(attempt, material, look)),
        ("counters", "Hardware counters", counters::section(detail, attempt, look)),
        ("roofline", "Roofline", roof),
        ("rubric", "Rubric and reward", judgement::rubric(attempt, &material.scores)),
        ("conversation", "Prompts and replies", talk::section(attempt, material, look)),
        ("artifacts", "Artifacts and steps", Some(artifacts::section(detail, attempt, material))),
    ];
    all.into_iter().filter_map(|(id, title, content)| Some(Part { id, title, content: content? })).collect()
}

fn head(detail: &RunDetail, attempt: &Attempt) -> AnyView {
    let run = &detail.summary.id;
    let number = attempt.number;
    let is_best = detail.view.best_attempt == Some(number);
    let step = |other: Option<&Attempt>, words: &'static str| {
        other.map(|other| view! { <a class="button" href=format!("/runs/{run}/attempts/{}", other.number)>{words}</a> })
    };
    let attempts = &detail.view.attempts;
    let earlier = step(attempts.iter().rev().find(|other| other.number < number), "Earlier attempt");
    let later = step(attempts.iter().find(|other| other.number > number), "Later attempt");
    let with_parent = attempt.parent.map(|parent| {
        let href = format!("/compare?a={run}/{parent}&a={run}/{number}");
        view! { <a class="button" href=href>"Compare with its parent"</a> }
    });
    let outcome = attempt.outcome.as_str();
    let task = visible(&detail.summary.digest.task).into_owned();
    let fast = attempt.speedup().map(|interval| view! { <strong class="figure">{speedup(interval)}</strong> });
    let reward = attempt.reward.as_ref().map(|reward| format!(" · reward {}", crate::format::reward(reward.reward)));
    let replies = model_label(&detail.summary.digest.model, detail.summary.digest.scripted);
    let offers = view! {
        <p class="buttons look">
            {earlier}{later}{with_parent}
            <a class="button" href=format!("/runs/{run}/attempts/{number}/trace.json")>"Trace for Perfetto"</a>
            <a class="button" href=format!("/runs/{run}/attempts/{number}/report.html")>"Report as one file"</a>
        </p>
    };
    view! {
        <h1>"Attempt "{number}" of "{task}</h1>
        <p class="quiet">
            {words(attempt.stage.as_str())}" · "<span class=format!("tag {outcome}")>{words(outcome)}</span>
            {is_best.then(|| view! { " "<span class="tag completed">"best"</span> })}
            {reward}" · replies: "{replies}
        </p>
        {fast}
        {on_page_only(offers.into_any())}
    }
    .into_any()
}

#[cfg(test)]
mod tests;
