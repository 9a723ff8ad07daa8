//! What a machine has for carrying out steps, and which part carries out which step.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nightshift_protocol::api::LeasedStep;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::machine::{MachineFacts, SandboxReport, Toolchain};
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::step::{PreparedTask, StepFailure, StepInput, StepOutput};
use nightshift_protocol::task::{Target, TaskBundle, TaskSpec};

use crate::artifacts::{ArtifactCache, ArtifactStore, MAX_CACHE_BYTES, StepArtifacts, Transfer};
use crate::build::{Builder, Role, build, disk_failure};
use crate::build_cache::BuildCache;
use crate::check::{Libraries, check};
use crate::inputs::SecretSeeds;
use crate::lease::{Work, WorkerConfig};
use crate::machine::{self, Hardware};
use crate::measure::{MeasureOptions, measure};
use crate::prepare::{Examined, ReferenceLibraries, prepare};
use crate::process::{CancelFlag, JailHost, JailedCommand, ProcessError, SandboxChoice, run_jailed};
use crate::profile::{Peaks, faster_than_roofline, measure_peaks, profile};
use crate::sandbox;
use crate::scratch::Scratch;
use crate::toolchain::{self, ToolchainError};

/// Most messages of the compiler that a rejected task repeats.
const MAX_QUOTED_MESSAGES: usize = 3;

/// Why a machine cannot carry out steps.
#[derive(Debug, thiserror::Error)]
pub enum WorkbenchError {
    /// A folder cannot be used.
    #[error("the folder {} cannot be used: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no compiler to work with.
    #[error(transparent)]
    Toolchain(#[from] ToolchainError),
    /// Children cannot be started at all, isolated or not.
    #[error("programs cannot be started on this machine: {0}")]
    Sandbox(#[from] ProcessError),
}

impl WorkbenchError {
    /// Stable code, documented in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "worker.folder_unusable",
            Self::Toolchain(error) => error.code(),
            Self::Sandbox(_) => "sandbox.failed",
        }
    }
}

/// Describes this machine: hardware, compiler, sandbox. What cannot be found out is left out; `toolchain::find` says
/// why there is no compiler. Blocks, and starts processes: call it from a thread that lives until it returns.
#[must_use]
pub fn examine(executable: &Path, cpp_compiler: Option<&str>, scratch: &Path) -> MachineFacts {
    let hardware = machine::this_hardware();
    let jail = jail_host(executable);
    let sandbox = sandbox::probe(&jail).unwrap_or_else(|error| {
        tracing::warn!(error = %error, "the sandbox could not be examined");
        SandboxReport::default()
    });
    let toolchain = Scratch::open(scratch).ok().and_then(|scratch| {
        let found = find_toolchain(&jail, cpp_compiler, &hardware, scratch.folder());
        found.map_err(|error| tracing::warn!(error = %error, "there is no C++ compiler to work with")).ok()
    });
    machine::facts(hardware, toolchain, sandbox)
}

/// Finds the C++ compiler of this machine. Blocks, as [`examine`] does.
pub fn find_cpp_toolchain(
    executable: &Path,
    cpp_compiler: Option<&str>,
    scratch: &Path,
) -> Result<Toolchain, WorkbenchError> {
    let folder = |source| WorkbenchError::Folder { folder: scratch.to_path_buf(), source };
    let life = Scratch::open(scratch).map_err(folder)?;
    Ok(find_toolchain(&jail_host(executable), cpp_compiler, &machine::this_hardware(), life.folder())?)
}

fn find_toolchain(
    jail: &JailHost,
    cpp_compiler: Option<&str>,
    hardware: &Hardware,
    scratch: &Path,
) -> Result<Toolchain, ToolchainError> {
    let never = CancelFlag::default();
    let run = |command: &JailedCommand| run_jailed(jail, command, &never);
    toolchain::find(cpp_compiler, &toolchain::system_folders(), hardware, scratch, &run)
}

fn jail_host(executable: &Path) -> JailHost {
    JailHost { executable: executable.to_path_buf(), means: SandboxChoice::Best }
}

/// Everything that steps on the `cpu` target need.
#[derive(Debug)]
pub struct Workbench {
    jail: JailHost,
    machine: MachineFacts,
    toolchain: Toolchain,
    artifacts: ArtifactCache,
    builds: BuildCache,
    scratch: Scratch,
    /// Measured once, by the first profile: they do not change while the process lives.
    peaks: Mutex<Option<Peaks>>,
}

impl Workbench {
    /// Examines the machine and opens the folders. Blocks, and starts processes.
    pub fn open(config: &WorkerConfig, store: Box<dyn ArtifactStore>) -> Result<Self, WorkbenchError> {
        let unusable = |folder: &Path| {
            let folder = folder.to_path_buf();
            move |source| WorkbenchError::Folder { folder, source }
        };
        let scratch = Scratch::open(&config.scratch_dir).map_err(unusable(&config.scratch_dir))?;
        let jail = jail_host(&config.executable);
        let hardware = machine::this_hardware();
        let toolchain = find_toolchain(&jail, config.cpp_compiler.as_deref(), &hardware, scratch.folder())?;
        let sandbox = sandbox::probe(&jail)?;
        let (artifacts, builds) = (config.cache_dir.join("artifacts"), config.cache_dir.join("builds"));
        Ok(Self {
            machine: machine::facts(hardware, Some(toolchain.clone()), sandbox),
            artifacts: ArtifactCache::open(&artifacts, MAX_CACHE_BYTES, store).map_err(unusable(&artifacts))?,
            builds: BuildCache::open(&builds).map_err(unusable(&builds))?,
            jail,
            toolchain,
            scratch,
            peaks: Mutex::new(None),
        })
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &MachineFacts {
        &self.machine
    }

    /// Carries out one step. Blocks; children are bound to the calling thread.
    pub fn execute(&self, input: &StepInput, cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        self.execute_in_trace(input, None, cancel)
    }

    fn execute_in_trace(
        &self,
        input: &StepInput,
        traceparent: Option<&str>,
        cancel: &CancelFlag,
    ) -> Result<StepOutput, StepFailure> {
        let folder = self.scratch.step_folder().map_err(|error| disk_failure(self.scratch.folder(), &error))?;
        let artifacts = StepArtifacts::new(&self.artifacts, Transfer { cancel, traceparent });
        let step = Step { bench: self, folder: folder.path(), artifacts, cancel };
        match input {
            StepInput::PrepareTask { task } => step.prepare_task(&step.task(task)?),
            StepInput::Build { task, source, sandbox_required } => {
                self.admit(*sandbox_required)?;
                step.build(&step.task(task)?, source)
            }
            StepInput::Check { task, library, reference_library, truth_library, sandbox_required } => {
                self.admit(*sandbox_required)?;
                let task = step.task(task)?;
                let libraries = Libraries {
                    candidate: step.library("candidate", library)?,
                    reference: step.library("reference", reference_library)?,
                    truth: step.library("truth", truth_library)?,
                };
                let mut seeds = secret_seeds()?;
                let report = check(&self.jail, &task.spec, &libraries, *sandbox_required, &mut seeds, cancel)?;
                Ok(StepOutput::Checked { report: Box::new(report) })
            }
            StepInput::Measure { task, library, reference_library, confirms: _, sandbox_required } => {
                self.admit(*sandbox_required)?;
                let task = step.task(task)?;
                let truth = step.truth(&task)?;
                // A measurement that confirms differs in nothing: every one starts fresh processes.
                let output = measure(
                    &self.jail,
                    &task.spec,
                    &step.library("candidate", library)?,
                    &step.library("reference", reference_library)?,
                    &truth,
                    &self.machine,
                    &format!("{}, built with the flags of the candidate", task.spec.reference),
                    *sandbox_required,
                    &MeasureOptions::default(),
                    cancel,
                )?;
                Ok(step.with_roofline(&task.spec, output))
            }
            StepInput::Profile { task, build, measurement } => step.profile(&step.task(task)?, build, measurement),
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

    /// Code of an unknown author runs only where it cannot reach files and network.
    fn admit(&self, sandbox_required: bool) -> Result<(), StepFailure> {
        let sandbox = &self.machine.sandbox;
        if !sandbox_required || sandbox.is_sufficient() {
            return Ok(());
        }
        let reach = match (sandbox.isolates_files, sandbox.isolates_network) {
            (false, false) => "files and the network",
            (false, true) => "files",
            _ => "the network",
        };
        Err(StepFailure::fatal(
            "sandbox.insufficient",
            format!(
                "the sandbox of {} does not keep programs from {reach} (in force: {}): `nightshift doctor` says what is \
                 missing; `--allow-unsandboxed` runs a model's code anyway",
                self.machine.host,
                sandbox.summary()
            ),
        ))
    }
}

impl Work for Workbench {
    fn carry_out(&self, step: &LeasedStep, cancel: &CancelFlag) -> Result<StepOutput, StepFailure> {
        self.execute_in_trace(&step.input, step.traceparent.as_deref(), cancel)
    }
}

/// One step at work.
struct Step<'a> {
    bench: &'a Workbench,
    folder: &'a Path,
    artifacts: StepArtifacts<'a>,
    cancel: &'a CancelFlag,
}

impl Step<'_> {
    /// The task's bundle, for a target that this machine has.
    fn task(&self, hash: &ArtifactHash) -> Result<TaskBundle, StepFailure> {
        let bytes = self.artifacts.get(hash)?;
        let bundle: TaskBundle = serde_json::from_slice(&bytes).map_err(|error| {
            StepFailure::fatal("task.malformed", format!("the stored task {} cannot be read: {error}", hash.short()))
        })?;
        match bundle.spec.target {
            Target::Cpu => Ok(bundle),
            Target::Cuda => Err(StepFailure::fatal(
                "worker.unsupported_target",
                "this worker has no CUDA toolchain: it carries out tasks of the `cpu` target only",
            )),
        }
    }

    fn builder(&self) -> Builder<'_> {
        Builder {
            jail: &self.bench.jail,
            toolchain: &self.bench.toolchain,
            cache: &self.bench.builds,
            artifacts: self.artifacts,
            scratch: self.folder,
            cancel: self.cancel,
        }
    }

    fn build(&self, task: &TaskBundle, source: &ArtifactHash) -> Result<StepOutput, StepFailure> {
        let source = self.artifacts.get(source)?;
        // The compiler says better than we could what is wrong with bytes that are no text.
        let source = String::from_utf8_lossy(&source);
        let (report, _) = build(&self.builder(), &source, Role::Candidate, task.spec.limits.build_timeout_ms)?;
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
        let run = |command: &JailedCommand| run_jailed(&self.bench.jail, command, self.cancel);
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

    /// A built library as a file of this step.
    fn library(&self, name: &str, hash: &ArtifactHash) -> Result<PathBuf, StepFailure> {
        let path = self.folder.join(format!("{name}.so"));
        self.artifacts.copy_to(hash, &path)?;
        Ok(path)
    }

    /// The reference in double precision, nearly always from the cache: it was built when the task was prepared.
    fn truth(&self, task: &TaskBundle) -> Result<PathBuf, StepFailure> {
        let (report, path) =
            build(&self.builder(), &task.reference_source, Role::Truth, task.spec.limits.build_timeout_ms)?;
        path.ok_or_else(|| {
            let said = report.end.describe();
            StepFailure::retriable(
                "reference.failed",
                format!("the reference did not build in double precision: {said}"),
            )
        })
    }

    fn prepare_task(&self, task: &TaskBundle) -> Result<StepOutput, StepFailure> {
        let build_as = |role| build(&self.builder(), &task.reference_source, role, task.spec.limits.build_timeout_ms);
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
        match prepare(&bench.jail, &task.spec, &libraries, &bench.machine, &mut seeds, self.cancel)? {
            Examined::Usable(facts) => Ok(StepOutput::TaskPrepared {
                prepared: Box::new(PreparedTask {
                    reference,
                    reference_library,
                    truth_library,
                    baseline_median_ns: facts.baseline_median_ns,
                    reference_normalized_error: facts.reference_normalized_error,
                    warnings: facts.warnings,
                    machine: bench.machine.clone(),
                }),
            }),
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
