//! The lease loop against a server in memory.

mod devices;
mod fake;

use std::sync::Arc;
use std::time::{Duration, Instant};

use nightshift_protocol::api::TryOutcome;
use nightshift_protocol::step::{FailureClass, StepOutput};

use self::fake::{
    CPU, EXCLUSIVE, FakeServer, FakeWork, PATIENCE, SHARED, failure_of, introduction, introduction_with_devices, start,
    start_draining_within, start_with,
};
use super::WorkerError;

type Outcome = Result<(), WorkerError>;

#[tokio::test]
async fn a_claimed_step_is_carried_out_and_reported() -> Outcome {
    let running = start(FakeWork::free_running());
    let step = running.server.offer(7, CPU, 60_000);
    running.until_committed(1).await;
    {
        let state = running.server.state();
        let Some((committed, TryOutcome::Completed { output })) = state.committed.first() else { panic!("no result") };
        assert_eq!(*committed, step);
        let StepOutput::TaskRejected { message, .. } = output.as_ref() else { panic!("another result") };
        assert_eq!(message, "step7");
    }
    running.end().await
}

#[tokio::test]
async fn without_heartbeats_the_worker_kills_its_work_before_anyone_else_may_have_it() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    let begin = Instant::now();
    running.server.change(|state| state.heartbeats_fail = true);
    running.until_killed(&step).await;
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    assert!(running.server.state().committed.is_empty(), "what a lost lease gave is never reported");

    // The server is back: it has given the step to a new epoch, and the worker goes on.
    running.server.change(|state| {
        state.leased.clear();
        state.heartbeats_fail = false;
    });
    running.work.change(|state| state.let_go = true);
    let next = running.server.offer(2, CPU, 60_000);
    running.until_committed(1).await;
    assert_eq!(running.server.state().committed.first().map(|(step, _)| step.clone()), Some(next));
    running.end().await
}

#[tokio::test]
async fn a_lease_that_the_server_gave_away_ends_the_work_without_a_report() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    running.server.change(|state| state.leased.clear());
    running.until_killed(&step).await;
    assert_eq!(running.server.state().reports_seen, 0);
    running.end().await
}

#[tokio::test]
async fn a_cancelled_step_is_killed_and_reported_as_cancelled() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, EXCLUSIVE, 60_000);
    running.until_running(&step).await;
    running.server.change(|state| state.cancelled.insert(step.clone()));
    running.until_committed(1).await;
    assert!(running.work.state().killed.contains(&step));
    assert_eq!(running.server.state().committed, [(step, TryOutcome::Cancelled)]);
    running.end().await
}

#[tokio::test]
async fn a_report_whose_answer_was_lost_is_repeated_and_committed_once() -> Outcome {
    let running = start(FakeWork::free_running());
    running.server.change(|state| state.report_answers_lost = 2);
    running.server.offer(1, CPU, 60_000);
    running.server.until("the report is repeated", |state| state.reports_seen >= 3).await;
    assert_eq!(running.server.state().committed.len(), 1);
    running.end().await
}

#[tokio::test]
async fn a_server_that_forgot_the_worker_gets_a_new_registration_and_old_work_is_killed() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    running.server.change(|state| {
        state.known = None;
        state.leased.clear();
    });
    running.until_killed(&step).await;
    running.server.until("the worker registers anew", |state| state.registrations == 2).await;
    assert!(running.server.state().committed.is_empty());
    running.work.change(|state| state.let_go = true);
    running.server.offer(2, CPU, 60_000);
    running.until_committed(1).await;
    running.end().await
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_killed_and_fails() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 50);
    running.until_committed(1).await;
    assert!(running.work.state().killed.contains(&step));
    {
        let state = running.server.state();
        let Some((_, outcome)) = state.committed.first() else { panic!("no report") };
        assert_eq!(failure_of(outcome).code, "worker.step_timed_out");
        assert_eq!(failure_of(outcome).class, FailureClass::Retriable);
    }
    running.end().await
}

#[tokio::test]
async fn a_panic_of_the_work_is_a_failure_of_the_step_and_not_of_the_worker() -> Outcome {
    let running = start(FakeWork::default());
    running.work.change(|state| state.panic = true);
    running.server.offer(1, CPU, 60_000);
    running.until_committed(1).await;
    assert_eq!(
        running.server.state().committed.first().map(|(_, outcome)| failure_of(outcome).code.clone()),
        Some("worker.internal".to_owned())
    );
    running.work.change(|state| {
        state.panic = false;
        state.let_go = true;
    });
    running.server.offer(2, CPU, 60_000);
    running.until_committed(2).await;
    running.end().await
}

#[tokio::test]
async fn a_result_that_the_server_refuses_becomes_a_failure_that_it_takes() -> Outcome {
    let running = start(FakeWork::free_running());
    running.server.change(|state| state.refuse_reports_of_completion = true);
    running.server.offer(1, CPU, 60_000);
    running.until_committed(1).await;
    {
        let state = running.server.state();
        let Some((_, outcome)) = state.committed.first() else { panic!("no report") };
        assert_eq!(failure_of(outcome).code, "worker.report_refused");
    }
    running.end().await
}

#[tokio::test]
async fn an_exclusive_step_has_the_device_alone_and_builds_go_on_beside_it() -> Outcome {
    let running = start(FakeWork::default());
    for n in 1..=3 {
        running.server.offer(n, SHARED, 60_000);
    }
    running.work.until("two shared steps run", |state| state.running.len() == 2).await;
    let exclusive = running.server.offer(4, EXCLUSIVE, 60_000);
    running.work.change(|state| state.let_go = true);
    running.until_committed(4).await;
    assert_eq!(running.work.state().disturbed, 0, "nothing ran beside the exclusive step");
    assert!(running.server.state().committed.iter().any(|(step, _)| *step == exclusive));

    running.work.change(|state| state.let_go = false);
    let alone = running.server.offer(5, EXCLUSIVE, 60_000);
    let build = running.server.offer(6, CPU, 60_000);
    running.until_running(&alone).await;
    running.until_running(&build).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(6).await;
    running.end().await
}

#[tokio::test]
async fn each_of_several_devices_is_given_to_one_exclusive_step_at_a_time() -> Outcome {
    let running = start_with(FakeServer::default(), FakeWork::default(), introduction_with_devices(false, 1, 3));
    for n in 1..=5 {
        running.server.offer(n, EXCLUSIVE, 60_000);
    }
    running.work.until("all devices are busy", |state| state.running.len() == 3).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(5).await;
    {
        let state = running.work.state();
        assert_eq!((state.most_exclusive, state.disturbed), (3, 0));
    }
    running.end().await
}

#[tokio::test]
async fn an_exclusive_step_gets_its_turn_although_shared_ones_never_cease() -> Outcome {
    let running = start(FakeWork::free_running());
    for n in 1..=200 {
        running.server.offer(n, SHARED, 60_000);
    }
    let exclusive = running.server.offer(1_000, EXCLUSIVE, 60_000);
    running
        .server
        .until("the exclusive step is done", |state| state.committed.iter().any(|(step, _)| *step == exclusive))
        .await;
    assert!(running.server.state().committed.len() < 200, "it did not wait for all that share");
    assert_eq!(running.work.state().disturbed, 0);
    running.end().await
}

#[tokio::test]
async fn what_is_ready_comes_with_the_answer_to_a_report() -> Outcome {
    let running = start_with(FakeServer::default(), FakeWork::default(), introduction(false, 1));
    let first = running.server.offer(1, CPU, 60_000);
    running.until_running(&first).await;
    for n in 2..=4 {
        running.server.offer(n, CPU, 60_000);
    }
    running.work.change(|state| state.let_go = true);
    running.until_committed(4).await;
    assert_eq!(running.server.state().given_with_reports, 3);
    assert_eq!(running.work.state().most_running, 1);
    running.end().await
}

#[tokio::test]
async fn what_becomes_free_while_a_claim_is_on_its_way_is_claimed_at_once() -> Outcome {
    let running = start(FakeWork::default());
    let first = running.server.offer(1, CPU, 60_000);
    running.until_running(&first).await;
    // One slot is with the step, the other one with a claim that is held for seconds.
    running.server.until("a claim is held", |state| state.on_their_way.iter().any(|free| free.cpu == 1)).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(1).await;
    let stated = |state: &fake::ServerState| state.on_their_way.iter().map(|free| free.cpu).sum::<u32>();
    running.server.until("both slots are claimed", move |state| stated(state) == 2).await;
    running.end().await
}

#[tokio::test]
async fn more_steps_than_were_asked_for_wait_for_their_slot() -> Outcome {
    let running = start_with(FakeServer::default(), FakeWork::default(), introduction(false, 1));
    running.server.change(|state| state.generous_by = 2);
    for n in 1..=3 {
        running.server.offer(n, CPU, 60_000);
    }
    running.server.until("all are leased", |state| state.leased.len() == 3).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(3).await;
    assert_eq!(running.work.state().most_running, 1);
    running.end().await
}

#[tokio::test]
async fn no_more_builds_run_at_once_than_there_are_slots() -> Outcome {
    let running = start(FakeWork::default());
    for n in 1..=5 {
        running.server.offer(n, CPU, 60_000);
    }
    running.work.until("two builds run", |state| state.running.len() == 2).await;
    running.work.change(|state| state.let_go = true);
    running.until_committed(5).await;
    assert_eq!(running.work.state().most_running, 2);
    assert!(running.server.state().asked.iter().all(|free| free.cpu <= 2));
    running.end().await
}

#[tokio::test]
async fn a_worker_that_ends_kills_its_steps_and_gives_them_back() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    let (server, work) = (Arc::clone(&running.server), Arc::clone(&running.work));
    running.end().await?;
    assert!(work.state().killed.contains(&step) && work.state().running.is_empty());
    assert_eq!(server.state().committed, [(step, TryOutcome::Cancelled)]);
    Ok(())
}

#[tokio::test]
async fn a_worker_that_drains_finishes_what_it_holds_and_takes_nothing_more() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    running.stop.drain.cancel();
    // A claim that was on its way may still bring something: it is given back.
    let later = running.server.offer(2, SHARED, 60_000);
    running.until_committed(1).await;
    assert_eq!(running.server.state().committed, [(later, TryOutcome::Cancelled)]);
    running.work.change(|state| state.let_go = true);
    let server = Arc::clone(&running.server);
    running.ended().await?;
    let state = server.state();
    assert_eq!(state.committed.len(), 2);
    assert!(matches!(state.committed.last(), Some((done, TryOutcome::Completed { .. })) if *done == step));
    Ok(())
}

#[tokio::test]
async fn what_does_not_end_while_a_worker_drains_is_killed_and_given_back() -> Outcome {
    let (server, work) = (FakeServer::default(), FakeWork::default());
    let running = start_draining_within(server, work, introduction(false, 1), Duration::from_millis(50));
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    running.stop.drain.cancel();
    let (server, work) = (Arc::clone(&running.server), Arc::clone(&running.work));
    running.ended().await?;
    assert!(work.state().killed.contains(&step));
    assert_eq!(server.state().committed, [(step, TryOutcome::Cancelled)]);
    Ok(())
}

#[tokio::test]
async fn a_second_word_ends_a_worker_that_drains_at_once() -> Outcome {
    let running = start(FakeWork::default());
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    running.stop.drain.cancel();
    let (server, work) = (Arc::clone(&running.server), Arc::clone(&running.work));
    running.end().await?;
    assert!(work.state().killed.contains(&step));
    assert_eq!(server.state().committed, [(step, TryOutcome::Cancelled)]);
    Ok(())
}

#[tokio::test]
async fn a_worker_that_the_server_drains_ends_by_itself() -> Outcome {
    let running = start(FakeWork::free_running());
    running.server.offer(1, CPU, 60_000);
    running.until_committed(1).await;
    running.server.change(|state| state.draining = true);
    running.ended().await
}

#[tokio::test]
async fn an_embedded_worker_that_ends_leaves_its_leases_to_the_next_start_of_the_server() -> Outcome {
    let running = start_with(FakeServer::default(), FakeWork::default(), introduction(true, 1));
    let step = running.server.offer(1, CPU, 60_000);
    running.until_running(&step).await;
    let (server, work) = (Arc::clone(&running.server), Arc::clone(&running.work));
    running.end().await?;
    assert!(work.state().killed.contains(&step));
    assert_eq!(server.state().reports_seen, 0);
    Ok(())
}

#[tokio::test]
async fn a_worker_that_the_server_refuses_ends_with_the_servers_reason() {
    let server = FakeServer::default();
    server.change(|state| state.refuse_registration = true);
    let running = start_with(server, FakeWork::default(), introduction(false, 1));
    let ended = tokio::time::timeout(PATIENCE, running.worker).await;
    let Ok(Ok(Err(error))) = ended else { panic!("the worker did not end: {ended:?}") };
    assert_eq!(error.code(), "auth.invalid_token");
}
