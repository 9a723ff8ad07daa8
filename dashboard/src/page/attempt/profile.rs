//! Why it is as fast as it is: tools and what they lacked, what bounds it, what ran when.

use leptos::prelude::*;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::profile::{BoundBy, KernelTime, Profile, TierPurpose, TierReport, Timeline, Times};

use super::headline::{bound_of, idle_share};
use super::look::Look;
use super::material::{Material, NoTrace};
use crate::chart::{Bar, Caption, Unit, Zoom, bars, float_u64, show, timeline};
use crate::format::{bytes, words};
use crate::page::components::{Cell, chip, facts, milliseconds, nanoseconds, sentences, table};
use crate::trace::Trace;

/// What limits the program, with the evidence; none when it is not known.
pub(super) fn limits(attempt: &Attempt) -> Option<AnyView> {
    let known = bound_of(attempt)?;
    let by = attempt.profile.as_ref().and_then(|profile| profile.bound.as_ref());
    let evidence = by.map(|by| sentences(&by.evidence));
    Some(view! { <p>"Bound by "<strong>{known.name}</strong>", by "{known.source}"."</p>{evidence} }.into_any())
}

/// The kernels by their time; none without a timeline.
pub(super) fn kernels(attempt: &Attempt) -> Option<AnyView> {
    Some(ran(attempt.profile.as_ref()?.timeline.as_ref()?))
}

/// Draws the timeline of the device and of the host; none without a trace or a timeline.
pub(super) fn timeline_section(attempt: &Attempt, material: &Material, look: &Look) -> Option<AnyView> {
    let profile = attempt.profile.as_ref()?;
    let drawn = traced(profile, material, look)?;
    let host = profile.timeline.as_ref().map(|timeline| host(attempt, timeline));
    Some(view! { {drawn}{host} }.into_any())
}

/// The tools that the profile comes from, and what each lacked; none without a profile.
pub(super) fn tools(attempt: &Attempt) -> Option<AnyView> {
    attempt.profile.as_ref().map(tiers)
}

fn tiers(profile: &Profile) -> AnyView {
    let rows: Vec<Vec<Cell>> = profile.tiers.iter().map(tier).collect();
    let tools = table(&["For", "Tool", "Version", "Used", "Missing", "Remedy", "Took"], &rows);
    let missing = (rows.is_empty() && !profile.missing.is_empty()).then(|| sentences(&profile.missing));
    let from = words(&profile.tier.split('+').collect::<Vec<_>>().join(", "));
    view! { <p>"From: "<span title=profile.tier.clone()>{from}</span></p>{tools}{missing} }.into_any()
}

fn tier(tier: &TierReport) -> Vec<Cell> {
    let purpose = match tier.purpose {
        TierPurpose::Timeline => "what ran when",
        TierPurpose::Kernels => "what limits a kernel",
        TierPurpose::Code => "what the compiler made of it",
        TierPurpose::Roofline => "how far from the peaks",
    };
    let (class, used) = if tier.used { ("good", "used") } else { ("busy", "not used") };
    let lacks = [tier.reason.clone(), tier.code.as_ref().map(|code| format!("({code})"))];
    vec![
        purpose.into(),
        words(&tier.tool).into(),
        tier.version.clone().into(),
        Cell::Tag(class.to_owned(), used.to_owned()),
        lacks.into_iter().flatten().collect::<Vec<_>>().join(" ").into(),
        Cell::Quiet(tier.remedy.clone().unwrap_or_default()),
        Cell::Number(tier.wall_ms.map_or_else(String::new, |ms| milliseconds(float_u64(ms)))),
    ]
}

/// Shows a bound with the numbers behind it.
pub(crate) fn bound(by: &BoundBy, begin: &'static str) -> AnyView {
    let name = by.bound.map_or("not decided", |bound| bound.as_str());
    view! { <p>{begin}<strong>{name}</strong></p>{sentences(&by.evidence)} }.into_any()
}

/// The timeline of the trace, with its ways to other parts of it.
fn traced(profile: &Profile, material: &Material, look: &Look) -> Option<AnyView> {
    let empty = |why: String| Some(view! { <p class="empty">{why}</p> }.into_any());
    let trace = match &material.trace {
        Ok(trace) => trace,
        Err(NoTrace::Never) if profile.timeline.is_none() => return None,
        Err(NoTrace::Never) => return empty("No trace was kept of this profile.".to_owned()),
        Err(NoTrace::Gone(why)) => return empty(format!("The trace cannot be had: {why}")),
        Err(NoTrace::Unreadable(error)) => return empty(error.to_string()),
    };
    let zoom = Zoom::of(trace.end_us(), look.window_us.0, look.window_us.1);
    let ways = [
        ("All of it", Zoom::of(trace.end_us(), None, None), zoom.is_whole()),
        ("Closer", zoom.wider(0.5), false),
        ("Wider", zoom.wider(2.0), false),
        ("Earlier", zoom.moved(-0.5), false),
        ("Later", zoom.moved(0.5), false),
    ];
    let ways = ways
        .map(|(words, to, is_current)| chip(look.zoomed(to).href("timeline"), words.to_owned(), is_current))
        .into_iter()
        .collect::<Vec<_>>();
    let caption =
        Caption::new("Timeline", "Timeline of the host (above) and the device (below). Shaded: the device is idle.");
    let drawn = timeline(&caption, trace, zoom, &|zoom| look.zoomed(zoom).href("timeline")).view();
    let list = pieces(trace, zoom);
    Some(
        view! {
            <ul class="chips look">{ways}</ul>
            <p class="quiet needs-script">"Drag over a part of it to look closer."</p>
            {drawn}{list}
        }
        .into_any(),
    )
}

/// The longest pieces of the part that is looked at.
fn pieces(trace: &Trace, zoom: Zoom) -> AnyView {
    let mut spans: Vec<(&str, &crate::trace::Span)> = trace
        .rows
        .iter()
        .flat_map(|row| row.spans.iter().map(|span| (row.name.as_str(), span)))
        .filter(|(_, span)| span.end_us() >= zoom.from_us && span.begin_us <= zoom.to_us)
        .collect();
    spans.sort_by(|a, b| b.1.duration_us.total_cmp(&a.1.duration_us));
    let rows: Vec<Vec<Cell>> = spans
        .into_iter()
        .take(40)
        .map(|(row, span)| {
            let time = |us: f64| Cell::Number(show(us * 1e3, Unit::Nanoseconds));
            vec![row.into(), Cell::Code(span.name.clone()), time(span.begin_us), time(span.duration_us)]
        })
        .collect();
    crate::page::components::folded("The longest pieces in it", table(&["Row", "What", "Begins at", "Takes"], &rows))
}

/// Device and host in numbers. The idle share is corrected for the profiler's own time, so it is the only share here.
fn host(attempt: &Attempt, timeline: &Timeline) -> AnyView {
    let calls = u64::from(timeline.calls.max(1));
    let sums = facts(&[
        ("Device idle", idle_share(attempt, timeline).map(|share| show(share, Unit::Share)).into()),
        ("Profiled calls", timeline.calls.to_string().into()),
        ("Device busy in a call", nanoseconds(timeline.busy_ns / calls).into()),
        ("At more than one thing", nanoseconds(timeline.overlap_ns / calls).into()),
        ("A call under the profiler", nanoseconds(timeline.span_ns / calls).into()),
        ("Launch calls of the host", often(&timeline.launches.host).into()),
        ("From launch to start", often(&timeline.launches.until_start).into()),
        ("Graph launches", timeline.launches.graphs.to_string().into()),
        ("Gaps within a call", often(&timeline.gaps.between).into()),
        ("Before the first kernel", often(&timeline.gaps.before_first).into()),
    ]);
    view! { {sums}{copies(timeline)}{apis(timeline)}{streams(timeline)} }.into_any()
}

/// The kernels of a timeline, with their times.
fn ran(timeline: &Timeline) -> AnyView {
    let drawn: Vec<Bar> = timeline
        .kernels
        .iter()
        .take(24)
        .map(|kernel| Bar {
            name: kernel.name.clone(),
            value: float_u64(kernel.times.total_ns),
            class: "kernels",
            note: format!("({})", show(kernel.share, Unit::Share)),
        })
        .collect();
    let caption =
        Caption::new("Kernels by their time", "All launches together, with the share of the time of all kernels.");
    let drawn = (!drawn.is_empty()).then(|| bars(&caption, Unit::Nanoseconds, &drawn).view());
    let kernels: Vec<Vec<Cell>> = timeline.kernels.iter().map(kernel).collect();
    let head = [
        "Kernel",
        "Share",
        "Launches",
        "Together",
        "Each",
        "Shortest",
        "Longest",
        "Grid",
        "Block",
        "Registers",
        "Shared memory",
    ];
    let kernels = table(&head, &kernels);
    let left_out = (timeline.kernels_left_out > 0)
        .then(|| view! { <p class="quiet">{timeline.kernels_left_out}" more kernels did not fit into the list."</p> });
    view! { {drawn}{kernels}{left_out} }.into_any()
}

fn kernel(kernel: &KernelTime) -> Vec<Cell> {
    let extents = |extents: [u64; 3]| extents.map(|extent| extent.to_string()).join("×");
    let mut cells = vec![Cell::Code(kernel.name.clone()), Cell::Number(show(kernel.share, Unit::Share))];
    cells.extend(times(&kernel.times));
    cells.extend([
        extents(kernel.grid).into(),
        extents(kernel.block).into(),
        Cell::Number(kernel.registers_per_thread.to_string()),
        Cell::Number(bytes(kernel.shared_bytes)),
    ]);
    cells
}

fn times(times: &Times) -> [Cell; 5] {
    let time = |ns: u64| Cell::Number(nanoseconds(ns));
    [
        Cell::Number(times.count.to_string()),
        time(times.total_ns),
        time(times.mean_ns()),
        time(times.min_ns),
        time(times.max_ns),
    ]
}

fn often(times: &Times) -> String {
    if times.count == 0 {
        return String::new();
    }
    let (mean, longest) = (nanoseconds(times.mean_ns()), nanoseconds(times.max_ns));
    format!("{} times, {mean} each, {longest} at most, {} together", times.count, nanoseconds(times.total_ns))
}

fn copies(timeline: &Timeline) -> AnyView {
    let rows: Vec<Vec<Cell>> = timeline
        .copies
        .iter()
        .chain(&timeline.memsets)
        .map(|copy| {
            let mut cells = vec![words(copy.direction.as_str()).into(), Cell::Number(bytes(copy.bytes))];
            cells.extend(times(&copy.times));
            cells
        })
        .collect();
    table(&["Copies", "Bytes", "Number", "Together", "Each", "Shortest", "Longest"], &rows)
}

fn apis(timeline: &Timeline) -> AnyView {
    let rows: Vec<Vec<Cell>> = timeline
        .api
        .iter()
        .map(|api| {
            let mut cells = vec![Cell::Code(api.name.clone())];
            cells.extend(times(&api.times));
            cells
        })
        .collect();
    table(&["CUDA call of the host", "Number", "Together", "Each", "Shortest", "Longest"], &rows)
}

fn streams(timeline: &Timeline) -> AnyView {
    let rows: Vec<Vec<Cell>> = timeline
        .streams
        .iter()
        .map(|stream| {
            vec![
                Cell::Number(stream.stream.to_string()),
                Cell::Number(stream.kernels.to_string()),
                Cell::Number(stream.copies.to_string()),
                Cell::Number(nanoseconds(stream.busy_ns)),
            ]
        })
        .collect();
    table(&["Stream", "Kernels", "Copies", "At work"], &rows)
}
