//! What came out of the timed calls themselves, judged.

use nightshift_protocol::task::{ConcreteShapes, TaskSpec, Tolerance};
use nightshift_protocol::verdict::Finding;

use super::witness::Witness;
use super::{Side, violation};
use crate::compare::count_wrong;
use crate::inputs::{SecretSeeds, TensorData};
use crate::runner::{Call, Enter, Session, note};

/// Two programs within tolerance of the truth are within twice the tolerance of each other.
const MUTUAL_TOLERANCE: f64 = 2.0;

/// Judges timed calls, and keeps what it finds.
pub(super) struct Judge<'a> {
    witness: Witness<'a>,
    tolerance: Tolerance,
    pub(super) findings: Vec<Finding>,
}

impl<'a> Judge<'a> {
    /// With a session of the reference in double precision.
    pub(super) fn new(truth: Session, spec: &'a TaskSpec, shapes: &'a ConcreteShapes) -> Self {
        Self { witness: Witness::new(truth, spec, shapes), tolerance: mutual(spec.tolerance), findings: Vec::new() }
    }

    /// Hands over the weights. `enter` takes a place on the device.
    pub(super) fn init(&mut self, params: &[TensorData], enter: Enter<'_, '_>) -> Result<(), Side> {
        self.witness.init(params, enter).map_err(Side::Baseline)
    }

    /// Notes the rules that a call broke.
    pub(super) fn note_breaches(&mut self, call: &Call) {
        for breach in &call.breaches {
            note(&mut self.findings, breach.finding());
        }
    }

    /// Looks at a timed call of each program on the same inputs. Gives how many things are wrong with the candidate's
    /// results. `enter` takes a place on the device.
    pub(super) fn look(
        &mut self,
        seeds: &mut SecretSeeds,
        inputs: &[TensorData],
        (candidate, baseline): (&Call, &Call),
        enter: Enter<'_, '_>,
    ) -> Result<usize, Side> {
        self.note_breaches(candidate);
        let mut faults = 0;
        let wrong = count_wrong(&candidate.outputs, &baseline.outputs, &self.tolerance);
        if wrong > 0 {
            faults += 1;
            note(&mut self.findings, wrong_elements(wrong));
        }
        let imprecise = self.witness.look(seeds, inputs, (candidate, baseline), enter).map_err(Side::Baseline)?;
        if let Some(finding) = imprecise {
            faults += 1;
            note(&mut self.findings, finding);
        }
        Ok(faults)
    }

    /// What it found, and the process of the reference in double precision.
    pub(super) fn into_parts(self) -> (Vec<Finding>, Session) {
        (self.findings, self.witness.into_session())
    }
}

/// A timed call gave so many wrong elements.
pub(super) fn wrong_elements(wrong: u64) -> Finding {
    violation("timed_output_wrong", format!("a timed call gave {wrong} wrong elements"))
}

/// What two programs within this tolerance of the truth are within of each other.
pub(super) fn mutual(tolerance: Tolerance) -> Tolerance {
    Tolerance {
        atol: tolerance.atol * MUTUAL_TOLERANCE,
        rtol: tolerance.rtol * MUTUAL_TOLERANCE,
        reference_error_factor: tolerance.reference_error_factor,
    }
}
