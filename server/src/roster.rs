//! The workers that this server knows: what they offer, and that they were heard of. Both are kept in memory, so that a
//! thousand idle workers cost the store next to nothing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nightshift_engine::store::{ReadingRecord, Store, StoreError, WorkerRecord};
use nightshift_protocol::id::{ServerId, WorkerId};
use nightshift_protocol::machine::Offers;

/// Workers that are kept in memory; further ones are read again and again.
const MAX_KNOWN: usize = 20_000;

/// What is known of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// Its name for people.
    pub(crate) name: String,
    pub(crate) offers: Arc<Offers>,
    /// Whether it takes nothing new and will end.
    pub(crate) draining: bool,
}

/// The workers.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    known: Mutex<HashMap<WorkerId, Known>>,
    heard_of: Mutex<HashSet<WorkerId>>,
    /// How devices are, as workers told this server, until the store has it.
    readings: Mutex<HashMap<WorkerId, ReadingRecord>>,
    /// Workers in this process, as they registered: they move into each new life of the server.
    embedded: Mutex<HashMap<WorkerId, WorkerRecord>>,
}

impl Roster {
    /// What is known of this worker.
    pub(crate) async fn find(&self, store: &dyn Store, worker: &WorkerId) -> Result<Known, StoreError> {
        if let Some(known) = lock(&self.known).get(worker) {
            return Ok(known.clone());
        }
        let known = read(&store.load_worker(worker).await?)?;
        self.keep(worker, known.clone());
        Ok(known)
    }

    /// A worker introduced itself.
    pub(crate) fn registered(&self, record: &WorkerRecord, offers: Arc<Offers>) {
        self.keep(&record.id, Known { name: record.name.clone(), offers, draining: record.draining });
        if record.embedded {
            lock(&self.embedded).insert(record.id.clone(), record.clone());
        }
    }

    /// What a worker offers changed.
    pub(crate) fn set_offers(&self, worker: &WorkerId, offers: Arc<Offers>) {
        if let Some(record) = lock(&self.embedded).get_mut(worker)
            && let Ok(stored) = serde_json::to_value(&*offers)
        {
            record.offers = stored;
        }
        if let Some(known) = lock(&self.known).get_mut(worker) {
            known.offers = offers;
        }
    }

    /// A worker was asked to end, or to go on.
    pub(crate) fn set_draining(&self, worker: &WorkerId, draining: bool) {
        if let Some(known) = lock(&self.known).get_mut(worker) {
            known.draining = draining;
        }
    }

    /// Whether the worker is asked to end, as far as it is known.
    pub(crate) fn is_draining(&self, worker: &WorkerId) -> bool {
        lock(&self.known).get(worker).is_some_and(|known| known.draining)
    }

    /// The store does not know this worker any more.
    pub(crate) fn forget(&self, worker: &WorkerId) {
        lock(&self.known).remove(worker);
        lock(&self.embedded).remove(worker);
        lock(&self.readings).remove(worker);
    }

    /// A worker told how its devices are.
    pub(crate) fn told_of_devices(&self, reading: ReadingRecord) {
        let mut readings = lock(&self.readings);
        if readings.len() < MAX_KNOWN || readings.contains_key(&reading.worker) {
            readings.insert(reading.worker.clone(), reading);
        }
    }

    /// What workers told that the store does not have yet.
    pub(crate) fn unwritten_readings(&self) -> Vec<ReadingRecord> {
        lock(&self.readings).values().cloned().collect()
    }

    /// The store has these.
    pub(crate) fn readings_written(&self, written: &[ReadingRecord]) {
        let mut readings = lock(&self.readings);
        for reading in written {
            if readings.get(&reading.worker) == Some(reading) {
                readings.remove(&reading.worker);
            }
        }
    }

    /// What this worker told this server last, when that is later than what the store has.
    pub(crate) fn reading_of(&self, worker: &WorkerId, stored: Option<ReadingRecord>) -> Option<ReadingRecord> {
        let told = lock(&self.readings).get(worker).cloned();
        stored.into_iter().chain(told).max_by_key(|reading| reading.at)
    }

    /// What the store says of its workers, for those that are known here: another server may have heard that a device is
    /// quarantined, or well again. The ids of those that are asked to end since.
    pub(crate) fn refresh(&self, records: &[WorkerRecord]) -> Vec<WorkerId> {
        let mut known = lock(&self.known);
        let mut told = Vec::new();
        for record in records {
            if let Some(known) = known.get_mut(&record.id) {
                if record.draining && !known.draining {
                    told.push(record.id.clone());
                }
                known.draining = record.draining;
                if (known.offers.devices.iter().any(|device| device.quarantine.is_some())
                    || marks_a_device(&record.offers))
                    && let Ok(fresh) = read(record)
                {
                    known.offers = fresh.offers;
                }
            }
        }
        told
    }

    /// This worker was heard of.
    pub(crate) fn heard_of(&self, worker: &WorkerId) {
        lock(&self.heard_of).insert(worker.clone());
    }

    /// Workers that were heard of since the last time.
    pub(crate) fn take_heard_of(&self) -> HashSet<WorkerId> {
        std::mem::take(&mut *lock(&self.heard_of))
    }

    /// Workers of this process, for a new life.
    pub(crate) fn embedded(&self, server: &ServerId) -> Vec<WorkerRecord> {
        let mut embedded = lock(&self.embedded);
        for record in embedded.values_mut() {
            record.server = Some(server.clone());
        }
        embedded.values().cloned().collect()
    }

    /// How many workers of this process have introduced themselves.
    pub(crate) fn embedded_count(&self) -> usize {
        lock(&self.embedded).len()
    }

    fn keep(&self, worker: &WorkerId, fresh: Known) {
        let mut known = lock(&self.known);
        if known.len() < MAX_KNOWN || known.contains_key(worker) {
            known.insert(worker.clone(), fresh);
        }
    }
}

/// Whether a device of these offers, as they are stored, is quarantined.
fn marks_a_device(offers: &serde_json::Value) -> bool {
    let devices = offers.get("devices").and_then(serde_json::Value::as_array);
    devices.is_some_and(|devices| devices.iter().any(|device| device.get("quarantine").is_some()))
}

fn read(record: &WorkerRecord) -> Result<Known, StoreError> {
    let offers = serde_json::from_value(record.offers.clone()).map_err(|error| StoreError::Refused {
        code: "worker.unreadable",
        message: format!(
            "the offers of the worker {} were stored in a form that this release cannot read ({error}): restart it",
            record.id
        ),
    })?;
    Ok(Known { name: record.name.clone(), offers: Arc::new(offers), draining: record.draining })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::time::TimestampMs;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    fn record(quarantine: Option<Value>) -> WorkerRecord {
        let mut device = json!({ "index": 1, "target": "cuda", "name": "gpu", "memory_bytes": 1, "shared_slots": 1 });
        if let Some(quarantine) = quarantine {
            device["quarantine"] = quarantine;
        }
        let machine = json!({ "host": "", "os": "", "processor": "", "cores": 1, "features": [], "memory_bytes": 0,
            "last_level_cache_bytes": null, "cpp_toolchain": null,
            "sandbox": { "means": [], "isolates_files": true, "isolates_network": true } });
        WorkerRecord {
            id: WorkerId::from_uuid(Uuid::nil()),
            name: "night".to_owned(),
            embedded: false,
            offers: json!({ "targets": ["cuda"], "cpu_slots": 1, "devices": [device], "machine": machine }),
            version: "0".to_owned(),
            last_seen_at: TimestampMs(1),
            leases: 0,
            server: None,
            draining: false,
        }
    }

    #[test]
    fn what_another_server_heard_of_a_device_is_learned_from_the_store() {
        let (roster, well) = (Roster::default(), record(None));
        let ill = record(Some(json!({ "incident": 1, "code": "gpu.lost", "reason": "gone" })));
        roster.registered(&well, read(&well).unwrap().offers);
        let quarantined = || lock(&roster.known)[&well.id].offers.devices[0].quarantine.is_some();
        assert!(!quarantined());
        roster.refresh(std::slice::from_ref(&ill));
        assert!(quarantined());
        roster.refresh(std::slice::from_ref(&well));
        assert!(!quarantined());
    }
}
