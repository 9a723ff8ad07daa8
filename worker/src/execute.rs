//! What a machine has for carrying out steps, and which part carries out which step.

mod baselines;
mod cuda;
mod device_step;
mod examine;
mod golden;
mod tune;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nightshift_protocol::api::LeasedStep;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::machine::{MachineFacts, Toolchain};
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::step::{PreparedTask, StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::{MemoryDemand, Target, TaskBundle, TaskSpec};
use object::ReadCache;

use self::cuda::CudaBench;
pub use self::cuda::find_profilers;
pub use self::examine::{WorkbenchError, examine, find_cpp_toolchain, probe_sandbox};
use self::examine::{find_toolchain, jail_host};
use crate::artifacts::{ArtifactCache, ArtifactStore, MAX_CACHE_BYTES, StepArtifacts, Transfer};
use crate::check::Libraries;
use crate::cost::Cost;
use crate::inputs::{InUse, SecretSeeds, keep_at_most};
use crate::lease::{Work, WorkerConfig};
use crate::offers::fewer_contexts_by_memory;
use crate::prepare::{Examined, ReferenceLibraries, prepare_on};
use crate::profile::{Peaks, faster_than_roofline, measure_peaks, profile};
use crate::profilers::Checks;
use crate::reference_cache::{KnownReference, ReferenceCache};
use crate::room::{Part, Room};
use crate::runner::Withheld;
use crate::scratch::Scratch;
use crate::trace::Telling;
use nightshift_sandbox::process::{CancelFlag, JailedCommand, run_jailed};
use nightshift_toolchain::BuildProvenance;
use nightshift_toolchain::Host;
use nightshift_toolchain::build::{Builder, Compiler, PythonBuilder, Role, build, build_python, disk_failure};
use nightshift_toolchain::build_cache::BuildCache;
use nightshift_toolchain::machine;
use nightshift_toolchain::nvcc::CudaCompiler;
use nightshift_toolchain::python::PythonSearch;

/// Most messages of the compiler that a rejected task repeats.
const MAX_QUOTED_MESSAGES: usize = 3;

/// Memory of the machine that a process with a context on a GPU takes, in bytes: with `PyTorch`, and without.
const PYTHON_BYTES: u64 = 2 << 30;
const NATIVE_BYTES: u64 = 1 << 29;

/// Everything that steps need.
#[derive(Debug)]
pub struct Workbench {
    host: Host,
    machine: MachineFacts,
    toolchain: Toolchain,
    artifacts: ArtifactCache,
    builds: BuildCache,
    /// Profiles and further baselines of references.
    references: ReferenceCache,
    /// Whole tasks.
    prepared: ReferenceCache,
    scratch: Scratch,
    /// Measured once, by the first profile: they do not change while the process lives.
    peaks: Mutex<Option<Peaks>>,
    /// Memory of the machine.
    room: Arc<Room>,
    /// What steps on the `cuda` target need, or why they cannot be carried out here.
    cuda: Result<CudaBench, String>,
}

impl Workbench {
    /// Examines the machine and opens the folders. Blocks, and starts processes.
    pub fn open(config: &WorkerConfig, store: Box<dyn ArtifactStore>) -> Result<Self, WorkbenchError> {
        let unusable = |folder: &Path| {
            let folder = folder.to_path_buf();
            move |source| WorkbenchError::Folder { folder, source }
        };
        let scratch = Scratch::open(&config.scratch_dir).map_err(unusable(&config.scratch_dir))?;
        let python = PythonSearch::new(config.python.clone(), config.search_path.clone())
            .with_models(config.hf_home.clone())
            .with_scratch(scratch.folder().to_path_buf())
            .with_bytecode(config.cache_dir.join("bytecode"));
        let host = Host { jail: jail_host(&config.executable), python: Some(Arc::new(python)) };
        let jail = &host.jail;
        let hardware = machine::this_hardware();
        let room = Room::new("this machine's memory", hardware.memory_bytes);
        if hardware.memory_bytes > 0 {
            keep_at_most(usize::try_from(hardware.memory_bytes / IDLE_MEMORY).unwrap_or(usize::MAX));
        }
        let toolchain = find_toolchain(jail, config.cpp_compiler.as_deref(), &hardware, scratch.folder())?;
        let sandbox = nightshift_sandbox::probe(jail, scratch.folder())?;
        let [artifacts, builds, references, prepared] =
            ["artifacts", "builds", "references", "prepared"].map(|name| config.cache_dir.join(name));
        let cuda = {
            // A C++ compiler that was named is nvcc's too: the system's may be one that it does not know.
            let host_compiler = config.cpp_compiler.as_ref().map(|_| Path::new(&toolchain.path));
            let cuda = cuda::find(
                jail,
                &config.gpus,
                &config.nvcc,
                &config.search_path,
                host_compiler,
                &hardware.os,
                scratch.folder(),
            );
            let memory_bytes = hardware.memory_bytes;
            if let Some(good_for) = fewer_contexts_by_memory(config.gpu_contexts, memory_bytes)
                && !config.gpus.usable().is_empty()
            {
                tracing::warn!(
                    allowed = config.gpu_contexts,
                    good_for,
                    "`worker.gpu_contexts` allows more contexts than this machine's memory is good for: with many models of PyTorch at \
                     once it may run out, and the system would end the worker"
                );
            }
            let cuda = cuda.map(|cuda| {
                cuda.with_sites(
                    &host,
                    scratch.folder(),
                    config.gpu_contexts,
                    (&room, memory_bytes),
                    sandbox.is_sufficient(),
                )
            });
            if config.profilers { cuda } else { cuda.map(CudaBench::without_profilers) }
        };
        if let Err(reason) = &cuda {
            tracing::debug!(reason, "this worker carries out no steps on the `cuda` target");
        }
        let mut machine = machine::facts(hardware, Some(toolchain.clone()), sandbox);
        machine.cuda_toolchain = cuda.as_ref().ok().map(|cuda| cuda.nvcc.toolchain().clone());
        machine.gpus = config.gpus.facts();
        Ok(Self {
            machine,
            artifacts: ArtifactCache::open(&artifacts, MAX_CACHE_BYTES, store).map_err(unusable(&artifacts))?,
            builds: BuildCache::open(&builds).map_err(unusable(&builds))?,
            references: ReferenceCache::open(&references).map_err(unusable(&references))?,
            prepared: ReferenceCache::open(&prepared).map_err(unusable(&prepared))?,
            host,
            toolchain,
            scratch,
            peaks: Mutex::new(None),
            room,
            cuda,
        })
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &MachineFacts {
        &self.machine
    }

    /// Carries out one step. Blocks; children are bound to the calling thread.
    pub fn execute(&self, input: &StepInput, cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        self.execute_in_trace(input, None, None, cancel)
    }

    fn execute_in_trace(
        &self,
        input: &StepInput,
        device: Option<u32>,
        traceparent: Option<&str>,
        cancel: &CancelFlag,
    ) -> Result<StepOutput, StepFailure> {
        let folder = self.scratch.step_folder().map_err(|error| disk_failure(self.scratch.folder(), &error))?;
        let artifacts = StepArtifacts::new(&self.artifacts, Transfer { cancel, traceparent });
        let step = Step { bench: self, folder: folder.path(), artifacts, device, cancel };
        match input {
            StepInput::PrepareTask { task } => {
                let (task, _room) = step.task_in_memory(task)?;
                step.prepare_task(&task)
            }
            StepInput::Build { task, source, sandbox_required } => {
                self.admit(*sandbox_required)?;
                step.build(&step.task(task)?, source)
            }
            StepInput::Check { task, library, reference_library, truth_library, sandbox_required, golden } => {
                self.admit(*sandbox_required)?;
                let (task, _room) = step.task_in_memory(task)?;
                if let Some(golden) = golden.as_ref().filter(|_| step.lacks_python(&task)) {
                    let library = step.library(Role::Candidate, library, &task)?;
                    return step.check_by_golden_data(&task, &library, golden, *sandbox_required);
                }
                let libraries = Libraries {
                    candidate: step.library(Role::Candidate, library, &task)?,
                    reference: step.library(Role::Reference, reference_library, &task)?,
                    truth: step.library(Role::Truth, truth_library, &task)?,
                };
                step.check(&task, &libraries, *sandbox_required)
            }
            StepInput::Measure { task, library, reference_library, confirms, sandbox_required } => {
                self.admit(*sandbox_required)?;
                let (task, _room) = step.task_in_memory(task)?;
                let truth = step.truth(&task)?;
                let libraries = Libraries {
                    candidate: step.library(Role::Candidate, library, &task)?,
                    reference: step.library(Role::Reference, reference_library, &task)?,
                    truth,
                };
                // What is confirmed rests on processes that nothing was timed in before.
                step.measure(&task, &libraries, *confirms, *sandbox_required)
            }
            StepInput::Profile { task, build, measurement, library, sandbox_required, .. } => {
                let (task, _room) = step.task_in_memory(task)?;
                match (task.spec.target, library) {
                    (Target::Cuda, Some(library)) => {
                        self.admit(*sandbox_required)?;
                        let library = step.library(Role::Candidate, library, &task)?;
                        step.profile_on_device(&task, &library, build, measurement)
                    }
                    _ => step.profile(&task, build, measurement),
                }
            }
            StepInput::Sanitize {
                task,
                library,
                thorough,
                without,
                shared_memory_call_ns,
                sandbox_required,
                source: _,
            } => {
                self.admit(*sandbox_required)?;
                let (task, _room) = step.task_in_memory(task)?;
                let library = step.library(Role::Candidate, library, &task)?;
                let checks = Checks { thorough: *thorough, without, shared_memory_call_ns: *shared_memory_call_ns };
                step.sanitize(&task, &library, &checks)
            }
            StepInput::Tune { task, source, reference_library, truth_library, budget, sandbox_required } => {
                self.admit(*sandbox_required)?;
                let (task, _room) = step.task_in_memory(task)?;
                let reference = step.library(Role::Reference, reference_library, &task)?;
                let truth = step.library(Role::Truth, truth_library, &task)?;
                step.tune(&task, source, (reference, truth), *budget, *sandbox_required)
            }
            StepInput::Plan { .. }
            | StepInput::Replan { .. }
            | StepInput::WriteCode { .. }
            | StepInput::Diagnose { .. }
            | StepInput::Judge { .. } => Err(StepFailure::fatal(
                "worker.unsupported_step",
                format!("a worker does not carry out `{}`", input.kind().as_str()),
            )),
        }
    }

    /// Refuses code of an unknown author where it is not sufficiently isolated.
    fn admit(&self, sandbox_required: bool) -> Result<(), StepFailure> {
        let sandbox = &self.machine.sandbox;
        match sandbox.insufficiency() {
            Some(missing) if sandbox_required => Err(StepFailure::fatal(
                "sandbox.insufficient",
                format!(
                    "the sandbox of {} is not sufficient: {missing} (in force: {}). `nightshift doctor` shows what is \
                     missing; `--allow-unsandboxed` runs a model's code anyway",
                    self.machine.host,
                    sandbox.summary()
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl Work for Workbench {
    fn carry_out(&self, step: &LeasedStep, cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        let telling = Telling::begin(step);
        let result = self.execute_in_trace(&step.input, step.device, step.traceparent.as_deref(), cancel);
        if let (Some(_), Ok(cuda)) = (step.device, &self.cuda) {
            cuda.adopt_survivors(step.device);
        }
        if let (Err(failure), Ok(cuda)) = (&result, &self.cuda)
            && failure.code.starts_with("gpu.")
        {
            cuda.doubt();
        }
        telling.end(&result);
        result
    }
}

/// What a step holds of memory, for as long as it runs.
struct Memory {
    _tensors: InUse,
    _of_host: Part,
    _of_device: Option<(Part, Withheld)>,
}

/// Memory of tensors that is kept between two of them, as a part of that of the machine: one in so many. What steps take is
/// counted with all of theirs in place, and leaves this much beside.
const IDLE_MEMORY: u64 = 20;

/// Memory of the machine that the processes of one step on a GPU take before they have any tensors, in bytes.
fn processes_bytes(spec: &TaskSpec) -> u64 {
    let candidate = if Role::Candidate.is_python(spec) { PYTHON_BYTES } else { NATIVE_BYTES };
    let reference = if Role::Reference.is_python(spec) { PYTHON_BYTES } else { NATIVE_BYTES };
    candidate + 2 * reference
}

/// One step at work.
struct Step<'a> {
    bench: &'a Workbench,
    folder: &'a Path,
    artifacts: StepArtifacts<'a>,
    /// The device that it was granted, by its number in this machine's offers.
    device: Option<u32>,
    cancel: &'a CancelFlag,
}

impl Step<'_> {
    /// The task's bundle, for a target that this machine has.
    fn task(&self, hash: &ArtifactHash) -> Result<TaskBundle, StepFailure> {
        let bytes = self.artifacts.get(hash)?;
        let bundle: TaskBundle = serde_json::from_slice(&bytes).map_err(|error| {
            StepFailure::fatal("task.malformed", format!("the stored task {} cannot be read: {error}", hash.short()))
        })?;
        if bundle.spec.target == Target::Cuda {
            self.cuda()?;
        }
        Ok(bundle)
    }

    /// The same for a step that runs programs, with room for its tensors, which is kept until all of it is over.
    fn task_in_memory(&self, hash: &ArtifactHash) -> Result<(TaskBundle, Memory), StepFailure> {
        let task = self.task(hash)?;
        let demand = MemoryDemand::of(&task.spec)
            .map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
        let began = Instant::now();
        let on_gpu = task.spec.target == Target::Cuda;
        let processes = if on_gpu { processes_bytes(&task.spec) } else { 0 };
        // In this order, so that nobody who waits here keeps from anybody what he waits for.
        let give_back = || {
            if let Ok(cuda) = &self.bench.cuda {
                cuda.make_room(demand.on_host(), processes);
            }
        };
        let of_host = self.bench.room.take(demand.on_host(), processes, &give_back, self.cancel)?;
        let of_device = on_gpu.then(|| self.cuda()?.take_room(self.device, demand, self.cancel)).transpose()?;
        tracing::debug!(waited_ms = began.elapsed().as_millis(), "there is room in memory for this step");
        Ok((task, Memory { _tensors: InUse::new(), _of_host: of_host, _of_device: of_device }))
    }

    /// What steps on the `cuda` target need.
    fn cuda(&self) -> Result<&CudaBench, StepFailure> {
        self.bench.cuda.as_ref().map_err(|reason| {
            StepFailure::fatal(
                "worker.unsupported_target",
                format!("this worker carries out tasks of the `cpu` target only: {reason}"),
            )
        })
    }

    fn compiler<'b>(&'b self, spec: &'b TaskSpec) -> Result<Compiler<'b>, StepFailure> {
        Ok(match spec.target {
            Target::Cpu => Compiler::Cpp(&self.bench.toolchain),
            Target::Cuda => Compiler::Cuda(CudaCompiler { nvcc: &self.cuda()?.nvcc, libraries: &spec.libraries }),
        })
    }

    fn build_as(
        &self,
        role: Role,
        source: &str,
        task: &TaskBundle,
    ) -> Result<(BuildReport, Option<PathBuf>), StepFailure> {
        if role.is_python(&task.spec) {
            let cuda = self.bench.cuda.as_ref().ok().filter(|_| task.spec.target == Target::Cuda);
            let builder = PythonBuilder {
                host: &self.bench.host,
                nvcc: cuda.map(|cuda| &cuda.nvcc),
                cache: &self.bench.builds,
                artifacts: &self.artifacts,
                scratch: self.folder,
                cancel: self.cancel,
            };
            return build_python(&builder, source, role, task.spec.limits.build_timeout_ms);
        }
        let builder = Builder {
            jail: &self.bench.host.jail,
            compiler: self.compiler(&task.spec)?,
            cache: &self.bench.builds,
            artifacts: &self.artifacts,
            scratch: self.folder,
            cancel: self.cancel,
        };
        build(&builder, source, role, task.spec.limits.build_timeout_ms)
    }

    fn build(&self, task: &TaskBundle, source: &ArtifactHash) -> Result<StepOutput, StepFailure> {
        if let (Target::Cuda, Ok(cuda), false) =
            (task.spec.target, &self.bench.cuda, Role::Candidate.is_python(&task.spec))
        {
            cuda.expect_program();
        }
        let source = self.artifacts.get(source)?;
        // The compiler says better than we could what is wrong with bytes that are no text.
        let source = String::from_utf8_lossy(&source);
        let (report, _) = self.build_as(Role::Candidate, &source, task)?;
        Ok(StepOutput::Built { report: Box::new(report) })
    }

    fn profile(
        &self,
        task: &TaskBundle,
        build: &BuildReport,
        measurement: &Measurement,
    ) -> Result<StepOutput, StepFailure> {
        let peaks = self.peaks()?;
        let profile = profile(&peaks, &task.spec, &build.report, measurement);
        Ok(StepOutput::Profiled { profile: Box::new(profile) })
    }

    /// Adds the finding that a measurement is too good to be true. Without peaks there is nothing to compare with.
    fn with_roofline(&self, spec: &TaskSpec, mut output: StepOutput) -> StepOutput {
        if let StepOutput::Measured { measurement, findings } = &mut output
            && spec.flops.is_some()
        {
            let beyond = |peaks: Peaks| faster_than_roofline(&peaks, spec, measurement);
            let found = self.peaks().and_then(|peaks| match beyond(peaks) {
                None => Ok(None),
                Some(_) => self.peaks_again().map(beyond),
            });
            match found {
                Ok(finding) => findings.extend(finding),
                Err(failure) => tracing::warn!(error = %failure, "a measurement is not compared with the roofline"),
            }
        }
        output
    }

    fn peaks(&self) -> Result<Peaks, StepFailure> {
        let known = *self.bench.peaks.lock().unwrap_or_else(PoisonError::into_inner);
        known.map_or_else(|| self.peaks_again(), Ok)
    }

    /// Measures the peaks; the best that was ever seen counts.
    fn peaks_again(&self) -> Result<Peaks, StepFailure> {
        // Held while measuring: two measurements at once would disturb each other.
        let mut known = self.bench.peaks.lock().unwrap_or_else(PoisonError::into_inner);
        let run = |command: &JailedCommand| run_jailed(&self.bench.host.jail, command, self.cancel);
        let mut peaks = measure_peaks(&self.bench.toolchain, &self.bench.machine, self.folder, &run)?;
        if let Some(before) = *known {
            peaks.flops_per_s = peaks.flops_per_s.max(before.flops_per_s);
            peaks.bytes_per_s = peaks.bytes_per_s.max(before.bytes_per_s);
        }
        tracing::info!(
            peak.flops_per_s = peaks.flops_per_s,
            peak.bytes_per_s = peaks.bytes_per_s,
            "the peaks of this machine are measured"
        );
        *known = Some(peaks);
        Ok(peaks)
    }

    /// A built library as a file of this step. One that was built for another machine is built again for this one.
    fn library(&self, role: Role, hash: &ArtifactHash, task: &TaskBundle) -> Result<PathBuf, StepFailure> {
        let path = self.folder.join(role.library_name(&task.spec));
        self.artifacts.copy_to(hash, &path)?;
        if role.is_python(&task.spec) {
            // Compiled for no machine in particular.
            return Ok(path);
        }
        let file = File::open(&path).map_err(|error| disk_failure(&path, &error))?;
        match BuildProvenance::read(&ReadCache::new(file)) {
            Some(origin) if origin.toolchain != self.compiler(&task.spec)?.toolchain().fingerprint => {
                tracing::info!(artifact.hash = %hash, "a library of another machine is built again for this one");
                self.build_again(role, &origin.source, task)
            }
            _ => Ok(path),
        }
    }

    fn build_again(&self, role: Role, source: &ArtifactHash, task: &TaskBundle) -> Result<PathBuf, StepFailure> {
        let source = match role {
            Role::Candidate => String::from_utf8_lossy(&self.artifacts.get(source)?).into_owned(),
            Role::Reference | Role::Truth => task.reference_source.clone(),
        };
        let (report, path) = self.build_as(role, &source, task)?;
        path.ok_or_else(|| {
            let said = report.end.describe();
            let message = format!("the {} of another machine did not build on this one: {said}", role.name());
            StepFailure::retriable("worker.other_machine", message)
        })
    }

    /// The reference in double precision, nearly always from the cache: it was built when the task was prepared.
    fn truth(&self, task: &TaskBundle) -> Result<PathBuf, StepFailure> {
        let (report, path) = self.build_as(Role::Truth, &task.reference_source, task)?;
        path.ok_or_else(|| {
            let said = report.end.describe();
            StepFailure::retriable(
                "reference.failed",
                format!("the reference did not build in double precision: {said}"),
            )
        })
    }

    fn prepare_task(&self, task: &TaskBundle) -> Result<StepOutput, StepFailure> {
        let mut cost = Cost::start();
        let build_as = |role| self.build_as(role, &task.reference_source, task);
        let (reference, reference_path) = build_as(Role::Reference)?;
        let Some(reference_path) = reference_path else { return Ok(does_not_compile(Role::Reference, reference)) };
        let (truth, truth_path) = build_as(Role::Truth)?;
        let Some(truth_path) = truth_path else { return Ok(does_not_compile(Role::Truth, truth)) };
        let (Some(reference_library), Some(truth_library)) = (reference.library.clone(), truth.library) else {
            return Err(StepFailure::retriable("worker.internal", "a build gave a library without its hash"));
        };
        let bench = self.bench;
        let libraries = ReferenceLibraries { reference: reference_path, truth: truth_path };
        let mut seeds = secret_seeds()?;
        let device = self.device(task, &[&libraries.reference, &libraries.truth])?;
        let grounds = self.grounds(device.as_ref());
        let machine = device.as_ref().map_or_else(|| bench.machine.clone(), |device| device.machine(&bench.machine));
        cost.part("building");
        if let Some(before) = self.prepared_before(task, &machine)? {
            cost.part("found as it was prepared before");
            let cost = cost.parts();
            let prepared = PreparedTask { reference, reference_library, truth_library, machine, cost, ..before };
            return Ok(StepOutput::TaskPrepared { prepared: Box::new(prepared) });
        }
        match prepare_on(&grounds, &task.spec, &libraries, &machine, &mut seeds)? {
            Examined::Usable(facts) => {
                cost.divide(&facts.cost);
                let known = device
                    .as_ref()
                    .map(|device| self.known_reference(task, &libraries, &grounds, device, (&reference, &facts)));
                let KnownReference { profile, baselines } = known.transpose()?.unwrap_or_default();
                cost.part("profile and other baselines");
                let golden = self.golden_data(task, &libraries, &grounds, &mut seeds)?;
                cost.part("golden data");
                let prepared = PreparedTask {
                    reference,
                    reference_library,
                    truth_library,
                    baseline_median_ns: facts.baseline_median_ns,
                    reference_normalized_error: facts.reference_normalized_error,
                    warnings: facts.warnings,
                    machine,
                    profile,
                    golden,
                    baselines,
                    cost: cost.parts(),
                };
                self.keep_prepared(task, &prepared)?;
                Ok(StepOutput::TaskPrepared { prepared: Box::new(prepared) })
            }
            Examined::Rejected { code, message, printed } => {
                let log = if printed.is_empty() { None } else { Some(self.artifacts.put(printed.as_bytes())?) };
                Ok(StepOutput::TaskRejected { code, message, log })
            }
        }
    }
}

fn secret_seeds() -> Result<SecretSeeds, StepFailure> {
    SecretSeeds::from_os()
        .map_err(|error| StepFailure::retriable("process.os", format!("drawing random numbers: {error}")))
}

/// The reference does not compile: said with the first messages.
fn does_not_compile(role: Role, report: BuildReport) -> StepOutput {
    let how = if role == Role::Truth { " in double precision (with NS_REAL defined as double)" } else { "" };
    let errors = report.messages.iter().filter(|message| message.severity == "error");
    let quoted: Vec<String> = errors
        .take(MAX_QUOTED_MESSAGES)
        .map(|message| match message.line {
            0 => format!("{}: {}", message.file, message.message),
            line => format!("{}:{line}: {}", message.file, message.message),
        })
        .collect();
    let said = if quoted.is_empty() { report.end.describe() } else { quoted.join("; ") };
    StepOutput::TaskRejected {
        code: "task.reference_does_not_compile".to_owned(),
        message: format!("the task's reference does not compile{how}: {said}"),
        log: Some(report.log),
    }
}
