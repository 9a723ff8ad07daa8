//! Timing samples of candidate and baseline, interleaved, and what follows from them.

use serde::{Deserialize, Serialize};

use crate::machine::{MachineFacts, SandboxReport};
use crate::task::PrecisionPolicy;
use crate::verdict::Answer;

/// An estimate with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Interval {
    /// Half the width, relative to the estimate.
    #[must_use]
    pub fn relative_half_width(&self) -> f64 {
        if self.estimate.abs() > f64::MIN_POSITIVE {
            (self.high - self.low) / 2.0 / self.estimate
        } else {
            f64::INFINITY
        }
    }

    /// Divides this ratio by another one that was measured independently: where both are speedups over the same program, the
    /// result is the speedup of one over the other. Its interval is derived: on each side, the distances of both intervals on a
    /// logarithmic scale are added as the sides of a right triangle are (MOVER; Donner and Zou, 2012).
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        let estimate = self.estimate / other.estimate;
        let apart = |one: f64, two: f64| (one / two).ln();
        let below = apart(self.estimate, self.low).hypot(apart(other.high, other.estimate));
        let above = apart(self.high, self.estimate).hypot(apart(other.estimate, other.low));
        Self { estimate, low: estimate * (-below).exp(), high: estimate * above.exp() }
    }
}

/// One interleaved measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Measurement {
    /// Baseline time by candidate time, with its interval: the geometric mean over pairs of processes of the median ratio.
    pub speedup: Interval,
    /// The speedup that each pair of processes showed. Empty in measurements from before there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub process_pair_speedups: Vec<f64>,
    /// How precise the program had to be.
    #[serde(default, skip_serializing_if = "PrecisionPolicy::is_default")]
    pub precision: PrecisionPolicy,
    /// Confidence level of the interval, for example 0.95.
    pub confidence: f64,
    /// Median time of one baseline call in nanoseconds.
    pub baseline_median_ns: f64,
    /// Median time of one candidate call in nanoseconds.
    pub candidate_median_ns: f64,
    /// Coefficient of variation of the baseline's samples.
    pub baseline_cv: f64,
    /// Coefficient of variation of the candidate's samples.
    pub candidate_cv: f64,
    /// Baseline samples in nanoseconds, in the order taken; sample `i` has the same inputs as the candidate's.
    pub baseline_samples_ns: Vec<u64>,
    /// Candidate samples in nanoseconds.
    pub candidate_samples_ns: Vec<u64>,
    /// Median over the candidate's calls of (time seen by the parent) / (time claimed by the runner).
    pub outside_to_inside_time: f64,
    /// Floating-point operations per second of the candidate, when the task says its FLOPs.
    pub achieved_flops_per_s: Option<f64>,
    /// Compulsory bytes per second of the candidate, when the task says its bytes.
    pub achieved_bytes_per_s: Option<f64>,
    /// Whether the wanted precision was reached within the limits.
    pub precise: bool,
    /// The baseline: what it is and how it was built.
    pub baseline: String,
    /// Isolation that was in force.
    pub sandbox: SandboxReport,
    /// The machine.
    pub machine: MachineFacts,
    /// What only a measurement on a device tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Box<DeviceMeasurement>>,
    /// Which timed calls were verified. None in measurements from before it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Where the time of the step went, in the order of its parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cost: Vec<CostPart>,
}

impl Measurement {
    /// Is the program faster than the baseline? Yes when the whole interval lies above 1, no when it lies at or below 1; else the
    /// evidence does not decide it.
    #[must_use]
    pub fn is_fast(&self) -> Answer {
        match self.speedup {
            speedup if speedup.low > 1.0 => Answer::Pass,
            speedup if speedup.high <= 1.0 => Answer::Fail,
            _ => Answer::Inconclusive,
        }
    }
}

/// Which timed calls of a candidate were verified.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verification {
    /// Timed calls.
    pub timed_calls: u64,
    /// Timed calls whose outputs were compared with the baseline's to the same inputs. A program that is wrong in a share `f` of
    /// its timed calls is found with a probability of at least `1 - (1 - f)^n`, where `n` is this number.
    pub verified_calls: u64,
    /// Calls after the timed ones, of which all outputs were compared, too.
    #[serde(default)]
    pub later_calls: u64,
    /// Share of each output that was compared.
    pub compared_share: f64,
}

/// The time that one part of a step took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CostPart {
    /// Name, for example `contexts`, `samples`.
    pub name: String,
    /// Wall time in milliseconds.
    pub ms: f64,
}

/// What only a measurement on a device tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceMeasurement {
    /// How long nothing else was to run on the device, in milliseconds.
    pub exclusive_ms: f64,
    /// Calls of one sample, in a row, each on inputs and outputs of its own that were in no cache when the sample began; its
    /// time is that of one of them. None in measurements from before there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_sample: Option<u32>,
    /// Times of one call by itself, where a sample has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lone: Option<TimePair>,
    /// Times of one call between the device's events, as the programs' own processes tell: evidence only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_time: Option<TimePair>,
    /// Cores of the host on which nothing else of the worker ran meanwhile. None in measurements from before there were such cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_cores: Option<u32>,
    /// No program that does the work can be faster than this on this device, in nanoseconds, when the task says how much
    /// work it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ns: Option<f64>,
    /// Counted samples during which something else computed on the physical core of the host that the programs ran on, as another virtual
    /// machine does: programs that are bound by launches take longer then, both alike.
    #[serde(default)]
    pub shared_core_samples: u32,
    /// Samples that did not count: the device changed while they were taken, or they were taken again with nothing beside them.
    pub rejected_samples: u32,
    /// Why they did not, each reason once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected_because: Vec<String>,
    /// The device when the samples began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<DeviceConditions>,
}

/// Times of both programs in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimePair {
    /// The baseline.
    pub baseline_ns: f64,
    /// The candidate.
    pub candidate_ns: f64,
}

/// A device while it was measured on. What its driver does not tell is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceConditions {
    /// Clock of the multiprocessors in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power in watts.
    pub power_w: Option<u32>,
}

/// What a build told about the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompilerReport {
    /// Loops that the compiler vectorized: line, and vector width in bytes when known.
    pub vectorized_loops: Vec<LoopNote>,
    /// Loops that it could not vectorize, with the reason.
    pub missed_loops: Vec<LoopNote>,
    /// Instructions in the program's own functions.
    pub instructions: u64,
    /// Of these, instructions on vector registers wider than 16 bytes.
    pub wide_vector_instructions: u64,
    /// Of these, fused multiply-adds.
    pub fma_instructions: u64,
    /// Calls of the scalar mathematics library (`expf`, `tanhf`, ...), by name.
    pub scalar_math_calls: Vec<String>,
    /// Size of the library in bytes.
    pub library_bytes: u64,
    /// The inner loop that does most of the arithmetic, by the machine code alone: the time may go elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_loop: Option<InnerLoop>,
}

/// A loop in the machine code of a program for processors that holds no other loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InnerLoop {
    /// The function that it belongs to.
    pub function: String,
    /// Its instructions.
    pub instructions: u64,
    /// Of these, floating-point arithmetic.
    pub arithmetic: u64,
    /// Of these, reads of memory.
    pub loads: u64,
    /// Of these, writes to memory.
    pub stores: u64,
    /// Of these, rearrangements of vectors.
    pub shuffles: u64,
    /// Of these, accesses to the stack, such as to values that did not fit into registers.
    pub stack_accesses: u64,
    /// Its first instructions, one a line.
    pub assembly: Vec<String>,
}

/// One note of the compiler about a loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoopNote {
    /// Line in the source, from 1.
    pub line: u32,
    /// What the compiler said.
    pub message: String,
}

/// One message of the compiler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CompilerMessage {
    /// File as the compiler named it, without folders.
    pub file: String,
    /// Line, from 1; 0 when the compiler gave none.
    pub line: u32,
    /// Column, from 1; 0 when the compiler gave none.
    pub column: u32,
    /// `error`, `warning` or `note`.
    pub severity: String,
    /// The message.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Standard normal numbers from a fixed seed.
    fn normals() -> impl FnMut() -> f64 {
        let mut state = 1_u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(state >> 32).unwrap_or(0)) / f64::from(u32::MAX)
        };
        // The sum of twelve uniform numbers is close to a normal one.
        move || (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    #[test]
    fn a_derived_interval_holds_the_true_ratio_as_often_as_its_parts_hold_theirs() {
        let mut normal = normals();
        for (of_one, of_other) in [(0.01, 0.01), (0.002, 0.05), (0.05, 0.002), (0.1, 0.1)] {
            let mut measured = |truth: f64, deviation: f64| {
                let estimate = truth * (deviation * normal()).exp();
                let factor = (1.96 * deviation).exp();
                Interval { estimate, low: estimate / factor, high: estimate * factor }
            };
            let mut held = 0_u32;
            for _ in 0..10_000 {
                let derived = measured(3.0, of_one).over(measured(2.0, of_other));
                held += u32::from(derived.low <= 1.5 && 1.5 <= derived.high);
            }
            let share = f64::from(held) / 10_000.0;
            assert!((share - 0.95).abs() < 0.01, "{share} with errors of {of_one} and {of_other}");
        }
    }

    #[test]
    fn a_ratio_over_an_exact_one_keeps_its_interval() {
        let one = Interval { estimate: 3.0, low: 2.7, high: 3.2 };
        let over = one.over(Interval { estimate: 1.0, low: 1.0, high: 1.0 });
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(over.estimate, 3.0) && close(over.low, 2.7) && close(over.high, 3.2), "{over:?}");
    }
}
