//! Some timed calls are judged as strictly as those of a check. A program can tell from many things, if only from the
//! number of calls, that it is being timed: rougher results must not pay then.

use nightshift_protocol::task::{ConcreteShapes, TaskSpec, Tolerance};
use nightshift_protocol::verdict::Finding;

use super::violation;
use crate::check::{allowed_error, reachable};
use crate::compare::largest_error;
use crate::inputs::{SecretSeeds, TensorData};
use crate::runner::{Call, Enter, Session, SessionError};

/// Of so many timed calls in a row one is judged, which one is secret.
const ONE_OF: u64 = 4;

/// Most calls that are judged: each needs the truth, which takes its time.
const MAX_JUDGED: usize = 8;

/// Other inputs may be a little harder than those of the check.
const SLACK: f64 = 2.0;

/// The truth at hand.
pub(super) struct Witness<'a> {
    truth: Session,
    spec: &'a TaskSpec,
    shapes: &'a ConcreteShapes,
    calls: u64,
    due: u64,
    judged: usize,
}

impl<'a> Witness<'a> {
    /// With a session of the reference in double precision.
    pub(super) fn new(truth: Session, spec: &'a TaskSpec, shapes: &'a ConcreteShapes) -> Self {
        Self { truth, spec, shapes, calls: 0, due: 0, judged: 0 }
    }

    /// Its process.
    pub(super) fn into_session(self) -> Session {
        self.truth
    }

    /// Hands over the weights.
    pub(super) fn init(&mut self, params: &[TensorData], enter: Enter<'_, '_>) -> Result<(), SessionError> {
        self.truth.init_within(params, enter)
    }

    /// Looks at one timed call, if it is its turn. `enter` takes a place on the device.
    pub(super) fn look(
        &mut self,
        seeds: &mut SecretSeeds,
        inputs: &[TensorData],
        (candidate, baseline): (&Call, &Call),
        enter: Enter<'_, '_>,
    ) -> Result<Option<Finding>, SessionError> {
        let place = self.calls % ONE_OF;
        if place == 0 {
            self.due = seeds.draw() % ONE_OF;
        }
        self.calls += 1;
        if place != self.due || self.judged >= MAX_JUDGED {
            return Ok(None);
        }
        self.judged += 1;
        let truth = self.truth.run_known(inputs, enter)?.outputs;
        if !truth.iter().all(TensorData::is_finite) {
            return Ok(None);
        }
        let tolerance = &self.spec.tolerance;
        let reference_error = largest_error(&baseline.outputs, &truth, &self.shapes.outputs, tolerance);
        Ok(too_far(&candidate.outputs, &truth, reference_error, self.shapes, tolerance))
    }
}

/// Whether the results of a timed call are farther from the truth than those of a check may be, given the reference's own
/// error.
pub(super) fn too_far(
    outputs: &[TensorData],
    truth: &[TensorData],
    reference_error: f64,
    shapes: &ConcreteShapes,
    tolerance: &Tolerance,
) -> Option<Finding> {
    let (tolerance, widened) = reachable(tolerance, reference_error);
    let error = largest_error(outputs, truth, &shapes.outputs, &tolerance);
    let allowed = allowed_error(reference_error / widened, tolerance.reference_error_factor) * SLACK;
    (error > allowed).then(|| {
        let message = format!(
            "a timed call was {error:.3} times the tolerance away from the truth, where a check allows {:.3}",
            allowed / SLACK
        );
        violation("timed_output_imprecise", message)
    })
}
