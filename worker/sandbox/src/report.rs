//! Entries of a sandbox report.

use nightshift_protocol::machine::SandboxMeans;

/// Returns the entry of a means that is in force.
pub(crate) fn in_force(name: &str, detail: &str) -> SandboxMeans {
    SandboxMeans { name: name.to_owned(), in_force: true, detail: detail.to_owned() }
}

/// Returns the entry of a means that is not in force, with the reason.
pub(crate) fn not_in_force(name: &str, reason: &str) -> SandboxMeans {
    SandboxMeans { name: name.to_owned(), in_force: false, detail: reason.to_owned() }
}

/// Returns whether an entry of this name is in force.
pub(crate) fn is_in_force(means: &[SandboxMeans], name: &str) -> bool {
    means.iter().any(|entry| entry.name == name && entry.in_force)
}
