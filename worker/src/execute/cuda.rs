//! What a machine needs for steps on the `cuda` target, and how such a step gets to its device.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nightshift_protocol::machine::{GpuFacts, MachineFacts};
use nightshift_protocol::step::StepFailure;
use nightshift_protocol::task::{ConcreteShapes, MemoryDemand, PYTHON_EXTENSION, TaskSpec};

use crate::gpu::{Gpu, Gpus, Watch};
use crate::inputs::{InputKind, SecretSeeds, generate_all};
use crate::known::KnownQuestions;
use crate::offers::contexts_of_each;
use crate::profilers::Profilers;
use crate::room::{Part, Room};
use crate::runner::{DeviceUse, Gate, SHARE_BYTES, SHARES_PER_CONTEXT, Standby, TorchPlan, Withheld, write_any_replay};
use nightshift_sandbox::process::{CancelFlag, JailHost, JailedCommand, run_jailed, run_jailed_as_tool};
use nightshift_sandbox::{DeviceAccess, DeviceMissing};
use nightshift_toolchain::Host;
use nightshift_toolchain::build::disk_failure;
use nightshift_toolchain::nvcc::{Nvcc, NvccChoice, Search, needed_libraries};

/// Memory for questions whose answers are known, as a part of that of the machine: one in so many, as long as no step needs
/// it.
const KNOWN_PART: u64 = 4;

/// Compiler, devices and profilers.
#[derive(Debug)]
pub(super) struct CudaBench {
    pub(super) nvcc: Nvcc,
    pub(super) profilers: Profilers,
    /// Whether references are looked at closer than it takes to use them.
    pub(super) profiles: bool,
    gpus: Gpus,
    /// One for each device, in the order of their numbers.
    sites: Vec<Site>,
}

/// What a device has beside itself.
#[derive(Debug)]
struct Site {
    /// See [`Grounds::gate`](crate::runner::Grounds).
    gate: Arc<Gate>,
    standby: Standby,
    room: Arc<Room>,
}

/// Finds what steps on the `cuda` target need; says why there is nothing to find. A machine without a GPU builds for
/// others.
pub(super) fn find(
    jail: &JailHost,
    gpus: &Gpus,
    choice: &NvccChoice,
    search_path: &[PathBuf],
    host_compiler: Option<&Path>,
    os: &str,
    scratch: &Path,
) -> Result<CudaBench, String> {
    let never = CancelFlag::default();
    let run = |command: &JailedCommand| run_jailed(jail, command, &never);
    let device = gpus.usable().first().map(|gpu| gpu.facts.compute_capability);
    let search = Search {
        configured: choice.nvcc.as_deref(),
        search_path,
        system_root: Path::new("/"),
        install_folder: choice.install_folder.as_deref(),
        arch: choice.arch(device).map_err(|error| error.to_string())?,
        host_compiler,
        os,
    };
    let nvcc = Nvcc::find(&search, scratch, &run).map_err(|error| error.to_string())?;
    let profilers = find_profilers(jail, Some(&nvcc), search_path, scratch);
    Ok(CudaBench { nvcc, profilers, profiles: true, gpus: gpus.clone(), sites: Vec::new() })
}

/// Finds profilers and sanitizers: on the search path, beside the compiler, and where installers put them. Blocks, and
/// starts processes; `scratch` is an existing folder.
#[must_use]
pub fn find_profilers(jail: &JailHost, nvcc: Option<&Nvcc>, search_path: &[PathBuf], scratch: &Path) -> Profilers {
    let never = CancelFlag::default();
    let run = |command: &JailedCommand| run_jailed_as_tool(jail, command, &never);
    let mut tools: Vec<PathBuf> = search_path.to_vec();
    tools.extend(nvcc.map(|nvcc| nvcc.program_folder().to_path_buf()));
    Profilers::find(&tools, nvcc.map(Nvcc::library_folders).unwrap_or_default(), scratch, &run)
}

/// The device of one step.
pub(super) struct StepDevice<'a> {
    pub(super) facts: &'a GpuFacts,
    pub(super) device: DeviceUse,
    pub(super) watch: Option<Watch>,
    pub(super) gate: &'a Gate,
    pub(super) standby: &'a Standby,
}

impl StepDevice<'_> {
    /// The machine with the one GPU that the step ran on: what a result rests on.
    pub(super) fn machine(&self, machine: &MachineFacts) -> MachineFacts {
        MachineFacts { gpus: vec![self.facts.clone()], ..machine.clone() }
    }
}

impl CudaBench {
    /// The same, ready for steps on its devices, with so many contexts on the whole machine, or as many as its memory, of so
    /// many bytes, is good for. `scratch` is an existing folder. Questions are kept only where programs cannot hand them on.
    pub(super) fn with_sites(
        mut self,
        host: &Host,
        scratch: &Path,
        contexts: Option<u32>,
        (memory, memory_bytes): (&Arc<Room>, u64),
        questions_are_kept: bool,
    ) -> Self {
        // What a program was asked is nobody else's where it can reach files.
        let known_bytes = if questions_are_kept { memory_bytes / KNOWN_PART } else { 0 };
        let devices = u64::try_from(self.gpus.usable().len()).unwrap_or(u64::MAX).max(1);
        let site = |(contexts, gpu): (u32, &Gpu)| {
            let gate: Arc<Gate> = Arc::default();
            let room = usize::try_from(contexts).unwrap_or(usize::MAX).saturating_mul(SHARES_PER_CONTEXT);
            let known = KnownQuestions::new(known_bytes / devices).within(Arc::clone(memory));
            let of_gpu = Room::new(format!("the memory of the {}", gpu.facts.name), gpu.facts.memory_bytes);
            let standby = Standby::new(host.clone(), scratch.to_path_buf(), Arc::clone(&gate), room, known)
                .within(Arc::clone(memory), Arc::clone(&of_gpu));
            Site { gate, standby, room: of_gpu }
        };
        let contexts = contexts_of_each(&self.gpus, contexts, memory_bytes);
        self.sites = contexts.into_iter().zip(self.gpus.usable()).map(site).collect();
        self
    }

    /// The same for a worker that is not to profile.
    pub(super) fn without_profilers(mut self) -> Self {
        self.profilers = self.profilers.switched_off();
        self.profiles = false;
        self
    }

    /// The device that was granted to a step, by its number in this machine's offers; the first one for a step that names
    /// none. `libraries` are the built libraries that will run on it.
    pub(super) fn device(
        &self,
        number: Option<u32>,
        spec: &TaskSpec,
        libraries: &[&Path],
    ) -> Result<StepDevice<'_>, StepFailure> {
        let (gpu, site) = self.gpu(number)?;
        let mut access = DeviceAccess::find(&gpu.facts.uuid, gpu.minor).map_err(|error| missing(&error))?;
        let mut wanted: Vec<PathBuf> = Vec::new();
        // What a file of Python needs, Python finds.
        let native = libraries.iter().filter(|library| library.extension().is_none_or(|name| name != PYTHON_EXTENSION));
        for library in native {
            let bytes = std::fs::read(library).map_err(|error| disk_failure(library, &error))?;
            for path in self.needed(&bytes, spec)? {
                if !wanted.contains(&path) {
                    wanted.push(path);
                }
            }
        }
        if !wanted.is_empty() {
            for folder in self.nvcc.library_folders() {
                access = access.with_libraries(folder.clone());
            }
        }
        let watch = self.gpus.watch(gpu);
        let device = DeviceUse { access, libraries: wanted };
        Ok(StepDevice { facts: &gpu.facts, device, watch, gate: &site.gate, standby: &site.standby })
    }

    /// Room for a step's tensors on a device, by its number in this machine's offers. What they take of the machine, the
    /// processes that are only kept there leave to them.
    pub(super) fn take_room(
        &self,
        number: Option<u32>,
        demand: MemoryDemand,
        cancel: &CancelFlag,
    ) -> Result<(Part, Withheld), StepFailure> {
        let (_, site) = self.gpu(number)?;
        let part = site.room.take(demand.on_gpu(), 0, &|| site.standby.give_device_memory_back(), cancel)?;
        let shares = usize::try_from(demand.on_host() / SHARE_BYTES).unwrap_or(usize::MAX);
        Ok((part, site.standby.withhold(shares)))
    }

    /// Gives up what is only kept until a step has room for so many bytes of the machine's memory, and as many of those beside
    /// them as there are at all.
    pub(super) fn make_room(&self, bytes: u64, beside: u64) {
        for site in &self.sites {
            site.standby.give_machine_memory_back(bytes, beside);
        }
    }

    /// A program is being built: wherever one ran lately, this one may follow.
    pub(super) fn expect_program(&self) {
        for site in &self.sites {
            site.standby.expect_programs(1);
        }
    }

    /// Speaks for processes that nobody waited for and that did not end.
    pub(super) fn adopt_survivors(&self, number: Option<u32>) {
        if let Ok((_, site)) = self.gpu(number) {
            site.standby.adopt_survivors();
        }
    }

    /// Something is wrong with a device, or may be: nothing that was started before is used any more.
    pub(super) fn doubt(&self) {
        for site in &self.sites {
            site.standby.clear();
        }
    }

    fn gpu(&self, number: Option<u32>) -> Result<(&Gpu, &Site), StepFailure> {
        let mut numbered = self.gpus.numbered().zip(&self.sites);
        let found = numbered.find(|((device, _), _)| number.is_none_or(|number| number == *device));
        found.map(|((_, gpu), site)| (gpu, site)).ok_or_else(|| {
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

/// Writes one call of a program down for tools that repeat it: at the smallest of its shapes, or at the default one.
pub(super) fn write_replay_plan(
    folder: &Path,
    library: &Path,
    torch: Option<TorchPlan>,
    device: &DeviceUse,
    shapes: &ConcreteShapes,
    seeds: &mut SecretSeeds,
) -> std::io::Result<()> {
    let params = generate_all(&shapes.params, seeds.draw(), InputKind::Declared);
    let inputs = generate_all(&shapes.inputs, seeds.draw(), InputKind::Declared);
    write_any_replay(folder, library, torch, device, shapes, (&params, &inputs)).map(|_| ())
}
