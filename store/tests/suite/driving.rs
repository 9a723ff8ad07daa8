//! Tests of whole runs through driver and sweeper: without faults, across restarts, and with every single write failing
//! once.

use std::sync::Arc;
use std::time::Duration;

use nightshift_engine::driver::{Driven, MAX_EVENTS_PER_READ};
use nightshift_engine::event::Event;
use nightshift_engine::store::{
    CampaignStore, LeaseStore, NewCampaign, OwnerFence, Ownership, OwnershipStore, RunControlStore, RunStore,
    ServerStore, StoreError, TryEnd,
};
use nightshift_engine::workflow::AnyWorkflow;
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use nightshift_store::fault::{Fault, FaultyStore};
use serde_json::json;

use crate::bench::{Bench, events, steps};
use crate::toy::{Party, Stranger, Toy};

crate::bench::on_both!(
    a_run_of_two_steps_goes_from_creation_to_its_end,
    a_cached_created_run_equals_the_stored_one_and_is_taken_once,
    a_created_run_is_driven_as_one_that_was_read,
    a_created_run_that_changed_meanwhile_is_read_again,
    a_created_run_of_another_server_is_left_alone,
    driving_a_run_that_waits_for_its_steps_writes_nothing,
    a_run_goes_on_where_it_was_after_each_restart,
    a_store_that_was_dropped_in_the_middle_lost_nothing_that_was_acknowledged,
    a_sequence_ends_in_the_same_log_whichever_write_fails_once,
    steps_side_by_side_are_committed_once_each_whichever_write_fails_once,
    a_cancelled_run_ends_when_its_last_step_is_gone,
    a_worker_that_goes_silent_loses_the_step_until_its_tries_are_used_up_and_a_retry_finishes_the_run,
    a_log_that_ends_with_a_full_page_is_decided_about_all_the_same,
    a_run_whose_other_failed_step_stays_failed_fails_again_instead_of_waiting_forever,
    a_run_that_this_release_cannot_read_can_still_be_cancelled,
    the_heads_of_steps_are_the_steps_without_input_and_output,
);

async fn a_cached_created_run_equals_the_stored_one_and_is_taken_once(bench: Bench) {
    let server = bench.server().await;
    let mut new = NewCampaign { owner: Some(server), priority: 7, ..bench.new_campaign(2) };
    new.runs[1].input = json!({ "text": "a\0b \\u0000", "number": 0.1 });
    new.runs[1].digest = json!({ "text": "\0" });
    let created = bench.create(new.clone()).await;
    for run in &created.runs {
        let kept = bench.store.take_created(run).unwrap();
        assert_eq!(kept.run, bench.store.load_run(run).await.unwrap());
        assert_eq!(bench.events(run).await, [Event::RunCreated { input: kept.input }]);
        assert!(bench.store.take_created(run).is_none());
    }
    assert!(bench.store.create_campaign(new).await.unwrap().existed);
    assert!(bench.store.take_created(&created.runs[0]).is_none(), "what existed was not created");
}

async fn a_created_run_is_driven_as_one_that_was_read(bench: Bench) {
    let party = party(&bench, Toy::sequence());
    party.register().await;
    let run = bench.run().await;
    let created = bench.store.take_created(&run).unwrap();
    assert_eq!(party.driver.drive_created(created, None).await.unwrap(), Driven::Advanced);
    assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Idle);
    party.finish(&run).await;
    party.assert_folds(&run).await;
    bench.assert_sound().await;
    assert_eq!(bench.log(&run).await.len(), 6);
}

async fn a_created_run_that_changed_meanwhile_is_read_again(bench: Bench) {
    let party = party(&bench, Toy::sequence());
    party.register().await;
    let cancelled = bench.run().await;
    let created = bench.store.take_created(&cancelled).unwrap();
    bench.store.control_run(&cancelled, RunTransition::Cancel, None, bench.now()).await.unwrap();
    assert_eq!(party.driver.drive_created(created, None).await.unwrap(), Driven::Ended);
    assert_eq!(bench.store.load_run(&cancelled).await.unwrap().status, RunStatus::Cancelled);

    let told = bench.run().await;
    let created = bench.store.take_created(&told).unwrap();
    let hint = Signal::Hint { text: "tiles".to_owned() };
    bench.store.signal_run(&told, hint, None, None, bench.now()).await.unwrap();
    party.driver.drive_created(created, None).await.unwrap();
    let run = bench.store.load_run(&told).await.unwrap();
    assert!(run.folded_seq >= 2, "the signal is folded, too");
    bench.assert_sound().await;
}

async fn a_created_run_of_another_server_is_left_alone(bench: Bench) {
    let party = party(&bench, Toy::sequence());
    let first = bench.server().await;
    let created = bench.create(NewCampaign { owner: Some(first.clone()), ..bench.new_campaign(1) }).await;
    let run = bench.store.take_created(&created.runs[0]).unwrap();
    let fence = OwnerFence { server: first.clone(), epoch: run.run.owner_epoch };
    bench.store.retire_server(&first, bench.now()).await.unwrap();
    let second = bench.server().await;
    let taken = bench.store.acquire_run(&second, &created.runs[0], bench.now()).await.unwrap();
    assert!(matches!(taken, Ownership::Mine(_)), "{taken:?}");
    assert_eq!(party.driver.drive_created(run, Some(&fence)).await.unwrap(), Driven::NotOwner);
    assert_eq!(bench.log(&created.runs[0]).await, ["run_created"]);
}

/// Timeout for a file lock to be released.
const PATIENCE: Duration = Duration::from_secs(30);

fn party(bench: &Bench, workflow: Arc<dyn AnyWorkflow>) -> Party {
    Party::new(bench.store.ports(), workflow, bench.clock.clone(), 1_000)
}

/// Creates the campaign, and repeats the call when the store fails.
async fn create(store: &dyn CampaignStore, new: &NewCampaign) -> RunId {
    for _ in 0..3 {
        if let Ok(mut created) = store.create_campaign(new.clone()).await {
            return created.runs.remove(0);
        }
    }
    panic!("the campaign could not be created");
}

/// Returns the log of a run of this workflow without faults.
async fn undisturbed(bench: Bench, workflow: Arc<dyn AnyWorkflow>) -> Vec<Event> {
    let party = party(&bench, workflow);
    party.register().await;
    let run = create(bench.store.as_ref(), &bench.new_campaign(1)).await;
    party.finish(&run).await;
    bench.assert_sound().await;
    party.assert_folds(&run).await;
    bench.events(&run).await
}

async fn a_run_of_two_steps_goes_from_creation_to_its_end(bench: Bench) {
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
    assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Idle);
}

async fn driving_a_run_that_waits_for_its_steps_writes_nothing(bench: Bench) {
    let counting = Arc::new(FaultyStore::counting(bench.store.ports()));
    let party = Party::new(counting.ports(), Toy::sequence(), bench.clock.clone(), 1_000);
    let run = bench.run().await;
    assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Advanced);
    assert_eq!(counting.writes(), 1);
    assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Idle);
    assert_eq!(counting.writes(), 1);
}

async fn a_run_goes_on_where_it_was_after_each_restart(mut bench: Bench) {
    let expected = undisturbed(bench.another().await, Toy::fan()).await;
    let run = bench.run().await;
    for life in 1..=50 {
        let party = Party::new(bench.store.ports(), Toy::fan(), bench.clock.clone(), life * 1_000);
        party.register().await;
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

async fn a_store_that_was_dropped_in_the_middle_lost_nothing_that_was_acknowledged(mut bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b"]).await;
    let before = (bench.store.load_run(&run).await.unwrap(), bench.events(&run).await);
    // Replaces the store temporarily, so that no reference to the old one remains.
    let elsewhere = bench.another().await;
    drop(std::mem::replace(&mut bench.store, elsewhere.store.clone()));
    let reopened = tokio::time::timeout(PATIENCE, async {
        loop {
            match bench.place.try_open().await {
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

/// Executes a run over a store in which this write fails. Returns the log without repeated tries, and the store.
async fn played(
    bench: &Bench,
    workflow: Arc<dyn AnyWorkflow>,
    life: u64,
    fault: Option<Fault>,
) -> (Vec<Event>, Arc<FaultyStore>) {
    let store = Arc::new(FaultyStore::with(bench.store.ports(), fault));
    let party = Party::new(store.ports(), workflow, bench.clock.clone(), life * 10_000);
    party.register().await;
    let run = create(store.as_ref(), &bench.new_campaign(1)).await;
    party.finish(&run).await;
    bench.assert_sound().await;
    party.assert_folds(&run).await;
    let mut log = events(bench.store.as_ref(), &run).await;
    // A lease whose claim got no answer expires. A fault may leave no other trace.
    log.retain(|event| !matches!(event, Event::StepRetried { .. }));
    (log, store)
}

/// Executes a run once for each of its writes, with that write failing. Compares the result of `comparable` with the
/// one of a run without faults.
async fn every_write_fails_once(
    bench: &Bench,
    workflow: fn() -> Arc<dyn AnyWorkflow>,
    comparable: fn(Vec<Event>) -> Vec<Event>,
) {
    let (log, undisturbed) = played(&bench.another().await, workflow(), 1, None).await;
    let expected = comparable(log);
    let faults = Fault::at_each(&undisturbed.writes_by_method());
    assert!(faults.len() > 20, "only {} writes failed", faults.len() / 2);
    for (life, fault) in (1..).zip(faults) {
        let (log, store) = played(bench, workflow(), life, Some(fault)).await;
        assert!(store.fired(), "{fault:?} never happened");
        assert_eq!(comparable(log), expected, "{fault:?}");
    }
}

async fn a_sequence_ends_in_the_same_log_whichever_write_fails_once(bench: Bench) {
    every_write_fails_once(&bench, Toy::sequence, |log| log).await;
}

async fn steps_side_by_side_are_committed_once_each_whichever_write_fails_once(bench: Bench) {
    // Their order may change.
    every_write_fails_once(&bench, Toy::fan, |mut log| {
        log.sort_by_key(|event| (event.kind(), event.step_key().map(str::to_owned)));
        log
    })
    .await;
}

async fn a_cancelled_run_ends_when_its_last_step_is_gone(bench: Bench) {
    let party = party(&bench, Toy::sequence());
    party.register().await;
    let run = bench.run().await;
    party.driver.drive(&run, None).await.unwrap();
    let step = bench.claim(&party.worker, 1).await.remove(0);
    bench.store.control_run(&run, RunTransition::Cancel, None, party.now()).await.unwrap();
    assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Advanced);
    assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Idle, "a worker still has the step");
    assert_eq!(bench.to_drive().await, []);
    bench.clock.forward(15_000);
    assert_eq!(party.sweeper.sweep().await.unwrap().expired, 1);
    assert_eq!(bench.to_drive().await, std::slice::from_ref(&run));
    assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Ended);
    assert_eq!(bench.store.load_step(&step.id).await.unwrap().status, StepStatus::Cancelled);
    assert_eq!(bench.store.load_run(&run).await.unwrap().status, RunStatus::Cancelled);
    party.assert_folds(&run).await;
    bench.assert_sound().await;
}

async fn a_worker_that_goes_silent_loses_the_step_until_its_tries_are_used_up_and_a_retry_finishes_the_run(
    bench: Bench,
) {
    let party = party(&bench, Toy::sequence());
    party.register().await;
    let run = bench.run().await;
    party.driver.drive(&run, None).await.unwrap();
    for tries in 1..=5 {
        let step = bench.claim(&party.worker, 1).await.remove(0);
        assert_eq!(step.tries, tries);
        bench.clock.forward(15_000);
        assert_eq!(party.sweeper.sweep().await.unwrap().expired, 1);
    }
    assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Ended);
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.status, record.failure.unwrap().code.as_str()), (RunStatus::Failed, "worker.lost"));
    bench.assert_sound().await;

    assert_eq!(bench.store.retry_run(&run, None, None, party.now()).await.unwrap(), ["first"]);
    party.finish(&run).await;
    assert_eq!(bench.store.load_run(&run).await.unwrap().status, RunStatus::Completed);
    party.assert_folds(&run).await;
    bench.assert_sound().await;
}

async fn a_log_that_ends_with_a_full_page_is_decided_about_all_the_same(bench: Bench) {
    let party = party(&bench, Toy::sequence());
    for pages in 1..=2 {
        let run = bench.run().await;
        // With the run's creation these fill the pages completely.
        for number in 1..pages * MAX_EVENTS_PER_READ {
            let transition = if number % 2 == 1 { RunTransition::Pause } else { RunTransition::Resume };
            bench.store.control_run(&run, transition, None, party.now()).await.unwrap();
        }
        assert_eq!(bench.store.load_run(&run).await.unwrap().last_seq, u64::from(pages * MAX_EVENTS_PER_READ));
        assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Advanced);
        assert_eq!(bench.step(&run, "first").await.status, StepStatus::Scheduled);
        party.assert_folds(&run).await;
    }
    bench.assert_sound().await;
}

async fn a_run_whose_other_failed_step_stays_failed_fails_again_instead_of_waiting_forever(bench: Bench) {
    let party = party(&bench, Toy::fan());
    party.register().await;
    let run = bench.run().await;
    party.round().await;
    party.driver.drive(&run, None).await.unwrap();
    for step in bench.claim(&party.worker, 2).await {
        let failure = StepFailure::fatal("toy.broken", format!("{} is broken", step.key));
        bench.report(&step, TryEnd::Failed { failure }).await;
    }
    assert_eq!(party.driver.drive(&run, None).await.unwrap(), Driven::Ended);

    assert_eq!(bench.store.retry_run(&run, Some("part1"), None, party.now()).await.unwrap(), ["part1", "part3"]);
    party.finish(&run).await;
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.status, record.failure.unwrap().message.as_str()), (RunStatus::Failed, "part2 is broken"));
    bench.assert_sound().await;

    assert_eq!(bench.store.retry_run(&run, None, None, party.now()).await.unwrap(), ["part2"]);
    party.finish(&run).await;
    assert_eq!(bench.store.load_run(&run).await.unwrap().status, RunStatus::Completed);
    party.assert_folds(&run).await;
    bench.assert_sound().await;
}

async fn a_run_that_this_release_cannot_read_can_still_be_cancelled(bench: Bench) {
    for begun in [false, true] {
        let known = party(&bench, Toy::sequence());
        known.register().await;
        let run = bench.run().await;
        if begun {
            known.driver.drive(&run, None).await.unwrap();
        }
        let step = bench.claim(&known.worker, 1).await.pop();
        bench.store.control_run(&run, RunTransition::Cancel, None, known.now()).await.unwrap();
        let stranger = Party::new(bench.store.ports(), Arc::new(Stranger), bench.clock.clone(), 2_000);
        if let Some(step) = step {
            assert_eq!(stranger.driver.drive(&run, None).await.unwrap(), Driven::Idle, "a worker still has the step");
            bench.report(&step, TryEnd::Cancelled).await;
        }
        assert_eq!(stranger.driver.drive(&run, None).await.unwrap(), Driven::Ended);
        assert_eq!(bench.store.load_run(&run).await.unwrap().status, RunStatus::Cancelled);
        bench.assert_sound().await;
    }
}

async fn the_heads_of_steps_are_the_steps_without_input_and_output(bench: Bench) {
    let party = party(&bench, Toy::sequence());
    party.register().await;
    let run = bench.run().await;
    party.finish(&run).await;
    let mut steps = steps(&bench.store, &run).await;
    assert!(steps.iter().all(|step| step.output.is_some() && !step.input.is_null()));
    for step in &mut steps {
        step.input = serde_json::Value::Null;
        step.output = None;
    }
    assert_eq!(bench.store.list_step_heads(&run).await.unwrap(), steps);
}
