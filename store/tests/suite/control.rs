//! Tests of pause, resume, cancel, retry.

use nightshift_engine::event::Event;
use nightshift_engine::store::{
    ChangeStore, LeaseStore, QueueStore, Reported, RunControlStore, RunStore, StoreError, TryEnd,
};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::step::StepFailure;
use serde_json::json;

use crate::bench::{Bench, done, lost};

crate::bench::on_both!(
    a_paused_run_leases_nothing_until_it_is_resumed,
    repeating_a_request_changes_nothing,
    a_step_leased_before_the_pause_ends_normally,
    a_timer_that_fires_in_a_paused_run_makes_its_step_ready_on_resume,
    a_resumed_run_keeps_waiting_for_its_timers,
    cancelling_ends_waiting_steps_at_once_and_tells_the_others_by_heartbeat,
    a_cancelled_step_may_still_deliver_its_result_but_is_never_tried_again,
    a_step_that_was_stopped_without_a_request_is_ready_again,
    a_run_that_is_over_refuses_to_be_paused_or_cancelled,
    only_people_s_transitions_are_a_matter_of_control,
    retrying_a_run_schedules_what_failed_and_what_its_failure_cancelled,
    retrying_one_step_leaves_the_other_failures,
    only_failed_runs_and_failed_steps_are_retried,
);

async fn control(bench: &Bench, run: &RunId, transition: RunTransition) -> RunStatus {
    bench.store.control_run(run, transition, None, bench.now()).await.unwrap()
}

async fn a_paused_run_leases_nothing_until_it_is_resumed(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b"]).await;
    let worker = bench.worker().await;
    assert_eq!(control(&bench, &run, RunTransition::Pause).await, RunStatus::Paused);
    assert!(bench.claim(&worker, 9).await.is_empty());
    bench.assert_sound().await;
    assert_eq!(control(&bench, &run, RunTransition::Resume).await, RunStatus::Running);
    assert_eq!(bench.claim(&worker, 9).await.len(), 2);
    assert_eq!(bench.log(&run).await[3..], ["run_paused", "run_resumed"]);
    bench.assert_sound().await;
}

async fn repeating_a_request_changes_nothing(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    for transition in [RunTransition::Resume, RunTransition::Pause, RunTransition::Pause] {
        control(&bench, &run, transition).await;
    }
    assert_eq!(bench.log(&run).await, ["run_created", "step_scheduled a", "run_paused"]);
}

async fn a_step_leased_before_the_pause_ends_normally(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["done", "again"]).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 2).await;
    control(&bench, &run, RunTransition::Pause).await;
    assert_eq!(bench.report(&steps[0], done(json!(1))).await, Reported::Committed);
    let end = TryEnd::Retry { failure: lost(), at: bench.now() };
    assert_eq!(bench.report(&steps[1], end).await, Reported::Committed);
    bench.assert_sound().await;
    assert!(bench.claim(&worker, 9).await.is_empty(), "a step that comes back waits too");
    control(&bench, &run, RunTransition::Resume).await;
    assert_eq!(bench.claim(&worker, 9).await[0].key, "again");
}

async fn a_timer_that_fires_in_a_paused_run_makes_its_step_ready_on_resume(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    bench.report(&step, TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(500) }).await;
    control(&bench, &run, RunTransition::Pause).await;
    bench.clock.forward(500);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (0, None));
    bench.assert_sound().await;
    control(&bench, &run, RunTransition::Resume).await;
    assert_eq!(bench.claim(&worker, 1).await.len(), 1);
}

async fn a_resumed_run_keeps_waiting_for_its_timers(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    bench.report(&step, TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(500) }).await;
    control(&bench, &run, RunTransition::Pause).await;
    control(&bench, &run, RunTransition::Resume).await;
    bench.assert_sound().await;
    assert!(bench.claim(&worker, 1).await.is_empty());
    bench.clock.forward(500);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (1, None));
    assert_eq!(bench.claim(&worker, 1).await.len(), 1);
}

async fn cancelling_ends_waiting_steps_at_once_and_tells_the_others_by_heartbeat(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["held", "later", "waiting"]).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 2).await;
    bench.report(&steps[1], TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(500) }).await;
    assert_eq!(control(&bench, &run, RunTransition::Cancel).await, RunStatus::Cancelling);
    assert_eq!(
        bench.log(&run).await[4..],
        ["step_retried later", "run_cancel_requested", "step_cancelled later", "step_cancelled waiting"]
    );
    bench.assert_sound().await;

    let held = &steps[0];
    let leases = [(held.id.clone(), held.epoch)];
    let heartbeat = bench.store.heartbeat(&worker, &leases, bench.now(), bench.now().plus_ms(1)).await.unwrap();
    assert_eq!((heartbeat.cancelled, heartbeat.lost), (vec![held.id.clone()], Vec::new()));
    assert_eq!(bench.report(held, TryEnd::Cancelled).await, Reported::Committed);
    assert_eq!(bench.step(&run, "held").await.status, StepStatus::Cancelled);
    assert_eq!(bench.to_drive().await, std::slice::from_ref(&run));

    let mut decision = bench.decision(&run).await;
    decision.end = Some((RunTransition::CancelFinished, Event::RunCancelled));
    assert!(bench.store.advance(decision).await.unwrap().is_committed());
    assert_eq!(bench.store.load_run(&run).await.unwrap().status, RunStatus::Cancelled);
    assert_eq!(bench.to_drive().await, []);
    bench.assert_sound().await;
}

async fn a_cancelled_step_may_still_deliver_its_result_but_is_never_tried_again(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["delivers", "fails"]).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 2).await;
    control(&bench, &run, RunTransition::Cancel).await;
    assert_eq!(bench.report(&steps[0], done(json!(1))).await, Reported::Committed);
    let end = TryEnd::Retry { failure: lost(), at: bench.now() };
    assert_eq!(bench.report(&steps[1], end).await, Reported::Committed);
    assert_eq!(bench.step(&run, "delivers").await.status, StepStatus::Completed);
    assert_eq!(bench.step(&run, "fails").await.status, StepStatus::Cancelled);
    bench.assert_sound().await;
}

async fn a_step_that_was_stopped_without_a_request_is_ready_again(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    assert_eq!(bench.report(&step, TryEnd::Cancelled).await, Reported::Committed);
    bench.assert_sound().await;
    assert_eq!(bench.claim(&worker, 1).await[0].epoch, 2);
}

async fn a_run_that_is_over_refuses_to_be_paused_or_cancelled(bench: Bench) {
    let run = bench.run().await;
    bench.complete_run(&run).await;
    for transition in [RunTransition::Pause, RunTransition::Cancel, RunTransition::Complete] {
        let error = bench.store.control_run(&run, transition, None, bench.now()).await.unwrap_err();
        assert!(matches!(error, StoreError::Illegal(_)), "{transition:?}: {error}");
    }
}

async fn only_people_s_transitions_are_a_matter_of_control(bench: Bench) {
    let run = bench.run().await;
    for transition in [RunTransition::Complete, RunTransition::Fail, RunTransition::CancelFinished] {
        let error = bench.store.control_run(&run, transition, None, bench.now()).await.unwrap_err();
        assert!(matches!(error, StoreError::Illegal(_)), "{transition:?}: {error}");
    }
}

async fn failed_run(bench: &Bench) -> RunId {
    let run = bench.run().await;
    bench.schedule(&run, &["fails", "fails_too", "held", "waiting"]).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 3).await;
    for step in &steps[..2] {
        bench.report(step, TryEnd::Failed { failure: StepFailure::fatal("x", "broken") }).await;
    }
    bench.fail_run(&run, StepFailure::fatal("x", "broken")).await;
    bench.assert_sound().await;
    run
}

async fn retrying_a_run_schedules_what_failed_and_what_its_failure_cancelled(bench: Bench) {
    let run = failed_run(&bench).await;
    let keys = bench.store.retry_run(&run, None, None, bench.now()).await.unwrap();
    assert_eq!(keys, ["fails", "fails_too", "held", "waiting"]);
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.status, record.failure, record.finished_at), (RunStatus::Running, None, None));
    let step = bench.step(&run, "fails").await;
    assert_eq!((step.status, step.tries, step.epoch, step.failure), (StepStatus::Scheduled, 0, 1, None));
    assert_eq!(bench.to_drive().await, std::slice::from_ref(&run));
    bench.assert_sound().await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 9).await;
    assert_eq!(steps.iter().map(|step| step.epoch).collect::<Vec<_>>(), [2, 2, 2, 1]);
}

async fn retrying_one_step_leaves_the_other_failures(bench: Bench) {
    let run = failed_run(&bench).await;
    let keys = bench.store.retry_run(&run, Some("fails_too"), None, bench.now()).await.unwrap();
    assert_eq!(keys, ["fails_too", "held", "waiting"]);
    assert_eq!(bench.step(&run, "fails").await.status, StepStatus::Failed);
    bench.assert_sound().await;
}

async fn only_failed_runs_and_failed_steps_are_retried(bench: Bench) {
    let run = failed_run(&bench).await;
    let error = bench.store.retry_run(&run, Some("waiting"), None, bench.now()).await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound { noun: "failed step", .. }), "{error}");
    bench.store.retry_run(&run, None, None, bench.now()).await.unwrap();
    let error = bench.store.retry_run(&run, None, None, bench.now()).await.unwrap_err();
    assert!(matches!(error, StoreError::Illegal(_)), "{error}");
}
