//! Results of a campaign: two passes over the columns. The second pass selects the attempts that are listed
//! individually.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use nightshift_protocol::api::{
    AttemptFilter, BestAt, CampaignResults, DeviceUse, Facet, FastP, MAX_LINE_POINTS, MAX_RESULT_DEVICES,
    MAX_RESULT_LINES, MAX_RESULT_MARKS, ResultLine, ResultMark,
};
use nightshift_protocol::attempt::AttemptOutcome;
use nightshift_protocol::id::CampaignId;
use nightshift_protocol::time::TimestampMs;

use super::bests::Bests;
use super::boards;
use super::columns::{ABSENT, Columns, Slot};
use super::labels::Label;
use super::rows::from_ppm;
use super::wanted::ResolvedFilter;
use crate::failure::Failure;
use crate::public_id::public_id;

/// An attempt that was the best of its run when it finished.
struct Best {
    at_ms: i64,
    number: u32,
    speedup_ppm: i64,
    over_fastest_ppm: Option<i64>,
}

/// Progress of the best attempt of a run.
#[derive(Default)]
struct Line {
    run_id: i64,
    bests: Vec<Best>,
    until_ms: i64,
}

impl Line {
    fn reached(&self) -> i64 {
        self.bests.last().map_or(ABSENT, |best| best.speedup_ppm)
    }
}

#[derive(Default)]
struct OfDevice {
    runs: BTreeSet<i64>,
    attempts: u64,
    device_ms: u64,
    best_ppm: Option<i64>,
    best_over_fastest_ppm: Option<i64>,
    first_ms: i64,
    last_ms: i64,
}

/// Counts of the first pass.
#[derive(Default)]
struct Counts {
    outcomes: [u64; AttemptOutcome::ALL.len()],
    kept: u64,
    discarded: u64,
    failed: u64,
    /// Attempts at the listed places: kept ones, and others.
    at_places: (u64, u64),
    speedups_ppm: Vec<i64>,
    over_fastest_ppm: Vec<i64>,
    lines: Vec<Line>,
    /// Best speedups of runs whose best attempt is correct and timed.
    bests_ppm: Vec<i64>,
    bests_over_fastest_ppm: Vec<i64>,
    devices: BTreeMap<Label, OfDevice>,
    /// Device time of attempts that were never timed.
    untimed_device_ms: u64,
}

/// Standing of an attempt among the earlier attempts of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Kept,
    Discarded,
    Failed,
    Pending,
}

/// Computes the results of a campaign with this many runs, with the attempts at these places listed individually.
pub(crate) fn of_campaign(
    columns: &Columns,
    campaign: &CampaignId,
    runs: u64,
    places: &RangeInclusive<u64>,
) -> Result<CampaignResults, Failure> {
    let filter = AttemptFilter { campaign: Some(campaign.clone()), ..AttemptFilter::default() };
    let wanted = ResolvedFilter::new(&filter, columns);
    let counts = count_all(columns, &wanted, places);
    let attempts = counts.outcomes.iter().sum();
    let outcomes = AttemptOutcome::ALL.into_iter().map(|outcome| outcome.as_str().to_owned()).zip(counts.outcomes);
    let mut outcomes: Vec<Facet> =
        outcomes.filter(|(_, count)| *count > 0).map(|(value, count)| Facet { value, count }).collect();
    outcomes.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.value.cmp(&other.value)));
    let (mut speedups_ppm, mut over_fastest_ppm) = (counts.speedups_ppm, counts.over_fastest_ppm);
    speedups_ppm.sort_unstable();
    over_fastest_ppm.sort_unstable();
    let unknown = number(counts.bests_ppm.len() - counts.bests_over_fastest_ppm.len());
    let told = |sorted: &[i64]| evenly(sorted, MAX_RESULT_MARKS).map(|ppm| from_ppm(*ppm)).collect();
    Ok(CampaignResults {
        attempts,
        outcomes,
        kept: counts.kept,
        discarded: counts.discarded,
        failed: counts.failed,
        pending: attempts - counts.kept - counts.discarded - counts.failed,
        marks: marks(columns, &wanted, places, counts.at_places)?,
        marks_of: counts.at_places.0 + counts.at_places.1,
        timed_runs: number(counts.lines.len()),
        lines: lines(columns, counts.lines)?,
        speedups: told(&speedups_ppm),
        timed: number(speedups_ppm.len()),
        speedups_over_fastest: told(&over_fastest_ppm),
        timed_over_fastest: number(over_fastest_ppm.len()),
        fast_p: fast_p(counts.bests_ppm, runs),
        fast_p_over_fastest: fast_p(counts.bests_over_fastest_ppm, runs.saturating_sub(unknown)),
        models: boards::models(columns, &filter, None),
        devices: devices(columns, counts.devices),
        untimed_device_ms: counts.untimed_device_ms,
    })
}

fn count_all(columns: &Columns, wanted: &ResolvedFilter, places: &RangeInclusive<u64>) -> Counts {
    let mut counts = Counts::default();
    let mut seen = 0_u64;
    let mut line = Line { run_id: ABSENT, ..Line::default() };
    let mut bests = Bests::default();
    wanted.scan(columns, |run_id, run, slot, _| {
        if line.run_id != run_id {
            let done = std::mem::replace(&mut line, Line { run_id, until_ms: ABSENT, ..Line::default() });
            counts.lines.extend((!done.bests.is_empty()).then_some(done));
        }
        let speedup_ppm = slot.right_speedup_ppm();
        let at_ms = slot.moment_ms();
        line.until_ms = line.until_ms.max(at_ms);
        counts.outcomes[slot.outcome as usize] += 1;
        let place = place(slot, bests.contains(run_id, run, slot.number));
        seen += 1;
        if places.contains(&seen) {
            counts.at_places.0 += u64::from(place == Place::Kept);
            counts.at_places.1 += u64::from(place != Place::Kept);
        }
        match place {
            Place::Kept => {
                counts.kept += 1;
                line.bests.extend(speedup_ppm.map(|speedup_ppm| Best {
                    at_ms,
                    number: slot.number,
                    speedup_ppm,
                    over_fastest_ppm: slot.right_over_fastest_ppm(),
                }));
            }
            Place::Discarded => counts.discarded += 1,
            Place::Failed => counts.failed += 1,
            Place::Pending => {}
        }
        counts.speedups_ppm.extend(speedup_ppm);
        counts.over_fastest_ppm.extend(slot.right_over_fastest_ppm());
        counts.bests_ppm.extend(speedup_ppm.filter(|_| slot.is_best));
        counts.bests_over_fastest_ppm.extend(slot.right_over_fastest_ppm().filter(|_| slot.is_best));
        if let Some(device) = slot.device {
            let used = counts.devices.entry(device).or_insert_with(|| OfDevice {
                first_ms: slot.created_ms,
                last_ms: at_ms,
                ..OfDevice::default()
            });
            used.runs.insert(run_id);
            used.attempts += 1;
            used.device_ms += u64::from(slot.device_ms);
            if place == Place::Kept {
                used.best_ppm = used.best_ppm.max(speedup_ppm);
                used.best_over_fastest_ppm = used.best_over_fastest_ppm.max(slot.right_over_fastest_ppm());
            }
            used.first_ms = used.first_ms.min(slot.created_ms);
            used.last_ms = used.last_ms.max(at_ms);
        } else {
            counts.untimed_device_ms += u64::from(slot.device_ms);
        }
    });
    counts.lines.extend((!line.bests.is_empty()).then_some(line));
    counts
}

fn place(slot: &Slot, became_best: bool) -> Place {
    match slot.outcome {
        _ if became_best => Place::Kept,
        AttemptOutcome::Pending => Place::Pending,
        outcome if outcome.is_correct() => Place::Discarded,
        _ => Place::Failed,
    }
}

/// Selects the attempts that are listed individually. Attempts that were the best of their time get up to half of the
/// places.
fn marks(
    columns: &Columns,
    wanted: &ResolvedFilter,
    places: &RangeInclusive<u64>,
    (kept, others): (u64, u64),
) -> Result<Vec<ResultMark>, Failure> {
    let most = number(MAX_RESULT_MARKS);
    let fits = kept + others <= most;
    let most_kept = if fits { kept } else { kept.min((most / 2).max(most.saturating_sub(others))) };
    let most_others = others.min(most - most_kept);
    let mut marks = Vec::new();
    let mut failure = None;
    let (mut seen, mut seen_kept, mut seen_others) = (0_u64, 0_u64, 0_u64);
    let mut bests = Bests::default();
    wanted.scan(columns, |run_id, run, slot, _| {
        let is_kept = place(slot, bests.contains(run_id, run, slot.number)) == Place::Kept;
        let speedup_ppm = slot.right_speedup_ppm();
        seen += 1;
        if !places.contains(&seen) {
            return;
        }
        let wanted =
            if is_kept { is_taken(seen_kept, kept, most_kept) } else { is_taken(seen_others, others, most_others) };
        seen_kept += u64::from(is_kept);
        seen_others += u64::from(!is_kept);
        if !wanted || failure.is_some() {
            return;
        }
        match public_id(&run.id, "a run's id") {
            Ok(id) => marks.push(ResultMark {
                place: seen,
                run: id,
                task: columns.names.name(run.task).to_owned(),
                number: slot.number,
                outcome: slot.outcome,
                speedup: speedup_ppm.map(from_ppm),
                speedup_over_fastest: slot.right_over_fastest_ppm().map(from_ppm),
                kept: is_kept,
            }),
            Err(error) => failure = Some(error),
        }
    });
    failure.map_or(Ok(marks), Err)
}

/// Returns whether the item at `place` is among `most` items taken evenly from `all`.
fn is_taken(place: u64, all: u64, most: u64) -> bool {
    let upto = |place: u64| u128::from(place) * u128::from(most) / u128::from(all.max(1));
    upto(place + 1) > upto(place)
}

/// Selects at most `most` items evenly, including the first and the last.
fn evenly<T>(all: &[T], most: usize) -> impl Iterator<Item = &T> {
    let taken = all.len().min(most);
    let last = all.len().saturating_sub(1);
    (0..taken).filter_map(move |index| all.get((index * last).checked_div(taken - 1).unwrap_or(0)))
}

fn lines(columns: &Columns, mut found: Vec<Line>) -> Result<Vec<ResultLine>, Failure> {
    found.sort_by(|one, other| other.reached().cmp(&one.reached()).then_with(|| one.run_id.cmp(&other.run_id)));
    found.truncate(MAX_RESULT_LINES);
    found.sort_by_key(|line| line.run_id);
    let told = found.iter().filter_map(|line| Some((line, columns.runs.get(&line.run_id)?)));
    told.map(|(line, run)| {
        let bests = evenly(&line.bests, MAX_LINE_POINTS).map(|best| BestAt {
            at: TimestampMs(best.at_ms),
            number: best.number,
            speedup: from_ppm(best.speedup_ppm),
            speedup_over_fastest: best.over_fastest_ppm.map(from_ppm),
        });
        Ok(ResultLine {
            run: public_id(&run.id, "a run's id")?,
            task: columns.names.name(run.task).to_owned(),
            bests: bests.collect(),
            grew: number(line.bests.len()),
            until: TimestampMs(line.until_ms),
        })
    })
    .collect()
}

/// Computes the `fast_p` curve from the speedup of each run's best program.
#[expect(clippy::cast_precision_loss, reason = "shares for people")]
fn fast_p(mut bests_ppm: Vec<i64>, runs: u64) -> Vec<FastP> {
    if runs == 0 {
        return Vec::new();
    }
    bests_ppm.sort_unstable();
    let above = |ppm: i64| bests_ppm.len() - bests_ppm.partition_point(|best| *best <= ppm);
    let share = |ppm: i64| above(ppm) as f64 / runs as f64;
    let mut steps = bests_ppm.clone();
    steps.dedup();
    let steps = evenly(&steps, MAX_RESULT_MARKS).map(|ppm| FastP { p: from_ppm(*ppm), share: share(*ppm) });
    std::iter::once(FastP { p: 0.0, share: share(0) }).chain(steps).collect()
}

fn devices(columns: &Columns, found: BTreeMap<Label, OfDevice>) -> Vec<DeviceUse> {
    let told = found.into_iter().map(|(device, used)| DeviceUse {
        device: columns.names.name(device).to_owned(),
        runs: number(used.runs.len()),
        attempts: used.attempts,
        device_ms: used.device_ms,
        best_speedup: used.best_ppm.map(from_ppm),
        best_speedup_over_fastest: used.best_over_fastest_ppm.map(from_ppm),
        first_at: TimestampMs(used.first_ms),
        last_at: TimestampMs(used.last_ms),
    });
    let mut devices: Vec<DeviceUse> = told.collect();
    devices.sort_by(|one, other| other.attempts.cmp(&one.attempts).then_with(|| one.device.cmp(&other.device)));
    devices.truncate(MAX_RESULT_DEVICES);
    devices
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_selection_has_the_wanted_size_and_both_ends() {
        let all: Vec<usize> = (0..10_001).collect();
        let taken: Vec<usize> = evenly(&all, 2_000).copied().collect();
        assert_eq!((taken.len(), taken.first(), taken.last()), (2_000, Some(&0), Some(&10_000)));
        assert!(taken.is_sorted() && taken.windows(2).all(|two| two[1] - two[0] <= 6));
        assert_eq!(evenly(&all[..3], 2_000).copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(evenly(&all[..3], 1).copied().collect::<Vec<_>>(), [0]);
        assert_eq!(evenly::<u8>(&[], 5).count(), 0);
        for (all, most) in [(7_u64, 7_u64), (7, 3), (1, 1), (100_000, 1_999), (5, 0)] {
            assert_eq!(number((0..all).filter(|place| is_taken(*place, all, most)).count()), most, "{most} of {all}");
        }
    }

    #[test]
    fn a_program_that_is_exactly_p_times_as_fast_is_not_faster_than_that() {
        let curve = fast_p(vec![2_000_000, 500_000, 2_000_000], 4);
        let told: Vec<(f64, f64)> = curve.iter().map(|place| (place.p, place.share)).collect();
        assert_eq!(told, [(0.0, 0.75), (0.5, 0.5), (2.0, 0.0)]);
        assert!(fast_p(Vec::new(), 0).is_empty());
    }
}
