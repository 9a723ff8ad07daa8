//! A store with one run, a driver, and a worker that takes every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use nightshift_engine::clock::Clock;
use nightshift_engine::driver::{Driver, Settled};
use nightshift_engine::store::{
    Advanced, Change, ChangeStore, Changed, ClaimRequest, NewCampaign, NewRun, OwnerFence, Report, Reported, TryEnd,
};
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::id::{CampaignId, RunId, StepId, WorkerId};
use nightshift_protocol::machine::Needs;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::memory::{MemoryStore, Run};
use crate::toy::{Counting, Phase, SetClock, Toy};

pub(crate) struct Site {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) driver: Driver,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) run: RunId,
    pub(crate) fence: Option<OwnerFence>,
    /// Whether the driver loads the run for every decision.
    pub(crate) forgets: bool,
    /// All granted leases, by the step's key.
    pub(crate) leases: BTreeMap<String, (StepId, u64)>,
}

pub(crate) fn phases(widths: &[usize]) -> Vec<Phase> {
    widths.iter().map(|width| Phase { width: *width, gate: false, stuck: false }).collect()
}

pub(crate) fn done(key: &str) -> TryEnd {
    TryEnd::Completed { output: json!({ "of": key }) }
}

impl Site {
    /// Creates a run of these phases, which is driven once and claimed.
    pub(crate) async fn begun(phases: &[Phase]) -> Self {
        let store = Arc::new(MemoryStore::default());
        let (clock, random) = (Arc::new(SetClock::default()), Arc::new(Counting::default()));
        let driver = Driver::new(store.clone(), store.clone(), Arc::new(Toy), clock.clone(), random);
        let run = RunId::from_uuid(Uuid::from_u128(1));
        let new = NewCampaign {
            id: CampaignId::from_uuid(Uuid::from_u128(1)),
            name: "night".to_owned(),
            spec: json!({}),
            at: clock.now(),
            idempotency: None,
            budget: BudgetCaps::default(),
            schedule: None,
            priority: 0,
            weight: 1,
            owner: None,
            runs: vec![NewRun { id: run.clone(), input: serde_json::to_value(phases).unwrap(), digest: Value::Null }],
        };
        store.world().create(new);
        let mut site = Self { store, driver, clock, run, fence: None, forgets: false, leases: BTreeMap::new() };
        site.drive().await;
        site.claim().await;
        site
    }

    pub(crate) async fn drive(&self) {
        if self.forgets {
            self.driver.forget(&self.run);
        }
        self.driver.drive(&self.run, self.fence.as_ref()).await.unwrap();
    }

    fn wanted(&self) -> ClaimRequest {
        ClaimRequest {
            worker: WorkerId::from_uuid(Uuid::from_u128(1)),
            routes: vec![Needs::agent().route()],
            cpu_slots: 100,
            devices: Vec::new(),
            at: self.clock.now(),
            expires_at: self.clock.now().plus_ms(30_000),
        }
    }

    pub(crate) async fn claim(&mut self) {
        for step in self.store.claim(self.wanted()).await.unwrap() {
            self.leases.insert(step.key, (step.id, step.epoch));
        }
    }

    pub(crate) fn report_of(&self, key: &str, end: TryEnd) -> Report {
        let (step, epoch) = self.leases[key].clone();
        Report { step, epoch, end, used: Vec::new(), at: self.clock.now() }
    }

    /// Reports without a decision, and then drives the run. With `claims_first`, the worker takes steps in between.
    pub(crate) async fn report_and_drive(&mut self, report: Report, claims_first: bool) {
        let reported = self.store.report(report).await.unwrap();
        if claims_first {
            self.claim().await;
        }
        if reported == Reported::Committed {
            self.drive().await;
        }
        self.claim().await;
    }

    /// Reports with the following decision, if it can be precomputed. Returns the outcome.
    pub(crate) async fn report_ahead(&mut self, report: Report, between: impl FnOnce(&Self)) -> Option<Settled> {
        let Some(foreseen) = self.driver.precompute_decision(&report) else {
            between(self);
            self.report_and_drive(report, false).await;
            return None;
        };
        between(self);
        let changes = vec![Change::Report(report), Change::Advance(foreseen.advance), Change::Claim(self.wanted())];
        let answers = self.store.commit(changes).await.unwrap();
        let [Changed::Reported(reported), Changed::Advanced(advanced), Changed::Claimed(claimed)] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert!(*reported == Reported::Committed || !matches!(advanced, Advanced::Committed { .. }));
        let settled = self.driver.settle(foreseen.ticket, *reported, advanced);
        for step in claimed {
            self.leases.insert(step.key.clone(), (step.id.clone(), step.epoch));
        }
        if settled == Settled::Drive {
            self.drive().await;
        }
        self.claim().await;
        Some(settled)
    }

    pub(crate) fn stored(&self) -> Run {
        self.store.world().runs[&self.run].clone()
    }

    /// Returns the facts that have to be equal at two sites.
    pub(crate) fn facts(&self) -> Value {
        let run = self.stored();
        let record = &run.record;
        let log: Vec<Value> = run
            .log
            .iter()
            .map(|event| json!([event.seq, event.at, serde_json::to_value(&event.event).unwrap()]))
            .collect();
        let steps: Vec<Value> = run
            .steps
            .iter()
            .map(|step| json!([step.record.key, step.record.status.as_str(), step.record.epoch, step.record.failure]))
            .collect();
        json!({
            "log": log, "steps": steps, "status": record.status.as_str(), "revision": record.revision,
            "state": record.state, "folded_seq": record.folded_seq, "digest": record.digest,
            "failure": record.failure, "awaits": record.awaits,
        })
    }
}
