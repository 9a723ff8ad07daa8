//! How many steps a second the store commits, alone: no workflow, no worker, no HTTP.
//!
//! ```text
//! cargo run --release --example hot_path -p nightshift-store -- FOLDER|postgres://… [RUNS [IN_FLIGHT [STEPS]]]
//! ```
//!
//! Runs of 10 steps; each step is one call of `commit` with a report, the decision that schedules the next step, and the
//! claim of it. The folder or database should be new and empty.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::store::{
    Advance, Advanced, CampaignStore, Change, ChangeStore, Changed, ClaimRequest, Database, NewCampaign, NewRun,
    Report, StepRecord, TryEnd, WorkerRecord, WorkerStore,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::budget::BudgetCaps;
use nightshift_protocol::id::{CampaignId, RunId, StepId, WorkerId};
use nightshift_protocol::machine::Needs;
use nightshift_protocol::run::RunTransition;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::{OpenOptions, PostgresOptions, SqlStore};
use serde_json::json;
use uuid::Uuid;

type Failure = Box<dyn Error + Send + Sync>;

const AT: TimestampMs = TimestampMs(1_000_000);
const USAGE: &str = "hot_path FOLDER|postgres://… [RUNS [IN_FLIGHT [STEPS]]]";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let place = arguments.first().ok_or(USAGE)?;
    let number = |index: usize, default: u32| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (runs, in_flight, steps) = (number(1, 2_000)?, number(2, 64)?, number(3, 10)?);
    let store = if place.starts_with("postgres") {
        SqlStore::open_postgres(place, PostgresOptions::default()).await?
    } else {
        SqlStore::open_sqlite(Path::new(place), OpenOptions::default()).await?
    };
    let bench = Arc::new(Bench {
        store,
        worker: WorkerId::from_uuid(Uuid::now_v7()),
        steps,
        waiting: Mutex::default(),
        courses: Mutex::default(),
        times_ms: Mutex::default(),
    });
    let waiting = bench.prepare(runs).await?;
    bench.waiting.lock().unwrap_or_else(PoisonError::into_inner).extend(waiting);
    let began = Instant::now();
    let tasks: Vec<_> = (0..in_flight).map(|_| tokio::spawn(Arc::clone(&bench).work())).collect();
    for task in tasks {
        task.await??;
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut times = bench.times_ms.lock().unwrap_or_else(PoisonError::into_inner).clone();
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    let committed = f64::from(runs * steps);
    println!(
        "{} on {}: {:.0} steps/s, one run of {steps} steps p50 {:.2} ms, p99 {:.2} ms, {in_flight} in flight",
        committed,
        bench.store.kind(),
        committed / seconds,
        at(50),
        at(99)
    );
    let violations = bench.store.find_violations().await?;
    println!("contradictions in the stored data: {}", violations.len());
    bench.store.close().await?;
    violations.into_iter().next().map_or(Ok(()), |first| Err(first.into()))
}

struct Bench {
    store: SqlStore,
    worker: WorkerId,
    steps: u32,
    waiting: Mutex<VecDeque<RunId>>,
    courses: Mutex<HashMap<RunId, Course>>,
    times_ms: Mutex<Vec<f64>>,
}

/// The position in a run.
struct Course {
    began: Instant,
    revision: u64,
    last_seq: u64,
    done: u32,
}

impl Bench {
    async fn prepare(&self, runs: u32) -> Result<Vec<RunId>, Failure> {
        self.store
            .register_worker(WorkerRecord {
                id: self.worker.clone(),
                name: "bench".to_owned(),
                embedded: false,
                offers: json!({}),
                version: "0".to_owned(),
                last_seen_at: AT,
                leases: 0,
                server: None,
                draining: false,
            })
            .await?;
        let mut all = Vec::new();
        while all.len() < usize::try_from(runs)? {
            let count = (usize::try_from(runs)? - all.len()).min(500);
            let new = |_| NewRun { id: RunId::from_uuid(Uuid::now_v7()), input: json!(0), digest: json!({}) };
            let campaign = NewCampaign {
                id: CampaignId::from_uuid(Uuid::now_v7()),
                name: "bench".to_owned(),
                spec: json!({}),
                at: AT,
                idempotency: None,
                budget: BudgetCaps::default(),
                schedule: None,
                priority: 0,
                weight: 1,
                owner: None,
                runs: (0..count).map(new).collect(),
            };
            all.extend(self.store.create_campaign(campaign).await?.runs);
        }
        Ok(all)
    }

    /// Creates runs, and carries out the steps of all runs that a claim returns.
    async fn work(self: Arc<Self>) -> Result<(), Failure> {
        loop {
            let next = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(run) = next else { return Ok(()) };
            let course = Course { began: Instant::now(), revision: 0, last_seq: 1, done: 0 };
            let mut step = self.commit(Vec::new(), run, course).await?;
            while let Some(done) = step {
                let removed = self.courses.lock().unwrap_or_else(PoisonError::into_inner).remove(&done.run);
                let mut course = removed.ok_or("a claim returned an unknown step: use a new and empty place")?;
                let report = Report {
                    step: done.id.clone(),
                    epoch: done.epoch,
                    end: TryEnd::Completed { output: json!({"sum": course.done}) },
                    used: Vec::new(),
                    at: AT,
                };
                course.done += 1;
                course.last_seq += 1;
                step = self.commit(vec![Change::Report(report)], done.run, course).await?;
            }
        }
    }

    fn decision(&self, run: &RunId, course: &Course) -> Change {
        let is_over = course.done == self.steps;
        let end = is_over.then(|| (RunTransition::Complete, Event::RunCompleted { result: json!(course.done) }));
        let order = StepOrder {
            key: format!("step{}", course.done),
            kind: "add_one".to_owned(),
            needs: Needs::agent(),
            input: json!({"number": course.done}),
            timeout_ms: 60_000,
            retry: RetryPolicy::default(),
            cost_ms: 1,
            reserve: Vec::new(),
        };
        Change::Advance(Box::new(Advance {
            run: run.clone(),
            revision: course.revision,
            folded_seq: course.last_seq,
            expects_last_seq: Some(course.last_seq),
            state: Some(json!({"done": course.done, "steps": self.steps}).into()),
            digest: json!({"done": course.done}),
            schedule: if is_over { Vec::new() } else { vec![(StepId::from_uuid(Uuid::now_v7()), order)] },
            end,
            awaits: Vec::new(),
            fence: None,
            at: AT,
        }))
    }

    /// Commits with the next decision, and with a claim if a step follows. Returns the claimed step.
    async fn commit(
        &self,
        mut changes: Vec<Change>,
        run: RunId,
        mut course: Course,
    ) -> Result<Option<StepRecord>, Failure> {
        changes.push(self.decision(&run, &course));
        let claims = course.done < self.steps;
        if claims {
            changes.push(Change::Claim(ClaimRequest {
                worker: self.worker.clone(),
                routes: vec![Needs::agent().route()],
                cpu_slots: 1,
                devices: Vec::new(),
                at: AT,
                expires_at: AT.plus_ms(3_600_000),
            }));
        }
        // Another task that claims the step may get its answer first, so advance before the commit.
        course.revision += 1;
        course.last_seq += 1;
        let (expected, began) = ((course.revision, course.last_seq), course.began);
        if claims {
            self.courses.lock().unwrap_or_else(PoisonError::into_inner).insert(run, course);
        }
        let mut step = None;
        for changed in self.store.commit(changes).await? {
            match changed {
                Changed::Advanced(Advanced::Committed { revision, last_seq }) if (revision, last_seq) == expected => {}
                Changed::Advanced(other) => return Err(format!("a decision came out as {other:?}").into()),
                Changed::Claimed(steps) => step = steps.into_iter().next(),
                Changed::Reported(_) => {}
            }
        }
        if !claims {
            let took_ms = began.elapsed().as_secs_f64() * 1_000.0;
            self.times_ms.lock().unwrap_or_else(PoisonError::into_inner).push(took_ms);
        }
        if claims && step.is_none() { Err("a claim got no step".into()) } else { Ok(step) }
    }
}
