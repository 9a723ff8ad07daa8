//! Rare operations through the port, on both databases.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::store::{
    Advance, ArchiveStore as _, ArtifactStore as _, BudgetStore as _, CampaignStore as _, ChangeStore as _, ChangedRun,
    ClaimRequest, Creation, CreationStore as _, Database as _, LeaseStore as _, ModelCallRecord, ModelCallStore as _,
    NewCampaign, NewRun, Notice, Report, Reservation, RetentionStore as _, RunControlStore as _, RunStore as _,
    StepRecord, TokenRecord, TokenStore as _, TryEnd, WorkerRecord, WorkerStore as _,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::access::{Role, TokenView};
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{Amount, BudgetCaps, BudgetLine, Resource};
use nightshift_protocol::id::{CampaignId, RunId, StepId, TokenId, WorkerId};
use nightshift_protocol::machine::Needs;
use nightshift_protocol::run::{RunStatus, RunTransition};
use nightshift_protocol::signal::Signal;
use nightshift_protocol::time::TimestampMs;
use nightshift_testbed::postgres::{Cluster, Database};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{OpenOptions, PostgresOptions, SqlStore};

const AT: TimestampMs = TimestampMs(1_000_000);

fn uuid() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

struct Bench {
    store: SqlStore,
    _place: (Option<tempfile::TempDir>, Option<Database>),
}

async fn both() -> [Bench; 2] {
    let folder = tempfile::tempdir().unwrap();
    let on_sqlite = SqlStore::open_sqlite(folder.path(), OpenOptions::default()).await.unwrap();
    let database = Cluster::shared().create_database().unwrap();
    let on_postgres = SqlStore::open_postgres(&database.url, PostgresOptions::default()).await.unwrap();
    [
        Bench { store: on_sqlite, _place: (Some(folder), None) },
        Bench { store: on_postgres, _place: (None, Some(database)) },
    ]
}

fn tokens(amount: u64) -> Amount {
    Amount { resource: Resource::Tokens, amount }
}

impl Bench {
    async fn campaign(&self, budget: BudgetCaps, input: Value) -> (CampaignId, RunId) {
        let (id, run) = (CampaignId::from_uuid(uuid()), RunId::from_uuid(uuid()));
        let new = NewCampaign {
            id: id.clone(),
            name: "n".to_owned(),
            spec: json!({}),
            at: AT,
            idempotency: None,
            budget,
            schedule: None,
            priority: 0,
            weight: 1,
            owner: None,
            runs: vec![NewRun { id: run.clone(), input, digest: json!({}) }],
        };
        self.store.create_campaign(new).await.unwrap();
        (id, run)
    }

    async fn schedule(&self, run: &RunId, keys: &[&str], reserve: &[Amount]) {
        let record = self.store.load_run(run).await.unwrap();
        let order = |key: &str| StepOrder {
            key: key.to_owned(),
            kind: "plan".to_owned(),
            needs: Needs::agent(),
            input: json!({"key": key}),
            timeout_ms: 1_000,
            retry: RetryPolicy::default(),
            cost_ms: 1_000,
            reserve: reserve.to_vec(),
        };
        let advance = Advance {
            run: run.clone(),
            revision: record.revision,
            folded_seq: record.last_seq,
            expects_last_seq: None,
            state: Some(json!({}).into()),
            digest: json!({}),
            schedule: keys.iter().map(|key| (StepId::from_uuid(uuid()), order(key))).collect(),
            end: None,
            awaits: vec!["plan".to_owned()],
            fence: None,
            at: AT,
        };
        assert!(self.store.advance(advance).await.unwrap().is_committed());
    }

    async fn worker(&self) -> WorkerId {
        let id = WorkerId::from_uuid(uuid());
        let worker = WorkerRecord {
            id: id.clone(),
            name: "w".to_owned(),
            embedded: false,
            offers: json!({}),
            version: "1".to_owned(),
            last_seen_at: AT,
            leases: 0,
            server: None,
            draining: false,
        };
        self.store.register_worker(worker).await.unwrap();
        id
    }

    async fn claim(&self, worker: &WorkerId) -> Vec<StepRecord> {
        let claim = ClaimRequest {
            worker: worker.clone(),
            routes: vec![Needs::agent().route()],
            cpu_slots: 10,
            devices: Vec::new(),
            at: AT,
            expires_at: AT.plus_ms(1_000),
        };
        self.store.claim(claim).await.unwrap()
    }

    async fn complete(&self, step: &StepRecord, output: Value, used: &[Amount]) {
        let end = TryEnd::Completed { output };
        let report = Report { step: step.id.clone(), epoch: step.epoch, end, used: used.to_vec(), at: AT };
        self.store.report(report).await.unwrap();
    }

    async fn end(&self, run: &RunId, at: TimestampMs) {
        let record = self.store.load_run(run).await.unwrap();
        let advance = Advance {
            run: run.clone(),
            revision: record.revision,
            folded_seq: record.last_seq,
            expects_last_seq: None,
            state: Some(json!({"over": true}).into()),
            digest: json!({}),
            schedule: Vec::new(),
            end: Some((RunTransition::Complete, Event::RunCompleted { result: json!(1) })),
            awaits: Vec::new(),
            fence: None,
            at,
        };
        assert!(self.store.advance(advance).await.unwrap().is_committed());
    }

    async fn line(&self, campaign: &CampaignId, resource: Resource) -> BudgetLine {
        let lines = self.store.load_budget(campaign).await.unwrap();
        assert_eq!(lines.len(), Resource::ALL.len());
        *lines.iter().find(|line| line.resource == resource).unwrap()
    }

    async fn is_sound(&self) {
        assert_eq!(self.store.find_violations().await.unwrap(), Vec::<String>::new());
    }
}

fn call(run: &RunId, released: u64, used: u64) -> ModelCallRecord {
    ModelCallRecord {
        run: run.clone(),
        step_key: "a".to_owned(),
        turn: 1,
        request_hash: "r".to_owned(),
        summary: json!({"reply": "x"}),
        released: vec![tokens(released)],
        used: vec![tokens(used)],
        at: AT,
    }
}

#[tokio::test]
async fn a_model_call_is_reserved_before_and_settled_once() {
    for bench in both().await {
        let caps = BudgetCaps { tokens: Some(100), ..BudgetCaps::default() };
        let (campaign, run) = bench.campaign(caps, json!({})).await;
        bench.schedule(&run, &["a", "b"], &[]).await;
        let worker = bench.worker().await;
        let steps = bench.claim(&worker).await;
        let (a, b) = (&steps[0], &steps[1]);
        let reserve = |step: &StepRecord, amount| {
            let (id, epoch) = (step.id.clone(), step.epoch);
            let store = &bench.store;
            async move { store.reserve(&id, epoch, &[tokens(amount)], AT).await.unwrap() }
        };
        assert_eq!(reserve(a, 60).await, Reservation::Granted);
        let Reservation::Wait(line) = reserve(b, 60).await else { panic!("parallel work overspends") };
        assert_eq!((line.used, line.reserved), (0, 60));
        let Reservation::Exhausted(_) = reserve(b, 101).await else { panic!("it never fits") };
        assert_eq!(bench.store.reserve(&b.id, b.epoch + 1, &[tokens(1)], AT).await.unwrap(), Reservation::LeaseLost);
        bench.is_sound().await;
        for _ in 0..2 {
            bench.store.record_model_call(call(&run, 60, 45), Vec::new()).await.unwrap();
            let line = bench.line(&campaign, Resource::Tokens).await;
            assert_eq!((line.used, line.reserved), (45, 0), "a repeated call is paid once");
        }
        assert_eq!(reserve(b, 55).await, Reservation::Granted);
        bench.store.settle(&b.id, b.epoch, &[tokens(55)], &[tokens(5)], AT).await.unwrap();
        let line = bench.line(&campaign, Resource::Tokens).await;
        assert_eq!((line.used, line.reserved), (50, 0));
        bench.is_sound().await;
    }
}

#[tokio::test]
async fn a_budget_that_is_raised_lets_blocked_steps_begin() {
    for bench in both().await {
        let caps = BudgetCaps { tokens: Some(10), ..BudgetCaps::default() };
        let (campaign, run) = bench.campaign(caps, json!({})).await;
        bench.schedule(&run, &["a", "b", "c"], &[tokens(6)]).await;
        let heads = bench.store.list_step_heads(&run).await.unwrap();
        assert_eq!(heads[1].blocked_on, Some(Resource::Tokens));
        let worker = bench.worker().await;
        assert_eq!(bench.claim(&worker).await.len(), 1);
        let caps = BudgetCaps { tokens: Some(12), ..BudgetCaps::default() };
        bench.store.set_budget(&campaign, caps, AT).await.unwrap();
        assert_eq!(bench.claim(&worker).await.len(), 1, "room for one more");
        bench.is_sound().await;
        bench.store.control_run(&run, RunTransition::Pause, Some("me"), AT).await.unwrap();
        bench.store.control_run(&run, RunTransition::Resume, None, AT).await.unwrap();
        assert_eq!(bench.line(&campaign, Resource::Tokens).await.reserved, 12);
        bench.is_sound().await;
    }
}

#[tokio::test]
async fn a_signal_takes_effect_once_and_only_in_an_unfinished_run() {
    for bench in both().await {
        let (_, run) = bench.campaign(BudgetCaps::default(), json!({})).await;
        let mut notices = bench.store.notices();
        let signal = Signal::Hint { text: "tile it".to_owned() };
        let key = || Some(("k".to_owned(), "d".to_owned()));
        for _ in 0..2 {
            bench.store.signal_run(&run, signal.clone(), Some("me\0"), key(), AT).await.unwrap();
        }
        assert_eq!(notices.next().await.unwrap(), changed(run.clone()));
        let events = bench.store.events_after(&run, 1, 10).await.unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(
            events[0].event,
            Event::SignalReceived { signal: signal.clone(), by: Some("me\u{fffd}".to_owned()) }
        );
        let other = Some(("k".to_owned(), "other".to_owned()));
        let conflict = bench.store.signal_run(&run, signal.clone(), None, other, AT).await.unwrap_err();
        assert_eq!(conflict.code(), "request.idempotency_conflict");
        bench.end(&run, AT).await;
        assert_eq!(bench.store.signal_run(&run, signal, None, None, AT).await.unwrap_err().code(), "run.over");
        bench.is_sound().await;
    }
}

#[tokio::test]
async fn an_artifact_comes_in_parts_and_its_hash_decides() {
    let bytes: Vec<u8> = (0..600_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let (hash, size) = (ArtifactHash::of(&bytes), 600_000);
    for bench in both().await {
        let store = &bench.store;
        assert_eq!(store.artifact_progress(&hash).await.unwrap(), None);
        let half = store.append_artifact(&hash, size, 0, &bytes[..300_000], AT).await.unwrap();
        assert_eq!((half.stored_bytes, half.complete), (300_000, false));
        let wrong = store.append_artifact(&hash, size, 5, &bytes[..5], AT).await.unwrap_err();
        assert_eq!(wrong.code(), "artifact.wrong_offset");
        let garbled = store.append_artifact(&hash, size, 300_000, &vec![7; 300_000], AT).await.unwrap_err();
        assert_eq!(garbled.code(), "artifact.wrong_hash");
        assert_eq!(store.artifact_progress(&hash).await.unwrap(), None, "what is wrong is forgotten");
        store.append_artifact(&hash, size, 0, &bytes[..400_001], AT).await.unwrap();
        assert_eq!(store.get_artifact(&hash).await.unwrap_err().code(), "artifact.not_found");
        assert!(store.append_artifact(&hash, size, 400_001, &bytes[400_001..], AT).await.unwrap().complete);
        assert_eq!(store.get_artifact(&hash).await.unwrap(), bytes);
        assert_eq!(store.read_artifact(&hash, 262_000, 200_000).await.unwrap(), &bytes[262_000..462_000]);
        assert_eq!(store.read_artifact(&hash, 599_999, 10).await.unwrap(), &bytes[599_999..]);
        assert_eq!(store.read_artifact(&hash, 700_000, 10).await.unwrap(), Vec::<u8>::new());
        let empty = ArtifactHash::of(b"");
        assert!(store.append_artifact(&empty, 0, 0, b"", AT).await.unwrap().complete);
        bench.is_sound().await;
    }
}

#[tokio::test]
async fn a_campaign_travels_from_one_store_to_the_other_and_is_pruned_where_it_was() {
    let bytes = b"a source".to_vec();
    let hash = ArtifactHash::of(&bytes);
    let [here, there] = both().await;
    for (from, to) in [(&here, &there), (&there, &here)] {
        from.store.put_artifact(&hash, &bytes, AT).await.unwrap();
        let (campaign, run) = from.campaign(BudgetCaps::default(), json!({"source": hash.as_str()})).await;
        from.schedule(&run, &["a", "b"], &[]).await;
        let worker = from.worker().await;
        let steps = from.claim(&worker).await;
        from.complete(&steps[0], json!({"text": "1\0\"'{}", "number": 0.1 + 0.2}), &[]).await;
        from.store.record_model_call(call(&run, 0, 7), Vec::new()).await.unwrap();
        let archive = from.store.export_campaign(&campaign).await.unwrap();
        assert_eq!(archive.artifacts, std::slice::from_ref(&hash));
        assert!(from.store.import_campaign(archive.clone(), AT).await.unwrap().existed, "it is the same");
        if to.store.artifact_progress(&hash).await.unwrap().is_none() {
            let missing = to.store.import_campaign(archive.clone(), AT).await.unwrap_err();
            assert_eq!(missing.code(), "archive.artifact_missing");
        }
        to.store.put_artifact(&hash, &bytes, AT).await.unwrap();
        let imported = to.store.import_campaign(archive.clone(), AT).await.unwrap();
        assert_eq!((imported.runs, imported.existed), (vec![run.clone()], false));
        assert!(to.store.import_campaign(archive.clone(), AT).await.unwrap().existed);
        assert_eq!(to.store.load_run(&run).await.unwrap().status, RunStatus::Paused);
        let step = from.store.list_step_heads(&run).await.unwrap().remove(0).id;
        assert_eq!(to.store.load_step(&step).await.unwrap().output, from.store.load_step(&step).await.unwrap().output);
        to.is_sound().await;
        to.store.control_run(&run, RunTransition::Resume, None, AT).await.unwrap();
        let other_worker = to.worker().await;
        let again = to.claim(&other_worker).await;
        assert_eq!(
            again.iter().map(|step| step.key.as_str()).collect::<Vec<_>>(),
            ["b"],
            "what was leased begins anew"
        );
        to.is_sound().await;
        let differs = to.store.import_campaign(archive, AT).await.unwrap_err();
        assert_eq!(differs.code(), "archive.differs");

        assert_eq!(from.store.prune_campaign(&campaign, 10).await.unwrap_err().code(), "campaign.not_finished");
        from.end(&run, AT).await;
        assert_eq!(from.store.campaigns_to_prune(AT, 10).await.unwrap(), []);
        assert_eq!(from.store.campaigns_to_prune(AT.plus_ms(1), 10).await.unwrap(), std::slice::from_ref(&campaign));
        let later = AT.plus_ms(5);
        assert_eq!(from.store.prune_artifacts(later, 10).await.unwrap().artifacts, 0, "it is named");
        let mut pruned = from.store.prune_campaign(&campaign, 1).await.unwrap();
        assert!(pruned.more && pruned.campaigns == 0);
        while pruned.more {
            from.is_sound().await;
            pruned = from.store.prune_campaign(&campaign, 1).await.unwrap();
        }
        assert_eq!(pruned.campaigns, 1);
        assert_eq!(from.store.load_campaign(&campaign).await.unwrap_err().code(), "campaign.not_found");
        from.is_sound().await;
    }
    here.store.prune_artifacts(AT.plus_ms(5), 10).await.unwrap();
}

#[tokio::test]
async fn a_token_is_found_by_its_secret_and_revoked_once() {
    for bench in both().await {
        let store = &bench.store;
        let view = TokenView {
            id: TokenId::from_uuid(uuid()),
            name: "ci".to_owned(),
            role: Role::Operator,
            created_at: AT,
            expires_at: Some(AT.plus_ms(9)),
            revoked_at: None,
            last_used_at: None,
        };
        let record = TokenRecord { view: view.clone(), secret_hash: "s".to_owned() };
        store.create(Creation::Token(record.clone()), None).await.unwrap();
        store.create(Creation::Token(record.clone()), None).await.unwrap();
        let other = TokenRecord { secret_hash: "t".to_owned(), ..record };
        assert_eq!(store.create(Creation::Token(other), None).await.unwrap_err().code(), "token.exists");
        assert_eq!(store.find_token("s").await.unwrap(), Some(view.clone()));
        assert_eq!(store.find_token("x").await.unwrap(), None);
        store.touch_token(&view.id, AT.plus_ms(1)).await.unwrap();
        store.revoke_token(&view.id, AT.plus_ms(2)).await.unwrap();
        store.revoke_token(&view.id, AT.plus_ms(3)).await.unwrap();
        let listed = &store.list_tokens().await.unwrap()[0];
        assert_eq!((listed.last_used_at, listed.revoked_at), (Some(AT.plus_ms(1)), Some(AT.plus_ms(2))));
        let unknown = TokenId::from_uuid(uuid());
        assert_eq!(store.revoke_token(&unknown, AT).await.unwrap_err().code(), "token.not_found");
    }
}

#[tokio::test]
async fn workers_are_seen_drained_and_deleted() {
    for bench in both().await {
        let store = &bench.store;
        let (_, run) = bench.campaign(BudgetCaps::default(), json!({})).await;
        bench.schedule(&run, &["a"], &[]).await;
        let (holds, idle) = (bench.worker().await, bench.worker().await);
        let step = bench.claim(&holds).await.remove(0);
        let unknown = WorkerId::from_uuid(uuid());
        store.workers_seen(&[holds.clone(), unknown], AT.plus_ms(3)).await.unwrap();
        assert_eq!(store.load_worker(&holds).await.unwrap().last_seen_at, AT.plus_ms(3));
        store.drain_worker(&idle, true).await.unwrap();
        assert!(store.load_worker(&idle).await.unwrap().draining);
        assert_eq!(store.forget_workers(AT.plus_ms(9)).await.unwrap(), 1, "who holds a step is not forgotten");
        assert_eq!(store.load_worker(&idle).await.unwrap_err().code(), "worker.not_found");
        let gauges = store.gauges().await.unwrap();
        assert_eq!((gauges.leases, gauges.ready.len(), gauges.runs.running), (1, 0, 1));
        assert_eq!(gauges.oldest_lease, [(Needs::agent().route(), AT)]);
        bench.complete(&step, json!(1), &[]).await;
        assert_eq!(store.forget_workers(AT.plus_ms(9)).await.unwrap(), 1);
        assert_eq!(store.load_step(&step.id).await.unwrap().worker, Some(holds), "its id stays");
        bench.is_sound().await;
    }
}

#[tokio::test]
async fn another_process_on_the_same_database_gets_one_notice_per_commit() {
    let database = Cluster::shared().create_database().unwrap();
    let one = SqlStore::open_postgres(&database.url, PostgresOptions::default()).await.unwrap();
    let two = SqlStore::open_postgres(&database.url, PostgresOptions::default()).await.unwrap();
    let mut told = one.notices();
    let bench = Bench { store: one, _place: (None, Some(database)) };
    let mut heard = two.notices();
    // The other store may not listen yet, so repeat until it does.
    let mut listens = false;
    for _ in 0..200 {
        let (_, run) = bench.campaign(BudgetCaps::default(), json!({})).await;
        listens = until(&mut heard, &changed(run), Duration::from_millis(500)).await;
        if listens {
            break;
        }
    }
    assert!(listens, "two hundred commits were not heard");
    let (_, run) = bench.campaign(BudgetCaps::default(), json!({})).await;
    bench.schedule(&run, &["a"], &[]).await;
    let ready = Notice::Ready(Needs::agent().route());
    assert!(until(&mut heard, &ready, PATIENCE).await);
    let (_, last) = bench.campaign(BudgetCaps::default(), json!({})).await;
    // Our own messages return before later ones. A duplicate notice would have arrived by then.
    assert!(until(&mut heard, &changed(last.clone()), PATIENCE).await);
    let mut here = Vec::new();
    while here.last() != Some(&changed(last.clone())) {
        here.push(told.next().await.unwrap());
    }
    assert_eq!(here.iter().filter(|notice| **notice == ready).count(), 1, "{here:?}");
}

/// The notice of a run without an owner that waits for a decision.
fn changed(run: RunId) -> Notice {
    Notice::RunChanged(ChangedRun::undecided(run, None))
}

/// Timeout of a notice that must arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns whether the notice arrives in this time.
async fn until(heard: &mut BoxStream<'static, Notice>, wanted: &Notice, limit: Duration) -> bool {
    let found = async { while heard.next().await.unwrap() != *wanted {} };
    tokio::time::timeout(limit, found).await.is_ok()
}
