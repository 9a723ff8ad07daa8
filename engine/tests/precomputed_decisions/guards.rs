//! Tests of each event that may come between a decision and its commit, and of the cost of a precomputed decision.

use nightshift_engine::driver::Settled;
use nightshift_engine::event::Event;
use nightshift_engine::store::{Change, ChangeStore, Changed, OwnerFence, Reported, TryEnd};
use nightshift_protocol::id::ServerId;
use nightshift_protocol::run::RunTransition;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use serde_json::json;
use uuid::Uuid;

use crate::site::{Site, done, phases};
use crate::toy::{Phase, SOFT};

fn hint(site: &Site) {
    let at = nightshift_engine::clock::Clock::now(&*site.clock);
    let heard = Event::SignalReceived { signal: Signal::Hint { text: "x".to_owned() }, by: None };
    site.store.world().run(&site.run).unwrap().append(at, heard);
}

fn kinds(site: &Site) -> Vec<&'static str> {
    site.stored().log.iter().map(|event| event.event.kind()).collect()
}

#[tokio::test]
async fn a_step_costs_one_commit_and_no_read() {
    let mut site = Site::begun(&phases(&[1; 10])).await;
    for number in 0..10 {
        let key = format!("phase{number}/step0");
        let before = site.store.cost();
        let report = site.report_of(&key, done(&key));
        let foreseen = site.driver.precompute_decision(&report).unwrap();
        let changed = site.store.commit(vec![Change::Report(report), Change::Advance(foreseen.advance)]).await.unwrap();
        let [Changed::Reported(reported), Changed::Advanced(advanced)] = &changed[..] else { panic!("{changed:?}") };
        let settled = site.driver.settle(foreseen.ticket, *reported, advanced);
        assert_eq!(settled, if number == 9 { Settled::Ended } else { Settled::Decided });
        assert_eq!(site.store.cost(), (before.0, before.1 + 1));
        site.claim().await;
    }
    assert_eq!(site.stored().record.status.as_str(), "completed");
    assert_eq!(site.driver.cached(), (0, 0), "what is over is forgotten");
}

#[tokio::test]
async fn a_report_through_another_server_costs_its_owner_one_read() {
    let mut site = Site::begun(&phases(&[2; 10])).await;
    let mut expected = site.store.cost();
    for number in 0..10 {
        for step in 0..2 {
            let report = site.report_of(&format!("phase{number}/step{step}"), done("a"));
            assert_eq!(site.store.report(report).await.unwrap(), Reported::Committed);
            site.drive().await;
            expected = (expected.0 + 1, expected.1 + 2);
            assert_eq!(site.store.cost(), expected, "a read of the new events, the report and the decision");
        }
        site.claim().await;
        expected.1 += 1;
    }
    assert_eq!(site.stored().record.status.as_str(), "completed");
    assert_eq!(site.driver.cached(), (0, 0));
}

#[tokio::test]
async fn after_another_try_the_cached_run_is_still_of_use() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    let (reads, _) = site.store.cost();
    let at = nightshift_engine::clock::Clock::now(&*site.clock);
    for _ in 0..2 {
        let busy = TryEnd::Retry { failure: StepFailure::retriable("busy", "later"), at };
        let report = site.report_of("phase0/step0", busy);
        site.report_and_drive(report, false).await;
    }
    assert_eq!(site.store.cost().0, reads + 2, "the new events, twice");
    let report = site.report_of("phase0/step0", done("a"));
    assert_eq!(site.report_ahead(report, |_| {}).await, Some(Settled::Decided));
    assert_eq!(site.store.cost().0, reads + 2);
}

#[tokio::test]
async fn a_run_under_another_fence_is_loaded() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    let server = ServerId::from_uuid(Uuid::from_u128(7));
    {
        let mut world = site.store.world();
        let record = &mut world.run(&site.run).unwrap().record;
        (record.owner, record.owner_epoch) = (Some(server.clone()), 3);
    }
    site.fence = Some(OwnerFence { server, epoch: 3 });
    let (reads, _) = site.store.cost();
    let report = site.report_of("phase0/step0", done("a"));
    site.report_and_drive(report, false).await;
    assert_eq!(site.store.cost().0, reads + 3, "the run, its events and its steps");
}

#[tokio::test]
async fn an_outdated_run_in_the_cache_is_loaded() {
    let mut site = Site::begun(&phases(&[2, 1])).await;
    // The status changes the revision without the event that the driver would read.
    site.store.world().run(&site.run).unwrap().record.revision += 1;
    let report = site.report_of("phase0/step0", done("a"));
    site.report_and_drive(report, false).await;
    assert_eq!(site.stored().record.folded_seq, 4);
    let before = site.store.cost();
    let report = site.report_of("phase0/step1", done("b"));
    assert_eq!(site.report_ahead(report, |_| {}).await, Some(Settled::Decided));
    assert_eq!(site.store.cost().0, before.0, "it is cached again");
}

#[tokio::test]
async fn a_signal_that_slips_in_is_decided_about_first() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    let report = site.report_of("phase0/step0", done("a"));
    assert_eq!(site.report_ahead(report, hint).await, Some(Settled::Drive));
    assert_eq!(kinds(&site), ["run_created", "step_scheduled", "signal_received", "step_completed", "step_scheduled"]);
}

#[tokio::test]
async fn a_signal_that_came_before_is_not_overlooked() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    hint(&site);
    let report = site.report_of("phase0/step0", done("a"));
    assert_eq!(site.report_ahead(report, |_| {}).await, Some(Settled::Drive));
    let state = site.stored().record.state.unwrap();
    assert_eq!(state["seen"].as_array().map(Vec::len), Some(4));
}

#[tokio::test]
async fn a_pause_that_slips_in_is_kept() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    let report = site.report_of("phase0/step0", done("a"));
    let pause = |site: &Site| {
        let at = nightshift_engine::clock::Clock::now(&*site.clock);
        site.store.world().control(&site.run, RunTransition::Pause, None, at).unwrap();
    };
    assert_eq!(site.report_ahead(report, pause).await, Some(Settled::Drive));
    assert_eq!(site.stored().record.status.as_str(), "paused");
    assert_eq!(site.stored().steps.len(), 2, "the next step is known, and waits");
}

#[tokio::test]
async fn a_cancel_that_slips_in_begins_nothing() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    let report = site.report_of("phase0/step0", done("a"));
    let cancel = |site: &Site| {
        let at = nightshift_engine::clock::Clock::now(&*site.clock);
        site.store.world().control(&site.run, RunTransition::Cancel, None, at).unwrap();
    };
    assert_eq!(site.report_ahead(report, cancel).await, Some(Settled::Drive));
    assert_eq!(site.stored().record.status.as_str(), "cancelled");
    assert_eq!(site.stored().steps.len(), 1);
}

#[tokio::test]
async fn a_lost_lease_commits_nothing_and_forgets_what_was_foreseen() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    let mut report = site.report_of("phase0/step0", done("a"));
    report.epoch += 1;
    let before = site.facts();
    assert_eq!(site.report_ahead(report, |_| {}).await, Some(Settled::LeaseLost));
    assert_eq!(site.facts(), before);
    let report = site.report_of("phase0/step0", done("a"));
    assert!(site.driver.precompute_decision(&report).is_none());
    site.report_and_drive(report, false).await;
    let report = site.report_of("phase1/step0", done("b"));
    assert_eq!(site.report_ahead(report, |_| {}).await, Some(Settled::Ended));
}

#[tokio::test]
async fn the_end_of_a_lease_is_not_taken_for_the_report_that_it_made_late() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    let report = site.report_of("phase0/step0", done("a"));
    let expire = |site: &Site| {
        let at = nightshift_engine::clock::Clock::now(&*site.clock).plus_ms(60_000);
        let lost = TryEnd::Retry { failure: StepFailure::retriable("worker.lost", "x"), at };
        let ended = site.store.world().end_try(&report.step, report.epoch, lost, at, true).unwrap();
        assert_eq!(ended, Reported::Committed);
    };
    // The log is one event longer, as expected, but with another event.
    assert_eq!(site.report_ahead(report.clone(), expire).await, Some(Settled::LeaseLost));
    assert_eq!(kinds(&site), ["run_created", "step_scheduled", "step_retried"]);
    assert_eq!(site.stored().steps.len(), 1);
}

#[tokio::test]
async fn a_second_copy_of_a_report_decides_nothing_again() {
    let site = Site::begun(&phases(&[1, 1])).await;
    let report = site.report_of("phase0/step0", done("a"));
    let foreseen = site.driver.precompute_decision(&report).unwrap();
    // The same report through another server is committed there, and that server drives the run.
    assert_eq!(site.store.report(report.clone()).await.unwrap(), Reported::Committed);
    site.drive().await;
    let before = site.facts();
    let changed = site.store.commit(vec![Change::Report(report), Change::Advance(foreseen.advance)]).await.unwrap();
    let [Changed::Reported(reported), Changed::Advanced(advanced)] = &changed[..] else { panic!("{changed:?}") };
    assert_eq!(*reported, Reported::Committed);
    assert_eq!(site.driver.settle(foreseen.ticket, *reported, advanced), Settled::Drive);
    assert_eq!(site.facts(), before);
}

#[tokio::test]
async fn a_copy_that_was_committed_and_not_decided_is_driven() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    let report = site.report_of("phase0/step0", done("a"));
    assert_eq!(site.store.report(report.clone()).await.unwrap(), Reported::Committed);
    assert_eq!(site.report_ahead(report, |_| {}).await, Some(Settled::Drive));
    assert_eq!(kinds(&site), ["run_created", "step_scheduled", "step_completed", "step_scheduled"]);
}

#[tokio::test]
async fn a_server_that_lost_the_run_decides_nothing() {
    let mut site = Site::begun(&phases(&[1, 1, 1])).await;
    let fence = OwnerFence { server: ServerId::from_uuid(Uuid::from_u128(7)), epoch: 3 };
    let own = |site: &Site, epoch| {
        let mut world = site.store.world();
        let record = &mut world.run(&site.run).unwrap().record;
        (record.owner, record.owner_epoch) = (Some(ServerId::from_uuid(Uuid::from_u128(7))), epoch);
    };
    own(&site, 3);
    site.fence = Some(fence);
    let report = site.report_of("phase0/step0", done("a"));
    site.report_and_drive(report, false).await;
    let report = site.report_of("phase1/step0", done("b"));
    // The run changes its owner and returns, so cached data may be outdated.
    assert_eq!(site.report_ahead(report, |site| own(site, 5)).await, Some(Settled::NotOwner));
    assert_eq!(kinds(&site).last(), Some(&"step_completed"));
}

#[tokio::test]
async fn one_report_at_a_time_is_decided_ahead() {
    let site = Site::begun(&phases(&[2, 1])).await;
    let first = site.driver.precompute_decision(&site.report_of("phase0/step0", done("a")));
    assert!(first.is_some());
    assert!(site.driver.precompute_decision(&site.report_of("phase0/step1", done("b"))).is_none());
}

#[tokio::test]
async fn a_commit_that_failed_leaves_nothing_behind() {
    let mut site = Site::begun(&phases(&[1, 1])).await;
    let report = site.report_of("phase0/step0", done("a"));
    drop(site.driver.precompute_decision(&report));
    assert_eq!(site.report_ahead(report, |_| {}).await, None);
    assert_eq!(kinds(&site).last(), Some(&"step_scheduled"));
}

#[tokio::test]
async fn a_failure_ends_the_run_ahead_unless_it_is_outlived() {
    for (code, status) in [("hard", "failed"), (SOFT, "running")] {
        let mut site = Site::begun(&phases(&[1, 1])).await;
        let end = TryEnd::Failed { failure: StepFailure::fatal(code, "x") };
        let report = site.report_of("phase0/step0", end);
        let settled = site.report_ahead(report, |_| {}).await;
        assert_eq!(settled, Some(if code == SOFT { Settled::Decided } else { Settled::Ended }));
        assert_eq!(site.stored().record.status.as_str(), status);
    }
}

#[tokio::test]
async fn a_dead_end_is_seen_ahead_too() {
    let mut steps = phases(&[1]);
    steps.push(Phase { width: 1, gate: false, stuck: true });
    let mut site = Site::begun(&steps).await;
    let report = site.report_of("phase0/step0", done("a"));
    assert_eq!(site.report_ahead(report, |_| {}).await, Some(Settled::Ended));
    assert_eq!(site.stored().record.failure.map(|failure| failure.code), Some("run.stuck".to_owned()));
}

#[tokio::test]
async fn a_gate_is_waited_at_and_the_steps_behind_it_are_decided_ahead_again() {
    let mut steps = phases(&[1, 1, 1]);
    steps[1].gate = true;
    let mut site = Site::begun(&steps).await;
    let report = site.report_of("phase0/step0", done("a"));
    assert_eq!(site.report_ahead(report, |_| {}).await, Some(Settled::Decided));
    assert_eq!(site.stored().record.awaits, ["gate 1"]);
    let at = nightshift_engine::clock::Clock::now(&*site.clock);
    let signal = Signal::Approved { gate: nightshift_protocol::signal::Gate::Plan };
    let approved = Event::SignalReceived { signal, by: None };
    site.store.world().run(&site.run).unwrap().append(at, approved);
    site.drive().await;
    site.claim().await;
    assert!(site.stored().record.awaits.is_empty());
    let report = site.report_of("phase1/step0", done("b"));
    assert_eq!(site.report_ahead(report, |_| {}).await, Some(Settled::Decided));
}

#[tokio::test]
async fn a_value_that_the_store_would_change_is_not_precomputed() {
    let site = Site::begun(&phases(&[1, 1])).await;
    for output in [json!("a\0"), json!({ "a\0": 1 }), json!([["\0"]])] {
        let report = site.report_of("phase0/step0", TryEnd::Completed { output });
        assert!(site.driver.precompute_decision(&report).is_none());
    }
    let report = site.report_of("phase0/step0", TryEnd::Completed { output: json!("a") });
    assert!(site.driver.precompute_decision(&report).is_some(), "nothing was forgotten");
}
