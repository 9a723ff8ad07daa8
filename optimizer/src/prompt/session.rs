//! The text that the Coder gets after a turn of an agent session.

use nightshift_protocol::attempt::{AgentTool, AgentTurn, Attempt, SessionRequest};
use nightshift_protocol::baseline::BaselineKind;
use nightshift_protocol::measurement::Interval;
use nightshift_protocol::step::PreparedTask;
use nightshift_protocol::verdict::Answer;
use serde::Serialize;

use super::view::AttemptView;
use crate::roofline::NEAR_ROOFLINE;

/// The result of a turn, and what is left after it.
#[derive(Serialize)]
pub(crate) struct TurnResultView {
    turn: TurnView,
    /// Number of the attempt that the turn submitted.
    submitted: Option<u32>,
    /// What came of it, in words.
    outcome: String,
    /// The version or attempt that it is about.
    attempt: Option<AttemptView>,
    is_built: bool,
    is_checked: bool,
    milestone: Option<&'static str>,
    over_fastest: Option<String>,
    fastest_baseline: Option<&'static str>,
    roofline_percent: Option<String>,
    best: String,
    turns_left: u32,
    submissions_left: u32,
}

#[derive(Serialize)]
struct TurnView {
    number: u32,
    tool: Option<&'static str>,
    problem: Option<String>,
}

impl TurnResultView {
    /// `source` is the text of the program that the turn is about.
    pub(crate) fn new(
        session: &SessionRequest,
        turn: &AgentTurn,
        prepared: &PreparedTask,
        source: Option<String>,
    ) -> Self {
        let about = session.last.as_deref().filter(|_| turn.tool.is_some());
        let fastest = prepared.fastest_baseline().map(|fastest| fastest.kind);
        let over_fastest = |attempt: &Attempt| prepared.over_fastest(attempt.published()?);
        Self {
            turn: TurnView {
                number: turn.number,
                tool: turn.tool.map(AgentTool::as_str),
                problem: turn.problem.clone(),
            },
            submitted: about.map(|attempt| attempt.number).filter(|_| turn.tool == Some(AgentTool::Submit)),
            outcome: outcome(turn, about),
            is_built: about.is_some_and(|attempt| attempt.build.as_ref().is_some_and(|build| build.library.is_some())),
            is_checked: about.is_some_and(|attempt| attempt.check.is_some()),
            milestone: about.and_then(|attempt| milestone(attempt, prepared)),
            over_fastest: about
                .and_then(over_fastest)
                .filter(|_| fastest.is_some_and(|kind| kind != BaselineKind::Reference))
                .map(interval),
            fastest_baseline: fastest.map(BaselineKind::label),
            roofline_percent: about.and_then(Attempt::roofline_share).map(|share| format!("{:.0}", share * 100.0)),
            attempt: about.map(|attempt| AttemptView::new(attempt, source)),
            best: match session.best.as_deref().and_then(|best| Some((best.number, best.speedup()?))) {
                Some((number, speedup)) => format!("attempt {number}, {}, confirmed", interval(speedup)),
                None => "none".to_owned(),
            },
            turns_left: session.turns_left,
            submissions_left: session.submissions_left,
        }
    }
}

fn interval(speedup: Interval) -> String {
    format!("{:.3}x [{:.3}, {:.3}]", speedup.estimate, speedup.low, speedup.high)
}

/// What came of a turn, in words.
fn outcome(turn: &AgentTurn, about: Option<&Attempt>) -> String {
    let Some(tool) = turn.tool else { return "the reply could not be used".to_owned() };
    let Some(attempt) = about else { return "there is nothing to show".to_owned() };
    let number = attempt.number;
    match tool {
        AgentTool::Read if turn.attempt.is_some() => format!("attempt {number}, {}", attempt.outcome.as_str()),
        AgentTool::Diagnose if attempt.diagnosis.is_some() || attempt.correction.is_some() => {
            format!("attempt {number} is diagnosed")
        }
        AgentTool::Diagnose => format!("attempt {number} has no diagnosis"),
        _ if !attempt.outcome.is_correct() && attempt.outcome.as_str() != "pending" => {
            format!("it failed, {}", attempt.outcome.as_str())
        }
        _ if attempt.measurement.is_some() => "it is right and timed".to_owned(),
        _ if attempt.check.is_some() => "it is right, and not timed".to_owned(),
        _ => "it is built, and not checked".to_owned(),
    }
}

/// Returns the highest milestone that a program has reached.
fn milestone(attempt: &Attempt, prepared: &PreparedTask) -> Option<&'static str> {
    let is_right = attempt
        .check
        .as_ref()
        .is_some_and(|check| !check.cases.is_empty() && check.cases.iter().all(|case| case.passed))
        && (attempt.outcome.is_correct() || attempt.outcome.as_str() == "pending");
    if !is_right {
        return None;
    }
    let over_fastest = attempt.published().and_then(|published| prepared.over_fastest(published));
    Some(if attempt.measurement.is_some() && attempt.roofline_share().is_some_and(|share| share >= NEAR_ROOFLINE) {
        "near the roofline"
    } else if over_fastest.is_some_and(|over| over.low > 1.0) {
        "faster than the fastest baseline"
    } else if attempt.is_fast() == Answer::Pass {
        "faster than the reference"
    } else {
        "right"
    })
}
