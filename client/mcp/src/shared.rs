//! State that all calls of tools share.

use std::sync::Arc;

use crate::bound::BoundRun;
use crate::guide::{INSTRUCTIONS, SESSION_INSTRUCTIONS};
use crate::ports::{Servers, Tasks};
use crate::verification::Verifications;

/// State that all calls of tools share.
pub(crate) struct Shared {
    /// Finds the server.
    pub(crate) servers: Box<dyn Servers>,
    /// Reads tasks.
    pub(crate) tasks: Arc<dyn Tasks>,
    /// Verifications of this process; none on a server, where workers verify programs.
    pub(crate) verifications: Option<Verifications>,
    /// The only run of the service, where it is bound to one.
    pub(crate) bound: Option<BoundRun>,
}

impl Shared {
    /// Returns the instructions for clients.
    pub(crate) fn instructions(&self) -> &'static str {
        if self.bound.is_some() { SESSION_INSTRUCTIONS } else { INSTRUCTIONS }
    }
}
