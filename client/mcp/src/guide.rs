//! Instructions that clients give to the model about this server.

/// The order of work, the meaning of a fault, and how to wait. Clients truncate texts longer than 2 kB.
pub(crate) const INSTRUCTIONS: &str = include_str!("guide.md");

/// The same for the agent of one session.
pub(crate) const SESSION_INSTRUCTIONS: &str = include_str!("session.md");

/// Address of the same text as a resource.
pub(crate) const GUIDE_URI: &str = "nightshift://guide";
