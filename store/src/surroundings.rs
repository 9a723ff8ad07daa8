//! What the tasks and the transactions of one store share.

use std::sync::Arc;

use crate::failure::Place;
use crate::notices::Notices;
use crate::process_cache::ProcessCache;

/// Shared state of the tasks of one store.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) memory: Arc<ProcessCache>,
    pub(crate) notices: Notices,
    pub(crate) place: Place,
}
