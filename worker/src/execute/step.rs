//! One step at work: its task, its memory, and the programs that it builds.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nightshift_evaluator::context::{DevicePlace, ExecutionContext, Place};
use nightshift_evaluator::memory::HostMemory;
use nightshift_evaluator::seeds::SecretSeeds;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::BuildReport;
use nightshift_protocol::step::{StepFailure, StepOutput};
use nightshift_protocol::task::{MemoryDemand, Target, TaskBundle, TaskSpec};
use nightshift_protocol::verdict::ProcessEnd;
use nightshift_sandbox::process::CancelFlag;
use nightshift_toolchain::BuildProvenance;
use nightshift_toolchain::build::{Builder, Compiler, PythonBuilder, Role, build, build_python, disk_failure};
use nightshift_toolchain::nvcc::CudaCompiler;
use object::ReadCache;

use super::Workbench;
use super::devices::{CudaBench, DeviceMemoryShare, NATIVE_PROCESS_BYTES, PYTHON_PROCESS_BYTES, StepDevice};
use super::kernel_cache::KernelCache;
use crate::artifacts::StepArtifacts;
use crate::memory_budget::MemoryShare;

/// Memory that a step holds for as long as it runs.
pub(super) struct StepMemory {
    _of_host: MemoryShare,
    _of_device: Option<DeviceMemoryShare>,
}

/// Returns whether a program broke down because the memory of its GPU was used up.
pub(super) fn ran_out_of_memory(end: &ProcessEnd, printed: &str) -> bool {
    *end != ProcessEnd::Finished && (is_out_of_memory(printed) || is_out_of_memory(&end.describe()))
}

/// Returns whether a message of CUDA, of `PyTorch` or of the evaluator says so.
fn is_out_of_memory(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("out of memory") || text.contains("out_of_memory")
}

/// Memory of the machine that the processes of one step on a GPU take before they have any tensors, in bytes.
fn processes_bytes(spec: &TaskSpec) -> u64 {
    let of = |role: Role| if role.is_python(spec) { PYTHON_PROCESS_BYTES } else { NATIVE_PROCESS_BYTES };
    of(Role::Candidate) + 2 * of(Role::Reference)
}

/// Where the programs of a step compute.
pub(super) enum StepPlace<'a> {
    Host(HostMemory),
    Device(DevicePlace<'a>),
}

/// One step at work.
pub(super) struct Step<'a> {
    pub(super) bench: &'a Workbench,
    pub(super) folder: &'a Path,
    pub(super) artifacts: StepArtifacts<'a>,
    /// The device that it was granted, by its number in this machine's offers.
    pub(super) device: Option<u32>,
    pub(super) cancel: &'a CancelFlag,
}

impl Step<'_> {
    /// The task's bundle, for a target that this machine has.
    pub(super) fn task(&self, hash: &ArtifactHash) -> Result<TaskBundle, StepFailure> {
        let bytes = self.artifacts.get(hash)?;
        let bundle: TaskBundle = serde_json::from_slice(&bytes).map_err(|error| {
            StepFailure::fatal("task.malformed", format!("the stored task {} cannot be read: {error}", hash.short()))
        })?;
        if bundle.spec.target == Target::Cuda {
            self.cuda()?;
        }
        Ok(bundle)
    }

    /// Runs programs of a task with memory for its tensors, which is kept until all of it is over. Where they run out of the memory of
    /// a GPU, which other steps share, they run once more when they have all of it: models hold more than their tensors, and what
    /// others use is no fault of a program.
    pub(super) fn in_memory<T>(
        &self,
        task: &TaskBundle,
        run: impl Fn() -> Result<T, StepFailure>,
        ran_out: impl Fn(&T) -> bool,
    ) -> Result<T, StepFailure> {
        let memory = self.memory_of(task, false)?;
        let first = run();
        let lacked = match &first {
            Ok(output) => ran_out(output),
            Err(failure) => is_out_of_memory(&failure.code) || is_out_of_memory(&failure.message),
        };
        if !lacked || task.spec.target == Target::Cpu || self.cancel.is_cancelled() {
            return first;
        }
        drop(memory);
        let _memory = self.memory_of(task, true)?;
        run()
    }

    /// Waits for the memory of a task's tensors, or for all of the GPU's.
    fn memory_of(&self, task: &TaskBundle, all: bool) -> Result<StepMemory, StepFailure> {
        let demand = MemoryDemand::of(&task.spec)
            .map_err(|error| StepFailure::fatal("task.shape_not_usable", error.to_string()))?;
        let began = Instant::now();
        let on_gpu = task.spec.target == Target::Cuda;
        let processes = if on_gpu { processes_bytes(&task.spec) } else { 0 };
        // In this order, so that no step that waits here holds what another one waits for.
        let give_back = || {
            if let Ok(cuda) = &self.bench.cuda {
                cuda.release_memory(demand.on_host().saturating_add(processes), self.cancel);
            }
        };
        let of_host = self.bench.memory.take(demand.on_host(), processes, &give_back, self.cancel)?;
        let of_device = on_gpu.then(|| self.cuda()?.take_memory(self.device, demand, all, self.cancel)).transpose()?;
        tracing::debug!(waited_ms = began.elapsed().as_millis(), all, "the step has its memory");
        Ok(StepMemory { _of_host: of_host, _of_device: of_device })
    }

    /// What steps on the `cuda` target need.
    pub(super) fn cuda(&self) -> Result<&CudaBench, StepFailure> {
        self.bench.cuda.as_ref().map_err(|reason| {
            StepFailure::fatal(
                "worker.unsupported_target",
                format!("this worker carries out tasks of the `cpu` target only: {reason}"),
            )
        })
    }

    /// Returns the GPU of this step; none on the host. `programs` will run on it.
    pub(super) fn device(&self, task: &TaskBundle, programs: &[&Path]) -> Result<Option<StepDevice<'_>>, StepFailure> {
        if task.spec.target == Target::Cpu {
            return Ok(None);
        }
        let kernels = KernelCache {
            folder: self.bench.kernels.clone(),
            jail: &self.bench.host.jail,
            scratch: self.folder,
            cancel: self.cancel,
        };
        self.cuda()?.device(self.device, &task.spec, programs, &kernels).map(Some)
    }

    /// Where the programs of this step compute.
    pub(super) fn place<'b>(&self, device: Option<&'b StepDevice<'_>>) -> StepPlace<'b> {
        match device {
            Some(device) => StepPlace::Device(device.place()),
            None => StepPlace::Host(HostMemory::new(self.bench.machine.last_level_cache_bytes)),
        }
    }

    /// Where the evaluator runs the programs of this step.
    pub(super) fn context<'b>(&'b self, place: &'b StepPlace<'b>) -> ExecutionContext<'b> {
        let place = match place {
            StepPlace::Host(memory) => Place::Host(memory),
            StepPlace::Device(device) => Place::Device(device),
        };
        ExecutionContext { host: &self.bench.host, cancel: self.cancel, place }
    }

    fn compiler<'b>(&'b self, spec: &'b TaskSpec) -> Result<Compiler<'b>, StepFailure> {
        Ok(match spec.target {
            Target::Cpu => Compiler::Cpp(&self.bench.toolchain),
            Target::Cuda => Compiler::Cuda(CudaCompiler { nvcc: &self.cuda()?.nvcc, libraries: &spec.libraries }),
        })
    }

    fn python_builder<'b>(&'b self, task: &'b TaskBundle) -> PythonBuilder<'b> {
        let cuda = self.bench.cuda.as_ref().ok().filter(|_| task.spec.target == Target::Cuda);
        PythonBuilder {
            host: &self.bench.host,
            nvcc: cuda.map(|cuda| &cuda.nvcc),
            compiler: &self.bench.toolchain,
            cache: &self.bench.builds,
            artifacts: &self.artifacts,
            scratch: self.folder,
            cancel: self.cancel,
            task: &task.spec,
        }
    }

    pub(super) fn build_as(
        &self,
        role: Role,
        source: &str,
        task: &TaskBundle,
    ) -> Result<(BuildReport, Option<PathBuf>), StepFailure> {
        if role.is_python(&task.spec) {
            return build_python(&self.python_builder(task), source, role, task.spec.limits.build_timeout_ms);
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

    /// A program is about to be built: processes for it start meanwhile.
    pub(super) fn expect_programs(&self, task: &TaskBundle) {
        if let (Target::Cuda, Ok(cuda), false) =
            (task.spec.target, &self.bench.cuda, Role::Candidate.is_python(&task.spec))
        {
            cuda.expect_programs();
        }
    }

    pub(super) fn build(&self, task: &TaskBundle, source: &ArtifactHash) -> Result<StepOutput, StepFailure> {
        self.expect_programs(task);
        let source = self.artifacts.get(source)?;
        // The compiler says better than we could what is wrong with bytes that are no text.
        let source = String::from_utf8_lossy(&source);
        let (report, _) = self.build_as(Role::Candidate, &source, task)?;
        Ok(StepOutput::Built { report: Box::new(report) })
    }

    /// A built library as a file of this step. One that was built for another machine is built again for this one.
    pub(super) fn library(&self, role: Role, hash: &ArtifactHash, task: &TaskBundle) -> Result<PathBuf, StepFailure> {
        let path = self.folder.join(role.library_name(&task.spec));
        self.artifacts.copy_to(hash, &path)?;
        let unreadable = |error: std::io::Error| disk_failure(&path, &error);
        if role.is_python(&task.spec) {
            let bytes = std::fs::read(&path).map_err(unreadable)?;
            let text = String::from_utf8_lossy(&bytes);
            return match self.python_builder(task).source_to_build_again(&text)? {
                Some(source) => self.build_again(role, hash, task, || Ok(source.to_owned())),
                None => Ok(path),
            };
        }
        let file = File::open(&path).map_err(unreadable)?;
        match BuildProvenance::read(&ReadCache::new(file)) {
            Some(origin) if origin.toolchain != self.compiler(&task.spec)?.toolchain().fingerprint => {
                self.build_again(role, hash, task, || {
                    Ok(String::from_utf8_lossy(&self.artifacts.get(&origin.source)?).into_owned())
                })
            }
            _ => Ok(path),
        }
    }

    fn build_again(
        &self,
        role: Role,
        hash: &ArtifactHash,
        task: &TaskBundle,
        candidate: impl FnOnce() -> Result<String, StepFailure>,
    ) -> Result<PathBuf, StepFailure> {
        tracing::info!(artifact.hash = %hash, "a library of another machine is built again for this one");
        let source = match role {
            Role::Candidate => candidate()?,
            Role::Reference | Role::Truth => task.reference_source.clone(),
            Role::Library => task.library_source.clone().unwrap_or_default(),
        };
        let (report, path) = self.build_as(role, &source, task)?;
        path.ok_or_else(|| {
            let said = report.end.describe();
            let message = format!("the {} of another machine did not build on this one: {said}", role.name());
            StepFailure::retriable("worker.other_machine", message)
        })
    }

    /// The reference in double precision, nearly always from the cache: it was built when the task was prepared.
    pub(super) fn truth(&self, task: &TaskBundle) -> Result<PathBuf, StepFailure> {
        let (report, path) = self.build_as(Role::Truth, &task.reference_source, task)?;
        path.ok_or_else(|| {
            let said = report.end.describe();
            StepFailure::retriable(
                "reference.failed",
                format!("the reference did not build in double precision: {said}"),
            )
        })
    }
}

/// Returns the first error of a compiler with its line, or how the compiler ended.
pub(super) fn first_error(report: &BuildReport) -> String {
    let error = report.messages.iter().find(|message| message.severity == "error");
    error.map_or_else(|| report.end.describe(), |error| format!("line {}: {}", error.line, error.message))
}

pub(super) fn secret_seeds() -> Result<SecretSeeds, StepFailure> {
    SecretSeeds::from_os()
        .map_err(|error| StepFailure::retriable("process.os", format!("drawing random numbers: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_lacked_memory_is_told_from_one_that_broke_down() {
        let failed = ProcessEnd::CallFailed { entry_point: "forward".to_owned(), status: 1 };
        let says = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB.";
        assert!(ran_out_of_memory(&failed, says));
        assert!(!ran_out_of_memory(&failed, "RuntimeError: shapes cannot be multiplied"));
        assert!(!ran_out_of_memory(&ProcessEnd::Finished, says), "it coped with it");
        let fault = |error: &str| ProcessEnd::DeviceFault { error: error.to_owned(), during: "a call".to_owned() };
        assert!(ran_out_of_memory(&fault("CUDA_ERROR_OUT_OF_MEMORY"), ""));
        assert!(!ran_out_of_memory(&fault("CUDA_ERROR_ILLEGAL_ADDRESS"), ""));
    }
}
