//! The worker registry: offers and last contacts of the known workers. Both are in memory, so that a thousand idle
//! workers cost the store almost nothing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nightshift_engine::store::{ReadingRecord, StoreError, WorkerRecord, WorkerStore};
use nightshift_protocol::id::{ServerId, WorkerId};
use nightshift_protocol::machine::Offers;

/// Maximum number of workers in a list.
pub const MAX_LISTED_WORKERS: u32 = 1_000;
/// Time between two writes, shorter than the time after which a waiting worker counts as gone.
pub(crate) const WRITE_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of cached workers. Others are read from the store each time.
const MAX_KNOWN: usize = 20_000;

/// Cached data of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// Its name for people.
    pub(crate) name: String,
    pub(crate) offers: Arc<Offers>,
    /// Whether it takes no new steps and is about to end.
    pub(crate) draining: bool,
}

/// The worker registry.
#[derive(Debug, Default)]
pub(crate) struct WorkerRegistry {
    known: Mutex<HashMap<WorkerId, Known>>,
    seen: Mutex<HashSet<WorkerId>>,
    /// Device readings of workers that are not stored yet.
    readings: Mutex<HashMap<WorkerId, ReadingRecord>>,
    /// Workers in this process, as registered. They move to each new server lease.
    embedded: Mutex<HashMap<WorkerId, WorkerRecord>>,
}

impl WorkerRegistry {
    /// Returns the data of this worker.
    pub(crate) async fn find(&self, store: &dyn WorkerStore, worker: &WorkerId) -> Result<Known, StoreError> {
        if let Some(known) = lock(&self.known).get(worker) {
            return Ok(known.clone());
        }
        let known = read(&store.load_worker(worker).await?)?;
        self.keep(worker, known.clone());
        Ok(known)
    }

    /// Records a registration.
    pub(crate) fn registered(&self, record: &WorkerRecord, offers: Arc<Offers>) {
        self.keep(&record.id, Known { name: record.name.clone(), offers, draining: record.draining });
        if record.embedded {
            lock(&self.embedded).insert(record.id.clone(), record.clone());
        }
    }

    /// Records changed offers of a worker.
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

    /// Records whether a worker is draining.
    pub(crate) fn set_draining(&self, worker: &WorkerId, draining: bool) {
        if let Some(known) = lock(&self.known).get_mut(worker) {
            known.draining = draining;
        }
    }

    /// Returns whether the worker is known to be draining.
    pub(crate) fn is_draining(&self, worker: &WorkerId) -> bool {
        lock(&self.known).get(worker).is_some_and(|known| known.draining)
    }

    /// Removes a worker that the store does not know any more.
    pub(crate) fn forget(&self, worker: &WorkerId) {
        lock(&self.known).remove(worker);
        lock(&self.embedded).remove(worker);
        lock(&self.readings).remove(worker);
    }

    /// Records a worker's reading of its devices.
    pub(crate) fn record_reading(&self, reading: ReadingRecord) {
        let mut readings = lock(&self.readings);
        if readings.len() < MAX_KNOWN || readings.contains_key(&reading.worker) {
            readings.insert(reading.worker.clone(), reading);
        }
    }

    /// Returns the readings that are not stored yet.
    pub(crate) fn unwritten_readings(&self) -> Vec<ReadingRecord> {
        lock(&self.readings).values().cloned().collect()
    }

    /// Removes stored readings.
    pub(crate) fn readings_written(&self, written: &[ReadingRecord]) {
        let mut readings = lock(&self.readings);
        for reading in written {
            if readings.get(&reading.worker) == Some(reading) {
                readings.remove(&reading.worker);
            }
        }
    }

    /// Returns the later one of the stored reading and this server's last reading.
    pub(crate) fn reading_of(&self, worker: &WorkerId, stored: Option<ReadingRecord>) -> Option<ReadingRecord> {
        let local = lock(&self.readings).get(worker).cloned();
        stored.into_iter().chain(local).max_by_key(|reading| reading.at)
    }

    /// Updates the known workers from the store, because another server may have received a quarantine or its end.
    /// Returns the ids of workers that are draining since.
    pub(crate) fn refresh(&self, records: &[WorkerRecord]) -> Vec<WorkerId> {
        let mut known = lock(&self.known);
        let mut drained = Vec::new();
        for record in records {
            if let Some(known) = known.get_mut(&record.id) {
                if record.draining && !known.draining {
                    drained.push(record.id.clone());
                }
                known.draining = record.draining;
                if (known.offers.devices.iter().any(|device| device.quarantine.is_some())
                    || has_quarantined_device(&record.offers))
                    && let Ok(fresh) = read(record)
                {
                    known.offers = fresh.offers;
                }
            }
        }
        drained
    }

    /// Records that this worker was seen.
    pub(crate) fn mark_seen(&self, worker: &WorkerId) {
        lock(&self.seen).insert(worker.clone());
    }

    /// Takes the workers that were seen since the last call.
    pub(crate) fn take_seen(&self) -> HashSet<WorkerId> {
        std::mem::take(&mut *lock(&self.seen))
    }

    /// Returns the workers of this process, for a new server lease.
    pub(crate) fn embedded(&self, server: &ServerId) -> Vec<WorkerRecord> {
        let mut embedded = lock(&self.embedded);
        for record in embedded.values_mut() {
            record.server = Some(server.clone());
        }
        embedded.values().cloned().collect()
    }

    /// Returns how many workers of this process have registered.
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

/// Returns whether a device in these stored offers is quarantined.
fn has_quarantined_device(offers: &serde_json::Value) -> bool {
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
    fn a_quarantine_reported_to_another_server_is_read_from_the_store() {
        let (worker_registry, well) = (WorkerRegistry::default(), record(None));
        let ill = record(Some(json!({ "incident": 1, "code": "gpu.lost", "reason": "gone" })));
        worker_registry.registered(&well, read(&well).unwrap().offers);
        let quarantined = || lock(&worker_registry.known)[&well.id].offers.devices[0].quarantine.is_some();
        assert!(!quarantined());
        worker_registry.refresh(std::slice::from_ref(&ill));
        assert!(quarantined());
        worker_registry.refresh(std::slice::from_ref(&well));
        assert!(!quarantined());
    }
}
