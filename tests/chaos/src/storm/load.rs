//! Those who use the system meanwhile: they create campaigns, pause, resume, cancel, retry, approve and advise, and keep
//! account of what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_client::{Client, ClientError};
use nightshift_protocol::api::{ControlAction, CreateCampaign, RunSummary};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::campaign::{CAMPAIGN_SCHEMA, CampaignSpec, CampaignTask, ModelChoice};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;
use nightshift_protocol::signal::{Gate, Signal};
use nightshift_protocol::task::{TaskBundle, TaskGoal};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::fleet::Fleet;
use crate::toy::Name;

/// Runs that are open at the same time, about.
const OPEN_RUNS: usize = 24;
/// Maximum number of tries until a creation is acknowledged.
const MAX_TRIES: u32 = 30;
/// Interval between two actions of the simulated users.
const TICK: Duration = Duration::from_millis(120);

/// The task of all toy runs, as it is uploaded.
pub(crate) fn bundle() -> anyhow::Result<Vec<u8>> {
    let bundle: TaskBundle = serde_json::from_value(json!({
        "spec": {
            "schema": 1, "name": "toy", "title": "toy", "description": "toy", "target": "cpu", "reference": "toy.cpp",
            "inputs": [{ "name": "in", "dtype": "f32", "shape": [1] }],
            "outputs": [{ "name": "out", "dtype": "f32", "shape": [1] }],
            "tolerance": { "atol": 0.0, "rtol": 0.0 },
        },
        "reference_source": "",
    }))?;
    Ok(serde_json::to_vec(&bundle)?)
}

/// A campaign of toy runs.
pub(crate) fn spec(name: &str, runs: &[Name], bundle: &ArtifactHash, budget: BudgetCaps) -> CampaignSpec {
    let task = |run: &Name| CampaignTask { name: run.to_string(), bundle: bundle.clone(), scripted_replies: None };
    CampaignSpec {
        schema: CAMPAIGN_SCHEMA,
        name: name.to_owned(),
        model: ModelChoice::Live { endpoint: "toy".to_owned(), model: "toy".to_owned() },
        models: nightshift_protocol::models::ModelPlan::default(),
        knowledge: nightshift_protocol::campaign::KnowledgeUse::default(),
        untrusted_replies: false,
        strategy: "stitch".to_owned(),
        goal: TaskGoal::default(),
        allow_unsandboxed: true,
        budget,
        schedule: None,
        priority: 0,
        weight: 1,
        gates: BTreeSet::new(),
        labels: BTreeSet::new(),
        tasks: runs.iter().map(task).collect(),
    }
}

/// A campaign that the load requested.
#[derive(Debug, Clone)]
pub(super) struct RequestedCampaign {
    pub(super) budget: BudgetCaps,
    /// Ids that were acknowledged for it: one, or the storm has found something.
    pub(super) ids: BTreeSet<String>,
    pub(super) runs: Vec<Name>,
}

/// What was asked for, and what was acknowledged.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    /// By name, which is its key, too.
    pub(super) campaigns: BTreeMap<String, RequestedCampaign>,
    /// Advice that was acknowledged: run and text.
    pub(super) hints: Vec<(String, String)>,
    /// Runs whose cancellation was acknowledged.
    pub(super) cancelled: BTreeSet<String>,
    /// Acknowledged requests by kind.
    pub(super) acknowledged: BTreeMap<&'static str, u64>,
}

/// The load.
pub(super) struct Load {
    clients: Vec<Client>,
    bundle: ArtifactHash,
    seed: u64,
    book: Mutex<Book>,
    numbers: AtomicU64,
    stop: CancellationToken,
}

impl Load {
    /// Uploads what campaigns begin with.
    pub(super) async fn prepare(fleet: &Fleet, seed: u64) -> anyhow::Result<Self> {
        let clients = vec![fleet.client()?, fleet.client()?];
        let bundle = bundle()?;
        let bundle = clients[0].put_artifact(&bundle).await?;
        Ok(Self {
            clients,
            bundle,
            seed,
            book: Mutex::default(),
            numbers: AtomicU64::new(1),
            stop: CancellationToken::new(),
        })
    }

    /// Nothing more is created or changed.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// The account.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs random user actions until it is stopped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed.wrapping_add(1));
        let mut creating = JoinSet::new();
        let mut open = 0;
        while !self.stop.is_cancelled() {
            while creating.try_join_next().is_some() {}
            if open < OPEN_RUNS && creating.len() < 4 {
                let (name, spec) = self.invent(&mut random);
                creating.spawn(self.clone().create(name, spec));
            }
            // A call that meets a broken server ends by itself; the next tick does not wait for it for ever.
            let call = tokio::time::timeout(Duration::from_secs(5), self.meddle(&mut random));
            if let Ok(Ok(running)) = call.await {
                open = running;
            }
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
        while creating.join_next().await.is_some() {}
    }

    fn invent(&self, random: &mut ChaCha8Rng) -> (String, CampaignSpec) {
        let count = random.random_range(1..=4_u64);
        let names: Vec<Name> = (0..count)
            .map(|_| Name {
                number: self.numbers.fetch_add(1, Ordering::Relaxed),
                fails_first: random.random_bool(0.1),
                gated: random.random_bool(0.15),
            })
            .collect();
        let mut budget = BudgetCaps::default();
        match random.random_range(0..10) {
            0 | 1 => budget.attempts = Some(random.random_range(0..count).max(1)),
            2 => budget.attempts = Some(count),
            3 => budget.tokens = Some(150),
            4 => budget.device_ms = Some(140),
            _ => {}
        }
        let number = names.first().map_or(0, |name| name.number);
        let name = format!("campaign-{number}");
        let spec = CampaignSpec {
            priority: random.random_range(-5..5),
            weight: random.random_range(1..4),
            ..spec(&name, &names, &self.bundle, budget)
        };
        self.book().campaigns.insert(name.clone(), RequestedCampaign { budget, ids: BTreeSet::new(), runs: names });
        (name, spec)
    }

    /// Asks twice at the same time, with the same key, until both were acknowledged.
    async fn create(self: Arc<Self>, name: String, spec: CampaignSpec) {
        let request = CreateCampaign { spec };
        let asked = self.clients.iter().map(|client| self.create_once(client, &name, &request));
        futures::future::join_all(asked).await;
    }

    async fn create_once(&self, client: &Client, name: &str, request: &CreateCampaign) {
        for _ in 0..MAX_TRIES {
            match client.create_campaign(request, name).await {
                Ok(created) => {
                    let mut book = self.book();
                    if let Some(asked) = book.campaigns.get_mut(name) {
                        asked.ids.insert(created.campaign.to_string());
                    }
                    *book.acknowledged.entry("create").or_default() += 1;
                    return;
                }
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(150)).await,
                Err(error) => {
                    eprintln!("{name} is refused: {} {error}", error.code());
                    return;
                }
            }
        }
    }

    /// Does one thing to one run. Returns how many runs are running.
    async fn meddle(&self, random: &mut ChaCha8Rng) -> Result<usize, ClientError> {
        let client = &self.clients[random.random_range(0..self.clients.len())];
        let running = client.runs(None, Some(RunStatus::Running), Some(100), None).await?.items;
        self.unblock(client, &running, Some(random)).await?;
        if running.is_empty() {
            return Ok(0);
        }
        let run = &running[random.random_range(0..running.len())].id;
        let kind = match random.random_range(0..100) {
            0..=11 => {
                client.control_run(run, ControlAction::Pause).await?;
                "pause"
            }
            12..=14 => {
                client.control_run(run, ControlAction::Cancel).await?;
                self.book().cancelled.insert(run.to_string());
                "cancel"
            }
            15..=24 => {
                client.set_run_priority(run, random.random_range(-10..10)).await?;
                "priority"
            }
            25..=39 => {
                let text = format!("hint {}", self.numbers.fetch_add(1, Ordering::Relaxed));
                let hint = Signal::Hint { text: text.clone() };
                // Twice with one key: it must be heard once.
                let (first, second) =
                    tokio::join!(client.signal_run(run, &hint, &text), client.signal_run(run, &hint, &text));
                first.or(second)?;
                self.book().hints.push((run.to_string(), text));
                "hint"
            }
            _ => return Ok(running.len()),
        };
        *self.book().acknowledged.entry(kind).or_default() += 1;
        Ok(running.len())
    }

    /// Does what runs wait for: approves, resumes, retries. With dice, only now and then.
    pub(super) async fn unblock(
        &self,
        client: &Client,
        running: &[RunSummary],
        mut dice: Option<&mut ChaCha8Rng>,
    ) -> Result<(), ClientError> {
        let mut wants = |chance: f64| dice.as_mut().is_none_or(|dice| dice.random_bool(chance));
        for run in running.iter().filter(|run| !run.awaits.is_empty()) {
            if wants(0.3) {
                let key = format!("approve {}", run.id);
                let approved = Signal::Approved { gate: Gate::Plan };
                self.note("approve", client.signal_run(&run.id, &approved, &key).await)?;
            }
        }
        for run in ids(client, RunStatus::Paused).await? {
            if wants(0.2) {
                self.note("resume", client.control_run(&run, ControlAction::Resume).await)?;
            }
        }
        for run in ids(client, RunStatus::Failed).await? {
            if wants(0.3) {
                self.note("retry", client.retry_run(&run, None).await)?;
            }
        }
        Ok(())
    }

    /// That a run is somewhere else meanwhile is no trouble.
    fn note<T>(&self, kind: &'static str, answer: Result<T, ClientError>) -> Result<(), ClientError> {
        match answer {
            Ok(_) => *self.book().acknowledged.entry(kind).or_default() += 1,
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }
}

async fn ids(client: &Client, status: RunStatus) -> Result<Vec<RunId>, ClientError> {
    let page = client.runs(None, Some(status), Some(200), None).await?;
    Ok(page.items.into_iter().map(|run| run.id).collect())
}
