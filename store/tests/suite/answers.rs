//! Executes commands, to compare the answers of two stores.

use nightshift_engine::store::{
    Advance, ArtifactStore, BoundFrom, BudgetStore, CampaignStore, Change, ChangeStore, Changed, Database,
    KnowledgeStore, LeaseStore, LessonQuery, LessonRecord, NoteRecord, OwnerFence, Ownership, OwnershipStore,
    PageRequest, Pulse, QueueStore, RetentionStore, RunControlStore, RunStore, ScoreRecord, ServerStore, StepRecord,
    StoreError, TryEnd, WorkerStore,
};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::id::{RunId, ServerId};
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::SqlStore;
use serde_json::json;

use crate::bench::{LEASE_MS, LIFE_MS, lost, server_record};
use crate::commands::Command;

/// An answer as text that both stores must agree on, with the ids for later commands.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) is_ok: bool,
    pub(crate) given: Given,
}

#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) steps: Vec<StepRecord>,
    pub(crate) fences: Vec<(RunId, OwnerFence)>,
}

impl Answer {
    /// Errors are equal if their codes are, because their texts name files and servers.
    fn of<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> Self {
        let is_ok = answer.is_ok();
        let text = match answer {
            Ok(value) => format!("{value:?}"),
            Err(error) => {
                assert!(!error.is_transient(), "{error}");
                format!("error {}", error.code())
            }
        };
        Self { text, is_ok, given: Given::default() }
    }

    fn giving(mut self, steps: Vec<StepRecord>, fences: Vec<(RunId, OwnerFence)>) -> Self {
        self.given = Given { steps, fences };
        self
    }
}

/// Sends a heartbeat. Leaves out the clock, which only one of the databases has.
async fn pulse(store: &SqlStore, server: &ServerId, at: TimestampMs) -> Result<Pulse, StoreError> {
    let pulse = store.pulse(server, at, at.plus_ms(LIFE_MS)).await?;
    Ok(Pulse { database_now: None, ..pulse })
}

/// Executes a command on one store.
pub(crate) async fn apply(store: &SqlStore, command: Command, at: TimestampMs) -> Answer {
    match command {
        Command::Create(new) => Answer::of(store.create_campaign(*new).await),
        Command::Decide { run, orders, end, fence } => {
            let record = match store.load_run(&run).await {
                Ok(record) => record,
                Err(error) => return Answer::of::<()>(Err(error)),
            };
            let advance = Advance {
                run,
                revision: record.revision,
                folded_seq: record.last_seq,
                expects_last_seq: None,
                state: Some(crate::bench::state(record.last_seq)),
                digest: json!({ "orders": orders.len() }),
                awaits: if orders.len() == 3 { vec!["plan".to_owned()] } else { Vec::new() },
                schedule: orders,
                end,
                fence,
                at,
            };
            Answer::of(store.advance(advance).await)
        }
        Command::Claim(claim) => {
            let claimed = store.claim(claim).await;
            let steps = claimed.as_ref().cloned().unwrap_or_default();
            Answer::of(claimed).giving(steps, Vec::new())
        }
        Command::Report(report) => Answer::of(store.report(report).await),
        Command::Flush(report, claim) => {
            let changed = store.commit(vec![Change::Report(report), Change::Claim(claim)]).await;
            let steps = match changed.as_deref() {
                Ok([_, Changed::Claimed(steps)]) => steps.clone(),
                _ => Vec::new(),
            };
            Answer::of(changed).giving(steps, Vec::new())
        }
        Command::Heartbeat { worker, leases } => {
            Answer::of(store.heartbeat(&worker, &leases, at, at.plus_ms(LEASE_MS)).await)
        }
        Command::Sweep => {
            let mut texts = Vec::new();
            for lease in store.expired_leases(at, 20).await.unwrap() {
                let end = if lease.step.tries >= 3 {
                    TryEnd::Failed { failure: StepFailure::fatal("worker.lost", "gone") }
                } else {
                    TryEnd::Retry { failure: lost(), at }
                };
                texts.push((lease.clone(), store.expire_lease(&lease.step.id, lease.epoch, end, at).await.unwrap()));
            }
            Answer::of(Ok(texts))
        }
        Command::FireTimers(limit) => Answer::of(store.fire_timers(at, limit).await),
        Command::Control { run, transition } => Answer::of(store.control_run(&run, transition, Some("ops"), at).await),
        Command::Retry { run, key } => Answer::of(store.retry_run(&run, key.as_deref(), None, at).await),
        Command::Signal { run, key } => {
            let signal = Signal::Hint { text: "try tiles".to_owned() };
            Answer::of(store.signal_run(&run, signal, None, key, at).await)
        }
        Command::Priority { run, priority } => Answer::of(store.set_priority(&run, priority, at).await),
        Command::Budget { campaign, caps } => Answer::of(store.set_budget(&campaign, caps, at).await),
        Command::Window { campaign, schedule } => Answer::of(store.set_schedule(&campaign, schedule, at).await),
        Command::Weight { campaign, weight } => Answer::of(store.set_weight(&campaign, weight, at).await),
        Command::Reserve { step, amounts } => Answer::of(store.reserve(&step.id, step.epoch, &amounts, at).await),
        Command::Settle { step, released, used } => {
            Answer::of(store.settle(&step.id, step.epoch, &released, &used, at).await)
        }
        Command::Server { id, sole } => Answer::of(store.register_server(server_record(id, at), sole).await),
        Command::Pulse(server) => Answer::of(pulse(store, &server, at).await),
        Command::Retire(server) => Answer::of(store.retire_server(&server, at).await),
        Command::Reap => Answer::of(store.reap_servers(at).await),
        Command::Acquire { server, run: None } => {
            let acquired = store.acquire_runs(&server, 3, at).await;
            let fences = acquired.as_ref().cloned().unwrap_or_default();
            Answer::of(acquired).giving(Vec::new(), fences)
        }
        Command::Acquire { server, run: Some(run) } => {
            let owner = store.acquire_run(&server, &run, at).await;
            let fences = match &owner {
                Ok(Ownership::Mine(fence)) => vec![(run, fence.clone())],
                _ => Vec::new(),
            };
            Answer::of(owner).giving(Vec::new(), fences)
        }
        Command::Worker(worker) => Answer::of(store.register_worker(*worker).await),
        Command::Drain { worker, draining } => Answer::of(store.drain_worker(&worker, draining).await),
        Command::Forget(before) => Answer::of(store.forget_workers(before).await),
        Command::Artifact(bytes) => Answer::of(store.put_artifact(&ArtifactHash::of(&bytes), &bytes, at).await),
        Command::Prune { campaign: Some(campaign), limit } => Answer::of(store.prune_campaign(&campaign, limit).await),
        Command::Prune { campaign: None, limit } => {
            let before = TimestampMs(at.0 - 30_000);
            let due = store.campaigns_to_prune(at, limit).await.unwrap();
            Answer::of(store.prune_artifacts(before, limit).await.map(|pruned| (due, pruned)))
        }
        Command::Look => look(store).await,
        Command::Know { run, what, number } => know(store, run, what, number, at).await,
    }
}

async fn know(store: &SqlStore, run: RunId, what: usize, number: u32, at: TimestampMs) -> Answer {
    let lesson = LessonRecord {
        run: run.clone(),
        attempt: number,
        task: "a\0b".to_owned(),
        operator_class: format!("class{}", number % 2),
        bound: "memory".to_owned(),
        bound_from: BoundFrom::Plan,
        device: format!("device{number}"),
        change: "tiles".to_owned(),
        gain_ppm: 1_000_000 + u64::from(number),
        certain: number > 1,
        at,
    };
    match what {
        0 => Answer::of(store.record_lesson(lesson).await),
        1 => {
            let operator_classes = vec!["class0".to_owned(), "class1".to_owned()];
            let device = Some(format!("device{number}"));
            let query = LessonQuery { operator_classes, device, except_run: Some(run), limit: 9, bound: None };
            Answer::of(store.find_lessons(query).await)
        }
        2 => Answer::of(store.pin_retrieval(&run, &format!("step{number}"), json!({ "at": at.0 }), at).await),
        3 => {
            let row = json!({ "reward": 1.0 / 3.0, "number": number });
            Answer::of(
                store
                    .put_scores(vec![ScoreRecord { run, attempt: number, formula: "f".to_owned(), score: row, at }])
                    .await,
            )
        }
        4 => Answer::of(store.list_scores(&run).await),
        _ => {
            let note = |n: u32| NoteRecord {
                id: format!("note{n}"),
                source: "ours".to_owned(),
                title: format!("number {n}"),
                body: "tiles, and waiting\0".to_owned(),
                bounds: vec!["memory".to_owned()],
                operators: Vec::new(),
                architectures: Vec::new(),
            };
            let changed = store.replace_notes("ours", (0..number).map(note).collect(), at).await.unwrap();
            // Equal ranks are sorted by name.
            Answer::of(store.search_notes(&["waits".to_owned()], 9).await.map(|found| (changed, found)))
        }
    }
}

/// Returns the content of the lists.
async fn look(store: &SqlStore) -> Answer {
    let page = || PageRequest { limit: 100, before: None };
    let lists = (
        store.list_campaigns(page()).await.unwrap(),
        store.list_runs(None, None, page()).await.unwrap(),
        store.list_workers(100).await.unwrap(),
        store.list_servers().await.unwrap(),
        store.runs_to_drive(100).await.unwrap(),
        store.gauges().await.unwrap(),
        store.ready_routes(100).await.unwrap(),
    );
    Answer::of(Ok(lists))
}
