//! One program at one shape: what it is asked, one question after the other. While one is answered, the answer before it is
//! judged and the inputs after it are made: on a device that takes as long as the answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, TaskSpec, Tolerance};
use nightshift_protocol::verdict::{CheckCase, Finding, Severity};

use super::oracle::{Answered, Expected, Oracle, OracleError};
use super::question::{Base, Material, Paper, Question, name_of};
use super::same_bits;
use crate::compare::{compare, differ_noticeably};
use crate::golden::Recorded;
use crate::inputs::{SecretSeeds, TensorData};
use crate::runner::{Call, Grounds, Session, SessionError, note};
use nightshift_sandbox::process::run_in_parallel;

/// Questions of a shape that are asked even when the first answer is wrong: they tell stale results from wrong ones.
const QUESTIONS_BEFORE_STOPPING: usize = 3;

/// A reference's error below this counts as this: luck may not tighten the limit for everybody else.
const SMALLEST_REFERENCE_ERROR: f64 = 1e-4;

/// A program may be so many times as far from the truth as the reference is, whatever the tolerance says: sums that cancel
/// leave little of the digits that both had.
const ROOM_BESIDE_REFERENCE: f64 = 4.0;

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
    pub(super) questions: Questions<'a>,
    pub(super) report: &'a mut CheckReport,
    /// Time spent waiting for a place on the device.
    pub(super) waited: &'a mut Duration,
}

/// Where the inputs of a program come from.
pub(super) enum Questions<'a> {
    /// From seeds that nobody saw before. With a place for them, questions and answers are kept for further programs.
    Drawn { seeds: &'a mut SecretSeeds, kept: Option<&'a mut Vec<Paper>> },
    /// From those that were kept, as the answers are.
    Known(&'a Paper),
}

/// What everybody said to a question; nothing where the reference itself has no finite answer.
struct Said {
    question: Question,
    answers: Option<(Answered, Call)>,
}

/// A judged answer.
struct Judged {
    case: CheckCase,
    histogram: Vec<u64>,
    less_precise: Option<Finding>,
    call: Call,
    expected: Expected,
}

/// A finished case.
struct Seen {
    truth: Vec<TensorData>,
    outputs: Vec<TensorData>,
}

/// Three things that happen at once.
struct Round {
    said: Option<Result<Said, Stop>>,
    /// Of the question before.
    judged: Option<(Question, Option<Judged>)>,
    /// For the question after.
    made: Material,
}

impl Examination<'_> {
    pub(super) fn run(&mut self, perturb: bool) -> Result<(), Stop> {
        let base = match &mut self.questions {
            Questions::Drawn { seeds, .. } => Base::draw(self.shapes, seeds),
            Questions::Known(paper) => paper.base.clone(),
        };
        let (mut materials, mut answers) = (vec![Material::default()], Vec::new());
        self.init(&base.params)?;
        let first_case = self.report.cases.len();
        let questions = Question::all(self.shapes, perturb);
        let (mut material, mut before, mut first) = (Material::default(), None, None);
        for number in 0..=questions.len() {
            let this = questions.get(number).copied().map(|question| (question, std::mem::take(&mut material)));
            let next = questions.get(number + 1).copied();
            let Round { said, judged, made } =
                self.advance(&base, this, before.take(), next.map(|next| (number + 1, next)));
            if let Some((question, judged)) = judged {
                self.keep(question, judged.as_ref(), &mut answers);
                self.note(question, judged, &mut first)?;
                let asked = self.report.cases.get(first_case..).unwrap_or_default();
                let may_stop = matches!(question, Question::SamePointers | Question::Scaled(..));
                if may_stop && asked.len() >= QUESTIONS_BEFORE_STOPPING && asked.iter().any(|case| !case.passed) {
                    return Ok(());
                }
            }
            before = said.transpose()?;
            if matches!(self.questions, Questions::Drawn { kept: Some(_), .. }) {
                materials.push(made.clone());
            }
            material = made;
        }
        if let Questions::Drawn { kept: Some(kept), .. } = &mut self.questions {
            kept.push(Paper { base, materials, answers });
        }
        Ok(())
    }

    /// Keeps an answer for further programs, where they are kept.
    fn keep(&self, question: Question, judged: Option<&Judged>, answers: &mut Vec<Option<Recorded>>) {
        if !matches!(self.questions, Questions::Drawn { kept: Some(_), .. }) {
            return;
        }
        // One truth is enough for equal questions.
        let again = answers.first().filter(|_| matches!(question, Question::Repeat)).cloned();
        answers.push(again.unwrap_or_else(|| {
            judged.map(|Judged { expected, .. }| Recorded {
                truth: expected.truth.clone(),
                reference: Vec::new(),
                reference_error: expected.reference_error,
            })
        }));
    }

    /// Asks a question, judges the answer to the one before, and makes what the next one takes.
    fn advance(
        &mut self,
        base: &Base,
        this: Option<(Question, Material)>,
        before: Option<Said>,
        next: Option<(usize, Question)>,
    ) -> Round {
        let (spec, shapes, grounds) = (self.spec, self.shapes, self.grounds);
        let on_device = grounds.device.is_some();
        let (candidate, oracle, questions) = (&mut *self.candidate, &mut *self.oracle, &mut self.questions);
        let waited = &mut *self.waited;
        let ask = || {
            this.map(|(question, material)| {
                ask(candidate, oracle, base, &material, (grounds, waited)).map(|answers| Said { question, answers })
            })
        };
        let beside = || {
            let begun = Instant::now();
            let judged = before
                .map(|said| (said.question, said.answers.map(|answers| judge(said.question, answers, spec, shapes))));
            let judging_us = begun.elapsed().as_micros();
            let begun = Instant::now();
            let made = next.map(|(number, next)| match questions {
                Questions::Drawn { seeds, .. } => next.material(shapes, base, seeds),
                Questions::Known(paper) => paper.materials.get(number).cloned().unwrap_or_default(),
            });
            let made = made.unwrap_or_default();
            let making_us = begun.elapsed().as_micros();
            tracing::debug!(judging_us, making_us, "judged an answer and made the next question");
            (judged, made)
        };
        let started = Instant::now();
        // On the host all of this wants the same cores, and programs are held to their wall time.
        let ((judged, made), said) = if on_device {
            run_in_parallel(beside, ask)
        } else {
            let said = ask();
            (beside(), said)
        };
        tracing::debug!(took_us = started.elapsed().as_micros(), "asked a question");
        Round { said, judged, made }
    }

    /// Writes down what came of a question.
    fn note(&mut self, question: Question, judged: Option<Judged>, first: &mut Option<Seen>) -> Result<(), Stop> {
        self.oracle.keep(judged.as_ref().map(|judged| &judged.expected));
        let Some(judged) = judged else {
            if matches!(question, Question::Declared) {
                let message = "the reference gives values that are not finite for its declared inputs";
                return Err(StepFailure::fatal("task.reference_not_finite", message).into());
            }
            return Ok(());
        };
        for breach in &judged.call.breaches {
            note(&mut self.report.findings, breach.finding());
        }
        for (total, count) in self.report.error_histogram.iter_mut().zip(judged.histogram) {
            *total += count;
        }
        if let Some(finding) = judged.less_precise {
            note(&mut self.report.findings, finding);
        }
        self.report.cases.push(judged.case);
        let seen = Seen { truth: judged.expected.truth, outputs: judged.call.outputs };
        let Some(first) = first else {
            *first = Some(seen);
            return Ok(());
        };
        match question {
            Question::Repeat => self.compare_bits(first, &seen),
            Question::SamePointers if unchanged(first, &seen, self.spec, self.shapes) => {
                self.violation("stale_output", "new contents at the same addresses gave the results of the old ones");
            }
            Question::ChangedInput(number) if unchanged(first, &seen, self.spec, self.shapes) => {
                let tensor = name_of(&self.shapes.inputs, number);
                let message = format!("the result does not depend on the input `{tensor}`, as it has to");
                self.violation("ignores_input", &message);
            }
            Question::ChangedParam(number) if unchanged(first, &seen, self.spec, self.shapes) => {
                let tensor = name_of(&self.shapes.params, number);
                let message = format!("the result does not depend on the weights `{tensor}`, as it has to");
                self.violation("ignores_parameter", &message);
            }
            // One of another size may well have the same result, and the others have one that differs.
            _ => {}
        }
        Ok(())
    }

    /// Hands the weights to everybody.
    fn init(&mut self, params: &[TensorData]) -> Result<(), Stop> {
        let grounds = self.grounds;
        let enter = |stay| grounds.beside_others(stay);
        let initialized = self.candidate.init_within(params, &enter);
        // Where the reference cannot be loaded either, the machine lacks something: nobody blames the program for that.
        self.oracle.init(params, &enter)?;
        Ok(initialized?)
    }

    fn compare_bits(&mut self, first: &Seen, again: &Seen) {
        let same = same_bits(&first.outputs, &again.outputs);
        self.report.deterministic = Some(same && self.report.deterministic.unwrap_or(true));
        if !same {
            let message = "two calls with equal inputs gave different bits: it may read memory that it did not write";
            note(&mut self.report.findings, warning("not_deterministic", message.to_owned()));
        }
    }

    fn violation(&mut self, code: &str, message: &str) {
        let finding =
            Finding { code: code.to_owned(), severity: Severity::Violation, message: message.to_owned(), line: None };
        note(&mut self.report.findings, finding);
    }
}

fn ask(
    candidate: &mut Session,
    oracle: &mut Oracle,
    base: &Base,
    material: &Material,
    (grounds, waited): (&Grounds<'_>, &mut Duration),
) -> Result<Option<(Answered, Call)>, Stop> {
    let enter = |stay| grounds.beside_others(stay);
    if let Some(params) = &material.params {
        candidate.init_within(params, &enter)?;
        oracle.init(params, &enter)?;
    }
    let inputs = material.inputs.as_ref().unwrap_or(&base.inputs);
    if grounds.device.is_none() {
        let Some(answered) = oracle.ask(inputs, &enter)? else { return Ok(None) };
        return Ok(Some((answered, candidate.run(inputs)?)));
    }
    let waited_us = AtomicU64::new(0);
    let enter_and_tell = |stay| {
        let asked = Instant::now();
        let place = grounds.beside_others(stay);
        waited_us.fetch_add(u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        place
    };
    // On a device most of the time goes into copies, to and fro, which do not disturb each other. What the program makes
    // of inputs that ask nothing does not count, but it has to survive them.
    let (call, answered) =
        run_in_parallel(|| candidate.run_within(inputs, &enter_and_tell), || oracle.ask(inputs, &enter));
    *waited += Duration::from_micros(waited_us.into_inner());
    let (answered, call) = (answered?, call?);
    Ok(answered.map(|answered| (answered, call)))
}

fn judge(question: Question, (answered, call): (Answered, Call), spec: &TaskSpec, shapes: &ConcreteShapes) -> Judged {
    let expected = answered.judged(&shapes.outputs, &spec.tolerance);
    let (tolerance, widened) = reachable(&spec.tolerance, expected.reference_error);
    let found = compare(&call.outputs, &expected.truth, &shapes.outputs, &tolerance);
    let allowed = allowed_error(expected.reference_error / widened, tolerance.reference_error_factor);
    let within = found.wrong_elements == 0 && found.largest_error <= 1.0;
    let less_precise = (within && found.largest_error > allowed).then(|| {
        let message = format!(
            "the error is within tolerance, but {:.0} times the reference's own: more than the {} times that are allowed",
            found.largest_error * widened / expected.reference_error,
            spec.tolerance.reference_error_factor
        );
        warning("less_precise_than_reference", message)
    });
    let case = CheckCase {
        shape: shapes.name.clone(),
        inputs: question.name(shapes),
        passed: within && found.largest_error <= allowed,
        wrong_elements: found.wrong_elements,
        elements: found.elements,
        worst: found.worst,
        reference_normalized_error: expected.reference_error,
    };
    Judged { case, histogram: found.histogram.to_vec(), less_precise, call, expected }
}

fn warning(code: &str, message: String) -> Finding {
    Finding { code: code.to_owned(), severity: Severity::Warning, message, line: None }
}

/// Whether the program's results stayed the same, bit by bit, although the truth changed noticeably.
fn unchanged(before: &Seen, after: &Seen, spec: &TaskSpec, shapes: &ConcreteShapes) -> bool {
    same_bits(&before.outputs, &after.outputs)
        && differ_noticeably(&before.truth, &after.truth, &shapes.outputs, &spec.tolerance)
}

/// The tolerance at inputs for which the reference itself comes close to it or beyond, and how much it was widened: nobody
/// has to be more precise than the reference, in another order of the same operations.
pub(crate) fn reachable(tolerance: &Tolerance, reference_error: f64) -> (Tolerance, f64) {
    let widened = (reference_error * ROOM_BESIDE_REFERENCE).max(1.0);
    let (atol, rtol) = (tolerance.atol * widened, tolerance.rtol * widened);
    (Tolerance { atol, rtol, ..*tolerance }, widened)
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
    fn where_the_reference_misses_the_tolerance_others_may_too() {
        let given = Tolerance { atol: 1e-4, rtol: 1e-3, reference_error_factor: 64.0 };
        assert_eq!(reachable(&given, 0.2), (given, 1.0));
        let (wide, widened) = reachable(&given, 1.5);
        assert!((widened - 6.0).abs() < 1e-12);
        assert!((wide.atol - 6e-4).abs() < 1e-12 && (wide.rtol - 6e-3).abs() < 1e-12);
        assert!((allowed_error(1.5 / widened, wide.reference_error_factor) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_precise_reference_asks_for_precision_but_not_for_luck() {
        assert!((allowed_error(0.001, 64.0) - 0.064).abs() < 1e-12);
        assert!((allowed_error(1e-9, 64.0) - 0.0064).abs() < 1e-12);
    }
}
