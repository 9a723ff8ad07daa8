//! Whether it is right: every checked call, the distribution of errors, memory and races.

use leptos::prelude::*;
use nightshift_protocol::attempt::{Attempt, CheckReport};
use nightshift_protocol::profile::{SanitizeReport, SanitizerOutcome, SanitizerRun};
use nightshift_protocol::verdict::{CheckCase, ERROR_HISTOGRAM_BOUNDS};

use super::look::Look;
use super::material::{Material, Stored};
use super::timing::cost;
use super::verdict::findings;
use crate::chart::{Bar, Caption, Unit, bars, float_u64, precise, significant};
use crate::format::words;
use crate::page::components::{Cell, artifact, facts, folded, milliseconds, sentences, table, verbatim};

/// Longest output of a program that is shown, in bytes.
const MAX_PRINTED_BYTES: usize = 64 << 10;

/// The section; none when nothing was checked.
pub(super) fn section(attempt: &Attempt, material: &Material, look: &Look) -> Option<AnyView> {
    if attempt.check.is_none() && attempt.sanitize.is_none() {
        return None;
    }
    let check = attempt.check.as_ref().map(|report| checked(report, look));
    let sanitized = attempt.sanitize.as_ref().map(|report| sanitized(report, material, look));
    Some(view! { {check}{sanitized} }.into_any())
}

fn checked(report: &CheckReport, look: &Look) -> AnyView {
    let passed = report.cases.iter().filter(|case| case.passed).count();
    let limited = report.cases.iter().filter(|case| case.allowed_error.is_some()).count();
    let limited =
        (limited > 0).then(|| format!("{limited} of {}: those that are compared with the truth", report.cases.len()));
    let sums = facts(&[
        ("The process", report.end.describe().into()),
        ("Its last words", report.last_words().into()),
        ("Right calls", format!("{passed} of {}", report.cases.len()).into()),
        ("Precision", report.precision().into()),
        ("Calls with an allowed error", limited.into()),
        (
            "Equal calls give equal bits",
            report.deterministic.map(|same| if same { "yes" } else { "no" }.to_owned()).into(),
        ),
    ]);
    let rows =
        |wanted: bool| -> Vec<Vec<Cell>> { report.cases.iter().filter(|one| one.passed == wanted).map(case).collect() };
    let head = ["Shape", "Inputs", "Result", "Wrong elements", "Worst element", "Its error", "The reference's error"];
    // Wrong results come first; right ones are collapsed.
    let wrong = table(&head, &rows(false));
    let right = (passed > 0).then(|| folded(format!("Calls with right results ({passed})"), table(&head, &rows(true))));
    let printed = (!report.printed.trim().is_empty())
        .then(|| folded("Program output", verbatim(&report.printed, MAX_PRINTED_BYTES)));
    let found = (!report.findings.is_empty()).then(|| findings(&report.findings, Some(look)));
    view! { {sums}{errors(&report.error_histogram)}{wrong}{right}{found}{printed}{cost(&report.cost)} }.into_any()
}

fn case(case: &CheckCase) -> Vec<Cell> {
    let (class, result) = if case.passed { ("good", "right") } else { ("problem", "wrong") };
    let worst = case.worst.as_ref().map(|worst| {
        let index = worst.index.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let given = worst.candidate.map_or_else(|| "not finite".to_owned(), precise);
        format!("{}[{index}]: {given}, truth {}", worst.tensor, precise(worst.truth))
    });
    let error =
        case.worst.as_ref().map(|worst| worst.normalized_error.map_or_else(|| "not finite".to_owned(), significant));
    vec![
        case.shape.clone().into(),
        words(&case.inputs).into(),
        Cell::Tag(class.to_owned(), result.to_owned()),
        Cell::Number(format!("{} of {}", case.wrong_elements, case.elements)),
        Cell::Quiet(worst.unwrap_or_default()),
        Cell::Number(error.unwrap_or_default()),
        Cell::Number(significant(case.reference_normalized_error)),
    ]
}

/// Elements by their error, as multiples of what is tolerated.
fn errors(histogram: &[u64]) -> AnyView {
    if histogram.iter().all(|count| *count == 0) {
        return ().into_any();
    }
    let bound = |index: usize| {
        ERROR_HISTOGRAM_BOUNDS
            .get(index)
            .map(|bound| if *bound < 0.01 { format!("{bound:e}") } else { significant(*bound) })
    };
    let total = histogram.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let drawn: Vec<Bar> = histogram
        .iter()
        .enumerate()
        .map(|(index, count)| {
            let name = match (index.checked_sub(1).and_then(bound), bound(index)) {
                (None, Some(high)) => format!("below {high}"),
                (Some(low), Some(high)) => format!("{low} to {high}"),
                (Some(low), None) => format!("{low} and above"),
                (None, None) => format!("box {}", index + 1),
            };
            let is_wrong =
                index.checked_sub(1).and_then(|index| ERROR_HISTOGRAM_BOUNDS.get(index)).is_some_and(|low| *low >= 1.0);
            let share = float_u64(*count) / float_u64(total.max(1));
            let class = if is_wrong { "series-bad" } else { "series-1" };
            Bar { name, value: float_u64(*count), class, note: format!("({})", crate::chart::show(share, Unit::Share)) }
        })
        .collect();
    let caption = Caption::new(
        "Elements by their error",
        "Of the calls that are compared with the truth, as multiples of the tolerance. Above 1 is wrong; where less is allowed, \
         a smaller error is wrong, too.",
    );
    bars(&caption, Unit::Count, &drawn).view()
}

fn sanitized(report: &SanitizeReport, material: &Material, look: &Look) -> AnyView {
    let rows: Vec<Vec<Cell>> = report.tools.iter().map(tool).collect();
    let tools = table(&["Tool", "Outcome", "Errors", "Warnings", "Not listed", "Took", "Reason", "Remedy"], &rows);
    let issues: Vec<Vec<Cell>> = report.tools.iter().flat_map(|run| issues(run, look)).collect();
    let issues = table(&["Tool", "What", "Times", "Kernel", "Where", "Access", "First thread", "Detail"], &issues);
    let found = (!report.findings.is_empty()).then(|| findings(&report.findings, Some(look)));
    let unverified = report.unverified().map(|words| view! { <p class="notice">{words}</p> });
    let log = match &material.sanitizer_log {
        Stored::Here(text) => folded("Tool output", verbatim(text, MAX_PRINTED_BYTES)),
        Stored::Gone(why) => sentences(&[format!("The tool output cannot be shown: {why}")]),
        Stored::Never => ().into_any(),
    };
    let download = report.log.as_ref().map(|log| facts(&[("Log", artifact(log))]));
    view! { <h3 id="sanitizers">"Memory and races"</h3>{unverified}{tools}{issues}{found}{log}{download} }.into_any()
}

fn tool(run: &SanitizerRun) -> Vec<Cell> {
    let (class, outcome) = match run.outcome {
        SanitizerOutcome::Clean => ("good", "nothing found"),
        SanitizerOutcome::Warnings => ("busy", "warnings"),
        SanitizerOutcome::Errors => ("problem", "errors"),
        SanitizerOutcome::Unavailable => ("quiet", "not looked at"),
    };
    let why = [run.reason.clone(), run.code.as_ref().map(|code| format!("({code})"))];
    vec![
        run.tool.as_str().into(),
        Cell::Tag(class.to_owned(), outcome.to_owned()),
        Cell::Number(run.errors.to_string()),
        Cell::Number(run.warnings.to_string()),
        Cell::Number(run.not_listed.to_string()),
        Cell::Number(milliseconds(float_u64(run.wall_ms))),
        Cell::Quiet(why.into_iter().flatten().collect::<Vec<_>>().join(" ")),
        Cell::Quiet(run.remedy.clone().unwrap_or_default()),
    ]
}

fn issues(run: &SanitizerRun, look: &Look) -> Vec<Vec<Cell>> {
    let place = |three: Option<[u32; 3]>| three.map(|at| at.map(|n| n.to_string()).join(", "));
    run.issues
        .iter()
        .map(|issue| {
            let at = match (&issue.file, issue.line) {
                (file, Some(line)) => {
                    Cell::Link(look.source_line(line), format!("{}:{line}", file.as_deref().unwrap_or("source")))
                }
                (Some(file), None) => file.clone().into(),
                (None, None) => "".into(),
            };
            let access = [
                issue.size_bytes.map(|bytes| format!("{bytes} B")),
                issue.address.as_ref().map(|at| format!("at {at}")),
            ];
            let thread = [
                place(issue.thread).map(|at| format!("thread {at}")),
                place(issue.block).map(|at| format!("block {at}")),
            ];
            vec![
                run.tool.as_str().into(),
                Cell::Tag(if issue.is_error { "problem" } else { "busy" }.to_owned(), issue.kind.clone()),
                Cell::Number(issue.count.to_string()),
                Cell::Code(issue.kernel.clone().unwrap_or_default()),
                at,
                access.into_iter().flatten().collect::<Vec<_>>().join(" ").into(),
                thread.into_iter().flatten().collect::<Vec<_>>().join(", ").into(),
                Cell::Quiet(issue.details.join("; ")),
            ]
        })
        .collect()
}
