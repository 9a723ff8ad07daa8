//! Tests of steps that need a device: which of them may run at the same time.

use futures::future::join_all;
use nightshift_engine::store::{
    Change, ChangeStore, Changed, ClaimRequest, Database, DeviceLane, LeaseStore, QueueStore, Reported, StepRecord,
    TryEnd, WorkerStore,
};
use nightshift_engine::workflow::StepOrder;
use nightshift_protocol::id::{RunId, WorkerId};
use nightshift_protocol::machine::{DeviceUse, Needs};
use nightshift_protocol::task::Target;
use serde_json::json;

use crate::bench::{Bench, done, lost, order, report};

crate::bench::on_both!(
    the_lowest_rank_decides_and_an_exclusive_step_is_the_only_one,
    steps_share_a_device_up_to_the_first_that_needs_it_alone,
    a_device_that_is_shared_is_not_given_to_an_exclusive_step,
    an_exclusively_used_device_gets_no_other_step,
    each_device_has_its_own_lane,
    a_lane_without_places_to_share_begins_nothing_that_shares,
    steps_with_and_without_a_device_are_claimed_together,
    a_step_of_other_needs_is_left_alone,
    a_worker_that_drains_begins_nothing,
    racing_claims_of_one_worker_never_give_a_device_away_twice,
    a_device_is_given_on_in_the_transaction_that_frees_it,
    a_report_is_committed_however_many_routes_its_claim_names,
    a_report_is_committed_when_the_worker_of_its_claim_is_unknown,
    only_routes_of_ready_steps_are_listed_first_rank_first,
);

fn needs(device: DeviceUse) -> Needs {
    Needs::worker(Target::Cuda, device)
}

async fn schedule(bench: &Bench, run: &RunId, steps: &[(&str, DeviceUse)]) {
    let orders = steps.iter().map(|(key, device)| StepOrder { needs: needs(*device), ..order(key) });
    bench.schedule_orders(run, orders.collect()).await;
}

/// Returns a free device with this many shared slots.
fn lane(device: u32, shared_slots: u32) -> DeviceLane {
    DeviceLane {
        device,
        exclusive: vec![needs(DeviceUse::Exclusive).route()],
        shared: vec![needs(DeviceUse::Shared).route()],
        shared_slots,
    }
}

fn request(bench: &Bench, worker: &WorkerId, devices: Vec<DeviceLane>) -> ClaimRequest {
    ClaimRequest { devices, ..bench.claim_request(worker, 0) }
}

async fn claim(bench: &Bench, worker: &WorkerId, devices: Vec<DeviceLane>) -> Vec<StepRecord> {
    bench.store.claim(request(bench, worker, devices)).await.unwrap()
}

fn keys(steps: &[StepRecord]) -> Vec<&str> {
    steps.iter().map(|step| step.key.as_str()).collect()
}

/// Returns the number of exclusively used devices, and of shared ones.
async fn in_use(bench: &Bench) -> (u64, u64) {
    let gauges = bench.store.gauges().await.unwrap();
    (gauges.devices_alone, gauges.devices_shared)
}

async fn the_lowest_rank_decides_and_an_exclusive_step_is_the_only_one(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    schedule(&bench, &run, &[("alone", DeviceUse::Exclusive), ("share", DeviceUse::Shared)]).await;
    let steps = claim(&bench, &worker, vec![lane(0, 4)]).await;
    assert_eq!(keys(&steps), ["alone"]);
    assert_eq!(steps[0].device, Some(0));
    assert_eq!(in_use(&bench).await, (1, 0));
    assert_eq!(bench.store.load_step(&steps[0].id).await.unwrap(), steps[0]);
    bench.assert_sound().await;
}

async fn steps_share_a_device_up_to_the_first_that_needs_it_alone(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    let (share, alone) = (DeviceUse::Shared, DeviceUse::Exclusive);
    schedule(&bench, &run, &[("s1", share), ("s2", share), ("alone", alone), ("s3", share)]).await;
    let steps = claim(&bench, &worker, vec![lane(0, 4)]).await;
    assert_eq!(keys(&steps), ["s1", "s2"], "who waits for the device alone is not passed by");
    assert_eq!(in_use(&bench).await, (0, 1), "one device, however many share it");
    // While other steps use it, the worker offers it to no exclusive step, and the first in line still blocks the rest.
    assert_eq!(keys(&claim(&bench, &worker, vec![lane(0, 2)]).await), [""; 0]);
    for step in &steps {
        bench.report(step, done(json!(1))).await;
    }
    assert_eq!(keys(&claim(&bench, &worker, vec![lane(0, 4)]).await), ["alone"]);
    bench.assert_sound().await;
}

async fn a_device_that_is_shared_is_not_given_to_an_exclusive_step(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    schedule(&bench, &run, &[("share", DeviceUse::Shared), ("alone", DeviceUse::Exclusive)]).await;
    assert_eq!(keys(&claim(&bench, &worker, vec![lane(0, 1)]).await), ["share"]);
    // The answer was lost: the worker claims as if the device were free.
    assert_eq!(keys(&claim(&bench, &worker, vec![lane(0, 1)]).await), [""; 0]);
    bench.assert_sound().await;
}

async fn an_exclusively_used_device_gets_no_other_step(bench: Bench) {
    let (run, worker, other) = (bench.run().await, bench.worker().await, bench.worker().await);
    let (share, alone) = (DeviceUse::Shared, DeviceUse::Exclusive);
    schedule(&bench, &run, &[("a1", alone), ("a2", alone), ("share", share)]).await;
    assert_eq!(keys(&claim(&bench, &worker, vec![lane(0, 4)]).await), ["a1"]);
    assert_eq!(keys(&claim(&bench, &worker, vec![lane(0, 4)]).await), [""; 0]);
    assert_eq!(keys(&claim(&bench, &other, vec![lane(0, 4)]).await), ["a2"], "another machine has another device 0");
    bench.assert_sound().await;
}

async fn each_device_has_its_own_lane(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    let (share, alone) = (DeviceUse::Shared, DeviceUse::Exclusive);
    schedule(&bench, &run, &[("a1", alone), ("a2", alone), ("s1", share), ("s2", share), ("a3", alone)]).await;
    let steps = claim(&bench, &worker, vec![lane(0, 2), lane(1, 2), lane(2, 2)]).await;
    assert_eq!(keys(&steps), ["a1", "a2", "s1", "s2"]);
    let devices: Vec<_> = steps.iter().map(|step| step.device).collect();
    assert_eq!(devices, [Some(0), Some(1), Some(2), Some(2)]);
    bench.assert_sound().await;
}

async fn a_lane_without_places_to_share_begins_nothing_that_shares(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    schedule(&bench, &run, &[("share", DeviceUse::Shared), ("alone", DeviceUse::Exclusive)]).await;
    assert_eq!(keys(&claim(&bench, &worker, vec![lane(0, 0)]).await), ["alone"]);
}

async fn steps_with_and_without_a_device_are_claimed_together(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    bench.schedule(&run, &["plain"]).await;
    schedule(&bench, &run, &[("share", DeviceUse::Shared)]).await;
    bench.schedule(&run, &["last"]).await;
    let claim = ClaimRequest { devices: vec![lane(3, 1)], ..bench.claim_request(&worker, 9) };
    let steps = bench.store.claim(claim).await.unwrap();
    assert_eq!(keys(&steps), ["plain", "share", "last"], "in the order of their rank");
    assert_eq!(steps.iter().map(|step| step.device).collect::<Vec<_>>(), [None, Some(3), None]);
    bench.assert_sound().await;
}

async fn a_step_of_other_needs_is_left_alone(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    let large = Needs { device_memory_bytes: Some(80 << 30), ..needs(DeviceUse::Exclusive) };
    let orders = vec![StepOrder { needs: large.clone(), ..order("large") }];
    bench.schedule_orders(&run, orders).await;
    schedule(&bench, &run, &[("any", DeviceUse::Exclusive)]).await;
    assert_eq!(keys(&claim(&bench, &worker, vec![lane(0, 1)]).await), ["any"]);
    let both = vec![large.route(), needs(DeviceUse::Exclusive).route()];
    let wide = DeviceLane { exclusive: both, ..lane(1, 1) };
    assert_eq!(keys(&claim(&bench, &worker, vec![wide]).await), ["large"]);
}

async fn a_worker_that_drains_begins_nothing(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    schedule(&bench, &run, &[("alone", DeviceUse::Exclusive)]).await;
    bench.schedule(&run, &["plain"]).await;
    bench.store.drain_worker(&worker, true).await.unwrap();
    let all = ClaimRequest { devices: vec![lane(0, 1)], ..bench.claim_request(&worker, 9) };
    assert_eq!(keys(&bench.store.claim(all.clone()).await.unwrap()), [""; 0]);
    bench.store.drain_worker(&worker, false).await.unwrap();
    assert_eq!(keys(&bench.store.claim(all).await.unwrap()), ["alone", "plain"]);
}

async fn racing_claims_of_one_worker_never_give_a_device_away_twice(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    let names: Vec<String> = (0..12).map(|n| format!("s{n}")).collect();
    let uses = [DeviceUse::Shared, DeviceUse::Exclusive, DeviceUse::Shared];
    let steps: Vec<_> = names.iter().zip(uses.into_iter().cycle()).map(|(key, used)| (key.as_str(), used)).collect();
    schedule(&bench, &run, &steps).await;
    let mut finished = 0;
    while finished < names.len() {
        let claims = (0..6).map(|_| claim(&bench, &worker, vec![lane(0, 2), lane(1, 2)]));
        let claimed: Vec<StepRecord> = join_all(claims).await.into_iter().flatten().collect();
        bench.assert_sound().await;
        assert!(!claimed.is_empty(), "a free device always gets a step");
        for step in &claimed {
            bench.report(step, done(json!(1))).await;
        }
        finished += claimed.len();
    }
    assert_eq!(finished, names.len());
}

/// In one transaction: the report that frees the device, and the next claim of it.
async fn a_device_is_given_on_in_the_transaction_that_frees_it(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    schedule(&bench, &run, &[("a1", DeviceUse::Exclusive), ("a2", DeviceUse::Exclusive)]).await;
    let mut step = claim(&bench, &worker, vec![lane(0, 2)]).await.remove(0);
    // Also for a retry of the same step, and back.
    let again = || TryEnd::Retry { failure: lost(), at: bench.now() };
    for (end, next) in [(again(), "a2"), (again(), "a1"), (again(), "a2"), (done(json!(1)), "a1")] {
        let changes = vec![
            Change::Report(report(&step, end, bench.now())),
            Change::Claim(request(&bench, &worker, vec![lane(0, 2)])),
        ];
        let Some(Changed::Claimed(mut claimed)) = bench.store.commit(changes).await.unwrap().pop() else { panic!() };
        assert_eq!(keys(&claimed), [next]);
        step = claimed.remove(0);
        bench.assert_sound().await;
    }
}

/// Returns a different route for each number.
fn numbered(number: u64) -> Needs {
    Needs { device_memory_bytes: Some(number), ..needs(DeviceUse::Exclusive) }
}

async fn a_report_is_committed_however_many_routes_its_claim_names(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    let orders = (1..=700).map(|number| StepOrder { needs: numbered(number), ..order(&format!("s{number}")) });
    bench.schedule_orders(&run, orders.collect()).await;
    bench.schedule(&run, &["reported"]).await;
    let reported = bench.claim(&worker, 1).await.remove(0);
    // Two devices double the routes. Most of them do not exist.
    let exclusive: Vec<String> = (1..=1_500).rev().map(|number| numbered(number).route()).collect();
    let lanes = [0, 1].map(|device| DeviceLane { exclusive: exclusive.clone(), ..lane(device, 0) });
    let changes = vec![
        Change::Report(report(&reported, done(json!(1)), bench.now())),
        Change::Claim(request(&bench, &worker, lanes.to_vec())),
    ];
    let changed = bench.store.commit(changes).await.unwrap();
    let [Changed::Reported(Reported::Committed), Changed::Claimed(steps)] = changed.as_slice() else {
        panic!("{changed:?}")
    };
    assert_eq!(keys(steps), ["s1", "s2"], "the first ranks, one for each device");
    bench.assert_sound().await;
}

async fn a_report_is_committed_when_the_worker_of_its_claim_is_unknown(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    bench.schedule(&run, &["a", "b"]).await;
    let step = bench.claim(&worker, 1).await.remove(0);
    let unknown = WorkerId::from_uuid(bench.uuid());
    let claim = bench.claim_request(&unknown, 1);
    let changes = vec![Change::Report(report(&step, done(json!(1)), bench.now())), Change::Claim(claim.clone())];
    let changed = bench.store.commit(changes).await.unwrap();
    assert!(
        matches!(&changed[..], [Changed::Reported(Reported::Committed), Changed::Claimed(none)] if none.is_empty())
    );
    // A claim alone reports that the worker is unknown, so that it registers again.
    assert_eq!(bench.store.claim(claim).await.unwrap_err().code(), "worker.not_found");
}

async fn only_routes_of_ready_steps_are_listed_first_rank_first(bench: Bench) {
    let (run, worker) = (bench.run().await, bench.worker().await);
    assert!(bench.store.ready_routes(9).await.unwrap().is_empty());
    schedule(&bench, &run, &[("share", DeviceUse::Shared), ("alone", DeviceUse::Exclusive)]).await;
    bench.schedule(&run, &["plain"]).await;
    schedule(&bench, &run, &[("again", DeviceUse::Shared)]).await;
    let (share, alone) = (needs(DeviceUse::Shared).route(), needs(DeviceUse::Exclusive).route());
    let plain = crate::bench::route();
    assert_eq!(bench.store.ready_routes(9).await.unwrap(), [share.clone(), alone.clone(), plain.clone()]);
    assert_eq!(bench.store.ready_routes(2).await.unwrap(), [share.clone(), alone.clone()]);
    assert_eq!(keys(&claim(&bench, &worker, vec![lane(0, 1)]).await), ["share"]);
    assert_eq!(bench.store.ready_routes(9).await.unwrap(), [alone, plain, share]);
}
