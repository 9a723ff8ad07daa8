//! What parent and runner say to each other.

use serde::{Deserialize, Serialize};

/// From the parent. Each request carries a number that its answer has to repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Load the library.
    Load {
        /// Number of the request.
        nonce: u64,
    },
    /// Prepare the weights, after freeing what was prepared before.
    Init {
        /// Number of the request.
        nonce: u64,
    },
    /// Call the program once.
    Run {
        /// Number of the request.
        nonce: u64,
    },
}

/// From the runner, one for each request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reply {
    /// Number of the request.
    pub(crate) nonce: u64,
    /// What the entry point returned; 0 for success.
    pub(crate) status: i32,
    /// Time of the call in nanoseconds, as the runner's clock saw it.
    pub(crate) elapsed_ns: u64,
    /// Why the library could not be loaded.
    pub(crate) load_error: Option<String>,
}
