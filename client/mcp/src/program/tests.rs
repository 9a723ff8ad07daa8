//! What the summary of an attempt says.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::json;

use super::*;

#[test]
fn a_speedup_over_baselines_of_another_device_is_unknown() {
    let machine = |processor: &str| {
        json!({"host": "", "os": "", "processor": processor, "cores": 1, "features": [], "memory_bytes": 0,
            "sandbox": {"means": [], "isolates_files": true, "isolates_network": true}})
    };
    let measured = |speedup: f64| -> Measurement {
        serde_json::from_value(json!({
            "speedup": {"estimate": speedup, "low": speedup, "high": speedup}, "confidence": 0.95,
            "baseline_median_ns": 2.0, "candidate_median_ns": 1.0, "baseline_cv": 0.0, "candidate_cv": 0.0,
            "baseline_samples_ns": [], "candidate_samples_ns": [], "outside_to_inside_time": 1.0, "precise": true,
            "baseline": "", "sandbox": {"means": [], "isolates_files": true, "isolates_network": true},
            "machine": machine("one"),
        }))
        .unwrap()
    };
    let attempt = Attempt {
        outcome: AttemptOutcome::CorrectFaster,
        measurement: Some(measured(3.0)),
        ..Attempt::new(1, 1, 1, nightshift_protocol::attempt::Stage::Draft)
    };
    let over_fastest = |processor: &str| {
        let hash = "0".repeat(64);
        let prepared: PreparedTask = serde_json::from_value(json!({
            "reference": build(), "reference_library": hash, "truth_library": hash, "baseline_median_ns": 2.0,
            "reference_normalized_error": 0.0, "warnings": [], "machine": machine(processor),
            "baselines": [{"name": "cuda_graph", "measurement": measured(2.0)}],
        }))
        .unwrap();
        let summary = Program::of_attempt(&attempt, Some(&prepared)).summary();
        assert_eq!(summary.fastest_baseline.as_deref(), Some("CUDA graph"));
        summary.speedup_over_fastest.map(|over| over.estimate)
    };
    assert_eq!((over_fastest("one"), over_fastest("other")), (Some(1.5), None));
}

fn build() -> Value {
    json!({"library": null, "end": {"kind": "exited", "status": 0}, "log": "0".repeat(64), "build_key": "", "cached": false,
        "toolchain": {"program": "", "path": "", "version": "", "flags": [], "fingerprint": ""}, "duration_ms": 1,
        "messages": [], "sandbox": {"means": [], "isolates_files": true, "isolates_network": true},
        "report": {"vectorized_loops": [], "missed_loops": [], "instructions": 1, "wide_vector_instructions": 0,
            "fma_instructions": 0, "scalar_math_calls": [], "library_bytes": 8}})
}
