//! From counters to what is said about a kernel.

use nightshift_protocol::profile::{KernelProfile, Stall, Timeline};

use super::csv::Launch;
use super::metrics as m;
use crate::bound::bound_of_kernel;

/// Maximum number of reasons for waiting that are listed, and the smallest share that is worth a line.
const MAX_STALLS: usize = 6;
const MIN_STALL_SHARE: f64 = 0.01;

/// Not a reason for waiting: the warp was the one that issued.
const ISSUING: &str = "selected";

/// The profiles of the kernels, those with the largest share of time first.
pub(super) fn profiles(launches: &[Launch], timeline: Option<&Timeline>) -> Vec<KernelProfile> {
    let mut names: Vec<&str> = Vec::new();
    for launch in launches {
        if !names.contains(&launch.kernel.as_str()) {
            names.push(&launch.kernel);
        }
    }
    let mut profiles: Vec<KernelProfile> = names
        .into_iter()
        .filter_map(|name| {
            let of_name = || launches.iter().filter(|launch| launch.kernel == name);
            let longest = of_name().max_by(|a, b| duration(a).total_cmp(&duration(b)))?;
            let share = timeline.and_then(|timeline| time_share(timeline, name));
            Some(profile(longest, u32::try_from(of_name().count()).unwrap_or(u32::MAX), share))
        })
        .collect();
    profiles.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    profiles
}

fn duration(launch: &Launch) -> f64 {
    launch.values.get(m::DURATION).copied().unwrap_or(0.0)
}

fn weight(profile: &KernelProfile) -> f64 {
    // Where no timeline tells the share, the duration has to do.
    profile.time_share.or(profile.duration_ns).unwrap_or(0.0)
}

/// The two tools write parameters alike; where they do not, the bare name has to do if only one kernel has it.
fn time_share(timeline: &Timeline, name: &str) -> Option<f64> {
    let exact = timeline.kernels.iter().find(|kernel| kernel.name == name);
    let bare = || {
        let mut same = timeline.kernels.iter().filter(|kernel| bare_name(&kernel.name) == bare_name(name));
        same.next().filter(|_| same.next().is_none())
    };
    exact.or_else(bare).map(|kernel| kernel.share)
}

/// The name of a function without its return type, template arguments and parameters.
pub(super) fn bare_name(name: &str) -> &str {
    let end = name.find(['(', '<']).unwrap_or(name.len());
    let head = name.get(..end).unwrap_or(name);
    head.rsplit([' ', ':', '*', '&']).next().unwrap_or(head)
}

fn profile(launch: &Launch, launches: u32, time_share: Option<f64>) -> KernelProfile {
    let value = |name: &str| launch.values.get(name).copied();
    let share = |name: &str| value(name).map(|percent| (percent / 100.0).clamp(0.0, 1.0));
    let sum = |names: &[&str]| names.iter().map(|name| value(name)).sum::<Option<f64>>();
    let duration_ns = value(m::DURATION).filter(|duration| *duration > 0.0);
    let dram_bytes = sum(&[m::DRAM_READ, m::DRAM_WRITTEN]);
    let busiest_pipe = m::PIPES
        .iter()
        .filter_map(|(pipe, metric)| Some(((*pipe).to_owned(), share(metric)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let mut profile = KernelProfile {
        name: launch.kernel.clone(),
        launches,
        time_share,
        duration_ns,
        grid: launch.grid.clone(),
        block: launch.block.clone(),
        compute_share: share(m::COMPUTE),
        memory_share: share(m::MEMORY),
        dram_share: share(m::DRAM),
        l2_share: share(m::L2),
        l1_share: share(m::L1),
        tensor_share: share(m::TENSOR),
        busiest_pipe,
        issue_share: share(m::ISSUE),
        occupancy: share(m::OCCUPANCY),
        occupancy_limit: share(m::OCCUPANCY_LIMIT),
        occupancy_limited_by: occupancy_limited_by(launch),
        waves: value(m::WAVES),
        registers_per_thread: value(m::REGISTERS),
        dram_bytes,
        dram_bytes_per_s: dram_bytes.zip(duration_ns).map(|(bytes, ns)| bytes / ns * 1e9),
        fp32_flops: sum(&[m::FFMA, m::FFMA, m::FADD, m::FMUL]),
        tensor_ops: m::TENSOR_OPS
            .iter()
            .filter_map(|(dtype, metric)| Some(((*dtype).to_owned(), value(metric).filter(|ops| *ops > 0.0)?)))
            .collect(),
        l2_hit_rate: share(m::L2_HITS),
        l1_hit_rate: share(m::L1_HITS),
        sectors_per_load: value(m::SECTORS_PER_LOAD),
        bank_conflicts: value(m::BANK_CONFLICTS),
        stalls: stalls(launch),
        ..KernelProfile::default()
    };
    profile.bound = bound_of_kernel(&profile);
    profile
}

/// What allows the fewest blocks, when that is not the number of warps that a multiprocessor can hold anyway.
fn occupancy_limited_by(launch: &Launch) -> Option<String> {
    let limits =
        || m::OCCUPANCY_LIMITS.iter().filter_map(|(name, metric)| Some((*name, launch.values.get(*metric).copied()?)));
    let (_, warps) = limits().find(|(name, _)| *name == "warps")?;
    let (name, least) = limits().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(if least < warps { name } else { "warps" }.to_owned())
}

fn stalls(launch: &Launch) -> Vec<Stall> {
    let mut stalls: Vec<Stall> = launch
        .values
        .iter()
        .filter_map(|(metric, warps)| {
            let reason = metric.strip_prefix(m::STALL_PREFIX)?.strip_suffix(m::STALL_SUFFIX)?;
            Some(Stall { reason: reason.to_owned(), warps: *warps, share: 0.0 })
        })
        .collect();
    let all: f64 = stalls.iter().map(|stall| stall.warps).sum();
    if all <= 0.0 {
        return Vec::new();
    }
    for stall in &mut stalls {
        stall.share = (stall.warps / all).clamp(0.0, 1.0);
    }
    stalls.retain(|stall| stall.share >= MIN_STALL_SHARE && stall.reason != ISSUING);
    stalls.sort_by(|a, b| b.warps.total_cmp(&a.warps).then_with(|| a.reason.cmp(&b.reason)));
    stalls.truncate(MAX_STALLS);
    stalls
}
