//! Tests of signals to runs, and of their authors.

use nightshift_engine::event::Event;
use nightshift_engine::store::{ChangeStore, NewCampaign, RunControlStore, RunStore};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunTransition;
use nightshift_protocol::signal::{Gate, Signal};
use nightshift_protocol::step::StepFailure;

use crate::bench::Bench;

crate::bench::on_both!(
    a_signal_is_in_the_log_with_its_sender_and_requires_a_decision,
    a_key_that_was_used_for_the_same_signal_appends_nothing,
    the_same_key_with_another_signal_is_a_conflict,
    keys_of_signals_and_campaigns_do_not_meet,
    a_finished_run_accepts_no_signals,
    an_answer_to_a_gate_is_for_a_run_that_waits_there,
    the_log_of_a_run_names_who_controlled_it,
    a_run_says_which_signals_it_waits_for,
);

fn hint(text: &str) -> Signal {
    Signal::Hint { text: text.to_owned() }
}

fn key(key: &str, digest: &str) -> (String, String) {
    (key.to_owned(), digest.to_owned())
}

async fn a_signal_is_in_the_log_with_its_sender_and_requires_a_decision(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    assert!(bench.to_drive().await.is_empty());
    bench.store.signal_run(&run, hint("use\0 tiles"), Some("ops"), None, bench.now()).await.unwrap();
    bench.store.signal_run(&run, hint("x"), None, None, bench.now()).await.unwrap();
    let signals = [
        Event::SignalReceived { signal: hint("use\u{fffd} tiles"), by: Some("ops".to_owned()) },
        Event::SignalReceived { signal: hint("x"), by: None },
    ];
    assert_eq!(bench.events(&run).await[2..], signals);
    assert_eq!(bench.to_drive().await, std::slice::from_ref(&run));
    let unknown = RunId::from_uuid(bench.uuid());
    let error = bench.store.signal_run(&unknown, hint("x"), None, None, bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "run.not_found");
    bench.assert_sound().await;
}

async fn a_key_that_was_used_for_the_same_signal_appends_nothing(bench: Bench) {
    let run = bench.run().await;
    for _ in 0..3 {
        bench.store.signal_run(&run, hint("x"), None, Some(key("k", "d")), bench.now()).await.unwrap();
    }
    bench.store.signal_run(&run, hint("x"), None, Some(key("another", "d")), bench.now()).await.unwrap();
    assert_eq!(bench.log(&run).await, ["run_created", "signal_received", "signal_received"]);
    bench.complete_run(&run).await;
    bench.store.signal_run(&run, hint("x"), None, Some(key("k", "d")), bench.now()).await.unwrap();
    bench.assert_sound().await;
}

async fn the_same_key_with_another_signal_is_a_conflict(bench: Bench) {
    let run = bench.run().await;
    bench.store.signal_run(&run, hint("x"), None, Some(key("k", "d")), bench.now()).await.unwrap();
    let error = bench.store.signal_run(&run, hint("y"), None, Some(key("k", "e")), bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "request.idempotency_conflict");
    assert_eq!(bench.log(&run).await.len(), 2);
}

async fn keys_of_signals_and_campaigns_do_not_meet(bench: Bench) {
    let new = NewCampaign { idempotency: Some(key("k", "d")), ..bench.new_campaign(1) };
    let run = bench.create(new).await.runs.remove(0);
    bench.store.signal_run(&run, hint("x"), None, Some(key("k", "e")), bench.now()).await.unwrap();
    assert_eq!(bench.log(&run).await.len(), 2);
}

async fn a_finished_run_accepts_no_signals(bench: Bench) {
    let run = bench.run().await;
    bench.complete_run(&run).await;
    let error = bench.store.signal_run(&run, hint("x"), None, Some(key("k", "d")), bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "run.over");
    assert!(error.to_string().contains("completed"), "{error}");
    let error = bench.store.signal_run(&run, hint("x"), None, Some(key("k", "d")), bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "run.over", "a refused request leaves its key free");
    assert_eq!(bench.log(&run).await, ["run_created", "run_completed"]);
    bench.assert_sound().await;
}

async fn an_answer_to_a_gate_is_for_a_run_that_waits_there(bench: Bench) {
    let run = bench.run().await;
    let approved = Signal::Approved { gate: Gate::Plan };
    let rejected = Signal::Rejected { gate: Gate::NewBest, reason: "slow".to_owned() };
    for answer in [&approved, &rejected] {
        let told = bench.store.signal_run(&run, answer.clone(), None, Some(key("k", "d")), bench.now()).await;
        assert_eq!(told.unwrap_err().code(), "signal.not_awaited");
    }
    let mut decision = bench.decision(&run).await;
    decision.awaits = vec!["plan".to_owned()];
    assert!(bench.store.advance(decision).await.unwrap().is_committed());
    bench.store.signal_run(&run, approved.clone(), None, Some(key("k", "d")), bench.now()).await.unwrap();
    let told = bench.store.signal_run(&run, rejected, None, None, bench.now()).await;
    assert_eq!(told.unwrap_err().code(), "signal.not_awaited", "it waits at another gate");
    let decision = bench.decision(&run).await;
    assert!(bench.store.advance(decision).await.unwrap().is_committed());
    bench.store.signal_run(&run, approved, None, Some(key("k", "d")), bench.now()).await.unwrap();
    let log = bench.log(&run).await;
    assert_eq!(log.iter().filter(|kind| *kind == "signal_received").count(), 1, "said twice, heard once: {log:?}");
    bench.assert_sound().await;
}

async fn the_log_of_a_run_names_who_controlled_it(bench: Bench) {
    let run = bench.run().await;
    let by = Some("ops".to_owned());
    for transition in [RunTransition::Pause, RunTransition::Resume] {
        bench.store.control_run(&run, transition, Some("ops"), bench.now()).await.unwrap();
    }
    let failure = StepFailure::fatal("x", "broken");
    bench.fail_run(&run, failure.clone()).await;
    bench.store.retry_run(&run, None, Some("ops"), bench.now()).await.unwrap();
    bench.store.control_run(&run, RunTransition::Cancel, Some("ops"), bench.now()).await.unwrap();
    let said = [
        Event::RunPaused { by: by.clone() },
        Event::RunResumed { by: by.clone() },
        Event::RunFailed { failure },
        Event::RunRetried { keys: Vec::new(), by: by.clone() },
        Event::RunCancelRequested { by },
    ];
    assert_eq!(bench.events(&run).await[1..], said);
    bench.assert_sound().await;
}

async fn a_run_says_which_signals_it_waits_for(bench: Bench) {
    let run = bench.run().await;
    let awaits = vec!["plan".to_owned(), "new_best".to_owned()];
    let mut decision = bench.decision(&run).await;
    decision.awaits.clone_from(&awaits);
    assert!(bench.store.advance(decision).await.unwrap().is_committed());
    assert_eq!(bench.store.load_run(&run).await.unwrap().awaits, awaits);
    let listed = bench.store.list_runs(None, None, nightshift_engine::store::PageRequest { limit: 9, before: None });
    assert_eq!(listed.await.unwrap()[0].awaits, awaits);
    bench.complete_run(&run).await;
    assert!(bench.store.load_run(&run).await.unwrap().awaits.is_empty());
    bench.assert_sound().await;
}
