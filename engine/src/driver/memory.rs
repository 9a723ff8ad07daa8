//! What committed decisions left behind, for the next one: bounded, forgotten when unused for longest. Nothing depends on
//! it: what is not remembered is read from the store, and what is remembered wrongly does not commit.

use std::collections::{BTreeMap, HashMap};

use super::ledger::Ledger;
use crate::store::OwnerFence;
use crate::workflow::AnyState;
use nightshift_protocol::id::{RunId, StepId};

/// Runs that are remembered at most.
pub const MAX_REMEMBERED_RUNS: usize = 20_000;
/// About how many bytes all remembered runs may take.
pub const MAX_REMEMBERED_BYTES: usize = 256 * 1024 * 1024;
/// A run that takes more bytes is not remembered: it would push out many others. A run of 400 attempts takes less.
pub const MAX_REMEMBERED_RUN_BYTES: usize = 16 * 1024 * 1024;

/// Bytes that a remembered run takes beside state and steps.
const RUN_BYTES: usize = 512;

/// A run right after a decision: its log ends with what the decision appended, and all of it is folded.
#[derive(Debug, Clone)]
pub(super) struct Remembered {
    pub(super) revision: u64,
    pub(super) last_seq: u64,
    /// The state after the whole log.
    pub(super) state: AnyState,
    /// The state as it is stored: without the steps that the decision scheduled.
    pub(super) stored: AnyState,
    pub(super) ledger: Ledger,
    pub(super) fence: Option<OwnerFence>,
}

struct Kept {
    run: Remembered,
    weight_bytes: usize,
    used: u64,
}

/// The remembered runs.
#[derive(Default)]
pub(super) struct Memory {
    runs: HashMap<RunId, Kept>,
    /// The runs of open steps.
    steps: HashMap<StepId, RunId>,
    /// Runs by when they were last put here.
    by_use: BTreeMap<u64, RunId>,
    uses: u64,
    weight_bytes: usize,
}

impl Memory {
    /// Takes out the run of an open step: whoever has it is the only one.
    pub(super) fn take(&mut self, step: &StepId) -> Option<(RunId, Remembered)> {
        let run = self.steps.get(step)?.clone();
        let remembered = self.forget(&run)?;
        Some((run, remembered))
    }

    /// Puts a run here, unless a later decision about it is here already.
    pub(super) fn put(&mut self, id: RunId, run: Remembered) {
        if self.runs.get(&id).is_some_and(|kept| kept.run.revision > run.revision) {
            return;
        }
        self.forget(&id);
        let weight_bytes = RUN_BYTES + run.state.weight_bytes() + run.ledger.weight_bytes();
        if weight_bytes > MAX_REMEMBERED_RUN_BYTES {
            return;
        }
        while self.runs.len() >= MAX_REMEMBERED_RUNS || self.weight_bytes + weight_bytes > MAX_REMEMBERED_BYTES {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.forget(&oldest);
        }
        self.uses += 1;
        self.weight_bytes += weight_bytes;
        for step in run.ledger.open() {
            self.steps.insert(step.clone(), id.clone());
        }
        self.by_use.insert(self.uses, id.clone());
        self.runs.insert(id, Kept { run, weight_bytes, used: self.uses });
    }

    pub(super) fn forget(&mut self, run: &RunId) -> Option<Remembered> {
        let kept = self.runs.remove(run)?;
        self.by_use.remove(&kept.used);
        self.weight_bytes -= kept.weight_bytes;
        for step in kept.run.ledger.open() {
            self.steps.remove(step);
        }
        Some(kept.run)
    }

    /// Runs, and about how many bytes they take.
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

    fn remembered(number: u128, revision: u64, state_bytes: usize) -> Remembered {
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
        Remembered { revision, last_seq: 2, stored: state.clone(), state, ledger, fence: None }
    }

    #[test]
    fn what_is_taken_out_is_gone_until_it_is_put_back() {
        let mut memory = Memory::default();
        memory.put(run(1), remembered(1, 1, 10));
        let Some((id, taken)) = memory.take(&step(1)) else { panic!("not found") };
        assert_eq!(id, run(1));
        assert!(memory.take(&step(1)).is_none());
        assert_eq!(memory.size(), (0, 0));
        memory.put(id, taken);
        assert!(memory.take(&step(1)).is_some());
    }

    #[test]
    fn an_older_decision_does_not_replace_a_later_one() {
        let mut memory = Memory::default();
        memory.put(run(1), remembered(1, 5, 10));
        memory.put(run(1), remembered(1, 4, 10));
        assert_eq!(memory.take(&step(1)).map(|(_, run)| run.revision), Some(5));
    }

    #[test]
    fn the_run_that_was_unused_for_longest_makes_room() {
        let mut memory = Memory::default();
        let large = MAX_REMEMBERED_RUN_BYTES / 2;
        let fits = u128::try_from(MAX_REMEMBERED_BYTES / MAX_REMEMBERED_RUN_BYTES * 2).unwrap_or(0);
        for number in 0..fits * 2 {
            memory.put(run(number), remembered(number, 1, large));
            let (_, bytes) = memory.size();
            assert!(bytes <= MAX_REMEMBERED_BYTES);
        }
        assert!(memory.take(&step(0)).is_none());
        assert!(memory.take(&step(fits * 2 - 1)).is_some());
    }

    #[test]
    fn a_run_that_would_push_out_many_is_not_remembered() {
        let mut memory = Memory::default();
        memory.put(run(1), remembered(1, 1, MAX_REMEMBERED_RUN_BYTES));
        assert_eq!(memory.size(), (0, 0));
    }

    #[test]
    fn the_number_of_runs_is_bounded() {
        let mut memory = Memory::default();
        for number in 0..=MAX_REMEMBERED_RUNS as u128 {
            memory.put(run(number), remembered(number, 1, 0));
        }
        assert_eq!(memory.size().0, MAX_REMEMBERED_RUNS);
        assert!(memory.take(&step(0)).is_none());
        assert_eq!((memory.runs.len(), memory.by_use.len(), memory.steps.len()), {
            let kept = MAX_REMEMBERED_RUNS;
            (kept, kept, kept)
        });
    }
}
