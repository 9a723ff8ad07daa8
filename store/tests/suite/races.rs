//! Tests of two processes on one Postgres that race for the same thing: exactly one gets it, each time.

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use nightshift_engine::event::Event;
use nightshift_engine::store::{
    Advanced, ArtifactStore, BudgetStore, CampaignStore, ChangeStore, LeaseStore, NewCampaign, Ownership,
    OwnershipStore, QueueStore, Reported, Reservation, RetentionStore, RunControlStore, RunStore, ServerStore,
    StoreError, TryEnd,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::budget::{BudgetCaps, Resource};
use nightshift_protocol::id::{RunId, StepId};
use nightshift_protocol::run::{RunStatus, RunTransition, StepStatus};
use nightshift_protocol::schedule::Schedule;
use nightshift_protocol::signal::Signal;
use nightshift_protocol::step::StepFailure;
use nightshift_store::SqlStore;
use serde_json::json;

use crate::bench::{Bench, LEASE_MS, amount, done, lost, order, report};
use crate::place::Kind;
use crate::raw::Raw;

/// Races per test.
const ROUNDS: usize = 12;
/// Tasks of each process in a race.
const TASKS: usize = 8;

/// Selects the sessions that wait for a lock.
const WAITING: &str = "SELECT CAST(count(*) AS TEXT) FROM pg_stat_activity \
     WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Opens two stores on one database.
async fn two() -> (Bench, [Arc<SqlStore>; 2]) {
    let bench = Bench::on(Kind::Postgres).await;
    let stores = [bench.store.clone(), bench.place.open().await];
    (bench, stores)
}

/// Runs the same call from many tasks of both processes at once.
async fn race<T: Send + 'static>(
    stores: &[Arc<SqlStore>; 2],
    call: impl Fn(Arc<SqlStore>, usize) -> BoxFuture<'static, T>,
) -> Vec<T> {
    let tasks = (0..2 * TASKS).map(|number| tokio::spawn(call(stores[number % 2].clone(), number)));
    let tasks: Vec<_> = tasks.collect();
    join_all(tasks).await.into_iter().map(Result::unwrap).collect()
}

fn count<T>(answers: &[T], wanted: impl Fn(&T) -> bool) -> usize {
    answers.iter().filter(|answer| wanted(answer)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_step_is_claimed_once() {
    let (bench, stores) = two().await;
    let workers = join_all((0..2 * TASKS).map(|_| bench.worker())).await;
    for _ in 0..ROUNDS {
        let run = bench.run().await;
        let keys: Vec<String> = (0..9).map(|n| format!("s{n}")).collect();
        bench.schedule(&run, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let claims: Vec<_> = workers.iter().map(|worker| bench.claim_request(worker, 2)).collect();
        let claimed = race(&stores, |store, number| {
            let claim = claims[number].clone();
            Box::pin(async move { store.claim(claim).await.unwrap() })
        });
        let mut steps: Vec<StepId> = claimed.await.into_iter().flatten().map(|step| step.id).collect();
        let mut all = bench.claim(&workers[0], 9).await.into_iter().map(|step| step.id).collect::<Vec<_>>();
        assert!(steps.len() >= 9 - all.len());
        steps.append(&mut all);
        steps.sort();
        let given = steps.len();
        steps.dedup();
        assert_eq!((steps.len(), given), (9, 9));
    }
    bench.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_ends_of_one_try_one_is_committed() {
    let (bench, stores) = two().await;
    let worker = bench.worker().await;
    for _ in 0..ROUNDS {
        let run = bench.run().await;
        bench.schedule(&run, &["a"]).await;
        let step = bench.claim(&worker, 1).await.remove(0);
        bench.clock.forward(15_000);
        let now = bench.now();
        // Workers with different results, and the sweeper.
        let answers = race(&stores, |store, number| {
            let step = step.clone();
            Box::pin(async move {
                if number < 2 {
                    let end = TryEnd::Retry { failure: lost(), at: now.plus_ms(60_000) };
                    return store.expire_lease(&step.id, step.epoch, end, now).await.unwrap();
                }
                store.report(report(&step, done(json!(number)), now)).await.unwrap()
            })
        });
        let answers = answers.await;
        let swept = count(&answers[..2], |reported| *reported == Reported::Committed);
        let reported = count(&answers[2..], |reported| *reported == Reported::Committed);
        match bench.step(&run, "a").await.status {
            StepStatus::Completed => assert_eq!((swept, reported), (0, 1)),
            // A second copy of the same end is answered as committed.
            StepStatus::Scheduled => assert!(swept >= 1 && reported == 0, "{swept} {reported}"),
            status => panic!("{status:?}"),
        }
        assert_eq!(bench.events(&run).await.len(), 3, "one end");
        bench.store.control_run(&run, RunTransition::Cancel, None, now).await.unwrap();
    }
    bench.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_decisions_from_one_revision_one_is_committed() {
    let (bench, stores) = two().await;
    let run = bench.run().await;
    for round in 0..ROUNDS {
        let mut decisions = Vec::new();
        for number in 0..2 * TASKS {
            let mut decision = bench.decision(&run).await;
            decision.schedule = vec![(StepId::from_uuid(bench.uuid()), order(&format!("r{round}t{number}")))];
            decisions.push(decision);
        }
        let answers = race(&stores, |store, number| {
            let decision = decisions[number].clone();
            Box::pin(async move { store.advance(decision).await.unwrap() })
        });
        let answers = answers.await;
        assert_eq!(count(&answers, Advanced::is_committed), 1);
        assert_eq!(count(&answers, |answer| *answer == Advanced::Conflict), 2 * TASKS - 1);
    }
    assert_eq!(bench.store.list_step_heads(&run).await.unwrap().len(), ROUNDS);
    bench.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_never_overspent() {
    let (bench, stores) = two().await;
    let worker = bench.worker().await;
    for _ in 0..ROUNDS {
        let budget = BudgetCaps { tokens: Some(100), ..BudgetCaps::default() };
        let (campaign, run) = bench.run_with_budget(budget).await;
        let keys: Vec<String> = (0..2 * TASKS).map(|n| format!("s{n}")).collect();
        bench.schedule(&run, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let steps = bench.claim(&worker, u32::try_from(2 * TASKS).unwrap()).await;
        let now = bench.now();
        let answers = race(&stores, |store, number| {
            let step = steps[number].clone();
            Box::pin(async move {
                let wanted = [amount(Resource::Tokens, 30)];
                store.reserve(&step.id, step.epoch, &wanted, now).await.unwrap()
            })
        });
        let answers = answers.await;
        assert_eq!(count(&answers, |answer| *answer == Reservation::Granted), 3);
        assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (0, 90));
        let reports = race(&stores, |store, number| {
            let step = steps[number].clone();
            let used = vec![amount(Resource::Tokens, 10)];
            Box::pin(async move {
                let report = nightshift_engine::store::Report { used, ..report(&step, done(json!(1)), now) };
                store.report(report).await.unwrap()
            })
        });
        assert_eq!(count(&reports.await, |reported| *reported == Reported::Committed), 2 * TASKS);
        assert_eq!(bench.spent(&campaign, Resource::Tokens).await, (30, 0));
    }
    bench.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_campaign_is_created_with_an_idempotency_key() {
    let (bench, stores) = two().await;
    for round in 0..ROUNDS {
        let digest = |number: usize| format!("digest{}", number % 3 / 2);
        let new: Vec<NewCampaign> = (0..2 * TASKS)
            .map(|number| {
                let idempotency = Some((format!("key{round}"), digest(number)));
                NewCampaign { idempotency, ..bench.new_campaign(2) }
            })
            .collect();
        let answers = race(&stores, |store, number| {
            let new = new[number].clone();
            Box::pin(async move { store.create_campaign(new).await })
        });
        let answers = answers.await;
        let created = count(&answers, |answer| answer.as_ref().is_ok_and(|created| !created.existed));
        assert_eq!(created, 1);
        let mut ids: Vec<_> = answers.iter().flatten().map(|created| created.id.clone()).collect();
        ids.dedup();
        assert_eq!(ids.len(), 1, "all others are told of the same one");
        for answer in &answers {
            let refused = matches!(answer, Err(StoreError::IdempotencyConflict { .. }));
            assert!(answer.is_ok() || refused, "{answer:?}");
        }
    }
    let page = nightshift_engine::store::PageRequest { limit: 100, before: None };
    assert_eq!(bench.store.list_campaigns(page).await.unwrap().len(), ROUNDS);
    bench.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_signal_is_appended_with_an_idempotency_key() {
    let (bench, stores) = two().await;
    let run = bench.run().await;
    for round in 0..ROUNDS {
        let now = bench.now();
        let answers = race(&stores, |store, _| {
            let (run, key) = (run.clone(), format!("key{round}"));
            let signal = Signal::Hint { text: "x".to_owned() };
            let idempotency = Some((key, "d".to_owned()));
            Box::pin(async move { store.signal_run(&run, signal, None, idempotency, now).await })
        });
        assert_eq!(count(&answers.await, Result::is_ok), 2 * TASKS);
    }
    assert_eq!(bench.log(&run).await.len(), 1 + ROUNDS);
    bench.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_takes_a_run_over() {
    let (bench, stores) = two().await;
    for round in 0..ROUNDS {
        let runs = bench.create(bench.new_campaign(3)).await.runs;
        let dead = bench.server().await;
        for run in &runs {
            bench.store.acquire_run(&dead, run, bench.now()).await.unwrap();
        }
        bench.clock.forward(10_000);
        let now = bench.now();
        let servers = join_all((0..2 * TASKS).map(|_| bench.server())).await;
        let acquired = race(&stores, |store, number| {
            let (server, run) = (servers[number].clone(), runs[0].clone());
            Box::pin(async move {
                let several =
                    if number % 2 == 0 { store.acquire_runs(&server, 9, now).await.unwrap() } else { Vec::new() };
                (store.acquire_run(&server, &run, now).await.unwrap(), several)
            })
        });
        let acquired = acquired.await;
        assert_eq!(count(&acquired, |(owner, _)| matches!(owner, Ownership::Mine(_))), 1, "round {round}");
        let mut taken: Vec<RunId> = acquired.iter().flat_map(|(_, runs)| runs).map(|(run, _)| run.clone()).collect();
        taken.sort();
        let times = taken.len();
        taken.dedup();
        assert_eq!(taken.len(), times, "each run has one owner");
        for run in &runs {
            assert_eq!(bench.store.load_run(run).await.unwrap().owner_epoch, 2);
            bench.complete_run(run).await;
        }
        bench.clock.forward(10_000);
        let reaped = race(&stores, |store, _| Box::pin(async move { store.reap_servers(now.plus_ms(10_000)).await }));
        assert_eq!(count(&reaped.await, Result::is_ok), 2 * TASKS);
    }
    bench.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_a_dead_server_are_freed_once() {
    let (bench, stores) = two().await;
    let run = bench.run().await;
    for round in 0..ROUNDS {
        bench.schedule(&run, &[&format!("s{round}")]).await;
        let server = bench.server().await;
        let embedded = bench.embedded_worker(&server).await;
        bench.claim(&embedded, 99).await;
        bench.clock.forward(10_000);
        let now = bench.now();
        let reaped = race(&stores, |store, _| Box::pin(async move { store.reap_servers(now).await.unwrap() })).await;
        assert_eq!(reaped.iter().sum::<u64>(), u64::try_from(round).unwrap() + 1);
        bench.assert_sound().await;
    }
    assert!(bench.store.list_step_heads(&run).await.unwrap().iter().all(|step| step.tries == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_retry_begins_a_failed_run_again() {
    let (bench, stores) = two().await;
    let worker = bench.worker().await;
    for _ in 0..ROUNDS {
        let run = bench.run().await;
        bench.schedule(&run, &["a"]).await;
        let step = bench.claim(&worker, 1).await.remove(0);
        bench.report(&step, TryEnd::Failed { failure: StepFailure::fatal("x", "broken") }).await;
        bench.fail_run(&run, StepFailure::fatal("x", "broken")).await;
        let (now, claim) = (bench.now(), bench.claim_request(&worker, 1));
        // Each task retries and claims at once. A second retry must not take the step away again.
        let answers = race(&stores, |store, _| {
            let (run, claim) = (run.clone(), claim.clone());
            Box::pin(async move {
                let retried = store.retry_run(&run, None, None, now).await;
                (retried, store.claim(claim).await.unwrap().len())
            })
        });
        let answers = answers.await;
        assert_eq!(count(&answers, |(retried, _)| retried.is_ok()), 1);
        assert_eq!(answers.iter().map(|(_, claimed)| claimed).sum::<usize>(), 1);
        let events = bench.events(&run).await;
        assert_eq!(events.iter().filter(|event| matches!(event, Event::RunRetried { .. })).count(), 1);
        bench.assert_sound().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_resumes_and_ends_between_claims_and_reports_leave_every_rule_whole() {
    let (bench, stores) = two().await;
    let workers = join_all((0..2 * TASKS).map(|_| bench.worker())).await;
    for _ in 0..ROUNDS {
        let budget = BudgetCaps { tokens: Some(70), ..BudgetCaps::default() };
        let created = bench.create(NewCampaign { budget, ..bench.new_campaign(2) }).await;
        for run in &created.runs {
            let orders = (0..6).map(|n| nightshift_engine::workflow::StepOrder {
                reserve: vec![amount(Resource::Tokens, 20)],
                ..order(&format!("s{n}"))
            });
            bench.schedule_orders(run, orders.collect()).await;
        }
        let now = bench.now();
        let done = race(&stores, |store, number| {
            let (run, campaign) = (created.runs[number % 2].clone(), created.id.clone());
            let worker = workers[number].clone();
            Box::pin(async move {
                match number % 8 {
                    0 => drop(store.control_run(&run, RunTransition::Pause, None, now).await),
                    1 => drop(store.control_run(&run, RunTransition::Resume, None, now).await),
                    2 => store.set_budget(&campaign, budget, now).await.unwrap(),
                    3 => store.set_priority(&run, 3, now).await.unwrap(),
                    4 => drop(store.fire_timers(now, 9).await.unwrap()),
                    _ => {
                        let claim = crate::bench::claim_request(&worker, 2, now);
                        for step in store.claim(claim).await.unwrap() {
                            let leases = [(step.id.clone(), step.epoch)];
                            store.heartbeat(&worker, &leases, now, now.plus_ms(LEASE_MS)).await.unwrap();
                            let end = TryEnd::Completed { output: json!(1) };
                            assert_eq!(store.report(report(&step, end, now)).await.unwrap(), Reported::Committed);
                        }
                    }
                }
            })
        });
        done.await;
        bench.assert_sound().await;
        for run in &created.runs {
            bench.store.control_run(run, RunTransition::Cancel, None, now).await.unwrap();
            assert_eq!(bench.store.load_run(run).await.unwrap().status, RunStatus::Cancelling);
        }
        bench.assert_sound().await;
        assert_eq!(bench.line(&created.id, Resource::Tokens).await.reserved, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_schedule_waits_for_the_runs_before_it_locks_the_campaign() {
    let bench = Bench::on(Kind::Postgres).await;
    let created = bench.create(bench.new_campaign(1)).await;
    bench.schedule(&created.runs[0], &["a"]).await;
    // Like a report: first the run, then the campaign.
    let mut hot = Raw::connect(&bench.place).await;
    hot.execute("BEGIN; SELECT 1 FROM run FOR NO KEY UPDATE").await;
    let (store, campaign, at) = (bench.store.clone(), created.id.clone(), bench.now());
    let schedule = Schedule { window: "01:00-02:00".parse().unwrap(), time_zone: "UTC".to_owned() };
    let change = tokio::spawn(async move { store.set_schedule(&campaign, Some(schedule), at).await });
    let mut watcher = Raw::connect(&bench.place).await;
    while watcher.column(WAITING).await == ["0"] {
        assert!(!change.is_finished(), "it did not wait for the run");
        tokio::task::yield_now().await;
    }
    hot.execute("SELECT 1 FROM campaign FOR SHARE NOWAIT").await;
    hot.execute("COMMIT").await;
    change.await.unwrap().unwrap();
    assert!(bench.step(&created.runs[0], "a").await.not_before.is_some());
    bench.assert_sound().await;
}

#[tokio::test]
async fn a_blocked_step_whose_run_was_locked_at_the_release_is_reconsidered_later() {
    let bench = Bench::on(Kind::Postgres).await;
    let budget = BudgetCaps { tokens: Some(50), ..BudgetCaps::default() };
    let created = bench.create(NewCampaign { budget, ..bench.new_campaign(2) }).await;
    for run in &created.runs {
        let wanted = StepOrder { reserve: vec![amount(Resource::Tokens, 40)], ..order("a") };
        bench.schedule_orders(run, vec![wanted]).await;
    }
    let (first, second) = (&created.runs[0], &created.runs[1]);
    assert_eq!(bench.step(second, "a").await.blocked_on, Some(Resource::Tokens));
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 9).await.remove(0);
    assert_eq!(step.run, *first);
    // Like a report of another step of that run.
    let mut other = Raw::connect(&bench.place).await;
    other.execute("BEGIN; SELECT 1 FROM run ORDER BY id DESC LIMIT 1 FOR NO KEY UPDATE").await;
    bench.report(&step, done(json!(1))).await;
    other.execute("COMMIT").await;
    assert!(bench.claim(&worker, 9).await.is_empty());
    let server = bench.server().await;
    assert!(bench.store.pulse(&server, bench.now(), bench.now().plus_ms(LEASE_MS)).await.unwrap().expired);
    assert_eq!(bench.store.fire_timers(bench.now(), 9).await.unwrap(), (1, None));
    assert_eq!(bench.claim(&worker, 9).await[0].run, *second);
    assert!(!bench.store.pulse(&server, bench.now(), bench.now().plus_ms(LEASE_MS)).await.unwrap().expired);
    bench.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_wall_time_holds_for_a_step_that_becomes_ready_at_the_same_time() {
    let bench = Bench::on(Kind::Postgres).await;
    let created = bench.create(bench.new_campaign(1)).await;
    bench.schedule(&created.runs[0], &["a"]).await;
    // Like a decision that read the earlier wall time: its step becomes ready when it commits.
    let mut hot = Raw::connect(&bench.place).await;
    hot.execute("CREATE TABLE moved AS SELECT * FROM ready; DELETE FROM ready").await;
    hot.execute("BEGIN; SELECT 1 FROM run FOR NO KEY UPDATE; INSERT INTO ready SELECT * FROM moved").await;
    let (store, campaign, at) = (bench.store.clone(), created.id.clone(), bench.now());
    let caps = BudgetCaps { wall_ms: Some(1_000), ..BudgetCaps::default() };
    let change = tokio::spawn(async move { store.set_budget(&campaign, caps, at).await });
    let mut watcher = Raw::connect(&bench.place).await;
    while watcher.column(WAITING).await == ["0"] {
        assert!(!change.is_finished(), "it did not wait for the run");
        tokio::task::yield_now().await;
    }
    hot.execute("COMMIT; DROP TABLE moved").await;
    change.await.unwrap().unwrap();
    let worker = bench.worker().await;
    bench.clock.forward(1_000);
    assert!(bench.claim(&worker, 1).await.is_empty(), "its campaign's wall time is over");
    bench.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artifact_that_is_stored_again_during_pruning_stays() {
    let bench = Bench::on(Kind::Postgres).await;
    let hash = ArtifactHash::of(b"result");
    bench.store.put_artifact(&hash, b"result", bench.now()).await.unwrap();
    bench.clock.forward(1);
    // Like the upload.
    let mut upload = Raw::connect(&bench.place).await;
    upload.execute("BEGIN; UPDATE artifact SET created_at_ms = created_at_ms + 1000").await;
    let (store, before) = (bench.store.clone(), bench.now());
    let prune = tokio::spawn(async move { store.prune_artifacts(before, 9).await });
    let mut watcher = Raw::connect(&bench.place).await;
    while !prune.is_finished() && watcher.column(WAITING).await == ["0"] {
        tokio::task::yield_now().await;
    }
    upload.execute("COMMIT").await;
    assert_eq!(prune.await.unwrap().unwrap().artifacts, 0);
    assert_eq!(bench.store.get_artifact(&hash).await.unwrap(), b"result");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_is_deleted_once() {
    let (bench, stores) = two().await;
    for _ in 0..ROUNDS {
        let created = bench.create(bench.new_campaign(4)).await;
        for run in &created.runs {
            bench.schedule(run, &["a"]).await;
            bench.complete_run(run).await;
        }
        let answers = race(&stores, |store, _| {
            let id = created.id.clone();
            Box::pin(async move {
                loop {
                    match store.prune_campaign(&id, 1).await {
                        Ok(pruned) if pruned.more => {}
                        answer => return answer,
                    }
                }
            })
        })
        .await;
        let deleted = count(&answers, |answer| matches!(answer, Ok(pruned) if pruned.campaigns == 1));
        let later = count(&answers, |answer| match answer {
            Ok(pruned) => pruned.campaigns == 0,
            Err(error) => matches!(error, StoreError::NotFound { .. }),
        });
        assert_eq!((deleted, later), (1, 2 * TASKS - 1), "{answers:?}");
    }
    bench.assert_sound().await;
}
