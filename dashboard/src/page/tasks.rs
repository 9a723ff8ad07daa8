//! Tasks: the fastest program of each on each device, and how the best grew over all campaigns.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use axum::response::Response;
use futures::future::try_join;
use leptos::prelude::*;
use nightshift_protocol::api::{AttemptFilter, BestSoFar, TableName, TaskBoard};
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::time::TimestampMs;

use crate::address::Address;
use crate::chart::{Axis, Caption, SERIES_CLASSES, Series, Unit, float_u64, lines, since_beginning};
use crate::failure::PageError;
use crate::form;
use crate::format::{count, counted, device, when};
use crate::page::as_of::as_of;
use crate::page::components::{ALL_POLICIES, stacked};
use crate::page::files;
use crate::shell::{Live, Page, Section, model_label};
use crate::table::{self, Column, Sorting};
use crate::visitor::Visitor;

/// Maximum number of rows of the table.
const MAX_ROWS: usize = 500;
/// Maximum number of tasks whose histories are drawn; a list of more tasks leads to them one by one.
const MAX_HISTORIES: usize = 20;
const COLUMNS: [Column; 10] = [
    Column::text("task", "Task"),
    Column::text("device", "Device"),
    Column::number("speedup", "Best over the reference"),
    Column::number("fastest", "Over the fastest"),
    Column::plain("Program"),
    Column::plain("Model and strategy"),
    Column::number("attempts", "Attempts"),
    Column::number("runs", "Runs"),
    Column::number("campaigns", "Campaigns"),
    Column::moment("found", "Found"),
];
const BY_NAME: Sorting = Sorting { key: "task", descending: false };

/// `GET /tasks`.
pub(crate) async fn show(visitor: Visitor) -> Response {
    let page = read(&visitor).await;
    visitor.answer(page)
}

async fn read(visitor: &Visitor) -> Result<Page, PageError> {
    let address = Address::parse(&visitor.address);
    let filter =
        AttemptFilter::from_pairs(address.filter()).map_err(|error| PageError::bad_query(&error.to_string()))?;
    let (boards, health) = try_join(visitor.client.task_boards(&filter), visitor.client.health()).await?;
    Ok(page(&address, boards, health.now))
}

fn page(address: &Address, mut boards: Vec<TaskBoard>, now: TimestampMs) -> Page {
    let sorting = Sorting::of(address, &COLUMNS, BY_NAME);
    boards.sort_by(|a, b| compare(sorting, a, b));
    let mut by_task: BTreeMap<&str, Vec<&TaskBoard>> = BTreeMap::new();
    for board in &boards {
        by_task.entry(&board.task).or_default().push(board);
    }
    let number = u64::try_from(by_task.len()).unwrap_or(u64::MAX);
    let is_filtered = address.filter().any(|(_, value)| !value.is_empty());
    let content = if boards.is_empty() {
        nothing(is_filtered)
    } else {
        let rows = boards.iter().take(MAX_ROWS).map(row).collect::<Vec<_>>();
        let left_out = boards.len().saturating_sub(MAX_ROWS);
        let left_out = (left_out > 0).then(|| {
            view! { <p class="notice">{left_out}" more rows are not shown: look for a task by its name."</p> }
        });
        view! {
            <div class="scroll" tabindex="0">
                <table class="list">{table::head(address, &COLUMNS, sorting)}<tbody>{rows}</tbody></table>
            </div>
            {left_out}
            {histories(address, &by_task)}
        }
        .into_any()
    };
    let value = address.get("task").unwrap_or_default().to_owned();
    let sort = form::kept(address, &["sort", "order"]);
    Page::new(
        "Tasks",
        view! {
            <div class="head"><h1>"Tasks"</h1><span class="quiet">{counted(number, "task", "tasks")}</span>{as_of(address, now)}</div>
            <p class="quiet">{ALL_POLICIES}</p>
            <form class="filters" method="get" action="/tasks" role="search">
                {sort}
                <label>"Task"<input type="search" name="task" value=value data-search="" /></label>
                <button>"Show"</button>
                {is_filtered.then(|| view! { <a href="/tasks">"Show all"</a> })}
            </form>
            {content}
            {files::links("Tasks", TableName::Tasks, address.filter())}
        },
    )
    .section(Section::Tasks)
    .list()
    .live(Live::Summed)
}

fn nothing(is_filtered: bool) -> AnyView {
    if is_filtered {
        return view! { <p class="empty">"No task has attempts that fit the filter. "<a href="/tasks">"Show all"</a></p> }
            .into_any();
    }
    view! { <p class="empty">"No task was worked on yet. Try "<code>"nightshift demo"</code>"."</p> }.into_any()
}

fn compare(sorting: Sorting, a: &TaskBoard, b: &TaskBoard) -> Ordering {
    let best = |board: &TaskBoard| Some(board.best.as_ref()?.speedup?.estimate);
    let over_fastest = |board: &TaskBoard| Some(board.best.as_ref()?.speedup_over_fastest?.estimate);
    let found = |board: &TaskBoard| board.best.as_ref().and_then(|best| best.finished_at);
    let order = match sorting.key {
        "device" => sorting.directed(a.device.cmp(&b.device)),
        "speedup" => sorting.numbers(best(a), best(b)),
        "fastest" => sorting.numbers(over_fastest(a), over_fastest(b)),
        "attempts" => sorting.directed(a.attempts.cmp(&b.attempts)),
        "runs" => sorting.directed(a.runs.cmp(&b.runs)),
        "campaigns" => sorting.directed(a.campaigns.cmp(&b.campaigns)),
        "found" => sorting.directed(found(a).cmp(&found(b))),
        _ => sorting.directed(a.task.cmp(&b.task)),
    };
    order.then_with(|| sorting.directed((&a.task, &a.device).cmp(&(&b.task, &b.device))))
}

fn row(board: &TaskBoard) -> impl IntoView + use<> {
    let best = board.best.as_ref();
    let speedup = |speedup: Option<Interval>| speedup.map_or_else(|| "–".into_any(), stacked);
    let attempts = Address::parse("/attempts").with("task", Some(&board.task)).with("sort", Some("speedup")).href();
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
        <tr data-row="" data-key=format!("{} {}", board.task, board.device.as_deref().unwrap_or_default())>
            <th scope="row"><a href=attempts>{board.task.clone()}</a></th>
            <td title=board.device.clone()>
                {board.device.as_deref().map_or_else(|| "not timed".to_owned(), device)}" "
                <span class="quiet">{board.target.as_str()}</span>
            </td>
            <td class="number">{speedup(best.and_then(|best| best.speedup))}{unconfirmed}</td>
            <td class="number">{speedup(best.and_then(|best| best.speedup_over_fastest))}</td>
            <td>{program}</td>
            <td>{author}</td>
            <td class="number">{count(board.attempts)}</td>
            <td class="number">{count(board.runs)}</td>
            <td class="number">{count(board.campaigns)}</td>
            <td>{best.and_then(|best| best.finished_at).map(when)}</td>
        </tr>
    }
}

/// How the best of each task grew, folded away under its name. A long list has links to its tasks instead of charts.
fn histories(address: &Address, by_task: &BTreeMap<&str, Vec<&TaskBoard>>) -> Option<AnyView> {
    if by_task.len() > MAX_HISTORIES {
        let entry = |task: &&str| {
            let href = format!("{}#history", address.with("task", Some(task)).href());
            view! { <li><a href=href>{(*task).to_owned()}</a></li> }
        };
        let links = by_task.keys().take(MAX_ROWS).map(entry).collect::<Vec<_>>();
        return Some(
            view! {
                <section>
                    <h2 id="history">"History"</h2>
                    <details><summary>"Choose a task"</summary><ul class="chips">{links}</ul></details>
                </section>
            }
            .into_any(),
        );
    }
    let charts = by_task
        .iter()
        .filter_map(|(task, boards)| Some((*task, history(boards)?)))
        .map(|(task, chart)| {
            view! { <details id=format!("task-{task}")><summary>{task.to_owned()}</summary>{chart}</details> }
        })
        .collect::<Vec<_>>();
    (!charts.is_empty()).then(|| view! { <section><h2 id="history">"History"</h2>{charts}</section> }.into_any())
}

fn history(boards: &[&TaskBoard]) -> Option<AnyView> {
    let moments = || boards.iter().flat_map(|board| &board.history).map(|best| best.at);
    let (first, last) = (moments().min()?, moments().max()?);
    let (unit_ms, label) = since_beginning(last.since_ms(first));
    let passed = |at: TimestampMs| float_u64(at.since_ms(first)) / unit_ms;
    let series: Vec<Series> = boards
        .iter()
        .filter(|board| !board.history.is_empty())
        .flat_map(|board| {
            let device = board.device.as_deref().unwrap_or("not timed");
            let points = |speedup: fn(&BestSoFar) -> Option<f64>| {
                board.history.iter().filter_map(|best| Some((passed(best.at), speedup(best)?))).collect::<Vec<_>>()
            };
            [
                (format!("{device}, over the reference"), points(|best| Some(best.speedup))),
                (format!("{device}, over the fastest baseline"), points(|best| best.speedup_over_fastest)),
            ]
        })
        .filter(|(_, points)| !points.is_empty())
        .zip(SERIES_CLASSES)
        .map(|((name, points), class)| Series { name, class, points, steps: true })
        .collect();
    let caption = Caption::new("Best so far", "The fastest right program on each device, over all campaigns.");
    let x = Axis::linear(label, Unit::Plain);
    Some(
        lines(&caption, &x, &Axis::log("speedup", Unit::Times), &series, Some((1.0, "as fast as the baseline"))).view(),
    )
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::id::RunId;
    use nightshift_protocol::task::Target;
    use serde_json::json;

    use super::*;

    fn board(task: &str, attempts: u64) -> TaskBoard {
        let run: RunId = format!("run_{}", "0".repeat(32)).parse().unwrap_or_else(|error| panic!("{error:?}"));
        let best = BestSoFar { at: TimestampMs(0), speedup: 2.0, speedup_over_fastest: Some(1.25), run, number: 1 };
        TaskBoard {
            task: task.to_owned(),
            device: Some("NVIDIA H200".to_owned()),
            target: Target::Cuda,
            runs: 1,
            attempts,
            campaigns: 1,
            best: None,
            history: vec![best],
        }
    }

    fn html(address: &str, boards: Vec<TaskBoard>) -> String {
        crate::report::with_links(page(&Address::parse(address), boards, TimestampMs(0)))
    }

    #[test]
    fn all_tasks_are_one_table_in_the_order_of_the_address() {
        let boards = || vec![board("softmax", 3), board("matmul", 2), board("gelu", 9)];
        let place = |html: &str, task: &str| html.find(&format!("data-key=\"{task} ")).unwrap_or(usize::MAX);
        let by_name = html("/tasks", boards());
        assert_eq!(by_name.matches("class=\"list\"").count(), 1);
        assert!(
            place(&by_name, "gelu") < place(&by_name, "matmul")
                && place(&by_name, "matmul") < place(&by_name, "softmax")
        );
        let by_attempts = html("/tasks?sort=attempts", boards());
        assert!(place(&by_attempts, "gelu") < place(&by_attempts, "softmax"));
        assert!(by_attempts.contains("name=\"sort\""), "the filter keeps the order: {by_attempts}");
        assert!(by_attempts.contains("id=\"task-gelu\"") && by_attempts.contains(">H200<"), "{by_attempts}");
    }

    #[test]
    fn each_task_has_the_best_speedup_over_both_baselines() {
        let interval = |estimate: f64| json!({"estimate": estimate, "low": estimate - 0.1, "high": estimate + 0.1});
        let with_best = |task: &str, over_fastest: Option<f64>| {
            let best = json!({
                "run": format!("run_{}", "0".repeat(32)), "campaign": format!("cmp_{}", "0".repeat(32)), "number": 1,
                "task": task, "target": "cuda", "strategy": "stitch", "model": "lab/a", "stage": "draft",
                "outcome": "correct_faster", "best": true, "confirmed": true, "speedup": interval(3.0),
                "speedup_over_fastest": over_fastest.map(interval), "tokens": 0, "created_at": 0,
            });
            let best = serde_json::from_value(best).unwrap_or_else(|error| panic!("{error}"));
            TaskBoard { best: Some(best), ..board(task, 1) }
        };
        let boards = vec![with_best("gelu", Some(1.25)), with_best("matmul", Some(2.5)), with_best("softmax", None)];
        let shown = html("/tasks?sort=fastest", boards);
        let place = |text: &str| shown.find(text).unwrap_or(usize::MAX);
        assert!(place("2.40 to 2.60") < place("1.15 to 1.35"), "{shown}");
        assert!(place("1.15 to 1.35") < place("data-key=\"softmax "), "what is not known comes last: {shown}");
        assert_eq!(shown.matches("2.90 to 3.10").count(), 3, "{shown}");
    }

    #[test]
    fn a_long_list_leads_to_the_history_of_each_task() {
        let boards = |count: usize| (0..count).map(|n| board(&format!("task {n}"), 1)).collect::<Vec<_>>();
        let few = html("/tasks", boards(MAX_HISTORIES));
        assert!(few.contains("id=\"task-task 0\"") && few.contains("<svg"), "{few}");
        let many = html("/tasks?sort=speedup", boards(MAX_HISTORIES + 1));
        assert!(many.contains("href=\"/tasks?sort=speedup&amp;task=task%200#history\""), "{many}");
        assert!(!many.contains("<svg") && many.contains("precision policies"), "{many}");
    }

    #[test]
    fn no_task_is_told_as_what_it_is() {
        assert!(html("/tasks?sort=attempts", Vec::new()).contains("No task was worked on yet"));
        assert!(html("/tasks?task=x", Vec::new()).contains("fit the filter"));
    }
}
