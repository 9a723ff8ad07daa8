//! State that all calls of tools share.

use std::sync::Arc;

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
}
