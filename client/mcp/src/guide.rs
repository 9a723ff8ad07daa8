//! Instructions that clients give to the model about this server.

/// The order of work, the meaning of a fault, and how to wait. Clients truncate texts longer than 2 kB.
pub(crate) const INSTRUCTIONS: &str = include_str!("guide.md");

/// Address of the same text as a resource.
pub(crate) const GUIDE_URI: &str = "nightshift://guide";
