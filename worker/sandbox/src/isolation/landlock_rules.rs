//! Landlock: which files, network and processes a program may reach.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use nightshift_protocol::machine::SandboxMeans;

use super::visible_paths::{TOOL_FOLDERS, VisiblePaths};
use crate::plan::JailPlan;
use crate::report::{in_force, not_in_force};

/// Versions of Landlock, newest first, down to the oldest one that protects files from being truncated.
const VERSIONS: [ABI; 7] = [ABI::V9, ABI::V8, ABI::V7, ABI::V6, ABI::V5, ABI::V4, ABI::V3];

/// The process table, which drivers read.
const PROCESSES: &str = "/proc";

/// The threads of this process, whose names drivers write.
const OWN_THREADS: &str = "/proc/self/task";

/// What Landlock restricts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LandlockScope {
    /// Files outside of the visible paths are out of reach.
    pub(crate) files: bool,
    /// Signals to processes outside of the program and its descendants are refused.
    pub(crate) signals: bool,
}

/// The namespaces that make some rules unnecessary.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings {
    /// The program may use its own network namespace.
    pub(crate) own_network: bool,
    /// The program has a private root, with a `/proc` of its own processes.
    pub(crate) own_root: bool,
}

/// Restricts this process to the visible paths, and to no network and no signals to other processes where the kernel
/// supports that.
pub(crate) fn restrict(
    plan: &JailPlan,
    surroundings: Surroundings,
    means: &mut Vec<SandboxMeans>,
) -> Result<LandlockScope, String> {
    let paths = VisiblePaths::of(plan)?;
    let mut reason = String::new();
    for abi in VERSIONS {
        match restrict_with(abi, plan, &paths, surroundings) {
            Ok(RestrictionStatus {
                ruleset: RulesetStatus::FullyEnforced,
                landlock: LandlockStatus::Available { effective_abi, .. },
                ..
            }) => {
                means.push(in_force("landlock", &format!("version {effective_abi}")));
                return Ok(LandlockScope { files: true, signals: Scope::from_all(abi).contains(Scope::Signal) });
            }
            Ok(status) => reason = format!("rules of version {abi}: {:?}", status.ruleset),
            Err(error) => reason = error.to_string(),
        }
    }
    means.push(not_in_force("landlock", &reason));
    Ok(LandlockScope::default())
}

fn restrict_with(
    abi: ABI,
    plan: &JailPlan,
    paths: &VisiblePaths,
    surroundings: Surroundings,
) -> Result<RestrictionStatus, landlock::RulesetError> {
    // A rule that the kernel does not support has to fail, so that the next older version is tried as a whole.
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(abi))?;
    if !AccessNet::from_all(abi).is_empty() && !surroundings.own_network {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if !Scope::from_all(abi).is_empty() {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    let mut device_access: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    if plan.shows_kernel_files() {
        device_access |= AccessFs::from_all(abi) & AccessFs::IoctlDev;
    }
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let writing = reading | AccessFs::WriteFile | AccessFs::Truncate;
    let processes = plan.shows_kernel_files().then_some(PROCESSES);
    // In a private root the mounts below /proc protect the kernel's settings, and all processes are the program's. Without
    // one, a program may write to its own threads only.
    let (all, own) = if surroundings.own_root { (writing, None) } else { (reading, processes.map(|_| OWN_THREADS)) };
    let own_folders: &[&str] = if surroundings.own_root && plan.is_for_tool() { &TOOL_FOLDERS } else { &[] };
    ruleset
        .create()?
        .add_rules(path_beneath_rules(&paths.read_only, AccessFs::from_read(abi)))?
        .add_rules(path_beneath_rules(&paths.devices, device_access))?
        .add_rules(path_beneath_rules(processes, all))?
        .add_rules(path_beneath_rules(own, writing))?
        .add_rules(path_beneath_rules(&paths.scratch, AccessFs::from_all(abi)))?
        .add_rules(path_beneath_rules(own_folders, AccessFs::from_all(abi)))?
        .restrict_self()
}
