//! Is a program right? It is called on inputs that it has not seen, and its outputs are compared with the reference in double
//! precision.
//!
//! Smaller shapes come first, and a shape that fails is the last one: most wrong programs are found within a few calls.

mod beside_reference;
mod cases;
mod changed;
mod integers;
mod judge;
mod oracle;
mod test_case;

use std::path::PathBuf;

use nightshift_protocol::attempt::CheckReport;
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, ONE_CALL_BYTES, TaskSpec};
use nightshift_protocol::verdict::{ERROR_HISTOGRAM_BOUNDS, ProcessEnd};

use self::cases::Check;
pub(crate) use self::judge::{
    Limits, ReferenceError, SMALLEST_REFERENCE_ERROR, all_finite, compare_output, compare_outputs, fingerprint,
};
pub(crate) use self::oracle::{LaunchedOracle, Oracle, OracleError, REFERENCE_FAILED, rounding_error, with_reason};
use self::test_case::{Mattered, Stop};
use crate::memory::{DeviceMemory, Memory, MemoryError};
use crate::phases::PhaseTimer;
use crate::program::context::{ExecutionContext, Place};
use crate::program::{Launched, Program, ProgramFile, ProgramOptions, shared_bytes};
use crate::seeds::SecretSeeds;

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

/// Checks a program. A wrong answer, a crash or a hang is a report; a failure concerns the machine or the reference. Blocks: call it
/// from a thread of its own.
pub fn check(
    context: &ExecutionContext<'_>,
    spec: &TaskSpec,
    libraries: &Libraries,
    require_sandbox: bool,
    seeds: &mut SecretSeeds,
) -> Result<CheckReport, StepFailure> {
    match context.place {
        Place::Host(memory) => check_with(context, memory, spec, libraries, require_sandbox, seeds),
        Place::Device(device) => {
            let memory = DeviceMemory::new(std::sync::Arc::clone(&device.gpu)).map_err(MemoryError::from)?;
            check_with(context, &memory, spec, libraries, require_sandbox, seeds)
        }
    }
}

fn check_with<M: Memory>(
    context: &ExecutionContext<'_>,
    memory: &M,
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
    let mut timer = PhaseTimer::start();
    // On the host a process is cheap, and each shape gets a new one; on a device opening it takes longer than most checks.
    let groups: Vec<&[ConcreteShapes]> =
        if context.device().is_some() { vec![&shapes] } else { shapes.chunks(1).collect() };
    let mut mattered = Mattered::default();
    for (group, together) in groups.into_iter().enumerate() {
        let options =
            ProgramOptions { spec, shapes: together, calls: 1, core: None, require_sandbox, may_be_resident: true };
        let mut check = Check {
            context,
            memory,
            spec,
            libraries,
            options,
            calls: calls_of(together),
            is_first: group == 0,
            mattered: &mut mattered,
            seeds: &mut *seeds,
            report: &mut report,
            timer: &mut timer,
        };
        match check.run() {
            Ok(()) => {}
            Err(Stop::Wrong) => break,
            Err(Stop::Candidate(error)) => {
                report.end = error.into_end()?;
                // A GPU that is lost ends every program: that is no verdict on this one.
                memory.null_operation()?;
                break;
            }
            Err(Stop::Failure(failure)) => return Err(failure),
        }
    }
    report.cost = timer.phases();
    Ok(report)
}

/// Returns for how many calls a candidate gets buffers: two, so that a case can use other addresses, unless tensors are large.
fn calls_of(shapes: &[ConcreteShapes]) -> usize {
    if shapes.iter().any(|shapes| shapes.size_bytes() >= ONE_CALL_BYTES) { 1 } else { 2 }
}

/// Returns the shapes of a task, the smallest first.
///
/// # Errors
/// When a shape cannot be used.
pub fn smallest_first(spec: &TaskSpec) -> Result<Vec<ConcreteShapes>, StepFailure> {
    let shapes = spec.all_shapes();
    let mut shapes = shapes.map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    shapes.sort_by_key(ConcreteShapes::size_bytes);
    Ok(shapes)
}

/// Starts the process of a program.
pub(crate) fn launch(
    context: &ExecutionContext<'_>,
    file: &ProgramFile<'_>,
    options: &ProgramOptions<'_>,
) -> Result<Launched, crate::program::ProgramError> {
    Launched::start(context, file, options, shared_bytes(file, options))
}

/// Gives the process of a program its memory, and loads the program.
pub(crate) fn open<M: Memory>(
    context: &ExecutionContext<'_>,
    memory: &M,
    launched: Launched,
    file: &ProgramFile<'_>,
    options: &ProgramOptions<'_>,
) -> Result<Program<M>, crate::program::ProgramError> {
    let mut program = Program::attach(memory, launched, file, options)?;
    program.load(context, file, options.spec.torch.as_ref())?;
    Ok(program)
}
