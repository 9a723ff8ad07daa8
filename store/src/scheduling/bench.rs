//! Test databases on SQLite and Postgres with a campaign, a run and a worker, for the tests of the hot path.

use std::sync::atomic::{AtomicU64, Ordering};

use nightshift_engine::event::Event;
use nightshift_engine::retry::RetryPolicy;
use nightshift_engine::store::{
    Advance, Advanced, Change, Changed, ClaimRequest, Report, Reported, StepRecord, StoreError, TryEnd,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::budget::Amount;
use nightshift_protocol::id::{RunId, StepId, WorkerId};
use nightshift_protocol::machine::Needs;
use nightshift_protocol::run::RunTransition;
use nightshift_protocol::time::TimestampMs;
use nightshift_testbed::postgres::{Cluster, Database};
use serde_json::json;
use uuid::Uuid;

use crate::connection::Connection;
use crate::postgres::hot::Hot;
use crate::process_cache::ProcessCache;
use crate::sqlite::lock::ProcessLock;
use crate::transaction::Transaction;
use crate::value::{Value, values};

/// Default time of every event in the tests.
pub(super) const AT: TimestampMs = TimestampMs(1_000_000);

pub(super) struct Bench {
    pub(super) connection: Connection,
    memory: ProcessCache,
    place: Fixture,
}

enum Fixture {
    #[expect(dead_code, reason = "held as long as the bench")]
    Sqlite(tempfile::TempDir, ProcessLock),
    Postgres(Database),
}

fn uuid() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u128(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Creates one on each database.
pub(super) async fn both() -> [Bench; 2] {
    let folder = tempfile::tempdir().unwrap();
    let opened = crate::sqlite::open::open(folder.path(), &crate::sqlite::open::OpenOptions::default()).await.unwrap();
    let on_sqlite = Bench {
        connection: Connection::SqliteWriter(Box::new(opened.writer)),
        memory: ProcessCache::default(),
        place: Fixture::Sqlite(folder, opened.lock),
    };
    let database = Cluster::shared().create_database().unwrap();
    let options = crate::postgres::open::PostgresOptions::default();
    let opened = crate::postgres::open::open(&database.url, &options, 1).await.unwrap();
    let on_postgres = Bench {
        connection: Connection::Hot(Box::new(Hot::new(opened.hot.acquire().await.unwrap()))),
        memory: ProcessCache::default(),
        place: Fixture::Postgres(database),
    };
    [on_sqlite, on_postgres]
}

impl Bench {
    pub(super) async fn sql(&mut self, sql: &'static str, values: Vec<Value>) {
        self.connection.execute(sql, values).await.unwrap();
    }

    pub(super) async fn number(&mut self, sql: &'static str) -> i64 {
        self.connection.fetch_one(sql, values![]).await.unwrap().i64(0).unwrap()
    }

    pub(super) async fn campaign(&mut self) -> i64 {
        let id = i64::try_from(uuid().as_u128()).unwrap();
        let insert = "INSERT INTO campaign (id, public_id, name, spec, created_at_ms) VALUES ($1, $2, 'n', '{}', 0)";
        self.sql(insert, values![id, format!("cmp_{id:032}")]).await;
        self.sql("INSERT INTO campaign_clock (campaign_id, vtime) VALUES ($1, 0)", values![id]).await;
        id
    }

    pub(super) async fn budget(&mut self, campaign: i64, resource: &str, cap: i64) {
        let insert = "INSERT INTO budget (campaign_id, resource, cap) VALUES ($1, $2, $3)";
        self.sql(insert, values![campaign, resource, cap]).await;
    }

    /// Creates a run with the first event of its log.
    pub(super) async fn run(&mut self, campaign: i64) -> RunId {
        let run = RunId::from_uuid(uuid());
        let insert = "INSERT INTO run (public_id, campaign_id, status, last_seq, wake_seq, digest, created_at_ms) \
                      VALUES ($1, $2, 'running', 1, 1, '{}', 0)";
        self.sql(insert, values![run.as_str(), campaign]).await;
        let begun = "INSERT INTO event (run_id, seq, at_ms, kind, body) SELECT id, 1, 0, 'run_created', $2 FROM run \
                     WHERE public_id = $1";
        let created = serde_json::to_string(&Event::RunCreated { input: json!(null) }).unwrap();
        self.sql(begun, values![run.as_str(), created]).await;
        run
    }

    pub(super) async fn worker(&mut self) -> WorkerId {
        let worker = WorkerId::from_uuid(uuid());
        let insert = "INSERT INTO worker (public_id, name, embedded, offers, version) VALUES ($1, 'w', 0, '{}', '1')";
        self.sql(insert, values![worker.as_str()]).await;
        worker
    }

    /// Opens another connection to the same database, on Postgres.
    pub(super) async fn second_connection(&self) -> Connection {
        let Fixture::Postgres(database) = &self.place else { panic!() };
        let options = crate::postgres::open::PostgresOptions::default();
        let opened = crate::postgres::open::open(&database.url, &options, 1).await.unwrap();
        Connection::Postgres(opened.pool.acquire().await.unwrap())
    }

    /// Flushes groups in one transaction, and commits.
    pub(super) async fn flush(&mut self, groups: &[Vec<Change>]) -> Vec<Result<Vec<Changed>, StoreError>> {
        self.connection.begin().await.unwrap();
        let mut transaction = Transaction::new(&mut self.connection, &self.memory);
        let groups: Vec<&[Change]> = groups.iter().map(Vec::as_slice).collect();
        let flushed = super::flush(&mut transaction, &groups).await.unwrap();
        let (routes, rank) = (std::mem::take(&mut transaction.routes), transaction.claimed_rank);
        self.connection.commit().await.unwrap();
        self.memory.remember(routes, rank);
        flushed.answers
    }

    /// Returns the number of database round trips, on Postgres.
    pub(super) fn round_trips(&self) -> Option<u64> {
        match &self.connection {
            Connection::Hot(connection) => Some(connection.round_trips),
            _ => None,
        }
    }

    pub(super) async fn one(&mut self, change: Change) -> Changed {
        self.flush(&[vec![change]]).await.pop().unwrap().unwrap().pop().unwrap()
    }

    pub(super) async fn advance(&mut self, advance: Advance) -> Advanced {
        let Changed::Advanced(advanced) = self.one(Change::Advance(Box::new(advance))).await else { panic!() };
        advanced
    }

    pub(super) async fn claim(&mut self, claim: ClaimRequest) -> Vec<StepRecord> {
        let Changed::Claimed(steps) = self.one(Change::Claim(claim)).await else { panic!() };
        steps
    }

    pub(super) async fn report(&mut self, report: Report) -> Reported {
        let Changed::Reported(reported) = self.one(Change::Report(report)).await else { panic!() };
        reported
    }

    /// Creates a run with one leased step.
    pub(super) async fn leased(&mut self, campaign: i64, reserve: Vec<Amount>) -> (RunId, WorkerId, StepRecord) {
        let (run, worker) = (self.run(campaign).await, self.worker().await);
        let scheduled = advance(&run, 0, vec![StepOrder { reserve, ..order("a") }]);
        assert!(self.advance(scheduled).await.is_committed());
        let step = self.claim(claim(&worker, 1)).await.pop().unwrap();
        (run, worker, step)
    }
}

pub(super) fn order(key: &str) -> StepOrder {
    StepOrder {
        key: key.to_owned(),
        kind: "test".to_owned(),
        needs: Needs::agent(),
        input: json!({"for": key}),
        timeout_ms: 60_000,
        retry: RetryPolicy::default(),
        cost_ms: 10,
        reserve: Vec::new(),
    }
}

pub(super) fn advance(run: &RunId, revision: u64, orders: Vec<StepOrder>) -> Advance {
    Advance {
        run: run.clone(),
        revision,
        folded_seq: 1,
        expects_last_seq: None,
        state: Some(json!({"n": revision}).into()),
        digest: json!({}),
        schedule: orders.into_iter().map(|order| (StepId::from_uuid(uuid()), order)).collect(),
        end: None,
        awaits: Vec::new(),
        fence: None,
        at: AT,
    }
}

pub(super) fn ending(run: &RunId, revision: u64) -> Advance {
    let end = Some((RunTransition::Complete, Event::RunCompleted { result: json!(1) }));
    Advance { end, ..advance(run, revision, Vec::new()) }
}

pub(super) fn claim(worker: &WorkerId, cpu_slots: u32) -> ClaimRequest {
    ClaimRequest {
        worker: worker.clone(),
        routes: vec![Needs::agent().route()],
        cpu_slots,
        devices: Vec::new(),
        at: AT,
        expires_at: AT.plus_ms(15_000),
    }
}

pub(super) fn completed(step: &StepRecord) -> Report {
    report(step, TryEnd::Completed { output: json!({"of": step.key}) })
}

pub(super) fn report(step: &StepRecord, end: TryEnd) -> Report {
    Report { step: step.id.clone(), epoch: step.epoch, end, used: Vec::new(), at: AT.plus_ms(5) }
}
