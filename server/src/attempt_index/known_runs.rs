//! Bounded memory of active runs as they were written last into the index, so that only changes are read and written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::RunId;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::prepared::PreparedTask;
use nightshift_store::IndexedAttempt;

/// Maximum number of runs in memory. Beyond it, an arbitrary one is forgotten.
const MAX_RUNS: usize = 1_000;

/// A run as it was written last.
#[derive(Debug)]
pub(super) struct KnownRun {
    /// Its revision. Parts of the state that a later revision wrote are not known.
    pub(super) revision: u64,
    /// The epoch of its owner. Another server may be of a release that does not mark what it changes.
    pub(super) owner_epoch: u64,
    /// The last event that is included.
    pub(super) seq: u64,
    /// True if its state is stored in parts. Otherwise all of it changes.
    pub(super) is_in_parts: bool,
    pub(super) input: Arc<RunInput>,
    /// The prepared task without its profile.
    pub(super) prepared: Option<PreparedTask>,
    pub(super) failed_calls: Vec<ModelCallSummary>,
    /// Rows of all attempts, by number.
    pub(super) rows: BTreeMap<u32, IndexedAttempt>,
}

impl KnownRun {
    /// Replaces the rows of changed attempts, and marks the best attempt. Returns the rows that differ from before.
    pub(super) fn update(&mut self, changed: Vec<IndexedAttempt>, best_attempt: Option<u32>) -> Vec<IndexedAttempt> {
        let mut differing = BTreeSet::new();
        for row in changed {
            if self.rows.get(&row.number) != Some(&row) {
                differing.insert(row.number);
                self.rows.insert(row.number, row);
            }
        }
        for row in self.rows.values_mut() {
            let is_best = best_attempt == Some(row.number);
            if row.is_best != is_best {
                row.is_best = is_best;
                differing.insert(row.number);
            }
        }
        differing.iter().filter_map(|number| self.rows.get(number).cloned()).collect()
    }
}

/// The runs. A finished run is removed, so that it is written completely if it is pruned and imported again.
#[derive(Debug, Default)]
pub(super) struct KnownRuns {
    runs: HashMap<RunId, KnownRun>,
}

impl KnownRuns {
    /// Removes and returns a run.
    pub(super) fn take(&mut self, run: &RunId) -> Option<KnownRun> {
        self.runs.remove(run)
    }

    pub(super) fn keep(&mut self, run: RunId, known: KnownRun) {
        if self.runs.len() >= MAX_RUNS && !self.runs.contains_key(&run) {
            let forgotten = self.runs.keys().next().cloned();
            if let Some(forgotten) = forgotten {
                self.runs.remove(&forgotten);
            }
        }
        self.runs.insert(run, known);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use nightshift_protocol::api::RunView;
    use nightshift_protocol::attempt::AttemptOutcome;
    use nightshift_protocol::time::TimestampMs;
    use serde_json::Value;

    use super::*;
    use crate::attempt_index::project::indexed_attempts;

    /// Returns a run of an earlier release, with all of its rows.
    fn known() -> (RunView, KnownRun) {
        let text = include_str!("../../../optimizer/tests/corpus/history/repaired_to_the_target.json");
        let recorded: Value = serde_json::from_str(text).unwrap();
        let input: RunInput = serde_json::from_value(recorded["events"][0]["input"].clone()).unwrap();
        let view = nightshift_optimizer::strategy::view(&recorded["state"]).unwrap();
        let rows = indexed_attempts(&view, &input, &BTreeMap::new(), TimestampMs(1), false);
        let known = KnownRun {
            revision: 1,
            owner_epoch: 1,
            seq: 1,
            is_in_parts: true,
            input: Arc::new(input),
            prepared: None,
            failed_calls: Vec::new(),
            rows: rows.into_iter().map(|row| (row.number, row)).collect(),
        };
        (view, known)
    }

    #[test]
    fn rows_that_differ_are_written_and_no_others() {
        let (view, mut known) = known();
        let last = known.rows.values().last().unwrap().clone();
        assert!(known.update(vec![last.clone()], view.best_attempt).is_empty());
        let changed = IndexedAttempt { outcome: AttemptOutcome::Crashed, ..last.clone() };
        let new = IndexedAttempt { number: last.number + 1, is_best: false, ..last };
        let written = known.update(vec![changed.clone(), new.clone()], view.best_attempt);
        assert_eq!(written, [changed, new]);
    }

    #[test]
    fn a_new_best_attempt_replaces_the_mark_of_the_one_before() {
        let (view, mut known) = known();
        let (best, other) = (view.best_attempt.unwrap(), 1);
        assert_ne!(best, other);
        let written = known.update(Vec::new(), Some(other));
        let marks: Vec<(u32, bool)> = written.iter().map(|row| (row.number, row.is_best)).collect();
        assert_eq!(marks, [(other, true), (best, false)]);
    }
}
