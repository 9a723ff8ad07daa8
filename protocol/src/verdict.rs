//! The verdict on an attempt: five separate answers, findings, and how a process ended.

use serde::{Deserialize, Serialize};

/// An answer with a third value: not being able to tell is neither yes nor no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Yes.
    Pass,
    /// No.
    Fail,
    /// It was not examined, or the evidence does not decide it.
    #[default]
    Inconclusive,
}

/// The five answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verdict {
    /// Was exactly this source built?
    pub compiled: Answer,
    /// Right values, shape, dtype, finite, on unseen inputs?
    pub numerically_correct: Answer,
    /// Were the rules of the contract kept?
    pub contract_compliant: Answer,
    /// Are the lower bounds of the speedup's intervals, of the measurement and of its confirmation, above 1?
    pub fast: Answer,
    /// Share of the program's time in code that was built from the candidate's source, 0 to 1; none when unknown.
    pub custom_kernel_time_share: Option<f64>,
}

/// Codes of violations that no honest program has by mistake. Every other violation is a defect: it counts for nothing and
/// accuses no one.
pub const DECEPTION_CODES: [&str; 3] = [
    // Right in its first timed calls, and wrong in all later ones.
    "late_skipping",
    // Embeds code that was compiled elsewhere.
    "prebuilt_code",
    // Computes while its calls are not timed; found twice, the second time on a quiet device.
    "work_outside_call",
];

/// Returns whether findings show that a program deceives.
#[must_use]
pub fn shows_deception(findings: &[Finding]) -> bool {
    let deceives =
        |finding: &Finding| finding.severity == Severity::Violation && DECEPTION_CODES.contains(&finding.code.as_str());
    findings.iter().any(deceives)
}

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Suspicious.
    Warning,
    /// Breaks the contract: the attempt cannot be compliant.
    Violation,
}

/// One observation about compliance, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// Stable code, for example `input_modified`, `forbidden_call`.
    pub code: String,
    /// How grave it is.
    pub severity: Severity,
    /// What was seen, in one sentence.
    pub message: String,
    /// Line in the candidate's source, from 1, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl Finding {
    /// Returns code, message and line in one line of text.
    #[must_use]
    pub fn line(&self) -> String {
        let line = self.line.map_or_else(String::new, |line| format!(" (line {line})"));
        format!("{}: {}{line}", self.code, self.message)
    }
}

/// Returns whether a finding breaks the contract.
#[must_use]
pub fn has_violation(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Violation)
}

/// How a sandboxed process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ProcessEnd {
    /// It did its work.
    Finished,
    /// It ended by itself with a status, without finishing its work.
    Exited {
        /// Exit status.
        status: i32,
    },
    /// A signal killed it: the program crashed.
    Crashed {
        /// Signal number.
        signal: i32,
        /// Its name, for example `SIGSEGV`.
        signal_name: String,
    },
    /// It was killed because a call or the whole took too long.
    TimedOut {
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// It was killed, or died, at its memory limit.
    MemoryExceeded {
        /// The limit in bytes.
        limit_bytes: u64,
        /// The largest resident size that was seen, in bytes.
        peak_bytes: u64,
    },
    /// It wrote more output than allowed.
    OutputExceeded {
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// It broke the rules of the runner's protocol.
    ProtocolBroken {
        /// What was wrong.
        message: String,
    },
    /// The library could not be loaded, or an entry point is missing.
    LoadFailed {
        /// What the loader said.
        message: String,
    },
    /// An entry point of the candidate returned an error.
    CallFailed {
        /// The entry point, `ns_init` or `ns_run`.
        entry_point: String,
        /// What it returned.
        status: i32,
    },
    /// The device's driver reported an error: the program broke its context, or asked for what the device has not.
    DeviceFault {
        /// The driver's name of the error, for example `CUDA_ERROR_ILLEGAL_ADDRESS`.
        error: String,
        /// What was being done when it was reported.
        during: String,
    },
}

impl ProcessEnd {
    /// Stable code of this end, for error fingerprints and tables.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Exited { .. } => "exited",
            Self::Crashed { .. } => "crashed",
            Self::TimedOut { .. } => "timed_out",
            Self::MemoryExceeded { .. } => "memory_exceeded",
            Self::OutputExceeded { .. } => "output_exceeded",
            Self::ProtocolBroken { .. } => "protocol_broken",
            Self::LoadFailed { .. } => "load_failed",
            Self::CallFailed { .. } => "call_failed",
            Self::DeviceFault { .. } => "device_fault",
        }
    }

    /// One sentence for people and for the Coder.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Finished => "finished".to_owned(),
            Self::Exited { status } => format!("the process ended by itself with status {status}"),
            Self::Crashed { signal, signal_name } => {
                format!("the program crashed with {signal_name} (signal {signal})")
            }
            Self::TimedOut { limit_ms } => format!("the program was still running after {limit_ms} ms and was killed"),
            Self::MemoryExceeded { limit_bytes, peak_bytes } => format!(
                "the program needed more memory than its limit of {} MiB (peak {} MiB)",
                limit_bytes / (1 << 20),
                peak_bytes / (1 << 20)
            ),
            Self::OutputExceeded { limit_bytes } => format!("the program printed more than {limit_bytes} bytes"),
            Self::ProtocolBroken { message } => format!("the program interfered with its runner: {message}"),
            Self::LoadFailed { message } => format!("the program could not be loaded: {message}"),
            Self::CallFailed { entry_point, status } => format!("`{entry_point}` returned the error status {status}"),
            Self::DeviceFault { error, during } => format!("the GPU reported {error} ({during})"),
        }
    }
}

/// The worst element of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorstElement {
    /// Output tensor.
    pub tensor: String,
    /// Its index, outermost first.
    pub index: Vec<u64>,
    /// What the candidate gave; none when it is not finite.
    pub candidate: Option<f64>,
    /// The fp64 truth.
    pub truth: f64,
    /// `|candidate - truth| / (atol + rtol * |truth|)`: right when at most 1; none when not finite.
    pub normalized_error: Option<f64>,
}

/// One checked call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckCase {
    /// Shape: `default` or the variant's name.
    pub shape: String,
    /// What was drawn: `declared`, `scaled_up`, `scaled_down`, `repeat`, `same_pointers`, ...
    pub inputs: String,
    /// Whether every element of every output was within tolerance.
    pub passed: bool,
    /// Elements outside the tolerance.
    pub wrong_elements: u64,
    /// All compared elements.
    pub elements: u64,
    /// The worst element.
    pub worst: Option<WorstElement>,
    /// The reference's own largest normalized error on the same inputs.
    pub reference_normalized_error: f64,
    /// The largest normalized error of `worst` that passes, at most 1; none where the call is not compared with the
    /// truth, and in older reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_error: Option<f64>,
}

impl CheckCase {
    /// Share of the allowed error that the worst element uses: above 1 where it is wrong. None where it is not finite or the limit
    /// was not recorded.
    #[must_use]
    pub fn used_error(&self) -> Option<f64> {
        let error = self.worst.as_ref()?.normalized_error?;
        self.allowed_error.filter(|allowed| *allowed > 0.0).map(|allowed| error / allowed)
    }

    /// Returns whether the task's tolerance was widened for this case, as the reference itself comes close to it or misses it. Errors of
    /// the program count in the widened tolerance, that of the reference in the task's.
    #[must_use]
    pub fn is_widened(&self) -> bool {
        self.reference_normalized_error * ROOM_BESIDE_REFERENCE > 1.0
    }
}

/// A program may be so many times as far from the truth as the reference is, whatever the tolerance says: sums that cancel leave
/// little of the digits that both had.
pub const ROOM_BESIDE_REFERENCE: f64 = 4.0;

/// Bounds of the error histogram, as powers of ten of the normalized error: below 1e-6, ..., below 1, below 10, above.
pub const ERROR_HISTOGRAM_BOUNDS: [f64; 8] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];
