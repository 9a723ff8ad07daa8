//! The kernel's limits of each process.

use nightshift_protocol::machine::SandboxMeans;
use rlimit::Resource;

use crate::limits::{DRIVER_THREADS, SANDBOX_PROCESSES};
use crate::plan::{JailPlan, Work};
use crate::report::in_force;

/// Most open files of a process.
const OPEN_FILES: u64 = 256;

/// Address space of a hosted process beyond its memory limit in bytes, for libraries, stacks and what an allocator reserves.
/// The worker watches resident memory; this limit is the backstop.
const ADDRESS_SPACE_SLACK: u64 = 1 << 30;

/// Size of the anonymous files of a driver in bytes.
const DRIVER_FILE_BYTES: u64 = 1 << 30;

/// Returns the address space of this process in bytes, 0 when it cannot be read.
pub(crate) fn address_space_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').next().and_then(|field| field.parse::<u64>().ok()))
        .unwrap_or(0);
    pages.saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(4096))
}

/// Puts the limits of a plan in force for this process and its descendants.
///
/// `base_bytes` is the address space that this binary takes by itself. The number of processes is limited in a user
/// namespace only: elsewhere the kernel counts all processes of the user.
pub(crate) fn apply(
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
    let mut detail = "core, processor time, open files, file size".to_owned();
    let mut processes = limits.processes.saturating_add(SANDBOX_PROCESSES);
    if plan.shows_kernel_files() {
        // A driver reserves address space for all memory of its GPUs and of the machine, and keeps memory in anonymous
        // files.
        wanted.push((Resource::FSIZE, limits.file_bytes.max(DRIVER_FILE_BYTES)));
        processes = processes.saturating_add(DRIVER_THREADS);
    } else {
        wanted.push((Resource::FSIZE, limits.file_bytes));
        wanted.push((Resource::AS, address_space));
        detail.push_str(", address space");
    }
    if own_users {
        wanted.push((Resource::NPROC, processes));
        detail.push_str(", processes");
    }
    for (resource, most) in wanted {
        // An inherited limit may be lower already and cannot be raised.
        let hard = resource.get_hard().unwrap_or(u64::MAX);
        let soft = most.min(hard);
        // At the hard limit of processor time the kernel kills without a reason. One second earlier it sends SIGXCPU.
        let hard = if resource == Resource::CPU { soft.saturating_add(1).min(hard) } else { soft };
        resource.set(soft, hard).map_err(|error| format!("setting a limit of the process: {error}"))?;
    }
    means.push(in_force("rlimits", &detail));
    Ok(())
}
