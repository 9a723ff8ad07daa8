//! Facts of programs on a GPU in words, for people and for agents: bounded, one line each, every number with its unit.

use crate::bound::Bound;
use crate::cuda_build::{CudaBuild, KernelBuild, OccupancyLimiter, SassCounts};
use crate::profile::{
    BoundBy, KernelProfile, KernelTime, Profile, SanitizeReport, SanitizerOutcome, SanitizerRun, TierReport, Timeline,
    Times,
};

/// Maximum number of kernels of a build that are listed.
const MAX_BUILT_KERNELS: usize = 12;
/// Maximum number of kernels of a timeline that are listed.
const MAX_TIMED_KERNELS: usize = 10;
/// Maximum number of kernels with hardware counters that are listed.
const MAX_COUNTED_KERNELS: usize = 4;
/// Maximum number of calls of the CUDA interfaces that are listed.
const MAX_API_CALLS: usize = 6;
/// Most sentences of evidence for one bound.
const MAX_EVIDENCE: usize = 4;
/// Most reasons for waiting of one kernel.
const MAX_STALLS: usize = 4;
/// Most tools that are said to be missing.
const MAX_MISSING: usize = 8;
/// Most things that a check of the sanitizer found, of each check.
const MAX_ISSUES: usize = 5;
/// Longest line, in bytes.
const MAX_LINE_BYTES: usize = 500;
/// Longest line of a kernel with hardware counters, in bytes.
const MAX_COUNTED_BYTES: usize = 1_500;

/// What bounds a program as a whole, with the evidence: `launch: the device idles for 38 % of a call`.
#[must_use]
pub fn bound(by: &BoundBy) -> String {
    line(&format!("{}: {}", bound_name(by), evidence(by)))
}

/// What could not be seen, tool by tool. With `remedies`, also what an operator does about it.
#[must_use]
pub fn missing(profile: &Profile, remedies: bool) -> Vec<String> {
    let say = |tier: &TierReport| {
        let why = tier.reason.as_deref().unwrap_or("no reason given");
        let how = if tier.used { "not complete" } else { "not used" };
        let remedy =
            tier.remedy.as_deref().filter(|_| remedies).map_or_else(String::new, |remedy| format!(": {remedy}"));
        line(&format!("{}: {how}: {why}{remedy}", tier.tool))
    };
    let lacking = profile.tiers.iter().filter(|tier| !tier.used || tier.reason.is_some());
    let mut lines: Vec<String> = lacking.map(say).collect();
    if lines.is_empty() {
        lines = profile.missing.iter().map(|text| line(text)).collect();
    }
    lines.truncate(MAX_MISSING);
    lines
}

/// The hardware counters of the kernels that matter.
#[must_use]
pub fn counters(kernels: &[KernelProfile]) -> Vec<String> {
    kernels.iter().take(MAX_COUNTED_KERNELS).map(counted).collect()
}

/// The kernels of a build.
#[must_use]
pub fn built(build: &CudaBuild) -> Vec<String> {
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

/// What ran on the device, and what the host did.
#[must_use]
pub fn timeline(timeline: &Timeline) -> Vec<String> {
    let calls = u64::from(timeline.calls.max(1));
    let mut lines = Vec::new();
    if timeline.calls > 0 {
        lines.push(format!(
            "Under the profiler, one call takes {} on average over {calls} calls, from its begin to its end: the device works in {} % of it, the \
             host alone has {} %",
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
            "Pauses of the device between the first and the last kernel of a call, a part of what the host alone has: {}, the longest {}",
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
    for once in timeline.once.iter().take(MAX_API_CALLS) {
        let (count, each) = (once.times.count, micros(once.times.mean_ns()));
        lines.push(line(&format!(
            "Not in every call, and left out of the shares above: `{}`, {count} in {} calls, {each} each",
            once.name, timeline.calls
        )));
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
    parts.push(format!("bound by {} ({})", bound_name(&kernel.bound), evidence(&kernel.bound)));
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
    bounded(&format!("`{}`: {}", line(&kernel.name), parts.join("; ")), MAX_COUNTED_BYTES)
}

/// What each check of the sanitizer came to, and what it found.
#[must_use]
pub fn sanitizer(report: &SanitizeReport) -> Vec<String> {
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
    by.bound.map_or("unknown", Bound::as_str)
}

fn evidence(by: &BoundBy) -> String {
    let sentences: Vec<&str> = by.evidence.iter().take(MAX_EVIDENCE).map(String::as_str).collect();
    if sentences.is_empty() { "no evidence".to_owned() } else { sentences.join("; ") }
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

/// A number with four significant digits, without an exponent where people would not use one.
#[must_use]
pub fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        return "unknown".to_owned();
    }
    if magnitude >= 1e9 || (magnitude > 0.0 && magnitude < 1e-4) {
        return format!("{value:.3e}");
    }
    let decimals = match magnitude {
        m if m >= 1_000.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        m if m >= 1.0 => 3,
        m if m >= 0.1 => 4,
        _ => 6,
    };
    format!("{value:.decimals$}")
}

/// A foreign text as one line of bounded length.
fn line(text: &str) -> String {
    bounded(text, MAX_LINE_BYTES)
}

fn bounded(text: &str, limit_bytes: usize) -> String {
    let mut flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if flat.len() > limit_bytes {
        let end = (0..=limit_bytes).rev().find(|end| flat.is_char_boundary(*end)).unwrap_or(0);
        flat.truncate(end);
        flat.push('…');
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_name_stays_on_its_line_and_within_its_limit() {
        let name = "é\n".repeat(2 * MAX_LINE_BYTES);
        let kernel = KernelBuild { name: name.clone(), ..KernelBuild::default() };
        let lines = built(&CudaBuild { kernels: vec![kernel; 3 * MAX_BUILT_KERNELS], ..CudaBuild::default() });
        assert_eq!(lines.len(), MAX_BUILT_KERNELS + 1);
        assert_eq!(lines.last().map(String::as_str), Some("24 more kernels"));
        assert!(lines.iter().all(|line| line.len() <= MAX_LINE_BYTES + 4 && !line.contains('\n')), "{lines:?}");
        let counted = counters(&vec![KernelProfile { name, ..KernelProfile::default() }; 9]);
        assert_eq!(counted.len(), MAX_COUNTED_KERNELS);
        assert!(counted.iter().all(|line| line.len() <= MAX_COUNTED_BYTES + 4 && !line.contains('\n')), "{counted:?}");
    }

    #[test]
    fn an_empty_timeline_produces_no_text() {
        assert_eq!(timeline(&Timeline::default()), Vec::<String>::new());
        let once = Timeline { calls: 1, span_ns: 2_000, busy_ns: 1_000, host_share: 0.5, ..Timeline::default() };
        let said = "Under the profiler, one call takes 2.000 µs on average over 1 calls, from its begin to its end: the device works in 50 % of it, the host alone has 50 %";
        assert_eq!(timeline(&once), [said]);
    }

    #[test]
    fn operators_are_told_the_remedy_and_agents_are_not() {
        let tier = TierReport {
            purpose: crate::profile::TierPurpose::Kernels,
            tool: "ncu".to_owned(),
            version: None,
            used: false,
            reason: Some("no permission".to_owned()),
            remedy: Some("ask for it".to_owned()),
            code: None,
            wall_ms: None,
        };
        let profile = Profile { tiers: vec![tier], missing: vec!["said above".to_owned()], ..Profile::default() };
        assert_eq!(missing(&profile, true), ["ncu: not used: no permission: ask for it"]);
        assert_eq!(missing(&profile, false), ["ncu: not used: no permission"]);
    }

    #[test]
    fn numbers_read_well() {
        for (value, text) in
            [(1234.5, "1234"), (1.0, "1.000"), (0.02, "0.020000"), (2.5e12, "2.500e12"), (0.0, "0.000000")]
        {
            assert_eq!(significant(value), text);
        }
    }
}
