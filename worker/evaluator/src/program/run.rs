//! One program with its memory: what it is given, its calls, and what it left behind.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nightshift_protocol::machine::SandboxReport;
use nightshift_protocol::task::{ConcreteShapes, ConcreteTensor, TRIMMED_BYTES, TorchSpec};
use nightshift_protocol::verdict::ProcessEnd;

use super::ProgramError;
use super::context::ExecutionContext;
use super::file::{Arithmetic, ProgramFile, ProgramOptions, layouts};
use super::pool::{Slot, TrustedProgram};
use super::process::{Process, ProcessKind, ProcessLimits, Window};
use crate::breach::Breach;
use crate::draw::Draw;
use crate::layout::{Layout, Placed};
use crate::lock::DeviceMode;
use crate::memory::{Memory, MemoryError, Operand};
use crate::runner::control::WindowKind;
use crate::runner::message::{ProgramPlan, Request};
use crate::seeds::SecretSeeds;

/// Added to the time limit of a call for building a model, in milliseconds.
const BUILD_MODEL_EXTRA_MS: u64 = 60_000;

/// Added to the time limit of a call for everything that surrounds it, in milliseconds.
const EXTRA_MS: u64 = 2_000;

/// A reference may take this many times what a candidate may take, in time and memory: it is naive on purpose, and the truth is
/// twice as wide.
const TRUSTED_FACTOR: u64 = 4;

/// One program with its memory.
#[derive(Debug)]
pub(crate) struct Program<M: Memory> {
    pub(crate) process: Process,
    shared: M::Shared,
    layouts: Vec<Layout>,
    shapes: Vec<ConcreteShapes>,
    shape: usize,
    /// What the weights are.
    params: Option<Vec<Draw>>,
    /// What the inputs of each call are.
    inputs: Vec<Option<Vec<Draw>>>,
    guard_seed: u64,
    poison: u32,
    nonces: SecretSeeds,
    call_timeout_ms: u64,
    /// Whether the program was called before: what `PyTorch` and its compilers do at a first call takes seconds.
    called: bool,
    resident: Option<TrustedProgram>,
    slot: Option<Slot>,
}

/// A program whose process may still be starting.
#[derive(Debug)]
pub(crate) struct Launched {
    process: Process,
    slot: Option<Slot>,
    /// Whether the program is loaded already.
    is_loaded: bool,
    resident: Option<TrustedProgram>,
}

impl Launched {
    /// Starts the process of a program, or takes one that waits.
    pub(crate) fn start(
        context: &ExecutionContext<'_>,
        file: &ProgramFile<'_>,
        options: &ProgramOptions<'_>,
        shared_bytes: usize,
    ) -> Result<Self, ProgramError> {
        let device = context.device();
        let kind = ProcessKind { python: file.is_python(), device: device.map(|device| device.access.clone()) };
        let factor = if file.trusted { TRUSTED_FACTOR } else { 1 };
        let limits = ProcessLimits {
            memory_bytes: options.spec.limits.memory_bytes.saturating_mul(factor),
            shared_bytes: u64::try_from(shared_bytes).unwrap_or(u64::MAX),
            core: options.core,
        };
        let Some(pool) = context.pool() else {
            let process = Process::launch(context.host, kind, limits, context.cancel)?;
            return Ok(Self { process, slot: None, is_loaded: false, resident: None });
        };
        let torch = options.spec.torch.as_ref().filter(|_| file.is_python());
        let trusted = if file.trusted && options.may_be_resident {
            TrustedProgram::of(file.path, torch, (file.is_double(), file.arithmetic == Arithmetic::Strict))
        } else {
            None
        };
        if let Some((mut process, slot)) =
            trusted.as_ref().and_then(|program| pool.checkout_resident(program, context.cancel))
        {
            process.adopt(limits, context.cancel);
            return Ok(Self { process, slot: Some(slot), is_loaded: true, resident: trusted });
        }
        let (mut process, slot) = pool.checkout(&kind, context.cancel)?;
        process.adopt(limits, context.cancel);
        Ok(Self { process, slot: Some(slot), is_loaded: false, resident: trusted })
    }

    /// Waits until a Python process has loaded `PyTorch`, which concerns no device.
    pub(crate) fn load_runtime(&mut self) -> Result<(), ProgramError> {
        if self.process.kind.python { self.process.load_runtime() } else { Ok(()) }
    }

    /// Waits until the process can load a program.
    pub(crate) fn make_ready(&mut self) -> Result<(), ProgramError> {
        self.process.make_ready()
    }
}

impl<M: Memory> Program<M> {
    /// Gives a process its memory. The program is not loaded yet, unless it was before.
    pub(crate) fn attach(
        memory: &M,
        launched: Launched,
        file: &ProgramFile<'_>,
        options: &ProgramOptions<'_>,
    ) -> Result<Self, ProgramError> {
        let Launched { mut process, slot, is_loaded, resident } = launched;
        if options.require_sandbox && !process.sandbox().is_sufficient() {
            return Err(ProgramError::Insufficient(Box::new(process.sandbox().clone())));
        }
        let layouts = layouts(file, options);
        let size = layouts.iter().map(|layout| layout.total_bytes).max().unwrap_or(0);
        let shared = memory.allocate(size)?;
        let factor = if file.trusted { TRUSTED_FACTOR } else { 1 };
        let call_timeout_ms = options.spec.limits.call_timeout_ms.saturating_mul(factor);
        process.share_memory(u64::try_from(size).unwrap_or(u64::MAX))?;
        let exported = memory.export(&shared)?;
        process.map(size, exported, layouts.clone(), call_timeout_ms + EXTRA_MS)?;
        let nonces = SecretSeeds::from_os().map_err(|source| nightshift_sandbox::process::ProcessError::Os {
            what: "drawing random numbers".to_owned(),
            source,
        })?;
        let calls = options.calls.max(1);
        Ok(Self {
            process,
            shared,
            layouts,
            shapes: options.shapes.to_vec(),
            shape: 0,
            params: None,
            inputs: vec![None; calls],
            guard_seed: 0,
            poison: 0,
            nonces,
            call_timeout_ms,
            called: is_loaded,
            resident,
            slot,
        })
    }

    /// Exchanges the memory for one with buffers of another number of calls. Weights have to be handed over anew.
    pub(crate) fn resize(
        &mut self,
        memory: &M,
        file: &ProgramFile<'_>,
        options: &ProgramOptions<'_>,
    ) -> Result<(), ProgramError> {
        let layouts = layouts(file, options);
        let size = layouts.iter().map(|layout| layout.total_bytes).max().unwrap_or(0);
        let shared = memory.allocate(size)?;
        self.process.share_memory(u64::try_from(size).unwrap_or(u64::MAX))?;
        let (exported, limit_ms) = (memory.export(&shared)?, self.call_timeout_ms + EXTRA_MS);
        self.process.map(size, exported, layouts.clone(), limit_ms)?;
        (self.shared, self.layouts, self.shape) = (shared, layouts, 0);
        (self.params, self.inputs) = (None, vec![None; options.calls.max(1)]);
        Ok(())
    }

    /// Loads the program.
    pub(crate) fn load(
        &mut self,
        context: &ExecutionContext<'_>,
        file: &ProgramFile<'_>,
        torch: Option<&TorchSpec>,
    ) -> Result<(), ProgramError> {
        if self.called {
            return Ok(());
        }
        let is_python = file.is_python();
        let program = self.process.receive_program(file.path)?;
        let libraries: Vec<PathBuf> = context.device().map(|device| device.libraries.clone()).unwrap_or_default();
        let torch = torch.filter(|_| is_python).map(|torch| TorchSpec { problems: Vec::new(), ..torch.clone() });
        let plan = ProgramPlan {
            program,
            libraries: if is_python { Vec::new() } else { libraries },
            torch,
            double: file.is_double(),
            strict: file.arithmetic == Arithmetic::Strict,
        };
        let extra_ms = if is_python { BUILD_MODEL_EXTRA_MS } else { EXTRA_MS };
        let reply = self.process.ask(Request::Load(plan), None, self.call_timeout_ms + extra_ms)?;
        self.loaded(reply.load_error)
    }

    fn loaded(&mut self, error: Option<String>) -> Result<(), ProgramError> {
        let Some(message) = error else { return Ok(()) };
        let message = self.process.without_path(&message);
        Err(self.process.give_up(ProcessEnd::LoadFailed { message }))
    }

    /// The layout in use.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layouts[self.shape]
    }

    /// Isolation of the process.
    pub(crate) fn sandbox(&self) -> &SandboxReport {
        self.process.sandbox()
    }

    /// Uses another one of the shapes from now on. Weights have to be handed over anew.
    pub(crate) fn select(&mut self, number: usize) -> Result<(), ProgramError> {
        if number != self.shape {
            self.process.ask(Request::Shape { number }, None, self.call_timeout_ms + EXTRA_MS)?;
            (self.shape, self.params) = (number, None);
            self.inputs.fill(None);
        }
        Ok(())
    }

    /// Hands the weights over. What the program prepared from earlier ones is freed.
    pub(crate) fn init(&mut self, memory: &M, params: &[Draw]) -> Result<(), ProgramError> {
        self.guard_seed = self.nonces.draw();
        memory.set_guards(&mut self.shared, &self.layouts[self.shape], self.guard_seed)?;
        let (layout, shapes) = (&self.layouts[self.shape], &self.shapes[self.shape]);
        draw_all(memory, &mut self.shared, &layout.params, &shapes.params, params)?;
        self.params = Some(params.to_vec());
        memory.null_operation()?;
        let extra_ms = if self.process.kind.python { BUILD_MODEL_EXTRA_MS } else { EXTRA_MS };
        let reply = self.process.ask(Request::Init {}, None, self.call_timeout_ms + extra_ms)?;
        self.loaded(reply.load_error)?;
        self.process.succeeded("ns_init", reply.status)
    }

    /// Puts the inputs of a call in place, and fills its outputs with a pattern that no number has.
    pub(crate) fn prepare(&mut self, memory: &M, call: usize, inputs: &[Draw]) -> Result<(), ProgramError> {
        self.give_inputs(memory, call, inputs)?;
        let layout = &self.layouts[self.shape];
        // Where outputs take the place of inputs, the inputs lie there before the call.
        let outputs = if layout.reuses_inputs { &[][..] } else { &layout.call(call).outputs };
        for output in outputs {
            memory.fill(&mut self.shared, output.region, self.poison)?;
        }
        Ok(())
    }

    /// Puts the inputs of a call in place, and leaves its outputs as they are.
    pub(crate) fn give_inputs(&mut self, memory: &M, call: usize, inputs: &[Draw]) -> Result<(), ProgramError> {
        let (layout, shapes) = (&self.layouts[self.shape], &self.shapes[self.shape]);
        let (buffers, slot) = (layout.call(call), call % layout.calls.len());
        draw_all(memory, &mut self.shared, &buffers.inputs, &shapes.inputs, inputs)?;
        // Inputs in whose place outputs come are not there to be looked at after the call.
        self.inputs[slot] = (!layout.reuses_inputs).then(|| inputs.to_vec());
        Ok(())
    }

    /// Draws another pattern, and fills the workspace with it, whose content is unspecified.
    pub(crate) fn renew_poison(&mut self, memory: &M) -> Result<(), ProgramError> {
        // A quiet NaN in 32 bits and, repeated, in 64; its upper half is one in both formats of 16 bits.
        let random = self.nonces.draw().to_le_bytes();
        self.poison = u32::from_le_bytes([random[0], random[1], 0xFC, 0x7F]);
        memory.fill(&mut self.shared, self.layouts[self.shape].workspace, self.poison)?;
        Ok(())
    }

    /// The time limit of so many calls in milliseconds.
    fn limit_ms(&self, calls: usize) -> u64 {
        let calls = u64::try_from(calls.max(1)).unwrap_or(u64::MAX);
        let first_ms = if self.process.kind.python && !self.called { BUILD_MODEL_EXTRA_MS } else { 0 };
        self.call_timeout_ms.saturating_mul(calls).saturating_add(first_ms)
    }

    /// Calls the program so many times, and waits for the answer.
    pub(crate) fn call(&mut self, count: usize) -> Result<Window, ProgramError> {
        let (limit_ms, started) = (self.limit_ms(count), Instant::now());
        let reply = self.process.ask(Request::Call { count }, None, limit_ms)?;
        let elapsed = started.elapsed();
        self.process.succeeded("ns_run", reply.status)?;
        self.called = true;
        Ok(Window { elapsed, events_ns: reply.events_ns })
    }

    /// Calls the program once, in turns with other users of the device: the call takes minutes, mostly on the host. No guard of the
    /// device may be held.
    pub(crate) fn call_in_turns(&mut self, context: &ExecutionContext<'_>) -> Result<(), ProgramError> {
        let reply = self.process.ask_in_turns(Request::Call { count: 1 }, self.limit_ms(1), context)?;
        self.process.succeeded("ns_run", reply.status)?;
        self.called = true;
        Ok(())
    }

    /// Calls the program once.
    pub(crate) fn call_once(&mut self) -> Result<(), ProgramError> {
        self.call(1)?;
        Ok(())
    }

    /// Calls the program once. Of its outputs only what is complete in the order of the stream gets to the evaluator. A model of
    /// `PyTorch` is always called so: what it returns is copied to the evaluator's memory by its stream.
    pub(crate) fn call_in_order(&mut self) -> Result<(), ProgramError> {
        if self.process.kind.python {
            return self.call_once();
        }
        let reply = self.process.ask(Request::CallInOrder {}, None, self.limit_ms(1))?;
        self.process.succeeded("ns_run", reply.status)
    }

    /// Carries out everything that surrounds so many calls, without the program.
    pub(crate) fn empty(&mut self, count: usize) -> Result<Window, ProgramError> {
        let (limit_ms, started) = (self.limit_ms(count), Instant::now());
        self.process.ask(Request::Empty { count }, None, limit_ms)?;
        Ok(Window { elapsed: started.elapsed(), events_ns: 0 })
    }

    /// The same through the control page, where the program waits for it.
    pub(crate) fn window(&mut self, kind: WindowKind, count: usize) -> Result<Window, ProgramError> {
        let limit_ms = self.limit_ms(count);
        let kind = if self.process.kind.python { kind.for_python() } else { kind };
        self.process.window(kind, count, limit_ms)
    }

    /// Lets the process follow the control page.
    pub(crate) fn enter_windows(&mut self) -> Result<(), ProgramError> {
        self.process.enter_windows()
    }

    /// Lets the process wait for messages again.
    pub(crate) fn leave_windows(&mut self) -> Result<(), ProgramError> {
        let limit_ms = self.limit_ms(1);
        self.process.leave_windows(limit_ms)
    }

    /// Returns the outputs of a call, in their order.
    pub(crate) fn outputs(&self, call: usize) -> Vec<Operand<'_, M>> {
        self.layout().call(call).outputs.iter().map(|place| Operand::Shared(&self.shared, place)).collect()
    }

    /// Copies the outputs of a call to private memory.
    pub(crate) fn keep_outputs(&self, memory: &M, call: usize) -> Result<Vec<M::Copied>, ProgramError> {
        let places = &self.layout().call(call).outputs;
        Ok(places.iter().map(|place| memory.keep(&self.shared, place)).collect::<Result<Vec<_>, _>>()?)
    }

    /// Looks for rules of the contract that the last calls broke, on the buffers of so many calls. The program must not run
    /// meanwhile. Repairs what it changed: later calls are judged by themselves.
    pub(crate) fn breaches(&mut self, memory: &M, calls: usize) -> Result<Vec<Breach>, ProgramError> {
        let (layout, shapes) = (&self.layouts[self.shape], &self.shapes[self.shape]);
        let mut breaches = Vec::new();
        let of_calls = (0..calls.min(layout.calls.len()))
            .map(|call| (&layout.call(call).inputs, &shapes.inputs, self.inputs[call].as_ref()));
        let given = std::iter::once((&layout.params, &shapes.params, self.params.as_ref())).chain(of_calls);
        for (places, tensors, draws) in given {
            for ((place, tensor), draw) in places.iter().zip(tensors).zip(draws.into_iter().flatten()) {
                if !memory.holds(&self.shared, place, tensor, *draw)? {
                    breaches.push(Breach::InputModified { tensor: place.name.clone() });
                    memory.draw(&mut self.shared, place, tensor, *draw)?;
                }
            }
        }
        for buffer in memory.broken_guards(&self.shared, layout, self.guard_seed)? {
            breaches.push(Breach::GuardOverwritten { buffer });
        }
        for call in 0..calls.min(layout.calls.len()) {
            for place in &layout.call(call).outputs {
                let elements = memory.unwritten(&self.shared, place, self.poison)?;
                if elements > 0 {
                    breaches.push(Breach::OutputNotWritten { tensor: place.name.clone(), elements });
                }
            }
        }
        if breaches.iter().any(|breach| matches!(breach, Breach::GuardOverwritten { .. })) {
            self.guard_seed = self.nonces.draw();
            memory.set_guards(&mut self.shared, &self.layouts[self.shape], self.guard_seed)?;
        }
        Ok(breaches)
    }

    /// Lets a device free what the program does not use, where its tensors are large. For trusted programs.
    pub(crate) fn trim_where_large(&mut self) -> Result<(), ProgramError> {
        if self.shapes[self.shape].size_bytes() >= TRIMMED_BYTES { self.trim() } else { Ok(()) }
    }

    fn trim(&mut self) -> Result<(), ProgramError> {
        self.process.ask(Request::Trim {}, None, self.call_timeout_ms + EXTRA_MS)?;
        Ok(())
    }

    /// Puts inputs in place and calls the program once, untimed.
    pub(crate) fn call_on(&mut self, memory: &M, inputs: &[Draw]) -> Result<(), ProgramError> {
        self.make_call_ready(memory, inputs)?;
        self.call(1)?;
        Ok(())
    }

    /// Everything of a call before the call itself.
    pub(crate) fn make_call_ready(&mut self, memory: &M, inputs: &[Draw]) -> Result<(), ProgramError> {
        self.renew_poison(memory)?;
        self.prepare(memory, 0, inputs)?;
        memory.null_operation()?;
        Ok(())
    }

    /// Returns the last lines that the program printed.
    pub(crate) fn printed(&self) -> String {
        self.process.printed()
    }

    /// Ends the program, or keeps the process of a trusted one loaded for its next use.
    pub(crate) fn finish(mut self, context: &ExecutionContext<'_>) {
        let kept = self.resident.take().zip(self.slot.take()).zip(context.pool());
        if let Some(((program, slot), pool)) = kept
            && !self.process.is_over()
            && self.release().is_ok()
        {
            pool.keep_resident(self.process, program, slot, context.cancel);
            return;
        }
        let _guard = context.lock(DeviceMode::Driver);
        drop(self);
    }

    /// Lets the process give the memory back.
    fn release(&mut self) -> Result<(), ProgramError> {
        self.process.ask(Request::Unmap {}, None, self.call_timeout_ms + EXTRA_MS)?;
        self.trim()
    }

    /// Processor time that the process took so far, where the kernel tells.
    pub(crate) fn processor_time(&self) -> Option<Duration> {
        self.process.processor_time()
    }
}

/// Draws tensors at their places.
fn draw_all<M: Memory>(
    memory: &M,
    shared: &mut M::Shared,
    places: &[Placed],
    tensors: &[ConcreteTensor],
    draws: &[Draw],
) -> Result<(), MemoryError> {
    let mut each = places.iter().zip(tensors).zip(draws);
    each.try_for_each(|((place, tensor), draw)| memory.draw(shared, place, tensor, *draw))
}
