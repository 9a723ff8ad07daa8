//! The strip, the tabs, and one value for one fact.

use nightshift_protocol::attempt::Bound;
use nightshift_protocol::baseline::{Baseline, BaselineKind};
use nightshift_protocol::measurement::Interval;

use super::*;

fn opened(tab: &str) -> Look {
    Look::of(&[("tab".to_owned(), tab.to_owned())])
}

/// The page as it is served, with its tabs.
fn served(sample: &Sample, attempt: &Attempt, material: &Material, look: &Look) -> String {
    Owner::new().with(|| page(&sample.detail, attempt, material, look, "Night").into_parts().1.to_html())
}

/// Texts of the strip, in their order.
fn strip_of(html: &str) -> String {
    let strip = html.split("class=\"strip\"").nth(1).and_then(|rest| rest.split("</dl>").next()).unwrap_or_default();
    spoken(&format!("<body>{}", strip.replace("</", " </")))
}

#[test]
fn the_page_begins_with_one_strip_of_what_came_out() {
    let sample = Sample::read();
    let attempt = fourth(&sample);
    let html = served(&sample, &attempt, &Material::default(), &Look::default());
    let strip = strip_of(&html);
    let names = [
        "Verdict",
        "Time of one call",
        "Speedup over the reference",
        "Speedup over the fastest baseline",
        "Bound",
        "Share of roofline",
        "Own-kernel share",
        "GPU",
        "Precision policy",
    ];
    let places: Vec<usize> = names.iter().map(|name| strip.find(name).unwrap_or(usize::MAX)).collect();
    assert!(places.is_sorted() && !places.contains(&usize::MAX), "{strip}");
    for part in [
        "correct faster",
        "1.53×",
        "1.49 to 1.56, confirmed",
        "of this the device works",
        "no other baseline was measured",
        "launch",
        "H200",
        "reference",
    ] {
        assert!(strip.contains(part), "{part} in {strip}");
    }
    assert!(html.find("class=\"strip\"") < html.find("class=\"tabs\""), "the strip stands above the tabs");
}

#[test]
fn a_faster_way_to_run_the_reference_has_its_own_speedup() {
    let mut sample = Sample::read();
    let attempt = fourth(&sample);
    let mut compiled = attempt.measurement.clone().unwrap_or_else(|| panic!("it was timed"));
    compiled.speedup = Interval { estimate: 1.25, low: 1.24, high: 1.26 };
    compiled.candidate_median_ns = 123_000.0;
    let kinds = [
        (BaselineKind::Compile, Some(Box::new(compiled)), None),
        (BaselineKind::CudaGraph, None, Some("it allocates")),
    ];
    let prepared = sample.detail.view.prepared.as_mut().unwrap_or_else(|| panic!("it is prepared"));
    prepared.baselines = kinds
        .map(|(kind, measurement, reason)| Baseline {
            kind,
            measurement,
            reason: reason.map(str::to_owned),
            is_fault: false,
        })
        .into();
    let html = html(&sample, &attempt, &Material::default(), &Look::default());
    let expected = attempt.speedup().map(|speedup| speedup.estimate / 1.25).unwrap_or_default();
    let strip = strip_of(&html);
    assert!(strip.contains(&format!("{expected:.2}×")) && strip.contains(", torch.compile"), "{strip}");
    let words = spoken(&html);
    assert!(words.contains("torch.compile, fastest") && words.contains("123 µs"), "{words}");
    assert!(words.contains("it allocates"), "what was not measured says why");
}

#[test]
fn an_attempt_that_was_not_timed_says_so_in_its_strip() {
    let sample = Sample::read();
    let bare = Attempt { measurement: None, confirmation: None, profile: None, diagnosis: None, ..fourth(&sample) };
    let strip = strip_of(&html(&sample, &bare, &Material::default(), &Look::default()));
    assert!(strip.contains("not timed") && strip.contains("not profiled"), "{strip}");
}

#[test]
fn each_tab_is_an_address_and_shows_its_own_sections_alone() {
    let sample = Sample::read();
    let attempt = fourth(&sample);
    let sections = [
        ("overview", ["result", "baselines", "verdict"]),
        ("profile", ["roofline", "counters", "timeline"]),
        ("source", ["source", "build", "kernels-built"]),
        ("checks", ["checks", "timing", "artifacts"]),
        ("conversation", ["conversation", "conversation", "conversation"]),
    ];
    let material = material(&sample, &attempt, None);
    let pages: Vec<String> =
        sections.iter().map(|(tab, _)| served(&sample, &attempt, &material, &opened(tab))).collect();
    for (place, (tab, ids)) in sections.iter().enumerate() {
        for (other, page) in pages.iter().enumerate() {
            assert!(page.contains(&format!("href=\"?tab={tab}\"")) || *tab == "overview", "{tab} is a link");
            for id in ids {
                assert_eq!(page.contains(&format!("id=\"{id}\"")), place == other, "{id} on the tab {other}");
            }
        }
    }
    assert!(pages.iter().all(|page| page.matches("aria-current=\"page\"").count() == 1));
    assert!(pages[0].len() < 40_000, "the overview is short: {} bytes", pages[0].len());
}

#[test]
fn of_two_measurements_the_page_says_which_is_published_and_why() {
    let sample = Sample::read();
    let mut attempt = fourth(&sample);
    let overview = |attempt: &Attempt| spoken(&html(&sample, attempt, &Material::default(), &Look::default()));
    let confirmed = overview(&attempt);
    assert!(confirmed.contains("The confirmation is published: it was taken in fresh processes"), "{confirmed}");
    assert!(confirmed.contains("Paired ratios"));
    attempt.confirmation = None;
    let first = overview(&attempt);
    assert!(first.contains("The first measurement is published: there is no confirmation"), "{first}");
    assert!(first.contains("not confirmed"));
}

#[test]
fn one_fact_has_one_value_on_every_tab() {
    let sample = Sample::read();
    let mut attempt = fourth(&sample);
    // The Verifier thinks otherwise than the counters.
    if let Some(diagnosis) = &mut attempt.diagnosis {
        diagnosis.bound = Bound::Compute;
    }
    if let Some(profile) = &mut attempt.profile {
        "memory".clone_into(&mut profile.roofline_bound);
        profile.bound.iter_mut().for_each(|by| by.evidence.clear());
    }
    let material = material(&sample, &attempt, None);
    let words = spoken(&html(&sample, &attempt, &material, &whole()));
    assert!(words.contains("Bound by launch") && !words.contains("Bound by compute"), "{words}");
    for gone in ["Bound bycompute", "by the roofline alone", "The host alone", "idle in", "Device at work"] {
        assert!(!words.contains(gone), "{gone} in {words}");
    }
    assert_eq!(words.matches("Device idle").count(), 1, "one share of idle time");
    let published = attempt.published().map_or_else(|| panic!("it was timed"), |m| m.speedup);
    let first = attempt.measurement.as_ref().map_or_else(|| panic!("it was timed"), |m| m.speedup);
    let shown = |interval| words.matches(&crate::format::speedup(interval)).count();
    assert!(shown(published) >= 1);
    assert!(shown(first) <= 1, "what is not published stands in the table of measurements alone");
}

#[test]
fn the_largest_error_has_one_value_and_says_which_calls_have_a_limit() {
    let sample = Sample::read();
    let mut attempt = fourth(&sample);
    let cases = attempt.check.as_mut().map_or_else(|| panic!("it was checked"), |check| &mut check.cases);
    for (case, (error, allowed)) in cases.iter_mut().zip([(0.25, Some(1.0)), (0.25, Some(0.3125)), (0.9, None)]) {
        case.worst.iter_mut().for_each(|worst| worst.normalized_error = Some(error));
        case.allowed_error = allowed;
    }
    let words = spoken(&html(&sample, &attempt, &material(&sample, &attempt, None), &whole()));
    assert!(words.contains("80 % of the allowed error is used") && words.contains("It uses 80.00 % of the"), "{words}");
    assert!(words.contains("2 of 25: those that are compared with the truth"), "{words}");
    assert!(!words.contains("0.9 times"), "a call without a limit: {words}");
    assert!(words.contains("Of the calls that are compared with the truth") && !words.contains("1 and above is wrong"));
}

#[test]
fn an_attempt_with_wrong_results_says_why_the_rest_is_not_known() {
    let mut sample = Sample::read();
    sample.detail.summary.digest.precision = Some(nightshift_protocol::task::PrecisionPolicy::Tf32);
    let wrong = sample.detail.view.attempts.iter().find(|attempt| attempt.outcome == AttemptOutcome::Incorrect);
    let wrong = wrong.cloned().unwrap_or_else(|| panic!("one is wrong"));
    let html = html(&sample, &wrong, &Material::default(), &Look::default());
    let strip = strip_of(&html);
    assert!(!strip.contains("work or peaks not known") && strip.contains("tf32"), "{strip}");
    assert_eq!(strip.matches("not timed").count(), 5, "{strip}");
    let words = spoken(&html);
    assert!(words.contains("not judged, as the results were wrong") && !words.contains("0 violations"), "{words}");
}

#[test]
fn what_a_run_left_in_the_works_is_not_finished() {
    let mut sample = Sample::read();
    let left = Attempt { outcome: AttemptOutcome::Pending, measurement: None, confirmation: None, ..fourth(&sample) };
    let mut strip = |status| {
        sample.detail.summary.status = status;
        strip_of(&html(&sample, &left, &Material::default(), &Look::default()))
    };
    let over = strip(nightshift_protocol::run::RunStatus::Failed);
    assert!(over.contains("not finished") && over.contains("the run is over"), "{over}");
    assert!(!over.contains("pending") && !over.contains("not judged yet"), "{over}");
    assert!(strip(nightshift_protocol::run::RunStatus::Running).contains("not judged yet"));
}
