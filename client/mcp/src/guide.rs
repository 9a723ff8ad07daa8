//! What clients tell the model about this server.

/// The order of work, what a fault is, and how to wait. Clients cut what is longer than 2 kB.
pub(crate) const INSTRUCTIONS: &str = include_str!("guide.md");

/// Where the same text is as a resource.
pub(crate) const GUIDE_URI: &str = "nightshift://guide";
