//! Tests of claims, heartbeats, reports, expiry, timers.

use nightshift_engine::event::Event;
use nightshift_engine::store::{
    ChangeStore, ClaimRequest, LeaseStore, QueueStore, Report, Reported, RunControlStore, StepRecord, TryEnd,
    WatchStore, WorkerStore,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::id::{StepId, WorkerId};
use nightshift_protocol::machine::{DeviceUse, Needs};
use nightshift_protocol::run::{RunTransition, StepStatus};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::Target;
use serde_json::json;

use crate::bench::{Bench, LEASE_MS, done, lost, order, route};
use crate::raw::Raw;

crate::bench::on_both!(
    a_claim_takes_the_oldest_steps_and_begins_a_new_epoch,
    a_claim_takes_steps_of_its_routes_only_and_no_more_than_it_has_slots,
    two_racing_claims_never_get_the_same_step,
    an_unknown_worker_claims_nothing,
    a_committed_result_is_in_the_step_and_in_the_log,
    a_second_copy_of_a_report_is_committed_and_changes_nothing,
    a_second_copy_of_a_failed_try_is_recognised_whatever_its_next_moment,
    a_report_of_an_earlier_epoch_changes_nothing,
    a_report_on_a_step_that_does_not_exist_is_an_error,
    a_heartbeat_extends_leases_of_the_same_worker_and_epoch,
    a_lease_that_ran_out_is_not_extended,
    an_expired_lease_of_an_unreadable_step_hides_no_other_one,
    an_expired_lease_can_be_claimed_again_and_the_late_report_is_dropped,
    a_report_that_comes_before_the_sweeper_wins,
    a_lease_that_was_extended_meanwhile_does_not_expire,
    an_expired_step_without_tries_fails_and_one_of_a_cancelled_run_is_cancelled,
    a_retry_waits_for_its_timer,
    a_step_that_waits_on_for_the_same_reason_is_logged_once,
    timers_fire_in_rounds_of_a_limit,
);

fn retry_now(bench: &Bench) -> TryEnd {
    TryEnd::Retry { failure: lost(), at: bench.now() }
}

async fn an_expired_lease_of_an_unreadable_step_hides_no_other_one(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b"]).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 2).await;
    let sql = format!("UPDATE step SET failure = '{{' WHERE public_id = '{}'", steps[0].id);
    Raw::connect(&bench.place).await.execute(&sql).await;
    bench.clock.forward(20_000);
    let expired = bench.store.expired_leases(bench.now(), 9).await.unwrap();
    assert_eq!(expired.iter().map(|lease| &lease.step.id).collect::<Vec<_>>(), [&steps[1].id]);
    let end = TryEnd::Failed { failure: lost() };
    bench.store.expire_lease(&steps[1].id, 1, end, bench.now()).await.unwrap();
    let error = bench.store.expired_leases(bench.now(), 9).await.unwrap_err();
    assert!(error.to_string().contains(steps[0].id.as_str()), "{error}");
}

async fn a_claim_takes_the_oldest_steps_and_begins_a_new_epoch(bench: Bench) {
    let runs = bench.create(bench.new_campaign(2)).await.runs;
    bench.schedule(&runs[0], &["a", "b"]).await;
    bench.schedule(&runs[1], &["c"]).await;
    let worker = bench.worker().await;
    bench.clock.forward(7);
    let steps = bench.claim(&worker, 2).await;
    assert_eq!(steps.iter().map(|step| step.key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let step = &steps[0];
    assert_eq!((step.status, step.epoch, step.tries), (StepStatus::Leased, 1, 1));
    assert_eq!((step.started_at, step.worker.as_ref()), (Some(bench.now()), Some(&worker)));
    assert_eq!(bench.store.load_step(&step.id).await.unwrap(), *step);
    assert_eq!(bench.store.list_workers(9).await.unwrap()[0].leases, 2);
    assert_eq!(bench.store.worker_marks(9).await.unwrap()[0].leases, 2);
    bench.assert_sound().await;
}

async fn a_claim_takes_steps_of_its_routes_only_and_no_more_than_it_has_slots(bench: Bench) {
    let run = bench.run().await;
    let build = Needs::worker(Target::Cpu, DeviceUse::None);
    let other = Needs::worker(Target::Cuda, DeviceUse::None);
    let mut orders = Vec::new();
    for n in 0..3 {
        for (kind, needs) in [("build", &build), ("other", &other), ("agent", &Needs::agent())] {
            orders.push(StepOrder { needs: needs.clone(), ..order(&format!("{kind}{n}")) });
        }
    }
    bench.schedule_orders(&run, orders).await;
    let worker = bench.worker().await;
    let routes = vec![build.route(), route(), "unheard/of".to_owned()];
    let claim = ClaimRequest { routes, ..bench.claim_request(&worker, 4) };
    let keys = |steps: Vec<StepRecord>| steps.into_iter().map(|step| step.key).collect::<Vec<_>>();
    assert_eq!(keys(bench.store.claim(claim.clone()).await.unwrap()), ["build0", "agent0", "build1", "agent1"]);
    assert_eq!(keys(bench.store.claim(claim.clone()).await.unwrap()), ["build2", "agent2"]);
    let nothing_wanted = ClaimRequest { cpu_slots: 0, routes: vec![other.route()], ..claim };
    assert_eq!(keys(bench.store.claim(nothing_wanted).await.unwrap()), [""; 0]);
    bench.assert_sound().await;
}

async fn two_racing_claims_never_get_the_same_step(bench: Bench) {
    let run = bench.run().await;
    let keys: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
    bench.schedule(&run, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut workers = Vec::new();
    for _ in 0..8 {
        workers.push(bench.worker().await);
    }
    let claims = workers.iter().map(|worker| bench.claim(worker, 4));
    let claimed = futures::future::join_all(claims).await;
    let mut ids: Vec<_> = claimed.iter().flatten().map(|step| step.id.clone()).collect();
    assert_eq!(ids.len(), 20);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    bench.assert_sound().await;
}

async fn an_unknown_worker_claims_nothing(bench: Bench) {
    let stranger = WorkerId::from_uuid(bench.uuid());
    let error = bench.store.claim(bench.claim_request(&stranger, 1)).await.unwrap_err();
    assert_eq!(error.code(), "worker.not_found");
    let error = bench.store.heartbeat(&stranger, &[], bench.now(), bench.now()).await.unwrap_err();
    assert_eq!(error.code(), "worker.not_found");
}

async fn a_committed_result_is_in_the_step_and_in_the_log(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    bench.clock.forward(9);
    let output = json!({ "time_ns": 0.1 + 0.2 });
    assert_eq!(bench.report(&step, done(output.clone())).await, Reported::Committed);
    let step = bench.step(&run, "a").await;
    assert_eq!((step.status, step.finished_at), (StepStatus::Completed, Some(bench.now())));
    assert_eq!(step.output, Some(output));
    assert_eq!(bench.log(&run).await[2..], ["step_completed a"]);
    bench.assert_sound().await;
}

async fn a_second_copy_of_a_report_is_committed_and_changes_nothing(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b"]).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 2).await;
    for (step, end) in steps.iter().zip([done(json!(1)), TryEnd::Failed { failure: lost() }]) {
        assert_eq!(bench.report(step, end.clone()).await, Reported::Committed);
        let log = bench.log(&run).await;
        assert_eq!(bench.report(step, end).await, Reported::Committed);
        assert_eq!(bench.log(&run).await, log);
    }
    assert_eq!(bench.report(&steps[0], done(json!(2))).await, Reported::LeaseLost, "another result is no copy");
    assert_eq!(bench.report(&steps[1], done(json!(1))).await, Reported::LeaseLost);
    bench.assert_sound().await;
}

async fn a_second_copy_of_a_failed_try_is_recognised_whatever_its_next_moment(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    let first = TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(500) };
    assert_eq!(bench.report(&step, first).await, Reported::Committed);
    let copy = TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(900) };
    assert_eq!(bench.report(&step, copy).await, Reported::Committed);
    assert_eq!(bench.step(&run, "a").await.not_before, Some(bench.now().plus_ms(500)));
}

async fn a_report_of_an_earlier_epoch_changes_nothing(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let stale = bench.claim(&worker, 1).await.remove(0);
    bench.report(&stale, retry_now(&bench)).await;
    let fresh = bench.claim(&worker, 1).await.remove(0);
    assert_eq!((stale.epoch, fresh.epoch, fresh.tries), (1, 2, 2));
    for end in [done(json!(1)), TryEnd::Failed { failure: StepFailure::fatal("x", "x") }, TryEnd::Cancelled] {
        assert_eq!(bench.report(&stale, end).await, Reported::LeaseLost);
    }
    assert_eq!(
        bench.report(&StepRecord { epoch: u64::MAX, ..fresh.clone() }, TryEnd::Cancelled).await,
        Reported::LeaseLost
    );
    assert_eq!(bench.step(&run, "a").await, fresh);
    assert_eq!(bench.report(&fresh, done(json!(2))).await, Reported::Committed);
    bench.assert_sound().await;
}

async fn a_report_on_a_step_that_does_not_exist_is_an_error(bench: Bench) {
    let unknown = StepId::from_uuid(bench.uuid());
    let report = Report { step: unknown, epoch: 1, end: TryEnd::Cancelled, used: Vec::new(), at: bench.now() };
    let error = bench.store.report(report).await.unwrap_err();
    assert_eq!(error.code(), "step.not_found");
}

async fn a_heartbeat_extends_leases_of_the_same_worker_and_epoch(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b", "c"]).await;
    let (worker, other) = (bench.worker().await, bench.worker().await);
    let steps = bench.claim(&worker, 2).await;
    let foreign = bench.claim(&other, 1).await.remove(0);
    let unknown = StepId::from_uuid(bench.uuid());
    bench.clock.forward(10_000);
    let leases = [
        (steps[0].id.clone(), 1),
        (steps[1].id.clone(), 2),
        (foreign.id.clone(), 1),
        (unknown.clone(), 1),
        (steps[0].id.clone(), u64::MAX),
    ];
    let until = bench.now().plus_ms(LEASE_MS);
    let heartbeat = bench.store.heartbeat(&worker, &leases, bench.now(), until).await.unwrap();
    let lost = [steps[1].id.clone(), foreign.id.clone(), unknown, steps[0].id.clone()];
    assert_eq!((heartbeat.lost.as_slice(), heartbeat.cancelled.len()), (lost.as_slice(), 0));
    assert_eq!(bench.store.list_workers(9).await.unwrap()[0].id, worker, "it was heard of last");

    bench.clock.forward(5_000);
    let expired = bench.store.expired_leases(bench.now(), 9).await.unwrap();
    let keys: Vec<_> = expired.iter().map(|lease| lease.step.key.as_str()).collect();
    assert_eq!(keys, ["b", "c"], "only the first lease was extended");
}

async fn a_lease_that_ran_out_is_not_extended(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    bench.clock.forward(15_000);
    let leases = [(step.id.clone(), step.epoch)];
    let heartbeat = bench.store.heartbeat(&worker, &leases, bench.now(), bench.now().plus_ms(1)).await.unwrap();
    assert_eq!(heartbeat.lost, [step.id]);
}

async fn an_expired_lease_can_be_claimed_again_and_the_late_report_is_dropped(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let late = bench.claim(&worker, 1).await.remove(0);
    assert!(bench.store.expired_leases(bench.now(), 9).await.unwrap().is_empty());
    bench.clock.forward(15_000);
    let expired = bench.store.expired_leases(bench.now(), 9).await.unwrap();
    assert_eq!((expired.len(), &expired[0].step, expired[0].epoch), (1, &late, 1));
    let expire = || bench.store.expire_lease(&late.id, late.epoch, retry_now(&bench), bench.now());
    assert_eq!(expire().await.unwrap(), Reported::Committed);
    bench.assert_sound().await;
    assert_eq!(bench.report(&late, done(json!("late"))).await, Reported::LeaseLost);
    let again = bench.claim(&worker, 1).await.remove(0);
    assert_eq!((again.epoch, again.tries, again.failure.as_ref().unwrap().code.as_str()), (2, 2, "worker.lost"));
    assert_eq!(bench.report(&again, done(json!("in time"))).await, Reported::Committed);
    assert_eq!(bench.step(&run, "a").await.output, Some(json!("in time")));
}

async fn a_report_that_comes_before_the_sweeper_wins(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    bench.clock.forward(60_000);
    assert_eq!(bench.report(&step, done(json!(1))).await, Reported::Committed);
    let swept = bench.store.expire_lease(&step.id, step.epoch, retry_now(&bench), bench.now()).await.unwrap();
    assert_eq!(swept, Reported::LeaseLost);
    assert_eq!(bench.step(&run, "a").await.status, StepStatus::Completed);
}

async fn a_lease_that_was_extended_meanwhile_does_not_expire(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    let swept_at = bench.now().plus_ms(LEASE_MS);
    let leases = [(step.id.clone(), step.epoch)];
    bench.store.heartbeat(&worker, &leases, bench.now(), swept_at.plus_ms(1)).await.unwrap();
    let end = TryEnd::Retry { failure: lost(), at: swept_at };
    let swept = bench.store.expire_lease(&step.id, step.epoch, end, swept_at).await.unwrap();
    assert_eq!(swept, Reported::LeaseLost);
    assert_eq!(bench.step(&run, "a").await.status, StepStatus::Leased);
}

async fn an_expired_step_without_tries_fails_and_one_of_a_cancelled_run_is_cancelled(bench: Bench) {
    let (failing, cancelled) = (bench.run().await, bench.run().await);
    bench.schedule(&failing, &["a"]).await;
    bench.schedule(&cancelled, &["a"]).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 2).await;
    bench.store.control_run(&cancelled, RunTransition::Cancel, None, bench.now()).await.unwrap();
    bench.clock.forward(15_000);
    let end = TryEnd::Failed { failure: StepFailure::fatal("worker.lost", "given up") };
    bench.store.expire_lease(&steps[0].id, 1, end, bench.now()).await.unwrap();
    bench.store.expire_lease(&steps[1].id, 1, retry_now(&bench), bench.now()).await.unwrap();
    assert_eq!(bench.log(&failing).await[2..], ["step_failed a"]);
    assert_eq!(bench.log(&cancelled).await[2..], ["run_cancel_requested", "step_cancelled a"]);
    bench.assert_sound().await;
}

async fn a_retry_waits_for_its_timer(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b"]).await;
    let worker = bench.worker().await;
    let steps = bench.claim(&worker, 2).await;
    let (soon, later) = (bench.now().plus_ms(500), bench.now().plus_ms(800));
    bench.report(&steps[0], TryEnd::Retry { failure: lost(), at: later }).await;
    bench.report(&steps[1], TryEnd::Retry { failure: lost(), at: soon }).await;
    let step = bench.step(&run, "a").await;
    assert_eq!((step.status, step.not_before, step.tries), (StepStatus::Scheduled, Some(later), 1));
    assert_eq!(step.failure, Some(lost()));
    bench.assert_sound().await;
    let retried = |key: &str, at| Event::StepRetried { key: key.to_owned(), failure: lost(), at };
    assert_eq!(bench.events(&run).await[3..], [retried("a", later), retried("b", soon)]);
    bench.report(&steps[0], TryEnd::Retry { failure: lost(), at: later }).await;
    assert_eq!(bench.events(&run).await.len(), 5, "a second copy of a report adds nothing");
    let before = bench.to_drive().await;
    assert!(!before.contains(&run), "another try asks for no decision: {before:?}");

    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (0, Some(soon)));
    assert!(bench.claim(&worker, 9).await.is_empty());
    bench.clock.forward(500);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (1, Some(later)));
    assert_eq!(bench.claim(&worker, 9).await[0].key, "b");
    bench.clock.forward(5_000);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (1, None));
    let step = bench.claim(&worker, 9).await.remove(0);
    assert_eq!((step.key.as_str(), step.tries, step.epoch, step.not_before), ("a", 2, 2, None));
    bench.assert_sound().await;
}

async fn a_step_that_waits_on_for_the_same_reason_is_logged_once(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    let worker = bench.worker().await;
    let wait =
        |code: &str, message: &str| TryEnd::Wait { failure: StepFailure::retriable(code, message), at: bench.now() };
    for (end, logged) in [
        (wait("budget.wait", "9 of 10"), 1),
        (wait("budget.wait", "8 of 10"), 1),
        (wait("request.open", "asked"), 2),
        (wait("budget.wait", "7 of 10"), 3),
        (retry_now(&bench), 4),
        (retry_now(&bench), 5),
        (wait("budget.wait", "6 of 10"), 6),
    ] {
        let step = bench.claim(&worker, 1).await.remove(0);
        bench.report(&step, end.clone()).await;
        let step = bench.step(&run, "a").await;
        let (TryEnd::Wait { failure, .. } | TryEnd::Retry { failure, .. }) = end else { panic!("{end:?}") };
        assert_eq!((step.status, step.failure), (StepStatus::Scheduled, Some(failure)), "the step names the last one");
        assert_eq!(bench.log(&run).await[2..], vec!["step_retried a"; logged]);
    }
    bench.assert_sound().await;
}

async fn timers_fire_in_rounds_of_a_limit(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b", "c"]).await;
    let worker = bench.worker().await;
    for step in bench.claim(&worker, 3).await {
        bench.report(&step, TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(1) }).await;
    }
    bench.clock.forward(1);
    assert_eq!(bench.store.fire_timers(bench.now(), 2).await.unwrap(), (2, Some(bench.now())));
    assert_eq!(bench.store.fire_timers(bench.now(), 2).await.unwrap(), (1, None));
}
