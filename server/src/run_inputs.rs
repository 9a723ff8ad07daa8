//! What runs were created with, as the agents need it for each of their steps.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::RunId;

/// Runs whose inputs are remembered: the first event of a run never changes.
const MAX_INPUTS: usize = 2_048;

/// See the module.
#[derive(Default)]
pub(crate) struct RunInputs(Mutex<HashMap<RunId, Arc<RunInput>>>);

impl RunInputs {
    pub(crate) fn get(&self, run: &RunId) -> Option<Arc<RunInput>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(run).cloned()
    }

    pub(crate) fn keep(&self, run: RunId, input: Arc<RunInput>) {
        let mut inputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inputs.len() >= MAX_INPUTS {
            // Most of them are over: those that are not are read once more.
            inputs.clear();
        }
        inputs.insert(run, input);
    }
}
