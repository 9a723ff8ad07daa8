//! Cache of the runs that committed decisions left behind, for the next decision. Bounded, with eviction of the least
//! recently used run.
//!
//! Correctness does not depend on it. A run that is not cached is read from the store, and a decision from an outdated
//! entry does not commit.

use std::collections::{BTreeMap, HashMap};

use super::ledger::Ledger;
use crate::store::OwnerFence;
use crate::workflow::AnyState;
use nightshift_protocol::id::{RunId, StepId};

/// Maximum number of cached runs.
pub const MAX_CACHED_RUNS: usize = 20_000;
/// Maximum size of all cached runs, in bytes (approximate).
pub const MAX_CACHED_BYTES: usize = 256 * 1024 * 1024;
/// Maximum size of a cached run. A larger run would evict many others. A run of 400 attempts is smaller.
pub const MAX_CACHED_RUN_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of a cached run in addition to state and steps.
const RUN_BYTES: usize = 512;

/// A run right after a decision: all of its log is folded, up to the events that the decision appended.
#[derive(Debug, Clone)]
pub(super) struct CachedRun {
    pub(super) revision: u64,
    pub(super) last_seq: u64,
    /// The state after the whole log.
    pub(super) state: AnyState,
    /// The stored state, without the steps that the decision scheduled.
    pub(super) stored: AnyState,
    pub(super) ledger: Ledger,
    pub(super) fence: Option<OwnerFence>,
}

struct Entry {
    run: CachedRun,
    weight_bytes: usize,
    used: u64,
}

/// The cached runs.
#[derive(Default)]
pub(super) struct DecisionCache {
    runs: HashMap<RunId, Entry>,
    /// The runs of open steps.
    steps: HashMap<StepId, RunId>,
    /// Runs by the time of their last insertion.
    by_use: BTreeMap<u64, RunId>,
    uses: u64,
    weight_bytes: usize,
}

impl DecisionCache {
    /// Removes and returns the run of an open step. The caller is the only holder of the run then.
    pub(super) fn take(&mut self, step: &StepId) -> Option<(RunId, CachedRun)> {
        let run = self.steps.get(step)?.clone();
        let cached = self.forget(&run)?;
        Some((run, cached))
    }

    /// Inserts a run, unless the cache holds a later decision about it.
    pub(super) fn put(&mut self, id: RunId, run: CachedRun) {
        if self.runs.get(&id).is_some_and(|kept| kept.run.revision > run.revision) {
            return;
        }
        self.forget(&id);
        let weight_bytes = RUN_BYTES + run.state.weight_bytes() + run.ledger.weight_bytes();
        if weight_bytes > MAX_CACHED_RUN_BYTES {
            return;
        }
        while self.runs.len() >= MAX_CACHED_RUNS || self.weight_bytes + weight_bytes > MAX_CACHED_BYTES {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.forget(&oldest);
        }
        self.uses += 1;
        self.weight_bytes += weight_bytes;
        for step in run.ledger.open() {
            self.steps.insert(step.clone(), id.clone());
        }
        self.by_use.insert(self.uses, id.clone());
        self.runs.insert(id, Entry { run, weight_bytes, used: self.uses });
    }

    pub(super) fn forget(&mut self, run: &RunId) -> Option<CachedRun> {
        let kept = self.runs.remove(run)?;
        self.by_use.remove(&kept.used);
        self.weight_bytes -= kept.weight_bytes;
        for step in kept.run.ledger.open() {
            self.steps.remove(step);
        }
        Some(kept.run)
    }

    /// Returns the number of runs and their approximate size in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.runs.len(), self.weight_bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    fn run(number: u128) -> RunId {
        RunId::from_uuid(Uuid::from_u128(number))
    }

    fn step(number: u128) -> StepId {
        StepId::from_uuid(Uuid::from_u128(number))
    }

    fn cached(number: u128, revision: u64, state_bytes: usize) -> CachedRun {
        let mut ledger = Ledger::default();
        let order = crate::workflow::StepOrder {
            key: "a".to_owned(),
            kind: "a".to_owned(),
            needs: nightshift_protocol::machine::Needs::agent(),
            input: Value::Null,
            timeout_ms: 1,
            retry: crate::retry::RetryPolicy::default(),
            cost_ms: 1,
            reserve: Vec::new(),
        };
        ledger.begin(&[(step(number), order)]);
        let state = AnyState::new(json!("x".repeat(state_bytes)));
        CachedRun { revision, last_seq: 2, stored: state.clone(), state, ledger, fence: None }
    }

    #[test]
    fn a_taken_run_is_absent_until_it_is_inserted_again() {
        let mut cache = DecisionCache::default();
        cache.put(run(1), cached(1, 1, 10));
        let Some((id, taken)) = cache.take(&step(1)) else { panic!("not found") };
        assert_eq!(id, run(1));
        assert!(cache.take(&step(1)).is_none());
        assert_eq!(cache.size(), (0, 0));
        cache.put(id, taken);
        assert!(cache.take(&step(1)).is_some());
    }

    #[test]
    fn an_older_decision_does_not_replace_a_later_one() {
        let mut cache = DecisionCache::default();
        cache.put(run(1), cached(1, 5, 10));
        cache.put(run(1), cached(1, 4, 10));
        assert_eq!(cache.take(&step(1)).map(|(_, run)| run.revision), Some(5));
    }

    #[test]
    fn the_run_that_was_unused_for_longest_makes_room() {
        let mut cache = DecisionCache::default();
        let large = MAX_CACHED_RUN_BYTES / 2;
        let fits = u128::try_from(MAX_CACHED_BYTES / MAX_CACHED_RUN_BYTES * 2).unwrap_or(0);
        for number in 0..fits * 2 {
            cache.put(run(number), cached(number, 1, large));
            let (_, bytes) = cache.size();
            assert!(bytes <= MAX_CACHED_BYTES);
        }
        assert!(cache.take(&step(0)).is_none());
        assert!(cache.take(&step(fits * 2 - 1)).is_some());
    }

    #[test]
    fn a_run_that_would_push_out_many_is_not_remembered() {
        let mut cache = DecisionCache::default();
        cache.put(run(1), cached(1, 1, MAX_CACHED_RUN_BYTES));
        assert_eq!(cache.size(), (0, 0));
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let mut cache = DecisionCache::default();
        for number in 0..=MAX_CACHED_RUNS as u128 {
            cache.put(run(number), cached(number, 1, 0));
        }
        assert_eq!(cache.size().0, MAX_CACHED_RUNS);
        assert!(cache.take(&step(0)).is_none());
        assert_eq!((cache.runs.len(), cache.by_use.len(), cache.steps.len()), {
            let kept = MAX_CACHED_RUNS;
            (kept, kept, kept)
        });
    }
}
