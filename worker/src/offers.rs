//! Finds the capabilities of this machine: targets, slots, devices, tools and labels. It starts no process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nightshift_profilers::installed;
use nightshift_protocol::machine::{DeviceOffer, GpuFacts, MachineFacts, Offers, Toolchain};
use nightshift_protocol::needs::Tool;
use nightshift_protocol::task::Target;

use crate::config::WorkerConfig;
use crate::gpu::{Gpu, Gpus};
use nightshift_toolchain::toolchain::system_folders;

/// Number of the machine itself as a device of the `cpu` target.
pub const CPU_DEVICE: u32 = 0;
/// Number of steps that can share the machine as a device.
pub const SHARED_STEPS: u32 = 2;

/// Maximum number of processes of a step with a context on its GPU: candidate, reference, truth.
pub const CONTEXTS_PER_STEP: u32 = 3;
/// GPU memory per context: that of the context, and that of a typical program.
const MEMORY_PER_CONTEXT_BYTES: u64 = 5 << 30;
/// Main memory per context: that of CUDA and `PyTorch`, and the tensors that a process shares with the worker.
const HOST_MEMORY_PER_CONTEXT_BYTES: u64 = 4 << 30;
/// One part in this many of the machine's memory is left to the worker and to other processes.
const OTHERS_PART: u64 = 8;
/// Default maximum number of contexts on one GPU.
const MAX_CONTEXTS: u32 = 24;

/// The error of an unavailable capability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{asked} contexts are too few for {gpus} GPUs: a step takes up to {CONTEXTS_PER_STEP} of them. Allow at least {least}, \
     or name fewer GPUs as `worker.devices`"
)]
pub struct InvalidOffer {
    asked: u32,
    gpus: usize,
    least: u32,
}

impl InvalidOffer {
    /// Stable code, documented in `docs/reference/errors.md`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "worker.too_few_gpu_contexts"
    }
}

/// Returns the capabilities of this machine. The `cuda` target needs its compiler. Without a GPU, the machine only builds
/// programs for others.
pub(crate) fn offers(config: &WorkerConfig, mut machine: MachineFacts) -> Result<Offers, InvalidOffer> {
    let python = config.python.as_deref().and_then(Path::parent);
    let tools = tools(Path::new("/"), &config.search_path, python, machine.cuda_toolchain.as_ref());
    let mut targets = vec![Target::Cpu];
    let mut devices = vec![DeviceOffer {
        index: CPU_DEVICE,
        target: Target::Cpu,
        name: machine.processor.clone(),
        uuid: None,
        compute_capability: None,
        memory_bytes: machine.memory_bytes,
        shared_slots: SHARED_STEPS,
        quarantine: None,
    }];
    if machine.cuda_toolchain.is_some() {
        targets.push(Target::Cuda);
        devices.extend(gpu_offers(&config.gpus, config.gpu_contexts, machine.memory_bytes)?);
    }
    machine.gpus = config.gpus.facts();
    Ok(Offers { targets, cpu_slots: config.cpu_slots.max(1), devices, tools, labels: config.labels.clone(), machine })
}

/// Returns a device for each GPU, with the number of shared slots that its contexts allow.
fn gpu_offers(gpus: &Gpus, contexts: Option<u32>, memory_bytes: u64) -> Result<Vec<DeviceOffer>, InvalidOffer> {
    let count = gpus.usable().len();
    if let Some((asked, each)) = contexts.zip(part_of_each(gpus, contexts))
        && count > 0
        && each < CONTEXTS_PER_STEP
    {
        let least = CONTEXTS_PER_STEP.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        return Err(InvalidOffer { asked, gpus: count, least });
    }
    let offer = |((index, gpu), contexts): ((u32, &Gpu), u32)| DeviceOffer {
        index,
        target: Target::Cuda,
        name: gpu.facts.name.clone(),
        uuid: Some(gpu.facts.uuid.clone()),
        compute_capability: Some(gpu.facts.compute_capability),
        memory_bytes: gpu.facts.memory_bytes,
        shared_slots: contexts / CONTEXTS_PER_STEP,
        quarantine: None,
    };
    Ok(gpus.numbered().zip(contexts_of_each(gpus, contexts, memory_bytes)).map(offer).collect())
}

/// Divides the contexts of the whole machine among the GPUs.
fn part_of_each(gpus: &Gpus, contexts: Option<u32>) -> Option<u32> {
    contexts.map(|contexts| contexts / u32::try_from(gpus.usable().len()).unwrap_or(u32::MAX).max(1))
}

/// Returns the number of contexts for each GPU, ordered by number: the configured limit of the machine, or what main
/// memory and GPU memory allow. Unknown main memory is 0.
pub(crate) fn contexts_of_each(gpus: &Gpus, contexts: Option<u32>, memory_bytes: u64) -> Vec<u32> {
    let each = part_of_each(gpus, contexts);
    let of_host = (memory_bytes > 0).then(|| contexts_of_host(memory_bytes));
    let most = part_of_each(gpus, of_host).unwrap_or(u32::MAX).max(CONTEXTS_PER_STEP);
    gpus.usable().iter().map(|gpu| each.unwrap_or_else(|| contexts_of(&gpu.facts).min(most))).collect()
}

/// Limits the contexts of all GPUs together to those that the main memory allows.
pub(crate) fn fewer_contexts_by_memory(allowed: Option<u32>, memory_bytes: u64) -> Option<u32> {
    let good_for = contexts_of_host(memory_bytes).max(CONTEXTS_PER_STEP);
    (memory_bytes > 0 && allowed.is_some_and(|allowed| allowed > good_for)).then_some(good_for)
}

/// Returns the number of contexts that this much main memory allows.
fn contexts_of_host(memory_bytes: u64) -> u32 {
    let of_contexts = memory_bytes - memory_bytes / OTHERS_PART;
    u32::try_from(of_contexts / HOST_MEMORY_PER_CONTEXT_BYTES).unwrap_or(u32::MAX)
}

/// Returns the number of contexts that the memory of a GPU allows.
fn contexts_of(gpu: &GpuFacts) -> u32 {
    let contexts = u32::try_from(gpu.memory_bytes / MEMORY_PER_CONTEXT_BYTES).unwrap_or(u32::MAX);
    contexts.clamp(CONTEXTS_PER_STEP, MAX_CONTEXTS)
}

/// Finds tools below `root`: the CUDA compiler, where one works, profilers in the search path, beside it and where installers
/// put them, and `PyTorch` of the first Python installations. `python` is the folder of the configured one.
fn tools(root: &Path, search_path: &[PathBuf], python: Option<&Path>, nvcc: Option<&Toolchain>) -> BTreeSet<Tool> {
    let under_root = |folder: &PathBuf| root.join(folder.strip_prefix("/").unwrap_or(folder));
    let python = python.map(Path::to_path_buf);
    let folders_of_python: Vec<PathBuf> =
        search_path.iter().chain(&python).chain(&system_folders()).map(under_root).collect();
    let beside = nvcc.and_then(|nvcc| Path::new(&nvcc.path).parent()).map(Path::to_path_buf);
    let folders: Vec<PathBuf> = search_path.iter().cloned().chain(beside).map(|folder| under_root(&folder)).collect();
    let torch = folders_of_python.iter().any(|folder| has_torch(folder)).then_some(Tool::Torch);
    installed(root, &folders).chain(nvcc.map(|_| Tool::Nvcc)).chain(torch).collect()
}

/// Returns whether the Python installation of this program folder has `PyTorch`, without starting Python, which would take
/// seconds.
fn has_torch(programs: &Path) -> bool {
    let Some(prefix) = programs.parent() else { return false };
    named_folders(&prefix.join("lib"), |name| name.starts_with("python3")).any(|python| {
        let packages = ["site-packages", "dist-packages"].map(|packages| python.join(packages));
        packages.iter().any(|packages| packages.join("torch/version.py").is_file())
    })
}

fn named_folders(parent: &Path, fits: impl Fn(&str) -> bool) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
    entries.filter(move |entry| fits(&entry.file_name().to_string_lossy())).map(|entry| entry.path())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use nightshift_protocol::machine::{DeviceUse, Needs, SandboxReport};

    use super::*;
    use crate::gpu::Absence;
    use crate::gpu::fake::{FakeDriver, instance, whole};
    use nightshift_toolchain::machine::{facts, read_hardware};

    fn config(gpus: Gpus, gpu_contexts: Option<u32>) -> WorkerConfig {
        WorkerConfig {
            server_url: String::new(),
            token: String::new().into(),
            name: String::new(),
            embedded: false,
            scratch_dir: PathBuf::new(),
            cache_dir: PathBuf::new(),
            executable: PathBuf::new(),
            cpp_compiler: None,
            nvcc: nightshift_toolchain::nvcc::NvccChoice::default(),
            python: None,
            hf_home: None,
            cpu_slots: 3,
            labels: BTreeSet::new(),
            search_path: Vec::new(),
            drain_timeout: std::time::Duration::ZERO,
            gpus,
            gpu_contexts,
            profilers: true,
        }
    }

    fn described(has_nvcc: bool) -> MachineFacts {
        let nvcc = Toolchain {
            program: "nvcc".to_owned(),
            path: "/usr/local/cuda/bin/nvcc".to_owned(),
            version: "release 13.0".to_owned(),
            flags: Vec::new(),
            fingerprint: String::new(),
        };
        let machine = facts(read_hardware(Path::new("/nowhere"), None), None, SandboxReport::default());
        MachineFacts { cuda_toolchain: has_nvcc.then_some(nvcc), ..machine }
    }

    fn shared_slots(gpus: &Gpus, contexts: Option<u32>) -> Vec<(u32, u32)> {
        gpu_offers(gpus, contexts, 0).unwrap().iter().map(|offer| (offer.index, offer.shared_slots)).collect()
    }

    #[test]
    fn a_gpu_is_shared_by_as_many_steps_as_its_memory_has_contexts_for() {
        let driver = FakeDriver::with(vec![Ok(whole(0)), Ok(instance(1, 0))]);
        assert_eq!(shared_slots(&driver.gpus(), None), [(1, 8), (2, 1)]);
        let offers = gpu_offers(&driver.gpus(), None, 0).unwrap();
        assert_eq!(offers[0].uuid.as_deref(), Some("GPU-0000"));
        assert_eq!((offers[1].memory_bytes, offers[1].target), (18 << 30, Target::Cuda));
    }

    #[test]
    fn a_machine_with_little_memory_has_room_for_fewer() {
        let gpus = FakeDriver::with_whole(2).gpus();
        let slots = |memory_gib: u64| -> Vec<u32> {
            gpu_offers(&gpus, None, memory_gib << 30).unwrap().iter().map(|offer| offer.shared_slots).collect()
        };
        assert_eq!(slots(1_024), [8, 8]);
        assert_eq!(slots(128), [4, 4], "28 contexts for both");
        assert_eq!(slots(8), [1, 1], "one step at a time in any case");
        let asked = gpu_offers(&gpus, Some(48), 8 << 30).unwrap();
        assert_eq!(asked[0].shared_slots, 8, "who says how many knows better");
        // The capabilities state how many processes fit into the memory.
        let fewer = |allowed, memory_gib: u64| fewer_contexts_by_memory(allowed, memory_gib << 30);
        assert_eq!((fewer(Some(36), 125), fewer(Some(27), 125), fewer(None, 125)), (Some(27), None, None));
        assert_eq!((fewer(Some(9), 1), fewer(Some(9), 0)), (Some(CONTEXTS_PER_STEP), None), "none is known of nothing");
    }

    #[test]
    fn a_cap_on_contexts_holds_for_all_gpus_together() {
        let gpus = FakeDriver::with_whole(3).gpus();
        assert_eq!(shared_slots(&gpus, Some(20)), [(1, 2), (2, 2), (3, 2)]);
        assert_eq!(shared_slots(&gpus, Some(9)), [(1, 1), (2, 1), (3, 1)]);
        let error = gpu_offers(&gpus, Some(8), 0).unwrap_err();
        assert_eq!(error.code(), "worker.too_few_gpu_contexts");
        assert!(error.to_string().contains("at least 9"), "{error}");
        assert!(shared_slots(&Gpus::none(Absence::NoGpu), Some(1)).is_empty(), "there is nothing to cap");
    }

    #[test]
    fn cuda_needs_its_compiler_and_without_a_gpu_the_machine_builds_only() {
        let gpus = FakeDriver::with_whole(2).gpus();
        let build = Needs::worker(Target::Cuda, DeviceUse::None);
        let measure = Needs::worker(Target::Cuda, DeviceUse::Exclusive);

        let both = offers(&config(gpus.clone(), None), described(true)).unwrap();
        assert!(build.fit(&both) && measure.fit(&both));
        assert_eq!((both.devices.len(), both.machine.gpus.len(), both.cpu_slots), (3, 2, 3));

        let builds = offers(&config(Gpus::none(Absence::NoGpu), None), described(true)).unwrap();
        assert!(build.fit(&builds) && !measure.fit(&builds));
        assert_eq!(measure.lacking(&builds), ["a device"]);

        let neither = offers(&config(gpus, None), described(false)).unwrap();
        assert_eq!((neither.targets.as_slice(), neither.devices.len()), ([Target::Cpu].as_slice(), 1));
        assert_eq!(neither.machine.gpus.len(), 2, "what is there is told all the same");
    }

    #[test]
    fn a_quarantined_gpu_fits_nothing_and_that_is_said() {
        let mut offers = offers(&config(FakeDriver::with_whole(1).gpus(), None), described(true)).unwrap();
        offers.devices[1].quarantine = Some(nightshift_protocol::machine::Quarantine {
            incident: 1,
            code: crate::gpu::LOST.to_owned(),
            reason: String::new(),
            since: None,
        });
        let measure = Needs::worker(Target::Cuda, DeviceUse::Exclusive);
        assert!(!measure.fit(&offers));
        assert_eq!(measure.lacking(&offers), ["a device that is not quarantined"]);
    }

    fn machine(files: &[(&str, u32)]) -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().unwrap();
        for (path, mode) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(*mode)).unwrap();
        }
        root
    }

    #[test]
    fn tools_are_found_where_toolkits_and_people_put_them() {
        let root = machine(&[
            ("usr/local/cuda/bin/compute-sanitizer", 0o755),
            ("opt/nvidia/nsight-systems/2026.1/target-linux-x64/nsys", 0o755),
            ("usr/local/cuda-13.0/nsight-compute-2026.1/ncu", 0o755),
            ("home/night/venv/lib/python3.12/site-packages/torch/version.py", 0o644),
        ]);
        let path = [PathBuf::from("/home/night/venv/bin")];
        let nvcc = described(true).cuda_toolchain;
        assert_eq!(tools(root.path(), &path, None, nvcc.as_ref()), BTreeSet::from(Tool::ALL));
        let others = BTreeSet::from([Tool::Nsys, Tool::Ncu, Tool::ComputeSanitizer]);
        assert_eq!(tools(root.path(), &[], None, None), others, "the Python is on no path, and no nvcc works");
    }

    #[test]
    fn what_cannot_be_executed_is_no_tool() {
        let root = machine(&[("usr/bin/nsys", 0o644), ("usr/bin/ncu/readme", 0o755)]);
        assert!(tools(root.path(), &[], None, None).is_empty());
    }
}
