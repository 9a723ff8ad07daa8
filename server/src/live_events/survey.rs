//! The last seen state of runs, to detect changes.

use std::collections::{HashMap, HashSet};

use nightshift_engine::store::{RunMark, RunStamp};
use nightshift_protocol::id::RunId;
use nightshift_protocol::run::RunStatus;

/// Maximum number of known runs. Beyond it, all are removed, and each is reported once more when it changes.
const MAX_KNOWN: usize = 20_000;

/// The last seen state of runs.
#[derive(Debug, Default)]
pub(super) struct Survey {
    known: HashMap<RunId, Known>,
    /// Whether an unknown run is new, because all existing runs were read.
    is_complete: bool,
}

#[derive(Debug)]
struct Known {
    revision: u64,
    last_seq: u64,
    /// None if only its stamp was seen.
    status: Option<RunStatus>,
}

impl Known {
    fn may_be_open(&self) -> bool {
        self.status.is_none_or(|status| !status.is_final())
    }
}

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The run is unchanged.
    Nothing,
    /// The run changed, but not its status.
    Change,
    /// The status changed or the run is new, so the counts of its campaign changed too.
    Status,
}

impl Survey {
    /// Records the state of a run.
    pub(super) fn note(&mut self, mark: &RunMark) -> Found {
        let known = self.known.get(&mark.run);
        if known.is_some_and(|known| {
            known.status.is_some() && (known.revision, known.last_seq) == (mark.revision, mark.last_seq)
        }) {
            return Found::Nothing;
        }
        let is_same_status = known.is_some_and(|known| known.status == Some(mark.status));
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
            self.is_complete = false;
        }
        let known = Known { revision: mark.revision, last_seq: mark.last_seq, status: Some(mark.status) };
        self.known.insert(mark.run.clone(), known);
        if is_same_status { Found::Change } else { Found::Status }
    }

    /// Removes a deleted run.
    pub(super) fn forget(&mut self, run: &RunId) {
        self.known.remove(run);
    }

    /// Compares the stamps of all unfinished runs. Returns the runs to read, which are none the first time.
    pub(super) fn compare(&mut self, stamps: Vec<RunStamp>) -> HashSet<RunId> {
        let mut changed = HashSet::new();
        let mut there = HashSet::with_capacity(stamps.len());
        for stamp in stamps {
            let known = self.known.get(&stamp.run);
            if known.is_none_or(|known| (known.revision, known.last_seq) != (stamp.revision, stamp.last_seq)) {
                if self.is_complete {
                    changed.insert(stamp.run.clone());
                } else {
                    let known = Known { revision: stamp.revision, last_seq: stamp.last_seq, status: None };
                    self.known.entry(stamp.run.clone()).or_insert(known);
                }
            }
            there.insert(stamp.run);
        }
        // Runs that are no longer unfinished: their end has to be reported.
        let ended = self.known.iter().filter(|(run, known)| known.may_be_open() && !there.contains(*run));
        changed.extend(ended.map(|(run, _)| run.clone()));
        self.is_complete = true;
        changed
    }
}

#[cfg(test)]
mod tests {
    use nightshift_protocol::id::CampaignId;
    use serde_json::Value;
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> RunId {
        RunId::from_uuid(Uuid::from_u128(number))
    }

    fn stamp(number: u128, revision: u64) -> RunStamp {
        RunStamp { run: id(number), revision, last_seq: revision }
    }

    fn mark(number: u128, revision: u64, status: RunStatus) -> RunMark {
        RunMark {
            run: id(number),
            campaign: CampaignId::from_uuid(Uuid::from_u128(1)),
            status,
            revision,
            last_seq: revision,
            digest: Value::Null,
            awaits: Vec::new(),
            failure: None,
            finished_at: None,
        }
    }

    #[test]
    fn a_change_without_a_notice_is_found_by_the_next_look() {
        let mut survey = Survey::default();
        assert!(survey.compare(vec![stamp(1, 1), stamp(2, 1)]).is_empty(), "the first survey reports no change");
        assert!(survey.compare(vec![stamp(1, 1), stamp(2, 1)]).is_empty());
        let changed = survey.compare(vec![stamp(1, 2), stamp(2, 1), stamp(3, 1)]);
        assert_eq!(changed, HashSet::from([id(1), id(3)]), "one that changed, and one that is new");
        assert_eq!(survey.note(&mark(1, 2, RunStatus::Running)), Found::Status);
        assert_eq!(survey.note(&mark(3, 1, RunStatus::Running)), Found::Status);
        assert_eq!(survey.compare(vec![stamp(1, 2), stamp(3, 1)]), HashSet::from([id(2)]), "one that ended");
        assert_eq!(survey.note(&mark(2, 2, RunStatus::Completed)), Found::Status);
        assert!(survey.compare(vec![stamp(1, 2), stamp(3, 1)]).is_empty(), "it ended once");
    }

    #[test]
    fn an_unchanged_run_is_not_reported() {
        let mut survey = Survey::default();
        assert_eq!(survey.note(&mark(1, 1, RunStatus::Running)), Found::Status);
        assert_eq!(survey.note(&mark(1, 1, RunStatus::Running)), Found::Nothing);
        assert_eq!(survey.note(&mark(1, 2, RunStatus::Running)), Found::Change);
        assert_eq!(survey.note(&mark(1, 3, RunStatus::Paused)), Found::Status);
    }

    #[test]
    fn a_run_that_was_deleted_is_looked_for_once() {
        let mut survey = Survey::default();
        survey.compare(vec![stamp(1, 1)]);
        assert_eq!(survey.compare(Vec::new()), HashSet::from([id(1)]));
        survey.forget(&id(1));
        assert!(survey.compare(Vec::new()).is_empty());
    }
}
