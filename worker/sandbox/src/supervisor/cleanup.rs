//! Kills and reaps everything that a jail started.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group, wait};

use crate::procfs;

/// Rounds of killing the remaining processes of a jail without a process namespace.
const KILL_ROUNDS: usize = 64;

/// Attempts to remove a cgroup whose processes were killed. They may still be exiting.
const REMOVE_ATTEMPTS: u32 = 100;

/// Time between two attempts.
const REMOVE_INTERVAL: Duration = Duration::from_millis(2);

/// Kills init, its group, its cgroup and the processes that escaped from the group, and reaps them.
pub(super) fn kill_all(init: Pid, cgroup: Option<&Path>) {
    let _ = kill_process(init, Signal::KILL);
    let _ = kill_process_group(init, Signal::KILL);
    if let Some(cgroup) = cgroup {
        // Where this process has become another user, the worker does it.
        crate::cgroup::kill(cgroup);
    }
    for _ in 0..KILL_ROUNDS {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                // No children are left.
                Err(_) => return,
                Ok(None) => break,
            }
        }
        let this = i32::try_from(std::process::id()).unwrap_or(0);
        for child in procfs::children(this).into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(child, Signal::KILL);
        }
        if wait(WaitOptions::empty()).is_err() {
            return;
        }
    }
}

/// Removes the cgroup of a jail whose processes were killed.
pub(super) fn remove_cgroup(folder: &Path) {
    for _ in 0..REMOVE_ATTEMPTS {
        match std::fs::remove_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::park_timeout(REMOVE_INTERVAL);
            }
            // It is removed, or this process may not remove it, and the worker does.
            _ => return,
        }
    }
}
