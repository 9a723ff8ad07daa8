//! Limits of the kernel, and the giving up of privileges.

use nightshift_protocol::machine::SandboxMeans;
use rlimit::Resource;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

use super::plan::{JailPlan, Work};
use super::supervise::{in_force, not_in_force};

/// Most open files of a process.
const OPEN_FILES: u64 = 256;

/// Processes of the jail itself that count beside those of the program.
const OWN_PROCESSES: u64 = 3;

/// Address space that a runner may map beyond its memory limit, in bytes: libraries, stacks and what an allocator
/// reserves without touching. Resident memory is what the parent watches; this is the backstop.
const ADDRESS_SPACE_SLACK: u64 = 1 << 30;

/// Threads that a driver may start.
const DRIVER_THREADS: u64 = 64;

/// Size of the nameless files of a driver, in bytes.
const DRIVER_FILE_BYTES: u64 = 1 << 30;

/// Address space of this process in bytes, 0 when it cannot be told.
pub(super) fn address_space_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').next().and_then(|field| field.parse::<u64>().ok()))
        .unwrap_or(0);
    pages.saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(4096))
}

/// Puts the limits of the plan in force.
pub(super) fn apply(
    plan: &JailPlan,
    base_bytes: u64,
    own_users: bool,
    means: &mut Vec<SandboxMeans>,
) -> Result<(), String> {
    let limits = &plan.limits;
    let address_space = match &plan.work {
        Work::Command { .. } | Work::Probe(_) => limits.memory_bytes,
        Work::Hosted(hosted) => limits
            .memory_bytes
            .saturating_add(base_bytes)
            .saturating_add(hosted.shared_bytes)
            .saturating_add(ADDRESS_SPACE_SLACK),
    };
    let mut wanted = vec![(Resource::CORE, 0), (Resource::CPU, limits.cpu_s), (Resource::NOFILE, OPEN_FILES)];
    let mut detail = "core, processor time, open files".to_owned();
    let mut processes = limits.processes.saturating_add(OWN_PROCESSES);
    if plan.shows_machine() {
        // A driver reserves address space for all memory of its devices and of the machine, and keeps memory in files
        // that have no name. Resident memory is what the parent watches.
        wanted.push((Resource::FSIZE, limits.file_bytes.max(DRIVER_FILE_BYTES)));
        processes = processes.saturating_add(DRIVER_THREADS);
        detail.push_str(", file size");
    } else {
        wanted.push((Resource::FSIZE, limits.file_bytes));
        wanted.push((Resource::AS, address_space));
        detail.push_str(", file size, address space");
    }
    // Elsewhere the number counts every process of the user on this machine, which is none of this jail's business.
    if own_users {
        wanted.push((Resource::NPROC, processes));
        detail.push_str(", processes");
    }
    for (resource, most) in wanted {
        // An inherited limit may be lower already, and cannot be raised.
        let hard = resource.get_hard().unwrap_or(u64::MAX);
        let soft = most.min(hard);
        // At the hard limit of processor time the kernel kills without saying why; a second earlier it says so.
        let hard = if resource == Resource::CPU { soft.saturating_add(1).min(hard) } else { soft };
        resource.set(soft, hard).map_err(|error| format!("setting a limit of the process: {error}"))?;
    }
    means.push(in_force("rlimits", &detail));
    Ok(())
}

/// Gives up all capabilities and the way to gain any.
pub(super) fn drop_privileges(means: &mut Vec<SandboxMeans>) -> Result<(), String> {
    let none = CapabilitySet::empty();
    match set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }) {
        Ok(()) => means.push(in_force("no_capabilities", "all dropped")),
        Err(error) => means.push(not_in_force("no_capabilities", &error.to_string())),
    }
    set_no_new_privs(true).map_err(|error| format!("giving up new privileges: {error}"))?;
    means.push(in_force("no_new_privileges", "set"));
    Ok(())
}
