//! Capabilities and the ways to gain them.

use nightshift_protocol::machine::SandboxMeans;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

use crate::report::{in_force, not_in_force};

/// Drops all capabilities of this process, and forbids it and its descendants to gain any by executing a program.
pub(crate) fn drop_all(means: &mut Vec<SandboxMeans>) -> Result<(), String> {
    let none = CapabilitySet::empty();
    match set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }) {
        Ok(()) => means.push(in_force("no_capabilities", "all dropped")),
        Err(error) => means.push(not_in_force("no_capabilities", &error.to_string())),
    }
    set_no_new_privs(true).map_err(|error| format!("setting no_new_privs: {error}"))?;
    means.push(in_force("no_new_privileges", "set"));
    Ok(())
}
