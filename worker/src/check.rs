//! Is a program right? Asked on inputs that it has not seen, against the truth in double precision.
//!
//! Smallest shape first, and a shape that fails is the last one: most wrong programs are found out within a few calls.

mod examination;
mod oracle;

use std::path::PathBuf;
use std::time::Duration;

use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, TaskSpec};
use nightshift_protocol::verdict::{ERROR_HISTOGRAM_BOUNDS, ProcessEnd};

use self::examination::Examination;
pub(crate) use self::oracle::{Expected, LaunchedOracle, Oracle, OracleError};
use crate::cost::Cost;
use crate::inputs::{SecretSeeds, TensorData};
use crate::process::{CancelFlag, JailHost};
use crate::runner::{Grounds, Launched, SessionError, SessionOptions};

/// A reference's error below this counts as this: luck may not tighten the limit for everybody else.
const SMALLEST_REFERENCE_ERROR: f64 = 1e-4;

/// The three built programs of a check.
#[derive(Debug, Clone)]
pub struct Libraries {
    /// The program in question.
    pub candidate: PathBuf,
    /// The reference, as it is timed.
    pub reference: PathBuf,
    /// The reference in double precision.
    pub truth: PathBuf,
}

/// Checks a program. That it is wrong, crashes or hangs is a report; a failure is a broken machine or reference.
/// Blocks: call it from a dedicated thread.
pub fn check(
    host: &JailHost,
    spec: &TaskSpec,
    libraries: &Libraries,
    require_sandbox: bool,
    seeds: &mut SecretSeeds,
    cancel: &CancelFlag,
) -> Result<CheckReport, StepFailure> {
    check_on(
        &Grounds { host, device: None, cancel, gate: None, standby: None },
        spec,
        libraries,
        require_sandbox,
        seeds,
    )
}

/// [`check`], on the host or on a device.
pub fn check_on(
    grounds: &Grounds<'_>,
    spec: &TaskSpec,
    libraries: &Libraries,
    require_sandbox: bool,
    seeds: &mut SecretSeeds,
) -> Result<CheckReport, StepFailure> {
    let shapes = smallest_first(spec)?;
    let mut report = CheckReport {
        end: ProcessEnd::Finished,
        cases: Vec::new(),
        error_histogram: vec![0; ERROR_HISTOGRAM_BOUNDS.len() + 1],
        deterministic: None,
        findings: Vec::new(),
        printed: String::new(),
        cost: Vec::new(),
    };
    let mut cost = Cost::start();
    for (group, together) in grounds.together(&shapes).into_iter().enumerate() {
        let options = SessionOptions {
            library: &libraries.candidate,
            shapes: together,
            double: false,
            memory_bytes: spec.limits.memory_bytes,
            call_timeout_ms: spec.limits.call_timeout_ms,
            core: None,
            require_sandbox,
            device: grounds.device,
        };
        let beside = grounds.beside_others();
        cost.part("waiting");
        let candidate = grounds.launch(&options);
        let oracle = Oracle::launch(grounds, spec, together, &libraries.reference, &libraries.truth)?;
        let mut candidate = match candidate.and_then(Launched::wait) {
            Ok(session) => session,
            Err(error) => {
                report.end = error.into_end()?;
                break;
            }
        };
        let mut oracle = oracle.wait()?;
        // What passes is timed next, beside its baseline.
        grounds.expect_programs(2);
        // From here on a place is taken for each call: making inputs and comparing results needs none.
        drop(beside);
        cost.part("processes");
        let mut waited = Duration::ZERO;
        let outcome = together.iter().enumerate().try_for_each(|(number, shapes)| {
            let turn = grounds.beside_others();
            candidate.select(number)?;
            oracle.select(number, shapes)?;
            drop(turn);
            let (candidate, oracle, report, waited) = (&mut candidate, &mut oracle, &mut report, &mut waited);
            let mut examination = Examination { grounds, spec, shapes, candidate, oracle, seeds, report, waited };
            examination.run(group + number == 0)?;
            if report.cases.iter().any(|case| !case.passed) { Err(Stop::Wrong) } else { Ok(()) }
        });
        cost.part("calls");
        cost.move_to("calls", "waiting", waited);
        let printed = candidate.printed();
        if !printed.is_empty() {
            report.printed = printed;
        }
        let beside = grounds.beside_others();
        cost.part("waiting");
        grounds.leave([candidate].into_iter().chain(oracle.into_sessions()));
        drop(beside);
        cost.part("ends");
        match outcome {
            Ok(()) => {}
            Err(Stop::Wrong) => break,
            Err(Stop::Candidate(error)) => {
                report.end = error.into_end()?;
                break;
            }
            Err(Stop::Failure(failure)) => return Err(failure),
        }
    }
    report.cost = cost.parts();
    Ok(report)
}

/// The shapes of a task, the smallest first.
pub(crate) fn smallest_first(spec: &TaskSpec) -> Result<Vec<ConcreteShapes>, StepFailure> {
    let shapes = spec.all_shapes();
    let mut shapes = shapes.map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    shapes.sort_by_key(total_bytes);
    Ok(shapes)
}

fn total_bytes(shapes: &ConcreteShapes) -> u64 {
    shapes.inputs.iter().chain(&shapes.params).chain(&shapes.outputs).map(ConcreteTensor::size_bytes).sum()
}

/// Why an examination ends early.
enum Stop {
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

pub(crate) fn same_bits(left: &[TensorData], right: &[TensorData]) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.same_bits(right))
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
