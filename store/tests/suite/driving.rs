//! Whole runs through driver and sweeper: undisturbed, across restarts, and with every single write failing once.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::driver::{Driven, MAX_EVENTS_PER_READ};
use nightshift_engine::event::Event;
use nightshift_engine::store::{NewCampaign, Store, StoreError, TryEnd};
use nightshift_engine::workflow::Workflow;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::step::StepFailure;
use nightshift_store::fault::{FaultPoint, FaultyStore};
use nightshift_store::{OpenOptions, SqliteStore};

use crate::bench::{Bench, HandClock, events, open};
use crate::toy::{Party, Stranger, Toy};

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

/// Plays a run with write number `number` failing; the log without tries that were repeated, and whether there was such
/// a write.
async fn with_fault(workflow: Arc<dyn Workflow>, number: u64, point: FaultPoint) -> (Vec<Event>, bool) {
    let bench = Bench::new().await;
    let faulty = Arc::new(FaultyStore::failing(bench.store.clone(), number, point));
    let party = Party::new(faulty.clone(), workflow, HandClock::new(), 1_000);
    party.register().await;
    let run = create(faulty.as_ref(), &bench.new_campaign(1)).await;
    party.finish(&run).await;
    bench.assert_sound().await;
    party.assert_folds(&run).await;
    let mut log = events(bench.store.as_ref(), &run).await;
    // A lease that was given out without an answer runs out: that is the one trace which a fault may leave.
    log.retain(|event| !matches!(event, Event::StepRetried { .. }));
    (log, faulty.fired().is_some())
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

#[tokio::test]
async fn a_log_that_ends_with_a_full_page_is_decided_about_all_the_same() {
    let bench = Bench::new().await;
    let party = party(&bench, Toy::sequence());
    for pages in 1..=2 {
        let run = bench.run().await;
        // With the run's creation these fill the pages to the last place.
        for number in 1..pages * MAX_EVENTS_PER_READ {
            let transition = if number % 2 == 1 { RunTransition::Pause } else { RunTransition::Resume };
            bench.store.control_run(&run, transition, party.now()).await.unwrap();
        }
        assert_eq!(bench.store.load_run(&run).await.unwrap().last_seq, u64::from(pages * MAX_EVENTS_PER_READ));
        assert_eq!(party.driver.drive(&run).await.unwrap(), Driven::Advanced);
        assert_eq!(bench.step(&run, "first").await.status, StepStatus::Scheduled);
        party.assert_folds(&run).await;
    }
    bench.assert_sound().await;
}

#[tokio::test]
async fn a_run_whose_other_failed_step_stays_failed_fails_again_instead_of_waiting_forever() {
    let bench = Bench::new().await;
    let party = party(&bench, Toy::fan());
    party.register().await;
    let run = bench.run().await;
    party.round().await;
    party.driver.drive(&run).await.unwrap();
    for step in bench.claim(&party.worker, 2).await {
        let failure = StepFailure::fatal("toy.broken", format!("{} is broken", step.key));
        bench.report(&step, TryEnd::Failed { failure }).await;
    }
    assert_eq!(party.driver.drive(&run).await.unwrap(), Driven::Ended);

    assert_eq!(bench.store.retry_run(&run, Some("part1"), party.now()).await.unwrap(), ["part1", "part3"]);
    party.finish(&run).await;
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.status, record.failure.unwrap().message.as_str()), (RunStatus::Failed, "part2 is broken"));
    bench.assert_sound().await;

    assert_eq!(bench.store.retry_run(&run, None, party.now()).await.unwrap(), ["part2"]);
    party.finish(&run).await;
    assert_eq!(bench.store.load_run(&run).await.unwrap().status, RunStatus::Completed);
    party.assert_folds(&run).await;
    bench.assert_sound().await;
}

#[tokio::test]
async fn a_run_that_this_release_cannot_read_can_still_be_cancelled() {
    for begun in [false, true] {
        let bench = Bench::new().await;
        let known = party(&bench, Toy::sequence());
        known.register().await;
        let run = bench.run().await;
        if begun {
            known.driver.drive(&run).await.unwrap();
        }
        let step = bench.claim(&known.worker, 1).await.pop();
        bench.store.control_run(&run, RunTransition::Cancel, known.now()).await.unwrap();
        let stranger = Party::new(bench.store.clone(), Arc::new(Stranger), bench.clock.clone(), 2_000);
        if let Some(step) = step {
            assert_eq!(stranger.driver.drive(&run).await.unwrap(), Driven::Idle, "a worker still has the step");
            bench.report(&step, TryEnd::Cancelled).await;
        }
        assert_eq!(stranger.driver.drive(&run).await.unwrap(), Driven::Ended);
        assert_eq!(bench.store.load_run(&run).await.unwrap().status, RunStatus::Cancelled);
        bench.assert_sound().await;
    }
}

#[tokio::test]
async fn the_heads_of_steps_are_the_steps_without_input_and_output() {
    let bench = Bench::new().await;
    let party = party(&bench, Toy::sequence());
    party.register().await;
    let run = bench.run().await;
    party.finish(&run).await;
    let mut steps = bench.store.list_steps(&run).await.unwrap();
    assert!(steps.iter().all(|step| step.output.is_some() && !step.input.is_null()));
    for step in &mut steps {
        step.input = serde_json::Value::Null;
        step.output = None;
    }
    assert_eq!(bench.store.list_step_heads(&run).await.unwrap(), steps);
}
