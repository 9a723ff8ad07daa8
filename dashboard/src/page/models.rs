//! Models under strategies: how often they were right, how fast, at which price.

use std::cmp::Ordering;

use axum::response::Response;
use futures::future::try_join;
use leptos::prelude::*;
use nightshift_protocol::api::{AttemptFilter, FAST_P_THRESHOLDS, ModelBoard, TableName};
use nightshift_protocol::time::TimestampMs;

use crate::address::Address;
use crate::failure::PageError;
use crate::form;
use crate::format::{count, dollars, percent, tokens};
use crate::page::as_of::as_of;
use crate::page::components::{ALL_POLICIES, times};
use crate::page::files;
use crate::page::glossary::glossary;
use crate::shell::{Live, Page, Section, model_label};
use crate::table::{self, Column, Sorting};
use crate::visitor::Visitor;

/// The names of `fast_p` at its thresholds.
pub(crate) const FAST_P_NAMES: [&str; FAST_P_THRESHOLDS.len()] = ["fast₁", "fast₁.₅", "fast₂", "fast₃"];

const COLUMNS: [Column; 13] = [
    Column::text("model", "Model"),
    Column::text("strategy", "Strategy"),
    Column::number("runs", "Runs"),
    Column::number("attempts", "Attempts"),
    Column::number("correct", "Right"),
    Column::number("median", "Median of the bests"),
    Column::number("fastest", "Over the fastest"),
    Column::number("fast1", FAST_P_NAMES[0]),
    Column::number("fast15", FAST_P_NAMES[1]),
    Column::number("fast2", FAST_P_NAMES[2]),
    Column::number("fast3", FAST_P_NAMES[3]),
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
        AttemptFilter::from_pairs(address.filter()).map_err(|error| PageError::bad_query(&error.to_string()))?;
    let (boards, health) = try_join(visitor.client.model_boards(&filter), visitor.client.health()).await?;
    Ok(page(&address, boards, health.now))
}

fn page(address: &Address, mut boards: Vec<ModelBoard>, now: TimestampMs) -> Page {
    let sorting = Sorting::of(address, &COLUMNS, FASTEST_FIRST);
    boards.sort_by(|a, b| compare(sorting, a, b));
    let rows = boards.iter().map(row).collect::<Vec<_>>();
    let none = boards.is_empty().then(|| {
        view! { <p class="empty">"No model has written a program yet, or none fits the filter. "<a href="/models">"Show all"</a></p> }
    });
    let thresholds: Vec<String> = FAST_P_THRESHOLDS.iter().map(|p| format!("{p}×")).collect();
    let words = format!(
        "fast_p is the share of runs whose best program is correct and more than p times as fast as its reference, for p = {}. \
         The second line is the share over the fastest baseline, of the runs for which that baseline is known.",
        thresholds.join(", ")
    );
    let value = address.get("task").unwrap_or_default().to_owned();
    let sort = form::kept(address, &["sort", "order"]);
    Page::new(
        "Models and cost",
        view! {
            <div class="head"><h1>"Models and cost"</h1>{as_of(address, now)}</div>
            <p class="quiet">{words}" "{ALL_POLICIES}</p>
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
            {files::links("Models", TableName::Models, address.filter())}
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
        .map(|index| view! { <td class="number">{shares(board, index)}</td> })
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
            <td class="number">{times(board.median_best_speedup)}</td>
            <td class="number">{times(board.median_best_speedup_over_fastest)}</td>
            {fast}
            <td class="number">{tokens(Some(board.tokens), board.model == "scripted")}</td>
            <td class="number">{dollars(board.cost_usd, board.model == "scripted")}" "{unpriced}</td>
        </tr>
    }
}

/// Shows `fast_p` at one of its thresholds: over the reference and, where that is known, over the fastest baseline.
pub(crate) fn shares(board: &ModelBoard, threshold: usize) -> impl IntoView + use<> {
    let over_fastest = board.fast_p_over_fastest.get(threshold).copied();
    view! {
        {percent(board.fast_p.get(threshold).copied())}
        {over_fastest.map(|share| view! { <span class="range">{percent(Some(share))}</span> })}
    }
}

fn compare(sorting: Sorting, a: &ModelBoard, b: &ModelBoard) -> Ordering {
    let fast = |index: usize| sorting.numbers(a.fast_p.get(index).copied(), b.fast_p.get(index).copied());
    let order = match sorting.key {
        "model" => sorting.directed(a.model.cmp(&b.model)),
        "strategy" => sorting.directed(a.strategy.cmp(&b.strategy)),
        "runs" => sorting.directed(a.runs.cmp(&b.runs)),
        "attempts" => sorting.directed(a.attempts.cmp(&b.attempts)),
        "correct" => sorting.numbers(a.correct_share, b.correct_share),
        "fastest" => sorting.numbers(a.median_best_speedup_over_fastest, b.median_best_speedup_over_fastest),
        "fast1" => fast(0),
        "fast15" => fast(1),
        "fast2" => fast(2),
        "fast3" => fast(3),
        "tokens" => sorting.directed(a.tokens.cmp(&b.tokens)),
        "cost" => sorting.directed(a.cost_usd.total_cmp(&b.cost_usd)),
        _ => sorting.numbers(a.median_best_speedup, b.median_best_speedup),
    };
    order.then_with(|| sorting.directed((&a.model, &a.strategy).cmp(&(&b.model, &b.strategy))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_has_its_speedups_over_both_baselines() {
        let board = |model: &str, over_fastest: Option<f64>| ModelBoard {
            model: model.to_owned(),
            strategy: "stitch".to_owned(),
            runs: 4,
            attempts: 4,
            finished: 4,
            correct_share: Some(1.0),
            median_best_speedup: Some(3.0),
            median_best_speedup_over_fastest: over_fastest,
            fast_p: vec![1.0, 1.0, 1.0, 0.0],
            fast_p_over_fastest: over_fastest.map(|_| vec![0.25, 0.0, 0.0, 0.0]).unwrap_or_default(),
            tokens: 0,
            cost_usd: 0.0,
            unpriced_attempts: 0,
        };
        let html =
            |boards| crate::report::with_links(page(&Address::parse("/models?sort=fastest"), boards, TimestampMs(0)));
        let known =
            html(vec![board("lab/unknown", None), board("lab/slow", Some(0.75)), board("lab/fast", Some(1.25))]);
        let place = |text: &str| known.find(text).unwrap_or(usize::MAX);
        assert!(place(">1.25×<") < place(">0.75×<") && place(">0.75×<") < place("lab/unknown"), "{known}");
        assert_eq!(known.matches("class=\"range\"").count(), 8, "one more share for each threshold: {known}");
    }
}
