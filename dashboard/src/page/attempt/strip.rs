//! The strip at the top of an attempt's page: what came out, in one line.

use leptos::prelude::*;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome};
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::profile::Profile;

use super::headline::{bound_of, device_name, device_ns, outcome_of};
use crate::chart::{Unit, show};
use crate::format::device;
use crate::markup::Markup;

/// A fact of the strip: its name, its value, and what stands below the value.
struct Figure {
    name: &'static str,
    value: String,
    /// The class of a value that is a label.
    tag: Option<String>,
    below: String,
}

/// The strip. What is not known is said to be not known.
pub(super) fn strip(detail: &RunDetail, attempt: &Attempt) -> AnyView {
    let figures = [
        verdict(detail, attempt),
        times(attempt),
        over_reference(attempt),
        over_fastest(detail, attempt),
        bound(attempt),
        roofline(attempt),
        own_kernels(attempt),
        gpu(attempt),
        policy(detail, attempt),
    ];
    let mut out = Markup::new();
    out.tag("dl").around(|out| {
        for fact in figures {
            out.tag("div").around(|out| {
                out.tag("dt").text(fact.name);
                out.tag("dd").around(|out| {
                    match &fact.tag {
                        Some(tag) => out.tag("span").with("class", &format!("tag {tag}")).text(&fact.value),
                        None => out.tag("strong").text(&fact.value),
                    }
                    if !fact.below.is_empty() {
                        out.tag("span").with("class", "quiet").text(&fact.below);
                    }
                });
            });
        }
    });
    out.block("strip")
}

fn plain(name: &'static str, value: impl Into<String>, below: impl Into<String>) -> Figure {
    Figure { name, value: value.into(), tag: None, below: below.into() }
}

fn unknown(name: &'static str, why: impl Into<String>) -> Figure {
    plain(name, "–", why)
}

fn verdict(detail: &RunDetail, attempt: &Attempt) -> Figure {
    let evidence = attempt.evidence();
    let below = match attempt.outcome {
        AttemptOutcome::Pending if detail.summary.status.is_final() => "the run is over".to_owned(),
        AttemptOutcome::Pending => "not judged yet".to_owned(),
        outcome if !outcome.is_correct() => String::new(),
        _ if evidence.complete => "evidence complete".to_owned(),
        _ => "evidence not complete".to_owned(),
    };
    let outcome = attempt.outcome.as_str();
    Figure { name: "Verdict", value: outcome_of(detail, attempt), tag: Some(outcome.to_owned()), below }
}

/// A figure that does not break.
fn unbroken(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

fn times(attempt: &Attempt) -> Figure {
    let Some(published) = attempt.published() else { return unknown("Time of one call", "not timed") };
    let time = |ns: f64| show(ns, Unit::Nanoseconds);
    let figure = format!("{} → {}", time(published.baseline_median_ns), time(published.candidate_median_ns));
    let timeline = attempt.profile.as_ref().and_then(|profile| profile.timeline.as_ref());
    let device = timeline
        .and_then(device_ns)
        .filter(|ns| *ns <= published.candidate_median_ns)
        .map(|ns| format!("; of this the device works {}", unbroken(&time(ns))));
    plain("Time of one call", unbroken(&figure), format!("reference → this attempt{}", device.unwrap_or_default()))
}

fn interval(speedup: Interval) -> (String, String) {
    (format!("{:.2}×", speedup.estimate), format!("{:.2} to {:.2}", speedup.low, speedup.high))
}

fn over_reference(attempt: &Attempt) -> Figure {
    const NAME: &str = "Speedup over the reference";
    let Some(published) = attempt.published() else { return unknown(NAME, "not timed") };
    let (figure, range) = interval(published.speedup);
    let which = if attempt.confirmation.is_some() { "confirmed" } else { "not confirmed" };
    plain(NAME, figure, format!("{range}, {which}"))
}

fn over_fastest(detail: &RunDetail, attempt: &Attempt) -> Figure {
    const NAME: &str = "Speedup over the fastest baseline";
    let Some(prepared) = &detail.view.prepared else { return unknown(NAME, "the task is not prepared") };
    let Some(fastest) = prepared.fastest_baseline() else { return unknown(NAME, "no other baseline was measured") };
    let Some(measured) = attempt.published() else { return unknown(NAME, "not timed") };
    let Some(over) = prepared.over_fastest(measured) else {
        let otherwise = prepared.difference(measured).unwrap_or_default();
        return unknown(NAME, format!("the baseline was measured {otherwise}"));
    };
    let (figure, range) = interval(over);
    let below = match fastest.kind {
        BaselineKind::Reference if prepared.baselines.is_empty() => "no other baseline was measured".to_owned(),
        BaselineKind::Reference => format!("{range}, the {} is fastest", fastest.label_with_limits()),
        _ => format!("{range}, derived, {}", fastest.label_with_limits()),
    };
    plain(NAME, figure, below)
}

fn bound(attempt: &Attempt) -> Figure {
    bound_of(attempt).map_or_else(|| unknown("Bound", "not profiled"), |bound| plain("Bound", bound.name, bound.source))
}

fn roofline(attempt: &Attempt) -> Figure {
    const NAME: &str = "Share of roofline";
    match attempt.roofline_share() {
        Some(share) => plain(NAME, show(share, Unit::Share), "of the peaks of the units that it uses"),
        None if attempt.published().is_none() => unknown(NAME, "not timed"),
        None if attempt.profile.as_ref().is_some_and(Profile::has_roof) => {
            unknown(NAME, "faster than the roof, which does not apply")
        }
        None => unknown(NAME, "work or peaks not known"),
    }
}

fn own_kernels(attempt: &Attempt) -> Figure {
    const NAME: &str = "Own-kernel share";
    match attempt.verdict.custom_kernel_time_share {
        Some(share) => plain(NAME, show(share, Unit::Share), "of the time in its own code"),
        None => unknown(NAME, "not measured"),
    }
}

fn gpu(attempt: &Attempt) -> Figure {
    let Some(published) = attempt.published() else { return unknown("Device", "not timed") };
    let gpu = published.machine.gpus.first();
    let name = if gpu.is_some() { "GPU" } else { "Processor" };
    let capability = gpu.map(|gpu| format!("compute capability {}", gpu.compute_capability)).unwrap_or_default();
    plain(name, device(&device_name(published)), capability)
}

fn policy(detail: &RunDetail, attempt: &Attempt) -> Figure {
    const NAME: &str = "Precision policy";
    let policy = attempt.published().map(|measured| measured.precision).or(detail.summary.digest.precision);
    policy.map_or_else(|| unknown(NAME, "not known"), |policy| plain(NAME, policy.as_str(), ""))
}
