//! The user that programs run as.
//!
//! A worker of an ordinary user runs programs as that user. A worker of root maps them to an unprivileged user, since
//! root's files stay accessible to a program that finds a hole in the other means.

use nightshift_protocol::machine::{SandboxMeans, UNPRIVILEGED_USER};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities};
use serde::{Deserialize, Serialize};

use crate::report::{in_force, not_in_force};

/// The overflow user and group of Linux, which own no files.
const OVERFLOW_ID: u32 = 65534;

/// Capabilities that a worker of root needs: to change the user, to hand folders over, to read results and to send signals.
const NEEDED: [(CapabilitySet, &str); 5] = [
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::CHOWN, "CAP_CHOWN"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
    (CapabilitySet::KILL, "CAP_KILL"),
];

/// A user without privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnprivilegedUser {
    /// User id, as the worker sees it.
    pub uid: u32,
    /// Group id, as the worker sees it.
    pub gid: u32,
}

impl Default for UnprivilegedUser {
    fn default() -> Self {
        Self { uid: OVERFLOW_ID, gid: OVERFLOW_ID }
    }
}

/// Which user the programs of this worker run as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProgramUser {
    /// The worker's own user, who is not root.
    Own {
        /// Its user id.
        uid: u32,
    },
    /// The worker is root and maps programs to this user.
    Mapped(UnprivilegedUser),
    /// The worker is root and cannot map programs to another user.
    Root {
        /// Why not.
        reason: String,
    },
}

impl ProgramUser {
    /// Finds out which user the programs of this process can run as. `wanted` is the user to map them to.
    pub(crate) fn of_this_process(wanted: UnprivilegedUser) -> Self {
        let uid = rustix::process::geteuid();
        if !uid.is_root() {
            return Self::Own { uid: uid.as_raw() };
        }
        match obstacle(wanted) {
            None => Self::Mapped(wanted),
            Some(reason) => Self::Root { reason },
        }
    }

    /// Returns the user that programs are mapped to.
    pub(crate) fn mapped(&self) -> Option<UnprivilegedUser> {
        if let Self::Mapped(user) = self { Some(*user) } else { None }
    }

    /// Returns the entry of this means in a report.
    pub(crate) fn means(&self) -> SandboxMeans {
        match self {
            Self::Own { uid } => in_force(UNPRIVILEGED_USER, &format!("the worker's own user {uid}")),
            Self::Mapped(user) => in_force(UNPRIVILEGED_USER, &format!("user {}, group {}", user.uid, user.gid)),
            Self::Root { reason } => not_in_force(UNPRIVILEGED_USER, reason),
        }
    }
}

/// Returns why programs of this process, which is root, cannot be mapped to the user.
fn obstacle(user: UnprivilegedUser) -> Option<String> {
    if user.uid == 0 || user.gid == 0 {
        return Some("the configured user or group is root".to_owned());
    }
    let held = match capabilities(None) {
        Ok(held) => held.effective,
        Err(error) => return Some(format!("the worker's capabilities cannot be read: {error}")),
    };
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(needed, _)| !held.contains(*needed)).map(|(_, name)| *name).collect();
    if !missing.is_empty() {
        return Some(format!("the worker runs as root without {}", missing.join(", ")));
    }
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    if read("setgroups").trim() == "deny" {
        return Some("the worker's user namespace forbids setgroups".to_owned());
    }
    for (map, id) in [("uid_map", user.uid), ("gid_map", user.gid)] {
        if !maps(&read(map), id) {
            return Some(format!("the worker's user namespace does not map the id {id} (/proc/self/{map})"));
        }
    }
    None
}

/// Returns whether a map of a user namespace contains an inner id. Kernels without user namespaces have no map.
fn maps(map: &str, id: u32) -> bool {
    let contains = |line: &str| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some((first..first.saturating_add(count)).contains(&u64::from(id)))
    };
    map.trim().is_empty() || map.lines().any(|line| contains(line) == Some(true))
}

/// Changes the user of this process, which has one thread, for good.
///
/// The kernel clears the parent-death signal with it: set it again afterwards.
pub(crate) fn become_user(user: UnprivilegedUser) -> Result<(), String> {
    let failed = |call: &str| format!("{call}: {}", std::io::Error::last_os_error());
    // SAFETY: the calls take plain numbers, and an empty list of groups may be null.
    unsafe {
        if libc::setgroups(0, std::ptr::null()) != 0 {
            return Err(failed("setgroups"));
        }
        if libc::setresgid(user.gid, user.gid, user.gid) != 0 {
            return Err(failed("setresgid"));
        }
        if libc::setresuid(user.uid, user.uid, user.uid) != 0 {
            return Err(failed("setresuid"));
        }
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if (uid, gid) != (user.uid, user.gid) {
        return Err(format!("the process runs as user {uid} and group {gid} instead of {} and {}", user.uid, user.gid));
    }
    // The kernel gave the files below /proc/self to root. The process needs its own.
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(|error| format!("PR_SET_DUMPABLE: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_contains_the_ids_of_its_ranges() {
        assert!(maps("         0          0 4294967295\n", OVERFLOW_ID));
        assert!(maps("0 100000 65536", OVERFLOW_ID) && !maps("0 1000 1", OVERFLOW_ID));
        assert!(maps("0 1000 1\n1 100000 65535\n", 65535) && !maps("0 1000 1\n1 100000 65535\n", 65536));
        assert!(maps("", OVERFLOW_ID));
    }

    #[test]
    fn root_is_no_unprivileged_user() {
        assert!(obstacle(UnprivilegedUser { uid: 0, gid: 7 }).is_some());
        assert!(obstacle(UnprivilegedUser { uid: 7, gid: 0 }).is_some());
    }

    #[test]
    fn each_choice_of_a_user_is_reported() {
        let entry = |user: ProgramUser| (user.means().in_force, user.mapped().is_some());
        assert_eq!(entry(ProgramUser::Own { uid: 1000 }), (true, false));
        assert_eq!(entry(ProgramUser::Mapped(UnprivilegedUser::default())), (true, true));
        assert_eq!(entry(ProgramUser::Root { reason: "no capabilities".to_owned() }), (false, false));
    }
}
