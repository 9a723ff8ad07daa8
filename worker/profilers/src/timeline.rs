//! Derives a timeline of a program's calls from a trace. This module does no I/O.

use std::collections::{BTreeMap, HashMap, HashSet};

use nightshift_protocol::profile::{
    ApiTime, CopyDirection, CopyTime, Gaps, KernelTime, Launches, StreamTime, Timeline, Times,
};

use super::activity::{Activity, ApiCall, Kernel, Span, Transfer};

/// Maximum number of kernels, by name, that a timeline lists.
pub(super) const MAX_KERNELS: usize = 32;

/// Maximum number of calls of interfaces, by name, that it lists.
const MAX_API: usize = 24;

/// Maximum number of streams that it lists.
const MAX_STREAMS: usize = 32;

/// The function that the replay calls before and after each call of the program.
const CALL_BEGINS: [&str; 2] = ["cuProfilerStart", "cudaProfilerStart"];
const CALL_ENDS: [&str; 2] = ["cuProfilerStop", "cudaProfilerStop"];

/// Beginnings of the names of calls that allocate or free memory, or load code.
const SETUP: [&str; 11] = [
    "cudaMalloc",
    "cudaFree",
    "cudaHostAlloc",
    "cudaHostRegister",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuModule",
    "cuLibrary",
];

/// What the replay calls at the end of each call of the program.
const SYNCHRONIZE: &str = "cuCtxSynchronize";

/// The parts of a trace that are calls of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calls {
    /// One span for each call, in their order; one for everything when the calls cannot be told apart.
    pub(super) spans: Vec<Span>,
    /// Whether the spans are calls.
    pub(super) marked: bool,
}

impl Calls {
    /// Finds them: by the marks of the replay, else by the last synchronizations with the device, of which the replay does
    /// one for each call and one before.
    pub(super) fn find(activity: &Activity, wanted: u32) -> Self {
        let mut spans = Vec::new();
        let mut begun = None;
        for call in &activity.api {
            if CALL_BEGINS.contains(&call.name.as_ref()) {
                begun = Some(call.span.end_ns);
            } else if CALL_ENDS.contains(&call.name.as_ref())
                && let Some(start_ns) = begun.take()
            {
                spans.push(Span { start_ns, end_ns: call.span.start_ns.max(start_ns) });
            }
        }
        if !spans.is_empty() {
            return Self { spans, marked: true };
        }
        let ends: Vec<u64> =
            activity.api.iter().filter(|call| call.name.as_ref() == SYNCHRONIZE).map(|call| call.span.end_ns).collect();
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        if wanted > 0 && ends.len() > wanted {
            let last = ends.get(ends.len() - wanted - 1..).unwrap_or_default();
            spans = last
                .windows(2)
                .filter_map(|pair| Some(Span { start_ns: *pair.first()?, end_ns: *pair.last()? }))
                .collect();
            return Self { spans, marked: true };
        }
        let device = || activity.kernels.iter().map(|kernel| kernel.span).chain(activity.copies.iter().map(|c| c.span));
        let all = device().map(|span| span.start_ns).min().zip(device().map(|span| span.end_ns).max());
        Self { spans: all.map(|(start_ns, end_ns)| Span { start_ns, end_ns }).into_iter().collect(), marked: false }
    }

    /// The call in which something began.
    pub(super) fn of(&self, span: Span) -> Option<usize> {
        let after = self.spans.partition_point(|call| call.start_ns <= span.start_ns);
        let index = after.checked_sub(1)?;
        self.spans.get(index).filter(|call| span.start_ns <= call.end_ns).map(|_| index)
    }

    fn has(&self, span: Span) -> bool {
        self.of(span).is_some()
    }
}

/// Sums up a trace.
pub(super) fn sum_up(activity: &Activity, calls: &Calls) -> Timeline {
    let kernels: Vec<&Kernel> = activity.kernels.iter().filter(|kernel| calls.has(kernel.span)).collect();
    let copies: Vec<&Transfer> = activity.copies.iter().filter(|copy| calls.has(copy.span)).collect();
    let (named, left_out) = kernels_by_name(&kernels);
    let once = setup_calls(activity, calls);
    let mut timeline = Timeline {
        calls: if calls.marked { u32::try_from(calls.spans.len()).unwrap_or(u32::MAX) } else { 0 },
        kernels: named,
        kernels_left_out: left_out,
        launches: launches(activity, &kernels, calls),
        streams: streams(&kernels, &copies),
        api: api_by_name(activity, calls, |name| !once.contains(name)),
        once: api_by_name(activity, calls, |name| once.contains(name)),
        ..Timeline::default()
    };
    (timeline.copies, timeline.memsets) = copies_by_direction(&copies);
    let device: Vec<Span> =
        kernels.iter().map(|kernel| kernel.span).chain(copies.iter().map(|copy| copy.span)).collect();
    let mut setup: Vec<(usize, Span)> = in_calls(activity, calls)
        .filter(|(_, call)| once.contains(call.name.as_ref()))
        .map(|(index, call)| (index, call.span))
        .collect();
    setup.sort_unstable_by_key(|(_, span)| *span);
    occupy(&mut timeline, device, calls, &setup);
    timeline
}

/// Names of the host's calls that allocate memory or load code, and that at most half of the calls of the program make: they happen
/// once, and say nothing about a call.
fn setup_calls<'a>(activity: &'a Activity, calls: &'a Calls) -> HashSet<&'a str> {
    let mut made_in: HashMap<&str, HashSet<usize>> = HashMap::new();
    for (index, call) in in_calls(activity, calls).filter(|(_, call)| calls.marked && is_setup(&call.name)) {
        made_in.entry(call.name.as_ref()).or_default().insert(index);
    }
    made_in.into_iter().filter(|(_, made_in)| made_in.len() * 2 <= calls.spans.len()).map(|(name, _)| name).collect()
}

fn is_setup(name: &str) -> bool {
    SETUP.iter().any(|prefix| name.starts_with(prefix))
}

/// Time of these calls of the host in which the device did nothing, each part counted once. Both lists are in order; `ends` says when
/// each call's device work was over.
fn idle_in(setup: &[(usize, Span)], device: &[Span], calls: &Calls, ends: &[Option<u64>]) -> u64 {
    let (mut total_ns, mut counted_until) = (0_u64, 0);
    for (index, span) in setup {
        let Some(call) = calls.spans.get(*index) else { continue };
        let end_ns = span.end_ns.min(ends.get(*index).copied().flatten().unwrap_or(call.end_ns));
        let mut at = span.start_ns.max(call.start_ns).max(counted_until);
        for work in device.iter().take_while(|work| work.start_ns < end_ns).filter(|work| work.end_ns > span.start_ns) {
            total_ns = total_ns.saturating_add(work.start_ns.saturating_sub(at));
            at = at.max(work.end_ns);
        }
        total_ns = total_ns.saturating_add(end_ns.saturating_sub(at));
        counted_until = counted_until.max(end_ns);
    }
    total_ns
}

/// When the device was busy, and when it waited.
fn occupy(timeline: &mut Timeline, mut device: Vec<Span>, calls: &Calls, setup: &[(usize, Span)]) {
    device.sort_unstable();
    let mut gaps = Gaps::default();
    let mut reached: Vec<Option<u64>> = vec![None; calls.spans.len()];
    for span in device.iter().copied() {
        let Some((call, reached)) =
            calls.of(span).and_then(|index| Some((calls.spans.get(index)?, reached.get_mut(index)?)))
        else {
            continue;
        };
        let busy_from = match *reached {
            None => {
                if calls.marked {
                    gaps.before_first.add(span.start_ns.saturating_sub(call.start_ns));
                }
                span.start_ns
            }
            Some(end_ns) => {
                if span.start_ns > end_ns {
                    gaps.between.add(span.start_ns - end_ns);
                }
                span.start_ns.max(end_ns)
            }
        };
        let added = span.end_ns.saturating_sub(busy_from);
        timeline.busy_ns = timeline.busy_ns.saturating_add(added);
        timeline.overlap_ns = timeline.overlap_ns.saturating_add(span.duration_ns().saturating_sub(added));
        *reached = Some(reached.unwrap_or(0).max(span.end_ns));
    }
    for (call, reached) in calls.spans.iter().zip(&reached) {
        let end_ns = reached.unwrap_or(call.end_ns);
        timeline.span_ns = timeline.span_ns.saturating_add(end_ns.saturating_sub(call.start_ns));
    }
    timeline.span_ns = timeline.span_ns.saturating_sub(idle_in(setup, &device, calls, &reached));
    timeline.gaps = gaps;
    timeline.host_share = share(timeline.span_ns.saturating_sub(timeline.busy_ns), timeline.span_ns);
}

fn kernels_by_name(kernels: &[&Kernel]) -> (Vec<KernelTime>, u64) {
    let mut by_name: HashMap<&str, KernelTime> = HashMap::new();
    let mut total_ns = 0_u64;
    for kernel in kernels {
        let duration_ns = kernel.span.duration_ns();
        total_ns = total_ns.saturating_add(duration_ns);
        let entry = by_name.entry(kernel.name.as_ref()).or_insert_with(|| KernelTime {
            name: kernel.name.to_string(),
            mangled: kernel.mangled.as_deref().map(str::to_owned),
            ..KernelTime::default()
        });
        if entry.times.count == 0 || duration_ns > entry.times.max_ns {
            entry.grid = kernel.grid;
            entry.block = kernel.block;
            entry.registers_per_thread = kernel.registers;
            entry.shared_bytes = kernel.shared_bytes;
        }
        entry.times.add(duration_ns);
    }
    let mut named: Vec<KernelTime> = by_name.into_values().collect();
    for entry in &mut named {
        entry.share = share(entry.times.total_ns, total_ns);
    }
    named.sort_by(|a, b| b.times.total_ns.cmp(&a.times.total_ns).then_with(|| a.name.cmp(&b.name)));
    let left_out = named.len().saturating_sub(MAX_KERNELS);
    named.truncate(MAX_KERNELS);
    (named, u64::try_from(left_out).unwrap_or(u64::MAX))
}

fn copies_by_direction(copies: &[&Transfer]) -> (Vec<CopyTime>, Option<CopyTime>) {
    let mut by_direction: BTreeMap<CopyDirection, CopyTime> = BTreeMap::new();
    for copy in copies {
        let entry = by_direction
            .entry(copy.direction)
            .or_insert_with(|| CopyTime { direction: copy.direction, ..CopyTime::default() });
        entry.times.add(copy.span.duration_ns());
        entry.bytes = entry.bytes.saturating_add(copy.bytes);
    }
    let sets = by_direction.remove(&CopyDirection::Set);
    (by_direction.into_values().collect(), sets)
}

fn is_mark(name: &str) -> bool {
    CALL_BEGINS.contains(&name) || CALL_ENDS.contains(&name)
}

fn api_by_name(activity: &Activity, calls: &Calls, wanted: impl Fn(&str) -> bool) -> Vec<ApiTime> {
    let mut by_name: HashMap<&str, Times> = HashMap::new();
    // The last synchronization of a call is the replay's.
    let mut last_synchronization = vec![None; calls.spans.len()];
    for (index, call) in in_calls(activity, calls).filter(|_| calls.marked) {
        if call.name.as_ref() == SYNCHRONIZE
            && let Some(last) = last_synchronization.get_mut(index)
        {
            *last = Some(call.span);
        }
    }
    for (index, call) in in_calls(activity, calls) {
        let is_replays =
            call.name.as_ref() == SYNCHRONIZE && last_synchronization.get(index).copied().flatten() == Some(call.span);
        if !is_replays && wanted(&call.name) {
            by_name.entry(call.name.as_ref()).or_default().add(call.span.duration_ns());
        }
    }
    let mut named: Vec<ApiTime> =
        by_name.into_iter().map(|(name, times)| ApiTime { name: name.to_owned(), times }).collect();
    named.sort_by(|a, b| b.times.total_ns.cmp(&a.times.total_ns).then_with(|| a.name.cmp(&b.name)));
    named.truncate(MAX_API);
    named
}

/// The host's calls within the calls of the program, each with the number of that call. Without calls: all of them.
pub(super) fn in_calls<'a>(activity: &'a Activity, calls: &'a Calls) -> impl Iterator<Item = (usize, &'a ApiCall)> {
    let unmarked = (!calls.marked).then_some(0);
    activity
        .api
        .iter()
        .filter(|call| !is_mark(&call.name))
        .filter_map(move |call| Some((unmarked.or_else(|| calls.of(call.span))?, call)))
}

/// Returns whether a call of an interface starts work on the device that is a kernel or a graph.
pub(super) fn is_launch(name: &str) -> bool {
    ["cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch"].iter().any(|prefix| name.starts_with(prefix))
        && !name.starts_with("cudaLaunchHostFunc")
        && !name.starts_with("cuLaunchHostFunc")
}

fn launches(activity: &Activity, kernels: &[&Kernel], calls: &Calls) -> Launches {
    let mut launches = Launches::default();
    let mut begins: HashMap<u64, u64> = HashMap::new();
    for (_, call) in in_calls(activity, calls).filter(|(_, call)| is_launch(&call.name)) {
        launches.host.add(call.span.duration_ns());
        launches.graphs += u64::from(call.name.contains("Graph"));
        begins.insert(call.correlation, call.span.start_ns);
    }
    for kernel in kernels {
        if let Some(begin_ns) = begins.get(&kernel.correlation).filter(|begin_ns| **begin_ns <= kernel.span.start_ns) {
            launches.until_start.add(kernel.span.start_ns - begin_ns);
        }
    }
    launches
}

fn streams(kernels: &[&Kernel], copies: &[&Transfer]) -> Vec<StreamTime> {
    let mut by_stream: BTreeMap<u64, StreamTime> = BTreeMap::new();
    let mut on = |stream: u64, kernels: u64, copies: u64, duration_ns: u64| {
        let entry = by_stream.entry(stream).or_insert_with(|| StreamTime { stream, ..StreamTime::default() });
        entry.kernels += kernels;
        entry.copies += copies;
        entry.busy_ns = entry.busy_ns.saturating_add(duration_ns);
    };
    for kernel in kernels {
        on(kernel.stream, 1, 0, kernel.span.duration_ns());
    }
    for copy in copies {
        on(copy.stream, 0, 1, copy.span.duration_ns());
    }
    let mut streams: Vec<StreamTime> = by_stream.into_values().collect();
    streams.sort_by_key(|stream| (std::cmp::Reverse(stream.busy_ns), stream.stream));
    streams.truncate(MAX_STREAMS);
    streams
}

/// A part of a whole, 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "a share needs no more than seven digits")]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests;
