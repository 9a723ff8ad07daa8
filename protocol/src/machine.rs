//! What a machine offers, what a step needs, and which isolation was in force.

use serde::{Deserialize, Serialize};

use crate::task::Target;

/// Who can carry out a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// The server itself, which alone holds model keys.
    Agent,
    /// A machine that builds and runs programs.
    Worker,
}

/// How a step uses the device it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceUse {
    /// No device: processor slots only.
    None,
    /// The device, beside others.
    Shared,
    /// The device alone: for timing and profiling.
    Exclusive,
}

/// What a step needs. Its canonical JSON text is the name of its route.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Needs {
    /// Who carries it out.
    pub executor: Executor,
    /// The hardware target, for a worker's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// How the device is used.
    pub device: DeviceUse,
}

impl Needs {
    /// A step of the agents, on the server.
    #[must_use]
    pub fn agent() -> Self {
        Self { executor: Executor::Agent, target: None, device: DeviceUse::None }
    }

    /// A worker's step.
    #[must_use]
    pub fn worker(target: Target, device: DeviceUse) -> Self {
        Self { executor: Executor::Worker, target: Some(target), device }
    }

    /// The canonical text: equal needs give equal texts.
    #[must_use]
    pub fn route(&self) -> String {
        let target = match self.target {
            None => "-",
            Some(Target::Cpu) => "cpu",
            Some(Target::Cuda) => "cuda",
        };
        let executor = match self.executor {
            Executor::Agent => "agent",
            Executor::Worker => "worker",
        };
        let device = match self.device {
            DeviceUse::None => "none",
            DeviceUse::Shared => "shared",
            DeviceUse::Exclusive => "exclusive",
        };
        format!("{executor}/{target}/{device}")
    }
}

/// A compiler that a machine has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    /// The program, as it was found.
    pub program: String,
    /// Its full path.
    pub path: String,
    /// The first line of its version report.
    pub version: String,
    /// Flags that every program on this target is built with, baseline and candidate alike.
    pub flags: Vec<String>,
    /// blake3 over program, version, flags and processor: part of every build's address.
    pub fingerprint: String,
}

/// Facts of a machine, recorded with every measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Host name as shown to people.
    pub host: String,
    /// Operating system and kernel.
    pub os: String,
    /// Processor model.
    pub processor: String,
    /// Usable processor cores.
    pub cores: u32,
    /// Instruction-set extensions that matter to a kernel's author, for example `avx2`, `fma`.
    pub features: Vec<String>,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// Last-level cache in bytes, when known.
    pub last_level_cache_bytes: Option<u64>,
    /// The C++ compiler of the `cpu` target, when there is one.
    pub cpp_toolchain: Option<Toolchain>,
    /// What isolates candidate processes here.
    pub sandbox: SandboxReport,
}

/// One means of isolation and whether it was in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxMeans {
    /// `landlock`, `seccomp`, `user_namespace`, `mount_namespace`, `pid_namespace`, `network_namespace`, `rlimits`, ...
    pub name: String,
    /// Whether it was in force.
    pub in_force: bool,
    /// Version, or the reason why it was not in force.
    pub detail: String,
}

/// The isolation of candidate processes, as it was found or as it was in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SandboxReport {
    /// Every means, in force or not.
    pub means: Vec<SandboxMeans>,
    /// Whether files outside the allowed folders were out of reach.
    pub isolates_files: bool,
    /// Whether the network was out of reach.
    pub isolates_network: bool,
}

impl SandboxReport {
    /// Whether code of an unknown author may run here without `--allow-unsandboxed`.
    #[must_use]
    pub fn is_sufficient(&self) -> bool {
        self.isolates_files && self.isolates_network
    }

    /// `landlock + seccomp + ...`, for one line of a table. Tries of the isolation (`probe_...`) are left out.
    #[must_use]
    pub fn summary(&self) -> String {
        let means = self.means.iter().filter(|m| m.in_force && !m.name.starts_with("probe_"));
        let names: Vec<&str> = means.map(|m| m.name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(" + ") }
    }
}

/// What a worker can do, sent at registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offers {
    /// Hardware targets.
    pub targets: Vec<Target>,
    /// Steps without a device that it carries out at once.
    pub cpu_slots: u32,
    /// Devices; on each one exclusive step at a time.
    pub device_slots: u32,
    /// Facts of the machine.
    pub machine: MachineFacts,
}
