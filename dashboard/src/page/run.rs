//! The page of a run: its state, the tree of its attempts, its plans, and its steps by time.

mod attempts;
mod plans;
mod state;
mod steps;

use axum::response::Response;
use futures::future::{join3, try_join};
use leptos::prelude::*;
use nightshift_protocol::api::{Retrieval, RunDetail, StepView};
use nightshift_protocol::id::RunId;

pub(crate) use self::state::stopped;
use super::campaign_name::campaign_name;
use super::components::{Section as Part, on_page_only, sections};
use super::requests::{self, Waiting};
use super::short_id::{self, Kind};
use crate::answer::Path;
use crate::failure::PageError;
use crate::shell::{Live, Page, Section};
use crate::trace::of_steps;
use crate::visitor::Visitor;
use crate::who::Who;
use crate::{download, report, team};

/// Maximum number of steps whose notes and lessons are read; planning steps come first.
const MAX_RETRIEVALS: u32 = 50;

/// `GET /runs/{id}`.
pub(crate) async fn show(visitor: Visitor, Path(id): Path<String>) -> Response {
    if let Some(whole) = short_id::redirect(&visitor, Kind::Run, &id).await {
        return whole;
    }
    let page = Box::pin(team::below(&visitor, read(&visitor, &id), &id)).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor, id: &str) -> Result<Page, PageError> {
    let (detail, steps) = load(visitor, id).await?;
    let campaign = campaign_name(&visitor.client, &detail.summary.campaign);
    let asked = async {
        if detail.summary.status.is_final() {
            return Waiting::default();
        }
        requests::waiting(&visitor.client, None, Some(&detail.summary.id)).await
    };
    let (campaign, retrievals, asked) = join3(campaign, planned_with(visitor, &detail), asked).await;
    Ok(page(&detail, &steps, &retrievals, &asked, &campaign, &visitor.who))
}

/// `GET /runs/{id}/report.html`: the page as one file.
pub(crate) async fn show_report(visitor: Visitor, Path(id): Path<String>) -> Response {
    match read(&visitor, &id).await {
        Ok(page) => report::answer(&visitor.client, page).await,
        Err(error) => visitor.answer(Err(error)),
    }
}

/// `GET /runs/{id}/trace.json`: its steps, for Perfetto and Chrome.
pub(crate) async fn show_trace(visitor: Visitor, Path(id): Path<String>) -> Response {
    match load(&visitor, &id).await {
        Ok((detail, steps)) => {
            let about = [("run", detail.summary.id.to_string()), ("task", detail.summary.digest.task.clone())];
            download::json("run-steps.json", of_steps(&steps.iter().collect::<Vec<_>>(), &about))
        }
        Err(error) => visitor.answer(Err(error)),
    }
}

async fn load(visitor: &Visitor, id: &str) -> Result<(RunDetail, Vec<StepView>), PageError> {
    let id: RunId = id.parse().map_err(|_| PageError::not_found("This run"))?;
    Ok(try_join(visitor.client.run(&id), visitor.client.run_steps(&id)).await?)
}

/// Returns the notes and lessons of the planning steps; empty if they cannot be read.
async fn planned_with(visitor: &Visitor, detail: &RunDetail) -> Vec<Retrieval> {
    let found = visitor.client.retrievals(&detail.summary.id, None, Some(MAX_RETRIEVALS), None).await;
    let found = found.map(|found| found.items).unwrap_or_default();
    // Those of attempts are on their pages.
    found.into_iter().filter(|retrieval| !retrieval.step_key.contains("/attempt")).collect()
}

/// The page.
fn page(
    detail: &RunDetail,
    steps: &[StepView],
    retrievals: &[Retrieval],
    asked: &Waiting,
    campaign: &str,
    who: &Who,
) -> Page {
    let summary = &detail.summary;
    let live = Live::of_run(summary);
    let all = [
        ("state", "State", Some(state::section(detail))),
        ("attempts", "Attempts", Some(attempts::section(detail))),
        ("plans", "Plans", Some(plans::section(detail, retrievals))),
        ("steps", "Steps", Some(steps::section(detail, steps))),
        ("cost", "Cost", state::cost(detail)),
        ("reference", "Reference and baselines", state::reference(detail)),
    ];
    let parts =
        all.into_iter().filter_map(|(id, title, content)| Some(Part { id, title, content: content? })).collect();
    let (top, body) = (state::head(detail, who), sections(parts));
    let asked = requests::section(asked).map(on_page_only);
    // The title distinguishes runs of the same task in browser tabs.
    let title = format!("{}, run {}", summary.digest.task, summary.id.short());
    Page::new(title, view! { {top}{asked}{body} })
        .section(Section::Campaigns)
        .crumb("Campaigns", "/")
        .crumb(campaign, format!("/campaigns/{}", summary.campaign))
        .live(live)
}

#[cfg(test)]
mod tests;
