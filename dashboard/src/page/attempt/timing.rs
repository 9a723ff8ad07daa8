//! The timing method: samples, verified calls, state of the device, isolation, machine.

use leptos::prelude::*;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::measurement::{CostPart, DeviceMeasurement, Measurement, TimePair};

use crate::chart::{Unit, show};
use crate::page::components::{Cell, facts, folded, isolation, machine, milliseconds, table};

/// The section; none when it was never timed.
pub(super) fn section(attempt: &Attempt) -> Option<AnyView> {
    let published = attempt.published()?;
    let second = attempt.confirmation.as_ref().map(|one| measured("Confirmation", one));
    let first = attempt.measurement.as_ref().map(|one| measured("First measurement", one));
    let where_it_ran = folded(format!("Machine: {}", published.machine.processor), machine(&published.machine));
    Some(view! { {second}{first}{where_it_ran} }.into_any())
}

fn measured(title: &'static str, m: &Measurement) -> AnyView {
    let process_pairs = (m.process_pair_speedups.len() > 1).then(|| {
        let each: Vec<String> = m.process_pair_speedups.iter().map(|speedup| format!("{speedup:.3}×")).collect();
        each.join(", ")
    });
    let samples = format!(
        "{} interleaved pairs, coefficient of variation {} (reference) and {} (this attempt)",
        m.candidate_samples_ns.len(),
        show(m.baseline_cv, Unit::Share),
        show(m.candidate_cv, Unit::Share)
    );
    let verified = m.verification.map(|verified| {
        format!(
            "{} of {} timed calls and {} later ones, {} of each output",
            verified.verified_calls,
            verified.timed_calls,
            verified.later_calls,
            show(verified.compared_share, Unit::Share)
        )
    });
    let sums = facts(&[
        ("Reference", m.baseline.clone().into()),
        ("Samples", samples.into()),
        ("Speedup of each pair of processes", process_pairs.into()),
        ("Verified calls", verified.into()),
    ]);
    let device = m.device.as_deref().map(device);
    let cost = cost(&m.cost);
    let means = folded(format!("Isolation: {}", m.sandbox.summary()), isolation(&m.sandbox));
    view! { <h3>{title}</h3>{sums}{device}{cost}{means} }.into_any()
}

fn device(device: &DeviceMeasurement) -> AnyView {
    let pair = |pair: Option<TimePair>| {
        Cell::from(pair.map(|pair| {
            let (reference, candidate) =
                (show(pair.baseline_ns, Unit::Nanoseconds), show(pair.candidate_ns, Unit::Nanoseconds));
            format!("reference {reference}, this attempt {candidate}")
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
        ("A single call, not in a row", pair(device.lone)),
        ("Device time, a control that the programs' own processes report", pair(device.device_time)),
        (
            "Limit of the device",
            device.floor_ns.map(|ns| format!("{}: no program can be faster", show(ns, Unit::Nanoseconds))).into(),
        ),
        ("Calls of one sample", device.calls_per_sample.map(|calls| calls.to_string()).into()),
        (
            "Reserved cores of the host",
            device.reserved_cores.map(|cores| if cores == 0 { "none".to_owned() } else { cores.to_string() }).into(),
        ),
        (
            "Samples on a core that something else used, too",
            (device.shared_core_samples > 0).then(|| device.shared_core_samples.to_string()).into(),
        ),
        ("Rejected samples", rejected.into()),
        ("Device at the beginning", conditions.into()),
        ("Exclusive use of the device", milliseconds(device.exclusive_ms).into()),
    ])
}

/// Shows the parts of a step's time; nothing when they are not recorded.
pub(super) fn cost(parts: &[CostPart]) -> AnyView {
    if parts.is_empty() {
        return ().into_any();
    }
    let rows: Vec<Vec<Cell>> =
        parts.iter().map(|part| vec![part.name.clone().into(), Cell::Number(milliseconds(part.ms))]).collect();
    folded("Time of the step by phase", table(&["Part", "Time"], &rows))
}
