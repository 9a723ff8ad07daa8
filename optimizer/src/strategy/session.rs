//! Turns of an agent session: within an attempt, the Coder uses one tool after the other until it submits a program.
//!
//! A turn is a model call (`write_code`) and the steps of the tool that the reply names: the rungs of the ladder up to the
//! tool's last one. Turns are numbered through the run, and their steps have keys like `subtask1/attempt3/turn5/build`. While
//! a turn is open, it is the last one of the attempt; a program that was tried out is kept with the attempt's earlier versions.

use nightshift_engine::workflow::WorkflowError;
use nightshift_protocol::artifact::ArtifactHash;
use nightshift_protocol::attempt::{
    AgentTool, AgentTurn, Attempt, AttemptOutcome, EarlierVersion, SessionLeft, SessionProgram, SessionRequest,
    TurnReply,
};
use nightshift_protocol::measurement::Measurement;
use nightshift_protocol::model_call::ModelCallSummary;
use nightshift_protocol::step::StepOutput;
use nightshift_protocol::verdict::{Finding, Severity, Verdict};

use super::attempt_step::AfterStep;
use super::attempt_step::AttemptStep;
use super::confirmation::confirmed_estimate;
use super::failed_attempt::{reward_of_failure, unless_violated};
use super::rules;
use super::state::{RunState, broken};

/// Code of the note on an attempt of which nothing was submitted.
const NOT_SUBMITTED: &str = "agent.not_submitted";
/// What is noted on a turn that the rules added.
const SUBMITTED_AT_THE_END: &str = "The session ended with a right program that is faster than the best one and was not submitted: the rules submit it.";

/// Returns the open turn of an attempt, or its last one; none where the Coder has no tools.
pub(super) fn turn(attempt: &Attempt) -> Option<&AgentTurn> {
    attempt.turns.last()
}

/// Returns the number of the turn that follows.
pub(super) fn following_turn(run: &RunState) -> u32 {
    run.attempts().rev().find_map(|attempt| attempt.turns.last()).map_or(1, |turn| turn.number.saturating_add(1))
}

/// Whether the agent ended its session.
pub(super) fn is_finished(run: &RunState) -> bool {
    run.attempts().flat_map(|attempt| &attempt.turns).any(|turn| turn.tool == Some(AgentTool::Finish))
}

/// Returns the summary with which the agent ended its session.
pub(super) fn summary(run: &RunState) -> Option<&str> {
    let finish = run.attempts().flat_map(|attempt| &attempt.turns).find(|turn| turn.tool == Some(AgentTool::Finish));
    finish.map(|turn| turn.note.as_str()).filter(|note| !note.trim().is_empty())
}

/// Takes the reply of a turn: gives the first step of its tool.
pub(super) fn taken(
    attempt: &mut Attempt,
    reply: TurnReply,
    calls: Vec<ModelCallSummary>,
) -> Result<AfterStep, WorkflowError> {
    let last_reply = calls.last().map(|call| call.reply.clone());
    attempt.calls.extend(calls);
    let before = attempt.turns.len().checked_sub(2);
    if let Some(before) = before.and_then(|index| attempt.turns.get_mut(index)) {
        before.result.clone_from(&reply.shown);
    }
    let turn = attempt.turns.last_mut().ok_or_else(|| broken("its attempt has no turn"))?;
    let TurnReply { tool, note, attempt: about, turn: read, source, findings, tunables, problem, shown: _, keys } =
        reply;
    *turn = AgentTurn {
        tool,
        note,
        attempt: about,
        turn: read,
        source: source.clone(),
        problem,
        reply: last_reply,
        keys,
        ..AgentTurn::open(turn.number)
    };
    Ok(match tool {
        Some(tool) if tool.takes_program() => {
            attempt.source = source;
            attempt.tunables = tunables;
            attempt.findings.extend(findings);
            unless_violated(attempt, AttemptStep::Build)
        }
        Some(AgentTool::Diagnose) => AfterStep::Step(AttemptStep::Diagnose),
        _ => AfterStep::TurnOver,
    })
}

/// Ends the turn where the tool has its result. A program that tries to deceive ends the attempt, whatever the tool is.
pub(super) fn bounded(rules: u32, attempt: &Attempt, after: AfterStep) -> AfterStep {
    let Some(tool) = turn(attempt).and_then(|turn| turn.tool) else { return after };
    let next = match after {
        AfterStep::Step(next) => next,
        AfterStep::Finished if tool == AgentTool::Submit => return after,
        AfterStep::Finished if rules::is_major_hacking(rules, &attempt.findings) => return after,
        AfterStep::Finished | AfterStep::TurnOver => return AfterStep::TurnOver,
    };
    match (tool, next) {
        // The Verifier is asked where the agent wants it.
        (AgentTool::Submit, AttemptStep::Diagnose) => AfterStep::Step(AttemptStep::Judge),
        (AgentTool::Submit | AgentTool::Diagnose, _)
        | (_, AttemptStep::Build)
        | (AgentTool::Check | AgentTool::Measure | AgentTool::Profile, AttemptStep::Check) => after,
        (AgentTool::Measure | AgentTool::Profile, AttemptStep::Tune | AttemptStep::Sanitize | AttemptStep::Measure) => {
            AfterStep::Step(AttemptStep::Measure)
        }
        (AgentTool::Profile, AttemptStep::Confirm | AttemptStep::Profile) => AfterStep::Step(AttemptStep::Profile),
        _ => AfterStep::TurnOver,
    }
}

/// Returns the attempt that the open turn has diagnosed.
pub(super) fn diagnosed(attempt: &Attempt) -> Option<u32> {
    turn(attempt).filter(|turn| turn.tool == Some(AgentTool::Diagnose))?.attempt
}

/// Keeps a diagnosis that the agent asked for with the attempt that it is about.
pub(super) fn take_diagnosis(
    run: &mut RunState,
    number: u32,
    about: u32,
    output: StepOutput,
) -> Result<(), WorkflowError> {
    let StepOutput::Diagnosed { diagnosis, correction, unavailable, calls } = output else {
        return Err(broken("the output is no diagnosis"));
    };
    let open = run.wanted_attempt_mut(number)?;
    open.calls.extend(calls);
    if let Some(turn) = open.turns.last_mut() {
        turn.problem = unavailable;
    }
    let attempt = run.wanted_attempt_mut(about)?;
    attempt.diagnosis = diagnosis.or(attempt.diagnosis.take());
    attempt.correction = correction.or(attempt.correction.take());
    Ok(())
}

/// Goes on after a turn: with the next one, or, at the session's end, with a program that is worth submitting.
pub(super) fn next_turn(run: &mut RunState, number: u32) -> Result<Option<AttemptStep>, WorkflowError> {
    let (following, max_turns) = (following_turn(run), run.limits().max_turns);
    let summary = summary(run).map(str::to_owned);
    let is_over = is_finished(run) || following > max_turns;
    let attempt = run.wanted_attempt_mut(number)?;
    set_aside(attempt);
    if !is_over {
        attempt.turns.push(AgentTurn::open(following));
        return Ok(Some(AttemptStep::WriteCode));
    }
    if let Some(source) = worth_submitting(run) {
        submit(run.wanted_attempt_mut(number)?, following, source);
        return Ok(Some(AttemptStep::Build));
    }
    let rules = run.input.rules;
    let attempt = run.wanted_attempt_mut(number)?;
    attempt.outcome = AttemptOutcome::NoCode;
    attempt.findings.push(Finding {
        code: NOT_SUBMITTED.to_owned(),
        severity: Severity::Note,
        message: match summary {
            Some(summary) => format!("the agent ended its session: {summary}"),
            None if following > max_turns => format!("all {max_turns} turns are used up"),
            None => "the agent ended its session".to_owned(),
        },
        line: None,
    });
    attempt.reward = Some(reward_of_failure(rules, attempt));
    Ok(None)
}

/// Opens the first turn of an attempt and gives its step. Once the turns are used up, the rules submit what is worth it.
pub(super) fn open(run: &RunState, attempt: &mut Attempt) -> AttemptStep {
    let following = following_turn(run);
    if let Some(source) = worth_submitting(run).filter(|_| following > run.limits().max_turns) {
        submit(attempt, following, source);
        return AttemptStep::Build;
    }
    attempt.turns.push(AgentTurn::open(following));
    AttemptStep::WriteCode
}

fn submit(attempt: &mut Attempt, turn: u32, source: ArtifactHash) {
    attempt.source = Some(source.clone());
    attempt.turns.push(AgentTurn {
        tool: Some(AgentTool::Submit),
        note: SUBMITTED_AT_THE_END.to_owned(),
        source: Some(source),
        ..AgentTurn::open(turn)
    });
}

/// Moves what a turn tried out to the earlier versions.
fn set_aside(attempt: &mut Attempt) {
    let (turn, tool) = turn(attempt).map_or((None, None), |turn| (Some(turn.number), turn.tool));
    attempt.tunables.clear();
    attempt.verdict = Verdict::default();
    let outcome = std::mem::replace(&mut attempt.outcome, AttemptOutcome::Pending);
    let Some(source) = attempt.source.take() else { return };
    let findings = std::mem::take(&mut attempt.findings);
    attempt.earlier_versions.push(EarlierVersion {
        build: attempt.build.take(),
        turn,
        tool,
        check: attempt.check.take(),
        measurement: attempt.measurement.take().map(without_samples),
        profile: attempt.profile.take(),
        ..EarlierVersion::new(source, outcome, findings)
    });
}

/// The state of the run is written with each step: samples of what was tried out would be most of it.
fn without_samples(measurement: Measurement) -> Measurement {
    Measurement { baseline_samples_ns: Vec::new(), candidate_samples_ns: Vec::new(), ..measurement }
}

/// Returns the fastest right program that was tried out and not submitted, where it is faster than the best one. The rules
/// submit once in a session.
pub(super) fn worth_submitting(run: &RunState) -> Option<ArtifactHash> {
    let by_rule = |turn: &AgentTurn| turn.tool == Some(AgentTool::Submit) && turn.reply.is_none();
    if run.attempts().flat_map(|attempt| &attempt.turns).any(by_rule) {
        return None;
    }
    let best = run.best().and_then(confirmed_estimate);
    let submitted = |version: &EarlierVersion| run.attempts().any(|a| a.source.as_ref() == Some(&version.source));
    let timed = run.attempts().flat_map(|attempt| &attempt.earlier_versions).filter_map(|version| {
        let speedup = version.measurement.as_ref().filter(|_| version.outcome.is_correct())?.speedup;
        Some((version, speedup))
    });
    let rules = run.input.rules;
    let faster = timed.filter(|(version, speedup)| {
        !submitted(version) && best.is_none_or(|best| rules::may_beat(rules, *speedup, best))
    });
    let fastest = faster.max_by(|(_, one), (_, other)| one.estimate.total_cmp(&other.estimate));
    fastest.map(|(version, _)| version.source.clone())
}

/// Returns what is left of the session; none where the strategy has none.
pub(super) fn left(run: &RunState) -> Option<SessionLeft> {
    super::find(&run.input.strategy).filter(|strategy| strategy.has_session())?;
    let limits = run.limits();
    let is_taken = |turn: &&AgentTurn| turn.tool.is_some() || turn.problem.is_some();
    let taken = run.attempts().flat_map(|attempt| &attempt.turns).filter(is_taken).map(|turn| turn.number).max();
    // The last attempt is submitted once it has an outcome.
    let submitted = run.attempts().filter(|attempt| attempt.outcome != AttemptOutcome::Pending).count();
    Some(SessionLeft {
        turns: limits.max_turns.saturating_sub(taken.unwrap_or(0)),
        submissions: limits.max_attempts.saturating_sub(u32::try_from(submitted).unwrap_or(u32::MAX)),
    })
}

/// Returns what the Coder is asked with in the open turn of an attempt; none where it has no tools.
pub(super) fn request(run: &RunState, attempt: &Attempt) -> Option<SessionRequest> {
    let open = turn(attempt)?;
    let turns: Vec<AgentTurn> = run.attempts().flat_map(|attempt| &attempt.turns).cloned().collect();
    let (_, earlier) = turns.split_last()?;
    let left = left(run)?;
    Some(SessionRequest {
        turn: open.number,
        opens_attempt: attempt.turns.len() == 1,
        last: earlier.last().and_then(|last| shown(run, last)).map(Box::new),
        best: run.best().map(bare).map(Box::new),
        turns_left: left.turns,
        submissions_left: left.submissions,
        programs: programs(run),
        turns: earlier.to_vec(),
    })
}

/// Returns what a turn is about: the version or the attempt that it made, had diagnosed or read.
fn shown(run: &RunState, last: &AgentTurn) -> Option<Attempt> {
    if let Some(number) = last.attempt {
        return run.attempt(number).map(bare);
    }
    let wanted = last.turn.unwrap_or(last.number);
    let version = run.attempts().find_map(|attempt| {
        let version = attempt.earlier_versions.iter().find(|version| version.turn == Some(wanted))?;
        Some(version.as_attempt(attempt))
    });
    let of_turn = |attempt: &&Attempt| attempt.source.is_some() && turn(attempt).is_some_and(|t| t.number == wanted);
    version.or_else(|| run.attempts().find(of_turn).map(bare))
}

fn programs(run: &RunState) -> Vec<SessionProgram> {
    let mut programs = Vec::new();
    for attempt in run.attempts() {
        let versions = attempt.earlier_versions.iter().filter_map(|version| {
            Some(SessionProgram { attempt: None, turn: version.turn?, source: version.source.clone() })
        });
        programs.extend(versions);
        let submitted = turn(attempt).zip(attempt.source.as_ref());
        programs.extend(submitted.map(|(turn, source)| SessionProgram {
            attempt: Some(attempt.number),
            turn: turn.number,
            source: source.clone(),
        }));
    }
    programs
}

/// The attempt without what led to it: a prompt shows one program.
pub(super) fn bare(attempt: &Attempt) -> Attempt {
    Attempt { earlier_versions: Vec::new(), turns: Vec::new(), ..attempt.clone() }
}
