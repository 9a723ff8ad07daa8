//! Leases ready steps to a worker.

use std::collections::{BTreeMap, HashMap};

use nightshift_engine::store::{ClaimRequest, DeviceLane, StepRecord};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::rows::{Place, Step};
use super::working_set::WorkingSet;
use crate::failure::Failure;
use crate::json;
use crate::number::{count_from_stored, from_stored};

/// Maximum number of steps per claim.
pub const MAX_CLAIMED: u32 = 256;

/// A claiming worker.
#[derive(Debug, Clone)]
pub(crate) struct Claimer {
    pub(crate) id: i64,
    pub(crate) draining: bool,
}

/// Device usage by worker and device: number of sharing steps, and of exclusive steps.
#[derive(Debug, Default)]
pub(crate) struct DeviceUses(HashMap<(i64, i64), (u32, u32)>);

impl DeviceUses {
    /// Adds a lease on a device.
    pub(crate) fn note(&mut self, worker_id: i64, device: i64, exclusive: bool) {
        let (shared, alone) = self.0.entry((worker_id, device)).or_default();
        *(if exclusive { alone } else { shared }) += 1;
    }

    fn of(&self, worker_id: i64, device: i64) -> (u32, u32) {
        self.0.get(&(worker_id, device)).copied().unwrap_or_default()
    }
}

/// Adds the number of steps of each route that a claim could take.
pub(crate) fn add_wanted<'a>(claim: &'a ClaimRequest, wanted: &mut BTreeMap<&'a str, u32>) {
    let mut want = |routes: &'a [String], count: u32| {
        for route in routes.iter().filter(|_| count > 0) {
            let sum = wanted.entry(route).or_default();
            *sum = sum.saturating_add(count.min(MAX_CLAIMED));
        }
    };
    want(&claim.routes, claim.cpu_slots);
    for lane in &claim.devices {
        want(&lane.exclusive, 1);
        want(&lane.shared, lane.shared_slots);
    }
}

/// Leases the loaded ready steps with the lowest ranks. Returns their ids, in the order of their rank.
pub(crate) fn claim(
    set: &mut WorkingSet,
    claim: &ClaimRequest,
    worker: &Claimer,
    devices: &mut DeviceUses,
) -> Result<Vec<i64>, Failure> {
    if worker.draining {
        return Ok(Vec::new());
    }
    let mut taken = Taken { claim, worker, ranked: Vec::new() };
    let routes = ids_of(set, &claim.routes);
    for _ in 0..claim.cpu_slots {
        let Some((rank, step_id, _)) = first(set, &routes, claim.at) else { break };
        if !taken.take(set, rank, step_id, None)? {
            break;
        }
    }
    for lane in &claim.devices {
        take_lane(set, &mut taken, lane, devices)?;
    }
    taken.ranked.sort_unstable();
    Ok(taken.ranked.into_iter().map(|(_, step_id)| step_id).collect())
}

fn take_lane(
    set: &mut WorkingSet,
    taken: &mut Taken<'_>,
    lane: &DeviceLane,
    devices: &mut DeviceUses,
) -> Result<(), Failure> {
    let device = i64::from(lane.device);
    let (shared, alone) = devices.of(taken.worker.id, device);
    if alone > 0 {
        // The answer to the worker's previous claim may have been lost.
        return Ok(());
    }
    let exclusive = ids_of(set, &lane.exclusive);
    let mut routes = ids_of(set, &lane.shared);
    if lane.shared_slots == 0 {
        routes.clear();
    }
    routes.extend(&exclusive);
    let mut slots = lane.shared_slots;
    let mut is_first = true;
    while let Some((rank, step_id, route)) = first(set, &routes, taken.claim.at) {
        let needs_it_alone = exclusive.contains(&route);
        let fits = if needs_it_alone { is_first && shared == 0 } else { slots > 0 };
        if !fits || !taken.take(set, rank, step_id, Some((device, needs_it_alone)))? {
            break;
        }
        devices.note(taken.worker.id, device, needs_it_alone);
        if needs_it_alone {
            break;
        }
        slots -= 1;
        is_first = false;
    }
    Ok(())
}

/// Progress of a claim.
struct Taken<'a> {
    claim: &'a ClaimRequest,
    worker: &'a Claimer,
    ranked: Vec<(i64, i64)>,
}

impl Taken<'_> {
    /// Leases a step. Returns `false` when the claim is full.
    fn take(
        &mut self,
        set: &mut WorkingSet,
        rank: i64,
        step_id: i64,
        device: Option<(i64, bool)>,
    ) -> Result<bool, Failure> {
        if self.ranked.len() >= usize::try_from(MAX_CLAIMED).unwrap_or(usize::MAX) {
            return Ok(false);
        }
        let step = set.step_mut(step_id)?;
        step.status = StepStatus::Leased;
        step.epoch += 1;
        step.tries += 1;
        step.worker = Some(self.claim.worker.as_str().to_owned());
        step.started_at = Some(self.claim.at.0);
        step.changed = true;
        let place = Place::Leased {
            epoch: step.epoch,
            worker_id: self.worker.id,
            expires_at: self.claim.expires_at.0,
            device: device.map(|(device, _)| device),
            exclusive: device.is_some_and(|(_, exclusive)| exclusive),
        };
        set.put(step_id, place)?;
        set.claimed_rank = set.claimed_rank.max(Some(rank));
        self.ranked.push((rank, step_id));
        Ok(true)
    }
}

fn ids_of(set: &WorkingSet, routes: &[String]) -> Vec<i64> {
    routes.iter().filter_map(|route| set.route_ids.get(route).copied()).collect()
}

/// Returns the step with the lowest rank that can still end before its window closes: rank, id, route.
fn first(set: &WorkingSet, routes: &[i64], at: TimestampMs) -> Option<(i64, i64, i64)> {
    let can_begin = |step_id: &i64| match set.steps.get(step_id).map(|step| &step.place) {
        Some(Place::Ready { latest_start, .. }) => latest_start.is_none_or(|latest| at.0 <= latest),
        _ => false,
    };
    let heads = routes.iter().filter_map(|route| {
        let ready = set.ready.get(route)?;
        ready.iter().find(|(_, step_id)| can_begin(step_id)).map(|(rank, step_id)| (*rank, *step_id, *route))
    });
    heads.min()
}

/// Returns the record of a leased step for the worker.
pub(crate) fn record(
    step: &Step,
    routes: &HashMap<i64, String>,
    worker: &WorkerId,
    input: Value,
) -> Result<StepRecord, Failure> {
    let details =
        step.details.as_ref().ok_or_else(|| Failure::unreadable("a step", &"it was not loaded to be claimed"))?;
    let failure: Option<StepFailure> = step
        .failure
        .as_deref()
        .map(json::read)
        .transpose()
        .map_err(|error| Failure::unreadable(format!("the failure of step {}", step.public_id), &error))?;
    let device = match step.place {
        Place::Leased { device, .. } => device,
        _ => None,
    };
    Ok(StepRecord {
        id: step.public_id.clone(),
        run: details.run.clone(),
        key: step.key.clone(),
        kind: details.kind.clone(),
        route: routes.get(&step.route_id).cloned().unwrap_or_default(),
        status: step.status,
        epoch: from_stored(step.epoch),
        tries: count_from_stored(step.tries),
        retry: details.retry,
        timeout_ms: step.timeout_ms,
        worker: Some(worker.clone()),
        input,
        output: None,
        failure,
        scheduled_at: details.scheduled_at,
        started_at: step.started_at.map(TimestampMs),
        finished_at: step.finished_at.map(TimestampMs),
        not_before: None,
        blocked_on: None,
        device: device.and_then(|device| u32::try_from(device).ok()),
        reserve: step.reserve.clone(),
    })
}
