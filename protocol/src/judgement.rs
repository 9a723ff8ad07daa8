//! The judgement of one program, without a run around it.

use serde::Serialize;

use crate::attempt::failure_reason;
use crate::attempt_outcome::AttemptOutcome;
use crate::evidence::Evidence;
use crate::measurement::Measurement;
use crate::profile::Profile;
use crate::reports::{BuildReport, CheckReport};
use crate::step::StepFailure;
use crate::verdict::{Finding, ProcessEnd};

/// The verdict on a program, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub outcome: AttemptOutcome,
    /// All observations, in the order of the steps.
    pub findings: Vec<Finding>,
    /// The build.
    pub build: Option<BuildReport>,
    /// The check.
    pub check: Option<CheckReport>,
    /// The measurement.
    pub measurement: Option<Measurement>,
    /// How the program's process ended while it was timed, where it did not survive.
    pub measurement_end: Option<ProcessEnd>,
    /// The profile.
    pub profile: Option<Profile>,
    /// Why there is no profile, where one was asked for. It says nothing about the program.
    pub profile_failure: Option<StepFailure>,
}

impl Judgement {
    /// Returns how complete the evidence for the verdict is. `unexamined` says what the judgement left out of what its task asks
    /// for, each in one sentence.
    #[must_use]
    pub fn evidence(&self, unexamined: &[String]) -> Evidence {
        let mut evidence = Evidence::of(self.outcome, self.check.as_ref(), self.measurement.as_ref(), None);
        if self.outcome.is_correct() {
            evidence.missing.splice(0..0, unexamined.iter().cloned());
            evidence.complete = evidence.missing.is_empty();
        }
        evidence
    }

    /// Returns why the program is not right: the first cause.
    #[must_use]
    pub fn failure_reason(&self) -> Option<String> {
        failure_reason(
            self.outcome,
            &self.findings,
            self.build.as_ref(),
            self.check.as_ref(),
            self.measurement_end.as_ref(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::ArtifactHash;
    use crate::attempt::{Attempt, EarlierVersion, Stage};
    use crate::evidence::tests::{checked, measured};
    use crate::verdict::Answer;

    #[test]
    fn what_a_judgement_leaves_out_is_missing() {
        let judgement = |outcome| Judgement {
            outcome,
            findings: Vec::new(),
            build: None,
            check: Some(checked()),
            measurement: Some(measured(true, 20)),
            measurement_end: None,
            profile: None,
            profile_failure: None,
        };
        let only = ["only the shape `default` was checked, of 3".to_owned()];
        let evidence = judgement(AttemptOutcome::CorrectFaster).evidence(&only);
        assert_eq!((evidence.complete, evidence.missing.as_slice()), (false, only.as_slice()));
        assert!(judgement(AttemptOutcome::CorrectFaster).evidence(&[]).complete);
        assert!(judgement(AttemptOutcome::Incorrect).evidence(&only).complete, "a failure shows itself");
    }

    #[test]
    fn a_version_has_the_verdict_of_its_evidence() {
        let hash = ArtifactHash::of(b"program");
        let attempt = Attempt::new(1, 1, 1, Stage::Draft);
        let verdict = |outcome, check, measurement| {
            let version =
                EarlierVersion { check, measurement, ..EarlierVersion::new(hash.clone(), outcome, Vec::new()) };
            let verdict = version.as_attempt(&attempt).verdict;
            (verdict.numerically_correct, verdict.contract_compliant, verdict.fast)
        };
        let check = checked();
        let measured = measured(true, 20);
        let (pass, fail, unknown) = (Answer::Pass, Answer::Fail, Answer::Inconclusive);
        let pending = AttemptOutcome::Pending;
        assert_eq!(verdict(AttemptOutcome::CorrectFaster, Some(check.clone()), Some(measured)), (pass, pass, pass));
        assert_eq!(verdict(pending, Some(check.clone()), None), (pass, pass, unknown), "it was only checked");
        assert_eq!(verdict(pending, None, None), (unknown, unknown, unknown), "it was only built");
        assert_eq!(verdict(AttemptOutcome::Incorrect, Some(check), None), (fail, unknown, unknown));
    }
}
