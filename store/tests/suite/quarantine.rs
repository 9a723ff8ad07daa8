//! Tests of quarantined devices.

use nightshift_engine::store::{DeviceStore, QuarantineRecord, WorkerRecord, WorkerStore};
use nightshift_protocol::id::WorkerId;
use nightshift_protocol::time::TimestampMs;
use serde_json::json;

use crate::bench::{Bench, worker_record};

crate::bench::on_both!(
    a_quarantined_device_is_kept_with_its_reason_until_its_worker_finds_it_well,
    the_same_incident_keeps_its_start_and_release_and_a_new_one_has_its_own,
    a_device_belongs_to_the_latest_registration_of_its_worker,
    a_release_deletes_the_entries_of_a_deleted_worker,
    names_and_reasons_of_any_kind_come_back_as_they_were,
);

fn record(worker: &WorkerId, number: u32, incident: u64, since: TimestampMs) -> QuarantineRecord {
    QuarantineRecord {
        device: format!("GPU-{number}"),
        worker: worker.clone(),
        worker_name: "night".to_owned(),
        number,
        device_name: "NVIDIA H200".to_owned(),
        incident,
        code: "gpu.wedged".to_owned(),
        reason: format!("incident {incident}"),
        since,
        released_at: None,
        released_by: None,
    }
}

async fn set(bench: &Bench, worker: &WorkerId, quarantined: &[QuarantineRecord], well: &[&str]) {
    let well = well.iter().map(|device| (*device).to_owned()).collect();
    bench.store.set_quarantine(worker, json!({ "now": 1 }), quarantined.to_vec(), well).await.unwrap();
}

async fn devices(bench: &Bench) -> Vec<String> {
    bench.store.list_quarantine().await.unwrap().into_iter().map(|record| record.device).collect()
}

async fn a_quarantined_device_is_kept_with_its_reason_until_its_worker_finds_it_well(bench: Bench) {
    let worker = bench.worker().await;
    let first = record(&worker, 1, 1, bench.now());
    set(&bench, &worker, std::slice::from_ref(&first), &["GPU-2"]).await;
    bench.clock.forward(5);
    let second = record(&worker, 2, 2, bench.now());
    set(&bench, &worker, &[first.clone(), second.clone()], &[]).await;
    assert_eq!(bench.store.list_quarantine().await.unwrap(), [second, first], "newest first");
    assert_eq!(bench.store.load_worker(&worker).await.unwrap().offers, json!({ "now": 1 }));
    set(&bench, &worker, &[], &["GPU-2", "GPU-7"]).await;
    assert_eq!(devices(&bench).await, ["GPU-1"]);
    let unknown = WorkerId::from_uuid(bench.uuid());
    let refused = bench.store.set_quarantine(&unknown, json!({}), Vec::new(), vec!["GPU-1".to_owned()]).await;
    assert_eq!(refused.unwrap_err().code(), "worker.not_found");
    assert_eq!(devices(&bench).await, ["GPU-1"], "nothing of it was done");
    bench.assert_sound().await;
}

async fn the_same_incident_keeps_its_start_and_release_and_a_new_one_has_its_own(bench: Bench) {
    let worker = bench.worker().await;
    let (began, device) = (bench.now(), "GPU-1");
    set(&bench, &worker, &[record(&worker, 1, 1, began)], &[]).await;
    bench.clock.forward(10);
    let released = bench.store.release_device(device, Some("ada"), bench.now()).await.unwrap();
    assert_eq!((released.released_at, released.released_by.as_deref()), (Some(bench.now()), Some("ada")));
    bench.clock.forward(10);
    let again = bench.store.release_device(device, Some("bob"), bench.now()).await.unwrap();
    assert_eq!(again, released, "once is enough");
    set(&bench, &worker, &[record(&worker, 1, 1, bench.now())], &[]).await;
    assert_eq!(bench.store.list_quarantine().await.unwrap(), [released]);
    let anew = record(&worker, 1, 2, bench.now());
    set(&bench, &worker, std::slice::from_ref(&anew), &[]).await;
    assert_eq!(bench.store.list_quarantine().await.unwrap(), [anew], "this one was not released");
    let missing = bench.store.release_device("GPU-9", None, bench.now()).await.unwrap_err();
    assert_eq!(missing.code(), "device.not_found");
}

async fn a_device_belongs_to_the_latest_registration_of_its_worker(bench: Bench) {
    let (old, new) = (bench.worker().await, bench.worker().await);
    set(&bench, &old, &[record(&old, 1, 1, bench.now())], &[]).await;
    bench.store.release_device("GPU-1", None, bench.now()).await.unwrap();
    let taken = record(&new, 1, 1, bench.now());
    set(&bench, &new, std::slice::from_ref(&taken), &[]).await;
    assert_eq!(bench.store.list_quarantine().await.unwrap(), [taken]);
}

async fn a_release_deletes_the_entries_of_a_deleted_worker(bench: Bench) {
    let gone = bench.worker().await;
    set(&bench, &gone, &[record(&gone, 1, 1, bench.now())], &[]).await;
    bench.clock.forward(1);
    bench.store.forget_workers(bench.now()).await.unwrap();
    assert_eq!(devices(&bench).await, ["GPU-1"], "what is wrong with it is not forgotten");
    bench.store.release_device("GPU-1", None, bench.now()).await.unwrap();
    assert!(devices(&bench).await.is_empty());
}

async fn names_and_reasons_of_any_kind_come_back_as_they_were(bench: Bench) {
    let id = WorkerId::from_uuid(bench.uuid());
    let worker = WorkerRecord { name: "näm\u{1F319}'; --".to_owned(), ..worker_record(&id, bench.now()) };
    bench.store.register_worker(worker.clone()).await.unwrap();
    let odd = QuarantineRecord {
        device: "GPU-'\"%_".to_owned(),
        worker_name: worker.name,
        device_name: String::new(),
        reason: "line\nline \u{1F4A5}".to_owned(),
        incident: u64::from(u32::MAX) * 7,
        ..record(&id, u32::MAX, 0, bench.now())
    };
    set(&bench, &id, std::slice::from_ref(&odd), &[]).await;
    assert_eq!(bench.store.list_quarantine().await.unwrap(), std::slice::from_ref(&odd));
    bench.store.release_device(&odd.device, None, bench.now()).await.unwrap();
}
