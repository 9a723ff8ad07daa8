//! The calls of a check, one after the other.

use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, TaskSpec};
use nightshift_protocol::verdict::CheckCase;

use super::judge::{Limits, compare_outputs, fingerprint};
use super::oracle::{LaunchedOracle, Oracle, OracleError, with_reason};
use super::test_case::{Change, Mattered, ShapeHistory, Stop, TestCase, mostly_zero};
use super::{Libraries, launch, open};
use crate::breach::{note, violation, warning};
use crate::compare::Comparison;
use crate::draw::{Draw, InputKind};
use crate::lock::DeviceMode;
use crate::memory::Memory;
use crate::phases::PhaseTimer;
use crate::program::context::ExecutionContext;
use crate::program::{Program, ProgramError, ProgramFile, ProgramOptions};
use crate::seeds::SecretSeeds;

/// Cases of a shape after which a wrong program may be given up: they tell results of earlier calls from wrong ones.
const CASES_BEFORE_STOPPING: usize = 3;

/// A check of one program at some shapes.
pub(super) struct Check<'a, M: Memory> {
    pub(super) context: &'a ExecutionContext<'a>,
    pub(super) memory: &'a M,
    pub(super) spec: &'a TaskSpec,
    pub(super) libraries: &'a Libraries,
    pub(super) options: ProgramOptions<'a>,
    /// Number of calls for which the candidate has buffers.
    pub(super) calls: usize,
    /// True for the first shapes of the check.
    pub(super) is_first: bool,
    pub(super) mattered: &'a mut Mattered,
    pub(super) seeds: &'a mut SecretSeeds,
    pub(super) report: &'a mut CheckReport,
    pub(super) timer: &'a mut PhaseTimer,
}

impl<M: Memory> Check<'_, M> {
    pub(super) fn run(&mut self) -> Result<(), Stop> {
        let context = self.context;
        let (mut candidate, mut oracle) = self.processes()?;
        let outcome =
            (0..self.options.shapes.len()).try_for_each(|number| self.at_shape(number, &mut candidate, &mut oracle));
        self.timer.end("calls");
        let printed = candidate.printed();
        if !printed.is_empty() {
            self.report.printed = printed;
        }
        let outcome = outcome.map_err(|stop| match stop {
            Stop::Failure(failure) => Stop::Failure(with_reason(failure, &oracle.printed())),
            stop => stop,
        });
        candidate.finish(context);
        oracle.finish(context);
        self.timer.end("ends");
        outcome
    }

    /// Starts the processes and loads the programs. The candidate's comes last: where the reference cannot be loaded either, the
    /// machine lacks something, and the program is not blamed for it.
    fn processes(&mut self) -> Result<(Program<M>, Oracle<M>), Stop> {
        let (context, memory, options) = (self.context, self.memory, self.options);
        let Libraries { candidate, reference, truth } = self.libraries;
        let file = ProgramFile::candidate(candidate);
        let of_candidate = ProgramOptions { calls: self.calls, ..options };
        let mut candidate = launch(context, &file, &of_candidate)?;
        let mut oracle = LaunchedOracle::start(context, reference, truth, &options, false)?;
        let mut trusted = oracle.processes();
        // Python processes load for seconds, and use no device meanwhile.
        for process in &mut trusted {
            process.load_runtime().map_err(OracleError::from)?;
        }
        candidate.load_runtime()?;
        let guard = context.lock(DeviceMode::Driver)?;
        for process in trusted {
            process.make_ready().map_err(OracleError::from)?;
        }
        candidate.make_ready()?;
        self.timer.end("processes");
        let oracle = oracle.open(context, memory, &options)?;
        let candidate = open(context, memory, candidate, &file, &of_candidate)?;
        drop(guard);
        self.timer.end("programs");
        Ok((candidate, oracle))
    }

    fn at_shape(&mut self, number: usize, candidate: &mut Program<M>, oracle: &mut Oracle<M>) -> Result<(), Stop> {
        let shapes = &self.options.shapes[number];
        let first_case = self.report.cases.len();
        {
            let _guard = self.context.lock(DeviceMode::Work)?;
            candidate.select(number)?;
            oracle.select(number)?;
        }
        let weights = Draw::all(shapes.params.len(), self.seeds.draw(), InputKind::Declared);
        let inputs = Draw::all(shapes.inputs.len(), self.seeds.draw(), InputKind::Declared);
        let mut seen = ShapeHistory::default();
        let mut scaled = self.chosen_weights(shapes.params.len());
        // One weight of the program's first call has a size that the program cannot expect.
        let before_first_call = usize::from(self.is_first && number == 0);
        let after_first = scaled.split_off(scaled.len().min(before_first_call));
        self.changed_weights(shapes, candidate, oracle, (&weights, &inputs), (&scaled, Change::All), &mut seen)?;
        self.timer.end("changed weights");
        self.init(candidate, oracle, &weights)?;
        for case in TestCase::with_truth(shapes) {
            let (mut case_inputs, mut case_weights) = (None, None);
            let mut draw = |count, kind| Draw::all(count, self.seeds.draw(), kind);
            match case {
                TestCase::SamePointers => case_inputs = Some(draw(shapes.inputs.len(), InputKind::Declared)),
                TestCase::Scaled(kind, _) => case_inputs = Some(draw(shapes.inputs.len(), kind)),
                TestCase::ChangedWeights => case_weights = Some(draw(shapes.params.len(), InputKind::Declared)),
                _ => {}
            }
            if let Some(weights) = &case_weights {
                self.init(candidate, oracle, weights)?;
            }
            let inputs = case_inputs.as_ref().unwrap_or(&inputs);
            self.case(case, shapes, (&mut *candidate, &mut *oracle), inputs, &mut seen)?;
            let asked = self.report.cases.get(first_case..).unwrap_or_default();
            let is_settled = !matches!(case, TestCase::Declared | TestCase::Repeat);
            if is_settled && asked.len() >= CASES_BEFORE_STOPPING && asked.iter().any(|case| !case.passed) {
                return Err(Stop::Wrong);
            }
        }
        let (zero, nearly) = mostly_zero(shapes.inputs.len(), self.seeds);
        if self.is_continuous(oracle, &weights, (&zero, &nearly))? {
            self.init(candidate, oracle, &weights)?;
            self.case(TestCase::MostlyZero, shapes, (&mut *candidate, &mut *oracle), &zero, &mut seen)?;
        }
        self.in_stream_order(shapes, candidate, oracle, &weights, &seen)?;
        self.at_other_addresses(shapes, candidate, oracle, &weights, &seen)?;
        self.timer.end("order and addresses");
        self.changed_inputs(shapes, candidate, oracle, (&weights, &inputs), &seen)?;
        self.timer.end("changed inputs");
        let few = (&after_first[..], Change::Few);
        self.changed_weights(shapes, candidate, oracle, (&weights, &inputs), few, &mut seen)?;
        self.timer.end("changed weights");
        if self.report.cases.iter().any(|case| !case.passed) { Err(Stop::Wrong) } else { Ok(()) }
    }

    /// Hands everything its weights.
    fn init(&self, candidate: &mut Program<M>, oracle: &mut Oracle<M>, weights: &[Draw]) -> Result<(), Stop> {
        let _guard = self.context.lock(DeviceMode::Work)?;
        oracle.init(self.memory, weights)?;
        Ok(candidate.init(self.memory, weights)?)
    }

    /// Calls the candidate, which is stopped afterwards so that nothing changes while its outputs are read.
    pub(super) fn call(&mut self, candidate: &mut Program<M>, inputs: &[Draw]) -> Result<(), Stop> {
        candidate.renew_poison(self.memory)?;
        candidate.prepare(self.memory, 0, inputs)?;
        self.call_by(candidate, 1, Program::call_once)
    }

    /// The same over the outputs of the call before, as in use.
    fn call_over_old_outputs(&mut self, candidate: &mut Program<M>, inputs: &[Draw]) -> Result<(), Stop> {
        candidate.renew_poison(self.memory)?;
        candidate.give_inputs(self.memory, 0, inputs)?;
        self.call_by(candidate, 1, Program::call_once)
    }

    /// Calls the candidate in some way, so many times. Everything is in place.
    pub(super) fn call_by(
        &mut self,
        candidate: &mut Program<M>,
        calls: usize,
        call: impl FnOnce(&mut Program<M>) -> Result<(), ProgramError>,
    ) -> Result<(), Stop> {
        self.memory.null_operation()?;
        call(candidate)?;
        candidate.process.freeze()?;
        for breach in candidate.breaches(self.memory, calls)? {
            note(&mut self.report.findings, breach.finding());
        }
        Ok(())
    }

    /// Runs a case that is compared with the truth.
    fn case(
        &mut self,
        case: TestCase,
        shapes: &ConcreteShapes,
        (candidate, oracle): (&mut Program<M>, &mut Oracle<M>),
        inputs: &[Draw],
        seen: &mut ShapeHistory,
    ) -> Result<(), Stop> {
        let (memory, tolerance) = (self.memory, &case.tolerance(&self.spec.effective_tolerance()));
        let _guard = self.context.lock(DeviceMode::Work)?;
        // The outputs of reference and truth for the inputs of the call before are still there.
        if case != TestCase::Repeat {
            let answer = oracle.ask(memory, shapes, inputs, tolerance, false)?;
            seen.answer = answer.map(|answer| answer.reference_error);
        }
        self.timer.end("expected outputs");
        // What the program makes of inputs without an answer does not count, but it has to survive them.
        if case == TestCase::SamePointers {
            self.call_over_old_outputs(candidate, inputs)?;
        } else {
            self.call(candidate, inputs)?;
        }
        let Some(reference_error) = seen.answer else {
            candidate.process.thaw()?;
            if case == TestCase::Declared {
                let message = "the reference gives values that are not finite for its declared inputs";
                return Err(StepFailure::fatal("task.reference_not_finite", message).into());
            }
            return Ok(());
        };
        seen.reference_error = seen.reference_error.max(reference_error);
        let limits = Limits::against_truth(tolerance, reference_error);
        let (truth, outputs) = (oracle.truth_outputs(), candidate.outputs(0));
        let found = compare_outputs(memory, &outputs, &truth, &shapes.outputs, &limits)?;
        let print = fingerprint(memory, &outputs)?;
        let passed = limits.pass_beside_truth(&found, || {
            compare_outputs(memory, &oracle.reference.outputs(0), &truth, &shapes.outputs, &limits)
        })?;
        drop((outputs, truth));
        candidate.process.thaw()?;
        if !passed && case == TestCase::Declared {
            self.blame_reference(&mut oracle.reference, shapes, inputs)?;
        }
        if found.wrong_elements == 0 && !passed {
            let message = format!(
                "the error is within tolerance, but {:.0} times the reference's own: more than the {} times that are allowed",
                found.largest_error * limits.widened / reference_error.normalized,
                tolerance.reference_error_factor
            );
            note(&mut self.report.findings, warning("less_precise_than_reference", message));
        }
        for (total, count) in self.report.error_histogram.iter_mut().zip(found.histogram) {
            *total += count;
        }
        self.push(case, shapes, passed, found, (reference_error.normalized, Some(limits.allowed)));
        self.explain(case, (print, passed), seen);
        self.timer.end("calls");
        Ok(())
    }

    /// Explains outputs that are equal to those of an earlier call.
    fn explain(&mut self, case: TestCase, (print, passed): (u64, bool), seen: &mut ShapeHistory) {
        let like_previous = seen.previous == Some(print) && !passed;
        match case {
            TestCase::Declared => {
                seen.first = Some(print);
                seen.first_passed = passed;
                seen.kept_weights = like_previous;
            }
            TestCase::Repeat => {
                let same = seen.first == Some(print);
                self.report.deterministic = Some(same && self.report.deterministic.unwrap_or(true));
                if !same {
                    let message =
                        "two calls with equal inputs gave different bits: it may read memory that it did not write";
                    note(&mut self.report.findings, warning("not_deterministic", message.to_owned()));
                }
            }
            TestCase::SamePointers if like_previous && (seen.first_passed || seen.kept_weights) => {
                let message = "new contents at the same addresses gave the results of the old ones";
                note(&mut self.report.findings, violation("stale_output", message.to_owned()));
            }
            TestCase::SamePointers if seen.kept_weights && !passed => self.note_stale_weights(),
            TestCase::ChangedWeights if like_previous || (seen.first == Some(print) && !passed) => {
                self.note_stale_weights();
            }
            _ => {}
        }
        seen.previous = Some(print);
    }

    fn note_stale_weights(&mut self) {
        let message = "new weights gave the results of earlier ones: what follows from weights has to be prepared anew when they change";
        note(&mut self.report.findings, violation("stale_weights", message.to_owned()));
    }

    pub(super) fn push(
        &mut self,
        case: TestCase,
        shapes: &ConcreteShapes,
        passed: bool,
        found: Comparison,
        (reference_error, allowed_error): (f64, Option<f64>),
    ) {
        self.report.cases.push(CheckCase {
            shape: shapes.name.clone(),
            inputs: case.name(shapes),
            passed,
            wrong_elements: found.wrong_elements,
            elements: found.elements,
            worst: found.worst,
            reference_normalized_error: reference_error,
            allowed_error,
        });
    }
}
