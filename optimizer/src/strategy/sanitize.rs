//! When a program is examined for errors of memory and for races.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::profile::{SanitizeReport, SanitizerOutcome, SanitizerTool};
use nightshift_protocol::task::Target;
use nightshift_protocol::verdict::{Finding, Severity};

use super::state::RunState;
use crate::rubric;

/// Attempts of a subtask whose examination may come to nothing, because the sanitizer was missing or gave up, before the
/// next ones are timed without asking for it again. What is to be published is examined in any case.
const MAX_VAIN: usize = 3;

/// Code of the note that an attempt was not examined.
const UNVERIFIED: &str = "sanitizer_unavailable";

/// Whether an attempt, once it is checked, is sanitized before it is timed: when no earlier one of its subtask was
/// examined and found clean, and when it was derived from one in which something was found.
pub(super) fn is_due_after_check(run: &RunState, number: u32) -> Result<bool, WorkflowError> {
    if run.input.target != Target::Cuda {
        return Ok(false);
    }
    let last = run.wanted_attempt(number)?;
    let same_scope = |earlier: &&Attempt| {
        (earlier.plan_version, earlier.subtask) == (last.plan_version, last.subtask) && earlier.number < last.number
    };
    let clean_before = run.attempts.iter().filter(same_scope).any(|earlier| is_clean(earlier) == Some(true));
    let vain = run.attempts.iter().filter(same_scope).filter(|earlier| was_vain(earlier)).count();
    let parent = last.parent.and_then(|number| run.attempt(number));
    Ok((!clean_before && vain < MAX_VAIN) || parent.and_then(is_clean) == Some(false))
}

/// Whether a confirmed attempt that beats the best is sanitized before it becomes the best: unless every check looked at
/// it to the end before it was timed. A check that could not be carried out then gets a second chance, perhaps on another
/// machine; when that comes to nothing either, the attempt is published as what it is: unverified.
pub(super) fn is_due_before_publication(target: Target, attempt: &Attempt) -> bool {
    let looked = |report: &SanitizeReport| {
        let mut runs = report.tools.iter().filter(|run| run.outcome != SanitizerOutcome::Unavailable);
        runs.any(|run| run.tool == SanitizerTool::Initcheck) && report.unverified().is_none()
    };
    target == Target::Cuda && !attempt.sanitize.as_ref().is_some_and(looked)
}

/// Adds an examination to what is known of an attempt: a check that could not be carried out this time does not take back
/// what it found before.
pub(super) fn examined(attempt: &mut Attempt, mut report: SanitizeReport) {
    let before = attempt.sanitize.take().unwrap_or_default();
    for earlier in before.tools.into_iter().filter(|run| run.outcome != SanitizerOutcome::Unavailable) {
        match report.tools.iter_mut().find(|run| run.tool == earlier.tool) {
            Some(run) if run.outcome == SanitizerOutcome::Unavailable => *run = earlier,
            Some(_) => {}
            None => report.tools.push(earlier),
        }
    }
    for finding in before.findings {
        if !report.findings.contains(&finding) {
            report.findings.push(finding);
        }
    }
    report.log = report.log.or(before.log);
    for finding in &report.findings {
        if !attempt.findings.contains(finding) {
            attempt.findings.push(finding.clone());
        }
    }
    attempt.findings.retain(|finding| finding.code != UNVERIFIED);
    attempt.findings.extend(report.unverified().map(|message| Finding {
        code: UNVERIFIED.to_owned(),
        severity: Severity::Note,
        message,
        line: None,
    }));
    attempt.sanitize = Some(report);
}

/// Whether nothing was found in an attempt; none when nobody looked, or not to the end.
fn is_clean(attempt: &Attempt) -> Option<bool> {
    let report = attempt.sanitize.as_ref()?;
    if rubric::has_violation(&report.findings) {
        return Some(false);
    }
    report.unverified().is_none().then_some(true)
}

fn was_vain(attempt: &Attempt) -> bool {
    attempt.sanitize.is_some() && is_clean(attempt).is_none()
}
