//! Decides what limits a kernel or a program, by numbers alone. Every threshold has a name, and every decision hands
//! out the numbers that it stands on.

use nightshift_protocol::attempt::Bound;
use nightshift_protocol::profile::{Arithmetic, BoundBy, CopyDirection, KernelProfile, Timeline};

/// Share of a peak from which a unit is what limits a kernel. Below it the vendor's own guidance looks for latencies, too.
pub(super) const BUSY_SHARE: f64 = 0.6;

/// Share of a peak from which no more is to be had from a unit.
const SATURATED_SHARE: f64 = 0.8;

/// A kernel below this duration costs less than starting it: an empty one takes between two and three microseconds.
const SHORT_KERNEL_NS: f64 = 4_000.0;

/// Fewer waves of blocks than this leave multiprocessors without work.
const FEW_WAVES: f64 = 1.0;

/// Share of a program's time without device work from which the host is what limits it.
const IDLE_SHARE: f64 = 0.4;

/// Share of the idle time that launching explains, from which it is what limits the program.
const LAUNCH_SHARE: f64 = 0.5;

/// Share of the device's time that goes into copies from and to the host, from which they are what limits the program.
const COPY_SHARE: f64 = 0.5;

/// Share of the device's time that kernels of one bound need, so that the bound is the program's.
const MAJOR_SHARE: f64 = 0.5;

/// Shares of stalls that are worth a line.
const NOTABLE_STALL_SHARE: f64 = 0.15;

/// Returns what limits a kernel, without reading its own field for that.
#[must_use]
pub(super) fn bound_of_kernel(kernel: &KernelProfile) -> BoundBy {
    let memory = memory_share(kernel);
    let compute = arithmetic_share(kernel);
    if memory.is_none() && compute.is_none() {
        let evidence = vec!["the tool gave neither the throughput of the memories nor that of the pipes".to_owned()];
        return BoundBy { bound: None, evidence };
    }
    let (memory_share, memory_name) = memory.unwrap_or((0.0, "memory"));
    let (compute_share, compute_name) = compute.unwrap_or((0.0, "arithmetic"));
    let throughput = format!(
        "memory is used to {} ({memory_name}), arithmetic to {} ({compute_name})",
        percent(memory_share),
        percent(compute_share)
    );
    let mut evidence = Vec::new();
    let is_short = kernel.duration_ns.is_some_and(|duration| duration < SHORT_KERNEL_NS);
    let bound = if memory_share.max(compute_share) >= BUSY_SHARE {
        evidence.push(throughput);
        if memory_share >= compute_share { Bound::Memory } else { Bound::Compute }
    } else if is_short {
        evidence.push(format!(
            "it takes {:.1} us, where starting a kernel takes some 2 to 3 us",
            kernel.duration_ns.unwrap_or_default() / 1e3
        ));
        evidence.push(throughput);
        Bound::Launch
    } else {
        evidence.push(format!("{throughput}: both below {}", percent(BUSY_SHARE)));
        Bound::Latency
    };
    if memory_share.max(compute_share) >= SATURATED_SHARE {
        evidence.push(format!(
            "a unit above {} gives little more: the work has to be done with less of it",
            percent(SATURATED_SHARE)
        ));
    }
    evidence.extend(kernel_details(kernel, bound));
    BoundBy { bound: Some(bound), evidence }
}

/// The busiest memory and its share. The tool's own number covers all levels; the levels say which one it is.
fn memory_share(kernel: &KernelProfile) -> Option<(f64, &'static str)> {
    let levels = [
        (kernel.dram_share, "device memory"),
        (kernel.l2_share, "L2 cache"),
        (kernel.l1_share, "L1 cache and shared memory"),
    ];
    let busiest =
        levels.into_iter().filter_map(|(share, name)| Some((share?, name))).max_by(|a, b| a.0.total_cmp(&b.0));
    match (kernel.memory_share, busiest) {
        // A level can show more than the whole, by counting what is no transfer.
        (Some(share), Some((_, name))) => Some((share, name)),
        (Some(share), None) => Some((share, "memory")),
        (None, busiest) => busiest,
    }
}

/// The busiest of what computes: tensor cores, another pipe, or the issuing of instructions itself.
fn arithmetic_share(kernel: &KernelProfile) -> Option<(f64, &str)> {
    let pipe = kernel.busiest_pipe.as_ref().map(|(name, share)| (*share, name.as_str()));
    let tensor = kernel.tensor_share.map(|share| (share, "tensor cores"));
    let issue = kernel.issue_share.map(|share| (share, "issue slots"));
    // Where no pipe was measured, the tool's number for the whole multiprocessor, which counts loads and stores as well.
    let no_pipe = tensor.is_none() && pipe.is_none();
    let whole = kernel.compute_share.filter(|_| no_pipe).map(|share| (share, "multiprocessors"));
    [tensor, pipe, issue, whole].into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0))
}

fn kernel_details(kernel: &KernelProfile, bound: Bound) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(waves) = kernel.waves.filter(|waves| *waves < FEW_WAVES) {
        lines.push(format!("the grid is {waves:.2} waves: it leaves multiprocessors without work"));
    }
    if let (Some(achieved), Some(limit)) = (kernel.occupancy, kernel.occupancy_limit)
        && (bound == Bound::Latency || achieved < BUSY_SHARE)
    {
        let by = kernel.occupancy_limited_by.as_deref().filter(|by| *by != "warps");
        let by = by.map(|by| format!(", limited by {}", by.replace('_', " "))).unwrap_or_default();
        lines.push(format!("{} of the warps are resident, of {} possible{by}", percent(achieved), percent(limit)));
    }
    for stall in kernel.stalls.iter().filter(|stall| stall.share >= NOTABLE_STALL_SHARE).take(2) {
        lines.push(format!(
            "{} of the waiting is for `{}`{}",
            percent(stall.share),
            stall.reason,
            meaning(&stall.reason)
        ));
    }
    if let Some(sectors) = kernel.sectors_per_load.filter(|sectors| *sectors > 8.0) {
        lines.push(format!(
            "a load of a warp touches {sectors:.1} sectors of 32 bytes, where 4 do for 32-bit values side by side"
        ));
    }
    lines
}

/// Describes a stall reason in a few words.
fn meaning(reason: &str) -> &'static str {
    match reason {
        "long_scoreboard" => " (data of the L1 cache or beyond)",
        "short_scoreboard" => " (data of shared memory, or a special function)",
        "barrier" => " (other warps at a barrier)",
        "math_pipe_throttle" => " (an arithmetic pipe that is full)",
        "mio_throttle" => " (the queue of shared memory and special functions)",
        "lg_throttle" => " (the queue of loads and stores)",
        "gmma" => " (a tensor operation of a group of warps)",
        "wait" => " (a fixed delay between instructions)",
        "not_selected" => " (another warp was chosen: there is enough to do)",
        "no_instruction" => " (the instruction cache)",
        _ => "",
    }
}

/// The place of a program under the roofline.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Roof<'a> {
    /// `memory`, `compute` or `unknown`.
    pub(super) bound: &'a str,
    /// Share of what the roof allows, 0 to 1.
    pub(super) share: Option<f64>,
    /// Which arithmetic the roof of `compute` is of.
    pub(super) arithmetic: Option<Arithmetic>,
}

/// Returns what limits a whole program: its device idles, copies, or computes. `median_ns` is the time of one call without a
/// tool, which makes the host's part look larger than it is. Where the kernels' counters do not decide, the roofline and
/// the time of a call do; where they do not either, there is no bound and the evidence says why.
#[must_use]
pub(super) fn bound_of_program(
    timeline: Option<&Timeline>,
    kernels: &[KernelProfile],
    roof: Roof<'_>,
    median_ns: Option<f64>,
) -> BoundBy {
    let median_ns = median_ns.filter(|median| median.is_finite() && *median > 0.0);
    let Some(timeline) = timeline.filter(|timeline| timeline.busy_ns > 0) else {
        return bound_of_kernels(kernels, 1.0).unwrap_or_else(|why| bound_by_roof(why, roof, median_ns));
    };
    let idle_share = idle_share(timeline, median_ns);
    if timeline.calls > 0 && idle_share >= IDLE_SHARE {
        return idle_bound(timeline, idle_share);
    }
    let copied_ns: u64 = timeline
        .copies
        .iter()
        .filter(|copy| matches!(copy.direction, CopyDirection::HostToDevice | CopyDirection::DeviceToHost))
        .map(|copy| copy.times.total_ns)
        .sum();
    let copy_share = super::timeline::share(copied_ns, timeline.busy_ns);
    if copy_share >= COPY_SHARE {
        let evidence = vec![format!("copies from and to the host take {} of the device's time", percent(copy_share))];
        return BoundBy { bound: Some(Bound::Host), evidence };
    }
    let mut bound =
        bound_of_kernels(kernels, 1.0 - copy_share).unwrap_or_else(|why| bound_by_roof(why, roof, median_ns));
    if timeline.calls > 0 {
        bound.evidence.push(format!("the device does nothing in {} of the time", percent(idle_share)));
    }
    bound
}

/// Decides without counters: by the work that the task states, and by the time of a call.
fn bound_by_roof(why: String, roof: Roof<'_>, median_ns: Option<f64>) -> BoundBy {
    let named = match roof.bound {
        "memory" => Some(Bound::Memory),
        "compute" => Some(Bound::Compute),
        _ => None,
    };
    let arithmetic = roof.arithmetic.filter(|_| named == Some(Bound::Compute));
    let of = arithmetic.map_or_else(String::new, |kind| format!(" ({})", kind.as_str()));
    let under = |bound: &Bound, share: f64| {
        format!(
            "by the task's operations and bytes, it reaches {} of what its {} roof{of} allows",
            percent(share),
            bound_name(*bound)
        )
    };
    match (named, roof.share) {
        (Some(bound), Some(share)) if share >= BUSY_SHARE => {
            BoundBy { bound: Some(bound), evidence: vec![under(&bound, share), why] }
        }
        _ if median_ns.is_some_and(|median| median < SHORT_KERNEL_NS) => {
            let evidence = format!(
                "a whole call takes {:.1} us, where starting a kernel takes some 2 to 3 us",
                median_ns.unwrap_or_default() / 1e3
            );
            BoundBy { bound: Some(Bound::Launch), evidence: vec![evidence, why] }
        }
        (Some(bound), Some(share)) => {
            let evidence = format!(
                "{}: something else than throughput holds it back, and nothing that was counted says what",
                under(&bound, share)
            );
            BoundBy { bound: None, evidence: vec![why, evidence] }
        }
        _ => {
            let evidence = "its place under the roofline is not known either".to_owned();
            BoundBy { bound: None, evidence: vec![why, evidence] }
        }
    }
}

/// Share of a call in which the device does nothing.
#[expect(clippy::cast_precision_loss, reason = "a share needs no more than seven digits")]
fn idle_share(timeline: &Timeline, median_ns: Option<f64>) -> f64 {
    let calls = f64::from(timeline.calls.max(1));
    let busy_ns = timeline.busy_ns as f64 / calls;
    match median_ns {
        // The lower of both: under the tool the host is slower, and without it the caches are cold.
        Some(median) => (1.0 - busy_ns / median).clamp(0.0, 1.0).min(timeline.host_share),
        None => timeline.host_share,
    }
}

fn idle_bound(timeline: &Timeline, idle_share: f64) -> BoundBy {
    let idle_ns = timeline.span_ns.saturating_sub(timeline.busy_ns);
    let launching = super::timeline::share(timeline.launches.host.total_ns, idle_ns);
    let mut evidence = vec![format!("the device does nothing in {} of the time", percent(idle_share))];
    let bound = if launching >= LAUNCH_SHARE {
        evidence.push(format!(
            "{} launches take {:.1} us of the host each, {} of that idle time",
            timeline.launches.host.count,
            microseconds(timeline.launches.host.mean_ns()),
            percent(launching)
        ));
        Bound::Launch
    } else {
        let slowest = timeline.api.iter().find(|call| !super::timeline::is_launch(&call.name));
        if let Some(call) = slowest {
            evidence.push(format!(
                "of the host's calls, `{}` takes most: {} times, {:.1} us each",
                call.name,
                call.times.count,
                microseconds(call.times.mean_ns())
            ));
        }
        Bound::Host
    };
    if timeline.gaps.between.count > 0 {
        evidence.push(format!(
            "{} pauses between device work, {:.1} us each",
            timeline.gaps.between.count,
            microseconds(timeline.gaps.between.mean_ns())
        ));
    }
    BoundBy { bound: Some(bound), evidence }
}

/// The bound of the kernels that take most of the time; else why there is none.
fn bound_of_kernels(kernels: &[KernelProfile], kernel_share: f64) -> Result<BoundBy, String> {
    if kernels.is_empty() {
        return Err("no kernel was counted".to_owned());
    }
    let (shares, whole) = shares(kernels);
    let weighted: Vec<(&KernelProfile, f64)> =
        kernels.iter().zip(shares.into_iter().map(|share| share * kernel_share)).collect();
    let bounds = [Bound::Memory, Bound::Compute, Bound::Latency, Bound::Launch, Bound::Host];
    let of_bound = |bound: Bound| weighted.iter().filter(move |(kernel, _)| kernel.bound.bound == Some(bound));
    let mut by_bound: Vec<(Bound, f64)> =
        bounds.into_iter().map(|bound| (bound, of_bound(bound).map(|(_, share)| share).sum::<f64>())).collect();
    by_bound.sort_by(|a, b| b.1.total_cmp(&a.1));
    let Some((bound, share)) = by_bound.first().copied().filter(|(_, share)| *share >= MAJOR_SHARE) else {
        let parts: Vec<String> = by_bound
            .iter()
            .filter(|(_, share)| *share > 0.0)
            .map(|(bound, share)| format!("{} {}", bound_name(*bound), percent(*share)))
            .collect();
        let parts = if parts.is_empty() { "none is known".to_owned() } else { parts.join(", ") };
        return Err(format!("the counted kernels of no bound take half of {whole} ({parts})"));
    };
    let mut evidence =
        vec![format!("kernels that are bound by {} take {} of {whole}", bound_name(bound), percent(share))];
    if let Some((kernel, _)) = of_bound(bound).max_by(|a, b| a.1.total_cmp(&b.1)) {
        let said = kernel.bound.evidence.first().cloned().unwrap_or_default();
        evidence.push(format!("{}: {said}", kernel.name));
    }
    Ok(BoundBy { bound: Some(bound), evidence })
}

/// Each kernel's share, and of what: of the device's time by the timeline, else of the launches that were counted, by
/// their durations.
fn shares(kernels: &[KernelProfile]) -> (Vec<f64>, &'static str) {
    let lone = kernels.len() == 1;
    if lone || kernels.iter().any(|kernel| kernel.time_share.is_some()) {
        let unknown = if lone { 1.0 } else { 0.0 };
        return (kernels.iter().map(|kernel| kernel.time_share.unwrap_or(unknown)).collect(), "the device's time");
    }
    let time = |kernel: &KernelProfile| {
        let duration = kernel.duration_ns.filter(|duration| duration.is_finite() && *duration > 0.0);
        duration.unwrap_or(0.0) * f64::from(kernel.launches.max(1))
    };
    let all: f64 = kernels.iter().map(time).sum();
    let share = |kernel| if all > 0.0 { time(kernel) / all } else { 0.0 };
    (kernels.iter().map(share).collect(), "the time of the counted launches")
}

/// The printed name of a bound.
pub(super) fn bound_name(bound: Bound) -> &'static str {
    match bound {
        Bound::Memory => "memory",
        Bound::Compute => "compute",
        Bound::Latency => "latency",
        Bound::Launch => "launch",
        Bound::Host => "host",
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "printed with one digit")]
fn microseconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e3
}

#[cfg(test)]
mod tests;
