//! From what the kernel says about the end of a process to what people are told.

use nightshift_protocol::verdict::ProcessEnd;
use serde::{Deserialize, Serialize};

/// A process that died with at least this share of its memory limit resident died of it.
const NEAR_LIMIT: f64 = 0.8;

/// Traces of failed allocations in the output of a program that aborted.
const ALLOCATION_FAILURES: [&str; 4] =
    ["std::bad_alloc", "out of memory allocating", "virtual memory exhausted", "Cannot allocate memory"];

/// What the kernel says about the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawEnd {
    /// Exit status, unless a signal killed it.
    pub status: Option<i32>,
    /// Signal that killed it.
    pub signal: Option<i32>,
    /// Largest resident size in bytes, its own or of a process that it waited for.
    pub peak_bytes: u64,
}

/// Limits that explain some ends.
#[derive(Debug, Clone, Copy)]
pub struct EndLimits {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Processor time in milliseconds.
    pub cpu_ms: u64,
}

/// Classifies the end of a process that nobody killed on purpose. `peak_bytes` is what counts towards the limit.
#[must_use]
pub fn classify(raw: RawEnd, peak_bytes: u64, limits: EndLimits, stderr: &[u8]) -> ProcessEnd {
    let Some(signal) = raw.signal else {
        return match raw.status {
            Some(0) => ProcessEnd::Finished,
            Some(_) if died_of_memory(peak_bytes, limits, stderr) => memory_exceeded(peak_bytes, limits),
            Some(status) => ProcessEnd::Exited { status },
            None => ProcessEnd::ProtocolBroken { message: "it ended in an unknown way".to_owned() },
        };
    };
    if signal == libc::SIGXCPU {
        return ProcessEnd::TimedOut { limit_ms: limits.cpu_ms };
    }
    if died_of_memory(peak_bytes, limits, stderr) {
        return memory_exceeded(peak_bytes, limits);
    }
    ProcessEnd::Crashed { signal, signal_name: signal_name(signal).to_owned() }
}

#[expect(clippy::cast_precision_loss, reason = "a share of a size needs no exact bytes")]
fn died_of_memory(peak_bytes: u64, limits: EndLimits, stderr: &[u8]) -> bool {
    if peak_bytes as f64 >= limits.memory_bytes as f64 * NEAR_LIMIT {
        return true;
    }
    // One allocation beyond the limit fails at once, so the peak stays low: the program's own last words tell.
    let text = String::from_utf8_lossy(stderr);
    ALLOCATION_FAILURES.iter().any(|trace| text.contains(trace))
}

fn memory_exceeded(peak_bytes: u64, limits: EndLimits) -> ProcessEnd {
    ProcessEnd::MemoryExceeded { limit_bytes: limits.memory_bytes, peak_bytes }
}

/// The name of a signal.
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
        RawEnd { status: None, signal: Some(signal), peak_bytes: 0 }
    }

    #[test]
    fn a_crash_far_from_the_limit_is_a_crash() {
        let end = classify(signalled(libc::SIGSEGV), 100, LIMITS, b"");
        assert_eq!(end, ProcessEnd::Crashed { signal: 11, signal_name: "SIGSEGV".to_owned() });
    }

    #[test]
    fn a_crash_near_the_memory_limit_died_of_it() {
        let end = classify(signalled(libc::SIGSEGV), 900, LIMITS, b"");
        assert_eq!(end, ProcessEnd::MemoryExceeded { limit_bytes: 1000, peak_bytes: 900 });
    }

    #[test]
    fn a_refused_allocation_is_told_by_the_last_words() {
        let end = classify(signalled(libc::SIGABRT), 10, LIMITS, b"terminate called ... 'std::bad_alloc'");
        assert!(matches!(end, ProcessEnd::MemoryExceeded { .. }));
    }

    #[test]
    fn the_processor_time_limit_is_a_timeout() {
        assert_eq!(classify(signalled(libc::SIGXCPU), 10, LIMITS, b""), ProcessEnd::TimedOut { limit_ms: 5000 });
    }

    #[test]
    fn a_status_tells_success_from_failure() {
        let exited = |status| RawEnd { status: Some(status), signal: None, peak_bytes: 0 };
        assert_eq!(classify(exited(0), 10, LIMITS, b""), ProcessEnd::Finished);
        assert_eq!(classify(exited(3), 10, LIMITS, b""), ProcessEnd::Exited { status: 3 });
    }
}
