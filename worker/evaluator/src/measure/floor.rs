//! No program can be faster than the device.

use nightshift_protocol::device_peaks::DevicePeaks;
use nightshift_protocol::machine::GpuFacts;
use nightshift_protocol::step::StepOutput;
use nightshift_protocol::task::{ConcreteTensor, TaskSpec};
use nightshift_protocol::verdict::Finding;

use crate::breach::{note, violation, warning};

/// Margin below the floor: peaks are figures of the vendor, and clocks have errors.
const BELOW_FLOOR: f64 = 0.9;

/// Returns the least time of one call at the default shape on this device, in nanoseconds, when the task says how much work it
/// is: its operations by the rate of the tensor cores, which are the fastest, or its bytes by the rate of the memory. What
/// fits into the cache may stay there when a call ends.
fn floor_ns(gpu: &GpuFacts, spec: &TaskSpec) -> Option<f64> {
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

/// Returns the least time in which this device writes the outputs of one call at the default shape, in nanoseconds. Every element of
/// them is compared with the reference's, so no algorithm does without. None if the reference itself is faster: its results are views of
/// inputs, which are copied outside of the time.
fn outputs_floor_ns(gpu: &GpuFacts, spec: &TaskSpec, reference_ns: f64) -> Option<f64> {
    let output_bytes: u64 = spec.default_shapes().ok()?.outputs.iter().map(|output| written_bytes(output, spec)).sum();
    let moved = output_bytes.saturating_sub(gpu.l2_bytes?);
    let rate = DevicePeaks::of(gpu).bytes_per_s.filter(|rate| rate.is_finite() && *rate > 0.0)?;
    #[expect(clippy::cast_precision_loss, reason = "sizes of tensors are far below 2^53 bytes")]
    let moved = moved as f64;
    Some(moved / rate * 1e9).filter(|floor_ns| *floor_ns > 0.0 && !is_below(reference_ns, *floor_ns))
}

/// Returns how many bytes a program writes at least for an output. A model may write less than the contract hands over, as for a mask,
/// which is widened by a copy outside of its time.
fn written_bytes(output: &ConcreteTensor, spec: &TaskSpec) -> u64 {
    let own = spec.torch.as_ref().and_then(|torch| torch.types.get(&output.name)).map(String::as_str);
    match own {
        Some("bool" | "int8" | "uint8") => output.elements(),
        Some("int16") => output.elements().saturating_mul(2),
        _ => output.size_bytes(),
    }
}

/// Records the floor, and adds a finding when a candidate is below it. The work of an imported model is counted from its operators, and a
/// program may find a way that needs less: then the finding is a warning, unless its time is too short for its outputs alone.
pub fn add_floor(output: &mut StepOutput, gpu: &GpuFacts, spec: &TaskSpec) {
    let StepOutput::Measured { measurement, findings } = output else { return };
    let floor_ns = floor_ns(gpu, spec);
    if let (Some(device), Some(floor_ns)) = (&mut measurement.device, floor_ns) {
        device.floor_ns = Some(floor_ns);
    }
    let (call_ns, reference_ns) = (measurement.candidate_median_ns, measurement.baseline_median_ns);
    let outputs_floor_ns = outputs_floor_ns(gpu, spec, reference_ns);
    if let Some(finding) = below_floor(call_ns, floor_ns, outputs_floor_ns, spec.torch.is_some()) {
        note(findings, finding);
    }
}

fn is_below(call_ns: f64, floor_ns: f64) -> bool {
    call_ns < floor_ns * BELOW_FLOOR
}

fn below_floor(
    call_ns: f64,
    floor_ns: Option<f64>,
    outputs_floor_ns: Option<f64>,
    is_imported: bool,
) -> Option<Finding> {
    let is_below = |floor_ns: &f64| is_below(call_ns, *floor_ns);
    if let Some(floor_ns) = outputs_floor_ns.filter(is_below) {
        let message = format!(
            "a call took {:.2} microseconds, and this device needs {:.2} to write the outputs alone: they were computed or copied \
             outside of the time",
            call_ns / 1e3,
            floor_ns / 1e3
        );
        return Some(violation("faster_than_roofline", message));
    }
    let floor_ns = floor_ns.filter(is_below)?;
    let message = format!(
        "a call took {:.2} microseconds, and this device needs {:.2} for the work that the task says: the work was not done, or the \
         task counts work that it does not need",
        call_ns / 1e3,
        floor_ns / 1e3
    );
    let finding = if is_imported { warning } else { violation };
    Some(finding("faster_than_roofline", message))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::collections::BTreeMap;

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
        let severity = |call_ns: f64, outputs_ns: Option<f64>, is_imported: bool| {
            below_floor(call_ns, Some(1000.0), outputs_ns, is_imported).map(|finding| finding.severity)
        };
        assert_eq!((severity(1000.0, None, false), severity(800.0, None, false)), (None, Some(Severity::Violation)));
        assert_eq!(severity(800.0, None, true), Some(Severity::Warning));
        assert_eq!(severity(800.0, Some(500.0), true), Some(Severity::Warning), "there is a way that needs less");
        assert_eq!(severity(400.0, Some(500.0), true), Some(Severity::Violation), "and none without outputs");
    }

    #[test]
    fn no_program_writes_its_outputs_faster_than_the_device_does() {
        let with_outputs = |elements: u64| {
            let mut spec = spec(None, None);
            let output = serde_json::json!({ "name": "y", "dtype": "f32", "shape": [elements] });
            spec.outputs = vec![serde_json::from_value(output).unwrap()];
            outputs_floor_ns(&h200(), &spec, f64::INFINITY)
        };
        let gibibyte = with_outputs(1 << 28).unwrap();
        assert!((2.0e5..2.3e5).contains(&gibibyte), "{gibibyte}");
        assert_eq!(with_outputs(1 << 20), None, "what stays in the cache may be written at any rate");
    }

    #[test]
    fn a_mask_is_written_in_bytes() {
        let floor_of = |own: Option<&str>| {
            let types: BTreeMap<&str, &str> = own.iter().map(|own| ("y", *own)).collect();
            let mut spec = spec(None, None);
            spec.torch = Some(serde_json::from_value(serde_json::json!({ "types": types })).unwrap());
            let output = serde_json::json!({ "name": "y", "dtype": "i32", "shape": [1 << 28] });
            spec.outputs = vec![serde_json::from_value(output).unwrap()];
            outputs_floor_ns(&h200(), &spec, f64::INFINITY).unwrap()
        };
        let contract = floor_of(None);
        assert!((floor_of(Some("int64")) - contract).abs() < 1.0);
        assert!(floor_of(Some("int16")) < contract / 2.0 && floor_of(Some("bool")) < contract / 4.0);
    }

    #[test]
    fn no_program_is_asked_to_write_what_the_reference_does_not() {
        let mut spec = spec(None, None);
        let output = serde_json::json!({ "name": "y", "dtype": "f32", "shape": [1 << 28] });
        spec.outputs = vec![serde_json::from_value(output).unwrap()];
        let floor_ns = outputs_floor_ns(&h200(), &spec, f64::INFINITY).unwrap();
        assert_eq!(outputs_floor_ns(&h200(), &spec, floor_ns * 2.0), Some(floor_ns));
        assert_eq!(outputs_floor_ns(&h200(), &spec, floor_ns / 50.0), None, "a result may be a view of an input");
    }

    #[test]
    fn what_fits_into_the_cache_need_not_be_moved() {
        assert_eq!(floor_ns(&h200(), &spec(None, Some(1e6))), None);
    }
}
