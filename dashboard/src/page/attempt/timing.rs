//! How fast it is: every measurement with its samples, conditions and machine.

use leptos::prelude::*;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::measurement::{CostPart, DeviceMeasurement, Measurement, TimePair};

use crate::chart::{Axis, Caption, Group, Unit, float_u64, histogram, show};
use crate::format::speedup;
use crate::page::parts::{Cell, facts, folded, isolation, machine, milliseconds, table};

/// From this ratio of the medians on, times are drawn on a logarithmic axis.
const FAR_APART: f64 = 3.0;

/// The section; none when it was never timed.
pub(super) fn section(attempt: &Attempt) -> Option<AnyView> {
    let published = attempt.published()?;
    let sums = facts(&[
        (
            "Speedup",
            format!("{} at {:.0} % confidence", speedup(published.speedup), published.confidence * 100.0).into(),
        ),
        ("Precision policy", published.precision.as_str().to_owned().into()),
        (
            "Gain of its change",
            attempt
                .gain
                .map(|gain| {
                    let expected = gain
                        .expected
                        .map_or_else(String::new, |expected| format!(", expected {}", show(expected, Unit::Times)));
                    format!("{} over attempt {}{expected}", show(gain.measured, Unit::Times), gain.over)
                })
                .into(),
        ),
    ]);
    let first = attempt.measurement.as_ref().map(|one| measured("Measurement", one));
    let second = attempt.confirmation.as_ref().map(|one| measured("Confirmation in a fresh process", one));
    let where_it_ran = folded(format!("Machine: {}", published.machine.processor), machine(&published.machine));
    Some(view! { {sums}{first}{second}{where_it_ran} }.into_any())
}

fn measured(title: &'static str, m: &Measurement) -> AnyView {
    let samples = |samples: &[u64]| samples.iter().map(|ns| float_u64(*ns)).collect::<Vec<f64>>();
    let caption = Caption::new(
        format!("{title}: times of one call"),
        "Samples of candidate and baseline were taken in turn; each group shows shares of its own samples.",
    );
    let groups = [
        Group {
            name: "baseline".to_owned(),
            class: "series-2",
            values: samples(&m.baseline_samples_ns),
            mark: Some(m.baseline_median_ns),
        },
        Group {
            name: "candidate".to_owned(),
            class: "series-1",
            values: samples(&m.candidate_samples_ns),
            mark: Some(m.candidate_median_ns),
        },
    ];
    // Far apart, both are one bar each on an axis of equal differences.
    let ratio = m.baseline_median_ns / m.candidate_median_ns;
    let label = "time of one call";
    let far_apart = !(1.0 / FAR_APART..=FAR_APART).contains(&ratio);
    let axis = if far_apart { Axis::log(label, Unit::Nanoseconds) } else { Axis::linear(label, Unit::Nanoseconds) };
    let drawn = histogram(&caption, &axis, &groups).view();
    let imprecise = if m.precise { "" } else { ", wanted precision not reached" };
    let process_pairs = (m.process_pair_speedups.len() > 1).then(|| {
        let each: Vec<String> = m.process_pair_speedups.iter().map(|speedup| format!("{speedup:.3}x")).collect();
        format!("{}: {}", each.len(), each.join(", "))
    });
    let pairs = m.candidate_samples_ns.len();
    let cv = format!(
        "{pairs} interleaved pairs, coefficient of variation {} (baseline) and {} (candidate)",
        show(m.baseline_cv, Unit::Share),
        show(m.candidate_cv, Unit::Share)
    );
    let sums = facts(&[
        ("Speedup", format!("{} at {:.0} % confidence{imprecise}", speedup(m.speedup), m.confidence * 100.0).into()),
        ("Pairs of processes", process_pairs.into()),
        ("Candidate", format!("{}, median", show(m.candidate_median_ns, Unit::Nanoseconds)).into()),
        ("Baseline", format!("{}, median; {}", show(m.baseline_median_ns, Unit::Nanoseconds), m.baseline).into()),
        ("Samples", cv.into()),
        ("Arithmetic", m.achieved_flops_per_s.map(|rate| show(rate, Unit::FlopsPerS)).into()),
        ("Memory, compulsory bytes", m.achieved_bytes_per_s.map(|rate| show(rate, Unit::BytesPerS)).into()),
        (
            "Verified",
            m.verification
                .map(|verified| {
                    let later = verified.later_calls;
                    format!(
                        "{} of {} timed calls and {later} later ones, in full",
                        verified.verified_calls, verified.timed_calls
                    )
                })
                .into(),
        ),
    ]);
    let device = m.device.as_deref().map(device);
    let cost = cost(&m.cost);
    let means = folded(format!("Isolation: {}", m.sandbox.summary()), isolation(&m.sandbox));
    view! { <h3>{title}</h3>{sums}{drawn}{device}{cost}{means} }.into_any()
}

fn device(device: &DeviceMeasurement) -> AnyView {
    let pair = |pair: Option<TimePair>| {
        Cell::from(pair.map(|pair| {
            let (baseline, candidate) =
                (show(pair.baseline_ns, Unit::Nanoseconds), show(pair.candidate_ns, Unit::Nanoseconds));
            format!("baseline {baseline}, candidate {candidate}")
        }))
    };
    let conditions = device.conditions.as_ref().map(|at| {
        let known = [
            at.sm_clock_mhz.map(|clock| format!("multiprocessors at {clock} MHz")),
            at.memory_clock_mhz.map(|clock| format!("memory at {clock} MHz")),
            at.temperature_c.map(|degrees| format!("{degrees} °C")),
            at.power_w.map(|watts| format!("{watts} W")),
        ];
        known.into_iter().flatten().collect::<Vec<_>>().join(", ")
    });
    let rejected = match device.rejected_samples {
        0 => "none".to_owned(),
        count => format!("{count}: {}", device.rejected_because.join("; ")),
    };
    facts(&[
        ("A call by itself", pair(device.lone)),
        ("Between the device's events, as programs tell", pair(device.device_time)),
        ("No program can be faster than", device.floor_ns.map(|ns| show(ns, Unit::Nanoseconds)).into()),
        ("Calls of one sample", device.calls_per_sample.map(|calls| calls.to_string()).into()),
        ("Samples that did not count", rejected.into()),
        ("Device when it began", conditions.into()),
        ("Device to itself for", milliseconds(device.exclusive_ms).into()),
    ])
}

/// Where the time of a step went; nothing when nobody said.
pub(super) fn cost(parts: &[CostPart]) -> AnyView {
    if parts.is_empty() {
        return ().into_any();
    }
    let rows: Vec<Vec<Cell>> =
        parts.iter().map(|part| vec![part.name.clone().into(), Cell::Number(milliseconds(part.ms))]).collect();
    folded("Where the time of the step went", table(&["Part", "Time"], &rows))
}
