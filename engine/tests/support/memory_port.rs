//! [`MemoryStore`] as the engine's port.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use nightshift_engine::event::{Event, EventRecord};
use nightshift_engine::store::*;
use nightshift_protocol::access::TokenView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine};
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, TokenId, WorkerId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::memory::{MemoryStore, Run, Step};

fn rows(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Returns the error for an unsupported call.
fn unkept<T>(what: &str) -> Result<T, StoreError> {
    Err(StoreError::Other(format!("the store in memory has no `{what}`")))
}

#[async_trait]
impl Store for MemoryStore {
    async fn create_campaign(&self, new: NewCampaign) -> Result<CreatedCampaign, StoreError> {
        let created = CreatedCampaign {
            id: new.id.clone(),
            runs: new.runs.iter().map(|run| run.id.clone()).collect(),
            existed: false,
        };
        self.world().create(new);
        Ok(created)
    }

    async fn list_campaigns(&self, _page: PageRequest) -> Result<Vec<CampaignRecord>, StoreError> {
        unkept("list_campaigns")
    }

    async fn load_campaign(&self, _id: &CampaignId) -> Result<CampaignRecord, StoreError> {
        unkept("load_campaign")
    }

    async fn list_runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        page: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let _ = page;
        let world = self.world();
        let fits = |run: &&Run| {
            campaign.is_none_or(|campaign| run.record.campaign == *campaign)
                && status.is_none_or(|status| run.record.status == status)
        };
        Ok(world.runs.values().filter(fits).map(|run| RunRecord { state: None, ..run.record.clone() }).collect())
    }

    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError> {
        let mut world = self.world();
        world.reads += 1;
        Ok(world.run(id)?.record.clone())
    }

    async fn run_status(&self, id: &RunId) -> Result<RunStatus, StoreError> {
        Ok(self.world().run(id)?.record.status)
    }

    async fn runs_to_drive(&self, limit: u32) -> Result<Vec<RunId>, StoreError> {
        let world = self.world();
        let waiting = world.runs.values().filter(|run| run.is_to_be_driven()).map(|run| run.record.id.clone());
        Ok(waiting.take(rows(limit)).collect())
    }

    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        let mut world = self.world();
        world.reads += 1;
        let log = world.run(run)?.log.iter().filter(|event| event.seq > after);
        Ok(log.take(rows(limit)).cloned().collect())
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError> {
        let mut world = self.world();
        world.commits += 1;
        world.apply(changes)
    }

    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError> {
        self.world().control(run, transition, by, at)
    }

    async fn signal_run(
        &self,
        run: &RunId,
        signal: Signal,
        by: Option<&str>,
        idempotency: Option<(String, String)>,
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        let _ = idempotency;
        let by = by.map(str::to_owned);
        self.world().run(run)?.append(at, Event::SignalReceived { signal, by });
        Ok(())
    }

    async fn set_priority(&self, _run: &RunId, _priority: i32, _at: TimestampMs) -> Result<(), StoreError> {
        unkept("set_priority")
    }

    async fn retry_run(
        &self,
        run: &RunId,
        key: Option<&str>,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<Vec<String>, StoreError> {
        self.world().retry(run, key, by, at)
    }

    async fn load_budget(&self, _campaign: &CampaignId) -> Result<Vec<BudgetLine>, StoreError> {
        unkept("load_budget")
    }

    async fn set_budget(&self, _campaign: &CampaignId, _caps: BudgetCaps, _at: TimestampMs) -> Result<(), StoreError> {
        unkept("set_budget")
    }

    async fn set_schedule(
        &self,
        _campaign: &CampaignId,
        _schedule: Option<Schedule>,
        _at: TimestampMs,
    ) -> Result<(), StoreError> {
        unkept("set_schedule")
    }

    async fn set_weight(&self, _campaign: &CampaignId, _weight: u32, _at: TimestampMs) -> Result<(), StoreError> {
        unkept("set_weight")
    }

    async fn reserve(
        &self,
        _step: &StepId,
        _epoch: u64,
        _amounts: &[Amount],
        _at: TimestampMs,
    ) -> Result<Reservation, StoreError> {
        unkept("reserve")
    }

    async fn settle(
        &self,
        _step: &StepId,
        _epoch: u64,
        _released: &[Amount],
        _used: &[Amount],
        _at: TimestampMs,
    ) -> Result<(), StoreError> {
        unkept("settle")
    }

    async fn export_rows(&self, _id: &CampaignId, _sink: Arc<dyn RowSink>) -> Result<(), StoreError> {
        unkept("export_rows")
    }

    async fn import_campaign(
        &self,
        _archive: CampaignArchive,
        _at: TimestampMs,
    ) -> Result<CreatedCampaign, StoreError> {
        unkept("import_campaign")
    }

    async fn campaigns_to_prune(&self, _before: TimestampMs, _limit: u32) -> Result<Vec<CampaignId>, StoreError> {
        unkept("campaigns_to_prune")
    }

    async fn prune_campaign(&self, _id: &CampaignId, _limit: u32) -> Result<Pruned, StoreError> {
        unkept("prune_campaign")
    }

    async fn prune_artifacts(&self, _before: TimestampMs, _limit: u32) -> Result<Pruned, StoreError> {
        unkept("prune_artifacts")
    }

    async fn collect_objects(&self, _before: TimestampMs, _limit: u32) -> Result<u64, StoreError> {
        unkept("collect_objects")
    }

    async fn move_artifacts(&self, _: Option<ArtifactHash>, _: TimestampMs) -> Result<MovedArtifacts, StoreError> {
        unkept("move_artifacts")
    }

    async fn register_server(&self, server: ServerRecord, sole: bool) -> Result<(), StoreError> {
        let mut world = self.world();
        if sole {
            world.servers.values_mut().for_each(|other| other.expires_at = server.started_at);
        }
        world.servers.insert(server.id.clone(), server);
        Ok(())
    }

    async fn pulse(&self, _server: &ServerId, _at: TimestampMs, _expires_at: TimestampMs) -> Result<Pulse, StoreError> {
        unkept("pulse")
    }

    async fn retire_server(&self, _server: &ServerId, _at: TimestampMs) -> Result<(), StoreError> {
        unkept("retire_server")
    }

    async fn reap_servers(&self, at: TimestampMs) -> Result<u64, StoreError> {
        Ok(self.world().reap(at))
    }

    async fn list_servers(&self) -> Result<Vec<ServerRecord>, StoreError> {
        unkept("list_servers")
    }

    async fn acquire_runs(
        &self,
        server: &ServerId,
        limit: u32,
        at: TimestampMs,
    ) -> Result<Vec<(RunId, OwnerFence)>, StoreError> {
        let mut world = self.world();
        let waiting: Vec<RunId> =
            world.runs.values().filter(|run| run.is_to_be_driven()).map(|run| run.record.id.clone()).collect();
        let mut mine = Vec::new();
        for run in waiting {
            if let Ownership::Mine(fence) = world.acquire(server, &run, at)? {
                mine.push((run, fence));
            }
            if mine.len() >= rows(limit) {
                break;
            }
        }
        Ok(mine)
    }

    async fn acquire_run(&self, server: &ServerId, run: &RunId, at: TimestampMs) -> Result<Ownership, StoreError> {
        self.world().acquire(server, run, at)
    }

    async fn count_newer_runs(&self, _state_format: u32) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        futures::stream::empty().boxed()
    }

    async fn create(&self, _creation: Creation, _once: Option<Once>) -> Result<Option<String>, StoreError> {
        unkept("create")
    }

    async fn list_tokens(&self) -> Result<Vec<TokenView>, StoreError> {
        unkept("list_tokens")
    }

    async fn revoke_token(&self, _id: &TokenId, _at: TimestampMs) -> Result<(), StoreError> {
        unkept("revoke_token")
    }

    async fn find_token(&self, _secret_hash: &str) -> Result<Option<TokenView>, StoreError> {
        unkept("find_token")
    }

    async fn touch_token(&self, _id: &TokenId, _at: TimestampMs) -> Result<(), StoreError> {
        unkept("touch_token")
    }

    async fn gauges(&self) -> Result<StoreGauges, StoreError> {
        unkept("gauges")
    }

    async fn find_ids(&self, _text: &str, _limit: u32) -> Result<(Vec<CampaignId>, Vec<RunId>), StoreError> {
        unkept("find_ids")
    }

    async fn list_steps(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        Ok(self.world().run(run)?.steps.iter().map(|step| step.record.clone()).collect())
    }

    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        let mut world = self.world();
        world.reads += 1;
        let head = |step: &Step| StepRecord { input: Value::Null, output: None, ..step.record.clone() };
        Ok(world.run(run)?.steps.iter().map(head).collect())
    }

    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError> {
        let mut world = self.world();
        let (run, place) = world.step(id)?;
        Ok(run.steps[place].record.clone())
    }

    async fn ready_routes(&self, _: u32) -> Result<Vec<String>, StoreError> {
        unkept("ready_routes")
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError> {
        let _ = worker;
        let mut world = self.world();
        let mut outcome = HeartbeatOutcome::default();
        for (id, epoch) in leases {
            let (run, place) = world.step(id)?;
            let step = &mut run.steps[place];
            let holds = step.record.epoch == *epoch && step.lease_expires_at.is_some_and(|until| until > at);
            if holds {
                step.lease_expires_at = Some(expires_at);
            } else {
                outcome.lost.push(id.clone());
            }
            if holds && run.record.status == RunStatus::Cancelling {
                outcome.cancelled.push(id.clone());
            }
        }
        Ok(outcome)
    }

    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError> {
        let world = self.world();
        let steps = world.runs.values().flat_map(|run| &run.steps);
        let expired = steps.filter(|step| step.lease_expires_at.is_some_and(|expires_at| expires_at <= at));
        let lease = |step: &Step| ExpiredLease { epoch: step.record.epoch, step: step.record.clone() };
        Ok(expired.take(rows(limit)).map(lease).collect())
    }

    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError> {
        self.world().end_try(step, epoch, end, at, true)
    }

    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError> {
        Ok(self.world().fire(at, rows(limit)))
    }

    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError> {
        self.world().workers.insert(worker.id.clone(), worker);
        Ok(())
    }

    async fn list_workers(&self, _limit: u32) -> Result<Vec<WorkerRecord>, StoreError> {
        unkept("list_workers")
    }

    async fn load_worker(&self, _id: &WorkerId) -> Result<WorkerRecord, StoreError> {
        unkept("load_worker")
    }

    async fn workers_seen(&self, _workers: &[WorkerId], _at: TimestampMs) -> Result<(), StoreError> {
        unkept("workers_seen")
    }

    async fn drain_worker(&self, _id: &WorkerId, _draining: bool) -> Result<(), StoreError> {
        unkept("drain_worker")
    }

    async fn set_quarantine(
        &self,
        _worker: &WorkerId,
        _offers: serde_json::Value,
        _quarantined: Vec<QuarantineRecord>,
        _well: Vec<String>,
    ) -> Result<(), StoreError> {
        unkept("set_quarantine")
    }

    async fn list_quarantine(&self) -> Result<Vec<QuarantineRecord>, StoreError> {
        unkept("list_quarantine")
    }

    async fn release_device(
        &self,
        _device: &str,
        _by: Option<&str>,
        _at: TimestampMs,
    ) -> Result<QuarantineRecord, StoreError> {
        unkept("release_device")
    }

    async fn forget_workers(&self, _before: TimestampMs) -> Result<u64, StoreError> {
        unkept("forget_workers")
    }

    async fn put_artifact(&self, _hash: &ArtifactHash, _bytes: &[u8], _at: TimestampMs) -> Result<(), StoreError> {
        unkept("put_artifact")
    }

    async fn get_artifact(&self, _hash: &ArtifactHash) -> Result<Vec<u8>, StoreError> {
        unkept("get_artifact")
    }

    async fn artifact_progress(&self, _hash: &ArtifactHash) -> Result<Option<ArtifactProgress>, StoreError> {
        unkept("artifact_progress")
    }

    async fn renew_artifact(&self, _: &ArtifactHash, _: TimestampMs) -> Result<Option<ArtifactProgress>, StoreError> {
        unkept("renew_artifact")
    }

    async fn append_artifact(
        &self,
        _hash: &ArtifactHash,
        _size_bytes: u64,
        _offset: u64,
        _bytes: &[u8],
        _at: TimestampMs,
    ) -> Result<ArtifactProgress, StoreError> {
        unkept("append_artifact")
    }

    async fn read_artifact(&self, _hash: &ArtifactHash, _offset: u64, _length: u64) -> Result<Vec<u8>, StoreError> {
        unkept("read_artifact")
    }

    async fn find_model_call(
        &self,
        _run: &RunId,
        _step_key: &str,
        _turn: u32,
        _request_hash: &str,
    ) -> Result<Option<ModelCallRecord>, StoreError> {
        unkept("find_model_call")
    }

    async fn record_model_call(
        &self,
        _call: ModelCallRecord,
        _artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        unkept("record_model_call")
    }

    fn kind(&self) -> &'static str {
        "memory"
    }
}
