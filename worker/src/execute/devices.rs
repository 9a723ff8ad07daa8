//! What steps on the `cuda` target need: the compiler, profilers, and the GPUs with what steps share on each.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use nightshift_evaluator::context::DevicePlace;
use nightshift_evaluator::cores::TimedCores;
use nightshift_evaluator::device::{DeviceError, Gpu as DeviceContext, KERNELS_SOURCE};
use nightshift_evaluator::lock::{DeviceLock, DeviceMode};
use nightshift_evaluator::program::{PoolPause, ProcessDemand, ProcessPool};
use nightshift_profilers::Profilers;
use nightshift_protocol::machine::{GpuFacts, MachineFacts};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{MemoryDemand, PYTHON_EXTENSION, TaskSpec};
use nightshift_sandbox::process::{CancelFlag, JailHost, JailedCommand, ProcessError, run_jailed};
use nightshift_sandbox::{DeviceAccess, DeviceMissing};
use nightshift_toolchain::Host;
use nightshift_toolchain::build::compile_module;
use nightshift_toolchain::build::disk_failure;
use nightshift_toolchain::nvcc::{Nvcc, NvccChoice, Search, needed_libraries};

use super::kernel_cache::KernelCache;
use super::tool_search::{FoundTools, find_profilers};
use crate::gpu::{Gpu, Gpus, Watch};
use crate::memory_budget::{MemoryBudget, MemoryShare};
use crate::offers::contexts_of_each;

/// Processes that a context's share of the memory is good for: a Python process counts as two.
const PROCESSES_PER_CONTEXT: usize = 2;

/// Memory of the machine that a process with a context takes, in bytes: with `PyTorch`, and without.
pub(super) const PYTHON_PROCESS_BYTES: u64 = 2 << 30;
pub(super) const NATIVE_PROCESS_BYTES: u64 = 1 << 29;

/// Compiler, profilers and GPUs.
#[derive(Debug)]
pub(super) struct CudaBench {
    pub(super) nvcc: Nvcc,
    profilers: FoundTools,
    search: ProfilerSearch,
    /// Whether references are profiled, too.
    pub(super) profiles: bool,
    gpus: Gpus,
    /// One for each GPU, in the order of their numbers.
    shared: Vec<SharedGpu>,
}

/// Where profilers are looked for, and how they are run.
#[derive(Debug)]
struct ProfilerSearch {
    jail: JailHost,
    folders: Vec<PathBuf>,
    scratch: PathBuf,
}

/// What the steps on one GPU share.
#[derive(Debug)]
struct SharedGpu {
    lock: Arc<DeviceLock>,
    pool: ProcessPool,
    memory: Arc<MemoryBudget>,
    /// Cores of the host for what is timed on it.
    cores: Option<&'static TimedCores>,
    /// The worker's own context, which is opened by the first step that needs it.
    context: Mutex<Option<Arc<DeviceContext>>>,
}

/// What steps share on each GPU of a machine, in the order of their numbers.
#[derive(Debug)]
pub(super) struct SharedGpus(Vec<SharedGpu>);

impl SharedGpus {
    /// Allows so many contexts on the whole machine, or as many as its memory, of so many bytes, is good for. Processes that name
    /// the same folder of locks take turns. With a known demand, processes for it start at once, on the first GPU.
    pub(super) fn new(
        host: &Host,
        gpus: &Gpus,
        (contexts, memory_bytes): (Option<u32>, u64),
        locks: &Path,
        demand: Option<ProcessDemand>,
    ) -> Self {
        let cores = if gpus.usable().is_empty() { &[] } else { TimedCores::reserve(gpus.places()) };
        let share = |(contexts, gpu): (u32, &Gpu)| {
            let files = locks.join(&gpu.facts.uuid);
            let lock = DeviceLock::between_processes(&files).unwrap_or_else(|error| {
                tracing::warn!(%error, "other processes of this kind may disturb measurements: no lock of files can be made");
                DeviceLock::default()
            });
            let lock = Arc::new(lock);
            let capacity = usize::try_from(contexts).unwrap_or(usize::MAX).saturating_mul(PROCESSES_PER_CONTEXT);
            SharedGpu {
                pool: ProcessPool::new(host.clone(), Arc::clone(&lock), capacity, demand),
                memory: MemoryBudget::between_processes(
                    format!("the memory of the {}", gpu.facts.name),
                    gpu.facts.memory_bytes,
                    &files.join("memory"),
                ),
                cores: cores.get(gpu.place),
                context: Mutex::default(),
                lock,
            }
        };
        let contexts = contexts_of_each(gpus, contexts, memory_bytes);
        let shared: Vec<SharedGpu> = contexts.into_iter().zip(gpus.usable()).map(share).collect();
        // Where the GPU cannot be reached, the first step says why.
        if let (Some(_), Some(first), Some(gpu)) = (demand, shared.first(), gpus.usable().first())
            && let Ok(access) = DeviceAccess::find(&gpu.facts.uuid, gpu.minor)
        {
            first.pool.start_ahead(&access);
        }
        Self(shared)
    }
}

/// Finds what steps on the `cuda` target need; returns the reason when there is nothing to find. A machine without a GPU builds
/// for others.
pub(super) fn find(
    jail: &JailHost,
    (gpus, choice): (&Gpus, &NvccChoice),
    search_path: &[PathBuf],
    host_compiler: Option<&Path>,
    os: &str,
    (scratch, proofs): (&Path, &Path),
    cancel: &CancelFlag,
) -> Result<CudaBench, String> {
    let run = |command: &JailedCommand| run_jailed(jail, command, cancel);
    let device = gpus.usable().first().map(|gpu| gpu.facts.compute_capability);
    let search = Search {
        configured: choice.nvcc.as_deref(),
        search_path,
        system_root: Path::new("/"),
        install_folder: choice.install_folder.as_deref(),
        arch: choice.arch(device).map_err(|error| error.to_string())?,
        host_compiler,
        os,
        proofs: Some(proofs),
    };
    let nvcc = Nvcc::find(&search, scratch, &run).map_err(|error| error.to_string())?;
    let search = ProfilerSearch { jail: jail.clone(), folders: search_path.to_vec(), scratch: scratch.to_path_buf() };
    Ok(CudaBench {
        nvcc,
        profilers: FoundTools::default(),
        search,
        profiles: true,
        gpus: gpus.clone(),
        shared: Vec::new(),
    })
}

/// The GPU of one step.
#[derive(Debug)]
pub(super) struct StepDevice<'a> {
    /// What management and driver tell of it.
    pub(super) facts: GpuFacts,
    pub(super) access: DeviceAccess,
    /// Libraries of the toolkit that the step's programs rely on.
    pub(super) libraries: Vec<PathBuf>,
    watch: Option<Watch>,
    shared: &'a SharedGpu,
    context: Arc<DeviceContext>,
}

impl StepDevice<'_> {
    /// The machine with the one GPU that the step ran on: what a result rests on.
    pub(super) fn machine(&self, machine: &MachineFacts) -> MachineFacts {
        MachineFacts { gpus: vec![self.facts.clone()], ..machine.clone() }
    }

    /// Where the evaluator runs programs.
    pub(super) fn place(&self) -> DevicePlace<'_> {
        DevicePlace {
            gpu: Arc::clone(&self.context),
            access: self.access.clone(),
            libraries: self.libraries.clone(),
            lock: Some(&self.shared.lock),
            pool: Some(&self.shared.pool),
            cores: self.shared.cores,
            monitor: self.watch.as_ref().map(|watch| -> &dyn nightshift_evaluator::context::DeviceMonitor { watch }),
        }
    }

    /// Keeps uses of the GPU apart.
    pub(super) fn lock(&self) -> &DeviceLock {
        &self.shared.lock
    }

    /// Counts the processes on the GPU.
    pub(super) fn pool(&self) -> &ProcessPool {
        &self.shared.pool
    }
}

/// A share of a GPU's memory that a step holds. While it is all of the memory, no idle process has a context on the GPU.
#[derive(Debug)]
pub(super) struct DeviceMemoryShare {
    _pause: Option<PoolPause>,
    _memory: MemoryShare,
}

impl CudaBench {
    /// The same, ready for steps on these GPUs.
    pub(super) fn with_gpus(self, shared: SharedGpus) -> Self {
        Self { shared: shared.0, ..self }
    }

    /// The same for a worker that is not to profile.
    pub(super) fn without_profilers(mut self) -> Self {
        self.profiles = false;
        self
    }

    /// Returns the profilers and sanitizers of this machine. Blocks the first time, and starts processes.
    pub(super) fn profilers(&self, cancel: &CancelFlag) -> Result<Arc<Profilers>, StepFailure> {
        let ProfilerSearch { jail, folders, scratch } = &self.search;
        let search = || {
            let found = find_profilers(jail, Some(&self.nvcc), folders, scratch, cancel);
            if self.profiles { found } else { found.switched_off() }
        };
        self.profilers.get(search, cancel)
    }

    /// Returns the GPU that was granted to a step, by its number in this machine's offers, or the first one for a step that
    /// names none. `programs` will run on it.
    pub(super) fn device(
        &self,
        number: Option<u32>,
        spec: &TaskSpec,
        programs: &[&Path],
        kernels: &KernelCache<'_>,
    ) -> Result<StepDevice<'_>, StepFailure> {
        let (gpu, shared) = self.gpu(number)?;
        let mut access = DeviceAccess::find(&gpu.facts.uuid, gpu.minor).map_err(|error| missing(&error))?;
        let mut libraries: Vec<PathBuf> = Vec::new();
        // What a file of Python needs, Python finds.
        let native = programs.iter().filter(|program| program.extension().is_none_or(|name| name != PYTHON_EXTENSION));
        for library in native {
            let bytes = std::fs::read(library).map_err(|error| disk_failure(library, &error))?;
            for path in self.needed(&bytes, spec)? {
                if !libraries.contains(&path) {
                    libraries.push(path);
                }
            }
        }
        if !libraries.is_empty() {
            for folder in self.nvcc.library_folders() {
                access = access.with_libraries(folder.clone());
            }
        }
        let context = self.context(gpu, shared, kernels)?;
        let mut facts = gpu.facts.clone();
        facts.complete(&context.facts());
        Ok(StepDevice { facts, access, libraries, watch: self.gpus.watch(gpu), shared, context })
    }

    /// The worker's own context on a GPU, with the evaluator's kernels.
    fn context(
        &self,
        gpu: &Gpu,
        shared: &SharedGpu,
        kernels: &KernelCache<'_>,
    ) -> Result<Arc<DeviceContext>, StepFailure> {
        // Another step may be opening it, which takes half a minute where kernels are compiled.
        let mut opened = kernels.cancel.lock(&shared.context).ok_or(ProcessError::Cancelled)?;
        if let Some(context) = &*opened {
            return Ok(Arc::clone(context));
        }
        let capability = gpu.facts.compute_capability;
        let compile =
            || compile_module(&self.nvcc, KERNELS_SOURCE, capability, kernels.jail, kernels.scratch, kernels.cancel);
        let image = kernels.get(&self.nvcc.toolchain().fingerprint, capability, compile)?;
        // A context that begins delays what other processes measure.
        let _guard = shared.lock.lock(DeviceMode::Driver, kernels.cancel)?;
        let context = DeviceContext::open(Some(&gpu.facts.uuid), &image).map_err(|error| unusable(&error))?;
        let context = Arc::new(context);
        *opened = Some(Arc::clone(&context));
        Ok(context)
    }

    /// Takes a step's share of a GPU's memory, or all of it, by the number of the GPU in this machine's offers. Idle processes end if
    /// the step has to wait, or takes all.
    pub(super) fn take_memory(
        &self,
        number: Option<u32>,
        demand: MemoryDemand,
        all: bool,
        cancel: &CancelFlag,
    ) -> Result<DeviceMemoryShare, StepFailure> {
        let (_, shared) = self.gpu(number)?;
        let beside = if all { u64::MAX } else { 0 };
        let memory = shared.memory.take(demand.on_gpu(), beside, &|| shared.pool.clear(cancel), cancel)?;
        let pause = all.then(|| shared.pool.pause(cancel));
        Ok(DeviceMemoryShare { _pause: pause, _memory: memory })
    }

    /// Ends processes that are only kept until a step has so many bytes of the machine's memory.
    pub(super) fn release_memory(&self, bytes: u64, cancel: &CancelFlag) {
        for shared in &self.shared {
            shared.pool.release_memory(bytes, PYTHON_PROCESS_BYTES, cancel);
        }
    }

    /// A program is being built, and will run soon on a GPU on which others ran lately.
    pub(super) fn expect_programs(&self) {
        for shared in &self.shared {
            shared.pool.expect_programs();
        }
    }

    /// Something is wrong with a GPU, or may be: no process that was started before is used again, and a context that does not
    /// work is opened anew.
    pub(super) fn doubt(&self, cancel: &CancelFlag) {
        for shared in &self.shared {
            shared.pool.clear(cancel);
            if let Some(mut opened) = cancel.lock(&shared.context)
                && opened.as_ref().is_some_and(|context| !context.is_usable())
            {
                *opened = None;
            }
        }
    }

    fn gpu(&self, number: Option<u32>) -> Result<(&Gpu, &SharedGpu), StepFailure> {
        let mut numbered = self.gpus.numbered().zip(&self.shared);
        let found = numbered.find(|((device, _), _)| number.is_none_or(|number| number == *device));
        found.map(|((_, gpu), shared)| (gpu, shared)).ok_or_else(|| {
            let why = self
                .gpus
                .absence()
                .map_or_else(|| "this worker offers no device of that number".to_owned(), ToString::to_string);
            StepFailure::retriable("gpu.unusable", format!("there is no GPU for this step: {why}"))
        })
    }

    /// The toolkit's libraries that a built library leaves to its loader.
    fn needed(&self, library: &[u8], spec: &TaskSpec) -> Result<Vec<PathBuf>, StepFailure> {
        let names = needed_libraries(library, &spec.libraries, self.nvcc.library_versions())
            .map_err(|message| StepFailure::fatal("worker.internal", message))?;
        let found = names.into_iter().map(|name| {
            let at = self.nvcc.library_folders().iter().map(|folder| folder.join(&name)).find(|path| path.is_file());
            // Where the toolkit does not have it, the loader may know it.
            at.unwrap_or_else(|| PathBuf::from(name))
        });
        Ok(found.collect())
    }
}

fn missing(error: &DeviceMissing) -> StepFailure {
    StepFailure::retriable("gpu.unusable", error.to_string())
}

fn unusable(error: &DeviceError) -> StepFailure {
    let full = if error.error.contains("OUT_OF_MEMORY") {
        ": other processes hold its memory, which `nvidia-smi` lists"
    } else {
        ""
    };
    StepFailure::retriable(
        "gpu.unusable",
        format!("the worker cannot open the GPU for itself: {} while {}{full}", error.error, error.during),
    )
}
