//! The judgement of one program, without a run around it.

use serde::Serialize;

use crate::attempt::failure_reason;
use crate::attempt_outcome::AttemptOutcome;
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
