//! Everything before the first timed pair: processes, programs, weights, and the baseline's times while the candidate is not
//! loaded.

mod alone;

use nightshift_protocol::machine::SandboxReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, MAX_CALLS_OF_A_WINDOW, MAX_ROTATED_BYTES, TaskSpec};
use nightshift_protocol::verdict::Finding;

use self::alone::QuietHost;
use super::shared_core::ProgramCores;
use super::weights::{limits, usable_changes, weights};
use super::windows::{Inputs, Usual, draws_of, time_window, usual_times};
use super::{Round, Side};
use crate::breach::note;
use crate::check::Limits;
use crate::draw::{Draw, InputKind};
use crate::lock::DeviceMode;
use crate::memory::Memory;
use crate::phases::PhaseTimer;
use crate::program::context::ExecutionContext;
use crate::program::{Launched, Program, ProgramFile, ProgramOptions, shared_bytes};
use crate::runner::control::WindowKind;
use crate::seeds::SecretSeeds;
use crate::statistics::median;

/// Time that the calls of one window are to take, in nanoseconds: long next to what it costs to begin and to end a window.
const WINDOW_NS: f64 = 1e6;

/// Shortest window of the faster program, in nanoseconds; else there are as many calls as fit.
const SHORTEST_WINDOW_NS: f64 = 3e5;

/// Maximum length of a window of the baseline, in nanoseconds.
const LONGEST_WINDOW_NS: f64 = 5e6;

/// Maximum number of calls of a window.
#[expect(clippy::cast_possible_truncation, reason = "a small number")]
const MAX_CALLS: usize = MAX_CALLS_OF_A_WINDOW as usize;

/// Lone calls that tell how long a call takes.
const PILOTS: usize = 4;

/// First calls of the candidate, which find out what every first call has to.
const FIRST_CALLS: usize = 3;

/// The numbers of calls of a window that a measurement chooses from, the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Calls {
    /// As many as the baseline needs.
    usual: usize,
    /// As many as fit.
    most: usize,
}

impl Calls {
    fn new(baseline_ns: f64, call_bytes: u64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast saturates, and no number is 0"
        )]
        let within = |time_ns: f64| (time_ns / baseline_ns.max(1.0)).floor() as usize;
        let by_room = usize::try_from(MAX_ROTATED_BYTES / call_bytes.max(1)).unwrap_or(MAX_CALLS);
        let most = within(LONGEST_WINDOW_NS).min(by_room).clamp(1, MAX_CALLS);
        // Calls that take a third of a window or more are timed one by one.
        let usual = if baseline_ns * 3.0 > WINDOW_NS { 1 } else { within(WINDOW_NS) };
        Self { usual: usual.clamp(1, most), most }
    }

    /// The number that an earlier pair of processes chose.
    fn chosen(calls: usize) -> Self {
        Self { usual: calls, most: calls }
    }

    /// Returns the windows that pairs may have, and the lone calls between them where they have several.
    fn windows(self) -> Vec<(WindowKind, usize)> {
        let mut windows = vec![(WindowKind::Calls, self.usual), (WindowKind::Calls, self.most)];
        windows.dedup();
        if self.most > 1 {
            windows.push((WindowKind::CallInOrder, 1));
        }
        windows
    }

    /// Returns the number of calls for programs whose calls take this long.
    fn choose(self, candidate_ns: f64, baseline_ns: f64) -> usize {
        let shorter_ns = candidate_ns.min(baseline_ns);
        #[expect(clippy::cast_precision_loss, reason = "a few calls")]
        let window_ns = shorter_ns * self.usual as f64;
        if window_ns >= SHORTEST_WINDOW_NS { self.usual } else { self.most }
    }
}

/// Times of windows of one kind with this many calls while the candidate was not loaded.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Solo {
    windows: (WindowKind, usize),
    /// The baseline's time of one call in each window; nothing of lone calls in order.
    call_ns: Vec<f64>,
    /// Usual times for the candidate and for the baseline.
    usual: (Usual, Usual),
}

/// Weights, limits, the baseline's time and the calls of a window, which all pairs of processes of a measurement share.
#[derive(Debug, Clone)]
pub(super) struct Basis {
    weights: Vec<Draw>,
    limits: Limits,
    /// Changes of the inputs for later calls.
    changes: Vec<InputKind>,
    /// The baseline's time of a lone call.
    baseline_ns: f64,
    calls: Calls,
}

fn internal(message: &str) -> Side {
    Side::Machine(StepFailure::fatal("worker.internal", message))
}

/// Everything that a pair of processes is measured with.
pub(super) struct Setup<'a, M: Memory> {
    pub(super) context: &'a ExecutionContext<'a>,
    pub(super) memory: &'a M,
    pub(super) spec: &'a TaskSpec,
    pub(super) shapes: &'a ConcreteShapes,
    pub(super) seeds: SecretSeeds,
    pub(super) candidate: Program<M>,
    pub(super) baseline: Program<M>,
    /// A process of the candidate's kind without a program, where the baseline is of another kind.
    control: Option<Program<M>>,
    candidate_file: ProgramFile<'a>,
    baseline_file: ProgramFile<'a>,
    options: ProgramOptions<'a>,
    /// Whether the candidate compiles at its first call.
    compiles: bool,
    weights: Vec<Draw>,
    pub(super) limits: Limits,
    /// Changes of the inputs for later calls.
    pub(super) changes: Vec<InputKind>,
    pub(super) calls: Calls,
    solo: Vec<Solo>,
    /// Cores of the host for the programs.
    pub(super) program_cores: ProgramCores,
    usual_on_host: Vec<(usize, (Usual, Usual))>,
    /// The baseline's time of a lone call.
    baseline_ns: f64,
}

impl<'a, M: Memory> Setup<'a, M> {
    /// Starts the processes, loads the trusted programs and chooses the weights. Nothing of the candidate runs yet. With the basis of
    /// an earlier pair of processes, its weights and limits are used again, and the truth is not needed.
    pub(super) fn open(round: &Round<'a, M>, basis: Option<Basis>, timer: &mut PhaseTimer) -> Result<Self, Side> {
        let Round { context, memory, spec, shapes, programs, pair, core, require_sandbox, options } = *round;
        let mut seeds = SecretSeeds::from_os().map_err(|error| {
            Side::Machine(StepFailure::retriable("process.os", format!("drawing random numbers: {error}")))
        })?;
        let all = std::slice::from_ref(shapes);
        let call_bytes = bytes_of(&shapes.inputs) + bytes_of(&shapes.outputs);
        let candidate_file = ProgramFile::candidate(programs.candidate);
        let baseline_file = ProgramFile::baseline(programs.baseline);
        let truth_file = ProgramFile::truth(programs.truth);
        let of_candidate =
            ProgramOptions { spec, shapes: all, calls: 1, core, require_sandbox, may_be_resident: false };
        // A Python process is slow to start, and the process of a first measurement's baseline may have served before: a number is
        // published only after a confirmation.
        let may_be_resident = !options.confirms && baseline_file.is_python();
        let of_baseline = ProgramOptions { require_sandbox: false, may_be_resident, ..of_candidate };
        let of_truth = ProgramOptions { may_be_resident: true, ..of_baseline };
        let needs_control = candidate_file.is_python() != baseline_file.is_python();
        let start = |file: &ProgramFile<'_>, options: &ProgramOptions<'_>| {
            // Memory for as many calls as a window may have: on the host its size limits the process.
            let most = ProgramOptions { calls: most_calls(shapes), ..*options };
            Launched::start(context, file, options, shared_bytes(file, &most))
        };
        let start_if = |needed: bool, file: &ProgramFile<'_>, options: &ProgramOptions<'_>| {
            needed.then(|| start(file, options)).transpose().map_err(Side::Baseline)
        };
        let mut candidate = start(&candidate_file, &of_candidate).map_err(Side::Candidate)?;
        let mut baseline = start(&baseline_file, &of_baseline).map_err(Side::Baseline)?;
        let mut truth = start_if(basis.is_none(), &truth_file, &of_truth)?;
        let mut control = start_if(needs_control, &candidate_file, &of_candidate)?;
        for process in [&mut baseline].into_iter().chain(&mut truth).chain(&mut control) {
            process.load_runtime().map_err(Side::Baseline)?;
        }
        candidate.load_runtime().map_err(Side::Candidate)?;
        let guard = context.lock(DeviceMode::Driver)?;
        for process in [&mut baseline].into_iter().chain(&mut truth).chain(&mut control) {
            process.make_ready().map_err(Side::Baseline)?;
        }
        candidate.make_ready().map_err(Side::Candidate)?;
        timer.end("processes");
        let attach = |process, file: &ProgramFile<'_>, options: &ProgramOptions<'_>| {
            Program::attach(memory, process, file, options).map_err(Side::Baseline)
        };
        let mut baseline = attach(baseline, &baseline_file, &of_baseline)?;
        let mut truth = truth.map(|truth| attach(truth, &truth_file, &of_truth)).transpose()?;
        baseline.load(context, &baseline_file, spec.torch.as_ref()).map_err(Side::Baseline)?;
        if let Some(truth) = &mut truth {
            truth.load(context, &truth_file, spec.torch.as_ref()).map_err(Side::Baseline)?;
        }
        drop(guard);
        timer.end("programs");
        let guard = context.lock(DeviceMode::Work)?;
        let basis = match (basis, &mut truth) {
            (Some(basis), _) => {
                baseline.init(memory, &basis.weights).map_err(Side::Baseline)?;
                basis
            }
            (None, None) => return Err(internal("a measurement has no truth")),
            (None, Some(truth)) => {
                let weights = weights(memory, spec, shapes, &mut baseline, &mut seeds).map_err(Side::Baseline)?;
                let limits = limits(memory, spec, shapes, (&mut baseline, truth), &weights, &mut seeds)?;
                let of_calls = (options.confirms, call_bytes, &mut seeds);
                let changes = usable_changes(memory, shapes, (&mut baseline, truth), &limits, of_calls)?;
                let calls = (context.device().is_some(), PILOTS);
                let baseline_ns = super::median_call_ns(memory, &mut baseline, shapes.inputs.len(), &mut seeds, calls)
                    .map_err(Side::Baseline)?;
                Basis { weights, limits, changes, baseline_ns, calls: Calls::new(baseline_ns, call_bytes) }
            }
        };
        drop(guard);
        if let Some(truth) = truth {
            truth.finish(context);
        }
        // The memory of these programs is made once the truth has given its own back.
        let guard = context.lock(DeviceMode::Driver)?;
        let control = control.map(|control| attach(control, &candidate_file, &of_baseline)).transpose()?;
        let candidate = Program::attach(memory, candidate, &candidate_file, &of_candidate).map_err(Side::Candidate)?;
        drop(guard);
        timer.end("first_calls");
        Ok(Self {
            context,
            memory,
            spec,
            shapes,
            seeds,
            candidate,
            baseline,
            control,
            candidate_file,
            baseline_file,
            options: of_candidate,
            compiles: options.compiles,
            weights: basis.weights,
            limits: basis.limits,
            changes: basis.changes,
            usual_on_host: Vec::new(),
            calls: basis.calls,
            solo: Vec::new(),
            program_cores: ProgramCores::of(context.cores(), pair),
            baseline_ns: basis.baseline_ns,
        })
    }

    /// Returns what the next pair of processes of the same measurement reuses, after windows of so many calls.
    pub(super) fn basis(&self, calls: usize) -> Basis {
        let (limits, baseline_ns) = (self.limits, self.baseline_ns);
        let (weights, changes) = (self.weights.clone(), self.changes.clone());
        Basis { weights, limits, changes, baseline_ns, calls: Calls::chosen(calls) }
    }

    /// Bytes of inputs and outputs of one call.
    pub(super) fn call_bytes(&self) -> u64 {
        bytes_of(&self.shapes.inputs) + bytes_of(&self.shapes.outputs)
    }

    /// Bytes of the outputs of one call.
    pub(super) fn output_bytes(&self) -> u64 {
        bytes_of(&self.shapes.outputs)
    }

    /// Returns whether programs compute on a device.
    pub(super) fn on_device(&self) -> bool {
        self.context.device().is_some()
    }

    /// Isolation of the candidate's process.
    pub(super) fn candidate_sandbox(&self) -> &SandboxReport {
        self.candidate.sandbox()
    }

    /// Returns the median time of a lone call of the candidate, in nanoseconds.
    pub(super) fn pilot(&mut self) -> Result<f64, Side> {
        let kind = if self.calls.most > 1 { WindowKind::CallInOrder } else { WindowKind::Calls };
        let (usual, _) = self.usual(kind, 1)?;
        let on_device = self.on_device();
        let mut times = Vec::new();
        for _ in 0..PILOTS {
            let inputs = self.draw(1);
            let window = time_window(self.memory, &mut self.candidate, kind, &inputs, on_device);
            times.push(window.map_err(Side::Candidate)?.net_ns(&usual));
        }
        Ok(median(&times))
    }

    /// Draws the inputs of a window of so many calls.
    pub(super) fn draw(&mut self, calls: usize) -> Inputs {
        Inputs::draw(calls, self.shapes.inputs.len(), self.baseline_ns, &mut self.seeds)
    }

    /// Loads the candidate, hands it the weights and calls it for the first time.
    pub(super) fn load_candidate(&mut self, findings: &mut Vec<Finding>, timer: &mut PhaseTimer) -> Result<(), Side> {
        let (memory, inputs) = (self.memory, self.shapes.inputs.len());
        let options = ProgramOptions { calls: self.calls.most, ..self.options };
        let mut guard = self.context.lock(DeviceMode::Work)?;
        let candidate = &mut self.candidate;
        candidate.load(self.context, &self.candidate_file, self.spec.torch.as_ref()).map_err(Side::Candidate)?;
        if options.calls > 1 {
            candidate.resize(memory, &self.candidate_file, &options).map_err(Side::Candidate)?;
        }
        candidate.init(memory, &self.weights).map_err(Side::Candidate)?;
        if self.compiles {
            let draws = draws_of(1, inputs, &mut self.seeds);
            candidate.make_call_ready(memory, &draws[0]).map_err(Side::Candidate)?;
            drop(guard);
            candidate.call_in_turns(self.context).map_err(Side::Candidate)?;
            guard = self.context.lock(DeviceMode::Work)?;
        }
        for number in 0..FIRST_CALLS {
            let draws = draws_of(1, inputs, &mut self.seeds);
            candidate.call_on(memory, &draws[0]).map_err(Side::Candidate)?;
            if number == 0 {
                candidate.process.freeze().map_err(Side::Candidate)?;
                for breach in candidate.breaches(memory, 1).map_err(Side::Candidate)? {
                    note(findings, breach.finding());
                }
                candidate.process.thaw().map_err(Side::Candidate)?;
            }
        }
        if self.context.device().is_some() {
            candidate.enter_windows().map_err(Side::Candidate)?;
        }
        candidate.process.freeze().map_err(Side::Candidate)?;
        drop(guard);
        timer.end("candidate");
        Ok(())
    }

    /// Chooses how many calls a window has.
    pub(super) fn choose_calls(&self, candidate_ns: f64) -> usize {
        self.calls.choose(candidate_ns, self.baseline_ns)
    }

    /// The usual times of windows of a kind with so many calls: for the candidate and for the baseline. On a device they are from
    /// before the candidate was loaded, as kernels that it left there would make them longer.
    pub(super) fn usual(&mut self, kind: WindowKind, calls: usize) -> Result<(Usual, Usual), Side> {
        if let Some(solo) = self.solo.iter().find(|solo| solo.windows == (kind, calls)) {
            return Ok(solo.usual);
        }
        if let Some((_, usual)) = self.usual_on_host.iter().find(|(known, _)| *known == calls) {
            return Ok(*usual);
        }
        let (inputs, on_device) = (self.shapes.inputs.len(), self.on_device());
        let (memory, call_ns, seeds) = (self.memory, self.baseline_ns, &mut self.seeds);
        let mut draw = || Inputs::draw(calls, inputs, call_ns, seeds);
        let baseline = usual_times(memory, &mut self.baseline, kind, &mut draw, on_device)?;
        let candidate = match &mut self.control {
            None => baseline,
            Some(control) => usual_times(memory, control, kind, &mut draw, on_device)?,
        };
        self.usual_on_host.push((calls, (candidate, baseline)));
        Ok((candidate, baseline))
    }

    /// Looks at windows without calls once more, and returns by how many nanoseconds they are shorter now, for the candidate and for
    /// the baseline: so much was disturbed before, and subtracted too much.
    pub(super) fn subtracted_too_much(&mut self, kind: WindowKind, calls: usize) -> Result<(f64, f64), Side> {
        let Some(before) = self.solo.iter().find(|solo| solo.windows == (kind, calls)).map(|solo| solo.usual) else {
            return Ok((0.0, 0.0));
        };
        let (memory, inputs) = (self.memory, self.shapes.inputs.len());
        let (call_ns, seeds) = (self.baseline_ns, &mut self.seeds);
        let mut draw = || Inputs::draw(calls, inputs, call_ns, seeds);
        let now = usual_times(memory, &mut self.baseline, kind, &mut draw, true)?;
        let of_baseline = before.1.too_much_ns(&now);
        let of_candidate = match &mut self.control {
            None => of_baseline,
            Some(control) => {
                let now = usual_times(memory, control, kind, &mut draw, true)?;
                before.0.too_much_ns(&now)
            }
        };
        Ok((of_candidate, of_baseline))
    }

    /// Ends every process, or keeps those of trusted programs loaded.
    pub(super) fn finish(mut self) {
        self.end_timing(QuietHost::default());
        let Self { context, candidate, mut baseline, control, .. } = self;
        // A process that is to be kept has to listen again.
        let listens = baseline.process.thaw().and_then(|()| baseline.leave_windows());
        candidate.finish(context);
        if let Some(control) = control {
            control.finish(context);
        }
        match listens {
            Ok(()) => baseline.finish(context),
            Err(_) => drop(baseline),
        }
    }
}

fn bytes_of(tensors: &[ConcreteTensor]) -> u64 {
    tensors.iter().map(ConcreteTensor::size_bytes).sum()
}

fn most_calls(shapes: &ConcreteShapes) -> usize {
    let call_bytes = bytes_of(&shapes.inputs) + bytes_of(&shapes.outputs);
    usize::try_from(MAX_ROTATED_BYTES / call_bytes.max(1)).unwrap_or(MAX_CALLS).clamp(1, MAX_CALLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn short_calls_share_a_window_and_long_ones_have_their_own() {
        for (call_ns, usual, most) in
            [(5_000.0, 64, 64), (50_000.0, 20, 64), (200_000.0, 5, 25), (400_000.0, 1, 12), (5e6, 1, 1)]
        {
            assert_eq!(Calls::new(call_ns, MIB), Calls { usual, most }, "{call_ns} ns");
        }
    }

    #[test]
    fn room_bounds_the_calls_of_a_window() {
        assert_eq!(Calls::new(5_000.0, u64::MAX), Calls { usual: 1, most: 1 });
        let by_room = usize::try_from(MAX_ROTATED_BYTES / (64 * MIB)).unwrap_or(0).clamp(1, MAX_CALLS);
        assert_eq!(Calls::new(5_000.0, 64 * MIB).most, by_room);
        assert_eq!(Calls::new(5_000.0, 0).most, MAX_CALLS);
    }

    #[test]
    fn a_much_faster_candidate_gets_more_calls() {
        let calls = Calls::new(200_000.0, MIB);
        assert_eq!((calls.choose(100_000.0, 200_000.0), calls.choose(10_000.0, 200_000.0)), (5, 25));
        assert_eq!(Calls::new(2e6, MIB).choose(1.5e6, 2e6), 1);
        for candidate_ns in [100.0, 1e6] {
            assert_eq!(
                Calls::chosen(5).choose(candidate_ns, 200_000.0),
                5,
                "the next pair of processes has equal windows"
            );
        }
    }
}
