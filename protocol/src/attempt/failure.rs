//! Why a program is not right, in one line: the first cause.

use crate::attempt_outcome::AttemptOutcome;
use crate::last_words::last_words;
use crate::reports::{BuildReport, CheckReport};
use crate::verdict::{Finding, ProcessEnd, Severity};

/// Most findings that a reason names.
const MAX_FINDINGS: usize = 6;

/// Most messages of a compiler that a reason names.
const MAX_MESSAGES: usize = 3;

/// Returns why a program is not right. Texts of compilers and programs in it are as they came.
#[must_use]
pub fn failure_reason(
    outcome: AttemptOutcome,
    findings: &[Finding],
    build: Option<&BuildReport>,
    check: Option<&CheckReport>,
    measurement_end: Option<&ProcessEnd>,
) -> Option<String> {
    let violations: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Violation)
        .take(MAX_FINDINGS)
        .map(Finding::line)
        .collect();
    if !violations.is_empty() {
        return Some(violations.join("; "));
    }
    if let (AttemptOutcome::CompileFailed, Some(build)) = (outcome, build) {
        let errors = build.messages.iter().filter(|message| message.severity == "error").take(MAX_MESSAGES);
        let said: Vec<String> = errors
            .map(|message| match message.line {
                0 => message.message.clone(),
                line => format!("line {line}: {}", message.message),
            })
            .collect();
        return Some(if said.is_empty() { build.end.describe() } else { said.join("; ") });
    }
    if let Some(end) = measurement_end {
        return Some(format!("while it was timed: {}", end.describe()));
    }
    let check = check?;
    if let Some(case) = check.cases.iter().find(|case| !case.passed) {
        let mut said = if case.wrong_elements > 0 {
            let (wrong, elements) = (case.wrong_elements, case.elements);
            format!("{wrong} of {elements} elements are wrong at shape `{}` with inputs `{}`", case.shape, case.inputs)
        } else {
            let (shape, inputs) = (&case.shape, &case.inputs);
            format!(
                "results are within the tolerance at shape `{shape}` with inputs `{inputs}`, and less precise than is allowed"
            )
        };
        if let Some(worst) = &case.worst {
            let value =
                |value: Option<f64>| value.map_or_else(|| "not finite".to_owned(), |value| format!("{value:.6e}"));
            let place: Vec<String> = worst.index.iter().map(ToString::to_string).collect();
            let (place, found) = (place.join(", "), value(worst.candidate));
            said = format!("{said}; the worst is {}[{place}]: {found} instead of {:.6e}", worst.tensor, worst.truth);
        }
        return Some(said);
    }
    let last = last_words(&check.printed);
    Some(last.map_or_else(|| check.end.describe(), |last| format!("{}: {last}", check.end.describe())))
}
