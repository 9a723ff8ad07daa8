//! The hot path: reports, decisions and claims of many callers in one transaction, with a fixed number of statements.
//!
//! A flush has three phases:
//!
//! 1. Load the rows that the changes name into a working set (`load.rs`).
//! 2. Apply each change in order as a pure function (one file per verb). A change that fails its check changes nothing.
//! 3. Write the difference (`write.rs`).
//!
//! Claims come last, so they see all steps that the flush made ready. Such a step never touches the ready list. Rare
//! operations use the same working set and verbs ([`locked_rows::LockedRows`]).

pub(crate) mod admit;
mod advance;
#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
mod bench;
mod candidates;
mod claim;
pub(crate) mod event_text;
mod hot_load;
pub(crate) mod load;
pub(crate) mod locked_rows;
pub(crate) mod route;
pub(crate) mod rows;
pub(crate) mod table;
#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]
mod tests;
pub(crate) mod try_end;
pub(crate) mod unblock;
pub(crate) mod working_set;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use nightshift_engine::store::{Advance, Advanced, Change, Changed, ClaimRequest, StoreError};
use nightshift_protocol::time::TimestampMs;
use serde_json::Value as Json;

use self::candidates::{Given, details, devices, inputs};
use self::claim::{Claimer, DeviceUses};
use self::rows::Input;
use self::try_end::ReportSource;
use self::working_set::WorkingSet;
use crate::connection::Backend;
use crate::failure::Failure;
use crate::json;
use crate::number::from_stored;
use crate::transaction::Transaction;

pub use self::advance::MAX_STEPS_PER_ADVANCE;
pub(crate) use self::advance::cancel_open;
pub use self::claim::MAX_CLAIMED;

/// Outcome of a flush.
pub(crate) struct Flushed {
    /// One answer per group.
    pub(crate) answers: Vec<Result<Vec<Changed>, StoreError>>,
    /// Whether anything was written.
    pub(crate) wrote: bool,
}

/// Applies groups of changes with a fixed number of statements. A group that fails gets its error and changes nothing.
/// A database failure affects all groups.
pub(crate) async fn flush(transaction: &mut Transaction<'_>, groups: &[&[Change]]) -> Result<Flushed, Failure> {
    let mut refused: BTreeMap<usize, StoreError> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        if let Err(error) = check(group) {
            refused.insert(index, error);
        }
    }
    loop {
        let live = groups.iter().enumerate().filter(|(index, _)| !refused.contains_key(index));
        let live: Vec<(usize, &[Change])> = live.map(|(index, group)| (index, *group)).collect();
        if live.is_empty() {
            let answers = refused.into_values().map(Err).collect();
            return Ok(Flushed { answers, wrote: false });
        }
        // Rows are written only after everything is applied. Refused groups are omitted in the next attempt.
        match attempt(transaction, &live).await? {
            Attempt::Refused(errors) => refused.extend(errors),
            Attempt::Done(done, wrote) => {
                let mut done = done.into_iter();
                let answers = (0..groups.len()).map(|index| match refused.remove(&index) {
                    Some(error) => Err(error),
                    None => Ok(done.next().unwrap_or_default()),
                });
                return Ok(Flushed { answers: answers.collect(), wrote });
            }
        }
    }
}

/// Checks a group without reading from the database.
fn check(group: &[Change]) -> Result<(), StoreError> {
    for change in group {
        if let Change::Advance(advance) = change {
            advance::check(advance)?;
        }
    }
    Ok(())
}

enum Attempt {
    /// These groups failed; nothing was written.
    Refused(Vec<(usize, StoreError)>),
    /// The answers, and whether anything was written.
    Done(Vec<Vec<Changed>>, bool),
}

type Groups<'a> = [(usize, &'a [Change])];

fn changes<'a>(groups: &'a Groups<'a>) -> impl Iterator<Item = &'a Change> {
    groups.iter().flat_map(|(_, group)| group.iter())
}

fn advances<'a>(groups: &'a Groups<'a>) -> impl Iterator<Item = &'a Advance> {
    changes(groups).filter_map(|change| match change {
        Change::Advance(advance) => Some(&**advance),
        _ => None,
    })
}

fn claims<'a>(groups: &'a Groups<'a>) -> impl Iterator<Item = &'a ClaimRequest> {
    changes(groups).filter_map(|change| match change {
        Change::Claim(claim) => Some(claim),
        _ => None,
    })
}

fn reported<'a>(groups: &'a Groups<'a>) -> impl Iterator<Item = &'a str> {
    changes(groups).filter_map(|change| match change {
        Change::Report(report) => Some(report.step.as_str()),
        _ => None,
    })
}

/// Returns the maximum number of ready steps per route for the claims, with the earliest time of a claim. Returns none
/// if the claims cannot take any step.
fn wanted(set: &WorkingSet, groups: &Groups<'_>) -> Option<(BTreeMap<i64, u32>, TimestampMs)> {
    let mut by_text: BTreeMap<&str, u32> = BTreeMap::new();
    claims(groups).for_each(|claim| claim::add_wanted(claim, &mut by_text));
    let wanted: BTreeMap<i64, u32> =
        by_text.iter().filter_map(|(route, count)| Some((*set.route_ids.get(*route)?, *count))).collect();
    let at = claims(groups).map(|claim| claim.at).min()?;
    (!wanted.is_empty()).then_some((wanted, at))
}

async fn attempt(transaction: &mut Transaction<'_>, groups: &Groups<'_>) -> Result<Attempt, Failure> {
    let mut set = WorkingSet { virtual_now: transaction.memory.virtual_now(), ..WorkingSet::default() };
    route::resolve(transaction, &mut set, advances(groups), claims(groups)).await?;
    let at_once = transaction.connection.backend() == Backend::Postgres;
    let (claimers, given) = if at_once {
        hot_load::load(transaction, &mut set, groups).await?
    } else {
        let workers: BTreeSet<String> = claims(groups).map(|claim| claim.worker.as_str().to_owned()).collect();
        let claimers = if workers.is_empty() {
            HashMap::new()
        } else {
            candidates::workers(transaction.connection, workers.into_iter().collect()).await?
        };
        load_for_changes(transaction, &mut set, groups).await?;
        (claimers, Given::new())
    };

    let mut errors = missing(&set, &claimers, groups);
    if !errors.is_empty() {
        return Ok(Attempt::Refused(errors));
    }
    let mut answers: Vec<Vec<Changed>> = Vec::with_capacity(groups.len());
    for (index, (number, group)) in groups.iter().enumerate() {
        match apply(&mut set, index, group) {
            Ok(changed) => answers.push(changed),
            Err(Failure::Answer(error)) => {
                errors.push((*number, error));
                return Ok(Attempt::Refused(errors));
            }
            Err(failure) => return Err(failure),
        }
    }

    let at = changes(groups).map(moment).max().unwrap_or_default();
    let mut wrote = unblock::look_again(transaction.connection, &mut set, at).await?;
    if !at_once && let Some((wanted, at)) = wanted(&set, groups) {
        candidates::ready(transaction.connection, &mut set, &wanted, at).await?;
    }
    serve_claims(transaction, &mut set, &claimers, given, groups, &mut answers).await?;

    transaction.claimed_rank = transaction.claimed_rank.max(set.claimed_rank);
    transaction.notices.extend(set.take_notices());
    wrote |= write::all(transaction.connection, set).await?;

    Ok(Attempt::Done(answers, wrote))
}

fn moment(change: &Change) -> TimestampMs {
    match change {
        Change::Report(report) => report.at,
        Change::Advance(advance) => advance.at,
        Change::Claim(claim) => claim.at,
    }
}

/// Loads the runs and then the other rows; on SQLite.
async fn load_for_changes(
    transaction: &mut Transaction<'_>,
    set: &mut WorkingSet,
    groups: &Groups<'_>,
) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    let steps: BTreeSet<&str> = reported(groups).collect();
    let runs: BTreeSet<&str> = advances(groups).map(|advance| advance.run.as_str()).collect();
    if steps.is_empty() && runs.is_empty() {
        return Ok(());
    }
    let owned = |texts: &BTreeSet<&str>| -> Vec<String> { texts.iter().map(|text| (*text).to_owned()).collect() };
    load::runs(connection, set, owned(&runs), owned(&steps), Vec::new()).await?;
    if !steps.is_empty() {
        load::reported(connection, set, owned(&steps)).await?;
    }
    let mut pairs = Vec::new();
    let mut ending = BTreeSet::new();
    let mut with_budget: HashSet<i64> = HashSet::new();
    for advance in advances(groups) {
        let Some(run) = set.run_ids.get(advance.run.as_str()).and_then(|id| set.runs.get(id)) else { continue };
        if advance.end.is_some() {
            ending.insert(run.id);
        } else {
            pairs.extend(advance.schedule.iter().map(|(_, order)| (run.id, json::clean(&order.key).into_owned())));
            if advance.schedule.iter().any(|(_, order)| !order.reserve.is_empty()) {
                with_budget.insert(run.campaign_id);
            }
        }
    }
    if !pairs.is_empty() {
        set.free_step_ids = transaction.memory.step_ids(connection, pairs.len()).await?;
        set.free_step_ids.reverse();
        load::keys(connection, set, pairs).await?;
    }
    if !ending.is_empty() {
        load::open_steps(connection, set, ending.into_iter().collect()).await?;
    }
    let counted = set.steps.values().filter(|step| !step.reserve.is_empty() || !step.reserved.is_empty());
    with_budget.extend(counted.map(|step| step.campaign_id));
    load::campaigns(connection, set, &with_budget).await
}

/// Returns the errors of groups that name missing objects. In a group with other changes, a claim of an unknown worker
/// gets no steps and no error.
fn missing(set: &WorkingSet, claimers: &HashMap<String, Claimer>, groups: &Groups<'_>) -> Vec<(usize, StoreError)> {
    let not_found = |noun: &'static str, id: &str| Some(StoreError::NotFound { noun, id: id.to_owned() });
    let missing_of = |change: &Change, is_alone: bool| match change {
        Change::Report(report) if !set.step_ids.contains_key(report.step.as_str()) => {
            not_found("step", report.step.as_str())
        }
        Change::Advance(advance) if !set.run_ids.contains_key(advance.run.as_str()) => {
            not_found("run", advance.run.as_str())
        }
        Change::Claim(claim) if is_alone && !claimers.contains_key(claim.worker.as_str()) => {
            not_found("worker", claim.worker.as_str())
        }
        _ => None,
    };
    let first = |group: &[Change]| group.iter().find_map(|change| missing_of(change, group.len() == 1));
    groups.iter().filter_map(|(number, group)| Some((*number, first(group)?))).collect()
}

/// Applies the changes of a group, with placeholders for the answers to claims.
fn apply(set: &mut WorkingSet, index: usize, group: &[Change]) -> Result<Vec<Changed>, Failure> {
    let mut answers = Vec::with_capacity(group.len());
    // If the previous change was a report: the event that it appended, if any.
    let mut reported: Option<Option<(i64, i64)>> = None;
    for (position, change) in group.iter().enumerate() {
        let before = reported.take();
        answers.push(match change {
            Change::Report(report) => {
                let run_id = set.step_of(&report.step).map(|step| step.run_id);
                let last_seq = |set: &WorkingSet| run_id.and_then(|id| Some((id, set.runs.get(&id)?.last_seq)));
                let end_before = last_seq(set);
                let source = ReportSource::Worker(&report.used);
                let answer = try_end::end(set, &report.step, report.epoch, &report.end, source, report.at)?;
                reported = Some(last_seq(set).filter(|end| Some(*end) != end_before));
                Changed::Reported(answer)
            }
            Change::Advance(advance) => Changed::Advanced(match before {
                Some(appended) if !folds_what_was_reported(set, advance, appended) => Advanced::Conflict,
                _ => advance::advance(set, advance, (index, position))?,
            }),
            Change::Claim(_) => Changed::Claimed(Vec::new()),
        });
    }
    Ok(answers)
}

/// Returns whether a precomputed decision folds the event that the report before it appended.
///
/// A late or repeated report appended nothing, so another event stands in that place.
fn folds_what_was_reported(set: &WorkingSet, advance: &Advance, appended: Option<(i64, i64)>) -> bool {
    advance.expects_last_seq.is_none_or(|expected| {
        appended.is_some_and(|(run_id, seq)| {
            set.run_ids.get(advance.run.as_str()) == Some(&run_id) && from_stored(seq) == expected
        })
    })
}

/// Serves the claims of all groups in order and fills in their answers.
async fn serve_claims(
    transaction: &mut Transaction<'_>,
    set: &mut WorkingSet,
    claimers: &HashMap<String, Claimer>,
    mut given: Given,
    groups: &Groups<'_>,
    answers: &mut [Vec<Changed>],
) -> Result<(), Failure> {
    let connection = &mut *transaction.connection;
    if set.ready.values().all(BTreeSet::is_empty) {
        return Ok(());
    }
    let with_devices = claims(groups).filter(|claim| !claim.devices.is_empty());
    let on_devices: BTreeSet<i64> =
        with_devices.filter_map(|claim| Some(claimers.get(claim.worker.as_str())?.id)).collect();
    let mut uses = if on_devices.is_empty() {
        DeviceUses::default()
    } else {
        devices(connection, set, on_devices.into_iter().collect()).await?
    };
    let mut taken: Vec<(usize, usize, Vec<i64>)> = Vec::new();
    for (index, (_, group)) in groups.iter().enumerate() {
        for (position, change) in group.iter().enumerate() {
            let Change::Claim(claim) = change else { continue };
            let Some(claimer) = claimers.get(claim.worker.as_str()) else { continue };
            let steps = claim::claim(set, claim, claimer, &mut uses)?;
            if !steps.is_empty() {
                taken.push((index, position, steps));
            }
        }
    }
    let ids = || taken.iter().flat_map(|(_, _, steps)| steps.iter().copied());
    let unknown: Vec<i64> = ids().filter(|id| set.steps.get(id).is_some_and(|step| step.details.is_none())).collect();
    if !unknown.is_empty() {
        details(connection, set, unknown).await?;
    }
    let is_stored = |id: &i64| {
        let details = set.steps.get(id).and_then(|step| step.details.as_ref());
        details.is_some_and(|details| matches!(details.input, Input::Stored))
    };
    let stored: Vec<i64> = ids().filter(is_stored).filter(|id| !given.contains_key(id)).collect();
    if !stored.is_empty() {
        given.extend(inputs(connection, stored).await?);
    }
    for (index, position, steps) in taken {
        let Some(Change::Claim(claim)) = groups.get(index).and_then(|(_, group)| group.get(position)) else { continue };
        let mut records = Vec::with_capacity(steps.len());
        for id in steps {
            let step = set.step(id)?;
            let input = match step.details.as_ref().map(|details| &details.input) {
                Some(Input::Ordered(group, change, order)) => ordered(groups, *group, *change, *order),
                _ => match given.remove(&id).map(|input| json::read(&input)).transpose() {
                    Ok(input) => input,
                    Err(error) => return Err(Failure::unreadable("the input of a step", &error)),
                },
            };
            let input = input.ok_or_else(|| Failure::unreadable(format!("step {}", step.public_id), &"no input"))?;
            records.push(claim::record(step, &set.routes, &claim.worker, input)?);
        }
        if let Some(answer) = answers.get_mut(index).and_then(|group| group.get_mut(position)) {
            *answer = Changed::Claimed(records);
        }
    }
    Ok(())
}

/// Returns the input of an order of this flush.
fn ordered(groups: &Groups<'_>, group: usize, change: usize, order: usize) -> Option<Json> {
    match groups.get(group)?.1.get(change)? {
        Change::Advance(advance) => Some(advance.schedule.get(order)?.1.input.clone()),
        _ => None,
    }
}
