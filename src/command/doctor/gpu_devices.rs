//! Driver, device nodes, and each GPU.

use std::path::Path;
use std::sync::Arc;

use nightshift_protocol::machine::{GpuFacts, Mig};
use nightshift_worker::TimedCores;
use nightshift_worker::gpu::{Absence, Gpu, Gpus, Health, Hidden, ManagementError, Prober};

use super::Check;

/// Vendor of NVIDIA's devices on the bus.
const VENDOR: &str = "0x10de";
/// Classes of display and 3D controllers on the bus begin so.
const DISPLAY_CLASS: &str = "0x03";
/// What every process on a GPU opens, beside the node of the GPU itself.
const NODES: [&str; 2] = ["nvidiactl", "nvidia-uvm"];
/// Files by which containers are known.
const CONTAINER_MARKS: [&str; 2] = [".dockerenv", "run/.containerenv"];
/// What no GPU is needed for.
const NOT_NEEDED: &str = "needed for the `cuda` target only; the `cpu` target and the demo need none";

/// Checks of the machine below `root`, as its driver describes it and as a fresh process finds it. Blocks.
pub(super) fn checks(root: &Path, gpus: &Gpus, prober: &Arc<dyn Prober>) -> Vec<Check> {
    if let Some(absence) = gpus.absence() {
        let mut checks = vec![absent(root, absence)];
        checks.extend(gpus.hidden().iter().map(hidden));
        return checks;
    }
    let mut checks = Vec::new();
    let driver = gpus.facts().into_iter().next();
    checks.extend(driver.map(|gpu| {
        Check::ok("GPU driver", format!("{}, runs CUDA up to {}", gpu.driver_version, gpu.cuda_driver_version))
    }));
    for (number, gpu) in gpus.numbered() {
        checks.push(described(number, gpu));
        checks.extend(missing_nodes(root, gpu));
        checks.push(tested(gpu, prober.probe(gpu)));
    }
    checks.extend(gpus.hidden().iter().map(hidden));
    checks.push(cores(TimedCores::plan(gpus.places()).first().map_or(0, TimedCores::count), gpus.places()));
    checks
}

/// Reports the number of cores that a worker reserves for each GPU.
fn cores(of_each: usize, gpus: usize) -> Check {
    let name = "cores for timing";
    if of_each == 0 {
        return Check::warning(
            name,
            "none: this process may use fewer than eight physical cores for each GPU",
            "times of programs that are bound by launches depend on what else the machine does: run fewer steps at once, or allow more \
             cores",
        );
    }
    Check::ok(name, format!("{of_each} for each of {gpus} GPUs, on which a worker runs only what it times"))
}

/// Returns whether the toolkit is too new for the driver; `toolkit` is what nvcc says of its release.
pub(super) fn toolkit_against_driver(toolkit: &str, gpus: &Gpus) -> Option<Check> {
    let (_, after) = toolkit.split_once("release ")?;
    let toolkit = version(after)?;
    let driver = gpus.usable().first()?.facts.cuda_driver_version.clone();
    let (major, minor) = version(&driver)?;
    let (ours, name) = ((toolkit.0, toolkit.1), "toolkit and driver");
    let found = format!("toolkit {}.{}, driver for CUDA up to {driver}", ours.0, ours.1);
    Some(if ours.0 > major {
        Check::warning(
            name,
            found,
            format!(
                "programs of this toolkit do not run with this driver: install a newer driver, or a toolkit of CUDA {major}"
            ),
        )
    } else if ours > (major, minor) {
        Check::warning(
            name,
            found,
            "programs run, as long as they bring machine code for this GPU (nightshift builds it); a newer driver or an \
             older toolkit removes the doubt",
        )
    } else {
        Check::ok(name, found)
    })
}

/// `13.0, V13.0.88` as major and minor.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    Some((parts.next()?.ok()?, parts.next()?.unwrap_or(0)))
}

fn absent(root: &Path, absence: &Absence) -> Check {
    let found = absence.to_string();
    let is_on_the_bus = has_nvidia_device(root);
    let is_loaded = root.join("proc/driver/nvidia/version").exists();
    let has_nodes = root.join("dev/nvidiactl").exists();
    let in_container = CONTAINER_MARKS.iter().any(|mark| root.join(mark).exists());
    let give_container = "start the container with the GPUs: `docker run --gpus all`, or in Kubernetes a limit of \
                          `nvidia.com/gpu` and the NVIDIA runtime class";
    let advice = match absence {
        Absence::Driver(ManagementError::VersionMismatch) => {
            "the driver was updated while it was in use: reboot, or unload and load the kernel modules `nvidia*`"
        }
        Absence::Driver(ManagementError::NoPermission) => {
            "let this user read and write /dev/nvidia*: the group that owns them, or the device cgroup of the container"
        }
        Absence::Driver(_) if is_loaded && in_container && !has_nodes => give_container,
        Absence::Driver(ManagementError::NoLibrary(_)) if is_loaded => {
            "the kernel has the driver, its libraries are missing here: install the packages of the same version \
             (libnvidia-compute), or start the container with the NVIDIA container toolkit"
        }
        Absence::Driver(_) if is_loaded && !has_nodes => {
            "the device nodes are missing: `nvidia-modprobe -u -c 0`, or start nvidia-persistenced at boot"
        }
        Absence::Driver(_) if is_on_the_bus => {
            "there is an NVIDIA GPU on the bus and no driver for it: install the data-center driver (580 or later for \
             CUDA 13), then `modprobe nvidia`"
        }
        Absence::AllHidden(..) => "change CUDA_VISIBLE_DEVICES or worker.devices, or what the reason names",
        Absence::NoGpu if in_container => give_container,
        _ => NOT_NEEDED,
    };
    Check::warning("GPU", found, advice)
}

fn has_nvidia_device(root: &Path) -> bool {
    let entries = std::fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().filter_map(Result::ok);
    let reads = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    entries.map(|entry| entry.path()).any(|folder| {
        reads(&folder, "vendor").trim() == VENDOR && reads(&folder, "class").trim().starts_with(DISPLAY_CLASS)
    })
}

fn hidden(hidden: &Hidden) -> Check {
    Check::warning(
        "GPU",
        format!("{} is not offered: {}", hidden.device, hidden.reason),
        "offered as soon as that changes",
    )
}

fn name(gpu: &GpuFacts) -> String {
    match &gpu.mig {
        Some(Mig::Instance { .. }) => format!("GPU {} instance", gpu.index),
        _ => format!("GPU {}", gpu.index),
    }
}

fn described(number: u32, gpu: &Gpu) -> Check {
    let facts = &gpu.facts;
    let mut parts = vec![
        format!("{} ({}), offered as device {number}", facts.name, facts.uuid),
        format!("{} GiB", facts.memory_bytes >> 30),
        format!("compute capability {}", facts.compute_capability),
    ];
    parts.extend(facts.multiprocessors.map(|count| format!("{count} multiprocessors")));
    parts.extend(facts.sm_clock_max_mhz.map(|mhz| format!("up to {mhz} MHz")));
    parts.extend(facts.power_limit_w.map(|watts| format!("{watts} W")));
    parts.extend(facts.ecc.map(|ecc| if ecc { "ECC".to_owned() } else { "no ECC".to_owned() }));
    let found = parts.join(", ");
    if let Some(errors) = facts.ecc_uncorrected.filter(|errors| *errors > 0) {
        return Check::warning(
            &name(facts),
            format!("{found}; {errors} memory errors that could not be corrected"),
            "drain the worker and reset the GPU (`nvidia-smi --gpu-reset`); if they come back, have it replaced",
        );
    }
    if facts.persistence == Some(false) {
        return Check::warning(
            &name(facts),
            format!("{found}; no persistence"),
            "each first process waits for the driver to initialize the GPU, and clocks begin low: run \
             nvidia-persistenced, or `nvidia-smi -pm 1`",
        );
    }
    Check::ok(&name(facts), found)
}

/// Device nodes that a process on this GPU needs and that are not there.
fn missing_nodes(root: &Path, gpu: &Gpu) -> Option<Check> {
    let own = gpu.minor.map(|minor| format!("nvidia{minor}"));
    let nodes = NODES.iter().map(|node| (*node).to_owned()).chain(own);
    let missing: Vec<String> =
        nodes.filter(|node| !root.join("dev").join(node).exists()).map(|node| format!("/dev/{node}")).collect();
    (!missing.is_empty()).then(|| {
        Check::warning(
            &format!("{} nodes", name(&gpu.facts)),
            format!("{} not there", missing.join(", ")),
            "make them before a worker starts, since a sandbox cannot: `nvidia-modprobe -u -c 0`; in a container, start it \
             with the GPUs",
        )
    })
}

fn tested(gpu: &Gpu, health: Health) -> Check {
    let name = format!("{} test", name(&gpu.facts));
    match health {
        Health::Healthy(_) => Check::ok(&name, "a fresh process made a context, filled memory and read it back"),
        Health::Faulty(fault) => Check::warning(
            &name,
            format!("{}: {}", fault.code, fault.reason),
            "a worker would quarantine it; look at `dmesg` for Xid errors, reset it (`nvidia-smi --gpu-reset`) or reboot",
        ),
        Health::Unclear(reason) => Check::warning(
            &name,
            format!("it could not be found out: {reason}"),
            "other processes may hold its memory (`nvidia-smi` shows them), or this process may not reach the driver",
        ),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::State;
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn advice(files: &[(&str, &str)], absence: &Absence) -> String {
        let root = root(files);
        let check = absent(root.path(), absence);
        assert_eq!((check.state, check.blocks_demo), (State::Warning, false));
        check.advice.unwrap()
    }

    #[test]
    fn a_machine_without_cores_to_spare_is_told() {
        let (none, some) = (cores(0, 1), cores(4, 2));
        assert_eq!((none.state, none.blocks_demo), (State::Warning, false));
        assert!(none.advice.is_some());
        assert_eq!(
            (some.state, some.found.as_str()),
            (State::Ok, "4 for each of 2 GPUs, on which a worker runs only what it times")
        );
    }

    const NO_LIBRARY: &str = "libnvidia-ml.so.1: cannot open shared object file";

    #[test]
    fn each_way_of_having_no_gpu_has_its_own_advice() {
        let no_library = Absence::Driver(ManagementError::NoLibrary(NO_LIBRARY.to_owned()));
        let no_driver = Absence::Driver(ManagementError::NoDriver);
        let loaded = ("proc/driver/nvidia/version", "NVRM version: 580.65.06");
        let on_the_bus = [
            ("sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:1b:00.0/class", "0x030200\n"),
        ];
        assert!(advice(&[], &no_library).contains("need none"));
        assert!(advice(&on_the_bus, &no_library).contains("install the data-center driver"));
        assert!(advice(&[loaded, (".dockerenv", "")], &no_driver).contains("--gpus all"));
        assert!(advice(&[loaded], &no_driver).contains("nvidia-modprobe"));
        assert!(advice(&[loaded], &no_library).contains("libnvidia-compute"));
        assert!(advice(&[loaded], &Absence::Driver(ManagementError::VersionMismatch)).contains("reboot"));
        assert!(advice(&[loaded], &Absence::Driver(ManagementError::NoPermission)).contains("/dev/nvidia*"));
        assert!(advice(&[], &Absence::AllHidden(2, String::new())).contains("worker.devices"));
    }

    #[test]
    fn the_release_of_a_toolkit_is_read_from_what_nvcc_says() {
        assert_eq!(version("13.0, V13.0.88"), Some((13, 0)));
        assert_eq!(version("12.9"), Some((12, 9)));
        assert_eq!(version("none"), None);
    }
}
