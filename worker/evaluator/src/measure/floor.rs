//! No program can be faster than the device.

use nightshift_protocol::device_peaks::DevicePeaks;
use nightshift_protocol::machine::GpuFacts;
use nightshift_protocol::step::StepOutput;
use nightshift_protocol::task::TaskSpec;
use nightshift_protocol::verdict::Finding;

use crate::breach::{note, violation, warning};

/// Margin below the floor: peaks are figures of the vendor, and clocks have errors.
const BELOW_FLOOR: f64 = 0.9;

/// Returns the least time of one call at the default shape on this device, in nanoseconds, when the task says how much work it
/// is: its operations by the rate of the tensor cores, which are the fastest, or its bytes by the rate of the memory. What
/// fits into the cache may stay there when a call ends.
#[must_use]
pub fn floor_ns(gpu: &GpuFacts, spec: &TaskSpec) -> Option<f64> {
    let known = |value: Option<f64>| value.filter(|number| number.is_finite() && *number > 0.0);
    let peaks = DevicePeaks::of(gpu);
    let fastest = known(peaks.tensor_flops_per_s).or_else(|| known(peaks.fp32_flops_per_s));
    let computing = known(spec.flops).zip(fastest).map(|(flops, rate)| flops / rate * 1e9);
    #[expect(clippy::cast_precision_loss, reason = "the size of a cache is far below 2^53 bytes")]
    let cached = gpu.l2_bytes.map(|bytes| bytes as f64);
    let moved = known(spec.bytes).zip(cached).map(|(bytes, cached)| (bytes - cached).max(0.0));
    let moving = moved.zip(known(peaks.bytes_per_s)).map(|(bytes, rate)| bytes / rate * 1e9);
    let floor = computing.unwrap_or(0.0).max(moving.unwrap_or(0.0));
    (floor > 0.0).then_some(floor)
}

/// Records the floor, and adds a finding when a candidate is below it. The work of an imported model is counted from its operators, and a
/// program may find a way that needs less: then the finding is a warning.
pub fn add_floor(output: &mut StepOutput, floor_ns: Option<f64>, spec: &TaskSpec) {
    let (StepOutput::Measured { measurement, findings }, Some(floor_ns)) = (output, floor_ns) else { return };
    if let Some(device) = &mut measurement.device {
        device.floor_ns = Some(floor_ns);
    }
    if let Some(finding) = below_floor(measurement.candidate_median_ns, floor_ns, spec) {
        note(findings, finding);
    }
}

fn below_floor(call_ns: f64, floor_ns: f64, spec: &TaskSpec) -> Option<Finding> {
    if call_ns >= floor_ns * BELOW_FLOOR {
        return None;
    }
    let message = format!(
        "a call took {:.2} microseconds, and this device needs {:.2} for the work that the task says: the work was not done, or the \
         task counts work that it does not need",
        call_ns / 1e3,
        floor_ns / 1e3
    );
    let finding = if spec.torch.is_some() { warning } else { violation };
    Some(finding("faster_than_roofline", message))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use nightshift_protocol::verdict::Severity;

    use super::*;

    fn h200() -> GpuFacts {
        serde_json::from_value(serde_json::json!({
            "index": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "compute_capability": "9.0", "memory_bytes": 1,
            "driver_version": "580", "cuda_driver_version": "13.0", "ecc": null, "mig": null,
            "sm_clock_max_mhz": 1980, "memory_clock_max_mhz": 3201, "multiprocessors": 132,
            "l2_bytes": 62_914_560, "memory_bytes_per_s": 4_810_000_000_000_u64,
        }))
        .unwrap()
    }

    fn spec(flops: Option<f64>, bytes: Option<f64>) -> TaskSpec {
        let spec = serde_json::json!({
            "schema": 1, "name": "t", "title": "t", "description": "t", "target": "cuda", "reference": "r.cu",
            "inputs": [], "outputs": [], "tolerance": {"atol": 1.0, "rtol": 1.0}, "flops": flops, "bytes": bytes,
        });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn the_slower_of_computing_and_moving_is_the_floor() {
        assert_eq!(floor_ns(&h200(), &spec(None, None)), None);
        // A product of matrices of 8192: a little more than a millisecond at a thousand teraflops.
        let product = floor_ns(&h200(), &spec(Some(2.0 * 8192_f64.powi(3)), Some(8e8))).unwrap();
        assert!((1.0e6..1.1e6).contains(&product), "{product}");
        // A copy of a gibibyte.
        let copy = floor_ns(&h200(), &spec(Some(1.0), Some(2.0 * 1024_f64.powi(3)))).unwrap();
        assert!((4.2e5..4.5e5).contains(&copy), "{copy}");
    }

    #[test]
    fn the_floor_of_an_imported_model_warns() {
        let own = spec(None, None);
        let imported = TaskSpec {
            torch: Some(serde_json::from_value(serde_json::json!({ "init": "[]" })).unwrap()),
            ..own.clone()
        };
        let severity =
            |call_ns: f64, spec: &TaskSpec| below_floor(call_ns, 1000.0, spec).map(|finding| finding.severity);
        let (slow, fast) = (severity(1000.0, &own), severity(800.0, &own));
        assert_eq!((slow, fast), (None, Some(Severity::Violation)));
        assert_eq!(severity(800.0, &imported), Some(Severity::Warning));
    }

    #[test]
    fn what_fits_into_the_cache_need_not_be_moved() {
        assert_eq!(floor_ns(&h200(), &spec(None, Some(1e6))), None);
    }
}
