//! Tasks: the fastest program of each on each device, and how it became so over all campaigns.

use std::collections::BTreeMap;

use axum::response::Response;
use leptos::prelude::*;
use nightshift_protocol::api::{AttemptFilter, TableName, TaskBoard};
use nightshift_protocol::time::TimestampMs;

use crate::address::Address;
use crate::chart::{Axis, Caption, Series, Unit, lines};
use crate::format::{count, counted, speedup, when};
use crate::page::as_of::as_of;
use crate::page::failure::PageError;
use crate::page::files;
use crate::shell::{Page, Section, model_label};
use crate::visitor::Visitor;

/// Most lines of a chart.
const MAX_LINES: usize = 8;
const LINE_CLASSES: [&str; MAX_LINES] =
    ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7", "series-8"];
const DAY_MS: f64 = 86_400_000.0;

/// `GET /tasks`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let address = Address::parse(&visitor.address);
    let filter =
        AttemptFilter::from_pairs(address.pairs()).map_err(|error| PageError::bad_query(&error.to_string()))?;
    let boards = visitor.client.task_boards(&filter).await?;
    let now = visitor.client.health().await?.now;
    Ok(page(&address, &boards, now))
}

fn page(address: &Address, boards: &[TaskBoard], now: TimestampMs) -> Page {
    let mut by_task: BTreeMap<&str, Vec<&TaskBoard>> = BTreeMap::new();
    for board in boards {
        by_task.entry(&board.task).or_default().push(board);
    }
    let number = u64::try_from(by_task.len()).unwrap_or(u64::MAX);
    let is_filtered = address.href() != "/tasks";
    let sections = by_task.into_iter().map(|(task, boards)| section(task, &boards)).collect::<Vec<_>>();
    let none = sections.is_empty().then(|| {
        if is_filtered {
            view! { <p class="empty">"No task has attempts that fit the filter. "<a href="/tasks">"Show all"</a></p> }
                .into_any()
        } else {
            view! { <p class="empty">"No task was worked on yet. Try "<code>"nightshift demo"</code>"."</p> }.into_any()
        }
    });
    let value = address.get("task").unwrap_or_default().to_owned();
    Page::new(
        "Tasks",
        view! {
            <div class="head"><h1>"Tasks"</h1><span class="quiet">{counted(number, "task", "tasks")}</span>{as_of(address, now)}</div>
            <form class="filters" method="get" action="/tasks" role="search">
                <label>"Task"<input type="search" name="task" value=value data-search="" /></label>
                <button>"Show"</button>
                {is_filtered.then(|| view! { <a href="/tasks">"Show all"</a> })}
            </form>
            {none}
            {sections}
            {files::links("Tasks", TableName::Tasks, address.pairs())}
        },
    )
    .section(Section::Tasks)
    .list()
}

fn section(task: &str, boards: &[&TaskBoard]) -> impl IntoView + use<> {
    let attempts = Address::parse("/attempts").with("task", Some(task)).with("sort", Some("speedup")).href();
    let rows = boards.iter().map(|board| row(board)).collect::<Vec<_>>();
    let history = history(boards);
    view! {
        <section id=format!("task-{task}")>
            <div class="head"><h2>{task.to_owned()}</h2><a href=attempts>"All attempts"</a></div>
            <div class="scroll" tabindex="0">
                <table class="list">
                    <thead>
                        <tr>
                            <th scope="col">"Device"</th><th scope="col" class="number">"Best speedup"</th>
                            <th scope="col">"Program"</th><th scope="col">"Model and strategy"</th>
                            <th scope="col" class="number">"Attempts"</th><th scope="col" class="number">"Runs"</th>
                            <th scope="col" class="number">"Campaigns"</th><th scope="col">"Found"</th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
            {history.map(|chart| view! { <details><summary>"How it became so"</summary>{chart}</details> })}
        </section>
    }
}

fn row(board: &TaskBoard) -> impl IntoView + use<> {
    let best = board.best.as_ref();
    let dash = || "–".to_owned();
    let shown = best.and_then(|best| best.speedup).map_or_else(dash, speedup);
    let unconfirmed =
        best.is_some_and(|best| !best.confirmed).then(|| view! { " "<span class="tag">"not confirmed"</span> });
    let program = best.map(|best| {
        let href = format!("/runs/{}/attempts/{}", best.run, best.number);
        view! { <a href=href>"attempt "{best.number}</a> }
    });
    let author = best.map(|best| {
        view! { {model_label(&best.model, best.model == "scripted")}" "<span class="quiet">{best.strategy.clone()}</span> }
    });
    view! {
        <tr data-row="">
            <th scope="row">
                {board.device.clone().unwrap_or_else(|| "not timed".to_owned())}" "
                <span class="quiet">{board.target.as_str()}</span>
            </th>
            <td class="number">{shown}{unconfirmed}</td>
            <td>{program}</td>
            <td>{author}</td>
            <td class="number">{count(board.attempts)}</td>
            <td class="number">{count(board.runs)}</td>
            <td class="number">{count(board.campaigns)}</td>
            <td>{best.and_then(|best| best.finished_at).map(when)}</td>
        </tr>
    }
}

#[expect(clippy::cast_precision_loss, reason = "days since the first one have few digits")]
fn history(boards: &[&TaskBoard]) -> Option<AnyView> {
    let first = boards.iter().flat_map(|board| &board.history).map(|best| best.at).min()?;
    let series: Vec<Series> = boards
        .iter()
        .filter(|board| !board.history.is_empty())
        .zip(LINE_CLASSES)
        .map(|(board, class)| Series {
            name: board.device.clone().unwrap_or_else(|| "not timed".to_owned()),
            class,
            points: board.history.iter().map(|best| (best.at.since_ms(first) as f64 / DAY_MS, best.speedup)).collect(),
            steps: true,
        })
        .collect();
    let caption = Caption::new("Best so far", "The fastest right program on each device, over all campaigns.");
    let x = Axis::linear("days since the first one", Unit::Plain);
    Some(lines(&caption, &x, &Axis::log("speedup", Unit::Times), &series, Some((1.0, "baseline"))).view())
}
