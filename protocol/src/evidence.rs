//! How complete the evidence for a verdict is. What was not examined says nothing about the program: it is missing, and that is
//! told beside the verdict.

use serde::{Deserialize, Serialize};

use crate::attempt::Attempt;
use crate::attempt_outcome::AttemptOutcome;
use crate::measurement::Measurement;
use crate::profile::{SanitizeReport, SanitizerOutcome};
use crate::reports::CheckReport;

/// Timed calls that a confirmation verifies at least, so that a program that is wrong in a fraction `f` of its timed calls is found
/// with a probability of at least `1 - (1 - f)^16`.
pub const VERIFIED_CALLS: u64 = 16;

/// The same where a call moves more than a gibibyte.
pub const VERIFIED_LARGE_CALLS: u64 = 4;

/// How complete the evidence for a verdict is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Evidence {
    /// Whether everything was examined that the verdict rests on.
    pub complete: bool,
    /// What was not, each in one sentence.
    pub missing: Vec<String>,
}

impl Evidence {
    /// Judges the evidence of a verdict. A failure shows itself: only a program that counts as right needs all of it.
    #[must_use]
    pub fn of(
        outcome: AttemptOutcome,
        check: Option<&CheckReport>,
        timed: Option<&Measurement>,
        sanitize: Option<&SanitizeReport>,
    ) -> Self {
        let mut missing = Vec::new();
        if outcome == AttemptOutcome::Pending {
            missing.push("it is not judged yet".to_owned());
        } else if outcome.is_correct() {
            if check.is_none_or(|check| check.cases.is_empty()) {
                missing.push("its results were not checked".to_owned());
            }
            match timed {
                None => missing.push("it was not timed".to_owned()),
                Some(measurement) => of_measurement(measurement, &mut missing),
            }
            for run in sanitize.iter().flat_map(|report| &report.tools) {
                if run.outcome == SanitizerOutcome::Unavailable {
                    let reason = run.reason.as_deref().unwrap_or("no reason was given");
                    missing.push(format!("{} did not look at it: {reason}", run.tool.as_str()));
                }
            }
        }
        Self { complete: missing.is_empty(), missing }
    }
}

fn of_measurement(measurement: &Measurement, missing: &mut Vec<String>) {
    if !measurement.precise {
        missing.push("its time varied more than a precise measurement allows".to_owned());
    }
    if !measurement.sandbox.is_sufficient() {
        missing.push("it was not kept from files and the network while it ran".to_owned());
    }
    match measurement.verification {
        None => missing.push("which of its timed calls were verified is not known".to_owned()),
        Some(verified) if verified.verified_calls < verified.timed_calls => missing.push(format!(
            "{} of its {} timed calls were not verified",
            verified.timed_calls - verified.verified_calls,
            verified.timed_calls
        )),
        Some(verified) if verified.verified_calls < VERIFIED_LARGE_CALLS => {
            missing.push(format!("only {} of its calls were timed and verified", verified.verified_calls));
        }
        Some(_) => {}
    }
}

impl Attempt {
    /// How complete the evidence for its verdict is.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let timed = self.confirmation.as_ref().or(self.measurement.as_ref());
        let mut evidence = Evidence::of(self.outcome, self.check.as_ref(), timed, self.sanitize.as_ref());
        if self.outcome == AttemptOutcome::CorrectFaster && self.confirmation.is_none() {
            evidence.missing.push("no second measurement confirmed its speedup".to_owned());
            evidence.complete = false;
        }
        evidence
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use super::*;
    use crate::measurement::Verification;

    pub(crate) fn measured(precise: bool, verified_calls: u64) -> Measurement {
        let machine = serde_json::json!({
            "host": "h", "os": "o", "processor": "p", "cores": 1, "features": [], "memory_bytes": 1, "cpp_toolchain": null,
            "last_level_cache_bytes": null, "cuda_toolchain": null, "gpus": [],
            "sandbox": {"means": [], "isolates_files": true, "isolates_network": true},
        });
        let measurement = serde_json::json!({
            "speedup": {"estimate": 2.0, "low": 1.9, "high": 2.1}, "confidence": 0.95, "baseline_median_ns": 2.0,
            "candidate_median_ns": 1.0, "baseline_cv": 0.0, "candidate_cv": 0.0, "baseline_samples_ns": [],
            "candidate_samples_ns": [], "outside_to_inside_time": 1.0, "achieved_flops_per_s": null,
            "achieved_bytes_per_s": null, "precise": precise, "baseline": "the reference", "machine": machine,
            "sandbox": {"means": [], "isolates_files": true, "isolates_network": true},
        });
        let mut measurement: Measurement = serde_json::from_value(measurement).unwrap();
        measurement.verification =
            Some(Verification { timed_calls: 20, verified_calls, later_calls: 0, compared_share: 1.0 });
        measurement
    }

    pub(crate) fn checked() -> CheckReport {
        let case = serde_json::json!({
            "shape": "default", "inputs": "declared", "passed": true, "wrong_elements": 0, "elements": 1, "worst": null,
            "reference_normalized_error": 0.1,
        });
        let report = serde_json::json!({
            "end": {"kind": "finished"}, "cases": [case], "error_histogram": [], "deterministic": true, "findings": [], "printed": "",
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn a_right_program_needs_all_of_it() {
        let faster = AttemptOutcome::CorrectFaster;
        assert!(Evidence::of(faster, Some(&checked()), Some(&measured(true, 20)), None).complete);
        for (measurement, word) in [(measured(false, 20), "varied"), (measured(true, 3), "not verified")] {
            let evidence = Evidence::of(faster, Some(&checked()), Some(&measurement), None);
            assert!(!evidence.complete && evidence.missing[0].contains(word), "{evidence:?}");
        }
        assert_eq!(Evidence::of(faster, None, None, None).missing.len(), 2);
    }

    #[test]
    fn a_failure_shows_itself() {
        assert!(Evidence::of(AttemptOutcome::CompileFailed, None, None, None).complete);
        assert!(!Evidence::of(AttemptOutcome::Pending, None, None, None).complete);
    }
}
