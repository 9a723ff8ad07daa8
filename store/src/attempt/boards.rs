//! Leaderboards, computed in one pass over the columns.

use std::collections::{BTreeMap, BTreeSet};

use nightshift_protocol::api::{AttemptFilter, AttemptRow, BestSoFar, FAST_P_THRESHOLDS, ModelBoard, TaskBoard};
use nightshift_protocol::id::RunId;
use nightshift_protocol::speedups::Speedups;
use nightshift_protocol::task::Target;
use nightshift_protocol::time::TimestampMs;

use super::bests::Bests;
use super::columns::{ABSENT, Columns, Key};
use super::labels::Label;
use super::rows::from_ppm;
use super::tagged::Tagged;
use super::wanted::ResolvedFilter;
use crate::failure::Failure;
use crate::public_id::public_id;

/// Maximum number of entries in a task's history of bests.
const MAX_HISTORY: usize = 200;
/// Maximum number of boards (task and device).
const MAX_TASK_BOARDS: usize = 2_000;

/// A task on a device, before the row of its best attempt is read.
#[derive(Debug)]
pub(crate) struct TaskFound {
    pub(crate) task: String,
    pub(crate) target: Target,
    pub(crate) device: Option<String>,
    pub(crate) runs: u64,
    pub(crate) attempts: u64,
    pub(crate) campaigns: u64,
    /// Its key, and the id of its run.
    pub(crate) best: Option<(Key, Box<str>)>,
    pub(crate) history: Vec<BestSoFar>,
}

/// An attempt that became the best of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Timed {
    finished_ms: i64,
    key: Key,
    speedup_ppm: i64,
    over_fastest_ppm: Option<i64>,
}

#[derive(Default)]
struct OfTask {
    runs: BTreeSet<i64>,
    campaigns: BTreeSet<Label>,
    attempts: u64,
    bests: Vec<Timed>,
}

pub(crate) fn tasks(
    columns: &Columns,
    filter: &AttemptFilter,
    tagged: Option<Tagged>,
) -> Result<Vec<TaskFound>, Failure> {
    let wanted = ResolvedFilter::with_tag(filter, tagged, columns);
    let mut groups: BTreeMap<(Label, Target, Option<Label>), OfTask> = BTreeMap::new();
    let mut home: (i64, Option<Label>) = (ABSENT, None);
    let mut bests = Bests::default();
    wanted.scan(columns, |run_id, run, slot, misses| {
        if !misses.none() {
            return;
        }
        if home.0 != run_id {
            home = (run_id, run.attempts.iter().find_map(|slot| slot.device));
        }
        let of_task = groups.entry((run.task, run.target, slot.device.or(home.1))).or_default();
        of_task.attempts += 1;
        of_task.runs.insert(run_id);
        of_task.campaigns.insert(run.campaign);
        if let Some(speedup_ppm) = slot.right_speedup_ppm().filter(|_| bests.contains(run_id, run, slot.number)) {
            of_task.bests.push(Timed {
                finished_ms: slot.moment_ms(),
                key: (run_id, slot.number),
                speedup_ppm,
                over_fastest_ppm: slot.right_over_fastest_ppm(),
            });
        }
    });
    let mut boards = Vec::with_capacity(groups.len());
    for ((task, target, device), mut of_task) in groups {
        of_task.bests.sort_unstable();
        boards.push(TaskFound {
            task: columns.names.name(task).to_owned(),
            target,
            device: device.map(|device| columns.names.name(device).to_owned()),
            runs: count(of_task.runs.len()),
            attempts: of_task.attempts,
            campaigns: count(of_task.campaigns.len()),
            best: best_of(columns, &of_task.bests),
            history: history(columns, &of_task.bests)?,
        });
    }
    boards.sort_by(|one, other| (&one.task, one.target, &one.device).cmp(&(&other.task, other.target, &other.device)));
    boards.truncate(MAX_TASK_BOARDS);
    Ok(boards)
}

/// Returns the fastest attempt; among equals, the one that finished first.
fn best_of(columns: &Columns, timed: &[Timed]) -> Option<(Key, Box<str>)> {
    let key = timed.iter().rev().max_by_key(|timed| timed.speedup_ppm)?.key;
    Some((key, columns.runs.get(&key.0)?.id.clone()))
}

/// Returns the attempts that were the best when they finished.
fn history(columns: &Columns, timed: &[Timed]) -> Result<Vec<BestSoFar>, Failure> {
    let mut best = ABSENT;
    let mut bests = Vec::new();
    for one in timed {
        if one.speedup_ppm > best {
            best = one.speedup_ppm;
            bests.push(one);
        }
    }
    let surplus = bests.len().saturating_sub(MAX_HISTORY);
    let told = bests.into_iter().skip(surplus).filter_map(|one| Some((one, columns.runs.get(&one.key.0)?)));
    told.map(|(one, run)| {
        let run: RunId = public_id(&run.id, "a run's id")?;
        Ok(BestSoFar {
            at: TimestampMs(one.finished_ms),
            run,
            number: one.key.1,
            speedup: from_ppm(one.speedup_ppm),
            speedup_over_fastest: one.over_fastest_ppm.map(from_ppm),
        })
    })
    .collect()
}

#[derive(Default)]
struct OfModel {
    attempts: u64,
    finished: u64,
    correct: u64,
    tokens: i64,
    cost_microusd: i64,
    unpriced: u64,
    /// The best speedups of each run over the reference and over the fastest baseline, in millionths.
    runs: BTreeMap<i64, Option<(i64, Option<i64>)>>,
}

pub(crate) fn models(columns: &Columns, filter: &AttemptFilter, tagged: Option<Tagged>) -> Vec<ModelBoard> {
    let wanted = ResolvedFilter::with_tag(filter, tagged, columns);
    let mut groups: BTreeMap<(Label, Label), OfModel> = BTreeMap::new();
    let mut bests = Bests::default();
    wanted.scan(columns, |run_id, run, slot, misses| {
        if !misses.none() {
            return;
        }
        let of_model = groups.entry((slot.model, run.strategy)).or_default();
        of_model.attempts += 1;
        of_model.finished += u64::from(slot.finished_ms != ABSENT);
        of_model.correct += u64::from(slot.finished_ms != ABSENT && slot.outcome.is_correct());
        of_model.tokens = of_model.tokens.saturating_add(slot.tokens.max(0));
        of_model.cost_microusd = of_model.cost_microusd.saturating_add(slot.cost_microusd.max(0));
        of_model.unpriced += u64::from(slot.cost_microusd == ABSENT);
        let best = of_model.runs.entry(run_id).or_default();
        if bests.contains(run_id, run, slot.number) {
            *best = (*best).max(slot.right_speedup_ppm().map(|speedup| (speedup, slot.right_over_fastest_ppm())));
        }
    });
    let mut boards: Vec<ModelBoard> = groups
        .into_iter()
        .map(|((model, strategy), of_model)| board(columns.names.name(model), columns.names.name(strategy), &of_model))
        .collect();
    boards.sort_by(|one, other| {
        other
            .attempts
            .cmp(&one.attempts)
            .then_with(|| (&one.model, &one.strategy).cmp(&(&other.model, &other.strategy)))
    });
    boards
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn board(model: &str, strategy: &str, of_model: &OfModel) -> ModelBoard {
    let bests = || {
        let of_runs = of_model.runs.values().copied();
        of_runs.map(|best| (best.map(|best| from_ppm(best.0)), best.and_then(|best| best.1).map(from_ppm)))
    };
    let over_reference = Speedups::of_estimates(bests().map(|(speedup, _)| (speedup, speedup)));
    let over_fastest = Speedups::of_estimates(bests());
    let fast_p = |speedups: &Speedups| FAST_P_THRESHOLDS.iter().filter_map(|p| speedups.fast_p(*p)).collect();
    ModelBoard {
        model: model.to_owned(),
        strategy: strategy.to_owned(),
        runs: count(of_model.runs.len()),
        attempts: of_model.attempts,
        finished: of_model.finished,
        correct_share: (of_model.finished > 0).then(|| of_model.correct as f64 / of_model.finished as f64),
        median_best_speedup: over_reference.median(),
        median_best_speedup_over_fastest: over_fastest.median(),
        fast_p: fast_p(&over_reference),
        fast_p_over_fastest: fast_p(&over_fastest),
        tokens: u64::try_from(of_model.tokens).unwrap_or(0),
        cost_usd: from_ppm(of_model.cost_microusd),
        unpriced_attempts: of_model.unpriced,
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Joins the boards with the rows of their best attempts, which are in the same order.
pub(crate) fn with_rows(found: Vec<TaskFound>, best: Vec<AttemptRow>) -> Vec<TaskBoard> {
    let mut best = best.into_iter().peekable();
    found
        .into_iter()
        .map(|task| {
            // An attempt that was deleted in the meantime has no row.
            let is_its = |row: &AttemptRow| {
                task.best.as_ref().is_some_and(|(key, run)| row.run.as_str() == &**run && row.number == key.1)
            };
            TaskBoard {
                best: best.next_if(is_its),
                task: task.task,
                target: task.target,
                device: task.device,
                runs: task.runs,
                attempts: task.attempts,
                campaigns: task.campaigns,
                history: task.history,
            }
        })
        .collect()
}
