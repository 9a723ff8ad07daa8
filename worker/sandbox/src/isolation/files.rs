//! Which files a jail shows, and Landlock, which holds it to them.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use nightshift_protocol::machine::SandboxMeans;

use super::device::KERNEL_VIEWS;
use super::namespaces::TOOL_FOLDERS;
use super::plan::{HostedKind, JailPlan, Work};
use super::supervise::{in_force, not_in_force};

/// Devices that every program may use.
pub(super) const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// What compilers and their helpers need of the system.
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

/// What a loaded library needs of the system: other libraries.
const RUNNER_PATHS: [&str; 10] = [
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

/// Versions of Landlock, newest first, down to the oldest that also guards against cutting files short.
const VERSIONS: [ABI; 7] = [ABI::V9, ABI::V8, ABI::V7, ABI::V6, ABI::V5, ABI::V4, ABI::V3];

/// Paths that a jail shows. All exist.
pub(super) struct Visible {
    /// Devices.
    pub(super) devices: Vec<PathBuf>,
    /// The process's own description and that of the kernel, which a driver reads and names its threads in.
    pub(super) processes: bool,
    /// For reading and executing.
    pub(super) read_only: Vec<PathBuf>,
    /// For everything.
    pub(super) scratch: Option<PathBuf>,
}

/// The paths that exist. A missing system path is left out; a missing path of the plan is an error: rules for paths
/// that do not exist would weaken the whole set.
pub(super) fn visible(plan: &JailPlan) -> Result<Visible, String> {
    let system: &[&str] = match plan.work {
        Work::Hosted(ref hosted) if hosted.kind == HostedKind::Native => &RUNNER_PATHS,
        Work::Hosted(_) | Work::Command { .. } | Work::Probe(_) => &COMMAND_PATHS,
    };
    let mut read_only: Vec<PathBuf> =
        system.iter().map(Path::new).filter(|path| path.exists()).map(Path::to_owned).collect();
    for path in plan.read_only.iter().chain(&plan.scratch) {
        if !path.is_absolute() || !path.exists() {
            return Err(format!("the path {} is not an existing absolute path", path.display()));
        }
    }
    read_only.extend(plan.read_only.iter().cloned());
    let mut devices: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    if plan.shows_machine() {
        read_only.extend(KERNEL_VIEWS.iter().map(PathBuf::from).filter(|path| path.exists()));
    }
    if let Some(device) = &plan.device {
        // The driver's own folder may be a link, and a machine may lack what another one has.
        read_only.extend(device.library_folders.iter().filter(|path| path.exists()).cloned());
        devices.extend(device.nodes.iter().filter(|path| path.exists()).cloned());
    }
    Ok(Visible { read_only, devices, processes: plan.shows_machine(), scratch: plan.scratch.clone() })
}

/// Restricts this process to the visible paths, and to no network and no signals beyond itself where the kernel can.
/// Tells whether files are isolated.
pub(super) fn restrict_files(
    plan: &JailPlan,
    own_network: bool,
    own_root: bool,
    means: &mut Vec<SandboxMeans>,
) -> Result<bool, String> {
    let shown = visible(plan)?;
    let own_folders: &[&str] = if own_root && plan.is_for_tool() { &TOOL_FOLDERS } else { &[] };
    let mut reason = String::new();
    for abi in VERSIONS {
        match restrict_with(abi, &shown, own_network, own_folders) {
            Ok(RestrictionStatus {
                ruleset: RulesetStatus::FullyEnforced,
                landlock: LandlockStatus::Available { effective_abi, .. },
                ..
            }) => {
                means.push(in_force("landlock", &format!("version {effective_abi}")));
                return Ok(true);
            }
            Ok(status) => reason = format!("rules of version {abi}: {:?}", status.ruleset),
            Err(error) => reason = error.to_string(),
        }
    }
    means.push(not_in_force("landlock", &reason));
    Ok(false)
}

fn restrict_with(
    abi: ABI,
    shown: &Visible,
    own_network: bool,
    own_folders: &[&str],
) -> Result<RestrictionStatus, landlock::RulesetError> {
    // Everything is required, nothing is best effort: a rule that the kernel cannot hold has to fail, so that the
    // next older version is tried as a whole.
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(abi))?;
    // In a network of its own, a process may reach what is in it.
    if !AccessNet::from_all(abi).is_empty() && !own_network {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if !Scope::from_all(abi).is_empty() {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    let mut device_access: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let process_access = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::Truncate;
    let mut processes: Option<&str> = None;
    if shown.processes {
        device_access |= AccessFs::from_all(abi) & AccessFs::IoctlDev;
        processes = Some("/proc");
    }
    ruleset
        .create()?
        .add_rules(path_beneath_rules(&shown.read_only, AccessFs::from_read(abi)))?
        .add_rules(path_beneath_rules(&shown.devices, device_access))?
        // A driver names its threads there. What belongs to others is kept by the rules for processes: one that is
        // restricted cannot look into one that is not.
        .add_rules(path_beneath_rules(processes, process_access))?
        .add_rules(path_beneath_rules(&shown.scratch, AccessFs::from_all(abi)))?
        .add_rules(path_beneath_rules(own_folders, AccessFs::from_all(abi)))?
        .restrict_self()
}
