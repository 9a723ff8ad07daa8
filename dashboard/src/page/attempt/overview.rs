//! The overview: the published result, the other measurement, the baselines, and where each value comes from.

use leptos::prelude::*;
use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::baseline::{Baseline, BaselineKind};
use nightshift_protocol::measurement::Measurement;

use super::headline::{fastest_baseline, paired_ratios};
use crate::chart::{Axis, Caption, Group, Unit, histogram, show};
use crate::format::speedup;
use crate::page::components::{Cell, Section, below_each_other, sentences, table};

/// The distribution of the paired ratios, and every measurement; none when it was never timed.
pub(super) fn result(attempt: &Attempt) -> Option<AnyView> {
    let published = attempt.published()?;
    let first = attempt.measurement.as_ref();
    let mut groups = Vec::new();
    if let Some(confirmation) = &attempt.confirmation {
        groups.push(group("confirmation, published", "series-1", confirmation, true));
        groups.extend(first.map(|first| group("first measurement", "series-2", first, false)));
    } else {
        groups.extend(first.map(|first| group("first measurement, published", "series-1", first, true)));
    }
    let about = format!(
        "Reference time by this attempt's time for each pair of calls on equal inputs. The band is the published interval at \
         {:.0} % confidence.",
        published.confidence * 100.0
    );
    let caption = Caption::new("Paired ratios", about);
    let drawn = histogram(&caption, &Axis::linear("speedup of one pair of calls", Unit::Times), &groups).view();
    Some(view! { {drawn}{measurements(attempt)} }.into_any())
}

fn group(name: &str, class: &'static str, measurement: &Measurement, is_published: bool) -> Group {
    let range = (measurement.speedup.low, measurement.speedup.high);
    Group {
        name: name.to_owned(),
        class,
        values: paired_ratios(measurement),
        mark: is_published.then_some(measurement.speedup.estimate),
        range: is_published.then_some(range),
    }
}

/// Every measurement, which of them is published, and why.
fn measurements(attempt: &Attempt) -> AnyView {
    let is_confirmed = attempt.confirmation.is_some();
    let named =
        [("Confirmation", attempt.confirmation.as_ref(), true), ("First", attempt.measurement.as_ref(), !is_confirmed)];
    let rows: Vec<Vec<Cell>> = named
        .into_iter()
        .filter_map(|(name, measurement, is_published)| Some(measured(name, measurement?, is_published)))
        .collect();
    let why = if is_confirmed {
        "The confirmation is published: it was taken in fresh processes after the first measurement had selected the program. A \
         selected value is too high on average, an independent one is not."
    } else {
        "The first measurement is published: there is no confirmation. Only an attempt that becomes the best is confirmed."
    };
    let head = ["Measurement", "", "Speedup", "Reference", "This attempt", "Pairs"];
    view! { {table(&head, &rows)}<p class="quiet">{why}</p> }.into_any()
}

fn measured(name: &str, m: &Measurement, is_published: bool) -> Vec<Cell> {
    let time = |ns: f64| Cell::Number(show(ns, Unit::Nanoseconds));
    let status = match (is_published, m.precise) {
        (true, true) => Cell::Tag("good".to_owned(), "published".to_owned()),
        (true, false) => Cell::Tag("busy".to_owned(), "published, not precise".to_owned()),
        (false, true) => "".into(),
        (false, false) => Cell::Tag("busy".to_owned(), "not precise".to_owned()),
    };
    vec![
        name.into(),
        status,
        Cell::Number(speedup(m.speedup)),
        time(m.baseline_median_ns),
        time(m.candidate_median_ns),
        Cell::Number(m.candidate_samples_ns.len().to_string()),
    ]
}

/// Every way to run the reference, and the speedup of this attempt over it; none before the task is prepared.
pub(super) fn baselines(detail: &RunDetail, attempt: &Attempt) -> Option<AnyView> {
    baseline_table(detail, Some(attempt), "This attempt over it")
}

/// How speedups over other baselines get their intervals.
const DERIVED: &str = "Program and baseline are timed against the reference, not against each other. A speedup over another baseline \
    is the quotient of both speedups; its interval is derived from both intervals, as of independent errors.";

/// Every way to run the reference, and the speedup of an attempt over it under this heading.
pub(crate) fn baseline_table(detail: &RunDetail, attempt: Option<&Attempt>, heading: &'static str) -> Option<AnyView> {
    let prepared = detail.view.prepared.as_ref()?;
    let fastest = fastest_baseline(detail)?.kind;
    let published = attempt.and_then(Attempt::published);
    let comparable = published.filter(|published| prepared.is_comparable(published));
    // The same time as in the strip, that of the published measurement, where the other times are of the same device.
    let reference_ns = comparable.map_or(prepared.baseline_median_ns, |published| published.baseline_median_ns);
    let name = |kind: BaselineKind| {
        if kind == fastest {
            Cell::Tag("good".to_owned(), format!("{}, fastest", kind.label()))
        } else {
            kind.label().into()
        }
    };
    let mut rows = vec![vec![
        name(BaselineKind::Reference),
        Cell::Number(show(reference_ns, Unit::Nanoseconds)),
        Cell::Number("1.00×".to_owned()),
        Cell::Number(published.map_or_else(String::new, |published| speedup(published.speedup))),
    ]];
    let measured = prepared.baselines.iter().filter_map(|baseline| Some((baseline, baseline.measurement.as_deref()?)));
    rows.extend(measured.map(|(baseline, measured)| {
        let over = comparable.map(|published| speedup(published.speedup.over(measured.speedup)));
        vec![
            name(baseline.kind),
            Cell::Number(show(measured.candidate_median_ns, Unit::Nanoseconds)),
            Cell::Number(show(measured.speedup.estimate, Unit::Times)),
            Cell::Number(over.unwrap_or_default()),
        ]
    }));
    let alone = prepared
        .baselines
        .is_empty()
        .then(|| view! { <p class="quiet">"No other baseline was measured for this task."</p> });
    let is_derived = comparable.is_some() && rows.len() > 1;
    let derived = is_derived.then(|| view! { <p class="quiet">{DERIVED}</p> });
    let elsewhere = published.and_then(|published| prepared.difference(published)).map(|otherwise| {
        let words =
            format!("The baselines were measured {otherwise}: its speedup over the other baselines is not known.");
        view! { <p class="notice">{words}</p> }
    });
    let unmeasured: Vec<String> = prepared.baselines.iter().filter_map(reason).collect();
    let head = ["Baseline", "Time", "Over the reference", heading];
    Some(view! { {table(&head, &rows)}{derived}{elsewhere}{alone}{sentences(&unmeasured)} }.into_any())
}

/// Why a baseline was not measured, or what is to be known about its measurement.
fn reason(baseline: &Baseline) -> Option<String> {
    let reason = match (&baseline.measurement, &baseline.reason) {
        (Some(_), None) => return None,
        (Some(_), Some(reason)) => reason.clone(),
        (None, reason) => format!("not measured: {}", reason.as_deref().unwrap_or("the reason is not recorded")),
    };
    Some(format!("{}: {reason}", baseline.kind.label()))
}

/// The overview in two columns; on a narrow screen, one below the other.
pub(super) fn columns(parts: Vec<Section>) -> AnyView {
    let (left, right): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| matches!(part.id, "result" | "baselines" | "origin"));
    view! {
        <div class="column">{below_each_other(left)}</div>
        <div class="column">{below_each_other(right)}</div>
    }
    .into_any()
}
