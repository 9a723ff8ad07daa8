//! Cache of the inputs of runs, which the agents need for each step.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nightshift_protocol::campaign::RunInput;
use nightshift_protocol::id::RunId;

/// Maximum number of cached inputs. The first event of a run never changes.
const MAX_INPUTS: usize = 2_048;

/// The cache. See the module.
#[derive(Default)]
pub(crate) struct RunInputs(Mutex<HashMap<RunId, Arc<RunInput>>>);

impl RunInputs {
    pub(crate) fn get(&self, run: &RunId) -> Option<Arc<RunInput>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(run).cloned()
    }

    pub(crate) fn keep(&self, run: RunId, input: Arc<RunInput>) {
        let mut inputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inputs.len() >= MAX_INPUTS {
            // Most of these runs have ended. Inputs of the others are read once more.
            inputs.clear();
        }
        inputs.insert(run, input);
    }
}
