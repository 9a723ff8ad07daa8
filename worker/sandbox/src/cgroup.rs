//! Control groups (version 2): limits, memory figures and the freezing of a whole jail.
//!
//! A worker creates one child of its own cgroup for each jail, where the machine lets it. The kernel then limits and counts
//! all processes of the program together, and stops or kills all of them at once.

mod hierarchy;
mod member;

use std::sync::OnceLock;

pub(crate) use self::hierarchy::{Hierarchy, kill};
pub(crate) use self::member::{CgroupLimits, FullMemory, JailCgroup};

/// Returns the hierarchy in which this process creates cgroups, or the reason why it cannot. The first call removes what
/// killed workers left behind.
pub(crate) fn hierarchy() -> Result<&'static Hierarchy, &'static str> {
    static HIERARCHY: OnceLock<Result<Hierarchy, String>> = OnceLock::new();
    HIERARCHY.get_or_init(Hierarchy::open).as_ref().map_err(String::as_str)
}
