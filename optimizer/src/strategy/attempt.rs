//! How results of steps become findings, answers and the outcome of an attempt.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::attempt::{Attempt, AttemptOutcome, BuildReport, CheckReport, Diagnosis};
use nightshift_protocol::attempt_memory::{Candidate, Correction};
use nightshift_protocol::measurement::{Interval, Measurement};
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::profile::SanitizeReport;
use nightshift_protocol::step::StepOutput;
use nightshift_protocol::verdict::{Answer, Finding, ProcessEnd, Severity, has_violation};

use super::attempt_step::{AfterStep, AttemptStep};
use super::confirmation::{confirmed_estimate, confirmed_speedup};
use super::failed_attempt::{failed, reward_of_failure, unless_violated};
use super::fix;
use super::goal::Limits;
use super::opening::Opening;
use super::rules;
use super::sanitize;
use super::session;
use super::share::own_kernel_share;
use super::state::RunState;
use super::tune;
use crate::model::SCRIPT_ENDED;

/// A new attempt, nothing known about it.
pub(super) fn opened(number: u32, plan_version: u32, opening: &Opening, candidate: Option<Candidate>) -> Attempt {
    Attempt {
        parent: opening.parent,
        modification: opening.modification.clone(),
        candidate,
        ..Attempt::new(number, plan_version, opening.subtask, opening.stage)
    }
}

impl RunState {
    /// Takes the result of the open step of an attempt.
    pub(super) fn take(
        &mut self,
        number: u32,
        step: AttemptStep,
        output: StepOutput,
    ) -> Result<AfterStep, WorkflowError> {
        let best = self.best().and_then(confirmed_estimate);
        let rung_after_tune =
            if sanitize::is_due_after_check(self, number)? { AttemptStep::Sanitize } else { AttemptStep::Measure };
        let may_tune = tune::is_switched_on(self);
        let (target, rules) = (self.input.target, self.input.rules);
        let Limits { max_fix_turns, min_gain, .. } = self.limits();
        let fix_turns = if self.strategy()?.has_session() { 0 } else { max_fix_turns };
        let mut becomes_best = false;
        if let Some(about) = session::diagnosed(self.wanted_attempt(number)?).filter(|_| step == AttemptStep::Diagnose)
        {
            session::take_diagnosis(self, number, about, output)?;
            return Ok(AfterStep::TurnOver);
        }
        let attempt = self.wanted_attempt_mut(number)?;
        let after = match (step, output) {
            (AttemptStep::WriteCode, StepOutput::CodeWritten { source, findings, tunables, calls }) => {
                fix::set_aside_version(attempt);
                attempt.source = Some(source);
                attempt.tunables = tunables;
                attempt.calls.extend(calls);
                attempt.findings.extend(findings);
                let after = unless_violated(attempt, AttemptStep::Build);
                fix::or_turn(fix_turns, rules, attempt, after)
            }
            (AttemptStep::WriteCode, StepOutput::NoCode { code, message, calls }) => {
                no_code(attempt, note(code, message), calls)
            }
            (AttemptStep::WriteCode, StepOutput::TurnTaken { turn, calls }) => session::taken(attempt, *turn, calls)?,
            (AttemptStep::Build, StepOutput::Built { report }) => {
                let after = built(attempt, *report);
                fix::or_turn(fix_turns, rules, attempt, after)
            }
            (AttemptStep::Check, StepOutput::Checked { report }) => {
                let may_tune = may_tune && tune::is_worth_it(attempt);
                checked(attempt, *report, if may_tune { AttemptStep::Tune } else { rung_after_tune })
            }
            (AttemptStep::Tune, StepOutput::Tuned { report, program }) => {
                tune::adopt(attempt, *report, program.map(|program| *program));
                AfterStep::Step(rung_after_tune)
            }
            (AttemptStep::Sanitize, StepOutput::Sanitized { report }) => {
                sanitized(attempt, *report, AttemptStep::Measure)
            }
            (AttemptStep::SanitizeBest, StepOutput::Sanitized { report }) => {
                let after = sanitized(attempt, *report, AttemptStep::Profile);
                // Another attempt of its round may have become a better one meanwhile.
                if after != AfterStep::Finished && confirmed_estimate(attempt) > best {
                    becomes_best = true;
                }
                after
            }
            (AttemptStep::Measure, StepOutput::Measured { measurement, findings }) => {
                attempt.findings.extend(findings);
                let next = after_measurement(rules, &measurement, best, min_gain);
                attempt.measurement = Some(*measurement);
                timed(attempt);
                unless_violated(attempt, next)
            }
            (AttemptStep::Confirm, StepOutput::Measured { measurement, findings }) => {
                let after = confirmed(attempt, *measurement, findings);
                if after == AfterStep::Finished || !is_faster_than(rules, attempt, best) {
                    after
                } else if sanitize::is_due_before_publication(rules, target, attempt) {
                    AfterStep::Step(AttemptStep::SanitizeBest)
                } else {
                    becomes_best = true;
                    after
                }
            }
            (AttemptStep::Measure | AttemptStep::Confirm, StepOutput::MeasureFailed { end, findings, .. }) => {
                died_while_timed(attempt, &end, findings)
            }
            (AttemptStep::Profile, StepOutput::Profiled { profile }) => {
                attempt.verdict.custom_kernel_time_share = own_kernel_share(attempt.build.as_ref(), &profile);
                attempt.profile = Some(*profile);
                AfterStep::Step(AttemptStep::Diagnose)
            }
            (AttemptStep::Diagnose, StepOutput::Diagnosed { diagnosis, correction, unavailable: _, calls }) => {
                attempt.calls.extend(calls);
                diagnosed(attempt, diagnosis, correction)
            }
            (AttemptStep::Judge, StepOutput::Judged { rubric, reward, calls }) => {
                attempt.rubric = Some(rubric);
                attempt.reward = Some(reward);
                attempt.calls.extend(calls);
                AfterStep::Finished
            }
            (step, _) => {
                return Err(WorkflowError::OutOfOrder {
                    event: "step_completed".to_owned(),
                    message: format!("the output is not one of `{}`", step.as_str()),
                });
            }
        };
        let after = session::bounded(rules, attempt, after);
        if after == AfterStep::Finished && attempt.reward.is_none() {
            attempt.reward = Some(reward_of_failure(rules, attempt));
        }
        self.best_attempt = if becomes_best { Some(number) } else { self.best_attempt };
        Ok(after)
    }
}

/// Takes a reply without a program. In a fix turn, the version that failed stays.
fn no_code(attempt: &mut Attempt, why: Finding, calls: Vec<ModelCallSummary>) -> AfterStep {
    let outcome = fix::unfixed(attempt).unwrap_or(AttemptOutcome::NoCode);
    // A script without a reply for a fix turn says nothing about the program.
    if outcome == AttemptOutcome::NoCode || why.code != SCRIPT_ENDED {
        attempt.findings.push(why);
    }
    attempt.calls.extend(calls);
    failed(attempt, outcome)
}

fn diagnosed(attempt: &mut Attempt, diagnosis: Option<Diagnosis>, correction: Option<Correction>) -> AfterStep {
    if attempt.outcome.is_correct() {
        attempt.diagnosis = diagnosis;
        AfterStep::Step(AttemptStep::Judge)
    } else {
        attempt.correction = correction;
        AfterStep::Finished
    }
}

fn built(attempt: &mut Attempt, report: BuildReport) -> AfterStep {
    let built = report.library.is_some();
    attempt.build = Some(report);
    attempt.verdict.compiled = if built { Answer::Pass } else { Answer::Fail };
    if built { AfterStep::Step(AttemptStep::Check) } else { failed(attempt, AttemptOutcome::CompileFailed) }
}

fn died_while_timed(attempt: &mut Attempt, end: &ProcessEnd, findings: Vec<Finding>) -> AfterStep {
    attempt.findings.extend(findings);
    attempt.findings.push(note(end.code().to_owned(), format!("while it was timed: {}", end.describe())));
    // What died in the second measurement has not kept what the first one promised.
    attempt.verdict.fast = Answer::Inconclusive;
    let outcome = AttemptOutcome::of_end(end);
    failed(attempt, if has_violation(&attempt.findings) { AttemptOutcome::NotCompliant } else { outcome })
}

/// The step after the first measurement, given the speedup of the best attempt.
fn after_measurement(rules: u32, measured: &Measurement, best: Option<f64>, min_gain: f64) -> AttemptStep {
    let confirm = best.is_none_or(|best| rules::is_to_be_confirmed(rules, measured, best, best * (1.0 + min_gain)));
    if confirm { AttemptStep::Confirm } else { AttemptStep::Profile }
}

/// Whether a confirmed attempt becomes the best one.
fn is_faster_than(rules: u32, attempt: &Attempt, best: Option<f64>) -> bool {
    let first = attempt.measurement.as_ref().map(|first| first.speedup);
    confirmed_speedup(attempt)
        .is_some_and(|confirmed| best.is_none_or(|best| rules::beats(rules, first, confirmed, best)))
}

fn checked(attempt: &mut Attempt, report: CheckReport, next: AttemptStep) -> AfterStep {
    attempt.findings.extend(report.findings.iter().cloned());
    let wrong = report.cases.iter().any(|case| !case.passed);
    let complete = report.end == ProcessEnd::Finished && !report.cases.is_empty();
    attempt.verdict.numerically_correct = match (wrong, complete) {
        (true, _) => Answer::Fail,
        (false, true) => Answer::Pass,
        // A program that did not come to its end proved nothing.
        (false, false) => Answer::Inconclusive,
    };
    let outcome = AttemptOutcome::of_end(&report.end);
    attempt.check = Some(report);
    if has_violation(&attempt.findings) {
        failed(attempt, AttemptOutcome::NotCompliant)
    } else if complete && wrong {
        failed(attempt, AttemptOutcome::Incorrect)
    } else if complete {
        attempt.verdict.contract_compliant = Answer::Pass;
        AfterStep::Step(next)
    } else {
        failed(attempt, outcome)
    }
}

/// Takes the measurement of a fresh process.
fn confirmed(attempt: &mut Attempt, measurement: Measurement, findings: Vec<Finding>) -> AfterStep {
    attempt.findings.extend(findings);
    if let Some(first) = &attempt.measurement
        && measurement.speedup.high < first.speedup.low
    {
        attempt.findings.push(note(
            "confirmation_lower".to_owned(),
            format!(
                "the fresh process confirmed {:.3}x where the first measurement gave {:.3}x",
                measurement.speedup.estimate, first.speedup.estimate
            ),
        ));
    }
    if !measurement.precise {
        let Interval { low, high, .. } = measurement.speedup;
        attempt.findings.push(note(
            "confirmation_imprecise".to_owned(),
            format!("the confirmation was not precise: the speedup lies between {low:.3}x and {high:.3}x"),
        ));
    }
    attempt.confirmation = Some(measurement);
    timed(attempt);
    unless_violated(attempt, AttemptStep::Profile)
}

/// An error of memory or a race is no cheat, but results that come out right beside it may be wrong elsewhere: they count
/// for nothing, and the attempt goes the way of one that failed at run time.
fn sanitized(attempt: &mut Attempt, report: SanitizeReport, next: AttemptStep) -> AfterStep {
    let violated = has_violation(&report.findings);
    sanitize::examined(attempt, report);
    if !violated {
        return AfterStep::Step(next);
    }
    attempt.verdict.numerically_correct = Answer::Inconclusive;
    attempt.verdict.contract_compliant = Answer::Fail;
    attempt.verdict.fast = Answer::Inconclusive;
    failed(attempt, AttemptOutcome::RuntimeFailed)
}

/// What its measurements say about a correct attempt.
fn timed(attempt: &mut Attempt) {
    attempt.verdict.fast = attempt.is_fast();
    attempt.outcome = if attempt.verdict.fast == Answer::Pass {
        AttemptOutcome::CorrectFaster
    } else {
        AttemptOutcome::CorrectNotFaster
    };
}

fn note(code: String, message: String) -> Finding {
    Finding { code, severity: Severity::Note, message, line: None }
}
