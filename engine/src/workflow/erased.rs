//! Type-erased workflows, for the driver.

use std::any::Any;
use std::fmt::Debug;

use nightshift_protocol::step::StepFailure;
use serde_json::Value;

use super::{Command, StoredState, Workflow, WorkflowError, WorkflowState};
use crate::event::Event;

/// A [`Workflow`] with an erased state type. Every workflow implements it.
pub trait AnyWorkflow: Send + Sync {
    /// See [`WorkflowState::read`].
    fn read(&self, document: &Value) -> Result<AnyState, WorkflowError>;

    /// See [`WorkflowState::write`].
    fn write(&self, state: &AnyState, before: Option<&AnyState>) -> Result<StoredState, WorkflowError>;

    /// See [`Workflow::apply`].
    fn apply(&self, state: Option<AnyState>, event: &Event) -> Result<AnyState, WorkflowError>;

    /// See [`Workflow::state_format`].
    fn state_format(&self) -> u32;

    /// See [`Workflow::decide`].
    fn decide(&self, state: &AnyState) -> Result<Vec<Command>, WorkflowError>;

    /// See [`Workflow::outlives`].
    fn outlives(&self, failure: &StepFailure) -> bool;

    /// See [`Workflow::digest`].
    fn digest(&self, state: &AnyState) -> Result<Value, WorkflowError>;
}

/// The state of a run, of the type that its workflow uses.
#[derive(Debug)]
pub struct AnyState(Box<dyn Erased>);

impl AnyState {
    /// Wraps a state of some workflow.
    #[must_use]
    pub fn new<S: WorkflowState>(state: S) -> Self {
        Self(Box::new(state))
    }

    /// See [`WorkflowState::weight_bytes`].
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.0.weight_bytes()
    }

    fn of<S: WorkflowState>(&self) -> Result<&S, WorkflowError> {
        self.0.as_any().downcast_ref().ok_or_else(foreign)
    }

    fn into<S: WorkflowState>(self) -> Result<S, WorkflowError> {
        self.0.into_any().downcast().map(|state| *state).map_err(|_| foreign())
    }
}

impl Clone for AnyState {
    fn clone(&self) -> Self {
        Self(self.0.boxed_clone())
    }
}

fn foreign() -> WorkflowError {
    WorkflowError::Unreadable { what: "run state", message: "it was kept by another workflow".to_owned() }
}

trait Erased: Any + Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    fn boxed_clone(&self) -> Box<dyn Erased>;
    fn weight_bytes(&self) -> usize;
}

impl<S: WorkflowState> Erased for S {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn boxed_clone(&self) -> Box<dyn Erased> {
        Box::new(self.clone())
    }

    fn weight_bytes(&self) -> usize {
        WorkflowState::weight_bytes(self)
    }
}

impl<W: Workflow> AnyWorkflow for W {
    fn read(&self, document: &Value) -> Result<AnyState, WorkflowError> {
        W::State::read(document).map(AnyState::new)
    }

    fn write(&self, state: &AnyState, before: Option<&AnyState>) -> Result<StoredState, WorkflowError> {
        let before = before.map(AnyState::of::<W::State>).transpose()?;
        state.of::<W::State>()?.write(before)
    }

    fn apply(&self, state: Option<AnyState>, event: &Event) -> Result<AnyState, WorkflowError> {
        let state = state.map(AnyState::into::<W::State>).transpose()?;
        Workflow::apply(self, state, event).map(AnyState::new)
    }

    fn state_format(&self) -> u32 {
        Workflow::state_format(self)
    }

    fn decide(&self, state: &AnyState) -> Result<Vec<Command>, WorkflowError> {
        Workflow::decide(self, state.of()?)
    }

    fn outlives(&self, failure: &StepFailure) -> bool {
        Workflow::outlives(self, failure)
    }

    fn digest(&self, state: &AnyState) -> Result<Value, WorkflowError> {
        Workflow::digest(self, state.of()?)
    }
}
