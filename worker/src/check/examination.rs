//! One program at one shape: what is asked of it, and what its answers say.

use std::sync::RwLockReadGuard;
use std::time::{Duration, Instant};

use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, TaskSpec};
use nightshift_protocol::verdict::{CheckCase, Finding, Severity};

use super::oracle::{Expected, Oracle, OracleError};
use super::same_bits;
use crate::compare::compare;
use crate::inputs::{InputKind, SecretSeeds, TensorData, generate, generate_all};
use crate::process::side_by_side;
use crate::runner::{Call, Grounds, Session, SessionError, note};

/// Calls of a shape that are made even when the first is wrong: they tell stale results from wrong ones.
const CASES_BEFORE_STOPPING: usize = 3;

/// Most tensors that are changed one at a time.
pub(crate) const MAX_PERTURBED_TENSORS: usize = 16;

/// A reference's error below this counts as this: luck may not tighten the limit for everybody else.
const SMALLEST_REFERENCE_ERROR: f64 = 1e-4;

/// Changes of the declared inputs that are tried, with the names of their cases.
const SCALED_KINDS: [(InputKind, &str); 3] = [
    (InputKind::ScaledUp, "scaled_up"),
    (InputKind::ScaledDown, "scaled_down"),
    (InputKind::SignsFlipped, "signs_flipped"),
];

/// Why an examination ends early.
pub(super) enum Stop {
    /// It is wrong at this shape: others say no more.
    Wrong,
    Candidate(SessionError),
    Failure(StepFailure),
}

impl From<SessionError> for Stop {
    fn from(error: SessionError) -> Self {
        Self::Candidate(error)
    }
}

impl From<StepFailure> for Stop {
    fn from(failure: StepFailure) -> Self {
        Self::Failure(failure)
    }
}

impl From<OracleError> for Stop {
    fn from(error: OracleError) -> Self {
        Self::Failure(error.into())
    }
}

/// One program at one shape.
pub(super) struct Examination<'a> {
    pub(super) grounds: &'a Grounds<'a>,
    pub(super) spec: &'a TaskSpec,
    pub(super) shapes: &'a ConcreteShapes,
    pub(super) candidate: &'a mut Session,
    pub(super) oracle: &'a mut Oracle,
    pub(super) seeds: &'a mut SecretSeeds,
    pub(super) report: &'a mut CheckReport,
    /// Time spent waiting for a place on the device.
    pub(super) waited: &'a mut Duration,
}

/// A finished case.
struct Seen {
    expected: Expected,
    outputs: Vec<TensorData>,
}

impl<'a> Examination<'a> {
    pub(super) fn run(&mut self, perturb: bool) -> Result<(), Stop> {
        let first_case = self.report.cases.len();
        let params = generate_all(&self.shapes.params, self.seeds.draw(), InputKind::Declared);
        self.init(&params)?;

        let inputs = generate_all(&self.shapes.inputs, self.seeds.draw(), InputKind::Declared);
        let Some(first) = self.case("declared", &inputs)? else {
            let message = "the reference gives values that are not finite for its declared inputs";
            return Err(StepFailure::fatal("task.reference_not_finite", message).into());
        };
        if let Some(again) = self.case("repeat", &inputs)? {
            self.compare_bits(&first, &again);
        }
        let others = generate_all(&self.shapes.inputs, self.seeds.draw(), InputKind::Declared);
        if let Some(second) = self.case("same_pointers", &others)?
            && unchanged(&first, &second)
        {
            self.violation("stale_output", "new contents at the same addresses gave the results of the old ones");
        }
        if self.failed_since(first_case, CASES_BEFORE_STOPPING) {
            return Ok(());
        }
        for (kind, name) in SCALED_KINDS {
            let inputs = generate_all(&self.shapes.inputs, self.seeds.draw(), kind);
            self.case(name, &inputs)?;
            if self.failed_since(first_case, CASES_BEFORE_STOPPING) {
                return Ok(());
            }
        }
        if perturb {
            self.perturb_inputs(&inputs, &first)?;
            self.perturb_params(&params, &inputs, &first)?;
        }
        Ok(())
    }

    fn failed_since(&self, first_case: usize, at_least: usize) -> bool {
        let cases = self.report.cases.get(first_case..).unwrap_or_default();
        cases.len() >= at_least && cases.iter().any(|case| !case.passed)
    }

    /// Waits for a place on the device.
    fn turn(&mut self) -> Option<RwLockReadGuard<'a, ()>> {
        let (asked, grounds) = (Instant::now(), self.grounds);
        let turn = grounds.beside_others();
        *self.waited += asked.elapsed();
        turn
    }

    /// Hands the weights to everybody.
    fn init(&mut self, params: &[TensorData]) -> Result<(), Stop> {
        let _turn = self.turn();
        self.candidate.init(params)?;
        Ok(self.oracle.init(params)?)
    }

    /// One checked call; nothing when the reference itself has no finite answer for these inputs.
    fn case(&mut self, name: &str, inputs: &[TensorData]) -> Result<Option<Seen>, Stop> {
        let turn = self.turn();
        if self.grounds.device.is_none() {
            let Some(expected) = self.oracle.answer(inputs)? else { return Ok(None) };
            let call = self.candidate.run(inputs)?;
            return Ok(Some(self.judge(name, expected, call)));
        }
        // On a device most of the time goes into copies, to and fro, which do not disturb each other. What the program makes
        // of inputs that ask nothing does not count, but it has to survive them.
        let (oracle, candidate) = (&mut *self.oracle, &mut *self.candidate);
        let (call, answered) = side_by_side(|| candidate.run(inputs), || oracle.ask(inputs));
        drop(turn);
        let (answered, call) = (answered?, call?);
        Ok(answered.map(|answered| {
            let expected = self.oracle.judge(answered);
            self.judge(name, expected, call)
        }))
    }

    fn judge(&mut self, name: &str, expected: Expected, call: Call) -> Seen {
        for breach in &call.breaches {
            note(&mut self.report.findings, breach.finding());
        }
        let found = compare(&call.outputs, &expected.truth, &self.shapes.outputs, &self.spec.tolerance);
        for (total, count) in self.report.error_histogram.iter_mut().zip(found.histogram) {
            *total += count;
        }
        let allowed = allowed_error(expected.reference_error, self.spec.tolerance.reference_error_factor);
        let within = found.wrong_elements == 0 && found.largest_error <= 1.0;
        if within && found.largest_error > allowed {
            let message = format!(
                "the error is within tolerance, but {:.0} times the reference's own: more than the {} times that are \
                 allowed",
                found.largest_error / expected.reference_error,
                self.spec.tolerance.reference_error_factor
            );
            note(&mut self.report.findings, warning("less_precise_than_reference", message));
        }
        self.report.cases.push(CheckCase {
            shape: self.shapes.name.clone(),
            inputs: name.to_owned(),
            passed: within && found.largest_error <= allowed,
            wrong_elements: found.wrong_elements,
            elements: found.elements,
            worst: found.worst,
            reference_normalized_error: expected.reference_error,
        });
        Seen { expected, outputs: call.outputs }
    }

    fn compare_bits(&mut self, first: &Seen, again: &Seen) {
        let same = same_bits(&first.outputs, &again.outputs);
        self.report.deterministic = Some(same && self.report.deterministic.unwrap_or(true));
        if !same {
            let message = "two calls with equal inputs gave different bits: it may read memory that it did not write";
            note(&mut self.report.findings, warning("not_deterministic", message.to_owned()));
        }
    }

    fn perturb_inputs(&mut self, inputs: &[TensorData], first: &Seen) -> Result<(), Stop> {
        for (position, tensor) in self.shapes.inputs.iter().enumerate().take(MAX_PERTURBED_TENSORS) {
            let mut changed = inputs.to_vec();
            if let Some(slot) = changed.get_mut(position) {
                *slot = generate(tensor, self.seeds.draw(), InputKind::Declared);
            }
            if let Some(seen) = self.case(&format!("changed:{}", tensor.name), &changed)?
                && unchanged(first, &seen)
            {
                let message = format!("the result does not depend on the input `{}`, as it has to", tensor.name);
                self.violation("ignores_input", &message);
            }
        }
        Ok(())
    }

    fn perturb_params(&mut self, params: &[TensorData], inputs: &[TensorData], first: &Seen) -> Result<(), Stop> {
        for (position, tensor) in self.shapes.params.iter().enumerate().take(MAX_PERTURBED_TENSORS) {
            let mut changed = params.to_vec();
            if let Some(slot) = changed.get_mut(position) {
                *slot = generate(tensor, self.seeds.draw(), InputKind::Declared);
            }
            self.init(&changed)?;
            if let Some(seen) = self.case(&format!("changed:{}", tensor.name), inputs)?
                && unchanged(first, &seen)
            {
                let message = format!("the result does not depend on the weights `{}`, as it has to", tensor.name);
                self.violation("ignores_parameter", &message);
            }
        }
        Ok(())
    }

    fn violation(&mut self, code: &str, message: &str) {
        let finding =
            Finding { code: code.to_owned(), severity: Severity::Violation, message: message.to_owned(), line: None };
        note(&mut self.report.findings, finding);
    }
}

fn warning(code: &str, message: String) -> Finding {
    Finding { code: code.to_owned(), severity: Severity::Warning, message, line: None }
}

/// Whether the program's results stayed the same, bit by bit, although the truth changed.
fn unchanged(before: &Seen, after: &Seen) -> bool {
    same_bits(&before.outputs, &after.outputs) && !same_bits(&before.expected.truth, &after.expected.truth)
}

/// The largest normalized error that passes, given the reference's own. An exact reference says nothing about what
/// single precision can do, so the tolerance alone decides then.
pub(crate) fn allowed_error(reference_error: f64, factor: f64) -> f64 {
    if reference_error <= 0.0 {
        return 1.0;
    }
    (reference_error.max(SMALLEST_REFERENCE_ERROR) * factor).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_is_the_limit_when_the_reference_is_exact_or_coarse() {
        assert!((allowed_error(0.0, 64.0) - 1.0).abs() < 1e-12);
        assert!((allowed_error(0.5, 64.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_precise_reference_asks_for_precision_but_not_for_luck() {
        assert!((allowed_error(0.001, 64.0) - 0.064).abs() < 1e-12);
        assert!((allowed_error(1e-9, 64.0) - 0.0064).abs() < 1e-12);
    }
}
