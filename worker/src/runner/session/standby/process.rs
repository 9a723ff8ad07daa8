//! What a process on standby can do that others cannot: wait for a program, be given one, and rest between steps.

use std::path::Path;
use std::time::Duration;

use nightshift_protocol::task::TorchSpec;
use nightshift_toolchain::Host;

use super::{Grant, Kind, OF_SPARE, OwnMemory};
use crate::runner::message::Request;
use crate::runner::plan::RunnerPlan;
use crate::runner::session::{
    Arena, DeviceUse, LOAD_EXTRA_MS, Launched, Session, SessionError, SessionOptions, Stage, os, plan_of,
};
use nightshift_sandbox::access::temporary_folder;
use nightshift_sandbox::process::CancelFlag;

/// How long a library may stay loaded, however often it is asked for.
const MAX_AGE: Duration = Duration::from_mins(15);

/// Largest memory shared with a process that is kept, in bytes.
pub(super) const MAX_ARENA_BYTES: u64 = 1 << 30;

/// An arena may be longer than what its tensors take by one part in so many, without being counted for it.
const SPARE_PART_OF_ARENA: usize = 8;

/// The name of a library in the folder of the process that waited for it.
const LIBRARY_NAME: &str = "library.so";

/// The same of a file of Python.
const PROGRAM_NAME: &str = "program.py";

impl Session {
    /// A process that takes hold of the device and knows of no library; it can read a folder of its own below `scratch`. Its
    /// arena is good for tensors of so many bytes.
    pub(super) fn launch_empty(
        host: &Host,
        scratch: &Path,
        kind: &Kind,
        arena_bytes: u64,
    ) -> Result<Launched, SessionError> {
        let folder = temporary_folder(scratch, "standby-").map_err(os("making a folder"))?;
        let device = DeviceUse { access: kind.access.clone(), libraries: Vec::new() };
        let (name, nothing) = (if kind.python { PROGRAM_NAME } else { LIBRARY_NAME }, TorchSpec::default());
        let library = folder.path().join(name);
        let options = SessionOptions {
            library: &library,
            torch: kind.python.then_some(&nothing),
            shapes: &[],
            double: false,
            memory_bytes: 0,
            call_timeout_ms: 0,
            core: None,
            require_sandbox: false,
            device: Some(&device),
            queues: OF_SPARE,
            stock_bytes: 0,
        };
        let mut plan = plan_of(host, library.clone(), &options)?;
        plan.total_bytes = plan.total_bytes.max(usize::try_from(arena_bytes).unwrap_or(0));
        let readable = folder.path().to_path_buf();
        let mut session = Self::begin(host, plan, readable, &options, &CancelFlag::default())?;
        session.folder = Some(folder);
        let (memory_bytes, require_sandbox) = (u64::MAX, false);
        Ok(Launched(Stage::Starting { session: Box::new(session), memory_bytes, require_sandbox }))
    }

    /// Gives an empty process its library and its shapes.
    pub(super) fn take(
        &mut self,
        host: &Host,
        options: &SessionOptions<'_>,
        cancel: &CancelFlag,
    ) -> Result<(), SessionError> {
        self.admit(options.require_sandbox)?;
        let library = self.plan.library.clone();
        std::fs::copy(options.library, &library).map_err(os("copying the library"))?;
        let plan: RunnerPlan = plan_of(host, library, options)?;
        let fits = plan.total_bytes <= self.arena.size_bytes();
        if !fits {
            self.arena = Arena::new(plan.total_bytes, plan.on_device).map_err(os("making the shared memory"))?;
        }
        // The step was counted with what its own program takes: what there is beyond that stays counted by itself.
        if self.arena.size_bytes() <= plan.total_bytes + plan.total_bytes / SPARE_PART_OF_ARENA {
            self.own.machine = None;
        }
        let (held, of_call) = (self.stock_bytes, plan.arena_bytes());
        if held <= of_call + options.stock_bytes {
            self.own.device = None;
        }
        self.stock_bytes = held.saturating_sub(of_call);
        self.call_timeout_ms = options.call_timeout_ms;
        self.cancel = cancel.clone();
        self.plan = plan.clone();
        let request = Request::Take { nonce: self.nonces.draw(), plan: Box::new(plan) };
        let limit_ms = self.call_timeout_ms + LOAD_EXTRA_MS;
        if fits { self.ask(&request, limit_ms) } else { self.ask_with_arena(&request, limit_ms) }?;
        self.weigh(options.memory_bytes)
    }

    /// Makes ready for another step: with its first shape, and none of the tensors of the step before.
    pub(super) fn wake(&mut self, cancel: &CancelFlag) -> Result<(), SessionError> {
        self.cancel = cancel.clone();
        self.peak_bytes = 0;
        // The step was counted with it.
        self.own.device = None;
        self.shape(0)
    }

    /// Bytes of the device's memory that it would be good to keep between steps.
    pub(super) fn stock_bytes(&self) -> u64 {
        self.stock_bytes
    }

    /// Memory that it has beside that of a step.
    pub(super) fn own(&self) -> &OwnMemory {
        &self.own
    }

    /// A process that waits has this memory from now on, so much of it on the device.
    pub(super) fn has(&mut self, own: OwnMemory, on_device_bytes: u64) {
        (self.own, self.stock_bytes) = (own, on_device_bytes);
    }

    /// Gives back what it holds for one step, but for this memory of the device. Whether it can be used again.
    pub(super) fn come_to_rest(&mut self, memory: Option<Grant>) -> bool {
        let Some(purpose) = &self.purpose else { return false };
        let small = self.plan.arena_bytes() <= MAX_ARENA_BYTES;
        if !small || purpose.born.elapsed() > MAX_AGE || self.jail.has_ended() {
            return false;
        }
        (self.params, self.inputs) = (Vec::new(), Vec::new());
        self.cancel = CancelFlag::default();
        let rests = self.rest(memory);
        // What it printed up to here is none of the next step's.
        self.jail.discard_output();
        rests
    }

    /// Keeps this memory of the device, if any, beside what a call's tensors take. Whether it could.
    pub(super) fn rest(&mut self, memory: Option<Grant>) -> bool {
        let keep_bytes = if memory.is_some() { self.stock_bytes } else { 0 };
        let nonce = self.nonces.draw();
        let answer = self.ask(&Request::Rest { nonce, keep_bytes }, self.call_timeout_ms + LOAD_EXTRA_MS);
        let kept_bytes = answer.as_ref().map_or(0, |(reply, _)| reply.kept_bytes.min(keep_bytes));
        (self.shape, self.stock_bytes) = (0, kept_bytes);
        self.own.device = memory.filter(|_| kept_bytes > 0);
        answer.is_ok()
    }
}
