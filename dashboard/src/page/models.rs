//! Models under strategies: how often they were right, how fast, at which price.

use std::cmp::Ordering;

use axum::response::Response;
use futures::future::try_join;
use leptos::prelude::*;
use nightshift_protocol::api::{AttemptFilter, FAST_P_THRESHOLDS, ModelBoard, TableName};
use nightshift_protocol::time::TimestampMs;

use crate::address::Address;
use crate::form;
use crate::format::{count, dollars, percent, tokens};
use crate::page::as_of::as_of;
use crate::page::failure::PageError;
use crate::page::files;
use crate::page::glossary::glossary;
use crate::shell::{Live, Page, Section, model_label};
use crate::table::{self, Column, Sorting};
use crate::visitor::Visitor;

const COLUMNS: [Column; 12] = [
    Column::text("model", "Model"),
    Column::text("strategy", "Strategy"),
    Column::number("runs", "Runs"),
    Column::number("attempts", "Attempts"),
    Column::number("correct", "Right"),
    Column::number("median", "Median of the bests"),
    Column::number("fast1", "fast₁"),
    Column::number("fast15", "fast₁.₅"),
    Column::number("fast2", "fast₂"),
    Column::number("fast3", "fast₃"),
    Column::number("tokens", "Tokens"),
    Column::number("cost", "Cost"),
];
const FASTEST_FIRST: Sorting = Sorting { key: "median", descending: true };

/// `GET /models`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let address = Address::parse(&visitor.address);
    let filter =
        AttemptFilter::from_pairs(filter_of(&address)).map_err(|error| PageError::bad_query(&error.to_string()))?;
    let (boards, health) = try_join(visitor.client.model_boards(&filter), visitor.client.health()).await?;
    Ok(page(&address, boards, health.now))
}

/// The pairs that say whose attempts count.
fn filter_of(address: &Address) -> impl Iterator<Item = (&str, &str)> {
    address.pairs().filter(|(name, _)| !matches!(*name, "sort" | "order"))
}

fn page(address: &Address, mut boards: Vec<ModelBoard>, now: TimestampMs) -> Page {
    let sorting = Sorting::of(address, &COLUMNS, FASTEST_FIRST);
    boards.sort_by(|a, b| sorting.directed(compare(sorting.key, a, b)));
    let rows = boards.iter().map(row).collect::<Vec<_>>();
    let none = boards.is_empty().then(|| {
        view! { <p class="empty">"No model has written a program yet, or none fits the filter. "<a href="/models">"Show all"</a></p> }
    });
    let thresholds: Vec<String> = FAST_P_THRESHOLDS.iter().map(|p| format!("{p}×")).collect();
    let words = format!(
        "fast_p is the share of runs whose best program is correct and more than p times as fast as its baseline, for p = {}.",
        thresholds.join(", ")
    );
    let value = address.get("task").unwrap_or_default().to_owned();
    let sort = form::kept(address, &["sort", "order"]);
    Page::new(
        "Models and cost",
        view! {
            <div class="head"><h1>"Models and cost"</h1>{as_of(address, now)}</div>
            <p class="quiet">{words}</p>
            <form class="filters" method="get" action="/models" role="search">
                {sort}
                <label>"Only the task"<input type="search" name="task" value=value data-search="" /></label>
                <button>"Show"</button>
            </form>
            <div class="scroll" tabindex="0">
                <table class="list">{table::head(address, &COLUMNS, sorting)}<tbody>{rows}</tbody></table>
            </div>
            {none}
            {glossary()}
            {files::links("Models", TableName::Models, filter_of(address))}
        },
    )
    .section(Section::Models)
    .list()
    .live(Live::Summed)
}

fn row(board: &ModelBoard) -> impl IntoView + use<> {
    let attempts =
        Address::parse("/attempts").with("model", Some(&board.model)).with("strategy", Some(&board.strategy));
    let fast = (0..FAST_P_THRESHOLDS.len())
        .map(|index| view! { <td class="number">{percent(board.fast_p.get(index).copied())}</td> })
        .collect::<Vec<_>>();
    let unpriced = (board.unpriced_attempts > 0).then(
        || view! { <span class="quiet">{format!("price unknown for {}", count(board.unpriced_attempts))}</span> },
    );
    view! {
        <tr data-row="">
            <th scope="row"><a href=attempts.href()>{model_label(&board.model, board.model == "scripted")}</a></th>
            <td>{board.strategy.clone()}</td>
            <td class="number">{count(board.runs)}</td>
            <td class="number">{count(board.attempts)}</td>
            <td class="number">{percent(board.correct_share)}</td>
            <td class="number">
                {board.median_best_speedup.map_or_else(|| "–".to_owned(), |median| format!("{median:.2}×"))}
            </td>
            {fast}
            <td class="number">{tokens(Some(board.tokens), board.model == "scripted")}</td>
            <td class="number">{dollars(board.cost_usd)}" "{unpriced}</td>
        </tr>
    }
}

fn compare(key: &str, a: &ModelBoard, b: &ModelBoard) -> Ordering {
    let number = |value: Option<f64>| value.unwrap_or(-1.0);
    let fast = |index: usize| number(a.fast_p.get(index).copied()).total_cmp(&number(b.fast_p.get(index).copied()));
    let order = match key {
        "model" => a.model.cmp(&b.model),
        "strategy" => a.strategy.cmp(&b.strategy),
        "runs" => a.runs.cmp(&b.runs),
        "attempts" => a.attempts.cmp(&b.attempts),
        "correct" => number(a.correct_share).total_cmp(&number(b.correct_share)),
        "fast1" => fast(0),
        "fast15" => fast(1),
        "fast2" => fast(2),
        "fast3" => fast(3),
        "tokens" => a.tokens.cmp(&b.tokens),
        "cost" => a.cost_usd.total_cmp(&b.cost_usd),
        _ => number(a.median_best_speedup).total_cmp(&number(b.median_best_speedup)),
    };
    order.then_with(|| (&a.model, &a.strategy).cmp(&(&b.model, &b.strategy)))
}
