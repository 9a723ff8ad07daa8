//! One attempt: a strip with the result, and tabs for the overview, the profile, the source, the checks and the
//! conversation with the models.

mod artifacts;
mod build;
mod checks;
mod counters;
mod headline;
mod judgement;
mod look;
mod material;
mod origin;
mod overview;
mod profile;
mod program;
mod strip;
mod tab;
mod tab_navigation;
mod talk;
mod timing;
mod verdict;
mod versions;

use axum::extract::Query;
use axum::response::Response;
use futures::future::join;
use leptos::prelude::*;
use nightshift_client::Client;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::id::RunId;

pub(crate) use self::headline::{
    NOT_FINISHED, bound_of, fastest_baseline, idle_share, outcome_of, speedup_over_fastest,
};
use self::look::Look;
use self::material::Material;
pub(crate) use self::material::{Stored, text};
pub(crate) use self::origin::subtask_facts;
pub(crate) use self::overview::baseline_table;
pub(crate) use self::profile::bound;
use self::tab::Tab;
pub(crate) use self::verdict::findings;
use super::campaign_name::campaign_name;
use super::components::{Section as Part, below_each_other, on_page_only, sections};
use super::short_id::{self, Kind};
use crate::answer::Path;
use crate::failure::PageError;
use crate::format::words;
use crate::shell::{Live, Page, Section, model_label};
use crate::trace::{of_steps, well_formed};
use crate::visitor::Visitor;
use crate::{download, report, team};

/// The parameters of a query in their order.
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

/// Answers `GET /runs/{id}/attempts/{number}/trace.json`, for Perfetto and Chrome.
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

/// Returns the device's trace; without one, the trace of the attempt's steps, which is marked.
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
    let task = detail.summary.digest.task.clone();
    let (campaign, run) = (&detail.summary.campaign, &detail.summary.id);
    let live = Live::of_run(&detail.summary);
    let top = head(detail, attempt);
    let strip = strip::strip(detail, attempt);
    let body = if look.is_whole() {
        let parts = Tab::ALL.into_iter().flat_map(|tab| parts(tab, detail, attempt, material, look)).collect();
        below_each_other(parts)
    } else {
        tabbed(parts(look.tab, detail, attempt, material, look), offers(detail, attempt, look), look)
    };
    // Attempts of other runs of the task have the same number: the run tells them apart.
    let title = format!("{task}, attempt {} of run {}", attempt.number, run.short());
    Page::new(title, view! { {top}{strip}{body} })
        .section(Section::Campaigns)
        .crumb("Campaigns", "/")
        .crumb(campaign_name, format!("/campaigns/{campaign}"))
        .crumb(task, format!("/runs/{run}"))
        .live(live)
}

/// Renders the tabs and the open one. All tabs but the overview have a table of contents.
fn tabbed(parts: Vec<Part>, offers: AnyView, look: &Look) -> AnyView {
    let tabs = tab_navigation::navigation(look);
    let tabs = on_page_only(view! { <div class="tabs-row">{tabs}{offers}</div> }.into_any());
    let name = look.tab.as_str();
    let content = match (look.tab, parts.is_empty()) {
        (_, true) => view! { <p class="empty">"There is no data yet."</p> }.into_any(),
        (Tab::Overview, false) => overview::columns(parts),
        (_, false) => sections(parts),
    };
    view! { {tabs}<div class=format!("tab tab-{name}")>{content}</div> }.into_any()
}

/// The sections of a tab.
fn parts(tab: Tab, detail: &RunDetail, attempt: &Attempt, material: &Material, look: &Look) -> Vec<Part> {
    let all = match tab {
        Tab::Overview => vec![
            ("result", "Result", overview::result(attempt)),
            ("baselines", "Baselines", overview::baselines(detail, attempt)),
            ("verdict", "Verdict", Some(verdict::section(attempt, look))),
            ("diagnosis", "Diagnosis", judgement::diagnosis(attempt)),
            ("origin", "Origin", Some(origin::section(detail, attempt))),
        ],
        Tab::Profile => vec![
            ("bound", "Bound", profile::limits(attempt)),
            ("roofline", "Roofline", counters::roofline_section(detail, attempt)),
            ("kernels", "Kernels", profile::kernels(attempt)),
            ("counters", "Hardware counters", counters::section(detail, attempt, look)),
            ("timeline", "Timeline", profile::timeline_section(attempt, material, look)),
            ("tools", "Tools", profile::tools(attempt)),
        ],
        Tab::Source => vec![
            ("source", "Source", Some(program::section(detail, attempt, material, look))),
            ("versions", "Earlier versions", versions::section(attempt)),
            ("tuning", "Tuning", origin::tuning(attempt)),
            ("build", "Build", build::section(attempt, material)),
        ],
        Tab::Checks => vec![
            ("checks", "Correctness", checks::section(attempt, material, look)),
            ("timing", "Timing method", timing::section(attempt)),
            ("rubric", "Rubric and reward", judgement::rubric(attempt, &material.scores)),
            ("artifacts", "Artifacts and steps", Some(artifacts::section(detail, attempt, material))),
        ],
        Tab::Conversation => vec![("conversation", "Prompts and replies", talk::section(attempt, material, look))],
    };
    all.into_iter().filter_map(|(id, title, content)| Some(Part { id, title, content: content? })).collect()
}

/// Renders links to other attempts, and downloads.
fn offers(detail: &RunDetail, attempt: &Attempt, look: &Look) -> AnyView {
    let run = &detail.summary.id;
    let number = attempt.number;
    // The next attempt opens at the same tab.
    let tab = if look.tab == Tab::Overview { String::new() } else { format!("?tab={}", look.tab.as_str()) };
    let step = |other: Option<&Attempt>, words: &'static str| {
        other.map(|other| {
            view! { <a class="button" href=format!("/runs/{run}/attempts/{}{tab}", other.number)>{words}</a> }
        })
    };
    let attempts = &detail.view.attempts;
    let earlier = step(attempts.iter().rev().find(|other| other.number < number), "Earlier attempt");
    let later = step(attempts.iter().find(|other| other.number > number), "Later attempt");
    let with_parent = attempt.parent.map(|parent| {
        let href = format!("/compare?a={run}/{parent}&a={run}/{number}");
        view! { <a class="button" href=href>"Compare with its parent"</a> }
    });
    view! {
        <p class="buttons look">
            {earlier}{later}{with_parent}
            <a class="button" href=format!("/runs/{run}/attempts/{number}/trace.json")>"Trace for Perfetto"</a>
            <a class="button" href=format!("/runs/{run}/attempts/{number}/report.html")>"Report as one file"</a>
        </p>
    }
    .into_any()
}

fn head(detail: &RunDetail, attempt: &Attempt) -> AnyView {
    let number = attempt.number;
    let is_best = detail.view.best_attempt == Some(number);
    let task = detail.summary.digest.task.clone();
    let reward = attempt.reward.as_ref().map(|reward| format!(" · reward {}", crate::format::reward(reward.reward)));
    let replies = model_label(&detail.summary.digest.model, detail.summary.digest.scripted);
    view! {
        <h1>"Attempt "{number}" of "{task}</h1>
        <p class="quiet">
            {words(attempt.stage.as_str())}
            {is_best.then(|| view! { " · "<span class="tag completed">"best of its run"</span> })}
            {reward}" · replies: "{replies}
        </p>
    }
    .into_any()
}

#[cfg(test)]
mod tests;
