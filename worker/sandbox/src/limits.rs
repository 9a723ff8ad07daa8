//! The limits of one sandboxed process and its descendants.

use serde::{Deserialize, Serialize};

/// Processes of the sandbox itself that the kernel counts with those of the program: init, and the program before it starts.
pub(crate) const SANDBOX_PROCESSES: u64 = 3;

/// Threads that a GPU driver may start in addition to those of the program.
pub(crate) const DRIVER_THREADS: u64 = 64;

/// Limits of one jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time in milliseconds. Afterwards the whole jail is killed.
    pub wall_ms: u64,
    /// Processor time of each process in seconds.
    pub cpu_s: u64,
    /// Memory in bytes: the address space of each process, and the resident memory of all processes in a cgroup.
    pub memory_bytes: u64,
    /// Size of each written file in bytes.
    pub file_bytes: u64,
    /// Number of processes and threads. Enforced in a user namespace or a cgroup.
    pub processes: u64,
    /// Captured bytes of standard output and of standard error, each. A larger output ends the command.
    pub output_bytes: usize,
}
