//! [`MemoryStore`] as the engine's ports.

use async_trait::async_trait;
use nightshift_engine::event::EventRecord;
use nightshift_engine::store::*;
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, WorkerId};
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::time::TimestampMs;
use serde_json::Value;

use super::memory::{MemoryStore, Step};

fn rows(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Returns the error for an unsupported call.
fn unkept<T>(what: &str) -> Result<T, StoreError> {
    Err(StoreError::Other(format!("the store in memory has no `{what}`")))
}

#[async_trait]
impl ChangeStore for MemoryStore {
    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Changed>, StoreError> {
        let mut world = self.world();
        world.commits += 1;
        world.apply(changes)
    }
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn load_step(&self, _: &StepId) -> Result<StepRecord, StoreError> {
        unkept("load_step")
    }

    async fn heartbeat(
        &self,
        _: &WorkerId,
        _: &[(StepId, u64)],
        _: TimestampMs,
        _: TimestampMs,
    ) -> Result<HeartbeatOutcome, StoreError> {
        unkept("heartbeat")
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
}

#[async_trait]
impl QueueStore for MemoryStore {
    async fn ready_routes(&self, _: u32) -> Result<Vec<String>, StoreError> {
        unkept("ready_routes")
    }

    async fn fire_timers(&self, at: TimestampMs, limit: u32) -> Result<(u64, Option<TimestampMs>), StoreError> {
        Ok(self.world().fire(at, rows(limit)))
    }
}

#[async_trait]
impl RunStore for MemoryStore {
    async fn list_runs(
        &self,
        _: Option<&CampaignId>,
        _: Option<RunStatus>,
        _: PageRequest,
    ) -> Result<Vec<RunRecord>, StoreError> {
        unkept("list_runs")
    }

    async fn load_run(&self, id: &RunId) -> Result<RunRecord, StoreError> {
        let mut world = self.world();
        world.reads += 1;
        Ok(world.run(id)?.record.clone())
    }

    async fn run_status(&self, _: &RunId) -> Result<RunStatus, StoreError> {
        unkept("run_status")
    }

    async fn events_after(&self, run: &RunId, after: u64, limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        let mut world = self.world();
        world.reads += 1;
        let log = world.run(run)?.log.iter().filter(|event| event.seq > after);
        Ok(log.take(rows(limit)).cloned().collect())
    }

    async fn list_step_heads(&self, run: &RunId) -> Result<Vec<StepRecord>, StoreError> {
        let mut world = self.world();
        world.reads += 1;
        let head = |step: &Step| StepRecord { input: Value::Null, output: None, ..step.record.clone() };
        Ok(world.run(run)?.steps.iter().map(head).collect())
    }
}

#[async_trait]
impl ServerStore for MemoryStore {
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
}
