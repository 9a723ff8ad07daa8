//! When a program is examined for errors of memory and for races.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::Attempt;
use nightshift_protocol::profile::{SanitizeReport, SanitizerOutcome, SanitizerRun, SanitizerTool};
use nightshift_protocol::task::Target;
use nightshift_protocol::verdict::{Finding, Severity, has_violation};

use super::rules;
use super::state::RunState;

/// Attempts of a subtask whose examination may come to nothing, because the sanitizer was missing or gave up, before the
/// next ones are timed without asking for it again. What is to be published is examined in any case.
const MAX_VAIN: usize = 3;

/// Code of a check that exceeded its time limit.
const TOO_SLOW: &str = "profile.tool_too_slow";

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
    let rules = run.input.rules;
    let of_scope = || run.attempts().filter(same_scope);
    let clean_before = of_scope().any(|earlier| is_clean(rules, earlier) == Some(true));
    let vain = of_scope().filter(|earlier| was_vain(rules, earlier)).count();
    let parent = last.parent.and_then(|number| run.attempt(number));
    Ok((!clean_before && vain < MAX_VAIN) || parent.and_then(|parent| is_clean(rules, parent)) == Some(false))
}

/// Whether a confirmed attempt that beats the best is sanitized before it becomes the best: unless every check looked at
/// it to the end before it was timed, or was given up. A check that could not be carried out then gets a second chance,
/// perhaps on another machine; when that comes to nothing either, the attempt is published as what it is: unverified.
pub(super) fn is_due_before_publication(rules: u32, target: Target, attempt: &Attempt) -> bool {
    let looked = |report: &SanitizeReport| {
        let is_settled = |run: &&SanitizerRun| is_settled(rules, run);
        let thorough = report.tools.iter().filter(is_settled).any(|run| run.tool == SanitizerTool::Initcheck);
        thorough && report.tools.iter().all(|run| is_settled(&run))
    };
    target == Target::Cuda && !attempt.sanitize.as_ref().is_some_and(looked)
}

/// The checks that are not asked about an attempt: those that looked at it, and those that were too slow for it or for an
/// earlier one of the run.
pub(super) fn not_asked(run: &RunState, attempt: &Attempt) -> Vec<SanitizerTool> {
    if !rules::gives_up_slow_checks(run.input.rules) {
        return Vec::new();
    }
    let checks_of =
        |attempt: &Attempt| attempt.sanitize.iter().flat_map(|report| report.tools.clone()).collect::<Vec<_>>();
    let looked = checks_of(attempt).into_iter().filter(|check| check.outcome != SanitizerOutcome::Unavailable);
    let so_far = run.attempts().filter(|earlier| earlier.number <= attempt.number);
    let slow = so_far.flat_map(checks_of).filter(|check| is_too_slow(check) && was_tried(check));
    let mut tools: Vec<SanitizerTool> = looked.chain(slow).map(|check| check.tool).collect();
    tools.sort_unstable();
    tools.dedup();
    tools
}

/// About how long a call takes, of a program that uses shared memory: as it was measured, or else as the reference takes.
pub(super) fn shared_memory_call_ns(run: &RunState, attempt: &Attempt) -> Option<f64> {
    let build = attempt.build.as_ref().filter(|_| rules::gives_up_slow_checks(run.input.rules))?;
    let kernels = build.cuda.iter().flat_map(|cuda| &cuda.kernels);
    let accesses = kernels.filter_map(|kernel| kernel.sass.as_ref()).map(|sass| sass.shared_loads + sass.shared_stores);
    if accesses.sum::<u64>() == 0 {
        return None;
    }
    let measured = attempt.measurement.as_ref().map(|measurement| measurement.candidate_median_ns);
    measured.or_else(|| run.prepared().ok().map(|prepared| prepared.baseline_median_ns))
}

fn is_too_slow(check: &SanitizerRun) -> bool {
    check.outcome == SanitizerOutcome::Unavailable && check.code.as_deref() == Some(TOO_SLOW)
}

/// Returns whether a check was started. A check that is expected to be too slow is not.
fn was_tried(check: &SanitizerRun) -> bool {
    check.wall_ms > 0
}

/// Returns whether a repetition of the check would not change its result.
fn is_settled(rules: u32, check: &SanitizerRun) -> bool {
    let given_up = rules::gives_up_slow_checks(rules) && is_too_slow(check) && was_tried(check);
    check.outcome != SanitizerOutcome::Unavailable || given_up
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

/// Returns whether the sanitizer found nothing in an attempt; none when it did not run, or not to the end.
fn is_clean(rules: u32, attempt: &Attempt) -> Option<bool> {
    let report = attempt.sanitize.as_ref()?;
    if has_violation(&report.findings) {
        return Some(false);
    }
    let passes = |check: &SanitizerRun| {
        check.outcome != SanitizerOutcome::Unavailable || (rules::gives_up_slow_checks(rules) && is_too_slow(check))
    };
    (!report.tools.is_empty() && report.tools.iter().all(passes)).then_some(true)
}

fn was_vain(rules: u32, attempt: &Attempt) -> bool {
    attempt.sanitize.is_some() && is_clean(rules, attempt).is_none()
}
