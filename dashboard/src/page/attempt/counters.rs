//! Hardware counters of the kernels, held against their peaks and against a pinned attempt; and the roofline.

use leptos::prelude::*;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::device_peaks::DevicePeaks;
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::profile::{KernelProfile, Profile};

use super::look::Look;
use super::profile::bound;
use crate::chart::{Bar, Caption, Operating, Roof, Unit, bars, roofline, shares, show, significant};
use crate::format::words;
use crate::page::components::{Cell, chip, facts, folded, table};

/// Maximum number of kernels that are shown.
const MAX_KERNELS: usize = 40;
/// Maximum number of kernels under the roofline.
const MAX_UNDER_ROOF: usize = 4;

/// The counters; none when there are none.
pub(super) fn section(detail: &RunDetail, attempt: &Attempt, look: &Look) -> Option<AnyView> {
    let profile = attempt.profile.as_ref().filter(|profile| !profile.kernels.is_empty())?;
    let pinned = look.pin.and_then(|pin| detail.view.attempts.iter().find(|other| other.number == pin));
    let choices = detail
        .view
        .attempts
        .iter()
        .filter(|other| other.profile.as_ref().is_some_and(|profile| !profile.kernels.is_empty()))
        .map(|other| {
            let words = if other.number == attempt.number {
                "this one".to_owned()
            } else {
                format!("attempt {}", other.number)
            };
            let is_pinned = look.pin == Some(other.number);
            let href = look.pinned((!is_pinned).then_some(other.number)).href("counters");
            chip(href, words, is_pinned)
        })
        .collect::<Vec<_>>();
    let said = pinned.map(|other| {
        let href = format!("./{}?tab=profile#counters", other.number);
        view! { <p>"Differences are those from "<a href=href>"attempt "{other.number}</a>", which is pinned."</p> }
    });
    let kernels = profile
        .kernels
        .iter()
        .take(MAX_KERNELS)
        .map(|kernel| one(kernel, pinned.and_then(|other| counterpart(kernel, other))))
        .collect::<Vec<_>>();
    Some(view! { <div class="look"><p class="quiet">"Pin a baseline:"</p><ul class="chips">{choices}</ul></div>{said}{kernels} }.into_any())
}

/// The kernel of the pinned attempt that a kernel is compared with: that of the same name, else the one that matters most.
fn counterpart<'a>(kernel: &KernelProfile, pinned: &'a Attempt) -> Option<&'a KernelProfile> {
    let kernels = &pinned.profile.as_ref()?.kernels;
    kernels.iter().find(|other| other.name == kernel.name).or_else(|| kernels.first())
}

fn one(kernel: &KernelProfile, pinned: Option<&KernelProfile>) -> AnyView {
    let rows: Vec<Vec<Cell>> = metrics(kernel)
        .into_iter()
        .zip(
            pinned
                .map(metrics)
                .unwrap_or_default()
                .into_iter()
                .map(|metric| metric.value)
                .chain(std::iter::repeat(None)),
        )
        .filter(|(metric, before)| metric.value.is_some() || before.is_some())
        .map(|(metric, before)| {
            let mut row = vec![metric.name.into(), Cell::number(metric.value, metric.unit), metric.against.into()];
            if pinned.is_some() {
                row.push(Cell::number(before, metric.unit));
                row.push(difference(metric.value, before, metric.unit));
            }
            row
        })
        .collect();
    let head: &[&str] =
        if pinned.is_some() { &["Counter", "Value", "", "Pinned", "Difference"] } else { &["Counter", "Value", ""] };
    let peaks: Vec<Bar> = metrics(kernel)
        .into_iter()
        .filter(|metric| metric.is_of_peak)
        .filter_map(|metric| {
            Some(Bar { name: metric.name.to_owned(), value: metric.value?, class: "series-1", note: String::new() })
        })
        .collect();
    let caption = Caption::new("Against the peaks", "Shares of what the hardware can do at most.");
    let peaks = (!peaks.is_empty()).then(|| shares(&caption, &peaks).view());
    let stalls: Vec<Bar> = kernel
        .stalls
        .iter()
        .map(|stall| Bar {
            name: words(&stall.reason),
            value: stall.share,
            class: "series-2",
            note: format!("({} warps)", significant(stall.warps)),
        })
        .collect();
    let caption = Caption::new("Warp stall reasons", "Shares of all resident warps.");
    let stalls = (!stalls.is_empty()).then(|| bars(&caption, Unit::Share, &stalls).view());
    let sums = facts(&[
        ("Launches profiled", kernel.launches.to_string().into()),
        ("Grid", kernel.grid.clone().into()),
        ("Block", kernel.block.clone().into()),
        ("Occupancy limited by", kernel.occupancy_limited_by.as_deref().map(words).into()),
        (
            "Busiest pipe",
            kernel.busiest_pipe.as_ref().map(|(pipe, share)| format!("{pipe}, {}", show(*share, Unit::Share))).into(),
        ),
        (
            "Tensor operations",
            kernel
                .tensor_ops
                .iter()
                .map(|(kind, count)| format!("{kind}: {}", significant(*count)))
                .collect::<Vec<_>>()
                .join(", ")
                .into(),
        ),
        ("Compared with", pinned.map(|pinned| pinned.name.clone()).into()),
    ]);
    let counters = table(head, &rows);
    // A comparison is read row by row; without one the charts say most of it.
    let counters = if pinned.is_some() { counters } else { folded(format!("All counters ({})", rows.len()), counters) };
    let name = kernel.name.clone();
    view! {
        <section class="kernel">
            <h3><code>{name}</code></h3>
            {bound(&kernel.bound, "This kernel is bound by ")}{sums}
            <div class="charts">{peaks}{stalls}</div>
            {counters}
        </section>
    }
    .into_any()
}

/// A counter of a kernel.
struct Metric {
    name: &'static str,
    value: Option<f64>,
    unit: Unit,
    /// What it is held against.
    against: &'static str,
    is_of_peak: bool,
}

fn metrics(kernel: &KernelProfile) -> Vec<Metric> {
    let plain = |name, value, unit| Metric { name, value, unit, against: "", is_of_peak: false };
    let peak = |name, value| Metric { name, value, unit: Unit::Share, against: "of the peak", is_of_peak: true };
    vec![
        plain("Time of all kernels", kernel.time_share, Unit::Share),
        plain("Duration under the profiler", kernel.duration_ns, Unit::Nanoseconds),
        peak("Multiprocessors", kernel.compute_share),
        peak("Memories and caches", kernel.memory_share),
        peak("Device memory", kernel.dram_share),
        peak("L2 cache", kernel.l2_share),
        peak("L1 and shared memory", kernel.l1_share),
        peak("Tensor pipe", kernel.tensor_share),
        peak("Issue slots", kernel.issue_share),
        peak("Occupancy", kernel.occupancy),
        plain("Occupancy possible", kernel.occupancy_limit, Unit::Share),
        plain("Waves of blocks", kernel.waves, Unit::Plain),
        plain("Registers per thread", kernel.registers_per_thread, Unit::Plain),
        plain("Bytes of device memory", kernel.dram_bytes, Unit::Bytes),
        plain("Device memory rate", kernel.dram_bytes_per_s, Unit::BytesPerS),
        plain("FP32 operations", kernel.fp32_flops, Unit::Plain),
        plain("L2 hits", kernel.l2_hit_rate, Unit::Share),
        plain("L1 hits", kernel.l1_hit_rate, Unit::Share),
        Metric {
            against: "4 when 32-bit loads are coalesced",
            ..plain("Sectors a load", kernel.sectors_per_load, Unit::Plain)
        },
        plain("Bank conflicts", kernel.bank_conflicts, Unit::Plain),
    ]
}

fn difference(value: Option<f64>, before: Option<f64>, unit: Unit) -> Cell {
    let Some((value, before)) = value.zip(before).filter(|(value, before)| value.is_finite() && before.is_finite())
    else {
        return Cell::Quiet(String::new());
    };
    let sign = if value >= before { "+" } else { "−" };
    let by = show((value - before).abs(), unit);
    let ratio =
        if before.abs() > f64::MIN_POSITIVE { format!(" ({}×)", significant(value / before)) } else { String::new() };
    Cell::Number(format!("{sign}{by}{ratio}"))
}

/// The roofline; none where nothing is known of it.
pub(super) fn roofline_section(detail: &RunDetail, attempt: &Attempt) -> Option<AnyView> {
    attempt.profile.as_ref().filter(|profile| is_drawn(profile))?;
    roof(detail, attempt)
}

/// The roofline with the baseline, the parent and this attempt; none without a profile.
fn roof(detail: &RunDetail, attempt: &Attempt) -> Option<AnyView> {
    let profile = attempt.profile.as_ref()?;
    let mut programs = Vec::new();
    if let (Some(intensity), Some(measurement)) = (profile.arithmetic_intensity, attempt.published()) {
        programs = steps(detail, attempt, intensity, measurement);
    }
    let from_counters = programs.is_empty();
    programs.extend(profile.kernels.iter().take(MAX_UNDER_ROOF).filter_map(by_counters));
    let gpu = attempt.published().and_then(|measurement| measurement.machine.gpus.first());
    let mut roofs = vec![Roof { name: "arithmetic".to_owned(), flops_per_s: profile.peak_flops_per_s }];
    if let Some(tensor) = gpu.and_then(|gpu| DevicePeaks::of(gpu).tensor_flops_per_s) {
        roofs.push(Roof { name: "tensor cores, 16 bit".to_owned(), flops_per_s: tensor });
    }
    let share = attempt.roofline_share().map(|share| show(share, Unit::Share));
    let achieved = |rate: fn(&Measurement) -> Option<f64>, unit| {
        Cell::from(attempt.published().and_then(rate).map(|rate| show(rate, unit)))
    };
    let sums = facts(&[
        ("Share of the roofline", share.into()),
        ("Arithmetic achieved", achieved(|m| m.achieved_flops_per_s, Unit::FlopsPerS)),
        ("Memory rate achieved, compulsory bytes", achieved(|m| m.achieved_bytes_per_s, Unit::BytesPerS)),
        (
            "Operations per byte",
            profile.arithmetic_intensity.map(|intensity| show(intensity, Unit::FlopsPerByte)).into(),
        ),
        ("Peak of arithmetic", known(profile.peak_flops_per_s, Unit::FlopsPerS).into()),
        ("Peak of memory", known(profile.peak_bytes_per_s, Unit::BytesPerS).into()),
    ]);
    let description = if from_counters {
        "Kernels by their counters."
    } else {
        "Whole programs by the work that the task says it is, one after the other; kernels by their counters."
    };
    let drawn = roofline(&Caption::new("Roofline", description), profile.peak_bytes_per_s, &roofs, &programs).view();
    Some(view! { {drawn}{sums} }.into_any())
}

fn known(peak: f64, unit: Unit) -> String {
    if peak > 0.0 { show(peak, unit) } else { "not known".to_owned() }
}

/// The baseline, the parent, this attempt: the same work in other times.
fn steps(detail: &RunDetail, attempt: &Attempt, flops_per_byte: f64, measurement: &Measurement) -> Vec<Operating> {
    let Some(rate) = measurement.achieved_flops_per_s else { return Vec::new() };
    let at = |name: String, class: &'static str, flops_per_s: f64| Operating {
        name,
        class,
        flops_per_byte,
        flops_per_s,
        on_way: true,
    };
    let baseline = rate * measurement.candidate_median_ns / measurement.baseline_median_ns;
    let mut steps = vec![at("baseline".to_owned(), "series-2", baseline)];
    let parent = attempt.parent.and_then(|number| detail.view.attempts.iter().find(|other| other.number == number));
    if let Some((parent, before)) = parent.and_then(|parent| Some((parent, parent.published()?.achieved_flops_per_s?)))
    {
        steps.push(at(format!("attempt {}, its parent", parent.number), "series-3", before));
    }
    steps.push(at(format!("attempt {}", attempt.number), "series-1", rate));
    steps
}

fn by_counters(kernel: &KernelProfile) -> Option<Operating> {
    let (flops, bytes, ns) = (kernel.fp32_flops?, kernel.dram_bytes?, kernel.duration_ns?);
    let name = format!("kernel {}", kernel.name.split('(').next().unwrap_or_default());
    Some(Operating {
        name,
        class: "series-4",
        flops_per_byte: flops / bytes,
        flops_per_s: flops / ns * 1e9,
        on_way: false,
    })
}

/// Returns whether the roofline has anything to stand on.
fn is_drawn(profile: &Profile) -> bool {
    profile.peak_bytes_per_s > 0.0 || profile.roofline_share.is_some()
}
