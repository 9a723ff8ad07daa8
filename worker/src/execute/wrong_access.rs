//! Finds the kernel that used a wrong address: the driver reports that one did, and neither which nor where.

use std::path::Path;

use nightshift_evaluator::check::smallest_first;
use nightshift_evaluator::lock::DeviceMode;
use nightshift_profilers::{self as profilers, Checks};
use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::profile::SanitizerTool;
use nightshift_protocol::task::{ConcreteShapes, TaskBundle};
use nightshift_protocol::verdict::{Finding, ProcessEnd, Severity};
use nightshift_toolchain::build::Role;

use super::devices::StepDevice;
use super::step::Step;

/// Parts of the names of the driver's errors and of the CUDA runtime's messages.
const WRONG_ACCESSES: [&str; 6] = [
    "ILLEGAL_ADDRESS",
    "illegal memory access",
    "MISALIGNED_ADDRESS",
    "misaligned address",
    "LAUNCH_FAILED",
    "unspecified launch failure",
];

impl Step<'_> {
    /// Repeats a call of a program that ended because of a wrong address, under the memory checker. Returns what that found, which names
    /// the kernel; nothing where the tool is missing or finds nothing, and for `PyTorch`, which the tool is not used for.
    pub(super) fn wrong_access(
        &self,
        task: &TaskBundle,
        library: &Path,
        device: &StepDevice<'_>,
        report: &CheckReport,
    ) -> Vec<Finding> {
        if Role::Candidate.is_python(&task.spec) || !is_wrong_access(report) {
            return Vec::new();
        }
        let shapes = smallest_first(&task.spec).unwrap_or_default();
        let checks = Checks { thorough: false, without: &[SanitizerTool::Racecheck], shared_memory_call_ns: None };
        for shapes in shapes_in_question(shapes, report) {
            let found = self.replayed(task, library, device, &shapes, DeviceMode::Tool, |profilers, replay| {
                profilers::sanitize(profilers, replay, &checks)
            });
            match found {
                Ok(found) if !found.findings.is_empty() => return found.findings.into_iter().map(as_reason).collect(),
                Ok(_) => {}
                Err(failure) => {
                    tracing::debug!(error = %failure, "a wrong access could not be looked into");
                    return Vec::new();
                }
            }
        }
        Vec::new()
    }
}

/// The program is known to have failed: what the tool found says why, and breaks no further rule.
fn as_reason(finding: Finding) -> Finding {
    Finding { severity: finding.severity.min(Severity::Warning), ..finding }
}

fn is_wrong_access(report: &CheckReport) -> bool {
    let said = match &report.end {
        ProcessEnd::DeviceFault { error, .. } => error.as_str(),
        ProcessEnd::CallFailed { .. } => report.printed.as_str(),
        _ => return false,
    };
    WRONG_ACCESSES.iter().any(|sign| said.contains(sign))
}

/// Returns the shapes at which the program may have failed, of the check's: the one of the last case, and the one
/// after it, whose first call may have been the last.
fn shapes_in_question(shapes: Vec<ConcreteShapes>, report: &CheckReport) -> Vec<ConcreteShapes> {
    let last = report.cases.last();
    let at = last.and_then(|case| shapes.iter().position(|shapes| shapes.name == case.shape)).unwrap_or(0);
    shapes.into_iter().skip(at).take(if last.is_some() { 2 } else { 1 }).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use nightshift_protocol::task::TaskSpec;

    use super::*;

    fn report(end: &ProcessEnd, printed: &str, shape: Option<&str>) -> CheckReport {
        let case = |shape| {
            serde_json::json!({
                "shape": shape, "inputs": "declared", "passed": true, "wrong_elements": 0, "elements": 4, "worst": null,
                "reference_normalized_error": 0.0,
            })
        };
        let cases: Vec<_> = shape.into_iter().map(case).collect();
        serde_json::from_value(serde_json::json!({
            "end": end, "cases": cases, "error_histogram": [], "deterministic": null, "findings": [], "printed": printed,
        }))
        .unwrap()
    }

    #[test]
    fn a_wrong_address_is_looked_into_and_no_other_failure() {
        let fault = |error: &str| ProcessEnd::DeviceFault { error: error.to_owned(), during: "a call".to_owned() };
        let failed = ProcessEnd::CallFailed { entry_point: "forward".to_owned(), status: 1 };
        assert!(is_wrong_access(&report(&fault("CUDA_ERROR_ILLEGAL_ADDRESS"), "", None)));
        let said = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered";
        assert!(is_wrong_access(&report(&failed, said, None)));
        assert!(!is_wrong_access(&report(&failed, "ValueError: no such layer", None)));
        assert!(!is_wrong_access(&report(&fault("CUDA_ERROR_OUT_OF_MEMORY"), "", None)));
        assert!(!is_wrong_access(&report(&ProcessEnd::Finished, said, None)));
    }

    #[test]
    fn the_call_is_repeated_at_the_shape_of_the_last_case_or_the_next_one() {
        let spec: TaskSpec = serde_json::from_value(serde_json::json!({
            "schema": 1, "name": "copy", "title": "Copy", "description": "y = x", "target": "cuda", "reference": "reference.cu",
            "dims": {"n": 64}, "inputs": [{"name": "x", "dtype": "f32", "shape": ["n"]}],
            "outputs": [{"name": "y", "dtype": "f32", "shape": ["n"]}], "tolerance": {"atol": 1e-4, "rtol": 1e-4},
            "variants": [{"name": "odd", "dims": {"n": 7}}, {"name": "large", "dims": {"n": 640}}],
        }))
        .unwrap();
        let names = |shape| -> Vec<String> {
            let shapes = shapes_in_question(smallest_first(&spec).unwrap(), &report(&ProcessEnd::Finished, "", shape));
            shapes.into_iter().map(|shapes| shapes.name).collect()
        };
        assert_eq!(names(None), ["odd"]);
        assert_eq!(names(Some("odd")), ["odd", "default"]);
        assert_eq!(names(Some("large")), ["large"]);
    }

    #[test]
    fn what_is_found_is_the_reason_of_a_failure_and_no_further_one() {
        let finding = |severity| Finding { code: "memcheck".to_owned(), severity, message: String::new(), line: None };
        assert_eq!(as_reason(finding(Severity::Violation)).severity, Severity::Warning);
    }
}
