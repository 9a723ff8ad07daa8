//! How a process ended: what the kernel reports, and its classification for reports.

use nightshift_protocol::verdict::ProcessEnd;
use serde::{Deserialize, Serialize};

/// Share of the memory limit from which a failed process counts as out of memory.
const NEAR_LIMIT: f64 = 0.8;

/// Messages of failed allocations on standard error.
const ALLOCATION_FAILURES: [&str; 4] =
    ["std::bad_alloc", "out of memory allocating", "virtual memory exhausted", "Cannot allocate memory"];

/// The end of a process as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawEnd {
    /// Exit status; none when a signal ended the process.
    pub status: Option<i32>,
    /// Signal that ended the process.
    pub signal: Option<i32>,
    /// Largest resident size of the process or of one of its reaped children, in bytes.
    pub peak_bytes: u64,
    /// Whether the kernel killed a process because the memory limit of its cgroup was reached.
    #[serde(default)]
    pub out_of_memory: bool,
    /// Whether the kernel killed a process because the memory of the machine was full, and the limit of its cgroup was not reached.
    #[serde(default)]
    pub machine_was_full: bool,
}

impl RawEnd {
    /// Returns whether the machine is to blame for this end: the kernel killed the process to free memory, and the program did not reach
    /// its own limit.
    #[must_use]
    pub fn is_fault_of_machine(&self, end: &ProcessEnd) -> bool {
        self.machine_was_full && matches!(end, ProcessEnd::Crashed { .. } | ProcessEnd::Exited { .. })
    }
}

/// The limits that explain the end of a process.
#[derive(Debug, Clone, Copy)]
pub struct EndLimits {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Processor time in milliseconds.
    pub cpu_ms: u64,
}

/// Classifies the end of a process that the worker did not kill. `peak_bytes` is the memory that counts towards the limit.
#[must_use]
pub fn classify(raw: RawEnd, peak_bytes: u64, limits: EndLimits, stderr: &[u8]) -> ProcessEnd {
    let out_of_memory = raw.out_of_memory || is_out_of_memory(peak_bytes, limits, stderr);
    let Some(signal) = raw.signal else {
        return match raw.status {
            Some(0) => ProcessEnd::Finished,
            Some(_) if out_of_memory => memory_exceeded(peak_bytes, limits),
            Some(status) => ProcessEnd::Exited { status },
            None => ProcessEnd::ProtocolBroken { message: "it ended in an unknown way".to_owned() },
        };
    };
    if signal == libc::SIGXCPU {
        return ProcessEnd::TimedOut { limit_ms: limits.cpu_ms };
    }
    if out_of_memory {
        return memory_exceeded(peak_bytes, limits);
    }
    ProcessEnd::Crashed { signal, signal_name: signal_name(signal).to_owned() }
}

#[expect(clippy::cast_precision_loss, reason = "a share of a size needs no exact bytes")]
fn is_out_of_memory(peak_bytes: u64, limits: EndLimits, stderr: &[u8]) -> bool {
    if peak_bytes as f64 >= limits.memory_bytes as f64 * NEAR_LIMIT {
        return true;
    }
    // An allocation beyond the limit fails at once and leaves the peak low. Only the error message shows it.
    let text = String::from_utf8_lossy(stderr);
    ALLOCATION_FAILURES.iter().any(|message| text.contains(message))
}

fn memory_exceeded(peak_bytes: u64, limits: EndLimits) -> ProcessEnd {
    ProcessEnd::MemoryExceeded { limit_bytes: limits.memory_bytes, peak_bytes }
}

/// Returns the name of a signal.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGVTALRM => "SIGVTALRM",
        libc::SIGPROF => "SIGPROF",
        libc::SIGSYS => "SIGSYS",
        _ => "an uncommon signal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EndLimits = EndLimits { memory_bytes: 1000, cpu_ms: 5000 };

    fn signalled(signal: i32) -> RawEnd {
        RawEnd { status: None, signal: Some(signal), peak_bytes: 0, out_of_memory: false, machine_was_full: false }
    }

    #[test]
    fn a_crash_far_from_the_limit_is_a_crash() {
        let end = classify(signalled(libc::SIGSEGV), 100, LIMITS, b"");
        assert_eq!(end, ProcessEnd::Crashed { signal: 11, signal_name: "SIGSEGV".to_owned() });
    }

    #[test]
    fn a_crash_near_the_memory_limit_is_out_of_memory() {
        let end = classify(signalled(libc::SIGSEGV), 900, LIMITS, b"");
        assert_eq!(end, ProcessEnd::MemoryExceeded { limit_bytes: 1000, peak_bytes: 900 });
    }

    #[test]
    fn a_failed_allocation_is_recognized_by_its_message() {
        let end = classify(signalled(libc::SIGABRT), 10, LIMITS, b"terminate called ... 'std::bad_alloc'");
        assert!(matches!(end, ProcessEnd::MemoryExceeded { .. }));
    }

    #[test]
    fn the_processor_time_limit_is_a_timeout() {
        assert_eq!(classify(signalled(libc::SIGXCPU), 10, LIMITS, b""), ProcessEnd::TimedOut { limit_ms: 5000 });
    }

    #[test]
    fn a_status_distinguishes_success_from_failure() {
        let exited = |status| RawEnd {
            status: Some(status),
            signal: None,
            peak_bytes: 0,
            out_of_memory: false,
            machine_was_full: false,
        };
        assert_eq!(classify(exited(0), 10, LIMITS, b""), ProcessEnd::Finished);
        assert_eq!(classify(exited(3), 10, LIMITS, b""), ProcessEnd::Exited { status: 3 });
    }

    #[test]
    fn a_kill_because_the_machine_was_full_is_no_end_of_the_program() {
        let raw = RawEnd { machine_was_full: true, ..signalled(libc::SIGKILL) };
        let is_fault = |raw: RawEnd, peak_bytes| raw.is_fault_of_machine(&classify(raw, peak_bytes, LIMITS, b""));
        assert!(is_fault(raw, 5));
        assert!(!is_fault(raw, 990), "near its own limit");
        assert!(!is_fault(RawEnd { signal: None, status: Some(0), ..raw }, 5), "it survived");
        assert!(!is_fault(signalled(libc::SIGKILL), 5), "a program may kill itself");
    }

    #[test]
    fn a_kill_at_the_limit_of_the_cgroup_is_out_of_memory() {
        let raw = RawEnd { out_of_memory: true, ..signalled(libc::SIGKILL) };
        assert_eq!(classify(raw, 5, LIMITS, b""), ProcessEnd::MemoryExceeded { limit_bytes: 1000, peak_bytes: 5 });
    }
}
