//! The workflow of every run over states as they are stored: after each event the state goes through its stored form.

use std::collections::BTreeMap;

use nightshift_engine::event::Event;
use nightshift_engine::workflow::{Command, StatePart, StoredState, Workflow, WorkflowError, WorkflowState as _};
use nightshift_optimizer::strategy::{StrategyWorkflow, changed_attempts, view};
use nightshift_protocol::attempt::Attempt;
use serde_json::Value;

type State = <StrategyWorkflow as Workflow>::State;

/// See the module.
pub(crate) struct StoredWorkflow;

#[expect(
    clippy::unused_self,
    clippy::needless_pass_by_value,
    reason = "the methods are called as those of the workflow"
)]
impl StoredWorkflow {
    /// The document after an event. What the event changed, put over what was stored before, is the whole state.
    pub(crate) fn apply(&self, state: Option<Value>, event: &Event) -> Result<Value, WorkflowError> {
        let before = state.as_ref().map(State::read).transpose()?;
        let after = StrategyWorkflow.apply(before.clone(), event)?;
        let whole = after.document()?;
        if let Some(before) = before {
            let changed = after.write(Some(&before))?;
            assert!(changed.parts.len() <= MAX_CHANGED_PARTS, "an event changed {} parts", changed.parts.len());
            compare_changed_attempts(&before.document()?, changed.clone(), &whole)?;
            assert_eq!(put_over(before.write(None)?, changed), whole);
        }
        Ok(whole)
    }

    pub(crate) fn decide(&self, state: &Value) -> Result<Vec<Command>, WorkflowError> {
        StrategyWorkflow.decide(&State::read(state)?)
    }

    pub(crate) fn digest(&self, state: &Value) -> Result<Value, WorkflowError> {
        StrategyWorkflow.digest(&State::read(state)?)
    }
}

/// Parts that one event may change: the attempts of a round that get their route, and those that follow.
const MAX_CHANGED_PARTS: usize = 16;

/// Changed attempts put over those of the view before are the attempts of the view after.
fn compare_changed_attempts(before: &Value, changed: StoredState, after: &Value) -> Result<(), WorkflowError> {
    let (before, after) = (view(before)?, view(after)?);
    let known = u32::try_from(before.attempts.len()).unwrap_or(u32::MAX);
    let reads_all = changed.parts.iter().any(|part| part.field != "attempts") || after.stop_reason.is_some();
    let Some(changed) = changed_attempts(changed, known)? else {
        assert!(reads_all, "only attempts changed");
        return Ok(());
    };
    assert!(!reads_all, "more than attempts changed");
    let mut attempts: BTreeMap<u32, Attempt> =
        before.attempts.into_iter().map(|attempt| (attempt.number, attempt)).collect();
    attempts.extend(changed.attempts.into_iter().map(|attempt| (attempt.number, attempt)));
    assert_eq!(attempts.into_values().collect::<Vec<_>>(), after.attempts);
    assert_eq!((changed.best_attempt, changed.failed_calls), (after.best_attempt, after.failed_calls));
    Ok(())
}

/// The document once these changes are stored.
fn put_over(stored: StoredState, changed: StoredState) -> Value {
    let mut parts = BTreeMap::new();
    for StatePart { field, number, value } in stored.parts.into_iter().chain(changed.parts) {
        parts.insert((field, number), value);
    }
    let parts = parts.into_iter().map(|((field, number), value)| StatePart { field, number, value }).collect();
    StoredState { head: changed.head, parts }.document()
}
