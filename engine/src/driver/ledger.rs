//! The steps of a run and their standing, as input of a decision in addition to the state.

use nightshift_protocol::id::StepId;
use nightshift_protocol::run::StepStatus;
use nightshift_protocol::step::StepFailure;

use crate::store::StepRecord;
use crate::workflow::StepOrder;

/// Bytes of a step in addition to its texts.
const STEP_BYTES: usize = 96;

/// The steps of a run, in the order in which they were scheduled.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    steps: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    id: StepId,
    key: String,
    standing: Standing,
}

/// The standing of a step.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    /// It is scheduled or leased.
    Open,
    /// It cannot succeed.
    Failed(Box<StepFailure>),
    /// It ended in another way.
    Over,
}

impl Ledger {
    pub(super) fn of(steps: Vec<StepRecord>) -> Self {
        let entry = |step: StepRecord| {
            let standing = match (step.status, step.failure) {
                (StepStatus::Scheduled | StepStatus::Leased, _) => Standing::Open,
                (StepStatus::Failed, Some(failure)) => Standing::Failed(Box::new(failure)),
                (StepStatus::Failed | StepStatus::Completed | StepStatus::Cancelled, _) => Standing::Over,
            };
            Entry { id: step.id, key: step.key, standing }
        };
        Self { steps: steps.into_iter().map(entry).collect() }
    }

    pub(super) fn has_open_steps(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.standing, Standing::Open))
    }

    /// Returns the open steps.
    pub(super) fn open(&self) -> impl Iterator<Item = &StepId> {
        self.steps.iter().filter(|step| matches!(step.standing, Standing::Open)).map(|step| &step.id)
    }

    /// Returns the key of a step if it is open. Searches from the end, because recent steps are the most likely.
    pub(super) fn open_key(&self, id: &StepId) -> Option<&str> {
        let step = self.steps.iter().rev().find(|step| step.id == *id)?;
        matches!(step.standing, Standing::Open).then_some(step.key.as_str())
    }

    /// Returns the failure of the first step that failed.
    pub(super) fn failure(&self) -> Option<&StepFailure> {
        self.steps.iter().find_map(|step| match &step.standing {
            Standing::Failed(failure) => Some(&**failure),
            Standing::Open | Standing::Over => None,
        })
    }

    /// Records that the step with this key ended.
    pub(super) fn end(&mut self, key: &str, standing: Standing) {
        if let Some(step) = self.steps.iter_mut().rev().find(|step| step.key == key) {
            step.standing = standing;
        }
    }

    fn knows(&self, key: &str) -> bool {
        self.steps.iter().rev().any(|step| step.key == key)
    }

    /// Returns whether any of these orders is new.
    pub(super) fn begins_any(&self, orders: &[(StepId, StepOrder)]) -> bool {
        orders.iter().any(|(_, order)| !self.knows(&order.key))
    }

    /// Adds the orders whose keys are new, as the store does. Returns those keys in their order.
    pub(super) fn begin(&mut self, orders: &[(StepId, StepOrder)]) -> Vec<String> {
        let mut begun = Vec::new();
        for (id, order) in orders {
            if !self.knows(&order.key) {
                self.steps.push(Entry { id: id.clone(), key: order.key.clone(), standing: Standing::Open });
                begun.push(order.key.clone());
            }
        }
        begun
    }

    /// Returns the approximate size in cache, in bytes.
    pub(super) fn weight_bytes(&self) -> usize {
        self.steps.iter().map(|step| STEP_BYTES + step.id.as_str().len() + step.key.len()).sum()
    }
}
