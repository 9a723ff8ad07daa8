//! What a step costs as a run grows: one run over the store, with replies and results of the sizes that a campaign on an
//! H200 recorded, to its last attempt.
//!
//! Measured is what the server does for a step: it decides, commits report and decision, and hands out the next step. The
//! update of the index of attempts after each step is measured apart from it. HTTP, agents and workers are not part of it.

use std::collections::VecDeque;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nightshift_engine::clock::{Clock as _, Random as _};
use nightshift_engine::driver::{Driver, Settled};
use nightshift_engine::store::{
    Advanced, Change, Changed, ClaimRequest, DeviceLane, NewCampaign, NewRun, Report, Reported, StepRecord, Store,
    TryEnd, WorkerRecord,
};
use nightshift_optimizer::strategy::{self, MAX_ATTEMPTS, StrategyWorkflow};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::id::{CampaignId, RunId, WorkerId};
use nightshift_protocol::machine::DeviceUse;
use nightshift_protocol::step::StepKind;
use nightshift_protocol::task::Target;
use nightshift_server::{Indexer, OsRandom, SystemClock};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use crate::figure::{ms, print};
use crate::place::Place;

/// Inputs and outputs of the steps of one attempt, as `docs/evidence/h200-nightshift.db.xz` has them.
const RECORDED: &str = include_str!("../recorded/attempt.json");
/// Attempts that are reported; each with its two neighbours on either side.
const REPORTED: [u32; 5] = [5, 25, 50, 100, 198];
/// Neighbours on either side.
const NEIGHBOURS: u32 = 2;
/// Length of a lease.
const LEASE_MS: u64 = 3_600_000;
/// Words of a source or reply.
const TEXT_WORDS: usize = 800;
/// Limit of steps: a run with more is not the intended one.
const MAX_STEPS: u32 = 4_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Serialize)]
struct CampaignFigure {
    system: &'static str,
    version: &'static str,
    store: String,
    durability: String,
    build: &'static str,
    steps: u32,
    /// Steps whose decision was made from what the driver remembered.
    foreseen: u32,
    /// Bytes that the store wrote for all steps, divided by their number: every checkpoint is in it.
    bytes_per_step: f64,
    /// The same for the updates of the index.
    index_bytes_per_step: f64,
    attempts: Vec<AttemptFigure>,
}

/// What a step of an attempt costs, over the attempt and its neighbours.
#[derive(Debug, Serialize)]
struct AttemptFigure {
    attempt: u32,
    steps: u32,
    /// Processor time of this process, in milliseconds.
    cpu_ms_per_step: f64,
    /// From the report to the next step, in milliseconds.
    wall_ms_per_step: f64,
    /// The step that took the most processor time, in milliseconds.
    cpu_ms_longest: f64,
    /// Bytes that the store wrote: to its files on SQLite, to the write-ahead log on Postgres.
    bytes_per_step: f64,
    transactions_per_step: f64,
    /// The update of the index: processor time of this process, in milliseconds.
    index_cpu_ms_per_step: f64,
    /// Bytes that the update of the index read from the database's files; none on Postgres.
    index_bytes_read_per_step: Option<f64>,
    /// Bytes that it wrote.
    index_bytes_per_step: f64,
}

/// The cost of one step.
#[derive(Debug, Clone, Copy)]
struct Cost {
    attempt: u32,
    cpu: Duration,
    wall: Duration,
    bytes: u64,
    transactions: u32,
    index: IndexCost,
}

/// The cost of updating the index after a step.
#[derive(Debug, Clone, Copy)]
struct IndexCost {
    cpu: Duration,
    bytes_read: Option<u64>,
    bytes: u64,
}

pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { place } = options;
    place.prepare().await?;
    let store = place.open().await?;
    let description = place.describe(&store).await?;
    let port = store.ports();
    let indexer = Indexer::new(port.clone(), store.clone(), strategy::view, strategy::changed_attempts);
    let mut course = Course::begin(port, indexer, Written::of(&place).await?).await?;
    let costs = course.finish().await?;
    store.close().await?;
    print(&CampaignFigure {
        system: "nightshift-campaign",
        version: env!("CARGO_PKG_VERSION"),
        store: description.store,
        durability: description.durability,
        build: if cfg!(debug_assertions) { "debug" } else { "release" },
        steps: u32::try_from(costs.len())?,
        foreseen: course.foreseen,
        bytes_per_step: mean(costs.iter().map(|cost| cost.bytes)),
        index_bytes_per_step: mean(costs.iter().map(|cost| cost.index.bytes)),
        attempts: REPORTED.iter().filter_map(|number| figure(*number, &costs)).collect(),
    })
}

/// One run and what carries it out.
struct Course {
    store: Store,
    driver: Driver,
    indexer: Indexer,
    recorded: Value,
    worker: WorkerId,
    run: RunId,
    open: VecDeque<StepRecord>,
    written: Written,
    foreseen: u32,
}

impl Course {
    async fn begin(store: Store, indexer: Indexer, written: Written) -> anyhow::Result<Self> {
        let recorded: Value = serde_json::from_str(RECORDED)?;
        let driver = Driver::new(
            store.runs.clone(),
            store.changes.clone(),
            Arc::new(StrategyWorkflow),
            Arc::new(SystemClock),
            Arc::new(OsRandom),
        );
        let (worker, run) = (WorkerId::from_uuid(uuid()), RunId::from_uuid(uuid()));
        let at = SystemClock.now();
        let mut input = recorded["run_created"].clone();
        input["goal"] = json!({
            "max_attempts": MAX_ATTEMPTS, "max_replans": 0, "replan_after_failed": MAX_ATTEMPTS,
            "replan_after_stagnant": MAX_ATTEMPTS,
        });
        store
            .campaigns
            .create_campaign(NewCampaign {
                id: CampaignId::from_uuid(uuid()),
                name: "cost".to_owned(),
                spec: json!({}),
                at,
                idempotency: None,
                budget: BudgetCaps::default(),
                schedule: None,
                priority: 0,
                weight: 1,
                owner: None,
                runs: vec![NewRun { id: run.clone(), input, digest: json!({}) }],
            })
            .await?;
        store
            .workers
            .register_worker(WorkerRecord {
                id: worker.clone(),
                name: "cost".to_owned(),
                embedded: false,
                offers: json!({}),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                last_seen_at: at,
                leases: 0,
                server: None,
                draining: false,
            })
            .await?;
        driver.drive(&run, None).await?;
        let open = store.changes.claim(claim(&worker)).await?.into();
        Ok(Self { store, driver, indexer, recorded, worker, run, open, written, foreseen: 0 })
    }

    /// Carries the run to its end; the cost of each step.
    async fn finish(&mut self) -> anyhow::Result<Vec<Cost>> {
        let mut costs = Vec::new();
        while let Some(step) = self.open.pop_front() {
            ensure!(costs.len() < usize::try_from(MAX_STEPS)?, "the run does not end");
            let output = self.output(&step).await?;
            let (bytes, cpu, began) = (self.written.bytes().await?, cpu_time(), Instant::now());
            let transactions = self.carry_out(&step, output).await?;
            let (wall, cpu) = (began.elapsed(), cpu_time().saturating_sub(cpu));
            let bytes = self.written.bytes().await?.saturating_sub(bytes);
            let index = self.index().await?;
            costs.push(Cost { attempt: attempt_of(&step.key), cpu, wall, bytes, transactions, index });
        }
        let last = costs.iter().map(|cost| cost.attempt).max().unwrap_or(0);
        ensure!(last == MAX_ATTEMPTS, "the run ended with attempt {last}");
        Ok(costs)
    }

    /// Updates the index.
    async fn index(&mut self) -> anyhow::Result<IndexCost> {
        let (bytes, read, cpu) = (self.written.bytes().await?, self.written.bytes_read()?, cpu_time());
        self.indexer.update(std::slice::from_ref(&self.run)).await?;
        let cpu = cpu_time().saturating_sub(cpu);
        let bytes_read = self.written.bytes_read()?.zip(read).map(|(after, before)| after.saturating_sub(before));
        Ok(IndexCost { cpu, bytes_read, bytes: self.written.bytes().await?.saturating_sub(bytes) })
    }

    /// Returns the output of a step. Its texts are stored, because the index reads them.
    async fn output(&self, step: &StepRecord) -> anyhow::Result<Value> {
        let mut output = output(&self.recorded, step)?;
        for pointer in ["/source", "/calls/0/reply"] {
            let Some(hash) = output.pointer_mut(pointer) else { continue };
            let text = text(&format!("{}{pointer}", step.key));
            let stored = ArtifactHash::of(text.as_bytes());
            self.store.artifacts.put_artifact(&stored, text.as_bytes(), SystemClock.now()).await?;
            *hash = json!(stored);
        }
        Ok(output)
    }

    /// Commits a step with the decision that follows, and claims what is next; how many transactions that took.
    async fn carry_out(&mut self, step: &StepRecord, output: Value) -> anyhow::Result<u32> {
        let at = SystemClock.now();
        let end = TryEnd::Completed { output };
        let report = Report { step: step.id.clone(), epoch: step.epoch, end, used: Vec::new(), at };
        let foreseen = self.driver.precompute_decision(&report);
        let mut changes = vec![Change::Report(report)];
        let ticket = foreseen.map(|foreseen| {
            changes.push(Change::Advance(foreseen.advance));
            foreseen.ticket
        });
        changes.push(Change::Claim(claim(&self.worker)));
        let (mut reported, mut advanced) = (Reported::LeaseLost, Advanced::Conflict);
        for answer in self.store.changes.commit(changes).await? {
            match answer {
                Changed::Reported(became) => reported = became,
                Changed::Advanced(became) => advanced = became,
                Changed::Claimed(steps) => self.open.extend(steps),
            }
        }
        ensure!(reported == Reported::Committed, "the report of {} was lost", step.key);
        let settled = ticket.map(|ticket| self.driver.settle(ticket, reported, &advanced));
        if matches!(settled, Some(Settled::Decided | Settled::Ended)) {
            self.foreseen += 1;
            return Ok(1);
        }
        self.driver.drive(&self.run, None).await?;
        self.open.extend(self.store.changes.claim(claim(&self.worker)).await?);
        Ok(3)
    }
}

/// Every step that the run may ask for, one at a time.
fn claim(worker: &WorkerId) -> ClaimRequest {
    let at = SystemClock.now();
    let routes = |device: DeviceUse| {
        let needs = StepKind::ALL.into_iter().map(|kind| kind.needs(Target::Cuda));
        needs.filter(|needs| needs.device == device).map(|needs| needs.route()).collect::<Vec<_>>()
    };
    ClaimRequest {
        worker: worker.clone(),
        routes: routes(DeviceUse::None),
        cpu_slots: 1,
        devices: vec![DeviceLane {
            device: 0,
            exclusive: routes(DeviceUse::Exclusive),
            shared: routes(DeviceUse::Shared),
            shared_slots: 1,
        }],
        at,
        expires_at: at.plus_ms(LEASE_MS),
    }
}

/// What was recorded for a step, told apart from that of other attempts where the run compares them.
fn output(recorded: &Value, step: &StepRecord) -> anyhow::Result<Value> {
    let name = step.key.split('/').next_back().unwrap_or_default();
    let mut output = recorded.get(name).cloned().with_context(|| format!("no output of {name} is recorded"))?;
    let number = attempt_of(&step.key);
    match name {
        "plan" => {
            if let Some(subtasks) = output["plan"]["subtasks"].as_array_mut() {
                subtasks.truncate(1);
            }
        }
        "diagnose" => {
            let text = output["diagnosis"]["modification"].as_str().unwrap_or_default();
            let own: Vec<String> = (0..16).map(|word| format!("word{number}x{word}")).collect();
            output["diagnosis"]["modification"] = json!(format!("{text} {}", own.join(" ")));
        }
        _ => {}
    }
    Ok(output)
}

/// Returns a text of the size of a program, with words of its own.
fn text(name: &str) -> String {
    (0..TEXT_WORDS).fold(name.to_owned(), |text, word| match word % 16 {
        0 => format!("{text} {name}{word}"),
        shared => format!("{text} word{}", shared * word % 400),
    })
}

/// The number in a key like `subtask1/attempt3/build`; 0 for steps of the run as a whole.
fn attempt_of(key: &str) -> u32 {
    key.split('/').nth(1).and_then(|part| part.strip_prefix("attempt")?.parse().ok()).unwrap_or(0)
}

/// What a step of this attempt and its neighbours costs.
fn figure(attempt: u32, costs: &[Cost]) -> Option<AttemptFigure> {
    let of: Vec<&Cost> = costs.iter().filter(|cost| cost.attempt.abs_diff(attempt) <= NEIGHBOURS).collect();
    let steps = u32::try_from(of.len()).ok().filter(|steps| *steps > 0)?;
    let per_step = |sum: f64| sum / f64::from(steps);
    Some(AttemptFigure {
        attempt,
        steps,
        cpu_ms_per_step: per_step(of.iter().map(|cost| ms(cost.cpu)).sum()),
        wall_ms_per_step: per_step(of.iter().map(|cost| ms(cost.wall)).sum()),
        cpu_ms_longest: of.iter().map(|cost| ms(cost.cpu)).fold(0.0, f64::max),
        bytes_per_step: mean(of.iter().map(|cost| cost.bytes)),
        transactions_per_step: per_step(of.iter().map(|cost| f64::from(cost.transactions)).sum()),
        index_cpu_ms_per_step: per_step(of.iter().map(|cost| ms(cost.index.cpu)).sum()),
        index_bytes_read_per_step: of
            .iter()
            .map(|cost| cost.index.bytes_read)
            .collect::<Option<Vec<u64>>>()
            .map(|bytes| mean(bytes.into_iter())),
        index_bytes_per_step: mean(of.iter().map(|cost| cost.index.bytes)),
    })
}

#[expect(clippy::cast_precision_loss, reason = "bytes stay far below 2^52")]
fn mean(bytes: impl ExactSizeIterator<Item = u64>) -> f64 {
    let count = bytes.len().max(1) as f64;
    bytes.sum::<u64>() as f64 / count
}

/// Processor time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn uuid() -> Uuid {
    Uuid::from_u128(OsRandom.uuid())
}

/// Counts what the store writes.
enum Written {
    /// Bytes that this process hands to the system for writing.
    ByThisProcess,
    /// The position in the write-ahead log of the server.
    ToTheLog(Box<PgConnection>),
}

impl Written {
    async fn of(place: &Place) -> anyhow::Result<Self> {
        Ok(match &place.database_url {
            Some(url) => Self::ToTheLog(Box::new(PgConnection::connect(url).await?)),
            None => Self::ByThisProcess,
        })
    }

    async fn bytes(&mut self) -> anyhow::Result<u64> {
        match self {
            Self::ByThisProcess => counter("wchar: "),
            Self::ToTheLog(connection) => {
                let text = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
                let bytes: i64 = sqlx::query_scalar(text).fetch_one(&mut **connection).await?;
                Ok(u64::try_from(bytes)?)
            }
        }
    }

    /// Returns the bytes that this process read from files; none where the database is another process.
    fn bytes_read(&self) -> anyhow::Result<Option<u64>> {
        match self {
            Self::ByThisProcess => counter("rchar: ").map(Some),
            Self::ToTheLog(_) => Ok(None),
        }
    }
}

/// Returns a counter of this process.
fn counter(name: &str) -> anyhow::Result<u64> {
    let counters = fs::read_to_string("/proc/self/io").context("the system does not count bytes")?;
    let line = counters.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.context("the system does not count these bytes")?.parse()?)
}
