//! Writes the journal: receives notices of changed runs, reads them, and records their state. Idle without listeners.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use nightshift_engine::store::{Notice, RunMark, StoreError};
use nightshift_protocol::api::{CampaignChange, LiveEvent, RunChange, RunDigest, WorkerChange};
use nightshift_protocol::id::{CampaignId, RunId, WorkerId};
use nightshift_protocol::run::RunStatus;
use tokio::time::Instant;

use super::survey::{Found, Survey};
use crate::backoff::Backoff;
use crate::live::{About, Live};
use crate::shared::Shared;
use crate::waiting::{silent_after_ms, waits_at};
use crate::worker_registry::MAX_LISTED_WORKERS;

/// Minimum time between two reads, which batches changes of a busy run. A change after a pause is read immediately.
const GATHER: Duration = Duration::from_millis(20);
/// Maximum number of runs per read.
const MAX_TOGETHER: usize = 500;
/// Polling interval for workers: no notice says that a worker claimed a step.
const LOOK_AT_WORKERS: Duration = Duration::from_secs(1);
/// Polling interval for runs without a notice, where other servers write to the database. Their notices may be lost.
const LOOK_AT_RUNS: Duration = Duration::from_secs(2);
/// Maximum number of unfinished runs that a poll compares, newest first. Others depend on notices.
const MAX_STAMPS: u32 = 10_000;
/// Maximum number of changed runs that wait for a read.
const MAX_WAITING: usize = 20_000;
/// Time for which the journal is written after the last listener left, because a page change reconnects.
const LINGER: Duration = Duration::from_mins(2);

/// Name of this loop in error logs.
const WATCHING: &str = "reading changes";

/// Runs the loop until the server ends.
pub(crate) async fn run(shared: Arc<Shared>, live: Arc<Live>) {
    let mut listeners = live.listeners.subscribe();
    loop {
        tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            // The sender lives as long as the server.
            _ = listeners.wait_for(|listeners| *listeners > 0) => {}
        }
        Follower::new(&shared, &live).follow().await;
        live.follows.send_replace(false);
    }
}

struct Follower<'a> {
    shared: &'a Shared,
    live: &'a Live,
    survey: Survey,
    workers: Option<HashMap<WorkerId, WorkerChange>>,
    runs: HashSet<RunId>,
    campaigns: HashSet<CampaignId>,
    backoff: Backoff,
}

impl<'a> Follower<'a> {
    fn new(shared: &'a Shared, live: &'a Live) -> Self {
        Self {
            shared,
            live,
            survey: Survey::default(),
            workers: None,
            runs: HashSet::new(),
            campaigns: HashSet::new(),
            backoff: Backoff::default(),
        }
    }

    /// Writes the journal until the server stops or there was no listener for a while.
    async fn follow(&mut self) {
        let (shared, live) = (self.shared, self.live);
        let mut notices = shared.store.database.notices();
        let mut listeners = live.listeners.subscribe();
        live.restart();
        live.follows.send_replace(true);
        let mut look_at_runs = tokio::time::interval(LOOK_AT_RUNS);
        let mut look_at_workers = tokio::time::interval(LOOK_AT_WORKERS);
        for ticks in [&mut look_at_runs, &mut look_at_workers] {
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        let mut due: Option<Instant> = None;
        let mut looked: Option<Instant> = None;
        let mut idle_since = Instant::now();
        loop {
            if *listeners.borrow_and_update() > 0 {
                idle_since = Instant::now();
            }
            let pending = !self.runs.is_empty() || !self.campaigns.is_empty();
            let soon = || looked.map_or_else(Instant::now, |looked| looked + GATHER);
            due = if pending { due.or_else(|| Some(soon())) } else { None };
            tokio::select! {
                () = shared.shutdown.cancelled() => return,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let done = self.look_at_changed().await;
                    looked = Some(Instant::now());
                    due = self.after(done).map(|pause| Instant::now() + pause);
                }
                notice = notices.next() => match notice {
                    Some(Notice::RunChanged(run)) => self.heard(run.id),
                    Some(Notice::Unknown) => self.restart_journal(),
                    Some(Notice::Ready(_) | Notice::TimerSet(_)) => {}
                    None => return self.restart_journal(),
                },
                () = live.touch.notified() => self.campaigns.extend(live.take_touched()),
                _ = look_at_workers.tick() => {
                    let done = self.look_at_workers().await;
                    let _ = self.after(done);
                }
                _ = look_at_runs.tick(), if !shared.config.sole => {
                    let done = self.look_for_runs().await;
                    let _ = self.after(done);
                }
                _ = listeners.changed() => {}
                () = tokio::time::sleep_until(idle_since + LINGER), if *live.listeners.borrow() == 0 => return,
            }
        }
    }

    /// Returns the delay before the next try, after a failure.
    fn after(&mut self, done: Result<(), StoreError>) -> Option<Duration> {
        match done {
            Ok(()) => {
                self.backoff.succeeded();
                self.shared.error_log.worked(WATCHING);
                None
            }
            Err(error) => {
                self.shared.error_log.failed(WATCHING, &error);
                Some(self.backoff.failed())
            }
        }
    }

    fn heard(&mut self, run: RunId) {
        self.runs.insert(run);
        if self.runs.len() > MAX_WAITING {
            // The store has not answered for long.
            self.runs.clear();
            self.restart_journal();
        }
    }

    /// Restarts the journal after unknown events, so that all clients read again.
    fn restart_journal(&mut self) {
        self.live.restart();
    }

    async fn look_at_changed(&mut self) -> Result<(), StoreError> {
        while !self.runs.is_empty() {
            let runs: Vec<RunId> = self.runs.iter().take(MAX_TOGETHER).cloned().collect();
            let marks = self.shared.store.watch.run_marks(&runs).await?;
            let there: HashSet<&RunId> = marks.iter().map(|mark| &mark.run).collect();
            for run in &runs {
                self.runs.remove(run);
                if !there.contains(run) {
                    // It was deleted.
                    self.survey.forget(run);
                }
            }
            for mark in marks {
                self.take_down(mark);
            }
        }
        let campaigns: Vec<CampaignId> = self.campaigns.iter().cloned().collect();
        for campaign in campaigns {
            match self.shared.store.campaigns.load_campaign(&campaign).await {
                Ok(record) => {
                    let change = CampaignChange { campaign: record.id, runs: record.runs };
                    self.live.add(About::Campaign(campaign.clone()), &LiveEvent::CampaignChanged(change));
                }
                // It was deleted.
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
            self.campaigns.remove(&campaign);
        }
        Ok(())
    }

    fn take_down(&mut self, mark: RunMark) {
        match self.survey.note(&mark) {
            Found::Nothing => return,
            Found::Change => {}
            Found::Status => {
                self.campaigns.insert(mark.campaign.clone());
            }
        }
        let digest: RunDigest = match serde_json::from_value(mark.digest) {
            Ok(digest) => digest,
            Err(error) => {
                tracing::debug!(run.id = %mark.run, error = %error, "a changed run could not be published");
                return;
            }
        };
        let about = About::Run(mark.campaign.clone(), mark.run.clone());
        let change = change(mark.run, mark.campaign, mark.last_seq, mark.status, digest, mark.awaits);
        self.live.add(about, &LiveEvent::RunChanged(Box::new(change)));
    }

    async fn look_for_runs(&mut self) -> Result<(), StoreError> {
        let stamps = self.shared.store.watch.run_stamps(MAX_STAMPS).await?;
        let changed = self.survey.compare(stamps);
        self.runs.extend(changed);
        Ok(())
    }

    async fn look_at_workers(&mut self) -> Result<(), StoreError> {
        let silent_ms = silent_after_ms(self.shared.config.lease_ms);
        let now = self.shared.clock.now();
        let marks = self.shared.store.watch.worker_marks(MAX_LISTED_WORKERS).await?;
        let found: HashMap<WorkerId, WorkerChange> = marks
            .into_iter()
            .map(|mark| {
                let change = WorkerChange {
                    worker: mark.worker.clone(),
                    name: mark.name,
                    leases: mark.leases,
                    draining: mark.draining,
                    silent: now.since_ms(mark.last_seen_at) > silent_ms,
                    gone: false,
                };
                (mark.worker, change)
            })
            .collect();
        // The first look only records the workers. Listeners read the initial state themselves.
        if let Some(before) = &self.workers {
            for (id, change) in &found {
                if before.get(id) != Some(change) {
                    self.live.add(About::Worker(id.clone()), &LiveEvent::WorkerChanged(change.clone()));
                }
            }
            for (id, change) in before.iter().filter(|(id, _)| !found.contains_key(*id)) {
                let change = WorkerChange { gone: true, leases: 0, ..change.clone() };
                self.live.add(About::Worker(id.clone()), &LiveEvent::WorkerChanged(change));
            }
        }
        self.workers = Some(found);
        Ok(())
    }
}

fn change(
    run: RunId,
    campaign: CampaignId,
    seq: u64,
    status: RunStatus,
    mut digest: RunDigest,
    awaits: Vec<String>,
) -> RunChange {
    if status == RunStatus::Running
        && let Some(gate) = awaits.first()
    {
        digest.activity = waits_at(gate, &run);
    }
    let attempt = Some(digest.attempts).filter(|attempts| *attempts > 0);
    RunChange { run, campaign, seq, status, digest, attempt, awaits }
}
