//! The calls of a check, one after the other.

use std::path::Path;

use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, TaskSpec};
use nightshift_protocol::verdict::CheckCase;

use super::judge::{Limits, ReferenceError, compare_outputs, fingerprint};
use super::oracle::{LaunchedOracle, Oracle, OracleError, with_reason};
use super::test_case::{Change, Material, Mattered, ShapeHistory, Stop, TestCase, mostly_zero};
use super::{launch, open};
use crate::breach::{note, violation, warning};
use crate::compare::Comparison;
use crate::draw::{Draw, InputKind};
use crate::golden::{Recorded, Recording};
use crate::lock::DeviceMode;
use crate::memory::{Memory, MemoryError, Operand};
use crate::phases::PhaseTimer;
use crate::program::context::ExecutionContext;
use crate::program::{Given, Launched, Program, ProgramError, ProgramFile, ProgramOptions};
use crate::seeds::SecretSeeds;
use crate::tensor::HostTensor;

/// Cases of a shape after which a wrong program may be given up: they tell results of earlier calls from wrong ones.
const CASES_BEFORE_STOPPING: usize = 3;

/// The source of expected values.
pub(super) enum Answers<'a> {
    /// From reference and truth; they are recorded where that is wanted.
    Live { reference: &'a Path, truth: &'a Path, recorded: Option<Vec<Option<Recorded>>> },
    /// From a recording, of which there is one for a check.
    Recorded(Option<Recording>),
}

/// A check of one program at some shapes.
pub(super) struct Check<'a, M: Memory> {
    pub(super) context: &'a ExecutionContext<'a>,
    pub(super) memory: &'a M,
    pub(super) spec: &'a TaskSpec,
    pub(super) file: &'a ProgramFile<'a>,
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

/// The expected outputs.
enum Expected<'a, M: Memory> {
    /// Reference and truth.
    Live(&'a mut Oracle<M>),
    /// Recorded answers, in their order.
    Recorded(std::vec::IntoIter<Option<Recorded>>),
}

impl<M: Memory> Check<'_, M> {
    pub(super) fn run(&mut self, answers: &mut Answers<'_>) -> Result<(), Stop> {
        let context = self.context;
        let (mut candidate, mut oracle) = self.processes(answers)?;
        let recorded = match answers {
            Answers::Live { .. } => Vec::new(),
            Answers::Recorded(recording) => recording.take().ok_or_else(one_shape_only)?.answers,
        };
        let mut expected = match &mut oracle {
            Some(oracle) => Expected::Live(oracle),
            None => Expected::Recorded(recorded.into_iter()),
        };
        let mut record = match answers {
            Answers::Live { recorded, .. } => recorded.as_mut(),
            Answers::Recorded(_) => None,
        };
        let outcome = (0..self.options.shapes.len())
            .try_for_each(|number| self.at_shape(number, &mut candidate, &mut expected, record.as_deref_mut()));
        self.timer.end("calls");
        let printed = candidate.printed();
        if !printed.is_empty() {
            self.report.printed = printed;
        }
        let outcome = outcome.map_err(|stop| match (stop, &oracle) {
            (Stop::Failure(failure), Some(oracle)) => Stop::Failure(with_reason(failure, &oracle.printed())),
            (stop, _) => stop,
        });
        candidate.finish(context);
        if let Some(oracle) = oracle {
            oracle.finish(context);
        }
        self.timer.end("ends");
        outcome
    }

    /// Starts the processes and loads the programs. The candidate's comes last: where the reference cannot be loaded either, the
    /// machine lacks something, and the program is not blamed for it.
    fn processes(&mut self, answers: &Answers<'_>) -> Result<(Program<M>, Option<Oracle<M>>), Stop> {
        let (context, memory, options) = (self.context, self.memory, self.options);
        let of_candidate = ProgramOptions { calls: self.calls, ..options };
        let mut candidate = launch(context, self.file, &of_candidate)?;
        let mut oracle = match answers {
            Answers::Live { reference, truth, .. } => {
                Some(LaunchedOracle::start(context, reference, truth, &options, false)?)
            }
            Answers::Recorded(_) => None,
        };
        let mut trusted: Vec<&mut Launched> = oracle.iter_mut().flat_map(LaunchedOracle::processes).collect();
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
        let oracle = oracle.map(|oracle| oracle.open(context, memory, &options)).transpose()?;
        let candidate = open(context, memory, candidate, self.file, &of_candidate)?;
        drop(guard);
        self.timer.end("programs");
        Ok((candidate, oracle))
    }

    fn at_shape(
        &mut self,
        number: usize,
        candidate: &mut Program<M>,
        expected: &mut Expected<'_, M>,
        mut record: Option<&mut Vec<Option<Recorded>>>,
    ) -> Result<(), Stop> {
        let shapes = &self.options.shapes[number];
        let on_host = record.is_some() || matches!(expected, Expected::Recorded(_));
        let first_case = self.report.cases.len();
        {
            let _guard = self.context.lock(DeviceMode::Work)?;
            candidate.select(number)?;
            if let Expected::Live(oracle) = expected {
                oracle.select(number)?;
            }
        }
        // Recordings rely on this order.
        let weights = Material::new(
            &shapes.params,
            Draw::all(shapes.params.len(), self.seeds.draw(), InputKind::Declared),
            on_host,
        );
        let inputs = Material::new(
            &shapes.inputs,
            Draw::all(shapes.inputs.len(), self.seeds.draw(), InputKind::Declared),
            on_host,
        );
        let mut seen = ShapeHistory::default();
        let mut scaled = if on_host { Vec::new() } else { self.chosen_weights(shapes.params.len()) };
        // One weight of the program's first call has a size that the program cannot expect.
        let before_first_call = usize::from(self.is_first && number == 0);
        let after_first = scaled.split_off(scaled.len().min(before_first_call));
        if let Expected::Live(oracle) = &mut *expected {
            self.changed_weights(shapes, candidate, oracle, (&weights, &inputs), (&scaled, Change::All), &mut seen)?;
            self.timer.end("changed weights");
        }
        self.init(candidate, expected, &weights)?;
        for case in TestCase::with_truth(shapes) {
            let (mut case_inputs, mut case_weights) = (None, None);
            let mut draw = |tensors: &[ConcreteTensor], kind| {
                Material::new(tensors, Draw::all(tensors.len(), self.seeds.draw(), kind), on_host)
            };
            match case {
                TestCase::SamePointers => case_inputs = Some(draw(&shapes.inputs, InputKind::Declared)),
                TestCase::Scaled(kind, _) => case_inputs = Some(draw(&shapes.inputs, kind)),
                TestCase::ChangedWeights => case_weights = Some(draw(&shapes.params, InputKind::Declared)),
                _ => {}
            }
            if let Some(weights) = &case_weights {
                self.init(candidate, expected, weights)?;
            }
            let inputs = case_inputs.as_ref().unwrap_or(&inputs);
            self.case(case, shapes, candidate, expected, inputs, &mut seen, record.as_deref_mut())?;
            let asked = self.report.cases.get(first_case..).unwrap_or_default();
            let is_settled = !matches!(case, TestCase::Declared | TestCase::Repeat);
            if is_settled && asked.len() >= CASES_BEFORE_STOPPING && asked.iter().any(|case| !case.passed) {
                return Err(Stop::Wrong);
            }
        }
        let (draws, nearly) = mostly_zero(shapes.inputs.len(), self.seeds);
        let may_be_zero = match &mut *expected {
            Expected::Live(oracle) if !on_host => self.is_continuous(oracle, &weights, (&draws, &nearly))?,
            _ => false,
        };
        if may_be_zero {
            let inputs = Material { draws, values: None };
            self.init(candidate, expected, &weights)?;
            self.case(TestCase::MostlyZero, shapes, candidate, expected, &inputs, &mut seen, None)?;
        }
        if let Expected::Live(oracle) = &mut *expected {
            self.in_stream_order(shapes, candidate, oracle, &weights, &seen)?;
            self.at_other_addresses(shapes, candidate, oracle, &weights, &seen)?;
            self.timer.end("order and addresses");
        }
        if let (false, Expected::Live(oracle)) = (on_host, expected) {
            self.changed_inputs(shapes, candidate, oracle, (&weights, &inputs), &seen)?;
            self.timer.end("changed inputs");
            let given = (&weights, &inputs);
            self.changed_weights(shapes, candidate, oracle, given, (&after_first, Change::Few), &mut seen)?;
            self.timer.end("changed weights");
        }
        if self.report.cases.iter().any(|case| !case.passed) { Err(Stop::Wrong) } else { Ok(()) }
    }

    /// Hands everything its weights.
    fn init(&self, candidate: &mut Program<M>, expected: &mut Expected<'_, M>, weights: &Material) -> Result<(), Stop> {
        let _guard = self.context.lock(DeviceMode::Work)?;
        if let Expected::Live(oracle) = expected {
            oracle.init(self.memory, weights.given())?;
        }
        Ok(candidate.init(self.memory, weights.given())?)
    }

    /// Calls the candidate, which is stopped afterwards so that nothing changes while its outputs are read.
    pub(super) fn call(&mut self, candidate: &mut Program<M>, inputs: Given<'_>) -> Result<(), Stop> {
        candidate.renew_poison(self.memory)?;
        candidate.prepare(self.memory, 0, inputs)?;
        self.call_by(candidate, 1, Program::call_once)
    }

    /// The same over the outputs of the call before, as in use.
    fn call_over_old_outputs(&mut self, candidate: &mut Program<M>, inputs: Given<'_>) -> Result<(), Stop> {
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
    #[expect(clippy::too_many_arguments, reason = "a case needs all of them")]
    fn case(
        &mut self,
        case: TestCase,
        shapes: &ConcreteShapes,
        candidate: &mut Program<M>,
        expected: &mut Expected<'_, M>,
        inputs: &Material,
        seen: &mut ShapeHistory,
        record: Option<&mut Vec<Option<Recorded>>>,
    ) -> Result<(), Stop> {
        let (memory, tolerance) = (self.memory, &case.tolerance(&self.spec.effective_tolerance()));
        let _guard = self.context.lock(DeviceMode::Work)?;
        let (answer, copied) = match expected {
            // The outputs of reference and truth for these inputs are still there.
            Expected::Live(_) if case == TestCase::Repeat => (seen.answer, None),
            Expected::Live(oracle) => {
                let answer = oracle.ask(memory, shapes, inputs.given(), tolerance, false)?;
                (answer.map(|answer| answer.reference_error), None)
            }
            Expected::Recorded(answers) => {
                let answer = answers.next().ok_or_else(too_few_answers)?;
                let truth =
                    answer.as_ref().map(|answer| answer.truth.iter().map(|tensor| memory.import(tensor)).collect());
                (
                    answer.map(|answer| ReferenceError::of(answer.reference_error)),
                    truth.transpose().map_err(Stop::from)?,
                )
            }
        };
        seen.answer = answer;
        self.timer.end("expected outputs");
        if let Some(record) = record {
            record.push(recorded(memory, expected, answer)?);
        }
        // What the program makes of inputs without an answer does not count, but it has to survive them.
        if case == TestCase::SamePointers {
            self.call_over_old_outputs(candidate, inputs.given())?;
        } else {
            self.call(candidate, inputs.given())?;
        }
        let Some(reference_error) = answer else {
            candidate.process.thaw()?;
            if case == TestCase::Declared {
                let message = "the reference gives values that are not finite for its declared inputs";
                return Err(StepFailure::fatal("task.reference_not_finite", message).into());
            }
            return Ok(());
        };
        seen.reference_error = seen.reference_error.max(reference_error);
        let limits = Limits::against_truth(tolerance, reference_error);
        let copied: Option<Vec<M::Copied>> = copied;
        let truth: Vec<Operand<'_, M>> = match (&copied, &*expected) {
            (Some(copied), _) => copied.iter().map(Operand::Copied).collect(),
            (None, Expected::Live(oracle)) => oracle.truth_outputs(),
            (None, Expected::Recorded(_)) => Vec::new(),
        };
        let outputs = candidate.outputs(0);
        let found = compare_outputs(memory, &outputs, &truth, &shapes.outputs, &limits)?;
        let print = fingerprint(memory, &outputs)?;
        let passed = limits.pass_beside_truth(&found, || match &*expected {
            Expected::Live(oracle) => {
                let own = oracle.reference.outputs(0);
                compare_outputs(memory, &own, &truth, &shapes.outputs, &limits)
            }
            // A recording has no such tolerance.
            Expected::Recorded(_) => Ok(Comparison::default()),
        })?;
        drop((outputs, truth));
        candidate.process.thaw()?;
        if let (false, TestCase::Declared, Expected::Live(oracle)) = (passed, case, &mut *expected) {
            self.blame_reference(&mut oracle.reference, shapes, &inputs.draws)?;
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

/// Brings an answer to the host, where answers are recorded.
fn recorded<M: Memory>(
    memory: &M,
    expected: &Expected<'_, M>,
    reference_error: Option<ReferenceError>,
) -> Result<Option<Recorded>, Stop> {
    // A recording holds no tolerance that was widened beyond its cap: without an answer the case is left out.
    let recordable = reference_error.filter(|error| !error.is_beyond_cap()).map(|error| error.normalized);
    let (Expected::Live(oracle), Some(reference_error)) = (expected, recordable) else { return Ok(None) };
    let read = |operands: Vec<Operand<'_, M>>| -> Result<Vec<HostTensor>, MemoryError> {
        operands.into_iter().map(|operand| memory.read(operand)).collect()
    };
    let (truth, reference) = (read(oracle.truth_outputs())?, read(oracle.reference.outputs(0))?);
    Ok(Some(Recorded { truth, reference, reference_error }))
}

fn one_shape_only() -> StepFailure {
    StepFailure::fatal("task.golden_unusable", "golden data are of one shape, and the task has several")
}

fn too_few_answers() -> StepFailure {
    StepFailure::fatal("task.golden_unusable", "the golden data of the task hold fewer answers than a check has cases")
}
