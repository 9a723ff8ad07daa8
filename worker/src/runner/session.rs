//! The parent's side: one library, one shape, one process.

mod error;
mod grounds;
mod python;
mod standby;
mod watch;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nightshift_protocol::machine::SandboxReport;
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_toolchain::Host;
use tempfile::TempDir;

pub use self::error::SessionError;
pub(crate) use self::grounds::{Beside, Enter};
pub use self::grounds::{DeviceUse, Grounds, SessionOptions};
pub(crate) use self::python::{is_python, python_folders, replay_torch_plan};
use self::python::{own_folder, torch_plan};
use self::standby::{OwnMemory, Purpose};
pub use self::standby::{Place, Standby, Withheld};
pub(crate) use self::standby::{SHARE_BYTES, SHARES_PER_CONTEXT, Turn};
use self::watch::OUTPUT_BYTES;
use super::arena::Arena;
use super::breach::Breach;
use super::gate::Stay;
use super::message::{Reply, Request};
use super::plan::{Doubled, Layout, RunnerPlan};
use crate::inputs::{SecretSeeds, TensorData};
use nightshift_sandbox::process::{CancelFlag, Jail, Limits, ProcessError, SandboxChoice, WATCH_INTERVAL, pair};
use nightshift_sandbox::{HostedKind, HostedProcess, JailPlan, Work};

/// How long a runner may take to restrict itself.
const START_LIMIT: Duration = Duration::from_secs(10);

/// How long the taking hold of a device may take, in milliseconds: a machine with many devices takes its time.
const OPEN_LIMIT_MS: u64 = 30_000;

/// Processes and threads of a Python with `PyTorch`.
const PYTHON_THREADS: u64 = 64;

/// Added to the time limit of a call for building a model, in milliseconds.
const BUILD_MODEL_EXTRA_MS: u64 = 60_000;

/// Added to the time limit of a call for loading the library.
const LOAD_EXTRA_MS: u64 = 2_000;

/// Processor time of a runner in seconds: a backstop behind the time limit of each call.
const CPU_LIMIT_S: u64 = 3_600;

/// Times of one call in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTime {
    /// As the runner's clock saw it; on a device, between the device's own events around the call.
    pub inside_ns: u64,
    /// From sending the request to receiving the answer, by the parent's clock.
    pub outside_ns: u64,
    /// Processor time that the process took since its previous answer, as the kernel counts it; none where it does not
    /// tell. Between answer and request a program has nothing to do: what it takes there, it took for this call or from
    /// somebody else's. On a device, until nothing ran on it any more, on whatever stream.
    pub processor_ns: Option<u64>,
}

/// One finished call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its times.
    pub time: CallTime,
    /// The outputs, taken out of the shared memory at once.
    pub outputs: Vec<TensorData>,
    /// Broken rules.
    pub breaches: Vec<Breach>,
}

/// A process that is getting ready, or that was ready before it was asked for.
#[derive(Debug)]
pub struct Launched(Stage);

#[derive(Debug)]
enum Stage {
    Starting { session: Box<Session>, memory_bytes: u64, require_sandbox: bool },
    Ready(Box<Session>),
}

impl Launched {
    /// A process that is ready.
    fn of(session: Session) -> Self {
        Self(Stage::Ready(Box::new(session)))
    }

    /// Whether it has all that it waits for.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(&self.0, Stage::Ready(_))
    }

    /// Whether it is a Python that may still be loading what it needs, and has nothing to do with a device until it is waited
    /// for.
    pub(crate) fn is_loading(&self) -> bool {
        matches!(&self.0, Stage::Starting { session, .. } if session.plan.torch.is_some())
    }

    /// Waits until a Python has loaded what it needs. It has not taken hold of a device then.
    pub(crate) fn load(mut self) -> Result<Self, SessionError> {
        if self.is_loading()
            && let Stage::Starting { session, require_sandbox, .. } = &mut self.0
        {
            session.wait_until_restricted()?;
            session.admit(*require_sandbox)?;
            session.load_python()?;
        }
        Ok(self)
    }

    /// Waits until it is restricted and, on a device, has taken hold of it.
    pub fn wait(self) -> Result<Session, SessionError> {
        let (mut session, memory_bytes, require_sandbox) = match self.0 {
            Stage::Ready(session) => return Ok(*session),
            Stage::Starting { session, memory_bytes, require_sandbox } => (*session, memory_bytes, require_sandbox),
        };
        session.wait_until_restricted()?;
        session.admit(require_sandbox)?;
        if session.plan.torch.is_some() {
            session.open_python()?;
        } else if session.plan.on_device {
            session.open_device()?;
        }
        session.weigh(memory_bytes)?;
        Ok(session)
    }
}

/// How far a process has come with its library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Started,
    Loaded,
    /// What `PyTorch` and its compilers do at a first call takes seconds.
    Called,
}

/// A running library.
#[derive(Debug)]
pub struct Session {
    jail: Jail,
    channel: OwnedFd,
    pub(super) arena: Arena,
    pub(super) plan: RunnerPlan,
    /// Number of the shape in use.
    shape: usize,
    report: SandboxReport,
    params: Vec<TensorData>,
    /// On a device: whether the weights in its memory are known to be wrong.
    weights_stale: bool,
    pub(super) inputs: Vec<TensorData>,
    pub(super) nonces: SecretSeeds,
    canary_seed: u64,
    pub(super) poison: [u8; 8],
    progress: Progress,
    /// Processor time up to the last answer.
    settled_ns: Option<u64>,
    base_private_bytes: u64,
    base_total_bytes: u64,
    peak_bytes: u64,
    memory_bytes: u64,
    pub(super) call_timeout_ms: u64,
    cancel: CancelFlag,
    library: PathBuf,
    /// On a device whose processes are counted: its place among them.
    place: Option<Place>,
    /// Whether what it takes to bring results into the arena is believed to be just that, and not counted.
    discounts_delivery: bool,
    /// What it can be used for again.
    purpose: Option<Box<Purpose>>,
    /// Bytes of the device's memory beside a call's tensors that it has, or will have, for what is kept there.
    stock_bytes: u64,
    /// Memory that it has beside what the step was counted with that uses it, or while none does.
    own: OwnMemory,
    /// Where its library lies, when the process was there before the library.
    folder: Option<TempDir>,
    /// What it may write to.
    _scratch: Option<TempDir>,
}

impl Session {
    /// Starts the process and waits until it is restricted. Nothing of the library runs yet.
    pub fn start(host: &Host, options: &SessionOptions<'_>, cancel: &CancelFlag) -> Result<Self, SessionError> {
        Self::launch(host, options, cancel)?.wait()
    }

    /// Starts the process, and lets it get ready by itself: what takes its time, on a device, can be done side by side.
    pub fn launch(host: &Host, options: &SessionOptions<'_>, cancel: &CancelFlag) -> Result<Launched, SessionError> {
        let library = options.library.canonicalize().map_err(os("finding the library"))?;
        let plan = plan_of(host, library.clone(), options)?;
        let mut session = Self::begin(host, plan, library, options, cancel)?;
        session.call_timeout_ms = options.call_timeout_ms;
        let (memory_bytes, require_sandbox) = (options.memory_bytes, options.require_sandbox);
        Ok(Launched(Stage::Starting { session: Box::new(session), memory_bytes, require_sandbox }))
    }

    /// Starts a process that reads nothing but this path, beside the system's.
    fn begin(
        host: &Host,
        mut plan: RunnerPlan,
        readable: PathBuf,
        options: &SessionOptions<'_>,
        cancel: &CancelFlag,
    ) -> Result<Self, SessionError> {
        let mut nonces = SecretSeeds::from_os().map_err(os("drawing random numbers"))?;
        let arena = Arena::new(plan.total_bytes, plan.on_device).map_err(os("making the shared memory"))?;
        let (channel, theirs) = pair().map_err(os("opening the runner's socket"))?;
        let scratch = match &mut plan.torch {
            Some(torch) if plan.on_device => {
                let (folder, path) = own_folder(host)?;
                torch.scratch = Some(path);
                Some(folder)
            }
            _ => None,
        };
        let jail_plan = JailPlan {
            work: Work::Hosted(hosted(&plan)?),
            scratch: plan.torch.as_ref().and_then(|torch| torch.scratch.clone()),
            read_only: [readable].into_iter().chain(python_folders(host, plan.torch.as_ref())).collect(),
            limits: Limits {
                wall_ms: 0,
                cpu_s: CPU_LIMIT_S,
                memory_bytes: options.memory_bytes,
                file_bytes: 0,
                processes: if plan.torch.is_some() { PYTHON_THREADS } else { 1 },
                output_bytes: OUTPUT_BYTES,
            },
            means: host.jail.means,
            device: options.device.map(|device| device.access.clone().with_queues(options.queues)),
            // Python looks at the processor and at itself, and its address space says nothing about its memory.
            as_tool: plan.torch.is_some(),
        };
        let jail = Jail::start(&host.jail, &jail_plan, &[arena.descriptor(), theirs.as_fd()])?;
        let library = plan.library.clone();
        Ok(Self {
            base_private_bytes: 0,
            base_total_bytes: 0,
            jail,
            channel,
            arena,
            report: SandboxReport::default(),
            shape: 0,
            params: Vec::new(),
            weights_stale: false,
            inputs: Vec::new(),
            canary_seed: nonces.draw(),
            nonces,
            plan,
            poison: [0; 8],
            progress: Progress::Started,
            settled_ns: None,
            peak_bytes: 0,
            memory_bytes: u64::MAX,
            call_timeout_ms: options.call_timeout_ms,
            cancel: cancel.clone(),
            library,
            place: None,
            discounts_delivery: false,
            purpose: None,
            stock_bytes: 0,
            own: OwnMemory::default(),
            folder: None,
            _scratch: scratch,
        })
    }

    fn admit(&self, require_sandbox: bool) -> Result<(), SessionError> {
        if require_sandbox && !self.report.is_sufficient() {
            return Err(SessionError::Insufficient(Box::new(self.report.clone())));
        }
        Ok(())
    }

    /// What a process weighs before anything foreign is in it is not the program's.
    fn weigh(&mut self, memory_bytes: u64) -> Result<(), SessionError> {
        let base = self.jail.measure_memory();
        self.base_private_bytes = base.map_or(0, |resident| resident.private);
        self.base_total_bytes = base.map_or(0, |resident| resident.total);
        self.peak_bytes = 0;
        self.memory_bytes = memory_bytes;
        self.jail.limit_memory(memory_bytes, self.plan.arena_bytes())?;
        Ok(())
    }

    fn wait_until_restricted(&mut self) -> Result<(), SessionError> {
        let deadline = Instant::now() + START_LIMIT;
        while self.jail.report.is_none() && !self.jail.has_ended() {
            if self.cancel.is_cancelled() {
                return Err(ProcessError::Cancelled.into());
            }
            if Instant::now() > deadline {
                return Err(ProcessError::Setup("the runner did not get ready".to_owned()).into());
            }
            self.jail.pump(WATCH_INTERVAL, None)?;
        }
        let Some(report) = self.jail.report.clone() else {
            let reason =
                self.jail.setup_error.take().unwrap_or_else(|| "the runner ended before it was ready".to_owned());
            return Err(ProcessError::Setup(reason).into());
        };
        self.report = report;
        Ok(())
    }

    fn open_device(&mut self) -> Result<(), SessionError> {
        let nonce = self.nonces.draw();
        match self.ask(&Request::Open { nonce }, OPEN_LIMIT_MS) {
            Ok(_) => Ok(()),
            Err(SessionError::Ended(ProcessEnd::DeviceFault { error, during })) => {
                Err(SessionError::Device { error, during })
            }
            Err(SessionError::Ended(end)) => {
                Err(SessionError::Device { error: end.describe(), during: "taking hold of it".to_owned() })
            }
            Err(error) => Err(error),
        }
    }

    /// Takes another one of its shapes for what follows. The weights have to be handed over anew.
    pub fn select(&mut self, shape: usize) -> Result<(), SessionError> {
        if shape == self.shape {
            return Ok(());
        }
        self.shape(shape)
    }

    fn shape(&mut self, shape: usize) -> Result<(), SessionError> {
        let nonce = self.nonces.draw();
        self.ask(&Request::Shape { nonce, layout: shape }, self.call_timeout_ms + LOAD_EXTRA_MS)?;
        self.shape = shape;
        Ok(())
    }

    /// Holds so many bytes of the device's memory, beside a call's tensors, for what is kept there. `PyTorch` keeps what it
    /// allocates; all of it in one piece it could not give back while a single tensor lies there.
    pub(crate) fn hold(&mut self, bytes: u64) -> Result<(), SessionError> {
        if !self.plan.on_device || bytes <= self.stock_bytes {
            return Ok(());
        }
        self.stock_bytes = bytes;
        if self.runs_python() {
            return Ok(());
        }
        let nonce = self.nonces.draw();
        self.ask(&Request::Hold { nonce, bytes }, self.call_timeout_ms + LOAD_EXTRA_MS)?;
        Ok(())
    }

    /// The tensors of the shape in use.
    pub(super) fn layout(&self) -> &Layout {
        &self.plan.layouts[self.shape]
    }

    /// Ends several programs side by side: what a process holds on a device takes its time to be given back.
    pub fn end_all(sessions: impl IntoIterator<Item = Self>) {
        let mut sessions: Vec<Self> = sessions.into_iter().collect();
        for session in &mut sessions {
            session.jail.request_end();
        }
    }

    /// Isolation in force.
    #[must_use]
    pub fn sandbox(&self) -> &SandboxReport {
        &self.report
    }

    /// Loads the library, if that was not done yet, and hands it the weights; what it made of earlier ones is freed.
    pub fn init(&mut self, params: &[TensorData]) -> Result<(), SessionError> {
        self.init_within(params, &|_| None)
    }

    /// The same, with a place on the device for what happens there.
    pub(crate) fn init_within(&mut self, params: &[TensorData], enter: Enter<'_, '_>) -> Result<(), SessionError> {
        if self.progress < Progress::Loaded {
            let _place = enter(if self.plan.torch.is_some() { Stay::Long } else { Stay::Short });
            self.load()?;
        }
        let layout = &self.plan.layouts[self.shape];
        self.arena.set_canaries(layout, self.canary_seed);
        for (placed, data) in layout.params.iter().zip(params) {
            self.arena.write(placed, data);
        }
        self.params = params.to_vec();
        self.weights_stale = false;
        let nonce = self.nonces.draw();
        let (reply, _) = {
            let _place = enter(Stay::Short);
            self.ask(&Request::Init { nonce }, self.call_timeout_ms)?
        };
        self.succeeded("ns_init", &reply)
    }

    /// Loads the library, if that was not done yet.
    pub fn load(&mut self) -> Result<(), SessionError> {
        if self.progress >= Progress::Loaded {
            return Ok(());
        }
        let nonce = self.nonces.draw();
        let extra_ms = if self.plan.torch.is_some() { BUILD_MODEL_EXTRA_MS } else { LOAD_EXTRA_MS };
        let (reply, _) = self.ask(&Request::Load { nonce }, self.call_timeout_ms + extra_ms)?;
        if let Some(message) = reply.load_error {
            return Err(self.give_up(ProcessEnd::LoadFailed { message: self.without_path(&message) }));
        }
        self.progress = Progress::Loaded;
        Ok(())
    }

    /// Puts inputs in place and poisons outputs and canaries. `scratch_too` also fills the workspace, whose content is
    /// unspecified.
    pub fn prepare(&mut self, inputs: &[TensorData], scratch_too: bool) {
        let layout = &self.plan.layouts[self.shape];
        for (placed, data) in layout.inputs.iter().zip(inputs) {
            self.arena.write(placed, data);
        }
        self.inputs = inputs.to_vec();
        self.canary_seed = self.nonces.draw();
        self.arena.set_canaries(layout, self.canary_seed);
        self.poison = poison(self.nonces.draw());
        if self.plan.on_device {
            // The runner fills the device's memory, with the pattern that the request carries.
            return;
        }
        for placed in &layout.outputs {
            self.arena.fill(placed.region, self.poison);
        }
        if scratch_too {
            self.arena.fill(layout.workspace, self.poison);
        }
    }

    /// How long its next call may take the device.
    fn stay_of_call(&self) -> Stay {
        if self.plan.torch.is_some() && self.progress < Progress::Called { Stay::Long } else { Stay::Short }
    }

    /// Calls the program once, with what was prepared.
    pub fn call(&mut self) -> Result<CallTime, SessionError> {
        self.call_for(false)
    }

    fn call_for(&mut self, outputs_only: bool) -> Result<CallTime, SessionError> {
        let nonce = self.nonces.draw();
        let before_ns = self.settled_ns;
        let weights = std::mem::take(&mut self.weights_stale);
        let request = Request::Run { nonce, poison: self.poison_word(), weights, outputs_only };
        let (reply, outside) = self.ask(&request, self.call_timeout_ms)?;
        self.succeeded("ns_run", &reply)?;
        self.progress = Progress::Called;
        let outside_ns = u64::try_from(outside.as_nanos()).unwrap_or(u64::MAX);
        let processor_ns = before_ns.zip(self.settled_ns).map(|(before, after)| after.saturating_sub(before));
        // On the host the kernel is believed, and nobody else.
        let processor_ns = if self.plan.on_device { reply.at_rest_ns() } else { processor_ns };
        let delivered_ns = if self.discounts_delivery { reply.delivered_ns } else { 0 };
        let processor_ns = processor_ns.map(|time_ns| time_ns.saturating_sub(delivered_ns));
        Ok(CallTime { inside_ns: reply.elapsed_ns, outside_ns, processor_ns })
    }

    /// Half of the pattern that outputs are filled with: all of it, as it repeats itself.
    pub(super) fn poison_word(&self) -> u32 {
        let [a, b, c, d, ..] = self.poison;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Ends the program if an entry point returned an error.
    pub(super) fn succeeded(&mut self, entry_point: &'static str, reply: &Reply) -> Result<(), SessionError> {
        if reply.status == 0 {
            return Ok(());
        }
        let end = call_failed(self.entry_point(entry_point), reply.status);
        Err(self.give_up(end))
    }

    /// Takes the outputs out and looks for broken rules.
    pub fn collect(&mut self, time: CallTime) -> Call {
        let layout = &self.plan.layouts[self.shape];
        // The outputs first: what counts is what is there when the program says that it is done.
        let (outputs, unwritten): (Vec<_>, Vec<_>) =
            layout.outputs.iter().map(|placed| self.arena.read_and_count(placed, self.poison)).unzip();
        let mut breaches = Vec::new();
        let given = layout.inputs.iter().zip(&self.inputs).chain(layout.params.iter().zip(&self.params));
        for (placed, data) in given {
            if !self.arena.holds(placed, data) {
                breaches.push(Breach::InputModified { tensor: placed.name.clone() });
                // Later calls are judged by themselves.
                self.arena.write(placed, data);
                self.weights_stale = true;
            }
        }
        for buffer in self.arena.broken_canaries(layout, self.canary_seed) {
            breaches.push(Breach::CanaryOverwritten { buffer });
        }
        for (placed, elements) in layout.outputs.iter().zip(unwritten).filter(|(_, elements)| *elements > 0) {
            breaches.push(Breach::OutputNotWritten { tensor: placed.name.clone(), elements });
        }
        Call { time, outputs, breaches }
    }

    pub(super) fn outputs(&self) -> Vec<TensorData> {
        self.layout().outputs.iter().map(|placed| self.arena.read(placed)).collect()
    }

    /// [`Self::run_within`] of a program that is known to keep the rules, as a task's reference is since it was prepared: on a
    /// device its outputs alone are brought back.
    pub(crate) fn run_known(&mut self, inputs: &[TensorData], enter: Enter<'_, '_>) -> Result<Call, SessionError> {
        if !self.plan.on_device {
            return self.run(inputs);
        }
        let started = Instant::now();
        self.prepare(inputs, true);
        let prepared = Instant::now();
        let time = {
            let _place = enter(self.stay_of_call());
            self.call_for(true)?
        };
        let called = Instant::now();
        let call = Call { time, outputs: self.outputs(), breaches: Vec::new() };
        self.told([started, prepared, called], time);
        Ok(call)
    }

    /// Says where the time of a run went.
    fn told(&self, [started, prepared, called]: [Instant; 3], time: CallTime) {
        tracing::debug!(
            program = ?self.library.file_name().unwrap_or_default(),
            prepare_us = (prepared - started).as_micros(),
            call_us = (called - prepared).as_micros(),
            inside_us = time.inside_ns / 1000,
            collect_us = called.elapsed().as_micros(),
            "ran a program"
        );
    }

    /// [`Self::prepare`], [`Self::call`] and [`Self::collect`] in a row.
    pub fn run(&mut self, inputs: &[TensorData]) -> Result<Call, SessionError> {
        self.run_within(inputs, &|_| None)
    }

    /// [`Self::run`], with a place on the device for the call alone: putting inputs in place and taking results out concerns
    /// the memory of the machine only, and nobody who wants the device has to wait for that.
    pub(crate) fn run_within(&mut self, inputs: &[TensorData], enter: Enter<'_, '_>) -> Result<Call, SessionError> {
        let started = Instant::now();
        self.prepare(inputs, true);
        let prepared = Instant::now();
        let time = {
            let _place = enter(self.stay_of_call());
            self.call()?
        };
        let called = Instant::now();
        let call = self.collect(time);
        self.told([started, prepared, called], time);
        Ok(call)
    }
}

/// The process that runs a plan.
fn hosted(plan: &RunnerPlan) -> Result<HostedProcess, ProcessError> {
    let payload = serde_json::to_string(plan).map_err(|error| ProcessError::Setup(error.to_string()))?;
    let kind = if plan.torch.is_some() { HostedKind::Python } else { HostedKind::Native };
    Ok(HostedProcess { kind, core: plan.core, shared_bytes: plan.arena_bytes(), payload })
}

fn os(what: &'static str) -> impl Fn(std::io::Error) -> ProcessError {
    move |source| ProcessError::Os { what: what.to_owned(), source }
}

/// What the process of these options is to do.
fn plan_of(host: &Host, library: PathBuf, options: &SessionOptions<'_>) -> Result<RunnerPlan, SessionError> {
    let torch = torch_plan(host, &library, options)?;
    let mut plan = RunnerPlan::new(library, options.shapes, doubled(options), options.core);
    plan.torch = torch;
    plan.filtered = plan.torch.is_some() && host.jail.means != SandboxChoice::None;
    if let Some(device) = options.device {
        plan.on_device = true;
        plan.filtered = host.jail.means != SandboxChoice::None;
        plan.libraries.clone_from(&device.libraries);
    }
    Ok(plan)
}

/// What of its tensors is in double precision.
fn doubled(options: &SessionOptions<'_>) -> Doubled {
    match (options.double, is_python(options.library)) {
        (false, _) => Doubled::Nothing,
        // A model widens its inputs itself, where they are.
        (true, true) => Doubled::Outputs,
        (true, false) => Doubled::Everything,
    }
}

fn call_failed(entry_point: &str, status: i32) -> ProcessEnd {
    ProcessEnd::CallFailed { entry_point: entry_point.to_owned(), status }
}

/// A quiet NaN for 32-bit and 64-bit floats alike, and an unlikely integer, different every time.
fn poison(random: u64) -> [u8; 8] {
    let [a, b, ..] = random.to_le_bytes();
    [a, b, 0xFC, 0x7F, a, b, 0xFC, 0x7F]
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn poison_is_not_a_number_in_both_widths() {
        for random in [0, u64::MAX, 0x1234_5678_9ABC_DEF0] {
            let bytes = poison(random);
            assert!(f64::from_le_bytes(bytes).is_nan());
            assert!(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).is_nan());
        }
    }
}
