//! What the agents may do to the store: artifacts, and model calls that are never paid for twice.

use std::sync::Arc;

use async_trait::async_trait;
use nightshift_engine::clock::Clock;
use nightshift_engine::store::{ModelCallRecord, Store, StoreError};
use nightshift_optimizer::agent::AgentPorts;
use nightshift_protocol::artifact::{ArtifactHash, MAX_ARTIFACT_BYTES};
use nightshift_protocol::attempt::ModelCallSummary;
use nightshift_protocol::id::RunId;
use nightshift_protocol::step::StepFailure;

use crate::backoff::Backoff;

/// How often an answered call is written before the step is given back: the answer was paid for.
const MAX_RECORD_TRIES: u32 = 6;

/// The agents' way to the store.
pub(crate) struct StorePorts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[async_trait]
impl AgentPorts for StorePorts {
    async fn get_artifact(&self, hash: &ArtifactHash) -> Result<Vec<u8>, StepFailure> {
        self.store.get_artifact(hash).await.map_err(|error| failure(&error))
    }

    async fn put_artifact(&self, bytes: Vec<u8>) -> Result<ArtifactHash, StepFailure> {
        let hash = hash_within_limit(&bytes)?;
        self.store.put_artifact(&hash, &bytes).await.map_err(|error| failure(&error))?;
        Ok(hash)
    }

    async fn find_call(
        &self,
        run: &RunId,
        step_key: &str,
        turn: u32,
        request_hash: &str,
    ) -> Result<Option<ModelCallSummary>, StepFailure> {
        let found = self.store.find_model_call(run, step_key, turn, request_hash).await;
        match found.map_err(|error| failure(&error))? {
            None => Ok(None),
            Some(call) => serde_json::from_value(call.summary).map(Some).map_err(|error| {
                StepFailure::fatal("store.corrupt", format!("the recorded model call cannot be read: {error}"))
            }),
        }
    }

    async fn record_call(
        &self,
        run: &RunId,
        step_key: &str,
        request_hash: &str,
        summary: &ModelCallSummary,
        prompt: Vec<u8>,
        reply: Vec<u8>,
    ) -> Result<(), StepFailure> {
        let artifacts = vec![(hash_within_limit(&prompt)?, prompt), (hash_within_limit(&reply)?, reply)];
        let call = ModelCallRecord {
            run: run.clone(),
            step_key: step_key.to_owned(),
            turn: summary.turn,
            request_hash: request_hash.to_owned(),
            summary: serde_json::to_value(summary)
                .map_err(|error| StepFailure::fatal("internal.unwritable", error.to_string()))?,
            at: self.clock.now(),
        };
        let mut backoff = Backoff::default();
        let mut tries = 0;
        loop {
            tries += 1;
            match self.store.record_model_call(call.clone(), artifacts.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_transient() && tries < MAX_RECORD_TRIES => {
                    tracing::warn!(run.id = %run, step.key = step_key, error = %error, "a model call could not be recorded yet");
                    tokio::time::sleep(backoff.failed()).await;
                }
                Err(error) => return Err(failure(&error)),
            }
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

/// A missing artifact stays missing; everything else may heal.
fn failure(error: &StoreError) -> StepFailure {
    match error {
        StoreError::NotFound { .. } => StepFailure::fatal(error.code(), error.to_string()),
        _ => StepFailure::retriable(error.code(), error.to_string()),
    }
}
