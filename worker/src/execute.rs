//! Carries out steps: dispatches each kind of step to its module.

mod baselines;
mod devices;
mod examine;
mod host;
mod kernel_cache;
mod known;
mod prepare;
mod programs;
mod step;
mod tool_search;
mod tune;
mod verify;
mod wrong_access;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nightshift_evaluator::check::Libraries;
pub use nightshift_evaluator::measure::MeasureOptions;
pub use nightshift_evaluator::program::ProcessDemand;
use nightshift_profilers::Checks;
use nightshift_profilers::host::Peaks;
use nightshift_protocol::api::LeasedStep;
use nightshift_protocol::machine::{MachineFacts, Toolchain};
use nightshift_protocol::step::{StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::Target;
use nightshift_protocol::verdict::{ProcessEnd, has_violation};
use nightshift_sandbox::process::CancelFlag;
use nightshift_toolchain::Host;
use nightshift_toolchain::build::{Role, disk_failure};
use nightshift_toolchain::build_cache::BuildCache;
use nightshift_toolchain::machine;
use nightshift_toolchain::python::PythonSearch;
use tempfile::TempDir;

use self::devices::{CudaBench, SharedGpus};
use self::examine::{Found, find_all};
pub use self::examine::{WorkbenchError, examine, find_cpp_toolchain, jail_host_of, probe_sandbox};
use self::step::{Step, ran_out_of_memory};
pub use self::tool_search::find_profilers;
pub use self::verify::{BuiltProgram, Submission, Verifier, VerifyOptions};
use crate::artifacts::{ArtifactCache, ArtifactStore, MAX_CACHE_BYTES, StepArtifacts, Transfer};
use crate::config::WorkerConfig;
use crate::memory_budget::MemoryBudget;
use crate::offers::fewer_contexts_by_memory;
use crate::reference_cache::ReferenceCache;
use crate::scratch::Scratch;
use crate::trace::StepSpan;

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
    /// Tools of the `cuda` target, or the reason why its steps cannot run here. Its processes use the scratch folder, so it is dropped first.
    cuda: Result<CudaBench, String>,
    scratch: Scratch,
    /// Measured once, by the first profile; constant while the process lives.
    peaks: Mutex<Option<Peaks>>,
    /// Memory of the machine.
    memory: Arc<MemoryBudget>,
    /// Folder of the evaluator's compiled kernels.
    kernels: PathBuf,
}

impl Workbench {
    /// Examines the machine and opens the folders. Blocks, and starts processes.
    pub fn open(config: &WorkerConfig, store: Box<dyn ArtifactStore>) -> Result<Self, WorkbenchError> {
        Self::open_for(config, store, None, &CancelFlag::default())
    }

    /// Opens a workbench for one target only, for programs that need this many processes. It does not search for tools of
    /// other targets. The search ends when the work is cancelled.
    pub fn open_for(
        config: &WorkerConfig,
        store: Box<dyn ArtifactStore>,
        only: Option<(Target, ProcessDemand)>,
        cancel: &CancelFlag,
    ) -> Result<Self, WorkbenchError> {
        let unusable = |folder: &Path| {
            let folder = folder.to_path_buf();
            move |source| WorkbenchError::Folder { folder, source }
        };
        let scratch = Scratch::open(&config.scratch_dir).map_err(unusable(&config.scratch_dir))?;
        let python = PythonSearch::new(config.python.clone(), config.search_path.clone())
            .with_models(config.hf_home.clone())
            .with_scratch(scratch.folder().to_path_buf())
            .with_bytecode(config.cache_dir.join("bytecode"));
        let jail = jail_host_of(&config.executable, &config.cache_dir);
        let host = Host { jail, python: Some(Arc::new(python)), scratch: scratch.folder().to_path_buf() };
        let jail = &host.jail;
        let hardware = machine::this_hardware();
        let memory = MemoryBudget::new("this machine's memory", hardware.memory_bytes);
        let [artifacts, builds, references, prepared] =
            ["artifacts", "builds", "references", "prepared"].map(|name| config.cache_dir.join(name));
        if let Some(good_for) = fewer_contexts_by_memory(config.gpu_contexts, hardware.memory_bytes)
            && !config.gpus.usable().is_empty()
        {
            tracing::warn!(
                allowed = config.gpu_contexts,
                good_for,
                "`worker.gpu_contexts` allows more contexts than this machine's memory is good for: with many models of PyTorch at \
                 once it may run out, and the system would end the worker"
            );
        }
        let began = Instant::now();
        let contexts = (config.gpu_contexts, hardware.memory_bytes);
        let demand = only.filter(|(target, _)| *target == Target::Cuda).map(|(_, demand)| demand);
        // Processes start while the search for compilers runs.
        let gpus = SharedGpus::new(&host, &config.gpus, contexts, &config.device_locks(), demand);
        let only = only.map(|(target, _)| target);
        let Found { toolchain, sandbox, cuda } = find_all(jail, config, only, &hardware, scratch.folder(), cancel)?;
        tracing::debug!(took_ms = began.elapsed().as_millis(), "compilers and sandbox were found");
        let cuda = cuda.map(|cuda| cuda.with_gpus(gpus));
        let cuda = if config.profilers { cuda } else { cuda.map(CudaBench::without_profilers) };
        if let Err(reason) = &cuda {
            if config.gpus.usable().is_empty() || only.is_some() {
                tracing::debug!(reason, "this worker carries out no steps on the `cuda` target");
            } else {
                tracing::warn!(reason, "this worker has GPUs and carries out no steps on the `cuda` target");
            }
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
            memory,
            kernels: config.cache_dir.join("kernels"),
            cuda,
        })
    }

    /// Returns the facts of the machine.
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
        let folder = self.step_folder()?;
        let artifacts = StepArtifacts::new(&self.artifacts, Transfer { cancel, traceparent });
        let step = Step { bench: self, folder: folder.path(), artifacts, device, cancel };
        match input {
            StepInput::PrepareTask { task } => {
                let task = step.task(task)?;
                step.in_memory(&task, || step.prepare_task(&task), ran_out)
            }
            StepInput::Build { task, source, sandbox_required } => {
                self.admit(*sandbox_required)?;
                step.build(&step.task(task)?, source)
            }
            StepInput::Check { task, library, reference_library, truth_library, sandbox_required } => {
                self.admit(*sandbox_required)?;
                let task = step.task(task)?;
                let libraries = Libraries {
                    candidate: step.library(Role::Candidate, library, &task)?,
                    reference: step.library(Role::Reference, reference_library, &task)?,
                    truth: step.library(Role::Truth, truth_library, &task)?,
                };
                step.in_memory(&task, || step.check(&task, &libraries, *sandbox_required), ran_out)
            }
            StepInput::Measure { task, library, reference_library, confirms, sandbox_required } => {
                self.admit(*sandbox_required)?;
                let task = step.task(task)?;
                let truth = step.truth(&task)?;
                let libraries = Libraries {
                    candidate: step.library(Role::Candidate, library, &task)?,
                    reference: step.library(Role::Reference, reference_library, &task)?,
                    truth,
                };
                step.in_memory(&task, || step.measure(&task, &libraries, *confirms, *sandbox_required), ran_out)
            }
            StepInput::Profile { task, build, measurement, library, sandbox_required, .. } => {
                let task = step.task(task)?;
                match (task.spec.target, library) {
                    (Target::Cuda, Some(library)) => {
                        self.admit(*sandbox_required)?;
                        let library = step.library(Role::Candidate, library, &task)?;
                        let profile = || step.profile_on_device(&task, &library, build, measurement);
                        step.in_memory(&task, profile, ran_out)
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
                let task = step.task(task)?;
                let library = step.library(Role::Candidate, library, &task)?;
                let checks = Checks { thorough: *thorough, without, shared_memory_call_ns: *shared_memory_call_ns };
                step.in_memory(&task, || step.sanitize(&task, &library, &checks), ran_out)
            }
            StepInput::Tune { task, source, reference_library, truth_library, budget, sandbox_required } => {
                self.admit(*sandbox_required)?;
                let task = step.task(task)?;
                let reference = step.library(Role::Reference, reference_library, &task)?;
                let truth = step.library(Role::Truth, truth_library, &task)?;
                let tune = || {
                    let references = (reference.clone(), truth.clone());
                    step.tune(&task, source, references, *budget, *sandbox_required)
                };
                step.in_memory(&task, tune, ran_out)
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

    fn step_folder(&self) -> Result<TempDir, StepFailure> {
        self.scratch.step_folder().map_err(|error| disk_failure(self.scratch.folder(), &error))
    }

    /// Refuses untrusted code on machines with too little isolation.
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

/// Returns whether a program ran out of memory in this step. A program may print nothing: an entry point that fails after a passed
/// check has most likely run out of memory.
fn ran_out(output: &StepOutput) -> bool {
    match output {
        // Another try must not take a violation back.
        StepOutput::Checked { report } => {
            !has_violation(&report.findings) && ran_out_of_memory(&report.end, &report.printed)
        }
        StepOutput::MeasureFailed { findings, .. } if has_violation(findings) => false,
        StepOutput::MeasureFailed { end: ProcessEnd::CallFailed { .. }, .. } => true,
        StepOutput::MeasureFailed { end, printed, .. } => ran_out_of_memory(end, printed),
        _ => false,
    }
}

/// Carries out steps. Blocks; each step has its own thread.
pub trait Work: Send + Sync + 'static {
    /// Carries out a step until it is done or `cancel` is set.
    fn carry_out(&self, step: &LeasedStep, cancel: &CancelFlag) -> Result<StepOutput, StepFailure>;
}

impl Work for Workbench {
    fn carry_out(&self, step: &LeasedStep, cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        let step_span = StepSpan::begin(step);
        let result = self.execute_in_trace(&step.input, step.device, step.traceparent.as_deref(), cancel);
        if let (Err(failure), Ok(cuda)) = (&result, &self.cuda)
            && failure.code.starts_with("gpu.")
        {
            cuda.doubt(cancel);
        }
        step_span.end(&result);
        result
    }
}
