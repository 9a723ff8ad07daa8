//! Cache of the rows that this process wrote last into the index, so that it writes only differences.

use std::collections::HashMap;

use nightshift_protocol::id::RunId;
use nightshift_store::IndexedAttempt;

/// Maximum number of cached runs. Beyond it, the cache is cleared.
const MAX_RUNS: usize = 1_000;

/// The rows of unfinished runs. A finished run is removed, so that it is written completely if it is pruned and
/// imported again.
#[derive(Debug, Default)]
pub(super) struct Written {
    runs: HashMap<RunId, Vec<IndexedAttempt>>,
}

impl Written {
    /// Returns the rows that differ from the last written ones.
    pub(super) fn changed(&self, run: &RunId, rows: &[IndexedAttempt]) -> Vec<IndexedAttempt> {
        let known = self.runs.get(run).map_or(&[][..], Vec::as_slice);
        let is_new = |(place, row): &(usize, &IndexedAttempt)| known.get(*place) != Some(*row);
        rows.iter().enumerate().filter(is_new).map(|(_, row)| row.clone()).collect()
    }

    /// Stores the written rows.
    pub(super) fn keep(&mut self, run: &RunId, rows: Vec<IndexedAttempt>) {
        if self.runs.len() >= MAX_RUNS && !self.runs.contains_key(run) {
            self.runs.clear();
        }
        self.runs.insert(run.clone(), rows);
    }

    pub(super) fn forget(&mut self, run: &RunId) {
        self.runs.remove(run);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
mod tests {
    use nightshift_protocol::attempt::{AttemptOutcome, Stage};
    use nightshift_protocol::time::TimestampMs;
    use uuid::Uuid;

    use super::*;

    fn row(number: u32, outcome: AttemptOutcome) -> IndexedAttempt {
        IndexedAttempt {
            number,
            stage: Stage::Draft,
            parent: None,
            outcome,
            is_best: false,
            is_confirmed: false,
            speedup: None,
            speedup_over_fastest: None,
            candidate_median_ns: None,
            reward: None,
            rubric_total: None,
            bound: None,
            issue: None,
            tokens: 0,
            cost_microusd: None,
            model: "m".to_owned(),
            device: None,
            device_ms: 0,
            source: None,
            created_at: TimestampMs(1),
            finished_at: None,
        }
    }

    #[test]
    fn only_rows_that_differ_are_written_again() {
        let run = RunId::from_uuid(Uuid::from_u128(1));
        let mut written = Written::default();
        let first = vec![row(1, AttemptOutcome::Pending)];
        assert_eq!(written.changed(&run, &first), first);
        written.keep(&run, first);
        let second = vec![row(1, AttemptOutcome::Crashed), row(2, AttemptOutcome::Pending)];
        assert_eq!(written.changed(&run, &second), second);
        written.keep(&run, second.clone());
        let mut third = second;
        third[1].tokens = 7;
        assert_eq!(written.changed(&run, &third), [third.last().unwrap().clone()]);
        written.forget(&run);
        assert_eq!(written.changed(&run, &third), third, "a run that was forgotten is written as a whole");
    }
}
