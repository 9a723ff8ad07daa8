//! The paths that a jail contains.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::plan::{HostedKind, JailPlan, Work};

/// Devices that every program may use.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Files in which the kernel describes the machine. Drivers look their devices up there.
const KERNEL_FILES: &str = "/sys";

/// System folders for commands, such as compilers and the programs that they start.
const COMMAND_PATHS: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/nix/store",
];

/// System folders for a loaded library: further libraries.
const LIBRARY_PATHS: [&str; 10] = [
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/ld.so.cache",
    "/nix/store",
];

/// Folders that tools write to regardless of their configuration: `nsys` keeps files in the first and semaphores in the
/// second. A jail with a private root has its own.
pub(crate) const TOOL_FOLDERS: [&str; 2] = ["/tmp", "/dev/shm"];

/// The existing paths that a jail contains.
#[derive(Debug)]
pub(crate) struct VisiblePaths {
    /// Device nodes.
    pub(crate) devices: Vec<PathBuf>,
    /// Files and folders for reading and executing.
    pub(crate) read_only: Vec<PathBuf>,
    /// Folder for everything.
    pub(crate) scratch: Option<PathBuf>,
}

impl VisiblePaths {
    /// Collects the paths of a plan. Missing system paths are left out. A missing path of the plan is an error, because
    /// Landlock would refuse the complete set of rules.
    pub(crate) fn of(plan: &JailPlan) -> Result<Self, String> {
        let system: &[&str] = match &plan.work {
            Work::Hosted(hosted) if hosted.kind == HostedKind::Native => &LIBRARY_PATHS,
            Work::Hosted(_) | Work::Command { .. } | Work::Probe(_) => &COMMAND_PATHS,
        };
        for path in plan.read_only.iter().chain(&plan.scratch) {
            if !path.is_absolute() || !path.exists() {
                return Err(format!("the path {} is not an existing absolute path", path.display()));
            }
        }
        let mut read_only: Vec<PathBuf> = existing(system.iter().map(Path::new)).collect();
        read_only.extend(plan.read_only.iter().cloned());
        let mut devices: Vec<PathBuf> = existing(DEVICES.iter().map(Path::new)).collect();
        if plan.shows_kernel_files() {
            read_only.extend(existing([Path::new(KERNEL_FILES)]));
        }
        if let Some(device) = &plan.device {
            // The driver's folder may be a link, and machines differ in the folders that they have.
            read_only.extend(existing(device.library_folders.iter().map(PathBuf::as_path)));
            devices.extend(existing(device.nodes.iter().map(PathBuf::as_path)));
        }
        Ok(Self { devices, read_only, scratch: plan.scratch.clone() })
    }
}

fn existing<'a>(paths: impl IntoIterator<Item = &'a Path>) -> impl Iterator<Item = PathBuf> {
    paths.into_iter().filter(|path| path.exists()).map(Path::to_owned)
}

/// Checks that this process, which runs as the unprivileged user, can use the paths of the plan.
pub(crate) fn check_reachable(plan: &JailPlan) -> Result<(), String> {
    let uid = rustix::process::geteuid().as_raw();
    let folder = |path: &Path, verb: &str, error: Errno| {
        format!(
            "programs of this worker of root run as user {uid}, who cannot {verb} {}: {error}. Let other users enter its \
             parent folders, set worker.cache_dir to a folder below /var/cache, or start the worker as an ordinary user",
            path.display()
        )
    };
    for path in &plan.read_only {
        let wanted = if path.is_dir() { Access::READ_OK | Access::EXEC_OK } else { Access::READ_OK };
        access(path, wanted).map_err(|error| folder(path, "read", error))?;
    }
    if let Some(scratch) = &plan.scratch {
        access(scratch, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| folder(scratch, "write to", error))?;
    }
    // The nodes of MIG belong to root, except those of instances. A program opens only those that it may open.
    let is_for_instances = |node: &&PathBuf| node.parent().is_some_and(|folder| folder.ends_with("nvidia-caps"));
    let nodes = plan.device.iter().flat_map(|device| &device.nodes).filter(|node| node.exists());
    for node in nodes.filter(|node| !is_for_instances(node)) {
        access(node, Access::READ_OK | Access::WRITE_OK).map_err(|error| {
            format!(
                "programs of this worker of root run as user {uid}, who cannot open {}: {error}. Set the option \
                 NVreg_DeviceFileMode=0666 of the kernel module `nvidia`, or start the worker as a user who may open it",
                node.display()
            )
        })?;
    }
    Ok(())
}
