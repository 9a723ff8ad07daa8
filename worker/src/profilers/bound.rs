//! What holds a kernel or a program back, decided by numbers alone. Every threshold has a name, and every decision hands
//! out the numbers that it stands on.

use nightshift_protocol::attempt::Bound;
use nightshift_protocol::profile::{BoundBy, CopyDirection, KernelProfile, Timeline};

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

/// What limits a kernel. Its own field for that is not read.
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
    let parts = [tensor, pipe, issue];
    // Without any of them, the tool's number for the whole multiprocessor, which counts loads and stores as well.
    let whole = kernel.compute_share.map(|share| (share, "multiprocessors"));
    parts.into_iter().flatten().max_by(|a, b| a.0.total_cmp(&b.0)).or(whole)
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

/// What a stall means, in a few words.
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

/// What limits a whole program: its device idles, or copies, or computes. `median_ns` is the time of one call without a
/// tool, which makes the host's part look larger than it is.
#[must_use]
pub(super) fn bound_of_program(
    timeline: Option<&Timeline>,
    kernels: &[KernelProfile],
    median_ns: Option<f64>,
) -> Option<BoundBy> {
    let Some(timeline) = timeline.filter(|timeline| timeline.busy_ns > 0) else {
        return bound_of_kernels(kernels, 1.0);
    };
    let idle_share = idle_share(timeline, median_ns);
    if timeline.calls > 0 && idle_share >= IDLE_SHARE {
        return Some(idle_bound(timeline, idle_share));
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
        return Some(BoundBy { bound: Some(Bound::Host), evidence });
    }
    let mut bound = bound_of_kernels(kernels, 1.0 - copy_share)?;
    if timeline.calls > 0 {
        bound.evidence.push(format!("the device does nothing in {} of the time", percent(idle_share)));
    }
    Some(bound)
}

/// Share of a call in which the device does nothing.
#[expect(clippy::cast_precision_loss, reason = "a share needs no more than seven digits")]
fn idle_share(timeline: &Timeline, median_ns: Option<f64>) -> f64 {
    let calls = f64::from(timeline.calls.max(1));
    let busy_ns = timeline.busy_ns as f64 / calls;
    match median_ns.filter(|median| median.is_finite() && *median > 0.0) {
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

/// The bound of the kernels that take most of the time.
fn bound_of_kernels(kernels: &[KernelProfile], kernel_share: f64) -> Option<BoundBy> {
    let lone = kernels.len() == 1;
    let weight = |kernel: &KernelProfile| kernel.time_share.unwrap_or(if lone { 1.0 } else { 0.0 }) * kernel_share;
    let bounds = [Bound::Memory, Bound::Compute, Bound::Latency, Bound::Launch, Bound::Host];
    let of_bound = |bound: Bound| kernels.iter().filter(move |kernel| kernel.bound.bound == Some(bound));
    let (bound, share) = bounds
        .into_iter()
        .map(|bound| (bound, of_bound(bound).map(weight).sum::<f64>()))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    if share < MAJOR_SHARE {
        return None;
    }
    let mut evidence =
        vec![format!("kernels that are bound by {} take {} of the device's time", bound_name(bound), percent(share))];
    if let Some(kernel) = of_bound(bound).max_by(|a, b| weight(a).total_cmp(&weight(b))) {
        let said = kernel.bound.evidence.first().cloned().unwrap_or_default();
        evidence.push(format!("{}: {said}", kernel.name));
    }
    Some(BoundBy { bound: Some(bound), evidence })
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
