//! What people ask of a run.

use async_trait::async_trait;
use nightshift_engine::store::{RunControlStore, StoreError};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;

use crate::catalog::{control, signal};
use crate::store::SqlStore;

#[async_trait]
impl RunControlStore for SqlStore {
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
}
