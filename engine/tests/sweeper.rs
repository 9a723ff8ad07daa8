//! Tests of the sweeper: expired leases, due timers, dead servers.

#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(dead_code, reason = "the store and the site serve other tests too")]

#[path = "support/memory.rs"]
mod memory;
#[path = "support/memory_port.rs"]
mod memory_port;
#[path = "precomputed_decisions/site.rs"]
mod site;
#[path = "support/toy.rs"]
mod toy;

use std::sync::Arc;

use async_trait::async_trait;
use nightshift_engine::clock::Clock;
use nightshift_engine::store::{
    ChangeStore, ExpiredLease, HeartbeatOutcome, LeaseStore, Pulse, Reported, ServerRecord, ServerStore, StepRecord,
    StoreError, TryEnd, WorkerRecord,
};
use nightshift_engine::sweeper::{MAX_PER_ROUND, Sweeper};
use nightshift_protocol::id::{ServerId, StepId, WorkerId};
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use serde_json::json;
use uuid::Uuid;

use crate::memory::MemoryStore;
use crate::site::{Site, phases};
use crate::toy::Counting;

const LEASE_MS: i64 = 30_000;

fn sweeper(site: &Site) -> Sweeper {
    let store = &site.store;
    Sweeper::new(store.clone(), store.clone(), store.clone(), site.clock.clone(), Arc::new(Counting::default()))
}

fn status(site: &Site) -> (StepStatus, u32) {
    let step = &site.stored().steps[0].record;
    (step.status, step.tries)
}

#[tokio::test]
async fn a_lease_that_ran_out_frees_its_step_at_once_until_its_tries_are_used_up() {
    let mut site = Site::begun(&phases(&[1])).await;
    let sweeper = sweeper(&site);
    for tries in 1..=3 {
        assert_eq!(status(&site), (StepStatus::Leased, tries));
        site.clock.advance_ms(LEASE_MS - 1);
        let swept = sweeper.sweep().await.unwrap();
        assert_eq!((swept.reaped, swept.expired, swept.fired), (0, 0, 0), "it is still in time");
        site.clock.advance_ms(1);
        assert_eq!(sweeper.sweep().await.unwrap().expired, 1);
        assert_eq!(sweeper.sweep().await.unwrap().expired, 0);
        site.claim().await;
    }
    assert_eq!(status(&site), (StepStatus::Failed, 3));
    site.drive().await;
    let failure = site.stored().record.failure.unwrap();
    assert_eq!(failure.code, "worker.lost");
    assert!(failure.message.contains("given up after 3 tries"), "{failure}");
}

#[tokio::test]
async fn a_lease_that_ran_out_keeps_the_count_of_charged_tries() {
    let mut site = Site::begun(&phases(&[1])).await;
    let sweeper = sweeper(&site);
    let mut failure = StepFailure::retriable("model.timeout", "no reply");
    failure.charged_tries = 2;
    let at = site.clock.now();
    site.store.report(site.report_of("phase0/step0", TryEnd::Retry { failure, at })).await.unwrap();
    sweeper.sweep().await.unwrap();
    site.claim().await;
    site.clock.advance_ms(LEASE_MS);
    assert_eq!(sweeper.sweep().await.unwrap().expired, 1);
    let failure = site.stored().steps[0].record.failure.clone().unwrap();
    assert_eq!((failure.code.as_str(), failure.charged_tries), ("worker.lost", 2));
}

#[tokio::test]
async fn a_due_timer_makes_its_step_ready_and_the_next_due_time_is_returned() {
    let site = Site::begun(&phases(&[2])).await;
    let sweeper = sweeper(&site);
    for (key, after_ms) in [("phase0/step0", 100), ("phase0/step1", 300)] {
        let at = site.clock.now().plus_ms(after_ms);
        let end = TryEnd::Retry { failure: StepFailure::retriable("busy", "later"), at };
        site.store.report(site.report_of(key, end)).await.unwrap();
    }
    site.clock.advance_ms(100);
    let swept = sweeper.sweep().await.unwrap();
    assert_eq!((swept.fired, swept.next_timer), (1, Some(TimestampMs(300))));
    site.clock.advance_ms(200);
    let swept = sweeper.sweep().await.unwrap();
    assert_eq!((swept.fired, swept.next_timer), (1, None));
}

/// Leases of a store that cannot end one of them.
struct OneStuck {
    inner: Arc<MemoryStore>,
    step: StepId,
}

#[async_trait]
impl LeaseStore for OneStuck {
    async fn load_step(&self, id: &StepId) -> Result<StepRecord, StoreError> {
        self.inner.load_step(id).await
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
        if *step == self.step {
            return Err(StoreError::Other("this lease cannot be ended, on purpose".to_owned()));
        }
        self.inner.expire_lease(step, epoch, end, at).await
    }
}

#[tokio::test]
async fn a_lease_that_cannot_be_ended_holds_up_neither_other_leases_nor_timers() {
    let site = Site::begun(&phases(&[3])).await;
    let at = site.clock.now().plus_ms(100);
    let end = TryEnd::Retry { failure: StepFailure::retriable("busy", "later"), at };
    site.store.report(site.report_of("phase0/step2", end)).await.unwrap();
    let store = &site.store;
    let stuck = Arc::new(OneStuck { inner: store.clone(), step: site.leases["phase0/step0"].0.clone() });
    let sweeper = Sweeper::new(store.clone(), stuck, store.clone(), site.clock.clone(), Arc::new(Counting::default()));
    site.clock.advance_ms(LEASE_MS);
    let swept = sweeper.sweep().await.unwrap();
    assert_eq!((swept.expired, swept.fired), (1, 1));
    assert!(swept.lease_error.is_some_and(|error| error.to_string().contains("on purpose")));
}

/// Servers of a store that cannot free the leases of dead ones.
struct Unreapable(Arc<MemoryStore>);

#[async_trait]
impl ServerStore for Unreapable {
    async fn register_server(&self, server: ServerRecord, sole: bool) -> Result<(), StoreError> {
        self.0.register_server(server, sole).await
    }

    async fn pulse(&self, server: &ServerId, at: TimestampMs, expires_at: TimestampMs) -> Result<Pulse, StoreError> {
        self.0.pulse(server, at, expires_at).await
    }

    async fn retire_server(&self, server: &ServerId, at: TimestampMs) -> Result<(), StoreError> {
        self.0.retire_server(server, at).await
    }

    async fn reap_servers(&self, _: TimestampMs) -> Result<u64, StoreError> {
        Err(StoreError::Other("dead servers cannot be read, on purpose".to_owned()))
    }

    async fn list_servers(&self) -> Result<Vec<ServerRecord>, StoreError> {
        self.0.list_servers().await
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_read_holds_up_neither_leases_nor_timers() {
    let site = Site::begun(&phases(&[2])).await;
    let at = site.clock.now().plus_ms(100);
    let end = TryEnd::Retry { failure: StepFailure::retriable("busy", "later"), at };
    site.store.report(site.report_of("phase0/step1", end)).await.unwrap();
    let store = &site.store;
    let servers = Arc::new(Unreapable(store.clone()));
    let random = Arc::new(Counting::default());
    let sweeper = Sweeper::new(servers, store.clone(), store.clone(), site.clock.clone(), random);
    site.clock.advance_ms(LEASE_MS);
    let swept = sweeper.sweep().await.unwrap();
    assert_eq!((swept.expired, swept.fired), (1, 1));
    assert!(swept.lease_error.is_some_and(|error| error.to_string().contains("on purpose")));
}

#[tokio::test]
async fn leases_of_a_dead_servers_own_worker_are_freed_and_the_try_does_not_count() {
    let site = Site::begun(&phases(&[1])).await;
    let server = ServerId::from_uuid(Uuid::from_u128(5));
    let life = ServerRecord {
        id: server.clone(),
        name: "a".to_owned(),
        version: "1".to_owned(),
        state_format: 1,
        address: String::new(),
        started_at: TimestampMs(0),
        expires_at: TimestampMs(LEASE_MS),
    };
    site.store.register_server(life, false).await.unwrap();
    let worker = WorkerRecord {
        id: WorkerId::from_uuid(Uuid::from_u128(1)),
        name: "embedded".to_owned(),
        embedded: true,
        offers: json!({}),
        version: "1".to_owned(),
        last_seen_at: TimestampMs(0),
        leases: 1,
        server: Some(server),
        draining: false,
    };
    site.store.world().workers.insert(worker.id.clone(), worker);
    // Server and lease end at the same time: the server takes precedence.
    site.clock.advance_ms(LEASE_MS);
    let swept = sweeper(&site).sweep().await.unwrap();
    assert_eq!((swept.reaped, swept.expired), (1, 0));
    assert_eq!(status(&site), (StepStatus::Scheduled, 0));
}

#[tokio::test]
async fn a_round_that_a_limit_ended_says_that_there_is_more() {
    let limit = usize::try_from(MAX_PER_ROUND).unwrap();
    let mut site = Site::begun(&phases(&[limit + 1])).await;
    for _ in 0..=limit / 100 {
        site.claim().await;
    }
    site.clock.advance_ms(LEASE_MS);
    let sweeper = sweeper(&site);
    let swept = sweeper.sweep().await.unwrap();
    assert_eq!((swept.expired, swept.more), (u64::from(MAX_PER_ROUND), true));
    let swept = sweeper.sweep().await.unwrap();
    assert_eq!((swept.expired, swept.more), (1, false));
}
