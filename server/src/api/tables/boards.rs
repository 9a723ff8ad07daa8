//! The leaderboards as tables: tasks by device, and models by strategy.

use nightshift_protocol::api::{FAST_P_THRESHOLDS, ModelBoard, TaskBoard};

use crate::api::attempts::{Pairs, filter};
use crate::attempt_index::Index;
use crate::error::ApiFailure;
use crate::table::{Cell, Column, Row};

pub(super) const TASK_COLUMNS: &[Column] = &[
    Column::text("task"),
    Column::text("target"),
    Column::text("device"),
    Column::integer("runs"),
    Column::integer("attempts"),
    Column::integer("campaigns"),
    Column::text("best_run"),
    Column::integer("best_attempt"),
    Column::text("best_model"),
    Column::flag("best_confirmed"),
    Column::number("best_speedup"),
    Column::number("best_speedup_low"),
    Column::number("best_speedup_high"),
    Column::number("best_candidate_median_ns"),
    Column::time("best_finished_at"),
    Column::number("best_speedup_over_fastest"),
    Column::number("best_speedup_over_fastest_low"),
    Column::number("best_speedup_over_fastest_high"),
];

/// Columns of `fast_p`, over the reference and over the fastest baseline, are named by [`FAST_P_THRESHOLDS`], in their
/// order.
pub(super) const MODEL_COLUMNS: &[Column] = &[
    Column::text("model"),
    Column::text("strategy"),
    Column::integer("runs"),
    Column::integer("attempts"),
    Column::integer("finished_attempts"),
    Column::number("correct_share"),
    Column::number("median_best_speedup"),
    Column::number("fast_1"),
    Column::number("fast_1_5"),
    Column::number("fast_2"),
    Column::number("fast_3"),
    Column::integer("tokens"),
    Column::number("cost_usd"),
    Column::integer("unpriced_attempts"),
    Column::number("median_best_speedup_over_fastest"),
    Column::number("fast_1_over_fastest"),
    Column::number("fast_1_5_over_fastest"),
    Column::number("fast_2_over_fastest"),
    Column::number("fast_3_over_fastest"),
];

pub(super) async fn tasks(index: &Index, query: Pairs) -> Result<Vec<Row>, ApiFailure> {
    let boards = index.current().await?.task_boards(&filter(query)?).await?;
    Ok(boards.into_iter().map(task).collect())
}

pub(super) async fn models(index: &Index, query: Pairs) -> Result<Vec<Row>, ApiFailure> {
    let boards = index.current().await?.model_boards(&filter(query)?).await?;
    Ok(boards.into_iter().map(model).collect())
}

fn task(board: TaskBoard) -> Row {
    let best = board.best.as_ref();
    let speedup = best.and_then(|best| best.speedup);
    let over_fastest = best.and_then(|best| best.speedup_over_fastest);
    vec![
        board.task.into(),
        board.target.as_str().into(),
        board.device.into(),
        board.runs.into(),
        board.attempts.into(),
        board.campaigns.into(),
        best.map(|best| best.run.to_string()).into(),
        best.map(|best| best.number).into(),
        best.map(|best| best.model.clone()).into(),
        best.map(|best| best.confirmed).into(),
        speedup.map(|speedup| speedup.estimate).into(),
        speedup.map(|speedup| speedup.low).into(),
        speedup.map(|speedup| speedup.high).into(),
        best.and_then(|best| best.candidate_median_ns).into(),
        best.and_then(|best| best.finished_at).into(),
        over_fastest.map(|speedup| speedup.estimate).into(),
        over_fastest.map(|speedup| speedup.low).into(),
        over_fastest.map(|speedup| speedup.high).into(),
    ]
}

fn model(board: ModelBoard) -> Row {
    let mut row: Row = vec![
        board.model.into(),
        board.strategy.into(),
        board.runs.into(),
        board.attempts.into(),
        board.finished.into(),
        board.correct_share.into(),
        board.median_best_speedup.into(),
    ];
    let shares = |shares: &[f64]| -> Row {
        (0..FAST_P_THRESHOLDS.len()).map(|place| Cell::from(shares.get(place).copied())).collect()
    };
    row.extend(shares(&board.fast_p));
    row.extend([board.tokens.into(), board.cost_usd.into(), board.unpriced_attempts.into()]);
    row.push(board.median_best_speedup_over_fastest.into());
    row.extend(shares(&board.fast_p_over_fastest));
    row
}
