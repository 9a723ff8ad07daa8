//! A store that fails on purpose, for tests: every single write of a campaign can be made to fail once, before it was
//! done or after.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use nightshift_engine::event::EventRecord;
use nightshift_engine::store::{
    Advance, Advanced, CampaignRecord, ClaimRequest, CreatedCampaign, ExpiredLease, HeartbeatOutcome, ModelCallRecord,
    NewCampaign, PageRequest, Reported, RunRecord, StepRecord, Store, StoreError, TryEnd, WorkerRecord,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{CampaignId, RunId, StepId, WorkerId};
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::time::TimestampMs;

/// Where a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPoint {
    /// It never reaches the store: nothing is changed.
    Before,
    /// It is committed, and the answer is lost.
    After,
}

/// Wraps a store, counts the calls of methods that write, and fails one of them once with [`StoreError::Other`].
///
/// Methods that only read are handed through and not counted. A call is counted when it is made, so the numbers of
/// concurrent calls depend on their order; a campaign that is driven by one task has the same numbers every time.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    /// The number of the call to fail, from 1; 0 for none.
    fail_at: AtomicU64,
    point: FaultPoint,
    writes: AtomicU64,
    full: AtomicBool,
    fired: std::sync::Mutex<Option<&'static str>>,
}

impl FaultyStore {
    /// Only counts.
    #[must_use]
    pub fn counting(inner: Arc<dyn Store>) -> Self {
        Self::failing(inner, 0, FaultPoint::Before)
    }

    /// Fails write number `number` (from 1), once.
    #[must_use]
    pub fn failing(inner: Arc<dyn Store>, number: u64, point: FaultPoint) -> Self {
        Self {
            inner,
            fail_at: AtomicU64::new(number),
            point,
            writes: AtomicU64::new(0),
            full: AtomicBool::new(false),
            fired: std::sync::Mutex::new(None),
        }
    }

    /// From now on every write fails with [`StoreError::Full`], as on a full disk; or none any more.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    /// Calls of methods that write, until now.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// The name of the method that failed on purpose, when one did.
    #[must_use]
    pub fn fired(&self) -> Option<&'static str> {
        *self.fired.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn write<T: Send>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        if self.full.load(Ordering::SeqCst) {
            return Err(StoreError::Full(format!("no space is left, on purpose (write {number})")));
        }
        if number != self.fail_at.load(Ordering::SeqCst) {
            return call.await;
        }
        *self.fired.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(method);
        match self.point {
            FaultPoint::Before => Err(StoreError::Other(format!("on purpose, before `{method}` (write {number})"))),
            FaultPoint::After => {
                // An error of the store itself is the more interesting one.
                call.await?;
                Err(StoreError::Other(format!("on purpose, after `{method}` (write {number})")))
            }
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn create_campaign(&self, new: NewCampaign) -> Result<CreatedCampaign, StoreError> {
        self.write("create_campaign", self.inner.create_campaign(new)).await
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

    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        self.inner.events_after(run, after, limit).await
    }

    async fn advance(&self, advance: Advance) -> Result<Advanced, StoreError> {
        self.write("advance", self.inner.advance(advance)).await
    }

    async fn control_run(
        &self,
        run: &RunId,
        transition: RunTransition,
        at: TimestampMs,
    ) -> Result<RunStatus, StoreError> {
        self.write("control_run", self.inner.control_run(run, transition, at)).await
    }

    async fn retry_run(&self, run: &RunId, key: Option<&str>, at: TimestampMs) -> Result<Vec<String>, StoreError> {
        self.write("retry_run", self.inner.retry_run(run, key, at)).await
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

    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError> {
        self.inner.load_step(id).await
    }

    async fn claim(&self, claim: ClaimRequest) -> Result<Vec<StepRecord>, StoreError> {
        self.write("claim", self.inner.claim(claim)).await
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError> {
        self.write("heartbeat", self.inner.heartbeat(worker, leases, at, expires_at)).await
    }

    async fn report(&self, step: &StepId, epoch: u64, end: TryEnd, at: TimestampMs) -> Result<Reported, StoreError> {
        self.write("report", self.inner.report(step, epoch, end, at)).await
    }

    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError> {
        self.inner.expired_leases(at, limit).await
    }

    async fn expire_lease(
        &self,
        step: &StepId,
        epoch: u64,
        end: TryEnd,
        at: TimestampMs,
    ) -> Result<Reported, StoreError> {
        self.write("expire_lease", self.inner.expire_lease(step, epoch, end, at)).await
    }

    async fn free_embedded_leases(&self, at: TimestampMs) -> Result<u64, StoreError> {
        self.write("free_embedded_leases", self.inner.free_embedded_leases(at)).await
    }

    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError> {
        self.write("fire_timers", self.inner.fire_timers(at, limit)).await
    }

    async fn register_worker(&self, worker: WorkerRecord) -> Result<(), StoreError> {
        self.write("register_worker", self.inner.register_worker(worker)).await
    }

    async fn list_workers(&self, limit: u32) -> Result<Vec<WorkerRecord>, StoreError> {
        self.inner.list_workers(limit).await
    }

    async fn put_artifact(&self, hash: &ArtifactHash, bytes: &[u8]) -> Result<(), StoreError> {
        self.write("put_artifact", self.inner.put_artifact(hash, bytes)).await
    }

    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StoreError> {
        self.inner.get_artifact(hash).await
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

    async fn record_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        self.write("record_model_call", self.inner.record_model_call(call, artifacts)).await
    }

    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
}
