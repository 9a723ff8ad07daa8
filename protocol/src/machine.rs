//! What a machine offers, what a step needs, and which isolation was in force.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::capability::{ComputeCapability, Label, Tool};
use crate::target::Target;
use crate::time::TimestampMs;

/// Who can carry out a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// The server itself, which alone holds model keys.
    Agent,
    /// A machine that builds and runs programs.
    Worker,
}

/// How a step uses the device it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeviceUse {
    /// No device: processor slots only.
    None,
    /// The device, beside others.
    Shared,
    /// The device alone: for timing and profiling.
    Exclusive,
}

/// What a step needs. Its canonical text is the name of its route.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Needs {
    /// Who carries it out.
    pub executor: Executor,
    /// The hardware target, for a worker's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// How the device is used.
    pub device: DeviceUse,
    /// Least compute capability of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
    /// Least memory of the device, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory_bytes: Option<u64>,
    /// Tools that the machine has to have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<Tool>,
    /// Labels that the machine has to carry, for example `pool=night`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Label>,
}

impl Needs {
    /// A step of the agents, on the server.
    #[must_use]
    pub fn agent() -> Self {
        Self::plain(Executor::Agent, None, DeviceUse::None)
    }

    /// A worker's step.
    #[must_use]
    pub fn worker(target: Target, device: DeviceUse) -> Self {
        Self::plain(Executor::Worker, Some(target), device)
    }

    fn plain(executor: Executor, target: Option<Target>, device: DeviceUse) -> Self {
        Self {
            executor,
            target,
            device,
            compute_capability: None,
            device_memory_bytes: None,
            tools: BTreeSet::new(),
            labels: BTreeSet::new(),
        }
    }
}

/// A compiler that a machine has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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

/// How many processes may hold a context on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Any number.
    Shared,
    /// One at a time.
    ExclusiveProcess,
    /// None.
    Prohibited,
}

/// Partition of a GPU (multi-instance GPU).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "mig", rename_all = "snake_case")]
pub enum Mig {
    /// The whole GPU is partitioned: it is its instances that can be used.
    Parent,
    /// This device is one instance of a partitioned GPU.
    Instance {
        /// The driver's name of the whole GPU.
        parent_uuid: String,
        /// Number of the GPU instance.
        gpu_instance: Option<u32>,
        /// Number of the compute instance in it.
        compute_instance: Option<u32>,
    },
}

/// Facts of one GPU, or of one instance of a partitioned one. What the driver does not tell is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GpuFacts {
    /// The driver's number of the GPU, in the order of the bus. Instances carry the number of their GPU.
    pub index: u32,
    /// Model, for example `NVIDIA H200`.
    pub name: String,
    /// The driver's name of this very device.
    pub uuid: String,
    /// Compute capability.
    pub compute_capability: ComputeCapability,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Version of the driver, for example `580.65.06`.
    pub driver_version: String,
    /// Newest CUDA version that the driver can run, for example `13.0`.
    pub cuda_driver_version: String,
    /// Whether errors in memory are corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc: Option<bool>,
    /// Errors in memory since the driver was loaded that could not be corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    /// Its part in a partition; none for a whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
    /// Highest clock of the multiprocessors, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_max_mhz: Option<u32>,
    /// Highest clock of the memory, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock_max_mhz: Option<u32>,
    /// Multiprocessors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiprocessors: Option<u32>,
    /// Second-level cache in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_bytes: Option<u64>,
    /// Bandwidth of the memory by its clock and width, in bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes_per_s: Option<u64>,
    /// Power limit in force, in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<u32>,
    /// Whether the driver stays loaded while no process uses the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<bool>,
    /// How many processes may hold a context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_mode: Option<ComputeMode>,
    /// Place on the bus, for example `00000000:1B:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_bus_id: Option<String>,
}

/// Facts about a device that only CUDA reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CudaFacts {
    /// Multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Second-level cache in bytes.
    pub l2_bytes: Option<u64>,
    /// Highest clock of the memory in kHz.
    pub memory_clock_khz: Option<u64>,
    /// Width of the memory's bus in bits.
    pub memory_bus_bits: Option<u64>,
}

impl GpuFacts {
    /// Adds what CUDA reports of the device. A part of a GPU has no bandwidth of its own.
    pub fn complete(&mut self, told: &CudaFacts) {
        self.multiprocessors = told.multiprocessors.or(self.multiprocessors);
        self.l2_bytes = told.l2_bytes.or(self.l2_bytes);
        if self.memory_bytes_per_s.is_none() && self.mig.is_none() {
            self.memory_bytes_per_s = told.memory_clock_khz.zip(told.memory_bus_bits).map(memory_bandwidth);
        }
    }
}

/// Returns the bandwidth of a memory in bytes per second, from its clock in kHz and the width of its bus in bits. Memory transfers on
/// both edges of its clock.
#[must_use]
pub fn memory_bandwidth((clock_khz, bus_bits): (u64, u64)) -> u64 {
    clock_khz * 1_000 * 2 * bus_bits / 8
}

/// Facts of a machine, recorded with every measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// A core of the processor, as far as the system describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<CoreFacts>,
    /// The C++ compiler of the `cpu` target, when there is one.
    pub cpp_toolchain: Option<Toolchain>,
    /// The CUDA compiler of the `cuda` target, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_toolchain: Option<Toolchain>,
    /// GPUs that this worker may use. In the facts of a measurement: the one that it was taken on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuFacts>,
    /// What isolates candidate processes here.
    pub sandbox: SandboxReport,
}

impl MachineFacts {
    /// Returns the name of the GPU, or of the processor where there is none: what programs on this machine are measured on.
    #[must_use]
    pub fn device_name(&self) -> &str {
        self.gpus.first().map_or(&self.processor, |gpu| &gpu.name)
    }
}

/// What the system says of a core of a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CoreFacts {
    /// First-level cache for data in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l1_bytes: Option<u64>,
    /// Second-level cache in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_bytes: Option<u64>,
    /// Hardware threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Highest clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_clock_mhz: Option<u32>,
}

/// Name of the means that maps the programs of a worker of root to an unprivileged user.
pub const UNPRIVILEGED_USER: &str = "unprivileged_user";

/// One means of isolation and whether it was in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxMeans {
    /// `landlock`, `seccomp`, `user_namespace`, `mount_namespace`, `unprivileged_user`, `cgroup`, `rlimits` and so on.
    pub name: String,
    /// Whether it was in force.
    pub in_force: bool,
    /// Version, or the reason why it was not in force.
    pub detail: String,
}

/// The isolation of candidate processes, as it was found or as it was in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxReport {
    /// Every means, in force or not.
    pub means: Vec<SandboxMeans>,
    /// Whether files outside the allowed folders were out of reach.
    pub isolates_files: bool,
    /// Whether the network was out of reach.
    pub isolates_network: bool,
}

impl SandboxReport {
    /// Returns whether code of an unknown author may run here without `--allow-unsandboxed`.
    #[must_use]
    pub fn is_sufficient(&self) -> bool {
        self.isolates_files && self.isolates_network && self.root_reason().is_none()
    }

    /// Returns why programs run as root; none when they do not. Reports of earlier releases do not tell, and count as
    /// they did then.
    #[must_use]
    pub fn root_reason(&self) -> Option<&str> {
        let entry = self.means.iter().find(|means| means.name == UNPRIVILEGED_USER);
        entry.filter(|means| !means.in_force).map(|means| means.detail.as_str())
    }

    /// Describes what is missing for code of an unknown author, and what to do about a worker of root; none when nothing
    /// is missing.
    #[must_use]
    pub fn insufficiency(&self) -> Option<String> {
        let reach = match (self.isolates_files, self.isolates_network) {
            (true, true) => None,
            (true, false) => Some("programs reach the network"),
            (false, true) => Some("programs reach files of the machine"),
            (false, false) => Some("programs reach files of the machine and the network"),
        };
        let root = self.root_reason().map(|reason| {
            format!(
                "programs run as root ({reason}): start the worker as an ordinary user, or as root with the capabilities to \
                 map programs to one"
            )
        });
        let missing: Vec<String> = reach.map(str::to_owned).into_iter().chain(root).collect();
        (!missing.is_empty()).then(|| missing.join("; "))
    }

    /// Lists the means in force as `landlock + seccomp + ...`. Attempts of the probe (`probe_...`) are left out.
    #[must_use]
    pub fn summary(&self) -> String {
        let means = self.means.iter().filter(|m| m.in_force && !m.name.starts_with("probe_"));
        let names: Vec<&str> = means.map(|m| m.name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(" + ") }
    }
}

/// A device of a machine: on each, one exclusive step at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeviceOffer {
    /// Number on this machine, from 0.
    pub index: u32,
    /// The hardware target. On the `cpu` target the device is the machine itself.
    pub target: Target,
    /// Model, for example `NVIDIA H200`.
    pub name: String,
    /// The driver's name of this very device, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Compute capability, for a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Steps that may share it when no step has it alone.
    pub shared_slots: u32,
    /// Why nothing may run on it for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
}

/// Why nothing runs on a device until it passes a test again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Quarantine {
    /// Tells it from earlier ones of the same device in the same life of its worker.
    pub incident: u64,
    /// Stable code: `gpu.lost`, `gpu.wedged`, `gpu.unprobed`.
    pub code: String,
    /// What was seen.
    pub reason: String,
    /// When the server heard of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<TimestampMs>,
}

/// What a worker can do, sent at registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Offers {
    /// Hardware targets that it builds for.
    pub targets: Vec<Target>,
    /// Steps without a device that it carries out at once.
    pub cpu_slots: u32,
    /// Devices.
    #[serde(default)]
    pub devices: Vec<DeviceOffer>,
    /// Tools that were found.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tools: BTreeSet<Tool>,
    /// Labels that its operator gave it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<Label>,
    /// Facts of the machine.
    pub machine: MachineFacts,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(json: serde_json::Value) -> SandboxReport {
        serde_json::from_value(json).unwrap_or_default()
    }

    #[test]
    fn a_stored_report_without_a_user_keeps_its_meaning() {
        let stored = report(serde_json::json!({
            "means": [
                { "name": "user_namespace", "in_force": true, "detail": "own identity only" },
                { "name": "landlock", "in_force": true, "detail": "version 5" },
                { "name": "seccomp", "in_force": true, "detail": "120 system calls refused" },
            ],
            "isolates_files": true,
            "isolates_network": true,
        }));
        assert_eq!(stored.means.len(), 3);
        assert!(stored.is_sufficient());
        assert_eq!((stored.root_reason(), stored.insufficiency()), (None, None));
    }

    #[test]
    fn programs_of_root_are_not_sufficiently_isolated() {
        let with_user = |in_force: bool| {
            report(serde_json::json!({
                "means": [{ "name": UNPRIVILEGED_USER, "in_force": in_force, "detail": "the detail" }],
                "isolates_files": true,
                "isolates_network": true,
            }))
        };
        assert!(with_user(true).is_sufficient());
        let root = with_user(false);
        assert!(!root.is_sufficient());
        let missing = root.insufficiency().unwrap_or_default();
        assert!(missing.starts_with("programs run as root (the detail)"), "{missing}");
        let everything = SandboxReport { isolates_files: false, isolates_network: false, ..root };
        let missing = everything.insufficiency().unwrap_or_default();
        assert!(missing.starts_with("programs reach files of the machine and the network; programs run"), "{missing}");
    }
}
