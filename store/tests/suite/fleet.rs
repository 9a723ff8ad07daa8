//! Tests of workers, tokens, gauges, notices.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use nightshift_engine::store::{
    CampaignStore, ChangeStore, ChangedRun, Creation, CreationStore, Database, Notice, QueueStore, ReadingRecord,
    RunControlStore, ServerStore, TokenRecord, TokenStore, TryEnd, WatchStore, WorkerRecord, WorkerStore,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::access::{Role, TokenView};
use nightshift_protocol::api::DeviceReading;
use nightshift_protocol::budget::{BudgetCaps, Resource};
use nightshift_protocol::id::{RunId, TokenId, WorkerId};
use nightshift_protocol::run::RunTransition;
use nightshift_protocol::time::TimestampMs;
use nightshift_store::SqlStore;
use serde_json::json;

use crate::bench::{Bench, amount, done, lost, order, route, worker_record};
use crate::place::Kind;

crate::bench::on_both!(
    a_worker_is_loaded_as_it_was_registered,
    workers_are_seen_together_and_never_earlier_than_before,
    workers_that_hold_nothing_are_forgotten_and_their_steps_keep_their_name,
    the_last_device_reading_is_kept_until_its_worker_is_deleted,
    a_token_is_found_by_its_hash_until_it_is_gone_and_revoked_once,
    gauges_count_what_is_there,
    commits_send_notices_to_all_receivers,
);

async fn a_worker_is_loaded_as_it_was_registered(bench: Bench) {
    let server = bench.server().await;
    let id = WorkerId::from_uuid(bench.uuid());
    let worker = WorkerRecord {
        embedded: true,
        offers: json!({ "devices": [{ "index": 0 }] }),
        server: Some(server.clone()),
        draining: true,
        ..worker_record(&id, bench.now())
    };
    bench.store.register_worker(worker.clone()).await.unwrap();
    assert_eq!(bench.store.load_worker(&id).await.unwrap(), worker);
    bench.store.drain_worker(&id, false).await.unwrap();
    bench.store.drain_worker(&id, false).await.unwrap();
    assert!(!bench.store.load_worker(&id).await.unwrap().draining);
    bench.store.retire_server(&server, bench.now()).await.unwrap();
    assert_eq!(bench.store.load_worker(&id).await.unwrap().server, None);
    let unknown = WorkerId::from_uuid(bench.uuid());
    assert_eq!(bench.store.load_worker(&unknown).await.unwrap_err().code(), "worker.not_found");
    assert_eq!(bench.store.drain_worker(&unknown, true).await.unwrap_err().code(), "worker.not_found");
}

async fn workers_are_seen_together_and_never_earlier_than_before(bench: Bench) {
    let (first, second, third) = (bench.worker().await, bench.worker().await, bench.worker().await);
    let registered = bench.now();
    bench.clock.forward(9);
    let unknown = WorkerId::from_uuid(bench.uuid());
    let seen = [second.clone(), unknown, first.clone(), first.clone()];
    bench.store.workers_seen(&seen, bench.now()).await.unwrap();
    bench.store.workers_seen(&seen, registered).await.unwrap();
    bench.store.workers_seen(&[], bench.now()).await.unwrap();
    for (worker, at) in [(first, bench.now()), (second, bench.now()), (third, registered)] {
        assert_eq!(bench.store.load_worker(&worker).await.unwrap().last_seen_at, at);
    }
}

async fn workers_that_hold_nothing_are_forgotten_and_their_steps_keep_their_name(bench: Bench) {
    let run = bench.run().await;
    bench.schedule(&run, &["a", "b"]).await;
    let (gone, holding) = (bench.worker().await, bench.worker().await);
    let step = bench.claim(&gone, 1).await.remove(0);
    bench.report(&step, done(json!(1))).await;
    bench.claim(&holding, 1).await;
    bench.clock.forward(1);
    let fresh = bench.worker().await;
    assert_eq!(bench.store.forget_workers(bench.now()).await.unwrap(), 1);
    assert_eq!(bench.store.forget_workers(bench.now()).await.unwrap(), 0);
    let left: Vec<_> = bench.store.list_workers(9).await.unwrap().into_iter().map(|worker| worker.id).collect();
    assert_eq!(left, [fresh, holding]);
    assert_eq!(bench.step(&run, "a").await.worker, Some(gone.clone()));
    assert_eq!(bench.store.claim(bench.claim_request(&gone, 1)).await.unwrap_err().code(), "worker.not_found");
    bench.assert_sound().await;
}

fn token(bench: &Bench, hash: &str) -> TokenRecord {
    let view = TokenView {
        id: TokenId::from_uuid(bench.uuid()),
        name: "ci".to_owned(),
        role: Role::Operator,
        created_at: bench.now(),
        expires_at: Some(bench.now().plus_ms(1_000)),
        revoked_at: None,
        last_used_at: None,
    };
    TokenRecord { view, secret_hash: hash.to_owned() }
}

async fn a_token_is_found_by_its_hash_until_it_is_gone_and_revoked_once(bench: Bench) {
    let (first, second) = (token(&bench, "aa"), token(&bench, "bb"));
    for record in [&first, &second, &first] {
        bench.store.create(Creation::Token(record.clone()), None).await.unwrap();
    }
    let same_secret = token(&bench, "aa");
    assert_eq!(bench.store.create(Creation::Token(same_secret), None).await.unwrap_err().code(), "token.exists");
    assert_eq!(bench.store.list_tokens().await.unwrap(), [second.view.clone(), first.view.clone()]);
    assert_eq!(bench.store.find_token("aa").await.unwrap(), Some(first.view.clone()));
    assert_eq!(bench.store.find_token("cc").await.unwrap(), None);
    let used = bench.now().plus_ms(5);
    bench.store.touch_token(&first.view.id, used).await.unwrap();
    bench.store.touch_token(&first.view.id, bench.now()).await.unwrap();
    let revoked = bench.now().plus_ms(7);
    bench.store.revoke_token(&first.view.id, revoked).await.unwrap();
    bench.store.revoke_token(&first.view.id, revoked.plus_ms(9)).await.unwrap();
    let expected = TokenView { revoked_at: Some(revoked), last_used_at: Some(used), ..first.view };
    assert_eq!(bench.store.find_token("aa").await.unwrap(), Some(expected));
    let unknown = TokenId::from_uuid(bench.uuid());
    assert_eq!(bench.store.revoke_token(&unknown, revoked).await.unwrap_err().code(), "token.not_found");
}

async fn gauges_count_what_is_there(bench: Bench) {
    let budget = BudgetCaps { tokens: Some(1), ..BudgetCaps::default() };
    let (_, run) = bench.run_with_budget(budget).await;
    let paused = bench.run().await;
    bench.store.control_run(&paused, RunTransition::Pause, None, bench.now()).await.unwrap();
    let empty = bench.store.gauges().await.unwrap();
    assert_eq!((empty.ready.len(), empty.timers, empty.blocked, empty.leases), (0, 0, 0, 0));
    bench.schedule(&run, &["held", "later", "ready"]).await;
    let dear = StepOrder { reserve: vec![amount(Resource::Tokens, 2)], ..order("dear") };
    bench.schedule_orders(&run, vec![dear]).await;
    let worker = bench.worker().await;
    let began = bench.now();
    let steps = bench.claim(&worker, 2).await;
    bench.report(&steps[1], TryEnd::Retry { failure: lost(), at: bench.now().plus_ms(5) }).await;
    bench.clock.forward(1);
    let gauges = bench.store.gauges().await.unwrap();
    assert_eq!(gauges.ready, [(route(), 1)]);
    assert_eq!(gauges.oldest_ready, [(route(), began)]);
    assert_eq!((gauges.timers, gauges.blocked, gauges.leases), (1, 1, 1));
    assert_eq!(gauges.oldest_lease, [(route(), began)]);
    assert_eq!((gauges.runs.running, gauges.runs.paused, gauges.runs.total()), (1, 1, 2));
}

/// Returns the next notices, up to the wanted one.
async fn until(notices: &mut BoxStream<'static, Notice>, wanted: &Notice) -> Vec<Notice> {
    let mut heard = Vec::new();
    let found = tokio::time::timeout(Duration::from_secs(30), async {
        while let Some(notice) = notices.next().await {
            heard.push(notice.clone());
            if notice == *wanted {
                return true;
            }
        }
        false
    });
    let found = found.await.unwrap_or(false);
    assert!(found, "{wanted:?} was not told, only {heard:?}");
    heard
}

/// The notice of a run without an owner that waits for a decision.
fn changed(run: RunId) -> Notice {
    Notice::RunChanged(ChangedRun::undecided(run, None))
}

async fn commits_send_notices_to_all_receivers(bench: Bench) {
    let mut notices = bench.store.notices();
    let run = bench.run().await;
    until(&mut notices, &changed(run.clone())).await;
    bench.schedule(&run, &["a"]).await;
    until(&mut notices, &Notice::Ready(route())).await;
    let worker = bench.worker().await;
    let step = bench.claim(&worker, 1).await.remove(0);
    let soon = bench.now().plus_ms(5);
    bench.report(&step, TryEnd::Retry { failure: lost(), at: soon }).await;
    until(&mut notices, &Notice::TimerSet(soon)).await;
    bench.clock.forward(5);
    bench.store.fire_timers(bench.now(), 9).await.unwrap();
    until(&mut notices, &Notice::Ready(route())).await;
}

/// Returns whether a notice of a run on the other store arrives before a timeout.
async fn hears(notices: &mut BoxStream<'static, Notice>, there: &SqlStore, bench: &Bench) -> bool {
    let run = there.create_campaign(bench.new_campaign(1)).await.unwrap().runs.remove(0);
    let told = changed(run);
    let heard = async { while notices.next().await.is_some_and(|notice| notice != told) {} };
    tokio::time::timeout(Duration::from_millis(500), heard).await.is_ok()
}

#[tokio::test]
async fn on_postgres_commits_send_notices_to_other_processes_and_not_back() {
    let bench = Bench::on(Kind::Postgres).await;
    let other = bench.place.open().await;
    let mut there = other.notices();
    let mut here = bench.store.notices();
    // Notices arrive only after the connection for them is open.
    let mut tries = 0;
    while !hears(&mut there, &bench.store, &bench).await || !hears(&mut here, &other, &bench).await {
        tries += 1;
        assert!(tries < 200, "two hundred commits were not heard");
    }
    let run = bench.run().await;
    bench.schedule(&run, &["a"]).await;
    until(&mut there, &Notice::Ready(route())).await;
    let last = bench.run().await;
    until(&mut there, &changed(last.clone())).await;
    // A run of the other process comes after all of our own returning notices.
    let theirs = other.create_campaign(bench.new_campaign(1)).await.unwrap().runs.remove(0);
    let heard = until(&mut here, &changed(theirs)).await;
    let told = |notice: &Notice| heard.iter().filter(|heard| *heard == notice).count();
    assert_eq!(told(&changed(last)), 1, "our own are not told twice: {heard:?}");
}

async fn the_last_device_reading_is_kept_until_its_worker_is_deleted(bench: Bench) {
    let watch = &bench.store;
    let (first, second) = (bench.worker().await, bench.worker().await);
    let reading = |worker: &WorkerId, at: TimestampMs, temperature_c: u32| {
        let device = DeviceReading { device: 1, temperature_c: Some(temperature_c), busy_ms: 30, over_ms: 60 };
        ReadingRecord { worker: worker.clone(), at, devices: vec![device] }
    };
    let (early, late) = (bench.now(), bench.now().plus_ms(9));
    let unknown = WorkerId::from_uuid(bench.uuid());
    watch.put_readings(Vec::new()).await.unwrap();
    watch.put_readings(vec![reading(&second, late, 50), reading(&unknown, late, 1)]).await.unwrap();
    watch.put_readings(vec![reading(&second, early, 40), reading(&first, early, 30)]).await.unwrap();
    assert_eq!(watch.list_readings().await.unwrap(), [reading(&first, early, 30), reading(&second, late, 50)]);
    watch.put_readings(vec![reading(&first, late, 31)]).await.unwrap();
    assert_eq!(watch.list_readings().await.unwrap()[0], reading(&first, late, 31));
    bench.clock.forward(1);
    assert_eq!(bench.store.forget_workers(bench.now()).await.unwrap(), 2);
    assert!(watch.list_readings().await.unwrap().is_empty());
}
