//! The five answers, each with what it rests on, and what was found.

use std::fmt::Write as _;

use leptos::prelude::*;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::verdict::{Answer, Finding, Severity};

use super::look::Look;
use crate::chart::{Unit, show};
use crate::format::{answer, counted};
use crate::page::components::{Cell, table};

/// The answers and the findings.
pub(super) fn section(attempt: &Attempt, look: &Look) -> AnyView {
    let verdict = &attempt.verdict;
    let share = verdict.custom_kernel_time_share;
    let rows = [
        ("Compiled", tag(verdict.compiled), compiled(attempt)),
        ("Numerically correct", tag(verdict.numerically_correct), correct(attempt)),
        ("Contract compliant", tag(verdict.contract_compliant), compliant(attempt)),
        ("Faster", tag(verdict.fast), fast(attempt)),
        (
            "Time in own kernels",
            share.map_or_else(|| tag(Answer::Inconclusive), |share| Cell::Number(show(share, Unit::Share))),
            own_kernels(attempt),
        ),
    ];
    let rows: Vec<Vec<Cell>> =
        rows.into_iter().map(|(question, answer, evidence)| vec![question.into(), answer, evidence.into()]).collect();
    let answers = table(&["Question", "Answer", "Because"], &rows);
    let evidence = evidence(attempt);
    let found = if attempt.findings.is_empty() && attempt.check.is_none() {
        view! { <p class="quiet">"None so far. The program did not run: nothing is known about what it does."</p> }
            .into_any()
    } else {
        findings(&attempt.findings, Some(look))
    };
    view! { {answers}{evidence}<h3 id="findings">"Findings"</h3>{found} }.into_any()
}

/// What was not examined. It says nothing about the program.
fn evidence(attempt: &Attempt) -> AnyView {
    let missing = attempt.evidence().missing;
    if missing.is_empty() || !attempt.outcome.is_correct() {
        return ().into_any();
    }
    let missing: Vec<_> = missing.into_iter().map(|missing| view! { <li>{missing}</li> }).collect();
    view! { <p>"The evidence is not complete:"</p><ul>{missing}</ul> }.into_any()
}

fn own_kernels(attempt: &Attempt) -> String {
    let why = match (attempt.verdict.custom_kernel_time_share, attempt.published()) {
        (Some(_), _) => "share of the time in code that was built from this source",
        (None, Some(_)) => "no measurement tells apart whose code the time was spent in",
        (None, None) => "it was not timed",
    };
    why.to_owned()
}

fn tag(given: Answer) -> Cell {
    let class = match given {
        Answer::Pass => "good",
        Answer::Fail => "problem",
        Answer::Inconclusive => "quiet",
    };
    Cell::Tag(class.to_owned(), answer(given).to_owned())
}

fn compiled(attempt: &Attempt) -> String {
    let Some(build) = &attempt.build else { return "it was not built".to_owned() };
    let count = |severity: &str| build.messages.iter().filter(|message| message.severity == severity).count();
    let (errors, warnings) =
        (number(count("error"), "error", "errors"), number(count("warning"), "warning", "warnings"));
    let cached = if build.cached { ", answered from the cache" } else { "" };
    format!("the compiler {}; {errors}, {warnings}{cached}", build.end.describe())
}

fn number(count: usize, one: &str, many: &str) -> String {
    counted(u64::try_from(count).unwrap_or(u64::MAX), one, many)
}

fn correct(attempt: &Attempt) -> String {
    let Some(check) = &attempt.check else { return "it was not checked".to_owned() };
    let passed = check.cases.iter().filter(|case| case.passed).count();
    let mut words = format!("{passed} of {} calls gave right results", check.cases.len());
    if let Some((_, used)) = check.closest_to_limit() {
        let _ = write!(words, "; {} of the allowed error is used", show(used, Unit::Share));
    }
    words.push_str(match check.deterministic {
        Some(true) => "; two equal calls gave equal bits",
        Some(false) => "; two equal calls gave different bits",
        None => "",
    });
    if check.end.code() != "finished" {
        let _ = write!(words, "; {}", check.ending());
    }
    words
}

fn compliant(attempt: &Attempt) -> String {
    let verdict = &attempt.verdict;
    if (verdict.contract_compliant, verdict.numerically_correct) == (Answer::Inconclusive, Answer::Fail) {
        return "not judged, as the results were wrong".to_owned();
    }
    let count = |severity| attempt.findings.iter().filter(|finding| finding.severity == severity).count();
    let mut words = format!(
        "{}, {}",
        number(count(Severity::Violation), "violation", "violations"),
        number(count(Severity::Warning), "warning", "warnings")
    );
    if let Some(report) = &attempt.sanitize {
        let _ = write!(words, "; memory and races: {}", answer(report.answer()));
        if let Some(unverified) = report.unverified() {
            let _ = write!(words, " ({unverified})");
        }
    }
    words
}

fn fast(attempt: &Attempt) -> String {
    let Some(speedup) = attempt.speedup() else { return "it was not timed".to_owned() };
    let place = if speedup.low > 1.0 {
        "lies above 1"
    } else if speedup.high <= 1.0 {
        "does not exceed 1"
    } else {
        "contains 1"
    };
    format!("the published interval over the reference {place}")
}

/// Findings, the gravest first, with links to the lines of the source that they are about.
pub(crate) fn findings(findings: &[Finding], look: Option<&Look>) -> AnyView {
    if findings.is_empty() {
        return view! { <p class="quiet">"No cheating detected."</p> }.into_any();
    }
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let rows: Vec<Vec<Cell>> = sorted
        .into_iter()
        .map(|finding| {
            let (class, name) = severity(finding.severity);
            let line = finding.line.map_or_else(
                || Cell::from(""),
                |line| match look {
                    Some(look) => Cell::Link(look.source_line(line), format!("line {line}")),
                    None => format!("line {line}").into(),
                },
            );
            vec![
                Cell::Tag(class.to_owned(), name.to_owned()),
                Cell::Code(finding.code.clone()),
                line,
                finding.message.clone().into(),
            ]
        })
        .collect();
    table(&["Severity", "Code", "Location", "Observation"], &rows)
}

/// Class and name of a severity.
pub(super) fn severity(severity: Severity) -> (&'static str, &'static str) {
    match severity {
        Severity::Violation => ("problem", "violation"),
        Severity::Warning => ("busy", "warning"),
        Severity::Note => ("quiet", "note"),
    }
}
