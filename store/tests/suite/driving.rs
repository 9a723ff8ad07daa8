//! Whole runs through driver and sweeper: undisturbed, across restarts, and with every single write failing once.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::driver::Driven;
use nightshift_engine::event::Event;
use nightshift_engine::store::{NewCampaign, Store, StoreError};
use nightshift_engine::workflow::Workflow;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_store::fault::{FaultPoint, FaultyStore};
use nightshift_store::{OpenOptions, SqliteStore};

use crate::bench::{Bench, HandClock, events, open};
use crate::toy::{Party, Toy};

/// How long a test waits for a file to be given free.
const PATIENCE: Duration = Duration::from_secs(20);

fn party(bench: &Bench, workflow: Arc<dyn Workflow>) -> Party {
    Party::new(bench.store.clone(), workflow, bench.clock.clone(), 1_000)
}

/// Creates the campaign, again when the store fails.
async fn create(store: &dyn Store, new: &NewCampaign) -> RunId {
    for _ in 0..3 {
        if let Ok(mut created) = store.create_campaign(new.clone()).await {
            return created.runs.remove(0);
        }
    }
    panic!("the campaign could not be created");
}

/// The log of an undisturbed run of this workflow.
async fn undisturbed(workflow: Arc<dyn Workflow>) -> Vec<Event> {
    let bench = Bench::new().await;
    let party = party(&bench, workflow);
    party.register().await;
    let run = create(bench.store.as_ref(), &bench.new_campaign(1)).await;
    party.finish(&run).await;
    bench.assert_sound().await;
    party.assert_folds(&run).await;
    bench.events(&run).await
}

#[tokio::test]
async fn a_run_of_two_steps_goes_from_creation_to_its_end() {
    let bench = Bench::new().await;
    let party = party(&bench, Toy::sequence());
    party.register().await;
    let run = bench.run().await;
    party.finish(&run).await;
    assert_eq!(
        bench.log(&run).await,
        [
            "run_created",
            "step_scheduled first",
            "step_completed first",
            "step_scheduled second",
            "step_completed second",
            "run_completed"
        ]
    );
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.status, record.revision), (RunStatus::Completed, 3), "one advance per decision");
    party.assert_folds(&run).await;
    bench.assert_sound().await;
    assert_eq!(party.driver.drive(&run).await.unwrap(), Driven::Idle);
}

#[tokio::test]
async fn driving_a_run_that_waits_for_its_steps_writes_nothing() {
    let bench = Bench::new().await;
    let counting = Arc::new(FaultyStore::counting(bench.store.clone()));
    let party = Party::new(counting.clone(), Toy::sequence(), bench.clock.clone(), 1_000);
    let run = bench.run().await;
    assert_eq!(party.driver.drive(&run).await.unwrap(), Driven::Advanced);
    assert_eq!(counting.writes(), 1);
    assert_eq!(party.driver.drive(&run).await.unwrap(), Driven::Idle);
    assert_eq!(counting.writes(), 1);
}

#[tokio::test]
async fn a_run_goes_on_where_it_was_after_each_restart() {
    let expected = undisturbed(Toy::fan()).await;
    let mut bench = Bench::new().await;
    let run = bench.run().await;
    for life in 1..=50 {
        let party = Party::new(bench.store.clone(), Toy::fan(), bench.clock.clone(), life * 1_000);
        party.register().await;
        bench.store.free_embedded_leases(bench.now()).await.unwrap();
        party.round().await;
        party.assert_folds(&run).await;
        drop(party);
        bench.reopen().await;
        bench.assert_sound().await;
        if bench.store.load_run(&run).await.unwrap().status.is_final() {
            assert!(life > 3, "the run had several lives");
            assert_eq!(bench.events(&run).await, expected);
            return;
        }
    }
    panic!("the run is not over after 50 lives");
}

#[tokio::test]
async fn a_store_that_was_dropped_in_the_middle_lost_nothing_that_was_acknowledged() {
    let mut bench = Bench::new().await;
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b"]).await;
    let before = (bench.store.load_run(&run).await.unwrap(), bench.events(&run).await);
    let folder = bench.folder.path().to_owned();
    let elsewhere = tempfile::tempdir().unwrap();
    drop(std::mem::replace(&mut bench.store, open(elsewhere.path()).await));
    let reopened = tokio::time::timeout(PATIENCE, async {
        loop {
            match SqliteStore::open(&folder, OpenOptions::default()).await {
                Ok(store) => return store,
                Err(StoreError::Locked(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    });
    bench.store = Arc::new(reopened.await.unwrap());
    assert_eq!((bench.store.load_run(&run).await.unwrap(), bench.events(&run).await), before);
    bench.assert_sound().await;
}

/// Plays a run with write number `number` failing; the log, and whether there was such a write.
async fn with_fault(workflow: Arc<dyn Workflow>, number: u64, point: FaultPoint) -> (Vec<Event>, bool) {
    let bench = Bench::new().await;
    let faulty = Arc::new(FaultyStore::failing(bench.store.clone(), number, point));
    let party = Party::new(faulty.clone(), workflow, HandClock::new(), 1_000);
    party.register().await;
    let run = create(faulty.as_ref(), &bench.new_campaign(1)).await;
    party.finish(&run).await;
    bench.assert_sound().await;
    party.assert_folds(&run).await;
    (events(bench.store.as_ref(), &run).await, faulty.fired().is_some())
}

/// Plays a run as often as it has writes, each time with another one failing, and compares what `comparable` makes of
/// the log with that of an undisturbed run.
async fn every_write_fails_once(workflow: fn() -> Arc<dyn Workflow>, comparable: fn(Vec<Event>) -> Vec<Event>) {
    let expected = comparable(undisturbed(workflow()).await);
    for point in [FaultPoint::Before, FaultPoint::After] {
        let mut number = 1;
        loop {
            let (log, fired) = with_fault(workflow(), number, point).await;
            assert_eq!(comparable(log), expected, "{point:?}, write {number}");
            if !fired {
                break;
            }
            number += 1;
        }
        assert!(number > 10, "only {number} writes failed");
    }
}

#[tokio::test]
async fn a_sequence_ends_in_the_same_log_whichever_write_fails_once() {
    every_write_fails_once(Toy::sequence, |log| log).await;
}

#[tokio::test]
async fn steps_side_by_side_are_committed_once_each_whichever_write_fails_once() {
    // Which of them is first may change.
    every_write_fails_once(Toy::fan, |mut log| {
        log.sort_by_key(|event| (event.kind(), event.step_key().map(str::to_owned)));
        log
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_run_ends_when_its_last_step_is_gone() {
    let bench = Bench::new().await;
    let party = party(&bench, Toy::sequence());
    party.register().await;
    let run = bench.run().await;
    party.driver.drive(&run).await.unwrap();
    let step = bench.claim(&party.worker, 1).await.remove(0);
    bench.store.control_run(&run, RunTransition::Cancel, party.now()).await.unwrap();
    assert_eq!(party.driver.drive(&run).await.unwrap(), Driven::Advanced);
    assert_eq!(party.driver.drive(&run).await.unwrap(), Driven::Idle, "a worker still has the step");
    assert_eq!(bench.to_drive().await, []);
    bench.clock.forward(15_000);
    assert_eq!(party.sweeper.sweep().await.unwrap().expired, 1);
    assert_eq!(bench.to_drive().await, std::slice::from_ref(&run));
    assert_eq!(party.driver.drive(&run).await.unwrap(), Driven::Ended);
    assert_eq!(bench.store.load_step(&step.id).await.unwrap().status, StepStatus::Cancelled);
    assert_eq!(bench.store.load_run(&run).await.unwrap().status, RunStatus::Cancelled);
    party.assert_folds(&run).await;
    bench.assert_sound().await;
}

#[tokio::test]
async fn a_worker_that_goes_silent_loses_the_step_until_its_tries_are_used_up_and_a_retry_finishes_the_run() {
    let bench = Bench::new().await;
    let party = party(&bench, Toy::sequence());
    party.register().await;
    let run = bench.run().await;
    party.driver.drive(&run).await.unwrap();
    for tries in 1..=5 {
        let step = bench.claim(&party.worker, 1).await.remove(0);
        assert_eq!(step.tries, tries);
        bench.clock.forward(15_000);
        assert_eq!(party.sweeper.sweep().await.unwrap().expired, 1);
    }
    assert_eq!(party.driver.drive(&run).await.unwrap(), Driven::Ended);
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.status, record.failure.unwrap().code.as_str()), (RunStatus::Failed, "worker.lost"));
    bench.assert_sound().await;

    assert_eq!(bench.store.retry_run(&run, None, party.now()).await.unwrap(), ["first"]);
    party.finish(&run).await;
    assert_eq!(bench.store.load_run(&run).await.unwrap().status, RunStatus::Completed);
    party.assert_folds(&run).await;
    bench.assert_sound().await;
}
