//! Tests of decisions of the driver.

use nightshift_engine::event::Event;
use nightshift_engine::store::{Advanced, ChangeStore, Reported, RunControlStore, RunStore};
use nightshift_engine::workflow::{StatePart, StoredState};
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use nightshift_store::AttemptIndex as _;
use serde_json::json;

use crate::bench::{ALL, Bench, done, order};
use crate::raw::Raw;

crate::bench::on_both!(
    a_decision_stores_the_state_and_makes_its_steps_ready,
    events_of_a_decision_require_no_other_decision,
    of_two_decisions_from_one_revision_the_second_is_a_conflict,
    a_decision_that_folds_events_which_do_not_exist_is_a_conflict,
    a_decision_made_before_a_pause_or_a_cancellation_is_a_conflict,
    a_key_that_exists_is_left_as_it_is,
    steps_of_a_paused_run_are_scheduled_and_wait,
    a_completed_run_takes_its_open_steps_with_it,
    a_failed_run_says_why,
    a_run_that_is_over_cannot_end_again,
    events_are_read_after_a_position,
    a_page_of_the_log_ends_after_so_many_bytes,
    the_status_of_a_run_is_read_without_its_state,
    a_decision_writes_the_parts_that_changed_and_leaves_the_others,
    a_state_that_is_one_document_is_read_as_it_is,
    parts_that_changed_after_a_revision_are_read_without_the_others,
    steps_in_a_folder_are_those_whose_keys_begin_with_it,
);

async fn a_decision_stores_the_state_and_makes_its_steps_ready(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b"]).await;
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.revision, record.folded_seq, record.last_seq), (1, 1, 3));
    assert_eq!(record.state, Some(json!({ "folded": 1, "input": "x", "seen": [1, {}] })));
    assert_eq!(record.state_parts, 3);
    assert_eq!(bench.log(&run).await, ["run_created", "step_scheduled a", "step_scheduled b"]);
    let step = bench.step(&run, "a").await;
    assert_eq!((step.status, step.epoch, step.tries, step.input), (StepStatus::Scheduled, 0, 0, json!({ "of": "a" })));
    bench.assert_sound().await;
}

async fn events_of_a_decision_require_no_other_decision(bench: Bench) {
    let run = bench.run().await;
    assert_eq!(bench.to_drive().await, std::slice::from_ref(&run));
    bench.schedule(&run, &["a"]).await;
    assert_eq!(bench.to_drive().await, []);
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    assert_eq!(bench.to_drive().await, []);
    bench.report(&step, done(json!(1))).await;
    assert_eq!(bench.to_drive().await, [run]);
}

async fn of_two_decisions_from_one_revision_the_second_is_a_conflict(bench: Bench) {
    let run = bench.run().await;
    let mut first = bench.decision(&run).await;
    first.schedule = vec![(StepId::from_uuid(bench.uuid()), order("a"))];
    let mut second = bench.decision(&run).await;
    second.schedule = vec![(StepId::from_uuid(bench.uuid()), order("b"))];
    assert!(bench.store.advance(first).await.unwrap().is_committed());
    assert_eq!(bench.store.advance(second).await.unwrap(), Advanced::Conflict);
    assert_eq!(bench.log(&run).await, ["run_created", "step_scheduled a"]);
}

async fn a_decision_that_folds_events_which_do_not_exist_is_a_conflict(bench: Bench) {
    let run = bench.run().await;
    let mut decision = bench.decision(&run).await;
    decision.folded_seq = 2;
    assert_eq!(bench.store.advance(decision).await.unwrap(), Advanced::Conflict);
}

async fn a_decision_made_before_a_pause_or_a_cancellation_is_a_conflict(bench: Bench) {
    for transition in [RunTransition::Pause, RunTransition::Cancel] {
        let run = bench.run().await;
        let decision = bench.decision(&run).await;
        bench.store.control_run(&run, transition, None, bench.now()).await.unwrap();
        assert_eq!(bench.store.advance(decision).await.unwrap(), Advanced::Conflict, "{transition:?}");
    }
}

async fn a_key_that_exists_is_left_as_it_is(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let before = bench.step(&run, "a").await;
    bench.schedule(&run, &["a", "b"]).await;
    assert_eq!(bench.step(&run, "a").await, before);
    assert_eq!(bench.log(&run).await, ["run_created", "step_scheduled a", "step_scheduled b"]);
    bench.assert_sound().await;
}

async fn steps_of_a_paused_run_are_scheduled_and_wait(bench: Bench) {
    let run = bench.run().await;
    bench.store.control_run(&run, RunTransition::Pause, None, bench.now()).await.unwrap();
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    assert!(bench.claim(&worker, 1).await.is_empty());
    bench.store.control_run(&run, RunTransition::Resume, None, bench.now()).await.unwrap();
    assert_eq!(bench.claim(&worker, 1).await.len(), 1);
    bench.assert_sound().await;
}

async fn a_completed_run_takes_its_open_steps_with_it(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["held", "waiting"]).await;
    let worker = bench.worker().await;
    let held = bench.claim(&worker, 1).await.remove(0);
    bench.complete_run(&run).await;
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.status, record.finished_at), (RunStatus::Completed, Some(bench.now())));
    let log = bench.log(&run).await;
    assert_eq!(log[3..], ["step_cancelled held", "step_cancelled waiting", "run_completed"]);
    assert!(bench.claim(&worker, 9).await.is_empty());
    assert_eq!(bench.report(&held, done(json!(1))).await, Reported::LeaseLost);
    assert_eq!(bench.log(&run).await, log);
    assert_eq!(bench.to_drive().await, []);
    bench.assert_sound().await;
}

async fn a_failed_run_says_why(bench: Bench) {
    let run = bench.run().await;
    bench.fail_run(&run, StepFailure::fatal("toolchain.missing", "no compiler")).await;
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.status, record.failure.unwrap().code.as_str()), (RunStatus::Failed, "toolchain.missing"));
    bench.assert_sound().await;
}

async fn a_run_that_is_over_cannot_end_again(bench: Bench) {
    let run = bench.run().await;
    bench.complete_run(&run).await;
    let mut decision = bench.decision(&run).await;
    decision.end = Some((RunTransition::Complete, Event::RunCompleted { result: json!(2) }));
    assert_eq!(bench.store.advance(decision).await.unwrap(), Advanced::Conflict);
}

async fn events_are_read_after_a_position(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b", "c"]).await;
    let events = bench.store.events_after(&run, 1, 2).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(events[0].at, bench.now());
    assert!(bench.store.events_after(&run, 4, 9).await.unwrap().is_empty());
    assert!(bench.store.events_after(&run, u64::MAX, 9).await.unwrap().is_empty());
}

async fn a_page_of_the_log_ends_after_so_many_bytes(bench: Bench) {
    let run = bench.run().await;
    let signal = Signal::Hint { text: "x".repeat(1 << 20) };
    for _ in 0..9 {
        bench.store.signal_run(&run, signal.clone(), None, None, bench.now()).await.unwrap();
    }
    let (mut seqs, mut pages) = (Vec::new(), 0);
    loop {
        let page = bench.store.events_after(&run, seqs.last().copied().unwrap_or(0), ALL).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 5, "{} events of 1 MiB", page.len());
        seqs.extend(page.iter().map(|record| record.seq));
        pages += 1;
    }
    assert_eq!(seqs, (1..=10).collect::<Vec<_>>());
    assert!(pages >= 2);
}

async fn the_status_of_a_run_is_read_without_its_state(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let mut raw = Raw::connect(&bench.place).await;
    raw.execute("UPDATE run_state SET state = 'no JSON'").await;
    assert_eq!(bench.store.load_run(&run).await.unwrap_err().code(), "store.corrupt");
    assert_eq!(bench.store.run_status(&run).await.unwrap(), RunStatus::Running);
    raw.execute("UPDATE run_state SET state = '{}'").await;
    raw.execute("UPDATE run_part SET value = 'no JSON' WHERE number = 2").await;
    assert_eq!(bench.store.load_run(&run).await.unwrap_err().code(), "store.corrupt");
    assert_eq!(bench.store.run_status(&run).await.unwrap(), RunStatus::Running);
    let unknown = bench.store.run_status(&RunId::from_uuid(bench.uuid())).await;
    assert_eq!(unknown.unwrap_err().code(), "run.not_found");
}

async fn a_decision_writes_the_parts_that_changed_and_leaves_the_others(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    // Many parts, ordered by their numbers.
    let part = |number| StatePart { field: "seen".to_owned(), number, value: json!(number) };
    let mut decision = bench.decision(&run).await;
    decision.state = Some(StoredState { head: json!({ "folded": 2 }), parts: (3..=12).map(part).collect() });
    assert!(bench.store.advance(decision).await.unwrap().is_committed());
    let expected = json!({ "folded": 2, "input": "x", "seen": [1, {}, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] });
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.state, record.state_parts), (Some(expected.clone()), 13));

    let mut decision = bench.decision(&run).await;
    decision.state = None;
    assert!(bench.store.advance(decision).await.unwrap().is_committed());
    assert_eq!(bench.store.load_run(&run).await.unwrap().state, Some(expected), "the state stays");
}

async fn a_state_that_is_one_document_is_read_as_it_is(bench: Bench) {
    let run = bench.run().await;
    let document = json!({ "seen": [1, 2], "phase": "x" });
    let mut decision = bench.decision(&run).await;
    decision.state = Some(document.clone().into());
    assert!(bench.store.advance(decision).await.unwrap().is_committed());
    let record = bench.store.load_run(&run).await.unwrap();
    assert_eq!((record.state, record.state_parts), (Some(document), 0));
}

async fn parts_that_changed_after_a_revision_are_read_without_the_others(bench: Bench) {
    let run = bench.run().await;
    assert_eq!(bench.store.changes_of(&run, 0).await.unwrap().state, None, "before the first decision");
    bench.schedule(&run, &["a"]).await;
    let part = |number, value: u32| StatePart { field: "seen".to_owned(), number, value: json!(value) };
    let mut decision = bench.decision(&run).await;
    decision.state = Some(StoredState { head: json!({ "folded": 2 }), parts: vec![part(2, 22), part(3, 33)] });
    assert!(bench.store.advance(decision).await.unwrap().is_committed());

    let changes = async |revision| bench.store.changes_of(&run, revision).await.unwrap();
    let second = changes(1).await;
    assert_eq!((second.run.revision, second.run.folded_seq, &second.run.state), (2, 2, &None));
    assert_eq!(second.state, Some(StoredState { head: json!({ "folded": 2 }), parts: vec![part(2, 22), part(3, 33)] }));
    assert_eq!(changes(0).await.state.unwrap().parts.len(), 4, "all parts");
    assert_eq!(changes(2).await.state.unwrap().parts, []);
    let unknown = bench.store.changes_of(&RunId::from_uuid(bench.uuid()), 0).await;
    assert_eq!(unknown.unwrap_err().code(), "run.not_found");
}

async fn steps_in_a_folder_are_those_whose_keys_begin_with_it(bench: Bench) {
    let (run, other) = (bench.run().await, bench.run().await);
    bench
        .schedule(&run, &["s1/attempt1/build", "s1/attempt1/check", "s1/attempt10/build", "s1/attempt1", "s2/a"])
        .await;
    bench.schedule(&other, &["s1/attempt1/build"]).await;
    let keys = async |folder| {
        let steps = bench.store.steps_in(&run, folder).await.unwrap();
        steps.into_iter().map(|step| step.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("s1/attempt1").await, ["s1/attempt1/build", "s1/attempt1/check"]);
    assert_eq!(keys("s1/attempt2").await, [""; 0]);
}
