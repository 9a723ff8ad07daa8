//! Caches runs that this process has just created until their first decision, which needs no database read then.
//! Bounded: evicted runs are read from the database.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use nightshift_engine::event::Event;
use nightshift_engine::store::{CreatedRun, RunRecord};
use nightshift_protocol::id::RunId;

use crate::json;

/// Maximum number of cached runs.
const MAX_RUNS: usize = 4_096;
/// Maximum size of their inputs, in bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// A run right after its creation, with its texts as stored.
#[derive(Debug)]
pub(crate) struct Created {
    /// The record without its digest.
    pub(crate) run: RunRecord,
    /// The digest.
    pub(crate) digest: String,
    /// The first event.
    pub(crate) body: String,
}

impl Created {
    fn bytes(&self) -> usize {
        self.digest.len() + self.body.len()
    }

    /// Returns the run as a read would.
    fn read(self) -> Option<CreatedRun> {
        let Ok(Event::RunCreated { input }) = json::read(&self.body) else { return None };
        let digest = json::read(&self.digest).ok()?;
        Some(CreatedRun { run: RunRecord { digest, ..self.run }, input })
    }
}

/// The cache. See the module.
#[derive(Debug, Default)]
pub(crate) struct CreatedRuns(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    runs: HashMap<RunId, Created>,
    /// Insertion order. Some of these runs are taken already.
    order: VecDeque<RunId>,
    bytes: usize,
}

impl Entries {
    fn take(&mut self, run: &RunId) -> Option<Created> {
        let created = self.runs.remove(run)?;
        self.bytes -= created.bytes();
        Some(created)
    }
}

impl CreatedRuns {
    /// Inserts committed runs, and evicts the oldest.
    pub(crate) fn keep(&self, created: Vec<Created>) {
        if created.is_empty() {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for created in created {
            let id = created.run.id.clone();
            kept.take(&id);
            kept.bytes += created.bytes();
            kept.order.push_back(id.clone());
            kept.runs.insert(id, created);
            while kept.order.len() > MAX_RUNS || kept.bytes > MAX_BYTES {
                let Some(oldest) = kept.order.pop_front() else { break };
                kept.take(&oldest);
            }
        }
    }

    /// Removes and returns a run.
    pub(crate) fn take(&self, run: &RunId) -> Option<CreatedRun> {
        let created = self.0.lock().unwrap_or_else(PoisonError::into_inner).take(run)?;
        created.read()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use nightshift_protocol::id::CampaignId;
    use nightshift_protocol::run::RunStatus;
    use nightshift_protocol::time::TimestampMs;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    fn id(number: usize) -> RunId {
        RunId::from_uuid(Uuid::from_u128(number as u128))
    }

    fn created(number: usize, bytes: usize) -> Created {
        let run = RunRecord {
            id: id(number),
            campaign: CampaignId::from_uuid(Uuid::nil()),
            status: RunStatus::Running,
            revision: 0,
            state: None,
            state_parts: 0,
            folded_seq: 0,
            last_seq: 1,
            digest: Value::Null,
            failure: None,
            owner: None,
            owner_epoch: 0,
            priority: 0,
            awaits: Vec::new(),
            created_at: TimestampMs(0),
            finished_at: None,
        };
        let body = json::write(&Event::RunCreated { input: json!("x".repeat(bytes)) }).unwrap();
        Created { run, digest: "{\"a\":1}".to_owned(), body }
    }

    #[test]
    fn a_run_is_given_once_as_it_is_stored() {
        let runs = CreatedRuns::default();
        runs.keep(vec![created(1, 3)]);
        let taken = runs.take(&id(1)).unwrap();
        assert_eq!((taken.input, taken.run.digest), (json!("xxx"), json!({"a": 1})));
        assert!(runs.take(&id(1)).is_none());
        assert_eq!(runs.0.lock().unwrap().bytes, 0);
    }

    #[test]
    fn the_oldest_make_room() {
        let runs = CreatedRuns::default();
        runs.keep((0..=MAX_RUNS).map(|number| created(number, 1)).collect());
        assert!(runs.take(&id(0)).is_none());
        assert!(runs.take(&id(1)).is_some());
        runs.keep(vec![created(MAX_RUNS + 1, MAX_BYTES - 200)]);
        assert!(runs.take(&id(2)).is_none());
        assert!(runs.0.lock().unwrap().bytes <= MAX_BYTES);
        runs.keep(vec![created(MAX_RUNS + 2, MAX_BYTES)]);
        assert!(runs.take(&id(MAX_RUNS + 2)).is_none(), "what is larger than everything is not kept");
    }
}
