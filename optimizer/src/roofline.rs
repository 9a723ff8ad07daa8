//! What no program can be faster than on this machine: its compulsory bytes by the rate of the memory, and its operations
//! by the rate of the fastest arithmetic that there is.

use nightshift_protocol::device_peaks::DevicePeaks;
use nightshift_protocol::gpu_text::significant;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::task::{Target, TaskSpec};

/// How far a target may lie above a limit.
pub(crate) const TARGET_SLACK: f64 = 1.05;
/// A program is near the roofline from this share on: measurements of the device's peaks are no better.
pub(crate) const NEAR_ROOFLINE: f64 = 0.9;

/// A roof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Roof {
    Memory,
    Compute,
}

impl Roof {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
        }
    }
}

/// The least time of a call below a roof.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Floor {
    pub(crate) by: Roof,
    /// Speedup of a program that takes just that time.
    pub(crate) speedup: f64,
    /// What it follows from.
    pub(crate) reason: String,
}

impl Floor {
    /// Whether a target lies above it, by more than peaks are known.
    pub(crate) fn is_passed_by(&self, target: f64) -> bool {
        target > self.speedup * TARGET_SLACK
    }
}

/// Both roofs, as far as they are known.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Roofline {
    floors: Vec<Floor>,
    /// Why a roof limits nothing.
    pub(crate) unknown: Vec<String>,
}

impl Roofline {
    /// Caches are emptied before each measured call, so that no program is faster than its compulsory traffic. Of the
    /// arithmetic the fastest counts, which are the tensor cores of a GPU: whether a program may round so far is for the
    /// tolerance to say. Peaks that were measured come from the profile of the reference, or of an attempt where it has none.
    pub(crate) fn of(spec: &TaskSpec, prepared: &PreparedTask, of_attempt: Option<&Profile>) -> Self {
        let peaks = prepared.machine.gpus.first().map(DevicePeaks::of).unwrap_or_default();
        // A program that is faster than its roof shows that the roof is none.
        let is_passed = |profile: &Profile| profile.has_roof() && profile.roofline_share.is_none();
        let of_attempt = of_attempt.filter(|profile| !is_passed(profile));
        let profile = prepared.profile.as_deref().or(of_attempt);
        let bytes_per_s = peaks.bytes_per_s.or(profile.map(|profile| profile.peak_bytes_per_s));
        let flops_per_s = match spec.target {
            Target::Cuda => peaks.tensor_flops_per_s,
            Target::Cpu => profile.map(|profile| profile.peak_flops_per_s),
        };
        let mut roofline = Self::default();
        let (unit, fastest) = match spec.target {
            Target::Cuda => ("TFLOP/s", " of 16-bit floats on its tensor cores"),
            Target::Cpu => ("TFLOP/s", ""),
        };
        roofline.add(Roof::Memory, spec.bytes, bytes_per_s, prepared, |amount, rate| {
            format!("a call moves at least {amount} bytes, and the memory gives {} GB/s", significant(rate / 1e9))
        });
        roofline.add(Roof::Compute, spec.flops, flops_per_s, prepared, |amount, rate| {
            format!("a call does {amount} operations, at {} {unit}{fastest} at most", significant(rate / 1e12))
        });
        roofline
    }

    /// A roof at this speedup.
    #[cfg(test)]
    pub(super) fn at(by: Roof, speedup: f64) -> Self {
        let reason = format!("by its {}", by.as_str());
        Self { floors: vec![Floor { by, speedup, reason }], unknown: Vec::new() }
    }

    /// The roof that limits: the lower one.
    pub(super) fn limit(&self) -> Option<&Floor> {
        self.floors.iter().min_by(|one, other| one.speedup.total_cmp(&other.speedup))
    }

    /// Both roofs in words, the one that limits first.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut floors: Vec<&Floor> = self.floors.iter().collect();
        floors.sort_by(|one, other| one.speedup.total_cmp(&other.speedup));
        floors
            .into_iter()
            .map(|floor| {
                let speedup = significant(floor.speedup);
                format!(
                    "{}: at most {speedup} times as fast as the reference, since {}",
                    floor.by.as_str(),
                    floor.reason
                )
            })
            .collect()
    }

    fn add(
        &mut self,
        by: Roof,
        amount: Option<f64>,
        rate_per_s: Option<f64>,
        prepared: &PreparedTask,
        say: impl Fn(String, f64) -> String,
    ) {
        let known = |value: Option<f64>| value.filter(|number| number.is_finite() && *number > 0.0);
        let Some(amount) = known(amount) else {
            let key = if by == Roof::Memory { "bytes" } else { "flops" };
            self.unknown.push(format!("{}: the task does not say its `{key}`", by.as_str()));
            return;
        };
        let Some(rate_per_s) = known(rate_per_s) else {
            self.unknown.push(format!("{}: the peak of this machine is not known before a profile", by.as_str()));
            return;
        };
        let speedup = prepared.baseline_median_ns / (amount / rate_per_s * 1e9);
        if speedup.is_finite() && speedup > 0.0 {
            self.floors.push(Floor { by, speedup, reason: say(significant(amount), rate_per_s) });
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(target: &str, flops: Option<f64>, bytes: Option<f64>) -> TaskSpec {
        serde_json::from_value(json!({
            "schema": 1, "name": "t", "title": "t", "description": "t", "target": target, "reference": "r",
            "inputs": [], "outputs": [], "tolerance": {"atol": 0.1, "rtol": 0.1}, "flops": flops, "bytes": bytes,
        }))
        .unwrap()
    }

    /// A reference that takes a millisecond, on an H200 or on a processor with these peaks.
    fn prepared(gpu: bool, peaks: Option<(f64, f64)>) -> PreparedTask {
        let hash = "a".repeat(64);
        let sandbox = json!({"isolates_files": false, "isolates_network": false, "means": []});
        let report = json!({
            "fma_instructions": 0, "instructions": 0, "library_bytes": 0, "missed_loops": [], "scalar_math_calls": [],
            "vectorized_loops": [], "wide_vector_instructions": 0,
        });
        let tool = json!({"program": "c", "path": "c", "version": "c", "flags": [], "fingerprint": hash});
        let gpus: Vec<Value> = gpu
            .then(|| {
                json!({
                    "index": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "compute_capability": "9.0", "memory_bytes": 1,
                    "driver_version": "580", "cuda_driver_version": "13.0", "sm_clock_max_mhz": 1980,
                    "multiprocessors": 132, "memory_bytes_per_s": 4_800_000_000_000_u64,
                })
            })
            .into_iter()
            .collect();
        let profile = peaks.map(|(flops, bytes)| {
            json!({
                "tier": "t", "missing": [], "arithmetic_intensity": null, "peak_flops_per_s": flops,
                "peak_bytes_per_s": bytes, "roofline_share": null, "roofline_bound": "unknown", "compiler": report,
            })
        });
        serde_json::from_value(json!({
            "reference": {
                "toolchain": tool, "library": hash, "log": hash, "messages": [], "report": report, "duration_ms": 1,
                "cached": false, "build_key": "k", "end": {"kind": "finished"}, "sandbox": sandbox,
            },
            "reference_library": hash, "truth_library": hash, "baseline_median_ns": 1e6,
            "reference_normalized_error": 0.1, "warnings": [], "profile": profile,
            "machine": {
                "host": "h", "os": "linux", "processor": "p", "cores": 1, "features": [], "memory_bytes": 1,
                "last_level_cache_bytes": null, "cpp_toolchain": null, "sandbox": sandbox, "gpus": gpus,
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_lower_roof_limits() {
        let prepared = prepared(true, None);
        // 4.8 TB/s and, at 1980 MHz, 1070 TFLOP/s of the tensor cores.
        let memory = Roofline::of(&spec("cuda", Some(1e9), Some(4.8e8)), &prepared, None);
        let floor = memory.limit().unwrap();
        assert!(floor.by == Roof::Memory && (floor.speedup - 10.0).abs() < 1e-9, "{floor:?}");
        let compute = Roofline::of(&spec("cuda", Some(1.07e11), Some(4.8e6)), &prepared, None);
        let floor = compute.limit().unwrap();
        assert!(floor.by == Roof::Compute && (floor.speedup - 10.0).abs() < 0.1, "{floor:?}");
        assert!(floor.reason.contains("tensor cores"), "{}", floor.reason);
        assert_eq!(compute.lines().len(), 2);
        assert!(compute.lines()[0].starts_with("compute: at most"), "{:?}", compute.lines());
    }

    #[test]
    fn what_is_not_known_limits_nothing_and_says_why() {
        let silent = Roofline::of(&spec("cuda", None, None), &prepared(true, None), None);
        assert_eq!(silent.limit(), None);
        assert_eq!(silent.unknown.len(), 2);
        assert!(silent.unknown[1].contains("`flops`"), "{:?}", silent.unknown);
        let unmeasured = Roofline::of(&spec("cpu", Some(1e6), Some(1e6)), &prepared(false, None), None);
        assert_eq!(unmeasured.limit(), None);
        assert!(unmeasured.unknown.iter().all(|line| line.contains("not known")), "{:?}", unmeasured.unknown);
    }

    #[test]
    fn a_processor_has_the_peaks_that_were_measured() {
        let measured = prepared(false, Some((1e10, 1e10)));
        let roofline = Roofline::of(&spec("cpu", Some(5e6), Some(1e6)), &measured, None);
        let floor = roofline.limit().unwrap();
        assert!(floor.by == Roof::Compute && (floor.speedup - 2.0).abs() < 1e-9, "{floor:?}");
        let mut of_attempt = measured.profile.clone().unwrap();
        let without = prepared(false, None);
        let limit = |profile: &Profile| {
            let roofline = Roofline::of(&spec("cpu", Some(5e6), Some(1e6)), &without, Some(profile));
            roofline.limit().map(|floor| floor.by)
        };
        assert_eq!(limit(&of_attempt), Some(Roof::Compute));
        of_attempt.arithmetic_intensity = Some(5.0);
        assert_eq!(limit(&of_attempt), None, "an attempt that is faster than its roof");
        // The peak of a GPU's profile leaves out its tensor cores: it is no roof.
        let on_cuda = Roofline::of(&spec("cuda", Some(5e6), None), &measured, None);
        assert_eq!(on_cuda.limit(), None);
    }
}
