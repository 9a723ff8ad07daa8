//! Facts of a GPU, of programs built for it and of what its profilers saw, as lines for a prompt: bounded, each number
//! with its unit.

use nightshift_protocol::attempt::{Attempt, Bound};
use nightshift_protocol::cuda_build::{CudaBuild, KernelBuild, OccupancyLimiter, SassCounts};
use nightshift_protocol::machine::GpuFacts;
use nightshift_protocol::profile::{
    BoundBy, KernelProfile, KernelTime, Profile, SanitizeReport, SanitizerOutcome, SanitizerRun, Timeline, Times,
};
use nightshift_protocol::step::PreparedTask;
use serde::Serialize;

use super::format::significant;
use super::view::line;

/// Most kernels of a build in a prompt.
const MAX_BUILT_KERNELS: usize = 12;
/// Most kernels of a timeline in a prompt.
const MAX_TIMED_KERNELS: usize = 10;
/// Most kernels with hardware counters in a prompt.
const MAX_COUNTED_KERNELS: usize = 4;
/// Most calls of the CUDA interfaces in a prompt.
const MAX_API_CALLS: usize = 6;
/// Most sentences of evidence for one bound.
const MAX_EVIDENCE: usize = 4;
/// Most reasons for waiting of one kernel.
const MAX_STALLS: usize = 4;
/// Most tools that are said to be missing.
const MAX_MISSING: usize = 8;
/// Most things that a check of the sanitizer found, of each check.
const MAX_ISSUES: usize = 5;

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
    /// The first device of the machine on which the task was prepared; none on the `cpu` target.
    pub(crate) fn new(prepared: &PreparedTask) -> Option<Self> {
        let built = prepared.reference.cuda.as_ref();
        let gpu: &GpuFacts = built.and_then(|_| prepared.machine.gpus.first())?;
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
            built: build.map(built).unwrap_or_default(),
            profile: profile.map(GpuProfileView::new),
            own_kernel_percent: attempt.verdict.custom_kernel_time_share.map(percent),
            sanitizer: report.map(sanitizer).unwrap_or_default(),
            is_unsafe: report.is_some_and(|report| crate::rubric::has_violation(&report.findings)),
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
        let unused = profile.tiers.iter().filter(|tier| !tier.used || tier.reason.is_some());
        let reason = |tier: &nightshift_protocol::profile::TierReport| {
            let why = tier.reason.as_deref().unwrap_or("no reason given");
            let how = if tier.used { "not complete" } else { "not used" };
            line(&format!("{}: {how}: {why}", tier.tool))
        };
        let mut missing: Vec<String> = unused.map(reason).collect();
        if missing.is_empty() {
            missing = profile.missing.iter().map(|text| line(text)).collect();
        }
        missing.truncate(MAX_MISSING);
        Self {
            tier: profile.tier.clone(),
            bound: profile.bound.as_ref().map(|bound| {
                let evidence: Vec<&str> = bound.evidence.iter().take(MAX_EVIDENCE).map(String::as_str).collect();
                line(&format!("{}: {}", bound_name(bound), joined_or(&evidence, "no evidence")))
            }),
            timeline: profile.timeline.as_ref().map(timeline).unwrap_or_default(),
            kernels: profile.kernels.iter().take(MAX_COUNTED_KERNELS).map(counted).collect(),
            missing,
        }
    }
}

/// Whether anything of it can only be seen on a GPU.
fn is_of_a_gpu(profile: &Profile) -> bool {
    profile.timeline.is_some() || !profile.kernels.is_empty() || !profile.tiers.is_empty()
}

fn built(build: &CudaBuild) -> Vec<String> {
    let mut lines: Vec<String> = build.kernels.iter().take(MAX_BUILT_KERNELS).map(built_kernel).collect();
    if let Some(left_out) = build.kernels.len().checked_sub(MAX_BUILT_KERNELS).filter(|count| *count > 0) {
        lines.push(format!("{left_out} more kernels"));
    }
    if let Some(why) = &build.uncounted {
        lines.push(line(&format!("The instructions were not counted: {why}")));
    }
    lines
}

fn built_kernel(kernel: &KernelBuild) -> String {
    let mut parts = vec![format!("{} registers", kernel.registers)];
    if kernel.shared_bytes > 0 {
        parts.push(format!("{} bytes of static shared memory", kernel.shared_bytes));
    }
    if kernel.stack_bytes > 0 {
        parts.push(format!("{} bytes of stack", kernel.stack_bytes));
    }
    parts.push(if kernel.spills() {
        format!("spills {} bytes out and {} bytes in", kernel.spill_store_bytes, kernel.spill_load_bytes)
    } else {
        "no spills".to_owned()
    });
    if let Some(occupancy) = &kernel.occupancy {
        parts.push(match &occupancy.of_block {
            Some(block) => format!(
                "blocks of {} threads: {} of {} warps resident, limited by {}",
                block.block_threads,
                block.warps,
                occupancy.max_warps,
                limiter(block.limited_by)
            ),
            None => {
                format!("registers allow {} of {} warps", occupancy.warps_by_registers, occupancy.max_warps)
            }
        });
    }
    if let Some(sass) = &kernel.sass {
        parts.push(format!("machine code: {}", instructions(sass)));
    }
    line(&format!("`{}`: {}", kernel.name, parts.join("; ")))
}

fn limiter(limiter: OccupancyLimiter) -> &'static str {
    match limiter {
        OccupancyLimiter::Registers => "registers",
        OccupancyLimiter::SharedMemory => "shared memory",
        OccupancyLimiter::Warps => "the number of warps itself",
        OccupancyLimiter::Blocks => "the number of blocks",
    }
}

/// The kinds of instructions that say how a kernel works; those it has none of are named where their absence matters.
fn instructions(sass: &SassCounts) -> String {
    let always = [
        ("instructions", sass.instructions),
        ("on tensor cores", sass.tensor_core),
        ("global loads", sass.global_loads),
        ("of 16 bytes", sass.loads_128),
    ];
    let when_there = [
        ("on warp groups' tensor cores", sass.tensor_core_group),
        ("global stores", sass.global_stores),
        ("stores of 16 bytes", sass.stores_128),
        ("shared loads", sass.shared_loads),
        ("shared stores", sass.shared_stores),
        ("asynchronous copies", sass.async_copies),
        ("bulk copies", sass.bulk_copies),
        ("atomics", sass.atomics),
        ("local loads", sass.local_loads),
        ("local stores", sass.local_stores),
        ("block barriers", sass.barriers),
        ("warp exchanges", sass.warp_exchanges),
        ("FFMA", sass.ffma),
        ("HFMA", sass.hfma),
        ("DFMA", sass.dfma),
        ("special functions", sass.special_function),
    ];
    let told = always.into_iter().chain(when_there.into_iter().filter(|(_, count)| *count > 0));
    told.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

fn timeline(timeline: &Timeline) -> Vec<String> {
    let calls = u64::from(timeline.calls.max(1));
    let mut lines = Vec::new();
    if timeline.calls > 0 {
        lines.push(format!(
            "One call takes {} on average over {calls} calls; the device works in {} % of it, the host alone has {} %",
            micros(timeline.span_ns / calls),
            percent(ratio(timeline.busy_ns, timeline.span_ns)),
            percent(timeline.host_share)
        ));
    }
    lines.extend(timeline.kernels.iter().take(MAX_TIMED_KERNELS).map(|kernel| timed(kernel, timeline.calls)));
    let unlisted = timeline.kernels.len().saturating_sub(MAX_TIMED_KERNELS);
    let unlisted = u64::try_from(unlisted).unwrap_or(u64::MAX).saturating_add(timeline.kernels_left_out);
    if unlisted > 0 {
        lines.push(format!("{unlisted} more kernels with smaller shares"));
    }
    for copy in timeline.copies.iter().chain(&timeline.memsets) {
        lines.push(format!(
            "Copies `{}`: {}, {} bytes in all",
            copy.direction.as_str(),
            often(&copy.times, timeline.calls),
            copy.bytes
        ));
    }
    if timeline.gaps.between.count > 0 {
        lines.push(format!(
            "Pauses of the device within a call: {}, the longest {}",
            often(&timeline.gaps.between, timeline.calls),
            micros(timeline.gaps.between.max_ns)
        ));
    }
    if timeline.launches.host.count > 0 {
        lines.push(format!(
            "Launching on the host: {}; {} until a kernel begins",
            often(&timeline.launches.host, timeline.calls),
            micros(timeline.launches.until_start.mean_ns())
        ));
    }
    if timeline.streams.len() > 1 {
        lines.push(format!(
            "Work on {} streams, {} of it at the same time",
            timeline.streams.len(),
            micros(timeline.overlap_ns)
        ));
    }
    for api in timeline.api.iter().take(MAX_API_CALLS) {
        lines.push(line(&format!("`{}`: {}", api.name, often(&api.times, timeline.calls))));
    }
    lines
}

fn timed(kernel: &KernelTime, calls: u32) -> String {
    let extents = |extents: [u64; 3]| extents.map(|extent| extent.to_string()).join("x");
    line(&format!(
        "`{}`: {} % of the kernels' time, {}; grid {}, block {}, {} registers, {} bytes of shared memory",
        kernel.name,
        percent(kernel.share),
        often(&kernel.times, calls),
        extents(kernel.grid),
        extents(kernel.block),
        kernel.registers_per_thread,
        kernel.shared_bytes
    ))
}

/// `3 times, 12.10 µs each`, by call where calls are told apart.
fn often(times: &Times, calls: u32) -> String {
    let each = micros(times.mean_ns());
    if calls == 0 || !times.count.is_multiple_of(u64::from(calls)) {
        return format!("{} times, {each} each", times.count);
    }
    format!("{} a call, {each} each", times.count / u64::from(calls))
}

fn counted(kernel: &KernelProfile) -> String {
    let mut parts = Vec::new();
    if let Some(share) = kernel.time_share {
        parts.push(format!("{} % of the kernels' time", percent(share)));
    }
    let evidence: Vec<&str> = kernel.bound.evidence.iter().take(MAX_EVIDENCE).map(String::as_str).collect();
    parts.push(format!("bound by {} ({})", bound_name(&kernel.bound), joined_or(&evidence, "no evidence")));
    let shares = [
        ("device memory", kernel.dram_share),
        ("L2", kernel.l2_share),
        ("L1 and shared memory", kernel.l1_share),
        ("multiprocessors", kernel.compute_share),
        ("tensor pipe", kernel.tensor_share),
        ("issue slots", kernel.issue_share),
    ];
    let of_peak: Vec<String> = shares
        .into_iter()
        .filter_map(|(name, share)| share.map(|share| format!("{name} {} %", percent(share))))
        .collect();
    if !of_peak.is_empty() {
        parts.push(format!("of their peaks: {}", of_peak.join(", ")));
    }
    if let Some((pipe, share)) = &kernel.busiest_pipe {
        parts.push(format!("busiest pipe {pipe} {} %", percent(*share)));
    }
    if let Some(occupancy) = kernel.occupancy {
        let limit = kernel.occupancy_limit.map_or_else(String::new, |limit| {
            let by = kernel.occupancy_limited_by.as_deref().map_or_else(String::new, |by| format!(" by {by}"));
            format!(" (limit {} %{by})", percent(limit))
        });
        parts.push(format!("occupancy {} %{limit}", percent(occupancy)));
    }
    let numbers = [
        ("waves of blocks", kernel.waves),
        ("sectors a load", kernel.sectors_per_load),
        ("bank conflicts", kernel.bank_conflicts),
        ("bytes to and from device memory", kernel.dram_bytes),
    ];
    parts.extend(numbers.into_iter().filter_map(|(name, n)| n.map(|n| format!("{} {name}", significant(n)))));
    for (cache, rate) in [("L2", kernel.l2_hit_rate), ("L1", kernel.l1_hit_rate)] {
        parts.extend(rate.map(|rate| format!("{cache} hits {} %", percent(rate))));
    }
    let stalls: Vec<String> = kernel
        .stalls
        .iter()
        .take(MAX_STALLS)
        .map(|stall| format!("{} {} %", stall.reason, percent(stall.share)))
        .collect();
    if !stalls.is_empty() {
        parts.push(format!("warps wait for: {}", stalls.join(", ")));
    }
    // A kernel's numbers are worth more room than a foreign line.
    super::format::clipped(&format!("`{}`: {}", line(&kernel.name), parts.join("; ")), MAX_COUNTED_BYTES)
}

/// Longest line of a kernel with hardware counters, in bytes.
const MAX_COUNTED_BYTES: usize = 1_500;

fn sanitizer(report: &SanitizeReport) -> Vec<String> {
    report.tools.iter().flat_map(checked).collect()
}

fn checked(run: &SanitizerRun) -> Vec<String> {
    let tool = run.tool.as_str();
    let mut lines = vec![match run.outcome {
        SanitizerOutcome::Clean => format!("{tool}: nothing found"),
        SanitizerOutcome::Warnings => format!("{tool}: {} warnings", run.warnings),
        SanitizerOutcome::Errors => format!("{tool}: {} errors", run.errors),
        SanitizerOutcome::Unavailable => {
            line(&format!("{tool}: not looked at: {}", run.reason.as_deref().unwrap_or("no reason given")))
        }
    }];
    for issue in run.issues.iter().take(MAX_ISSUES) {
        let place = match (issue.kernel.as_deref(), issue.line) {
            (Some(kernel), Some(at)) => format!(" in `{kernel}`, line {at}"),
            (Some(kernel), None) => format!(" in `{kernel}`"),
            (None, Some(at)) => format!(", line {at}"),
            (None, None) => String::new(),
        };
        let size = issue.size_bytes.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
        let thread = issue
            .thread
            .zip(issue.block)
            .map_or_else(String::new, |(thread, block)| format!(", first by thread {thread:?} of block {block:?}"));
        let more = issue.details.first().map_or_else(String::new, |detail| format!("; {detail}"));
        lines.push(line(&format!("{tool}: {}{size}{place}, {} times{thread}{more}", issue.kind, issue.count)));
    }
    lines
}

fn bound_name(by: &BoundBy) -> &'static str {
    by.bound.map_or("nothing that the evidence decides", Bound::as_str)
}

fn joined_or(parts: &[&str], nothing: &str) -> String {
    if parts.is_empty() { nothing.to_owned() } else { parts.join("; ") }
}

#[expect(clippy::cast_precision_loss, reason = "times of calls are far below 2^52 nanoseconds")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "times of calls are far below 2^52 nanoseconds")]
fn micros(ns: u64) -> String {
    format!("{} µs", significant(ns as f64 / 1e3))
}

fn percent(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}
