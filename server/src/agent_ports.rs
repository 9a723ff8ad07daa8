//! Ports of the agents to the store: artifacts, and model calls that are never paid for twice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use nightshift_engine::clock::{Clock, Random};
use nightshift_engine::store::{KnowledgeStore, ModelCallRecord, NewRequest, Reservation, Store, StoreError};
use nightshift_optimizer::agent::{
    AgentPorts, AnsweredCall, OutsideCall, OutsideRequest, budget_exhausted, budget_wait,
};
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use nightshift_protocol::budget::{Amount, BudgetLine};
use nightshift_protocol::id::{RequestId, RunId, StepId};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::backoff::Backoff;
use crate::present::with_wall_time;

/// Maximum number of tries to store an answered call, which was paid for, before the step is released. On a full disk
/// the step could not be released either, so that case waits for space.
const MAX_RECORD_TRIES: u32 = 6;

/// The answered calls that are being stored, by step. Storing one goes on when its try ends, so that a paid answer
/// outlives the lease of its step.
#[derive(Default)]
pub(crate) struct Recordings(Mutex<HashMap<StepId, CancellationToken>>);

impl Recordings {
    /// Waits until the answer of an earlier try of this step is stored, or was given up.
    pub(crate) async fn wait(&self, step: &StepId) {
        let recorded = self.open().get(step).cloned();
        if let Some(recorded) = recorded {
            recorded.cancelled().await;
        }
    }

    /// Notes that an answer of this step is being stored, until the guard is dropped.
    fn begin(&self, step: &StepId) -> DropGuard {
        let recorded = CancellationToken::new();
        let mut open = self.open();
        open.retain(|_, recorded| !recorded.is_cancelled());
        open.insert(step.clone(), recorded.clone());
        recorded.drop_guard()
    }

    fn open(&self) -> MutexGuard<'_, HashMap<StepId, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ports for one step.
pub(crate) struct StorePorts {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    /// The step, which carries the reservations of its calls.
    pub(crate) step: StepId,
    /// Its lease epoch.
    pub(crate) epoch: u64,
    /// Source of ids for requests.
    pub(crate) random: Arc<dyn Random>,
    /// Time for outside agents to answer a request, in milliseconds.
    pub(crate) request_deadline_ms: u64,
    /// The answers that are being stored.
    pub(crate) recordings: Arc<Recordings>,
    /// True while a model call is open that a provider may charge for.
    pub(crate) open_call: Arc<AtomicBool>,
}

#[async_trait]
impl AgentPorts for StorePorts {
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StepFailure> {
        self.store.artifacts.get_artifact(hash).await.map_err(|error| failure(&error))
    }

    async fn put_artifact(&self, bytes: Vec<u8>) -> Result<ArtifactHash, StepFailure> {
        let hash = hash_within_limit(&bytes)?;
        self.store.artifacts.put_artifact(&hash, &bytes, self.clock.now()).await.map_err(|error| failure(&error))?;
        Ok(hash)
    }

    async fn find_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallSummary>, StepFailure> {
        let found = self.store.model_calls.find_model_call(run, step_key, turn, request_hash).await;
        match found.map_err(|error| failure(&error))? {
            None => Ok(None),
            Some(call) => serde_json::from_value(call.summary).map(Some).map_err(|error| {
                StepFailure::fatal("store.corrupt", format!("the recorded model call cannot be read: {error}"))
            }),
        }
    }

    async fn reserve_call(&self, estimate: &[Amount]) -> Result<(), StepFailure> {
        let reserved = self.store.budgets.reserve(&self.step, self.epoch, estimate, self.clock.now()).await;
        match reserved.map_err(|error| failure(&error))? {
            Reservation::Granted => {
                self.open_call.store(true, Ordering::Relaxed);
                Ok(())
            }
            Reservation::Wait(line) => Err(budget_wait(&line)),
            Reservation::Exhausted(line) => Err(budget_exhausted(&line)),
            Reservation::LeaseLost => Err(StepFailure::retriable(
                "agent.lease_lost",
                "the lease of the step was lost: the model is not called",
            )),
        }
    }

    async fn settle_call(&self, released: &[Amount], used: &[Amount]) -> Result<(), StepFailure> {
        let settled = self.store.budgets.settle(&self.step, self.epoch, released, used, self.clock.now()).await;
        self.open_call.store(false, Ordering::Relaxed);
        settled.map_err(|error| failure(&error))
    }

    async fn record_call(&self, call: AnsweredCall<'_>) -> Result<(), StepFailure> {
        let AnsweredCall { run, step_key, request_hash, summary, prompt, reply, reasoning, released, used } = call;
        let mut artifacts = vec![(hash_within_limit(&prompt)?, prompt), (hash_within_limit(&reply)?, reply)];
        if let Some(reasoning) = reasoning {
            artifacts.push((hash_within_limit(&reasoning)?, reasoning));
        }
        let call = ModelCallRecord {
            run: run.clone(),
            step_key: step_key.to_owned(),
            turn: summary.turn,
            request_hash: request_hash.to_owned(),
            summary: serde_json::to_value(summary)
                .map_err(|error| StepFailure::fatal("internal.unwritable", error.to_string()))?,
            released,
            used,
            at: self.clock.now(),
        };
        let recording = self.recordings.begin(&self.step);
        let store = self.store.clone();
        // A task of its own, because the step may lose its lease meanwhile.
        let task = tokio::spawn(async move {
            let _recording = recording;
            record(&store, call, artifacts).await
        });
        let recorded =
            task.await.unwrap_or_else(|error| Err(StepFailure::retriable("agent.panicked", error.to_string())));
        if recorded.is_ok() {
            self.open_call.store(false, Ordering::Relaxed);
        }
        recorded
    }

    async fn budget(&self, run: &RunId) -> Result<Vec<BudgetLine>, StepFailure> {
        let campaign = self.store.runs.load_run(run).await.map_err(|error| failure(&error))?.campaign;
        let record = self.store.campaigns.load_campaign(&campaign).await.map_err(|error| failure(&error))?;
        let budget = self.store.budgets.load_budget(&campaign).await.map_err(|error| failure(&error))?;
        Ok(with_wall_time(budget, self.clock.now().since_ms(record.created_at)))
    }

    async fn open_request(&self, call: OutsideCall<'_>) -> Result<OutsideRequest, StepFailure> {
        let at = self.clock.now();
        let new = NewRequest {
            id: RequestId::from_uuid(Uuid::from_u128(self.random.uuid())),
            run: call.run.clone(),
            step: self.step.clone(),
            step_key: call.step_key.to_owned(),
            turn: call.turn,
            request_hash: call.request_hash.to_owned(),
            role: call.role,
            model: call.model.to_owned(),
            question: call.question,
            fell_back: call.fell_back.to_vec(),
            at,
            deadline: at.plus_ms(self.request_deadline_ms),
        };
        let standing = self.store.requests.open_request(new).await.map_err(|error| failure(&error))?;
        Ok(OutsideRequest::at(standing, at))
    }

    async fn find_request(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<OutsideRequest>, StepFailure> {
        let found = self.store.requests.find_request(run, step_key, turn, request_hash).await;
        let found = found.map_err(|error| failure(&error))?;
        Ok(found.map(|standing| OutsideRequest::at(standing, self.clock.now())))
    }

    fn knowledge(&self) -> Option<(&dyn KnowledgeStore, TimestampMs)> {
        Some((&*self.store.knowledge, self.clock.now()))
    }
}

/// Stores an answered call. Tries again while the disk is full, and a few times after other passing errors.
async fn record(
    store: &Store,
    call: ModelCallRecord,
    artifacts: Vec<(ArtifactHash, Vec<u8>)>,
) -> Result<(), StepFailure> {
    let mut backoff = Backoff::default();
    let mut tries = 0;
    loop {
        tries += 1;
        match store.model_calls.record_model_call(call.clone(), artifacts.clone()).await {
            Ok(()) => {
                if tries > 1 {
                    tracing::info!(
                        run.id = %call.run, step.key = %call.step_key, tries, "a model call was recorded after retries"
                    );
                }
                return Ok(());
            }
            Err(error)
                if matches!(error, StoreError::Full(_)) || (error.is_transient() && tries < MAX_RECORD_TRIES) =>
            {
                if tries == 1 {
                    tracing::warn!(
                        run.id = %call.run, step.key = %call.step_key, error = %error,
                        "a model call could not be recorded; retrying"
                    );
                }
                tokio::time::sleep(backoff.failed()).await;
            }
            Err(error) => return Err(failure(&error)),
        }
    }
}

fn hash_within_limit(bytes: &[u8]) -> Result<ArtifactHash, StepFailure> {
    if bytes.len() > MAX_ARTIFACT_BYTES {
        return Err(StepFailure::fatal(
            "artifact.too_large",
            format!("an artifact of {} bytes exceeds the limit of {MAX_ARTIFACT_BYTES} bytes", bytes.len()),
        ));
    }
    Ok(ArtifactHash::of(bytes))
}

/// A missing artifact stays missing; all other errors may be temporary.
fn failure(error: &StoreError) -> StepFailure {
    match error {
        StoreError::NotFound { .. } => StepFailure::fatal(error.code(), error.to_string()),
        _ => StepFailure::retriable(error.code(), error.to_string()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{OsRandom, SystemClock};
    use nightshift_engine::store::{CampaignStore as _, ModelCallStore as _, NewCampaign, NewRun};
    use nightshift_protocol::budget::BudgetCaps;
    use nightshift_protocol::id::CampaignId;
    use nightshift_protocol::model_call::StopCause;
    use nightshift_store::fault::FaultyStore;
    use nightshift_store::{OpenOptions, SqlStore};
    use serde_json::json;

    fn summary() -> ModelCallSummary {
        ModelCallSummary {
            model: "scripted".to_owned(),
            scripted: true,
            prompt_version: "1".to_owned(),
            prompt: ArtifactHash::of(b"prompt"),
            reply: ArtifactHash::of(b"reply"),
            input_tokens: None,
            output_tokens: None,
            price_microusd: None,
            reasoning: None,
            cached_input_tokens: None,
            cache_write_tokens: None,
            reasoning_tokens: None,
            latency_ms: 0,
            turn: 1,
            stop: StopCause::End,
            role: None,
            fell_back: Vec::new(),
        }
    }

    #[tokio::test]
    async fn an_answer_that_was_paid_for_waits_for_space_on_a_full_disk() {
        let folder = tempfile::tempdir().unwrap();
        let inner = Arc::new(SqlStore::open_sqlite(folder.path(), OpenOptions::default()).await.unwrap());
        let run = RunId::from_uuid(Uuid::from_u128(2));
        let new = NewCampaign {
            id: CampaignId::from_uuid(Uuid::from_u128(1)),
            name: "night".to_owned(),
            spec: json!({}),
            at: TimestampMs(1),
            idempotency: None,
            budget: BudgetCaps::default(),
            schedule: None,
            priority: 0,
            weight: 1,
            owner: None,
            runs: vec![NewRun { id: run.clone(), input: json!({}), digest: json!({}) }],
        };
        inner.create_campaign(new).await.unwrap();
        let store = Arc::new(FaultyStore::counting(inner.ports()));
        store.set_full(true);
        let step = StepId::from_uuid(Uuid::from_u128(3));
        let ports = StorePorts {
            store: store.ports(),
            clock: Arc::new(SystemClock),
            step,
            epoch: 1,
            random: Arc::new(OsRandom),
            request_deadline_ms: 1,
            recordings: Arc::default(),
            open_call: Arc::default(),
        };
        let recorded = tokio::spawn({
            let run = run.clone();
            async move {
                let call = AnsweredCall {
                    run: &run,
                    step_key: "plan",
                    request_hash: "hash",
                    summary: &summary(),
                    prompt: b"prompt".to_vec(),
                    reply: b"reply".to_vec(),
                    reasoning: None,
                    released: Vec::new(),
                    used: Vec::new(),
                };
                ports.record_call(call).await
            }
        });

        tokio::time::pause();
        while store.writes() <= u64::from(MAX_RECORD_TRIES) * 2 {
            assert!(!recorded.is_finished(), "the answer was given up after {} tries", store.writes());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        store.set_full(false);
        let patience = std::time::Instant::now() + Duration::from_secs(20);
        while !recorded.is_finished() {
            assert!(std::time::Instant::now() < patience, "it was never recorded");
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        tokio::time::resume();
        recorded.await.unwrap().unwrap();
        assert!(store.find_model_call(&run, "plan", 1, "hash").await.unwrap().is_some());
    }
}
