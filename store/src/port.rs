//! The port, one line per method.

use std::sync::Arc;

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
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;

use crate::direct::{
    archive, artifact, budget, campaign, control, creation, event, gauge, ids, lease, model_call, ownership, prune,
    quarantine, run, schedule, server, signal, step, token, worker,
};
use crate::store::{Side, SqlStore};

#[async_trait]
impl Store for SqlStore {
    async fn create_campaign(&self, new: NewCampaign) -> Result<CreatedCampaign, StoreError> {
        transaction!(self, |tx, new| campaign::create(tx, new))
    }

    async fn list_campaigns(&self, page: PageRequest) -> Result<Vec<CampaignRecord>, StoreError> {
        read!(self, |connection| campaign::list(connection, &page))
    }

    async fn load_campaign(&self, id: &CampaignId) -> Result<CampaignRecord, StoreError> {
        read!(self, |connection| campaign::load(connection, id))
    }

    async fn list_runs(
        &self,
        campaign: Option<&CampaignId>,
        status: Option<RunStatus>,
        page: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError> {
        read!(self, |connection| run::list(connection, campaign, status, &page))
    }

    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError> {
        match &self.side {
            Side::Sqlite { .. } => read!(self, |connection| run::load(connection, id)),
            Side::Postgres { runs, .. } => runs.load(id).await,
        }
    }

    async fn runs_to_drive(&self, limit: u32) -> Result<Vec<RunId>, StoreError> {
        read!(self, |connection| run::to_drive(connection, limit))
    }

    async fn run_status(&self, id: &RunId) -> Result<RunStatus, StoreError> {
        read!(self, |connection| run::status(connection, id))
    }

    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        read!(self, |connection| event::after(connection, run, after, limit))
    }

    fn take_created(&self, run: &RunId) -> Option<CreatedRun> {
        self.around.memory.created.take(run)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError> {
        self.writer.commit(changes).await
    }

    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError> {
        let (run, by) = (run.clone(), by.map(str::to_owned));
        transaction!(self, |tx, run, transition, by, at| control::control(tx, run, *transition, by.as_deref(), *at))
    }

    async fn signal_run(
        &self,
        run: &RunId,
        signal: Signal,
        by: Option<&str>,
        idempotency: Option<(String, String)>,
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        let (run, by) = (run.clone(), by.map(str::to_owned));
        transaction!(self, |tx, run, signal, by, idempotency, at| signal::signal(
            tx,
            run,
            signal,
            by.as_deref(),
            idempotency.as_ref(),
            *at
        ))
    }

    async fn set_priority(&self, run: &RunId, priority: i32, at: TimestampMs) -> Result<(), StoreError> {
        let run = run.clone();
        transaction!(self, |tx, run, priority, at| control::set_priority(tx, run, *priority, *at))
    }

    async fn retry_run(
        &self,
        run: &RunId,
        key: Option<&str>,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<Vec<String>, StoreError> {
        let (run, key, by) = (run.clone(), key.map(str::to_owned), by.map(str::to_owned));
        transaction!(self, |tx, run, key, by, at| control::retry(tx, run, key.as_deref(), by.as_deref(), *at))
    }

    async fn load_budget(&self, campaign: &CampaignId) -> Result<Vec<BudgetLine>, StoreError> {
        read!(self, |connection| budget::load(connection, campaign))
    }

    async fn set_budget(&self, campaign: &CampaignId, caps: BudgetCaps, at: TimestampMs) -> Result<(), StoreError> {
        let campaign = campaign.clone();
        transaction!(self, |tx, campaign, caps, at| budget::set_caps(tx, campaign, caps, *at))
    }

    async fn set_schedule(
        &self,
        campaign: &CampaignId,
        schedule: Option<Schedule>,
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        let campaign = campaign.clone();
        transaction!(self, |tx, campaign, schedule, at| schedule::set_schedule(tx, campaign, schedule.as_ref(), *at))
    }

    async fn set_weight(&self, campaign: &CampaignId, weight: u32, _at: TimestampMs) -> Result<(), StoreError> {
        let campaign = campaign.clone();
        transaction!(self, |tx, campaign, weight| schedule::set_weight(tx, campaign, *weight))
    }

    async fn reserve(
        &self,
        step: &StepId,
        epoch: u64,
        amounts: &[Amount],
        at: TimestampMs,
    ) -> Result<Reservation, StoreError> {
        let (step, amounts) = (step.clone(), amounts.to_vec());
        transaction!(self, |tx, step, epoch, amounts, at| budget::reserve(tx, step, *epoch, amounts, *at))
    }

    async fn settle(
        &self,
        step: &StepId,
        epoch: u64,
        released: &[Amount],
        used: &[Amount],
        at: TimestampMs,
    ) -> Result<(), StoreError> {
        let (step, released, used) = (step.clone(), released.to_vec(), used.to_vec());
        transaction!(self, |tx, step, epoch, released, used, at| budget::settle(tx, step, *epoch, released, used, *at))
    }

    async fn export_rows(&self, id: &CampaignId, sink: Arc<dyn RowSink>) -> Result<(), StoreError> {
        let id = id.clone();
        self.read_one_moment(move |connection| Box::pin(async move { archive::export(connection, &id, &*sink).await }))
            .await
    }

    async fn import_campaign(&self, archive: CampaignArchive, at: TimestampMs) -> Result<CreatedCampaign, StoreError> {
        transaction!(self, |tx, archive, at| archive::import(tx, archive, *at))
    }

    async fn campaigns_to_prune(&self, before: TimestampMs, limit: u32) -> Result<Vec<CampaignId>, StoreError> {
        read!(self, |connection| prune::finished(connection, before, limit))
    }

    async fn prune_campaign(&self, id: &CampaignId, limit: u32) -> Result<Pruned, StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, limit| prune::campaign(tx, id, *limit))
    }

    async fn prune_artifacts(&self, before: TimestampMs, limit: u32) -> Result<Pruned, StoreError> {
        self.prune_old_artifacts(before, limit).await
    }

    async fn collect_objects(&self, before: TimestampMs, limit: u32) -> Result<u64, StoreError> {
        self.delete_objects(before, limit).await
    }

    async fn move_artifacts(&self, after: Option<ArtifactHash>, at: TimestampMs) -> Result<MovedArtifacts, StoreError> {
        self.move_some_artifacts(after, at).await
    }

    async fn register_server(&self, server: ServerRecord, sole: bool) -> Result<(), StoreError> {
        transaction!(self, |tx, server, sole| server::register(tx, server, *sole))
    }

    async fn pulse(&self, server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Result<Pulse, StoreError> {
        let server = server.clone();
        transaction!(self, |tx, server, at, expires_at| server::pulse(tx, server, *at, *expires_at))
    }

    async fn retire_server(&self, server: &ServerId, at: TimestampMs) -> Result<(), StoreError> {
        let server = server.clone();
        transaction!(self, |tx, server, at| server::retire(tx, server, *at))
    }

    async fn reap_servers(&self, at: TimestampMs) -> Result<u64, StoreError> {
        transaction!(self, |tx, at| server::reap(tx, *at))
    }

    async fn list_servers(&self) -> Result<Vec<ServerRecord>, StoreError> {
        read!(self, |connection| server::list(connection))
    }

    async fn acquire_runs(
        &self,
        server: &ServerId,
        limit: u32,
        at: TimestampMs,
    ) -> Result<Vec<(RunId, OwnerFence)>, StoreError> {
        let server = server.clone();
        transaction!(self, |tx, server, limit, at| ownership::acquire_runs(tx, server, *limit, *at))
    }

    async fn acquire_run(&self, server: &ServerId, run: &RunId, at: TimestampMs) -> Result<Ownership, StoreError> {
        let (server, run) = (server.clone(), run.clone());
        transaction!(self, |tx, server, run, at| ownership::acquire_run(tx, server, run, *at))
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.around.notices.stream()
    }

    async fn create(&self, creation: Creation, once: Option<Once>) -> Result<Option<String>, StoreError> {
        transaction!(self, |tx, creation, once| creation::create(tx, creation, once.as_ref()))
    }

    async fn list_tokens(&self) -> Result<Vec<TokenView>, StoreError> {
        read!(self, |connection| token::list(connection))
    }

    async fn revoke_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, at| token::revoke(tx, id, *at))
    }

    async fn find_token(&self, secret_hash: &str) -> Result<Option<TokenView>, StoreError> {
        read!(self, |connection| token::find(connection, secret_hash))
    }

    async fn touch_token(&self, id: &TokenId, at: TimestampMs) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, at| token::touch(tx, id, *at))
    }

    async fn gauges(&self) -> Result<StoreGauges, StoreError> {
        read!(self, |connection| gauge::gauges(connection))
    }

    async fn find_ids(&self, text: &str, limit: u32) -> Result<(Vec<CampaignId>, Vec<RunId>), StoreError> {
        read!(self, |connection| ids::find(connection, text, limit))
    }

    async fn list_steps(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        read!(self, |connection| step::list(connection, run))
    }

    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        read!(self, |connection| step::list_heads(connection, run))
    }

    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError> {
        read!(self, |connection| step::load(connection, id))
    }

    async fn ready_routes(&self, limit: u32) -> Result<Vec<String>, StoreError> {
        read!(self, |connection| step::ready_routes(connection, limit))
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError> {
        let (worker, leases) = (worker.clone(), leases.to_vec());
        transaction!(self, |tx, worker, leases, at, expires_at| lease::heartbeat(tx, worker, leases, *at, *expires_at))
    }

    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError> {
        read!(self, |connection| lease::expired(connection, at, limit))
    }

    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError> {
        let step = step.clone();
        transaction!(self, |tx, step, epoch, end, at| lease::expire(tx, step, *epoch, end, *at))
    }

    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError> {
        self.fire_due_timers(at, limit).await
    }

    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError> {
        transaction!(self, |tx, worker| worker::register(tx, worker))
    }

    async fn list_workers(&self, limit: u32) -> Result<Vec<WorkerRecord>, StoreError> {
        read!(self, |connection| worker::list(connection, limit))
    }

    async fn load_worker(&self, id: &WorkerId) -> Result<WorkerRecord, StoreError> {
        read!(self, |connection| worker::load(connection, id))
    }

    async fn workers_seen(&self, workers: &[WorkerId], at: TimestampMs) -> Result<(), StoreError> {
        self.note_seen_workers(workers, at).await
    }

    async fn drain_worker(&self, id: &WorkerId, draining: bool) -> Result<(), StoreError> {
        let id = id.clone();
        transaction!(self, |tx, id, draining| worker::drain(tx, id, *draining))
    }

    async fn set_quarantine(
        &self,
        worker: &WorkerId,
        offers: serde_json::Value,
        quarantined: Vec<QuarantineRecord>,
        well: Vec<String>,
    ) -> Result<(), StoreError> {
        let worker = worker.clone();
        transaction!(self, |tx, worker, offers, quarantined, well| quarantine::set(
            tx,
            worker,
            offers,
            quarantined,
            well
        ))
    }

    async fn list_quarantine(&self) -> Result<Vec<QuarantineRecord>, StoreError> {
        read!(self, |connection| quarantine::list(connection))
    }

    async fn release_device(
        &self,
        device: &str,
        by: Option<&str>,
        at: TimestampMs,
    ) -> Result<QuarantineRecord, StoreError> {
        let (device, by) = (device.to_owned(), by.map(str::to_owned));
        transaction!(self, |tx, device, by, at| quarantine::release(tx, device, by.as_deref(), *at))
    }

    async fn forget_workers(&self, before: TimestampMs) -> Result<u64, StoreError> {
        transaction!(self, |tx, before| worker::forget(tx, *before))
    }

    async fn put_artifact(&self, hash: &ArtifactHash, bytes: &[u8], at: TimestampMs) -> Result<(), StoreError> {
        self.store_artifact(hash, bytes, at).await
    }

    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StoreError> {
        self.load_artifact(hash).await
    }

    async fn artifact_progress(&self, hash: &ArtifactHash) -> Result<Option<ArtifactProgress>, StoreError> {
        read!(self, |connection| artifact::progress(connection, hash))
    }

    async fn renew_artifact(
        &self,
        hash: &ArtifactHash,
        at: TimestampMs,
    ) -> Result<Option<ArtifactProgress>, StoreError> {
        self.renew_old_artifact(hash, at).await
    }

    async fn append_artifact(
        &self,
        hash: &ArtifactHash,
        size_bytes: u64,
        offset: u64,
        bytes: &[u8],
        at: TimestampMs,
    ) -> Result<ArtifactProgress, StoreError> {
        self.append_to_artifact(hash, (size_bytes, offset), bytes, at).await
    }

    async fn read_artifact(&self, hash: &ArtifactHash, offset: u64, length: u64) -> Result<Vec<u8>, StoreError> {
        self.read_part_of_artifact(hash, offset, length).await
    }

    async fn find_model_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallRecord>, StoreError> {
        read!(self, |connection| model_call::find(connection, run, step_key, turn, request_hash))
    }

    async fn record_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        self.keep_model_call(call, artifacts).await
    }

    fn knowledge(&self) -> Option<&dyn KnowledgeStore> {
        Some(self)
    }

    fn sessions(&self) -> Option<&dyn SessionStore> {
        Some(self)
    }

    fn team(&self) -> Option<&dyn TeamStore> {
        Some(self)
    }

    fn webhooks(&self) -> Option<&dyn WebhookStore> {
        Some(self)
    }

    fn requests(&self) -> Option<&dyn RequestStore> {
        Some(self)
    }

    fn handovers(&self) -> Option<&dyn HandoverStore> {
        Some(self)
    }

    fn watch(&self) -> Option<&dyn WatchStore> {
        Some(self)
    }

    async fn count_newer_runs(&self, state_format: u32) -> Result<u64, StoreError> {
        read!(self, |connection| ownership::count_newer(connection, state_format))
    }

    async fn database_now(&self) -> Result<Option<TimestampMs>, StoreError> {
        match self.side {
            Side::Sqlite { .. } => Ok(None),
            Side::Postgres { .. } => read!(self, |connection| server::database_now(connection)).map(Some),
        }
    }

    fn kind(&self) -> &'static str {
        match self.side {
            Side::Sqlite { .. } => "sqlite",
            Side::Postgres { .. } => "postgres",
        }
    }
}
