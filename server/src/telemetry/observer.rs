//! Observes the ports whose calls are tries and model calls, and records metrics and spans.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use nightshift_engine::store::{
    Change, ChangeStore, Changed, ExpiredLease, HeartbeatOutcome, LeaseStore, ModelCallRecord, ModelCallStore,
    Reported, StepRecord, Store, StoreError, TryEnd,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{RunId, StepId, WorkerId};
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::time::TimestampMs;
use nightshift_protocol::trace::SpanSink;

use super::metrics::Metrics;
use super::observed_change::ObservedChange;
use super::running_tries::RunningTries;

/// Records metrics and spans of the calls to a store.
pub(crate) struct Observer {
    pub(super) inner: Store,
    pub(super) metrics: Arc<Metrics>,
    pub(super) spans: Option<Arc<dyn SpanSink>>,
    pub(super) held: RunningTries,
}

impl Observer {
    /// Returns the ports of a store, some of them observed. Without `spans`, no spans are created.
    pub(crate) fn observe(store: Store, metrics: Arc<Metrics>, spans: Option<Arc<dyn SpanSink>>) -> Store {
        let observed = Arc::new(Self { inner: store.clone(), metrics, spans, held: RunningTries::default() });
        Store { changes: observed.clone(), leases: observed.clone(), model_calls: observed, ..store }
    }
}

/// Claims, decisions and reports use the default implementations of the port, which call `commit`.
#[async_trait]
impl ChangeStore for Observer {
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError> {
        let asked: Vec<ObservedChange> = changes.iter().map(ObservedChange::of).collect();
        let began = Instant::now();
        let result = self.inner.changes.commit(changes).await;
        self.metrics.committed(began.elapsed(), result.is_ok());
        if let Ok(changed) = &result {
            for (asked, changed) in asked.into_iter().zip(changed) {
                self.note(asked, changed, began.elapsed()).await;
            }
        }
        result
    }
}

#[async_trait]
impl LeaseStore for Observer {
    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError> {
        let step = self.inner.leases.load_step(id).await?;
        // Another server leased it, but its report arrives here.
        if step.status == StepStatus::Leased {
            self.held.keep(&step);
        }
        Ok(step)
    }

    async fn heartbeat(
        &self,
        worker: &WorkerId,
        leases: &[(StepId, u64)],
        at: TimestampMs,
        expires_at: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError> {
        self.inner.leases.heartbeat(worker, leases, at, expires_at).await
    }

    async fn expired_leases(&self, at: TimestampMs, limit: u32) -> Result<Vec<ExpiredLease>, StoreError> {
        let expired = self.inner.leases.expired_leases(at, limit).await?;
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
        let reported = self.inner.leases.expire_lease(step, epoch, end, at).await?;
        if reported == Reported::Committed {
            self.lease_ran_out(step, epoch, at);
        }
        Ok(reported)
    }
}

#[async_trait]
impl ModelCallStore for Observer {
    async fn find_model_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallRecord>, StoreError> {
        self.inner.model_calls.find_model_call(run, step_key, turn, request_hash).await
    }

    async fn record_model_call(
        &self,
        call: ModelCallRecord,
        artifacts: Vec<(ArtifactHash, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let noted = call.clone();
        self.inner.model_calls.record_model_call(call, artifacts).await?;
        self.model_called(&noted);
        Ok(())
    }
}
