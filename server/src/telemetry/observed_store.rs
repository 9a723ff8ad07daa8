//! An observed store: it forwards every call and records metrics and spans.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use futures::stream::BoxStream;
use nightshift_engine::event::EventRecord;
use nightshift_engine::store::{
    ArtifactProgress, CampaignArchive, CampaignRecord, Change, Changed, CreatedCampaign, CreatedRun, Creation,
    ExpiredLease, HandoverStore, HeartbeatOutcome, KnowledgeStore, ModelCallRecord, MovedArtifacts, NewCampaign,
    Notice, Once, OwnerFence, Ownership, PageRequest, Pruned, Pulse, QuarantineRecord, Reported, RequestStore,
    Reservation, RowSink, RunRecord, ServerRecord, SessionStore, StepRecord, Store, StoreError, StoreGauges, TeamStore,
    TryEnd, WatchStore, WebhookStore, WorkerRecord,
};
use nightshift_protocol::access::TokenView;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine};
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, TokenId, WorkerId};
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::trace::SpanSink;

use super::metrics::Metrics;
use super::observed_change::ObservedChange;
use super::running_tries::RunningTries;

/// A store that records metrics and spans.
pub(crate) struct ObservedStore {
    pub(super) inner: Arc<dyn Store>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) spans: Option<Arc<dyn SpanSink>>,
    pub(super) held: RunningTries,
}

impl ObservedStore {
    /// Wraps a store. Without `spans`, no spans are created.
    pub(crate) fn new(inner: Arc<dyn Store>, metrics: Arc<Metrics>, spans: Option<Arc<dyn SpanSink>>) -> Self {
        Self { inner, metrics, spans, held: RunningTries::default() }
    }
}

/// Claims, decisions and reports use the default implementations of the port, which call `commit`.
#[async_trait]
impl Store for ObservedStore {
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError> {
        let asked: Vec<ObservedChange> = changes.iter().map(ObservedChange::of).collect();
        let began = Instant::now();
        let result = self.inner.commit(changes).await;
        self.metrics.committed(began.elapsed(), result.is_ok());
        if let Ok(changed) = &result {
            for (asked, changed) in asked.into_iter().zip(changed) {
                self.note(asked, changed, began.elapsed()).await;
            }
        }
        result
    }

    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError> {
        let step = self.inner.load_step(id).await?;
        // Another server leased it, but its report arrives here.
        if step.status == StepStatus::Leased {
            self.held.keep(&step);
        }
        Ok(step)
    }

    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError> {
        let expired = self.inner.expired_leases(at, limit).await?;
        for lease in &expired {
            self.held.keep(&lease.step);
        }
        Ok(expired)
    }

    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError> {
        let reported = self.inner.expire_lease(step, epoch, end, at).await?;
        if reported == Reported::Committed {
            self.lease_ran_out(step, epoch, at);
        }
        Ok(reported)
    }

    async fn record_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let noted = call.clone();
        self.inner.record_model_call(call, artifacts).await?;
        self.model_called(&noted);
        Ok(())
    }

    fn take_created(&self, run: &RunId) -> Option<CreatedRun> {
        self.inner.take_created(run)
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.inner.notices()
    }

    fn knowledge(&self) -> Option<&dyn KnowledgeStore> {
        self.inner.knowledge()
    }

    fn sessions(&self) -> Option<&dyn SessionStore> {
        self.inner.sessions()
    }

    fn team(&self) -> Option<&dyn TeamStore> {
        self.inner.team()
    }

    fn webhooks(&self) -> Option<&dyn WebhookStore> {
        self.inner.webhooks()
    }

    fn requests(&self) -> Option<&dyn RequestStore> {
        self.inner.requests()
    }

    fn handovers(&self) -> Option<&dyn HandoverStore> {
        self.inner.handovers()
    }

    fn watch(&self) -> Option<&dyn WatchStore> {
        self.inner.watch()
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    async fn create_campaign(&self, new: NewCampaign) -> Result<CreatedCampaign, StoreError> {
        self.inner.create_campaign(new).await
    }

    async fn list_campaigns(&self, page: PageRequest) -> Result<Vec<CampaignRecord>, StoreError> {
        self.inner.list_campaigns(page).await
    }

    async fn load_campaign(&self, id: &CampaignId) -> Result<CampaignRecord, StoreError> {
        self.inner.load_campaign(id).await
    }

    async fn list_runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        page: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.list_runs(campaign, status, page).await
    }

    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError> {
        self.inner.load_run(id).await
    }

    async fn runs_to_drive(&self, limit: u32) -> Result<Vec<RunId>, StoreError> {
        self.inner.runs_to_drive(limit).await
    }

    async fn run_status(&self, id: &RunId) -> Result<RunStatus, StoreError> {
        self.inner.run_status(id).await
    }

    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        self.inner.events_after(run, after, limit).await
    }

    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError> {
        self.inner.control_run(run, transition, by, at).await
    }

    async fn signal_run(
        &self,
        run: &RunId,
        signal: Signal,
        by: Option<&str>,
        idempotency: Option<(String, String)>,
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        self.inner.signal_run(run, signal, by, idempotency, at).await
    }

    async fn set_priority(&self, run: &RunId, priority: i32, at: TimestampMs) -> Result<(), StoreError> {
        self.inner.set_priority(run, priority, at).await
    }

    async fn retry_run(
        &self,
        run: &RunId,
        key: Option<&str>,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<Vec<String>, StoreError> {
        self.inner.retry_run(run, key, by, at).await
    }

    async fn load_budget(&self, campaign: &CampaignId) -> Result<Vec<BudgetLine>, StoreError> {
        self.inner.load_budget(campaign).await
    }

    async fn set_budget(&self, campaign: &CampaignId, caps: BudgetCaps, at: TimestampMs) -> Result<(), StoreError> {
        self.inner.set_budget(campaign, caps, at).await
    }

    async fn set_schedule(
        &self,
        campaign: &CampaignId,
        schedule: Option<Schedule>,
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        self.inner.set_schedule(campaign, schedule, at).await
    }

    async fn set_weight(&self, campaign: &CampaignId, weight: u32, at: TimestampMs) -> Result<(), StoreError> {
        self.inner.set_weight(campaign, weight, at).await
    }

    async fn reserve(
        &self,
        step: &StepId,
        epoch: u64,
        amounts: &[Amount],
        at: TimestampMs,
    ) -> Result<Reservation, StoreError> {
        self.inner.reserve(step, epoch, amounts, at).await
    }

    async fn settle(
        &self,
        step: &StepId,
        epoch: u64,
        released: &[Amount],
        used: &[Amount],
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        self.inner.settle(step, epoch, released, used, at).await
    }

    async fn export_rows(&self, id: &CampaignId, sink: Arc<dyn RowSink>) -> Result<(), StoreError> {
        self.inner.export_rows(id, sink).await
    }

    async fn import_campaign(&self, archive: CampaignArchive, at: TimestampMs) -> Result<CreatedCampaign, StoreError> {
        self.inner.import_campaign(archive, at).await
    }

    async fn campaigns_to_prune(&self, before: TimestampMs, limit: u32) -> Result<Vec<CampaignId>, StoreError> {
        self.inner.campaigns_to_prune(before, limit).await
    }

    async fn prune_campaign(&self, id: &CampaignId, limit: u32) -> Result<Pruned, StoreError> {
        self.inner.prune_campaign(id, limit).await
    }

    async fn prune_artifacts(&self, before: TimestampMs, limit: u32) -> Result<Pruned, StoreError> {
        self.inner.prune_artifacts(before, limit).await
    }

    async fn collect_objects(&self, before: TimestampMs, limit: u32) -> Result<u64, StoreError> {
        self.inner.collect_objects(before, limit).await
    }

    async fn move_artifacts(&self, after: Option<ArtifactHash>, at: TimestampMs) -> Result<MovedArtifacts, StoreError> {
        self.inner.move_artifacts(after, at).await
    }

    async fn register_server(&self, server: ServerRecord, sole: bool) -> Result<(), StoreError> {
        self.inner.register_server(server, sole).await
    }

    async fn pulse(&self, server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Result<Pulse, StoreError> {
        self.inner.pulse(server, at, expires_at).await
    }

    async fn retire_server(&self, server: &ServerId, at: TimestampMs) -> Result<(), StoreError> {
        self.inner.retire_server(server, at).await
    }

    async fn reap_servers(&self, at: TimestampMs) -> Result<u64, StoreError> {
        self.inner.reap_servers(at).await
    }

    async fn count_newer_runs(&self, state_format: u32) -> Result<u64, StoreError> {
        self.inner.count_newer_runs(state_format).await
    }

    async fn database_now(&self) -> Result<Option<TimestampMs>, StoreError> {
        self.inner.database_now().await
    }

    async fn list_servers(&self) -> Result<Vec<ServerRecord>, StoreError> {
        self.inner.list_servers().await
    }

    async fn acquire_runs(
        &self,
        server: &ServerId,
        limit: u32,
        at: TimestampMs,
    ) -> Result<Vec<(RunId, OwnerFence)>, StoreError> {
        self.inner.acquire_runs(server, limit, at).await
    }

    async fn acquire_run(&self, server: &ServerId, run: &RunId, at: TimestampMs) -> Result<Ownership, StoreError> {
        self.inner.acquire_run(server, run, at).await
    }

    async fn create(&self, creation: Creation, once: Option<Once>) -> Result<Option<String>, StoreError> {
        self.inner.create(creation, once).await
    }

    async fn list_tokens(&self) -> Result<Vec<TokenView>, StoreError> {
        self.inner.list_tokens().await
    }

    async fn revoke_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError> {
        self.inner.revoke_token(id, at).await
    }

    async fn find_token(&self, secret_hash: &str) -> Result<Option<TokenView>, StoreError> {
        self.inner.find_token(secret_hash).await
    }

    async fn touch_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError> {
        self.inner.touch_token(id, at).await
    }

    async fn gauges(&self) -> Result<StoreGauges, StoreError> {
        self.inner.gauges().await
    }

    async fn find_ids(&self, text: &str, limit: u32) -> Result<(Vec<CampaignId>, Vec<RunId>), StoreError> {
        self.inner.find_ids(text, limit).await
    }

    async fn list_steps(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        self.inner.list_steps(run).await
    }

    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        self.inner.list_step_heads(run).await
    }

    async fn ready_routes(&self, limit: u32) -> Result<Vec<String>, StoreError> {
        self.inner.ready_routes(limit).await
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError> {
        self.inner.heartbeat(worker, leases, at, expires_at).await
    }

    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError> {
        self.inner.fire_timers(at, limit).await
    }

    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError> {
        self.inner.register_worker(worker).await
    }

    async fn list_workers(&self, limit: u32) -> Result<Vec<WorkerRecord>, StoreError> {
        self.inner.list_workers(limit).await
    }

    async fn load_worker(&self, id: &WorkerId) -> Result<WorkerRecord, StoreError> {
        self.inner.load_worker(id).await
    }

    async fn workers_seen(&self, workers: &[WorkerId], at: TimestampMs) -> Result<(), StoreError> {
        self.inner.workers_seen(workers, at).await
    }

    async fn drain_worker(&self, id: &WorkerId, draining: bool) -> Result<(), StoreError> {
        self.inner.drain_worker(id, draining).await
    }

    async fn set_quarantine(
        &self,
        worker: &WorkerId,
        offers: serde_json::Value,
        quarantined: Vec<QuarantineRecord>,
        well: Vec<String>,
    ) -> Result<(), StoreError> {
        self.inner.set_quarantine(worker, offers, quarantined, well).await
    }

    async fn list_quarantine(&self) -> Result<Vec<QuarantineRecord>, StoreError> {
        self.inner.list_quarantine().await
    }

    async fn release_device(
        &self,
        device: &str,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<QuarantineRecord, StoreError> {
        self.inner.release_device(device, by, at).await
    }

    async fn forget_workers(&self, before: TimestampMs) -> Result<u64, StoreError> {
        self.inner.forget_workers(before).await
    }

    async fn put_artifact(&self, hash: &ArtifactHash, bytes: &[u8], at: TimestampMs) -> Result<(), StoreError> {
        self.inner.put_artifact(hash, bytes, at).await
    }

    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StoreError> {
        self.inner.get_artifact(hash).await
    }

    async fn artifact_progress(&self, hash: &ArtifactHash) -> Result<Option<ArtifactProgress>, StoreError> {
        self.inner.artifact_progress(hash).await
    }

    async fn renew_artifact(
        &self,
        hash: &ArtifactHash,
        at: TimestampMs,
    ) -> Result<Option<ArtifactProgress>, StoreError> {
        self.inner.renew_artifact(hash, at).await
    }

    async fn append_artifact(
        &self,
        hash: &ArtifactHash,
        size_bytes: u64,
        offset: u64,
        bytes: &[u8],
        at: TimestampMs,
    ) -> Result<ArtifactProgress, StoreError> {
        self.inner.append_artifact(hash, size_bytes, offset, bytes, at).await
    }

    async fn read_artifact(&self, hash: &ArtifactHash, offset: u64, length: u64) -> Result<Vec<u8>, StoreError> {
        self.inner.read_artifact(hash, offset, length).await
    }

    async fn find_model_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallRecord>, StoreError> {
        self.inner.find_model_call(run, step_key, turn, request_hash).await
    }
}
