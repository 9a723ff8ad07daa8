//! Calls a program once, to get the message of its failure.

use std::path::Path;

use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::TaskSpec;

use crate::check::{launch, open};
use crate::draw::{Draw, InputKind};
use crate::lock::DeviceMode;
use crate::memory::{DeviceMemory, Memory, MemoryError};
use crate::program::context::{ExecutionContext, Place};
use crate::program::{ProgramError, ProgramFile, ProgramOptions};
use crate::seeds::SecretSeeds;

/// Calls a program once, at the default shape. Returns what it printed when the call failed, and nothing when it went well.
pub fn try_call(
    context: &ExecutionContext<'_>,
    spec: &TaskSpec,
    program: &Path,
    seeds: &mut SecretSeeds,
) -> Result<Option<String>, StepFailure> {
    match context.place {
        Place::Host(memory) => try_in(context, memory, spec, program, seeds),
        Place::Device(device) => {
            let memory = DeviceMemory::new(std::sync::Arc::clone(&device.gpu)).map_err(MemoryError::from)?;
            try_in(context, &memory, spec, program, seeds)
        }
    }
}

fn try_in<M: Memory>(
    context: &ExecutionContext<'_>,
    memory: &M,
    spec: &TaskSpec,
    program: &Path,
    seeds: &mut SecretSeeds,
) -> Result<Option<String>, StepFailure> {
    let shapes =
        spec.default_shapes().map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
    let file = ProgramFile::candidate(program);
    let options = ProgramOptions {
        spec,
        shapes: std::slice::from_ref(&shapes),
        calls: 1,
        core: None,
        require_sandbox: false,
        may_be_resident: false,
    };
    let started = (|| -> Result<_, ProgramError> {
        let mut launched = launch(context, &file, &options)?;
        launched.load_runtime()?;
        let _guard = context.lock(DeviceMode::Driver)?;
        launched.make_ready()?;
        open(context, memory, launched, &file, &options)
    })();
    let mut program = match started {
        Ok(program) => program,
        Err(error) => return Ok(Some(error.into_end()?.describe())),
    };
    let mut call = || -> Result<(), ProgramError> {
        let guard = context.lock(DeviceMode::Work)?;
        let weights = Draw::all(shapes.params.len(), seeds.draw(), InputKind::Declared);
        let inputs = Draw::all(shapes.inputs.len(), seeds.draw(), InputKind::Declared);
        program.init(memory, &weights)?;
        program.make_call_ready(memory, &inputs)?;
        drop(guard);
        program.call_in_turns(context)
    };
    let called = call();
    let printed = program.printed();
    program.finish(context);
    match called {
        Ok(()) => Ok(None),
        // A failure of the infrastructure is no message of the program.
        Err(error) => error.into_end().map(|_| Some(printed)),
    }
}
