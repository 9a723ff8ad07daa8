//! An in-memory store for the engine's tests.
//!
//! It implements the port's guarantees about runs, steps, leases, servers and ownership. It has no budgets, windows and
//! shares: every wanted step is ready. Unsupported calls return an error.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use nightshift_engine::event::{Event, EventRecord};
use nightshift_engine::store::{
    Advance, Advanced, Change, Changed, ClaimRequest, NewCampaign, OwnerFence, Report, Reported, RunRecord,
    ServerRecord, StepRecord, StoreError, TryEnd, WorkerRecord,
};
use nightshift_engine::workflow::{StatePart, StoredState};
use nightshift_protocol::id::{RunId, ServerId, StepId, WorkerId};
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

/// The store.
#[derive(Default)]
pub(crate) struct MemoryStore(Mutex<World>);

impl MemoryStore {
    /// Returns the number of reads and commits.
    pub(crate) fn cost(&self) -> (u64, u64) {
        let world = self.world();
        (world.reads, world.commits)
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        match self.0.lock() {
            Ok(world) => world,
            Err(error) => panic!("an earlier operation panicked: {error}"),
        }
    }
}

/// The stored data.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) runs: BTreeMap<RunId, Run>,
    pub(crate) servers: BTreeMap<ServerId, ServerRecord>,
    pub(crate) workers: BTreeMap<WorkerId, WorkerRecord>,
    /// Number of the driver's reads, and of commits.
    pub(crate) reads: u64,
    pub(crate) commits: u64,
}

/// A run with its log and its steps.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) record: RunRecord,
    pub(crate) log: Vec<EventRecord>,
    pub(crate) steps: Vec<Step>,
    /// The stored state.
    head: Value,
    pub(crate) parts: BTreeMap<(String, u32), Value>,
    /// Number of parts that the last decision wrote.
    pub(crate) parts_written: usize,
}

impl Run {
    fn put_state(&mut self, state: StoredState) {
        let StoredState { head, parts } = state;
        self.head = head;
        self.parts_written = parts.len();
        self.parts.extend(parts.into_iter().map(|part| ((part.field, part.number), part.value)));
        let all = self.parts.iter().map(|((field, number), value)| StatePart {
            field: field.clone(),
            number: *number,
            value: value.clone(),
        });
        let stored = StoredState { head: self.head.clone(), parts: all.collect() };
        (self.record.state, self.record.state_parts) =
            (Some(stored.document()), u32::try_from(self.parts.len()).unwrap());
    }

    /// Merges the state into one document, the format of releases without parts.
    pub(crate) fn make_one_document(&mut self) {
        self.parts.clear();
        (self.head, self.record.state_parts) = (self.record.state.clone().unwrap(), 0);
    }
}

/// A step with its lease and its last report.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) record: StepRecord,
    pub(crate) lease_expires_at: Option<TimestampMs>,
    reported: Option<(u64, TryEnd)>,
}

impl Run {
    pub(crate) fn append(&mut self, at: TimestampMs, event: Event) {
        self.record.last_seq += 1;
        self.log.push(EventRecord { seq: self.record.last_seq, at, event });
    }

    pub(crate) fn set_status(&mut self, status: RunStatus, at: TimestampMs) {
        self.record.status = status;
        self.record.revision += 1;
        self.record.finished_at = status.is_final().then_some(at);
    }

    /// Cancels the scheduled steps, optionally with the leased ones.
    pub(crate) fn cancel_open(&mut self, leased_too: bool, at: TimestampMs) {
        let mut cancelled = Vec::new();
        for step in &mut self.steps {
            let stops = match step.record.status {
                StepStatus::Scheduled => true,
                StepStatus::Leased => leased_too,
                StepStatus::Completed | StepStatus::Failed | StepStatus::Cancelled => false,
            };
            if stops {
                (step.record.status, step.lease_expires_at) = (StepStatus::Cancelled, None);
                cancelled.push(step.record.key.clone());
            }
        }
        for key in cancelled {
            self.append(at, Event::StepCancelled { key });
        }
    }
}

impl World {
    pub(crate) fn run(&mut self, id: &RunId) -> Result<&mut Run, StoreError> {
        self.runs.get_mut(id).ok_or_else(|| StoreError::NotFound { noun: "run", id: id.to_string() })
    }

    /// Returns the run and the index of a step.
    pub(crate) fn step(&mut self, id: &StepId) -> Result<(&mut Run, usize), StoreError> {
        for run in self.runs.values_mut() {
            if let Some(place) = run.steps.iter().position(|step| step.record.id == *id) {
                return Ok((run, place));
            }
        }
        Err(StoreError::NotFound { noun: "step", id: id.to_string() })
    }

    pub(crate) fn create(&mut self, new: NewCampaign) {
        for run in new.runs {
            let record = RunRecord {
                id: run.id.clone(),
                campaign: new.id.clone(),
                status: RunStatus::Running,
                revision: 0,
                state: None,
                state_parts: 0,
                folded_seq: 0,
                last_seq: 0,
                digest: run.digest,
                failure: None,
                owner: new.owner.clone(),
                owner_epoch: 0,
                priority: new.priority,
                awaits: Vec::new(),
                created_at: new.at,
                finished_at: None,
            };
            let mut stored = Run {
                record,
                log: Vec::new(),
                steps: Vec::new(),
                head: Value::Null,
                parts: BTreeMap::new(),
                parts_written: 0,
            };
            stored.append(new.at, Event::RunCreated { input: run.input });
            self.runs.insert(run.id, stored);
        }
    }

    /// Applies changes in their order.
    pub(crate) fn apply(&mut self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError> {
        // If the previous change was a report: the event that it appended, if any.
        let mut reported: Option<Option<u64>> = None;
        let mut answers = Vec::new();
        for change in changes {
            let before = reported.take();
            answers.push(match change {
                Change::Report(report) => {
                    let (run, _) = self.step(&report.step)?;
                    let (id, last_seq) = (run.record.id.clone(), run.record.last_seq);
                    let answer = self.report(report)?;
                    let now = self.run(&id)?.record.last_seq;
                    reported = Some((now > last_seq).then_some(now));
                    Changed::Reported(answer)
                }
                Change::Advance(advance) => {
                    let is_foreseen = before.is_some() && advance.expects_last_seq.is_some();
                    let as_foreseen = !is_foreseen || before == Some(advance.expects_last_seq);
                    let answer = if as_foreseen { self.advance(*advance)? } else { Advanced::Conflict };
                    Changed::Advanced(answer)
                }
                Change::Claim(claim) => Changed::Claimed(self.claim(&claim)),
            });
        }
        Ok(answers)
    }

    fn advance(&mut self, advance: Advance) -> Result<Advanced, StoreError> {
        let run = self.run(&advance.run)?;
        let record = &run.record;
        if let Some(OwnerFence { server, epoch }) = &advance.fence
            && (record.owner.as_ref(), record.owner_epoch) != (Some(server), *epoch)
        {
            return Ok(Advanced::NotOwner);
        }
        let current = record.revision == advance.revision && !record.status.is_final();
        let folds_the_log = (record.folded_seq..=record.last_seq).contains(&advance.folded_seq);
        let is_expected = advance.expects_last_seq.is_none_or(|expected| expected == record.last_seq);
        let begins_what_is_being_stopped = record.status == RunStatus::Cancelling && !advance.schedule.is_empty();
        if !current || !folds_the_log || !is_expected || begins_what_is_being_stopped {
            return Ok(Advanced::Conflict);
        }
        if let Some((transition, event)) = advance.end {
            let status = run.record.status.next(transition)?;
            run.set_status(status, advance.at);
            run.cancel_open(true, advance.at);
            if let Event::RunFailed { failure } = &event {
                run.record.failure = Some(failure.clone());
            }
            run.append(advance.at, event);
        } else {
            run.record.revision += 1;
            for (id, order) in advance.schedule {
                if run.steps.iter().all(|step| step.record.key != order.key) {
                    run.append(advance.at, Event::StepScheduled { key: order.key.clone() });
                    let record = StepRecord {
                        id,
                        run: advance.run.clone(),
                        key: order.key,
                        kind: order.kind,
                        route: order.needs.route(),
                        status: StepStatus::Scheduled,
                        epoch: 0,
                        tries: 0,
                        retry: order.retry,
                        timeout_ms: order.timeout_ms,
                        worker: None,
                        input: order.input,
                        output: None,
                        failure: None,
                        scheduled_at: advance.at,
                        started_at: None,
                        finished_at: None,
                        not_before: None,
                        blocked_on: None,
                        device: None,
                        reserve: order.reserve,
                    };
                    run.steps.push(Step { record, lease_expires_at: None, reported: None });
                }
            }
        }
        run.record.folded_seq = advance.folded_seq;
        if let Some(state) = advance.state {
            run.put_state(state);
        }
        run.record.digest = advance.digest;
        run.record.awaits = advance.awaits;
        Ok(Advanced::Committed { revision: run.record.revision, last_seq: run.record.last_seq })
    }

    fn report(&mut self, report: Report) -> Result<Reported, StoreError> {
        self.end_try(&report.step, report.epoch, report.end, report.at, false)
    }

    /// Ends a try, if the fence holds. The sweeper ends only an expired lease.
    pub(crate) fn end_try(
        &mut self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
        by_sweeper: bool,
    ) -> Result<Reported, StoreError> {
        let (run, place) = self.step(step)?;
        let cancelling = run.record.status == RunStatus::Cancelling;
        let step = &mut run.steps[place];
        let in_time = step.lease_expires_at.is_some_and(|expires_at| !by_sweeper || expires_at <= at);
        if step.record.status != StepStatus::Leased || step.record.epoch != epoch || !in_time {
            let again = matches!(&step.reported, Some((e, said)) if *e == epoch && same_report(said, &end));
            return Ok(if again { Reported::Committed } else { Reported::LeaseLost });
        }
        step.reported = Some((epoch, end.clone()));
        step.lease_expires_at = None;
        let key = step.record.key.clone();
        let is_wait = matches!(end, TryEnd::Wait { .. });
        let event = match end {
            TryEnd::Completed { output } => {
                (step.record.status, step.record.output) = (StepStatus::Completed, Some(output.clone()));
                Some(Event::StepCompleted { key, output })
            }
            TryEnd::Failed { failure } => {
                (step.record.status, step.record.failure) = (StepStatus::Failed, Some(failure.clone()));
                Some(Event::StepFailed { key, failure })
            }
            TryEnd::Retry { .. } | TryEnd::Wait { .. } | TryEnd::Cancelled if cancelling => {
                step.record.status = StepStatus::Cancelled;
                Some(Event::StepCancelled { key })
            }
            TryEnd::Retry { failure, at: not_before } | TryEnd::Wait { failure, at: not_before } => {
                step.record.tries -= u32::from(is_wait);
                step.record.status = StepStatus::Scheduled;
                step.record.not_before = (not_before > at).then_some(not_before);
                let last = step.record.failure.replace(failure.clone());
                let is_logged = is_wait && last.is_some_and(|last| last.code == failure.code);
                (!is_logged).then_some(Event::StepRetried { key, failure, at: not_before })
            }
            TryEnd::Cancelled => {
                step.record.status = StepStatus::Scheduled;
                None
            }
        };
        if let Some(event) = event {
            run.append(at, event);
        }
        Ok(Reported::Committed)
    }

    /// Leases every ready step of a wanted route in the order of the runs, ignoring devices and ranks.
    fn claim(&mut self, claim: &ClaimRequest) -> Vec<StepRecord> {
        let mut claimed = Vec::new();
        let ready = |run: &Run, step: &Step| {
            run.record.status == RunStatus::Running
                && step.record.status == StepStatus::Scheduled
                && step.record.not_before.is_none()
                && claim.routes.contains(&step.record.route)
        };
        for run in self.runs.values_mut() {
            for place in 0..run.steps.len() {
                let room = claimed.len() < usize::try_from(claim.cpu_slots).unwrap_or(usize::MAX);
                if room && ready(run, &run.steps[place]) {
                    let step = &mut run.steps[place];
                    step.record.status = StepStatus::Leased;
                    step.record.epoch += 1;
                    step.record.tries += 1;
                    step.record.worker = Some(claim.worker.clone());
                    step.lease_expires_at = Some(claim.expires_at);
                    claimed.push(step.record.clone());
                }
            }
        }
        claimed
    }

    /// Pauses, resumes or cancels a run.
    pub(crate) fn control(
        &mut self,
        run: &RunId,
        transition: RunTransition,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError> {
        let run = self.run(run)?;
        let status = run.record.status.next(transition)?;
        if status == run.record.status {
            return Ok(status);
        }
        run.set_status(status, at);
        let by = by.map(str::to_owned);
        run.append(
            at,
            match transition {
                RunTransition::Pause => Event::RunPaused { by },
                RunTransition::Resume => Event::RunResumed { by },
                _ => Event::RunCancelRequested { by },
            },
        );
        if status == RunStatus::Cancelling {
            run.cancel_open(false, at);
        }
        Ok(status)
    }

    /// Schedules failed steps again, all or one.
    pub(crate) fn retry(
        &mut self,
        run: &RunId,
        key: Option<&str>,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<Vec<String>, StoreError> {
        let run = self.run(run)?;
        let status = run.record.status.next(RunTransition::Retry)?;
        let mut keys = Vec::new();
        for step in &mut run.steps {
            let again = match step.record.status {
                StepStatus::Cancelled => true,
                StepStatus::Failed => key.is_none_or(|key| key == step.record.key),
                StepStatus::Scheduled | StepStatus::Leased | StepStatus::Completed => false,
            };
            if again {
                (step.record.status, step.record.tries, step.record.failure) = (StepStatus::Scheduled, 0, None);
                keys.push(step.record.key.clone());
            }
        }
        run.record.failure = None;
        run.set_status(status, at);
        run.append(at, Event::RunRetried { keys: keys.clone(), by: by.map(str::to_owned) });
        Ok(keys)
    }
}

impl World {
    /// Frees the leases of workers in dead servers. The tries do not count.
    pub(crate) fn reap(&mut self, at: TimestampMs) -> u64 {
        let dead: Vec<ServerId> =
            self.servers.values().filter(|server| server.expires_at <= at).map(|server| server.id.clone()).collect();
        self.servers.retain(|id, _| !dead.contains(id));
        let lost: Vec<WorkerId> = self
            .workers
            .values()
            .filter(|worker| worker.server.as_ref().is_some_and(|server| dead.contains(server)))
            .map(|worker| worker.id.clone())
            .collect();
        let mut freed = 0;
        for step in self.runs.values_mut().flat_map(|run| &mut run.steps) {
            let is_lost = step.record.worker.as_ref().is_some_and(|worker| lost.contains(worker));
            if is_lost && step.lease_expires_at.take().is_some() {
                step.record.status = StepStatus::Scheduled;
                step.record.tries -= 1;
                freed += 1;
            }
        }
        freed
    }

    /// Makes due steps ready. Returns their number, and when the next one is due.
    pub(crate) fn fire(&mut self, at: TimestampMs, limit: usize) -> (u64, Option<TimestampMs>) {
        let mut fired = 0;
        let mut next: Option<TimestampMs> = None;
        for step in self.runs.values_mut().flat_map(|run| &mut run.steps) {
            match step.record.not_before {
                Some(moment) if moment <= at && fired < limit => {
                    step.record.not_before = None;
                    fired += 1;
                }
                Some(moment) => next = Some(next.map_or(moment, |next| next.min(moment))),
                None => {}
            }
        }
        (u64::try_from(fired).unwrap_or(u64::MAX), next)
    }
}

/// Copies of a report may differ in the time of the next try.
fn same_report(said: &TryEnd, again: &TryEnd) -> bool {
    match (said, again) {
        (TryEnd::Retry { failure: a, .. }, TryEnd::Retry { failure: b, .. })
        | (TryEnd::Wait { failure: a, .. }, TryEnd::Wait { failure: b, .. }) => a == b,
        _ => said == again,
    }
}
