//! Tests of Postgres outages: callers get a transient error or their answer, no acknowledged change is lost, and the
//! store recovers by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nightshift_engine::store::{
    CampaignStore, ChangeStore, Database, LeaseStore, Reported, RunStore, StoreError, WorkerStore,
};
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::StepStatus;
use nightshift_store::{PostgresOptions, SqlStore};
use nightshift_testbed::postgres::{Cluster, Settings};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::bench::{Bench, claim_request, done, order, report};
use crate::place::{Place, few_connections};

/// Timeout for the recovery of the store.
const PATIENCE: Duration = Duration::from_mins(1);
/// Number of concurrent tasks.
const TASKS: usize = 6;
/// Minimum number of steps between two outages.
const STEPS_BETWEEN: usize = 15;

/// The acknowledged changes.
#[derive(Default)]
struct Acknowledged {
    results: BTreeMap<StepId, Value>,
    campaigns: Vec<RunId>,
}

/// Returns the value, or none for a transient error. Any other error is a bug.
fn transient<T>(answer: Result<T, StoreError>) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        Err(error) if error.is_transient() => None,
        Err(error) => panic!("{} is not transient: {error}", error.code()),
    }
}

/// Creates runs of one step, claims and reports, until it is stopped.
async fn work(bench: Arc<Bench>, stop: Arc<AtomicBool>, finished: watch::Sender<usize>) -> Acknowledged {
    let store: &SqlStore = &bench.store;
    let mut acknowledged = Acknowledged::default();
    let worker = loop {
        let worker = nightshift_protocol::id::WorkerId::from_uuid(bench.uuid());
        if transient(store.register_worker(crate::bench::worker_record(&worker, bench.now())).await).is_some() {
            break worker;
        }
    };
    while !stop.load(Ordering::SeqCst) {
        let new = bench.new_campaign(1);
        let run = new.runs[0].id.clone();
        if transient(store.create_campaign(new).await).is_none() {
            continue;
        }
        acknowledged.campaigns.push(run.clone());
        let Some(record) = transient(store.load_run(&run).await) else { continue };
        let advance = nightshift_engine::store::Advance {
            run: run.clone(),
            revision: record.revision,
            folded_seq: record.last_seq,
            expects_last_seq: None,
            state: Some(json!({}).into()),
            digest: json!({}),
            schedule: vec![(StepId::from_uuid(bench.uuid()), order("a"))],
            end: None,
            awaits: Vec::new(),
            fence: None,
            at: bench.now(),
        };
        transient(store.advance(advance).await);
        let claim = claim_request(&worker, 2, bench.now());
        for step in transient(store.claim(claim).await).unwrap_or_default() {
            let result = json!({ "by": worker, "epoch": step.epoch });
            // A worker repeats its report until it gets an answer.
            while !stop.load(Ordering::SeqCst) {
                let reported = store.report(report(&step, done(result.clone()), bench.now())).await;
                if let Some(reported) = transient(reported) {
                    assert_eq!(reported, Reported::Committed);
                    acknowledged.results.insert(step.id.clone(), result.clone());
                    finished.send_modify(|finished| *finished += 1);
                    break;
                }
            }
        }
    }
    acknowledged
}

/// Waits until this many more steps are finished.
async fn until_finished(finished: &watch::Sender<usize>, more: usize) {
    let wanted = *finished.borrow() + more;
    let mut seen = finished.subscribe();
    let in_time = tokio::time::timeout(PATIENCE, seen.wait_for(|finished| *finished >= wanted)).await.is_ok();
    assert!(in_time, "only {} of {wanted} steps are finished", *finished.borrow());
}

/// Runs tasks during several outages, and checks the result.
async fn survive(outages: usize, outage: impl Fn(&Cluster) + Send + Sync + 'static) {
    let cluster = Arc::new(Cluster::start(&Settings::default()).unwrap());
    let bench =
        Arc::new(Bench::at(Place::Database(cluster.create_database().unwrap(), tempfile::tempdir().unwrap())).await);
    let (stop, finished) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(0));
    let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(work(bench.clone(), stop.clone(), finished.clone()))).collect();
    let outage = Arc::new(outage);
    for _ in 0..outages {
        until_finished(&finished, STEPS_BETWEEN).await;
        let (cluster, outage) = (cluster.clone(), outage.clone());
        tokio::task::spawn_blocking(move || outage(&cluster)).await.unwrap();
    }
    // It has recovered by itself.
    until_finished(&finished, STEPS_BETWEEN).await;
    stop.store(true, Ordering::SeqCst);
    let mut results = 0;
    for task in tasks {
        let acknowledged = task.await.unwrap();
        for run in &acknowledged.campaigns {
            bench.store.load_run(run).await.unwrap();
        }
        for (step, result) in acknowledged.results {
            let stored = bench.store.load_step(&step).await.unwrap();
            assert_eq!((stored.status, stored.output), (StepStatus::Completed, Some(result)));
            results += 1;
        }
    }
    assert!(results > outages * STEPS_BETWEEN, "{results}");
    bench.assert_sound().await;
    bench.store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_ended_in_the_middle_cost_nothing_that_was_acknowledged() {
    survive(8, |cluster| {
        cluster.kill_backends().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_and_comes_back_lost_nothing_that_was_acknowledged() {
    survive(3, |cluster| cluster.restart().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_the_server_that_is_killed_makes_it_recover_and_nothing_is_lost() {
    survive(2, |cluster| {
        cluster.crash_backend().unwrap();
        cluster.wait_until_it_answers().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_down_calls_say_so_in_time_and_notices_come_again_afterwards() {
    use futures::StreamExt;
    use nightshift_engine::store::Notice;
    let cluster = Cluster::start(&Settings::default()).unwrap();
    let mut bench = Bench::at(Place::Database(cluster.create_database().unwrap(), tempfile::tempdir().unwrap())).await;
    let impatient = PostgresOptions { acquire_timeout_ms: 1_000, ..few_connections() };
    let Place::Database(database, _) = &bench.place else { panic!("it is on Postgres") };
    bench.store = Arc::new(SqlStore::open_postgres(&database.url, impatient).await.unwrap());
    let run = bench.run().await;
    cluster.stop_immediate().unwrap();
    let mut notices = bench.store.notices();
    let began = Instant::now();
    let error = bench.store.create_campaign(bench.new_campaign(1)).await.unwrap_err();
    assert!(error.is_transient() && error.code() == "store.unreachable", "{} {error}", error.code());
    let error = bench.store.load_run(&run).await.unwrap_err();
    assert!(error.is_transient() && error.code() == "store.unreachable", "{} {error}", error.code());
    let worker = nightshift_protocol::id::WorkerId::from_uuid(bench.uuid());
    let error = bench.store.claim(bench.claim_request(&worker, 1)).await.unwrap_err();
    assert!(error.is_transient() && error.code() == "store.unreachable", "{} {error}", error.code());
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    cluster.resume().unwrap();
    assert_eq!(bench.store.load_run(&run).await.unwrap().id, run);
    let unknown = async { while notices.next().await.is_some_and(|notice| notice != Notice::Unknown) {} };
    tokio::time::timeout(PATIENCE, unknown).await.unwrap();
    bench.run().await;
    bench.assert_sound().await;
}
