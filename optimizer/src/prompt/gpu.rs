//! A GPU, programs built for it and what its profilers saw, as a template sees them.

use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::gpu_text;
use nightshift_protocol::machine::GpuFacts;
use nightshift_protocol::profile::Profile;
use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::verdict::has_violation;
use serde::Serialize;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The device that programs are written for.
#[derive(Serialize)]
pub(crate) struct DeviceView {
    name: String,
    compute_capability: String,
    architecture: Option<String>,
    memory_gib: u64,
    memory_gbytes_per_s: Option<String>,
    multiprocessors: Option<u32>,
    l2_mib: Option<u64>,
    sm_clock_mhz: Option<u32>,
    is_partition: bool,
}

impl DeviceView {
    /// The GPU on which the task was prepared. A reference in Python is not built for one.
    pub(crate) fn new(prepared: &PreparedTask) -> Option<Self> {
        let built = prepared.reference.cuda.as_ref();
        let gpu: &GpuFacts = prepared.machine.gpus.first()?;
        Some(Self {
            name: gpu.name.clone(),
            compute_capability: gpu.compute_capability.to_string(),
            architecture: built.map(|built| built.arch.clone()),
            memory_gib: gpu.memory_bytes / GIB,
            memory_gbytes_per_s: gpu.memory_bytes_per_s.map(|bytes| (bytes / 1_000_000_000).to_string()),
            multiprocessors: gpu.multiprocessors,
            l2_mib: gpu.l2_bytes.map(|bytes| bytes / MIB),
            sm_clock_mhz: gpu.sm_clock_max_mhz,
            is_partition: gpu.mig.is_some(),
        })
    }
}

/// What is known of an attempt beyond what every target has.
#[derive(Serialize)]
pub(crate) struct GpuView {
    /// Its kernels as they were built.
    built: Vec<String>,
    profile: Option<GpuProfileView>,
    /// Share of the time of all kernels that its own took, in percent.
    own_kernel_percent: Option<String>,
    /// What the sanitizer's checks came to.
    sanitizer: Vec<String>,
    /// Whether they found an error.
    is_unsafe: bool,
}

impl GpuView {
    /// None on the `cpu` target.
    pub(crate) fn new(attempt: &Attempt) -> Option<Self> {
        let build = attempt.build.as_ref().and_then(|build| build.cuda.as_ref());
        let profile = attempt.profile.as_ref().filter(|profile| is_of_a_gpu(profile));
        if build.is_none() && profile.is_none() && attempt.sanitize.is_none() {
            return None;
        }
        let report = attempt.sanitize.as_ref();
        Some(Self {
            built: build.map(gpu_text::built).unwrap_or_default(),
            profile: profile.map(GpuProfileView::new),
            own_kernel_percent: attempt.verdict.custom_kernel_time_share.map(|share| format!("{:.0}", share * 100.0)),
            sanitizer: report.map(gpu_text::sanitizer).unwrap_or_default(),
            is_unsafe: report.is_some_and(|report| has_violation(&report.findings)),
        })
    }
}

/// What the profilers saw of a program.
#[derive(Serialize)]
pub(crate) struct GpuProfileView {
    tier: String,
    bound: Option<String>,
    timeline: Vec<String>,
    kernels: Vec<String>,
    missing: Vec<String>,
}

impl GpuProfileView {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self {
            tier: profile.tier.clone(),
            bound: profile.bound.as_ref().map(gpu_text::bound),
            timeline: profile.timeline.as_ref().map(gpu_text::timeline).unwrap_or_default(),
            kernels: gpu_text::counters(&profile.kernels),
            missing: gpu_text::missing(profile, false),
        }
    }
}

/// Whether anything of it can only be seen on a GPU.
fn is_of_a_gpu(profile: &Profile) -> bool {
    profile.timeline.is_some() || !profile.kernels.is_empty() || !profile.tiers.is_empty()
}
