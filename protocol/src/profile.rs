//! Why a program is as fast as it is, and what the sanitizers saw: what profilers and sanitizers tell, in types.

use serde::{Deserialize, Serialize};

use crate::artifact::ArtifactHash;
use crate::attempt::Bound;
use crate::measurement::CompilerReport;
use crate::verdict::{Answer, Finding};

/// What a profile says, and by which tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Profile {
    /// The tier, for example `compiler_report+analytic_roofline` or `nsys+ncu+compiler_report+analytic_roofline`.
    pub tier: String,
    /// What a better tier would have added, and why it was not available.
    pub missing: Vec<String>,
    /// Floating-point operations by compulsory byte, when the task says both.
    pub arithmetic_intensity: Option<f64>,
    /// Peak in floating-point operations per second: on `cpu` measured with one thread of this machine, on `cuda` the
    /// device's single-precision peak outside of the tensor cores. 0 when it is not known.
    pub peak_flops_per_s: f64,
    /// Peak of the memory in bytes per second: on `cpu` the copy bandwidth measured with one thread, on `cuda` what the
    /// device's memory clock and bus allow. 0 when it is not known.
    pub peak_bytes_per_s: f64,
    /// Share of the peak that bounds this program by the roofline, 0 to 1, when it can be computed.
    pub roofline_share: Option<f64>,
    /// `memory`, `compute`, or `unknown`, by the roofline alone.
    pub roofline_bound: String,
    /// The compiler's report.
    pub compiler: CompilerReport,
    /// What bounds the whole program, by its timeline and its kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<BoundBy>,
    /// What ran when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// The kernels that matter, by their share of the device's time, largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelProfile>,
    /// Each tool that was wanted: used, or why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierReport>,
    /// The timeline as a trace that Perfetto and Chrome open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<ArtifactHash>,
}

/// What bounds something, and the numbers that say so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct BoundBy {
    /// The bound; none when the evidence does not decide it.
    pub bound: Option<Bound>,
    /// The numbers, one sentence each, the decisive one first.
    pub evidence: Vec<String>,
}

/// What a tool is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TierPurpose {
    /// What ran when.
    Timeline,
    /// What limits a kernel.
    Kernels,
    /// What the compiler made of the source.
    Code,
    /// How far from the peaks.
    Roofline,
}

/// One tool that was wanted for a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierReport {
    /// What for.
    pub purpose: TierPurpose,
    /// The tool: `nsys`, `cupti`, `ncu`, `compiler_report`, `analytic_roofline`.
    pub tool: String,
    /// Its version, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether its result is in the profile.
    pub used: bool,
    /// Stable code of why it is not, for example `profile.counters_not_permitted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why its result is not in the profile, or not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What an operator does to get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Wall time that it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
}

/// How often something happened, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Times {
    /// How often.
    pub count: u64,
    /// All together, in nanoseconds.
    pub total_ns: u64,
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl Times {
    /// Counts one more.
    pub fn add(&mut self, duration_ns: u64) {
        self.min_ns = if self.count == 0 { duration_ns } else { self.min_ns.min(duration_ns) };
        self.max_ns = self.max_ns.max(duration_ns);
        self.count = self.count.saturating_add(1);
        self.total_ns = self.total_ns.saturating_add(duration_ns);
    }

    /// The mean, 0 when it never happened.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }
}

/// What ran when, over some calls of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Timeline {
    /// Calls of the program that it covers; 0 when the calls could not be told apart from the rest of the process.
    pub calls: u32,
    /// Time from the beginning of a call to the end of its device work, over all calls, in nanoseconds.
    pub span_ns: u64,
    /// Time in which the device did anything, in nanoseconds.
    pub busy_ns: u64,
    /// Time in which it did more than one thing at once, in nanoseconds.
    pub overlap_ns: u64,
    /// Share of the span in which the device did nothing, 0 to 1: the host's share.
    pub host_share: f64,
    /// Kernels by name, longest total first.
    pub kernels: Vec<KernelTime>,
    /// Kernels by name that did not fit into the list.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kernels_left_out: u64,
    /// Copies by direction.
    pub copies: Vec<CopyTime>,
    /// Memory that was set on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memsets: Option<CopyTime>,
    /// Calls of the CUDA interfaces by name, longest total first.
    pub api: Vec<ApiTime>,
    /// Pauses of the device within a call.
    pub gaps: Gaps,
    /// What starting kernels cost.
    pub launches: Launches,
    /// What ran on which stream.
    pub streams: Vec<StreamTime>,
}

/// One kernel of a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct KernelTime {
    /// Its name with its parameters, as written in the source.
    pub name: String,
    /// Its name in the library, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mangled: Option<String>,
    /// Launches and durations.
    pub times: Times,
    /// Share of the time of all kernels, 0 to 1.
    pub share: f64,
    /// Grid of its longest launch.
    pub grid: [u64; 3],
    /// Block of its longest launch.
    pub block: [u64; 3],
    /// Registers per thread, as the device allocates them.
    pub registers_per_thread: u64,
    /// Shared memory of a block, static and dynamic, in bytes.
    pub shared_bytes: u64,
}

/// Where a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum CopyDirection {
    /// From the host to the device.
    HostToDevice,
    /// From the device to the host.
    DeviceToHost,
    /// Within the device.
    DeviceToDevice,
    /// Between devices.
    Peer,
    /// Pages of managed memory.
    Managed,
    /// Nothing is copied: memory is set.
    Set,
    /// Anything else.
    #[default]
    Other,
}

impl CopyDirection {
    /// The stored and printed name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostToDevice => "host_to_device",
            Self::DeviceToHost => "device_to_host",
            Self::DeviceToDevice => "device_to_device",
            Self::Peer => "peer",
            Self::Managed => "managed",
            Self::Set => "set",
            Self::Other => "other",
        }
    }
}

/// Copies of one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct CopyTime {
    /// Where to.
    pub direction: CopyDirection,
    /// Number and durations.
    pub times: Times,
    /// Bytes.
    pub bytes: u64,
}

/// One call of a CUDA interface, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ApiTime {
    /// Its name without a version, for example `cudaLaunchKernel`.
    pub name: String,
    /// Number and durations.
    pub times: Times,
}

/// Pauses of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Gaps {
    /// Between two pieces of device work of one call.
    pub between: Times,
    /// From the beginning of a call to its first device work.
    pub before_first: Times,
}

/// What starting kernels cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Launches {
    /// Time that the host spent in launching calls.
    pub host: Times,
    /// Time from the beginning of a launching call to the beginning of its kernel; waiting for earlier kernels included.
    pub until_start: Times,
    /// Launches of whole graphs.
    pub graphs: u64,
}

/// What ran on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct StreamTime {
    /// The stream's number within the process.
    pub stream: u64,
    /// Kernels.
    pub kernels: u64,
    /// Copies and sets.
    pub copies: u64,
    /// Time of its work, in nanoseconds.
    pub busy_ns: u64,
}

/// Hardware counters of one kernel. Each is none where the tool did not give it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct KernelProfile {
    /// Its name with its parameters.
    pub name: String,
    /// Launches of it that were profiled. The numbers are those of the longest one.
    pub launches: u32,
    /// Share of the time of all kernels in the timeline, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_share: Option<f64>,
    /// Duration of the launch under the profiler, with cold caches, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<f64>,
    /// Grid, as the tool prints it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub grid: String,
    /// Block, as the tool prints it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub block: String,
    /// What limits it, with evidence.
    pub bound: BoundBy,
    /// Throughput of the multiprocessors against their peak, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_share: Option<f64>,
    /// Throughput of the memories and caches against their peak, the busiest of them, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_share: Option<f64>,
    /// Throughput of the device memory against its peak, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_share: Option<f64>,
    /// Throughput of the L2 cache against its peak, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_share: Option<f64>,
    /// Throughput of the L1 cache and shared memory against their peak, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l1_share: Option<f64>,
    /// Activity of the tensor pipe, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_share: Option<f64>,
    /// The busiest arithmetic pipe outside of the tensor cores, with its share, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_pipe: Option<(String, f64)>,
    /// Issue slots that were used, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue_share: Option<f64>,
    /// Warps that were resident, of those that a multiprocessor can hold, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<f64>,
    /// The same, as the resources of the kernel would allow it, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy_limit: Option<f64>,
    /// What sets that limit: `registers`, `shared_memory`, `warps`, `blocks`, `barriers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy_limited_by: Option<String>,
    /// Waves of blocks per multiprocessor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waves: Option<f64>,
    /// Registers per thread, as the device allocates them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers_per_thread: Option<f64>,
    /// Bytes read from and written to the device memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_bytes: Option<f64>,
    /// The same, per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_bytes_per_s: Option<f64>,
    /// Single-precision operations that it did outside of the tensor cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32_flops: Option<f64>,
    /// Operations of the tensor cores, by element type, where there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensor_ops: Vec<(String, f64)>,
    /// Hits of the L2 cache, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_hit_rate: Option<f64>,
    /// Hits of the L1 cache, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l1_hit_rate: Option<f64>,
    /// Sectors that a load of a warp from global memory touches, on average: 4 when 32-bit loads are coalesced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sectors_per_load: Option<f64>,
    /// Conflicts of banks of shared memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bank_conflicts: Option<f64>,
    /// What warps wait for, largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stall>,
}

/// One reason for which warps wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Stall {
    /// The reason as the tool names it, for example `long_scoreboard`.
    pub reason: String,
    /// Warps that wait for it, on average, whenever an instruction is issued.
    pub warps: f64,
    /// Its share of all resident warps, 0 to 1.
    pub share: f64,
}

/// The checks of compute-sanitizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SanitizerTool {
    /// Accesses outside of allocations, misaligned ones, and errors of the CUDA interfaces.
    Memcheck,
    /// Races in shared memory.
    Racecheck,
    /// Reads of device memory that nobody wrote.
    Initcheck,
}

impl SanitizerTool {
    /// The name that the tool itself uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Racecheck => "racecheck",
            Self::Initcheck => "initcheck",
        }
    }
}

/// What the sanitizers saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct SanitizeReport {
    /// One entry for each check that was wanted, also for those that could not be carried out.
    pub tools: Vec<SanitizerRun>,
    /// What was found, as observations about compliance.
    pub findings: Vec<Finding>,
    /// What the tools printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<ArtifactHash>,
}

impl SanitizeReport {
    /// `Fail` when a check found an error, `Pass` when every wanted check looked to the end and found none, else
    /// `Inconclusive`: a check that could not be carried out is no clean bill of health.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let failed = self.tools.iter().any(|run| run.outcome == SanitizerOutcome::Errors);
        let clean = !self.tools.is_empty() && self.tools.iter().all(|run| run.outcome == SanitizerOutcome::Clean);
        match (failed, clean) {
            (true, _) => Answer::Fail,
            (false, true) => Answer::Pass,
            (false, false) => Answer::Inconclusive,
        }
    }

    /// What was not looked at, and why, in one sentence; none when every wanted check looked to the end.
    #[must_use]
    pub fn unverified(&self) -> Option<String> {
        if self.tools.is_empty() {
            return Some("unverified: sanitizer unavailable: no check ran".to_owned());
        }
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for run in self.tools.iter().filter(|run| run.outcome == SanitizerOutcome::Unavailable) {
            let reason = run.reason.as_deref().unwrap_or("no reason given");
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, tools)) => tools.push(run.tool.as_str()),
                None => reasons.push((reason, vec![run.tool.as_str()])),
            }
        }
        let said: Vec<String> =
            reasons.into_iter().map(|(reason, tools)| format!("{} ({reason})", tools.join(", "))).collect();
        (!said.is_empty()).then(|| format!("unverified: sanitizer unavailable: {}", said.join("; ")))
    }
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SanitizerOutcome {
    /// It looked to the end and found nothing.
    Clean,
    /// It looked to the end and found nothing that is an error, but something that is worth a look.
    Warnings,
    /// It found errors.
    Errors,
    /// It could not look to the end.
    Unavailable,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SanitizerRun {
    /// Which.
    pub tool: SanitizerTool,
    /// How it ended.
    pub outcome: SanitizerOutcome,
    /// Stable code of why it gave no answer, for example `profile.tool_missing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it could not look to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What an operator does about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Errors that it counted.
    pub errors: u64,
    /// Warnings that it counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warnings: u64,
    /// What it found: equal ones are one entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<SanitizerIssue>,
    /// Errors that are counted above but not among the entries.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_listed: u64,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
}

/// One thing that a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct SanitizerIssue {
    /// What it is, in the tool's words without numbers: `Invalid __global__ write`, `Race between write and read`, ...
    pub kind: String,
    /// Whether the tool calls it an error; else it is a warning.
    pub is_error: bool,
    /// How often.
    pub count: u64,
    /// The kernel with its parameters, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The source file, without folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line in it, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Size of the access in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The first address, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The first thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<[u32; 3]>,
    /// The block of that thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[u32; 3]>,
    /// What else the tool said: where the nearest allocation lies, the other access of a race, the failed call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_old_is_still_read() {
        let stored = r#"{"tier":"compiler_report+analytic_roofline","missing":["x"],"arithmetic_intensity":0.5,
            "peak_flops_per_s":1e11,"peak_bytes_per_s":1e10,"roofline_share":null,"roofline_bound":"memory",
            "compiler":{"vectorized_loops":[],"missed_loops":[],"instructions":1,"wide_vector_instructions":0,
            "fma_instructions":0,"scalar_math_calls":[],"library_bytes":8}}"#;
        let profile: Profile = serde_json::from_str(stored).unwrap();
        assert_eq!(profile.roofline_bound, "memory");
        assert_eq!((profile.timeline.is_none(), profile.kernels.len(), profile.tiers.len()), (true, 0, 0));
        // And what has nothing new is written as it always was.
        let again = serde_json::to_value(&profile).unwrap();
        let before: serde_json::Value = serde_json::from_str(stored).unwrap();
        assert_eq!(again, before);
    }

    fn run(outcome: SanitizerOutcome) -> SanitizerRun {
        SanitizerRun {
            tool: SanitizerTool::Memcheck,
            outcome,
            code: None,
            reason: None,
            remedy: None,
            errors: 0,
            warnings: 0,
            issues: Vec::new(),
            not_listed: 0,
            wall_ms: 1,
        }
    }

    #[test]
    fn a_check_that_could_not_look_is_no_clean_bill_of_health() {
        use SanitizerOutcome::{Clean, Errors, Unavailable, Warnings};
        for (outcomes, answer) in [
            (&[][..], Answer::Inconclusive),
            (&[Clean, Clean], Answer::Pass),
            (&[Clean, Unavailable], Answer::Inconclusive),
            (&[Clean, Warnings], Answer::Inconclusive),
            (&[Unavailable, Errors], Answer::Fail),
        ] {
            let tools = outcomes.iter().map(|outcome| run(*outcome)).collect();
            assert_eq!(SanitizeReport { tools, ..SanitizeReport::default() }.answer(), answer, "{outcomes:?}");
        }
    }

    #[test]
    fn what_was_not_looked_at_is_named_with_its_reason() {
        use SanitizerOutcome::{Clean, Errors, Unavailable, Warnings};
        let looked = [Clean, Warnings, Errors].map(run).to_vec();
        assert_eq!(SanitizeReport { tools: looked, ..SanitizeReport::default() }.unverified(), None);
        let because = |tool, reason: &str| SanitizerRun { tool, reason: Some(reason.to_owned()), ..run(Unavailable) };
        let tools = vec![
            run(Clean),
            because(SanitizerTool::Racecheck, "too slow"),
            because(SanitizerTool::Initcheck, "too slow"),
        ];
        let said = SanitizeReport { tools, ..SanitizeReport::default() }.unverified();
        assert_eq!(said.as_deref(), Some("unverified: sanitizer unavailable: racecheck, initcheck (too slow)"));
        assert!(SanitizeReport::default().unverified().is_some_and(|said| said.ends_with("no check ran")));
    }

    #[test]
    fn times_know_their_extremes_and_their_mean() {
        let mut times = Times::default();
        assert_eq!(times.mean_ns(), 0);
        for duration_ns in [5, 1, 9] {
            times.add(duration_ns);
        }
        assert_eq!((times.count, times.total_ns, times.min_ns, times.max_ns, times.mean_ns()), (3, 15, 1, 9, 5));
    }
}
