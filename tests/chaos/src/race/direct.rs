//! Races of two processes on the database itself.

use std::path::Path;
use std::sync::Arc;

use nightshift_engine::clock::{Clock as _, Random as _};
use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::store::{
    Advance, CampaignStore, ChangeStore, ClaimRequest, NewCampaign, NewRun, RunStore, ServerRecord, ServerStore,
    WorkerRecord, WorkerStore,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::budget::{Amount, BudgetCaps, Resource};
use nightshift_protocol::id::{CampaignId, RunId, ServerId, StepId, WorkerId};
use nightshift_protocol::machine::Needs;
use nightshift_server::{OsRandom, SystemClock};
use nightshift_store::SqlStore;
use serde_json::json;

use super::Score;
use super::racers::{Racers, one_won};
use crate::node::{Contest, open};
use crate::storm::Kind;
use crate::storm::database::Database;

/// How long servers and leases of these races last, in milliseconds.
const LONG_MS: u64 = 3_600_000;

/// Lets two processes open the same data folder. The one that gets the lock decides every run in it.
pub(super) async fn on_sqlite(rounds: u32, folder: &Path, score: &mut Score) -> anyhow::Result<()> {
    let data = folder.join("raced");
    std::fs::create_dir_all(&data)?;
    let database = format!("sqlite:{}", data.display());
    open(&database, None, None).await?.close().await?;
    let mut racers = Racers::start(folder, |_| Vec::new())?;
    for _ in 0..rounds {
        let prizes = racers.race_for(&Contest::Open { database: database.clone() })?;
        score.round("the same database file", one_won(&prizes), &prizes);
    }
    Ok(())
}

/// Two processes on one Postgres want the same run, the same step, the same budget.
pub(super) async fn on_postgres(rounds: u32, folder: &Path, score: &mut Score) -> anyhow::Result<()> {
    let database = Database::start(Kind::Postgres, folder).await?;
    let field = Field { store: open(&database.address(), None, None).await? };
    let mut racers = Racers::start(folder, |_| vec!["--database".to_owned(), database.address()])?;
    let servers = [field.server().await?, field.server().await?];
    let workers = [field.worker(&servers[0]).await?, field.worker(&servers[1]).await?];
    for _ in 0..rounds {
        let run = field.run(&[], BudgetCaps::default()).await?.0;
        let [first, second] = servers.clone().map(|server| Contest::Own { server, run: run.clone() });
        let prizes = racers.race(first, second)?;
        score.round("the same run, in the database", one_won(&prizes), &prizes);

        field.run(&["only"], BudgetCaps::default()).await?;
        let route = Needs::agent().route();
        let [first, second] = workers.clone().map(|worker| Contest::Take { worker, route: route.clone() });
        let prizes = racers.race(first, second)?;
        score.round("the same step, in the database", one_won(&prizes), &prizes);

        let budget = BudgetCaps { tokens: Some(100), ..BudgetCaps::default() };
        field.run(&["first", "second"], budget).await?;
        let steps = field.claim(&workers[0], 2).await?;
        anyhow::ensure!(steps.len() == 2, "only {} steps could be leased", steps.len());
        let amount = Amount { resource: Resource::Tokens, amount: 60 };
        let reserve = |n: usize| Contest::Reserve { step: steps[n].0.clone(), epoch: steps[n].1, amount };
        let prizes = racers.race(reserve(0), reserve(1))?;
        score.round("the same budget, in the database", one_won(&prizes), &prizes);
    }
    let violations = field.store.find_violations().await?;
    anyhow::ensure!(violations.is_empty(), "the store does not agree with itself: {violations:?}");
    drop(racers);
    field.store.close().await?;
    Ok(())
}

struct Field {
    store: Arc<SqlStore>,
}

impl Field {
    async fn server(&self) -> anyhow::Result<ServerId> {
        let (id, at) = (ServerId::from_uuid(new_uuid()), SystemClock.now());
        let record = ServerRecord {
            id: id.clone(),
            name: "racer".to_owned(),
            version: "race".to_owned(),
            state_format: 1,
            address: String::new(),
            started_at: at,
            expires_at: at.plus_ms(LONG_MS),
        };
        self.store.register_server(record, false).await?;
        Ok(id)
    }

    async fn worker(&self, server: &ServerId) -> anyhow::Result<WorkerId> {
        let id = WorkerId::from_uuid(new_uuid());
        let record = WorkerRecord {
            id: id.clone(),
            name: "racer".to_owned(),
            embedded: true,
            offers: json!({}),
            version: "race".to_owned(),
            last_seen_at: SystemClock.now(),
            leases: 0,
            server: Some(server.clone()),
            draining: false,
        };
        self.store.register_worker(record).await?;
        Ok(id)
    }

    /// Creates a run without an owner, with these steps ready for agents.
    async fn run(&self, keys: &[&str], budget: BudgetCaps) -> anyhow::Result<(RunId, CampaignId)> {
        let (campaign, run, at) = (CampaignId::from_uuid(new_uuid()), RunId::from_uuid(new_uuid()), SystemClock.now());
        let new = NewCampaign {
            id: campaign.clone(),
            name: "race".to_owned(),
            spec: json!({}),
            at,
            idempotency: None,
            budget,
            schedule: None,
            priority: 0,
            weight: 1,
            owner: None,
            runs: vec![NewRun { id: run.clone(), input: json!({}), digest: json!({ "task": "race" }) }],
        };
        self.store.create_campaign(new).await?;
        if !keys.is_empty() {
            let schedule = keys.iter().map(|key| (StepId::from_uuid(new_uuid()), order(key))).collect();
            let record = self.store.load_run(&run).await?;
            let advance = Advance {
                run: run.clone(),
                revision: record.revision,
                folded_seq: record.last_seq,
                expects_last_seq: None,
                state: Some(json!({}).into()),
                digest: json!({ "task": "race" }),
                schedule,
                end: None::<(_, Event)>,
                awaits: Vec::new(),
                fence: None,
                at,
            };
            anyhow::ensure!(self.store.advance(advance).await?.is_committed(), "a run without rivals did not advance");
        }
        Ok((run, campaign))
    }

    async fn claim(&self, worker: &WorkerId, cpu_slots: u32) -> anyhow::Result<Vec<(StepId, u64)>> {
        let at = SystemClock.now();
        let claim = ClaimRequest {
            worker: worker.clone(),
            routes: vec![Needs::agent().route()],
            cpu_slots,
            devices: Vec::new(),
            at,
            expires_at: at.plus_ms(LONG_MS),
        };
        Ok(self.store.claim(claim).await?.into_iter().map(|step| (step.id, step.epoch)).collect())
    }
}

fn order(key: &str) -> StepOrder {
    StepOrder {
        key: key.to_owned(),
        kind: "plan".to_owned(),
        needs: Needs::agent(),
        input: json!({}),
        timeout_ms: LONG_MS,
        retry: RetryPolicy::default(),
        cost_ms: 1,
        reserve: Vec::new(),
    }
}

fn new_uuid() -> uuid::Uuid {
    uuid::Uuid::from_u128(OsRandom.uuid())
}
